# SPDX-License-Identifier: Apache-2.0
# Completion for fish:  assay completion fish | source   or into ~/.config/fish/completions/assay.fish

# The old names have a word of their own in front of the command: `msit llm dump`.
function __assay_needs_command
    set -l words (commandline -opc)
    if string match -q -- '*assay' $words[1]
        test (count $words) -eq 1
    else
        test (count $words) -eq 2
    end
end

function __assay_has_command
    set -l words (commandline -opc)
    if test "$words[2]" = llm
        set -e words[2]
    end
    contains -- "$words[2]" $argv
end

complete -c msit -n 'test (count (commandline -opc)) -eq 1' -f -a llm
complete -c ait -n 'test (count (commandline -opc)) -eq 1' -f -a llm
@LINES@
