"""Compares kvcts's check with what people use for KV caches today, on the same position-coded tensor.

    peers.py KVCTS_BENCH [--size MIB] [--json FILE] [--quick]

numpy.array_equal and torch.allclose compare the tensor with a second copy in memory, h5diff with a second file;
kvcts regenerates the expected content and compares in place. "numpy, copy made first" does that too: like a test
script, it first builds the second copy (a position code in each element), then compares. Speeds are bytes of one
tensor checked per second, medians; what counts is the ratio. A missing tool is SKIPPED, with the reason."""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROW = "tags/check fp16 N H C128"
TARGETS = {"numpy.array_equal": 10, "numpy, copy made first": 10, "torch.allclose": 10, "h5diff": 100}


def speed_of(call, size, repetitions):
    """Bytes per second of call(), which must return True; the first call is not measured."""
    if not call():
        sys.exit("peers.py: two equal tensors were found to differ; the measurement would be of something else")
    times = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return size / statistics.median(times)


def numpy_speed(raw, repetitions):
    import numpy

    a = numpy.fromfile(raw, numpy.float16)
    b = a.copy()
    return speed_of(lambda: numpy.array_equal(a, b), a.nbytes, repetitions)


def numpy_whole_speed(raw, repetitions):
    import numpy

    size = raw.stat().st_size
    position = numpy.arange(size // 2, dtype=numpy.uint32)

    def code():
        return ((position * numpy.uint32(2654435761)) >> numpy.uint32(16)).astype(numpy.uint16)

    a = code()
    return speed_of(lambda: numpy.array_equal(a, code()), a.nbytes, repetitions)


def torch_speed(raw, repetitions):
    import numpy
    import torch

    a = torch.from_numpy(numpy.fromfile(raw, numpy.float16))
    b = a.clone()
    return speed_of(lambda: torch.allclose(a, b), a.nbytes, repetitions)


def h5diff_speed(raw, repetitions):
    import h5py
    import numpy

    if shutil.which("h5diff") is None:
        raise ImportError("h5diff is not installed (package hdf5-tools)")
    a = numpy.fromfile(raw, numpy.float16).reshape(-1, 16, 8, 128)
    files = [str(raw.with_suffix(end)) for end in (".a.h5", ".b.h5")]
    for name in files:
        with h5py.File(name, "w") as file:
            file.create_dataset("kv", data=a)
    return speed_of(lambda: subprocess.run(["h5diff", *files], check=False).returncode == 0, a.nbytes, repetitions)


PEERS = {
    "numpy.array_equal": numpy_speed,
    "numpy, copy made first": numpy_whole_speed,
    "torch.allclose": torch_speed,
    "h5diff": h5diff_speed,
}


def ours(bench, size, folder, quick):
    """Rows of kvcts_bench: one thread, and all."""
    out = folder / "ours.json"
    command = [bench, "--size", str(size), "--only", ROW, "--json", str(out)] + (["--quick"] if quick else [])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"peers.py: {' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(out.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench", help="the program kvcts_bench")
    parser.add_argument("--size", type=int, default=256, help="MiB of the tensor")
    parser.add_argument("--json", help="write all numbers to this file")
    parser.add_argument("--quick", action="store_true", help="a small tensor, once: that it runs, not how fast")
    options = parser.parse_args()
    size, repetitions = (4, 1) if options.quick else (options.size, 3)
    with tempfile.TemporaryDirectory(prefix="kvcts-peers-") as name:
        folder = pathlib.Path(name)
        raw = folder / "tensor.raw"
        subprocess.run([options.bench, "--tensor", str(raw), "--size", str(size)], check=True, stdout=subprocess.DEVNULL)
        peers, skipped = {}, {}
        for peer, speed in PEERS.items():
            try:
                peers[peer] = speed(raw, repetitions)
            except ImportError as missing:
                skipped[peer] = str(missing)
        result = ours(options.bench, size, folder, options.quick)
    rows = [
        {
            "name": peer,
            "threads": row["threads"],
            "speed": row["speed"],
            "peer_speed": of_peer,
            "ratio": row["speed"] / of_peer,
            "target": TARGETS[peer],
        }
        for row in result["rows"]
        for peer, of_peer in peers.items()
    ]
    if not rows:
        sys.exit("peers.py: nothing to compare with: " + "; ".join(f"{peer}: {why}" for peer, why in skipped.items()))
    for row in rows:
        verdict = "ok" if row["ratio"] >= row["target"] else "short"
        print(
            f"{row['name']:<22} {row['threads']} thread{'s' if row['threads'] > 1 else ' '}  "
            f"{row['speed'] / 1e9:7.2f} GB/s  peer "
            f"{row['peer_speed'] / 1e9:7.3f} GB/s  ratio {row['ratio']:8.1f}  target {row['target']:>4}  {verdict}"
        )
    for peer, why in skipped.items():
        print(f"{peer:<22} SKIPPED: {why}")
    if options.json:
        found = {
            "program": "peers.py",
            "quick": options.quick,
            "machine": result["machine"],
            "mib": size,
            "rows": rows,
            "skipped": skipped,
        }
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
