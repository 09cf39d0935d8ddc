# SPDX-License-Identifier: Apache-2.0
# Completion for bash:  eval "$(assay completion bash)"   The wheel puts it where bash-completion finds it for its environment.

_assay_words() {
    COMPREPLY=($(compgen -W "$1" -- "$2"))
}

# "PROGRAM COMMAND": its options
_assay_options() {
    case $1 in
@OPTIONS@
    esac
}

# "PROGRAM COMMAND OPTION": what its value can be, where it is no file; WORD is what has no name
_assay_values() {
    case $1 in
@VALUES@
    esac
}

_assay() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} program=assay at=1 names values
    names="@COMMANDS@ --help --version"
    # `msit llm COMMAND`, `ait llm COMMAND`
    if [[ ${COMP_WORDS[0]##*/} != assay ]]; then
        program=msit at=2 names="@OLD_COMMANDS@ --help"
        ((COMP_CWORD == 1)) && _assay_words "llm --help" "$word" && return
    fi
    ((COMP_CWORD == at)) && _assay_words "$names" "$word" && return
    values=$(_assay_values "$program ${COMP_WORDS[at]} $previous")
    if [[ -z $values && $word == -* ]]; then
        _assay_words "$(_assay_options "$program ${COMP_WORDS[at]}")" "$word"
        return
    fi
    [[ -n $values ]] || values=$(_assay_values "$program ${COMP_WORDS[at]} WORD")
    case $values in
    @folders) COMPREPLY=($(compgen -d -- "$word")) ;;
    "") COMPREPLY=($(compgen -f -- "$word")) ;;
    *) _assay_words "$values" "$word" ;;
    esac
}

complete -o filenames -F _assay assay msit ait
