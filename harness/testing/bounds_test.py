"""Numbers of a case file at and beyond every edge: one clear answer, soon, in little memory. Never a signal, an ERROR
or an exception's name.

A file that cannot be meant is a mistake (status 2, one line); one that is too large for any machine is SKIPPED with
what it needs.

    bounds_test.py [EVERY]   every so many of the files: 10 in the self-test, 1 for all
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kvtest import KVCTS, need_program

EDGES = ["0", "-1", str(2**31), str(2**32 + 1), str(10**12), str(2**63 - 1), str(2**64), "1e12", "nan", ".inf", "''", "[1]"]
MOST_SECONDS, MOST_BYTES = 60, 1 << 30

SIDES = """case: t/x
dtype: bf16
geometry: {{layers: {layers}, blocks: {blocks}, block_size: {block_size}, heads: {heads}, head_dim: {head_dim},
    v_head_dim: {v_head_dim}, tokens: {tokens}}}
guard: {guard}
misalign: {misalign}
producer: {{template: "{template}", tp: {tp}}}
consumer: {{layout: vllm-fa-hnd, block_size: {cbs}}}
"""
SIDES_USUAL = {
    "layers": "2",
    "blocks": "7",
    "block_size": "4",
    "heads": "4",
    "head_dim": "16",
    "v_head_dim": "16",
    "tokens": "9",
    "guard": "4096",
    "misalign": "0",
    "template": "L x K B N H C",
    "tp": "1",
    "cbs": "4",
}
REQUEST = (
    SIDES.replace("tokens: {tokens}}}}}", "tokens: 9}}}}")
    + "requests: [{{tokens: {tokens}, producer_blocks: [{block}, 1, 2], consumer_blocks: [0, 1, 2]}}]\n"
)
REQUEST_USUAL = SIDES_USUAL | {"block": "0"}
COPIES = (
    SIDES + "connector: explicit\ncopies: [{{from: kv.L0, from_offset: {from_offset}, to: kv.L0, to_offset: {to_offset}, "
    "bytes: {bytes}}}]\nexpected: FAIL\n"
)
COPIES_USUAL = SIDES_USUAL | {"from_offset": "0", "to_offset": "0", "bytes": "64"}
TOLD = """case: t/x
dtype: bf16
geometry: {{layers: {layers}, blocks: {blocks}, block_size: {block_size}, heads: {heads}, head_dim: {head_dim}}}
memory:
  P: {{side: producer, template: "{template}", sparse: {sparse}, strides: {{block: {stride}}}, guard_below: {guard},
      base: {base}}}
  C: {{template: "L x K B N H C", rank: {rank}}}
  S: {{side: staging, bytes: {bytes}, pool: true, gap: {gap}, sparse: {sparse}}}
requests: {{A: {{tokens: {tokens}, first_token: {first_token}, generation: {generation}, blocks: {{P: [{block}, 0], C: [1,
    2]}}, positions: {{P: [{position}, 1]}}}}}}
steps:
  - write: {{request: A, to: P}}
  - move: {{request: A, from: P, to: C, actually: {{from: {{offset: {offset}, scale_offset: 0, align: {align},
      strides: {{block: {stride}}}}}, from_blocks: [{actual}, 0]}}}}
  - copy: {{from: P/kv.L0, from_offset: {from_offset}, to: C/kv.L0, bytes: {copied}, count: {count}, from_step: {step},
      to_step: {step}, actually: skipped}}
  - read: {{request: A, from: C, layers: {pick}}}
expected: [PASS, FAIL, CRASH]
"""
TOLD_USUAL = {
    "layers": "2",
    "blocks": "7",
    "block_size": "4",
    "heads": "4",
    "head_dim": "16",
    "template": "L x K B N H C",
    "sparse": "false",
    "stride": "1024",
    "guard": "4096",
    "base": "0",
    "rank": "0",
    "bytes": "4096",
    "gap": "0",
    "tokens": "8",
    "first_token": "0",
    "generation": "1",
    "block": "3",
    "position": "0",
    "offset": "0",
    "align": "1",
    "actual": "3",
    "from_offset": "0",
    "copied": "64",
    "count": "1",
    "step": "64",
    "pick": "0",
}
SPARSE_USUAL = TOLD_USUAL | {"sparse": "true"}


def variants() -> list[tuple[str, str]]:
    out = []
    for name, text, usual in (
        ("sides", SIDES, SIDES_USUAL),
        ("request", REQUEST, REQUEST_USUAL),
        ("copies", COPIES, COPIES_USUAL),
        ("told", TOLD, TOLD_USUAL),
        ("sparse", TOLD, SPARSE_USUAL),
    ):
        for key in usual:
            if key in ("template", "sparse"):
                continue
            for edge in EDGES:
                out.append((f"{name} {key}={edge}", text.format(**(usual | {key: edge}))))
    ids = ", ".join(["0"] * 300_000)
    out.append(("a list of 300,000 block ids", REQUEST.format(**(REQUEST_USUAL | {"block": ids}))))
    out.append(("a told list of 300,000 block ids", TOLD.format(**(TOLD_USUAL | {"block": ids}))))
    out.append(
        ("10^9 layers in one pool", SIDES.format(**(SIDES_USUAL | {"layers": str(10**9), "template": "L B K N H C"})))
    )
    out.append(("a pool of 10^8 blocks", SIDES.format(**(SIDES_USUAL | {"blocks": str(10**8)}))))
    return out


def main() -> int:
    need_program()
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    everything = variants()
    chosen = [v for i, v in enumerate(everything) if i % every == 0 or i >= len(everything) - 4]
    work = Path(tempfile.mkdtemp(prefix="kvcts-bounds-"))
    failures: list[str] = []
    lock = threading.Lock()
    slowest = [0.0, ""]

    def attempt(numbered: tuple[int, tuple[str, str]]) -> None:
        number, (what, text) = numbered
        file = work / f"{number}.yaml"
        file.write_text(text)
        verb = (
            ["run", "--out", str(work / f"run{number}"), "--file", str(file)]
            if number % 4
            else ["repro", "t/x", "--file", str(file)]
        )
        begin = time.monotonic()
        run = subprocess.Popen(
            [str(KVCTS), *verb],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES)),
            start_new_session=True,
        )
        try:
            out, err = (part.decode(errors="replace") for part in run.communicate(timeout=MOST_SECONDS))
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, 9)
            run.communicate()
            with lock:
                failures.append(f"{what}: no end within {MOST_SECONDS} s: kvcts {' '.join(verb)}\n{text}")
            return
        taken = time.monotonic() - begin
        problem = ""
        if run.returncode not in (0, 1, 2, 5):
            problem = f"status {run.returncode}"
        elif run.returncode == 2 and (len(err.splitlines()) != 1 or not err.startswith("kvcts")):
            problem = f"a mistake in {len(err.splitlines())} lines"
        for word in ("bad_alloc", "length_error", "SUITE ERROR", "std::", "map::at", "vector::"):
            if word in out + err:
                problem = f"says {word}"
        with lock:
            if taken > slowest[0]:
                slowest[:] = [taken, what]
            if problem:
                failures.append(f"{what}: {problem}: kvcts {' '.join(verb)}\n{err[-400:]}{out[-400:]}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(attempt, enumerate(chosen)))
    for failure in failures[:40]:
        print("FAILED", failure)
    if not failures:
        shutil.rmtree(work)
    print(f"{len(chosen)} files, {len(failures)} failures; slowest {slowest[0]:.1f} s: {slowest[1]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
