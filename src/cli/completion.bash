# SPDX-License-Identifier: Apache-2.0
# Completion for bash:  eval "$(assay completion bash)"   The wheel puts it where bash-completion finds it for its environment.

# "PROGRAM COMMAND": each option and its values: with commas between, @folders, @files, or - for a switch. WORD is what has
# no name.
_assay_table() {
    case $1 in
@TABLE@
    esac
}

_assay_words() {
    COMPREPLY=($(compgen -W "$1" -- "$2"))
}

_assay() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} program=assay at=1 names table i
    local options="" values="" words=""
    names="@COMMANDS@ --help --version"
    # `msit llm COMMAND`, `ait llm COMMAND`
    if [[ ${COMP_WORDS[0]##*/} != assay ]]; then
        program=msit at=2 names="@OLD_COMMANDS@ --help"
        ((COMP_CWORD == 1)) && _assay_words "llm --help" "$word" && return
    fi
    ((COMP_CWORD == at)) && _assay_words "$names" "$word" && return
    table=($(_assay_table "$program ${COMP_WORDS[at]}"))
    for ((i = 0; i < ${#table[@]}; i += 2)); do
        case ${table[i]} in
        "$previous") values=${table[i + 1]} ;;&
        WORD) words=${table[i + 1]} ;;
        *) options+=" ${table[i]}" ;;
        esac
    done
    if [[ ${values:--} == - && $word == -* ]]; then
        _assay_words "$options" "$word"
        return
    fi
    [[ ${values:--} != - ]] || values=$words
    case $values in
    @folders) COMPREPLY=($(compgen -d -- "$word")) ;;
    "" | @files) COMPREPLY=($(compgen -f -- "$word")) ;;
    *) _assay_words "${values//,/ }" "$word" ;;
    esac
}

complete -o filenames -F _assay assay msit ait
