"""fill() and verify() of one large tensor beside the C++ kernels: both as ratios to memset and memcmp of the same bytes, so that other load
on the machine matters little.

    speed.py KVCTS_BENCH [--size MIB] [--threads N]

KVCTS_BENCH is build/bin/kvcts_bench; its rows "generate" and "check bf16 N H C128" are the kernels. PYTHONPATH: build/python.
"""

import argparse
import ctypes
import json
import mmap
import statistics
import subprocess
import tempfile
import time

import kvcts
import numpy as np

ROW = "bf16 N H C128"


def memory(size: int) -> np.ndarray:
    """On huge pages where the system has them, as kvcts_bench has it."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    out = np.frombuffer(pages, np.uint8)
    out[:] = 1
    return out


def ratio(call, yardstick, repetitions: int = 3) -> tuple[float, float]:
    """Speed of the call as a multiple of the yardstick's, and its median seconds; taken in turn."""
    times = ([], [])
    for _ in range(repetitions):
        for one, into in ((call, times[0]), (yardstick, times[1])):
            begin = time.perf_counter()
            one()
            into.append(time.perf_counter() - begin)
    seconds = [statistics.median(t) for t in times]
    return seconds[1] / seconds[0], seconds[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench")
    parser.add_argument("--size", type=int, default=1024, help="MiB")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    size = args.size << 20
    layout = kvcts.Layout("B N H C", kv=1, blocks=size // (16 * 8 * 128 * 2), block_size=16, heads=8, head_dim=128)
    tensor, other = memory(size), memory(size)
    libc = ctypes.CDLL(None)
    libc.memcmp.argtypes = libc.memset.argtypes = None
    at, copy, n = (ctypes.c_void_p(tensor.ctypes.data), ctypes.c_void_p(other.ctypes.data), ctypes.c_size_t(size))

    fill = ratio(lambda: kvcts.fill(tensor, layout, threads=args.threads), lambda: libc.memset(copy, 1, n))
    other[:] = tensor
    assert kvcts.verify(tensor, layout, side="producer", threads=args.threads)
    verify = ratio(lambda: kvcts.verify(tensor, layout, side="producer", threads=args.threads), lambda: libc.memcmp(at, copy, n))
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([args.bench, "--only", f"tags/* {ROW}", "--size", str(args.size), "--threads", str(args.threads), "--seconds", "0.3", "--repetitions", "3", "--json", file.name],
                       check=True, stdout=subprocess.DEVNULL)
        rows = {row["name"]: row for row in json.load(open(file.name))["rows"]}
    print(f"{args.size} MiB, {args.threads} thread{'s' if args.threads > 1 else ''}")
    for name, (times, seconds), kernel in (("fill", fill, f"tags/generate {ROW}"), ("verify", verify, f"tags/check {ROW}")):
        row = rows[kernel]
        print(f"kvcts.{name:8}{size / seconds / 1e9:6.2f} GB/s  {times:5.2f} x {row['against']}    {kernel.removeprefix('tags/'):24}{row['speed'] / 1e9:6.2f} GB/s  "
              f"{row['ratio']:5.2f} x {row['against']}    {times / row['ratio']:5.2f}")


if __name__ == "__main__":
    main()
