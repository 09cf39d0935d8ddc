#!/usr/bin/env bash
# tools/run_fuzzers.sh BUILD_DIR SECONDS_EACH: runs every libFuzzer program on a copy of its seed corpus.
set -euo pipefail
build=$1 seconds=$2
found=0
while IFS= read -r fuzzer; do
  name=$(basename "$fuzzer")
  seeds=$(find src -type d -name "${name}_corpus" | head -n 1)
  work=$(mktemp -d)
  [ -n "$seeds" ] && cp -r "$seeds/." "$work"
  echo "fuzz: $name for $seconds s from $(find "$work" -type f | wc -l) seeds"
  if ! "$fuzzer" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=20 -artifact_prefix="$build/" "$work" 2>"$work.log"; then
    tail -n 40 "$work.log" >&2
    exit 1
  fi
  grep -E '^Done|stat::number_of_executed' "$work.log" | tail -n 1 || true
  rm -rf "$work" "$work.log"
  found=$((found + 1))
done < <(find "$build" -type f -name '*_fuzz' -perm -u+x | sort)
echo "fuzz: $found targets"
[ "$found" -gt 0 ]
