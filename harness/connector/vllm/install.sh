#!/usr/bin/env bash
# install.sh PYTHON FOLDER LOGS: an environment with the Python files of one vLLM, torch for the CPU and the transfer
# engines, for the connector programs of suite vllm. The folder's name says which vLLM: vllm (0.33.0) or vllm-VERSION; both
# versions ask for the same packages, but for those of requirements-VERSION-more.txt.
# 0.6 GB to download, 2.7 GB in place.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
source "$here/../environment.sh"

version=$(basename "$2")
version=${version#vllm} version=${version#-}
wheel=$here/requirements-vllm-${version:=0.33.0}.txt
[[ -f $wheel ]] || {
  say "vLLM $version: SKIPPED, with the cases that need it: no pin of that version in ${here#"$PWD/"}"
  exit 0
}

packages=("$here/requirements.txt") more=$here/requirements-$version-more.txt
[[ ! -f $more ]] || packages+=("$more")
environment "vLLM $version" "$1" "$2" "$3" "0.6 GB" "$wheel" "${packages[@]}" "${BASH_SOURCE[0]}"
cpu_torch
pip install --no-compile --no-deps --only-binary=:all: --require-hashes "${packages[@]/#/--requirement=}" ||
  give_up "its packages could not be installed"
# Of vLLM's own wheel (336 MB) only the Python files: nothing compiled is used.
python_files "$wheel" vllm
finish
