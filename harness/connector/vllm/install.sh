#!/usr/bin/env bash
# install.sh PYTHON FOLDER LOGS: an environment with the Python files of one vLLM, torch for the CPU and the transfer
# engines, for the connector programs of suite vllm. The folder's name says which vLLM: vllm (0.33.0) or vllm-VERSION; both
# versions ask for the same packages.
# 0.6 GB to download, 2.6 GB in place.
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

environment "vLLM $version" "$1" "$2" "$3" "0.6 GB" "$wheel" "$here/requirements.txt" "${BASH_SOURCE[0]}"
cpu_torch
pip install --no-compile --no-deps --only-binary=:all: --require-hashes -r "$here/requirements.txt" ||
  give_up "its packages could not be installed"
# Of vLLM's own wheel (336 MB) only the Python files: nothing compiled is used.
pip download --no-deps --require-hashes --dest "$part/wheel" -r "$wheel" || give_up "vLLM's wheel could not be fetched"
"$part/bin/python" - "$part/wheel" >>"$log" 2>&1 <<'PYTHON' || give_up "vLLM's wheel could not be unpacked"
import glob, sys, sysconfig, zipfile
with zipfile.ZipFile(glob.glob(sys.argv[1] + "/vllm-*.whl")[0]) as wheel:
    wheel.extractall(sysconfig.get_paths()["purelib"],
                     [name for name in wheel.namelist() if name.endswith(".py") or ".dist-info/" in name])
PYTHON
rm -rf "$part/wheel"
finish
