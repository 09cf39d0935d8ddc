#!/usr/bin/env bash
# tools/run_fuzzers.sh BUILD_DIR SECONDS_EACH: runs every libFuzzer program on a copy of its seed corpus, two at a time.
set -euo pipefail

run_one() {
  local build=$1 seconds=$2 fuzzer=$3 name seeds work
  name=$(basename "$fuzzer")
  seeds=$(find src -type d -name "${name}_corpus" | head -n 1)
  work=$(mktemp -d)
  [ -n "$seeds" ] && cp -r "$seeds/." "$work"
  if ! "$fuzzer" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -print_final_stats=1 -artifact_prefix="$build/" "$work" \
      2>"$work.log"; then
    echo "fuzz: $name failed" >&2
    tail -n 40 "$work.log" >&2
    return 1
  fi
  echo "fuzz: $name, $(sed -n 's/.*number_of_executed_units: *//p' "$work.log") inputs in $seconds s," \
    "$(grep -oE 'cov: [0-9]+' "$work.log" | tail -n 1)"
  rm -rf "$work" "$work.log"
}
export -f run_one

build=$1 seconds=$2
mapfile -t fuzzers < <(find "$build" -type f -name '*_fuzz' -perm -u+x | sort)
[ ${#fuzzers[@]} -gt 0 ]
printf '%s\0' "${fuzzers[@]}" | xargs -0 -P 2 -I{} bash -c 'run_one "$@" || exit 255' run_one "$build" "$seconds" {}
echo "fuzz: ${#fuzzers[@]} targets"
