#!/usr/bin/env bash
# Builds llama-cpp-python (there are no wheels of it) and installs it into .venv, for tests/ggml/test_engines_more.py. Three to
# six minutes on two cores; the wheel stays in build/engines and is used again.   docs/design/ggml-engines.md
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.3.36
folder=build/engines/llama-cpp-python-$version
if ! compgen -G "$folder/*.whl" >/dev/null; then
  mkdir -p "$folder"
  # The package puts LLAMA_BUILD_COMMON=ON into the cache; only a plain variable wins over that.
  printf 'set(LLAMA_BUILD_COMMON OFF)\n' > "$folder/no_common.cmake"
  flags=(-GNinja -DGGML_NATIVE=OFF -DGGML_LLAMAFILE=OFF -DLLAVA_BUILD=OFF "-DCMAKE_PROJECT_INCLUDE=$PWD/$folder/no_common.cmake")
  CMAKE_ARGS="${flags[*]}" CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-2} \
    .venv/bin/pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --no-binary llama-cpp-python \
    -w "$folder" "llama-cpp-python==$version"
fi
.venv/bin/pip install -q --disable-pip-version-check --no-deps "$folder"/*.whl diskcache==5.6.3
