#!/usr/bin/env bash
# Makes the tree for a machine with a GPU: programs, plug-ins, the libraries that they need beyond libc and the
# driver, suites and golden tensors. usage: bundle.sh BUILD_FOLDER OUT_FOLDER (OUT must not exist)
set -euo pipefail
build=$1 out=$2
limit_mib=50
die() { printf 'bundle.sh: %s\n' "$*" >&2; exit 3; }
[[ ! -e $out ]] || die "$out exists already; name a folder that does not"

cmake --install "$build" --prefix "$out" --strip >/dev/null || die "$build cannot be installed; build it first"
# Engines with third-party libraries (UCX, NIXL, Mooncake) are left out: they show nothing about a GPU.
for plugin in "$out"/lib/kvcts/engines/*.so "$out"/lib/*/kvcts/engines/*.so; do
  [[ $plugin =~ kvcts_engine_(cuda|memcpy|shm|fixture)\.so$ ]] || rm -f "$plugin"
done

# Everything but glibc, which must match the system's loader.
mkdir -p "$out/lib"
libc='^(ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libnsl|libanl|linux-vdso)\.so'
find "$out" -type f \( -perm -u+x -o -name '*.so*' \) -exec sh -c 'ldd "$1" 2>/dev/null || true' _ {} \; |
  awk '/=> \// {print $3}' | sort -u | while read -r library; do
    if ! [[ $(basename "$library") =~ $libc ]]; then cp -Lf "$library" "$out/lib/"; fi
  done
if find "$out" -type f \( -perm -u+x -o -name '*.so*' \) \
  -exec sh -c 'ldd "$1" 2>/dev/null || true' _ {} \; | grep 'not found'; then
  die "libraries above are missing on this machine"
fi
strip --strip-unneeded "$out"/lib/*.so* 2>/dev/null || true

cp "$(dirname "$0")/gpu-acceptance" "$out/gpu-acceptance"
cat >"$out/kvcts" <<'SH'
#!/bin/sh
# Runs the program with this folder's libraries.
here=$(cd "$(dirname "$0")" && pwd -P)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/bin/kvcts" "$@"
SH
chmod +x "$out/kvcts" "$out/gpu-acceptance"

mib=$(du -sm "$out" | cut -f1)
# The newest symbol of glibc that any of it uses, not the version of this machine's.
glibc=$(find "$out" -type f \( -perm -u+x -o -name '*.so*' \) -exec objdump -T {} + 2>/dev/null |
  grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1 || true)  # objdump fails on scripts
printf '%s: %s MiB, glibc %s or newer is needed where it runs\n' "$out" "$mib" "${glibc#GLIBC_}"
((mib <= limit_mib)) || die "the bundle has $mib MiB, at most $limit_mib are allowed"
