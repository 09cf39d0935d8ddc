#!/usr/bin/env bash
# Makes the wheels a second time, in a clone elsewhere, and fails when a byte differs from those of the folder given. What is not
# committed is not in a clone.
#
#   tools/reproduce.sh dist
set -euo pipefail
cd "$(dirname "$0")/.."

first=$1
clone=$(mktemp -d)/of-another-depth/assay
trap 'rm -rf "$(dirname "$(dirname "$clone")")"' EXIT
git clone -q . "$clone"
ln -s "$PWD/.venv" "$clone/.venv"
(cd "$clone" && CCACHE_BASEDIR=$clone .venv/bin/python tools/build.py --wheels wheels)
for wheel in "$first"/*.whl; do
  cmp "$wheel" "$clone/wheels/$(basename "$wheel")"
done
echo "reproduce: $(ls "$first" | wc -l) wheels have the same bytes again"
