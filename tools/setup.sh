#!/usr/bin/env bash
# Installs what is missing: Debian packages (as root) and Python packages into .venv. Does nothing, quickly, when all is there.
#
#   tools/setup.sh GROUP ...
#     build      compiler, libraries, what builds the Python modules
#     demo       PyTorch and transformers
#     test       GoogleTest, pytest, a browser, a spreadsheet, valgrind, debootstrap, ggml engines, auditors and linters of Python
#     lint       clang-format, codespell
#     sanitize   clang with its run-time libraries
#     bench      google-benchmark
#     aarch64    compiler, libraries and emulator for 64-bit ARM
# All groups of one call are installed in one go.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
wants() { [[ " $groups " == *" $1 "* ]]; }
groups=$*

packages=()
if wants build; then
  packages+=(g++ cmake ninja-build make ccache libexpected-dev nlohmann-json3-dev libxxhash-dev
             libprotozero-dev libopenblas-serial-dev zlib1g-dev
             node-d3-axis node-d3-scale node-d3-selection node-d3-shape)
  "$python" -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
  "$python" -c 'import os, sysconfig; assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null ||
    packages+=(python3-dev)
fi
if wants test; then packages+=(libgtest-dev libgmock-dev librapidcheck-dev protobuf-compiler chromium libreoffice-calc-nogui valgrind debootstrap); fi
if wants lint; then packages+=(clang-format-19 codespell); fi
if wants sanitize; then packages+=(clang-19 lld-19 libclang-rt-19-dev); fi
if wants bench; then packages+=(libbenchmark-dev); fi
if wants aarch64; then
  packages+=(g++-aarch64-linux-gnu qemu-user-static libopenblas-serial-dev:arm64 zlib1g-dev:arm64 libxxhash-dev:arm64
             libgtest-dev:arm64 libgmock-dev:arm64 librapidcheck-dev:arm64)
  # Debian's headers of Python are of one machine; others take the same for all.
  case $("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))') in
    /usr/include/*) packages+=(libpython3-dev:arm64) ;;
  esac
fi

missing=()
for package in "${packages[@]}"; do
  case $package in
    cmake | ninja-build | make | g++ | ccache)  # a newer one from elsewhere is as good
      command -v "${package%-build}" >/dev/null && continue ;;
  esac
  dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  foreign=
  if [[ ${missing[*]} == *:arm64* ]]; then foreign="dpkg --add-architecture arm64 && apt-get update"; fi
  if [ "$(id -u)" = 0 ]; then
    echo "setup: installing ${missing[*]}"
    [ -z "$foreign" ] || dpkg --add-architecture arm64
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "setup: please run as root: ${foreign:+$foreign && }apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

pip_install() { .venv/bin/pip install -q --disable-pip-version-check "$@" 2> >(grep -v '^WARNING: Location' >&2); }

# A stamp holds the requirements it was made from, so an edit of a file is seen.
outdated() { ! cat "${@:2}" 2>/dev/null | cmp -s - ".venv/$1.stamp"; }
stamp() { cat "${@:2}" > ".venv/$1.stamp"; }

if wants build && outdated build requirements-build.txt; then
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  pip_install -r requirements-build.txt
  stamp build requirements-build.txt
fi

# torch is named by its exact version: a looser requirement of another package would fetch a CUDA build.
wanted=()
if wants demo && outdated demo requirements-demo.txt; then wanted+=(-r requirements-demo.txt); fi
if wants test && outdated test requirements-demo.txt requirements-dev.txt; then wanted+=(-r requirements-demo.txt -r requirements-dev.txt); fi
if [ ${#wanted[@]} -gt 0 ]; then
  echo "setup: installing Python packages into .venv"
  pip_install "${wanted[@]}"
  if wants demo; then stamp demo requirements-demo.txt; fi
  if wants test; then stamp test requirements-demo.txt requirements-dev.txt; fi
fi
if wants test && outdated engines requirements-engines.txt; then
  # Without dependencies (theirs are there already) and only as wheels.
  if ! pip_install --no-deps --only-binary :all: -r requirements-engines.txt; then
    [ "$(uname -m)" != x86_64 ] || exit 1
    echo "setup: no ggml engines for this machine, their tests are skipped" >&2
  fi
  stamp engines requirements-engines.txt
fi
