"""Compares fill() and verify() of one large tensor with the C++ kernels, in turn.

    speed.py KVCTS_BENCH [--size MIB] [--threads N] [--rounds N]

KVCTS_BENCH is build/bin/kvcts_bench; its rows "generate" and "check bf16 N H C128" are the kernels. PYTHONPATH:
build/python."""

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
    """On huge pages if the system has them, like kvcts_bench."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    out = np.frombuffer(pages, np.uint8)
    out[:] = 1
    return out


def seconds(call, between, repetitions: int = 3) -> float:
    """The median wall time of the call in seconds; `between` runs between calls, like kvcts_bench's."""
    taken = []
    for _ in range(repetitions):
        between()
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):5.2f} ({min(values):.2f} to {max(values):.2f})"


def of_package(size: int, threads: int) -> dict[str, float]:
    layout = kvcts.Layout("B N H C", kv=1, blocks=size // (16 * 8 * 128 * 2), block_size=16, heads=8, head_dim=128)
    tensor, other = memory(size), memory(size)
    libc = ctypes.CDLL(None)
    libc.memcmp.argtypes = libc.memset.argtypes = None
    at, copy, n = (ctypes.c_void_p(tensor.ctypes.data), ctypes.c_void_p(other.ctypes.data), ctypes.c_size_t(size))
    fill = seconds(lambda: kvcts.fill(tensor, layout, threads=threads), lambda: libc.memset(copy, 1, n))
    other[:] = tensor
    assert kvcts.verify(tensor, layout, side="producer", threads=threads)
    return {
        "fill": fill,
        "verify": seconds(
            lambda: kvcts.verify(tensor, layout, side="producer", threads=threads), lambda: libc.memcmp(at, copy, n)
        ),
    }


def of_kernels(bench: str, size: int, threads: int) -> dict[str, float]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [
                bench,
                "--only",
                f"tags/* {ROW}",
                "--size",
                str(size >> 20),
                "--threads",
                str(threads),
                "--seconds",
                "0.3",
                "--repetitions",
                "3",
                "--json",
                file.name,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        speeds = {row["name"]: row["speed"] for row in json.load(open(file.name))["rows"]}
    return {"fill": speeds[f"tags/generate {ROW}"], "verify": speeds[f"tags/check {ROW}"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench")
    parser.add_argument("--size", type=int, default=1024, help="MiB")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    size = args.size << 20
    # In turn, in new memory each time: the same kernel varies by half from one place and moment to the next.
    rounds = [(of_package(size, args.threads), of_kernels(args.bench, size, args.threads)) for _ in range(args.rounds)]
    print(
        f"{args.size} MiB, {args.threads} thread{'s' if args.threads > 1 else ''}; medians of {args.rounds} rounds, "
        f"and from the least to the most"
    )
    for name, kernel in (("fill", "generate"), ("verify", "check")):
        package = [size / ours[name] / 1e9 for ours, _ in rounds]
        kernels = [theirs[name] / 1e9 for _, theirs in rounds]
        beside = [a / b for a, b in zip(package, kernels)]
        print(
            f"kvcts.{name:8}{spread(package)} GB/s    kernels::{kernel:10}{spread(kernels)} GB/s    one by the other "
            f"{spread(beside)}"
        )


if __name__ == "__main__":
    main()
