#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the container does, in any bare Debian 12 that has this folder's repository and its dist/.
#
#   demo.sh install    Python, PyTorch and the wheels into /opt/assay; PIP_INDEX_URL chooses the index, as ever
#   demo.sh run        a small Llama captured twice, once with a planted fault, and compared
set -eu
cd "$(dirname "$0")/../.."

case ${1-} in
install)
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
  python3 -m venv /opt/assay
  /opt/assay/bin/pip install -q -r requirements-demo.txt
  /opt/assay/bin/pip install -q --no-index --find-links dist assay-llm
  ;;
run)
  PATH=/opt/assay/bin:$PATH
  exec python examples/demo.py
  ;;
*)
  echo "usage: demo.sh install|run" >&2
  exit 2
  ;;
esac
