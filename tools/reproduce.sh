#!/usr/bin/env bash
# Makes the wheels a second time, elsewhere and as a stranger does: from the source archive of a clone, by pip with an environment of
# its own. Fails when a byte differs from those of the folder given. What is not committed is not in a clone.
#
#   tools/reproduce.sh dist
set -euo pipefail
cd "$(dirname "$0")/.."

first=$(realpath "$1") python=$PWD/.venv/bin/python
elsewhere=$(mktemp -d)/of-another-depth
trap 'rm -rf "$(dirname "$elsewhere")"' EXIT
git clone -q . "$elsewhere/assay"
ln -s "$PWD/.venv" "$elsewhere/assay/.venv"
cd "$elsewhere"
"$python" assay/tools/build.py --source archive
wheel=$(basename "$first"/assay_llm-*.whl .whl)
# What tools/build.py sets: the platform in the name, the time of every file in it. And what lets ccache know the objects again:
# warnings and the compiler's name.
export _PYTHON_HOST_PLATFORM=${wheel##*-} TMPDIR=$elsewhere CCACHE_BASEDIR=$elsewhere CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 CXX=c++
SOURCE_DATE_EPOCH=$(git -C assay log -1 --format=%ct)
ASSAY_WERROR=$([ -n "${CI:-}" ] && echo ON || echo OFF)
export SOURCE_DATE_EPOCH ASSAY_WERROR
pip=("$python" -m pip wheel -q --disable-pip-version-check --no-deps -w again)
"${pip[@]}" -C build-dir=build/release archive/assay_llm-*.tar.gz
"${pip[@]}" --no-build-isolation assay/compat
for made in "$first"/*.whl; do
  cmp "$made" "again/$(basename "$made")"
done
echo "reproduce: $(ls again | wc -l) wheels have the same bytes again, built from $(basename archive/*.tar.gz)"
