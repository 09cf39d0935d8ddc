# SPDX-License-Identifier: Apache-2.0
# Puts the ATB probe into everything this shell starts, for programs that `assay dump` cannot start: daemons, services.
#   source load_atb_probe.sh [--output=DIR] [--config=FILE]
#     --output   folder for everything, default the current one
#     --config   JSON file that chooses what is captured and may be changed at any time, default config.json beside this
#                script; docs/commands/dump.md, "Changing the choice while the program runs"
# `source unload_atb_probe.sh` takes it out again. Takes the options and variables of msprobe's script of this name.

_assay_load() {
    local folder output=$PWD config word library
    folder=$(cd -- "$(dirname -- "${BASH_SOURCE[0]:-$0}")" && pwd) || return 1
    config=$folder/config.json
    if [ $# -gt 2 ]; then
        echo "load_atb_probe.sh: expected at most --output=DIR and --config=FILE" >&2
        return 1
    fi
    for word in "$@"; do
        case $word in
        --output=*) output=${word#--output=} ;;
        --config=*) config=${word#--config=} ;;
        *)
            echo "load_atb_probe.sh: unknown option '$word'; expected --output=DIR or --config=FILE" >&2
            return 1
            ;;
        esac
    done
    library=$folder/libatb_probe.so
    if [ ! -r "$library" ]; then
        echo "load_atb_probe.sh: $library is missing; install assay again" >&2
        return 1
    fi
    mkdir -p -- "$output" || return 1
    output=$(cd -- "$output" && pwd) || return 1
    if [ ! -r "$config" ]; then
        echo "load_atb_probe.sh: $config cannot be read; write one, for example from config_example.json" >&2
        return 1
    fi
    config=$(cd -- "$(dirname -- "$config")" && pwd)/$(basename -- "$config")
    case :${LD_PRELOAD:-}: in
    *":$library:"*) ;;
    *) export LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD} ;;
    esac
    export ATB_OUTPUT_DIR=$output/ ATB_DUMP_CONFIG=$config
    export ATB_DUMP_TYPE='tensor|layer|model' ATB_SAVE_TENSOR=1 ATB_SAVE_TENSOR_PART=2 ATB_SAVE_CHILD=1
    export ATB_SAVE_TENSOR_TIME=1 ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER=1
    echo "assay: the probe is loaded; dumps go to $output, chosen by $config" >&2
}
_assay_load "$@"
_assay_status=$?
unset -f _assay_load
return $_assay_status 2>/dev/null || exit $_assay_status
