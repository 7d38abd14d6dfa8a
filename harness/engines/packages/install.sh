#!/usr/bin/env bash
# install.sh PYTHON FOLDER LOGS [--no-install] [GLOB]: installs the packages of this folder (README.md) whose names
# match GLOB (default: all), each into FOLDER/<name>, completely or not at all; those marked "# optional" only with a
# GLOB. Up-to-date packages are left alone. It never fails: it reports a missing package, and its engines are SKIPPED.
set -euo pipefail
pins=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
python=$1 target=$2 logs=$3 install=1
shift 3
[[ ${1:-} != --no-install ]] || { install=0; shift; }
names=${1:-*}

say() { printf '== %s\n' "$*" >&2; }

said=0
for file in "$pins"/*.txt; do
  name=$(basename "$file" .txt)
  # shellcheck disable=SC2053
  [[ $name == $names ]] || continue
  [[ $names != "*" ]] || ! grep -qx '# optional' "$file" || continue
  folder=$target/$name
  log=$logs/install-$name.log
  cmp -s "$file" "$folder/kvcts-pins" && continue
  if [[ $install == 0 ]]; then
    say "engine package $name is missing or out of date and --no-install forbids installing it: its engines are SKIPPED"
    continue
  fi
  ((said++)) || say "installing pinned transfer engines into ${target#"$PWD/"} (--no-engines declines)"
  mkdir -p "$logs" "$target"
  rm -rf "$folder" "$folder.part"
  options=(--no-deps --only-binary=:all: --require-hashes --no-compile --target "$folder.part")
  wheel=$(sed -n 's/^# wheel: cp//p' "$file")
  [[ -z $wheel ]] || options+=(--implementation cp --abi "cp$wheel" --python-version "${wheel:0:1}.${wheel:1}"
                              --platform manylinux_2_28_x86_64)
  if "$python" -m pip --disable-pip-version-check --no-input install "${options[@]}" -r "$file" </dev/null >"$log" 2>&1 &&
    cp "$file" "$folder.part/kvcts-pins" && mv "$folder.part" "$folder"; then
    say "  $name: $(du -sm "$folder" | cut -f1) MB"
  else
    rm -rf "$folder.part"
    why=$(grep -m1 '^ERROR' "$log" || tail -n1 "$log")
    say "  $name: SKIPPED, with the engines that need it: ${why#ERROR: } (whole output: $log)"
  fi
done
