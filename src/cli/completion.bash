# SPDX-License-Identifier: Apache-2.0
# Completion for bash:  eval "$(assay completion)"   The wheel puts it where bash-completion finds it for its environment.

_assay_words() {
    COMPREPLY=($(compgen -W "$1" -- "$2"))
}

# Options of a command; kept equal to `assay COMMAND --help` by tests/cli/test_completion.py.
_assay_options() {
    case $1 in
    dump | dd) echo "--help --exec --type --only-save-desc --save-operation-ids --execute-range --save-operation-child
        --save-time --operation-name --save-tiling --save-tensor-part --output --device-id --log-level
        --enable-symlink --config-path --queue --drop-when-full --sync --filter-rows --probe-library --compat
        --steps --modules --exclude --statistics --layout --level --weights --caches --force --require --host
        -sd -ids -er -child -time -opname -tiling -stp -o -device -l -seed -symlink -config -h" ;;
    opcheck | oo) echo "--help --input --csv-path --output --operation-ids --operation-name --precision-metric --device-id
        --atb-rerun --custom-algorithms --precision-mode --jobs --optimization-identify --log-level --standard --format
        --fail-on --max-memory --no-kernels --ops-list
        -i -c -o -ids -opname -metric -device -rerun -alg -pmode -j -opt -l -h" ;;
    errcheck) echo "--help --exec --type --output --exit --log-level --probe-library -o -l -h" ;;
    compare) echo "--help --golden-path --my-path --cmp-level --token-map --ranks --rank --map --stats --atol --rtol --cos
        --rel-l2 --thresholds --allow-unmatched --exit-zero --output --jsonl --unmatched --compat --jobs --max-memory --log-level
        --allow-pickle --weight --op-mapping-file --custom-algorithms --verdict --floor-run --save-floor --floor
        --own-error --slice --why
        -gp -mp -cl -st -mf -alg -o -r -l -w -j -h" ;;
    locate) echo "--help --golden --mine --output --token-map --ranks --map --floor-run --save-floor --floor
        --own-error --slice --why --json --exit-zero
        --jobs --max-memory -o -j -h" ;;
    show) echo "--help --step --rank --list --stats --values --all --histogram --weights --json --width -h" ;;
    convert) echo "--help --format --to --name --member --step --rank --dtype --input --op-name --op-type --force -h" ;;
    overflow) echo "--help --dump-path --output --top-n -d -out -n -h" ;;
    doctor) echo "--help --json --timeout -h" ;;
    verify) echo "--help --jobs -h -j" ;;
    logitscmp) echo "--help --golden-path --my-path --cosine-similarity --kl-divergence --l1-norm --dtype --output-dir
        --log-level -gp -mp -cs -kl -l1 -d -o -l -h" ;;
    logitsdump) echo "--help --exec --bad-case-result --token-range --log-level -e -bcr -tr -l -h" ;;
    bcanalyze) echo "--help --golden-path --my-path --log-level -gp -mp -l -h" ;;
    analyze) echo "--help --golden --test --log-level -g -t -l -h" ;;
    casefilter) echo "--help --input --metrics --output --log-level -i -m -o -l -h" ;;
    graph) echo "--help --output --level --style --format --groups --share-functions --compat-attributes --csv --diff --json -o -h" ;;
    esac
}

_assay() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    if ((COMP_CWORD == 1)); then
        _assay_words "dump errcheck compare locate opcheck show verify convert overflow doctor graph logitscmp logitsdump bcanalyze analyze casefilter
            completion help --help --version" "$word"
        return
    fi
    if [[ $command == help ]]; then
        _assay_words "dump errcheck compare locate opcheck show verify convert overflow doctor graph logitscmp logitsdump bcanalyze analyze casefilter" "$word"
        return
    fi
    case $previous in
    --cmp-level | -cl) _assay_words "layer module api logits" "$word" ;;
    --own-error) _assay_words "auto exact inferred off" "$word" ;;
    --compat) _assay_words "none msit ait-0.2" "$word" ;;
    --type) _assay_words "model layer op kernel tensor cpu_profiling onnx stats" "$word" ;;
    --level)
        case $command in
        dump | dd) _assay_words "module operator" "$word" ;;
        esac
        ;;
    --layout) _assay_words "native strict" "$word" ;;
    --host) _assay_words "auto atb torch ggml" "$word" ;;
    --log-level | -l) _assay_words "debug info warning error fatal critical" "$word" ;;
    --standard) _assay_words "atb legacy-o4 legacy-o4-strict legacy-o1 mixed" "$word" ;;
    --fail-on) _assay_words "failed error not_supported none" "$word" ;;
    --precision-metric | -metric) _assay_words "abs cos_sim kl" "$word" ;;
    --precision-mode | -pmode) _assay_words "keep_origin_dtype force_fp16 force_fp32" "$word" ;;
    --style) _assay_words "flat hierarchical me all" "$word" ;;
    --format | --to)
        case $command in
        opcheck | oo) _assay_words "xlsx csv json html" "$word" ;;
        *) _assay_words "npy pth safetensors txt csv bin cann statistics msprobe" "$word" ;;
        esac
        ;;
    --output | -o) COMPREPLY=($(compgen -d -- "$word")) ;;
    *)
        if [[ $word == -* ]]; then
            _assay_words "$(_assay_options "$command")" "$word"
        else
            COMPREPLY=($(compgen -f -- "$word"))
        fi
        ;;
    esac
}

# `msit llm COMMAND`, `ait llm COMMAND`
_assay_msit() {
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    case $COMP_CWORD in
    1) _assay_words "llm --help" "$word" ;;
    2) _assay_words "dump dd compare cc errcheck logitscmp logitsdump bcanalyze analyze casefilter --help" "$word" ;;
    *)
        case $previous in
        --cmp-level | -cl) _assay_words "layer module api logits" "$word" ;;
        --type) _assay_words "model layer op kernel tensor cpu_profiling onnx stats" "$word" ;;
        --log-level | -l) _assay_words "debug info warning error fatal critical" "$word" ;;
        --output | -o) COMPREPLY=($(compgen -d -- "$word")) ;;
        *)
            if [[ $word == -* && ${COMP_WORDS[2]} != @(compare|cc) ]]; then
                # Our own additions for PyTorch are not options of the old commands.
                local options=" $(echo $(_assay_options "${COMP_WORDS[2]}")) " ours
                for ours in --steps --modules --exclude --statistics --layout --level --weights --caches --force --require --host; do
                    options=${options//" $ours "/ }
                done
                _assay_words "$options" "$word"
            elif [[ $word == -* ]]; then
                _assay_words "--golden-path --my-path --log-level --output --op-mapping-file --cmp-level
                    --custom-algorithms --weight --stats --rank --compat --help
                    -gp -mp -l -o -mf -cl -alg -w -st -r -h" "$word"
            else
                COMPREPLY=($(compgen -f -- "$word"))
            fi
            ;;
        esac
        ;;
    esac
}

complete -o filenames -F _assay assay
complete -o filenames -F _assay_msit msit ait
