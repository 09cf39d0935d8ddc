# SPDX-License-Identifier: Apache-2.0
# Undoes load_atb_probe.sh in this shell:   source unload_atb_probe.sh
# Programs that run already keep the probe; set "dump_enable" in their configuration file to false.

_assay_unload() {
    local kept= library IFS=:
    for library in ${LD_PRELOAD:-}; do
        case $library in
        '' | */libatb_probe.so | */libatb_probe_abi0.so | */libatb_probe_abi1.so) ;;
        *) kept=$kept${kept:+:}$library ;;
        esac
    done
    if [ -n "$kept" ]; then
        export LD_PRELOAD=$kept
    else
        unset LD_PRELOAD
    fi
    unset ATB_OUTPUT_DIR ATB_DUMP_CONFIG ATB_DUMP_TYPE ATB_SAVE_TENSOR ATB_SAVE_TENSOR_PART ATB_SAVE_CHILD
    unset ATB_SAVE_TENSOR_TIME ATB_SAVE_TENSOR_IN_BEFORE_OUT_AFTER
}
_assay_unload
unset -f _assay_unload
