#compdef assay msit ait
# SPDX-License-Identifier: Apache-2.0
# Completion for zsh:  assay completion zsh > ~/.zfunc/_assay   (a folder of $fpath), or  eval "$(assay completion zsh)"

_assay() {
  local -a commands
  local program=assay
  commands=(
@COMMANDS@
  )
  # `msit llm COMMAND`, `ait llm COMMAND`
  if [[ ${words[1]:t} != assay ]]; then
    program=msit
    commands=(
@OLD_COMMANDS@
    )
    if (( CURRENT == 2 )); then
      compadd llm
      return
    fi
    shift words
    (( CURRENT-- ))
  fi
  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case "$program $words[1]" in
@OPTIONS@
  esac
}

if [[ ${funcstack[1]} == _assay ]]; then
  _assay "$@"
else
  compdef _assay assay msit ait
fi
