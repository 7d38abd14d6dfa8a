"""Compares verify() of a tensor with one wrong byte, one wrong row or one wrong block with verify() of a right one.

    wrong_speed.py [--size MIB] [--threads N] [--rounds N] [--only WORD]

Prints times and ratios: what is wrong should cost, not the size of the tensor. PYTHONPATH: build/python."""

import argparse
import statistics
import time

import kvcts
import numpy as np
from speed import memory

HEADS, HEAD_DIM, BLOCK_SIZE = 8, 128, 16
LAYOUTS = {  # name, layers, kv
    "one plane": ("B N H C", 1, 1),
    "one layer": ("K B N H C", 1, 2),
    "32 layers": ("vllm-fa-nhd", 32, 2),
    "32 layers, HND": ("flashinfer:HND", 32, 2),
}


def taken(call) -> tuple[float, kvcts.Diagnosis]:
    begin = time.perf_counter()
    said = call()
    return time.perf_counter() - begin, said


def measure(name: str, layers: int, kv: int, size: int, threads: int, rounds: int) -> dict[str, list[float]]:
    blocks = size // (layers * kv * BLOCK_SIZE * HEADS * HEAD_DIM * 2)
    layout = kvcts.Layout(name, layers=layers, kv=kv, blocks=blocks, block_size=BLOCK_SIZE, heads=HEADS, head_dim=HEAD_DIM)
    tensors = [memory(n) for _, n in layout.allocations]
    ids = list(np.random.default_rng(1).permutation(blocks))
    tokens = blocks * BLOCK_SIZE - BLOCK_SIZE // 2
    kvcts.fill(tensors, layout, ids, tokens, side="consumer", threads=threads)
    block, row = ids[blocks // 2], HEAD_DIM * 2
    places = {what: layout.offset(block=block, slot=slot) for what, slot in (("byte", 1), ("row", 2), ("block", 0))}
    other = layout.offset(block=ids[blocks // 3])
    verify = lambda: kvcts.verify(tensors, layout, ids, tokens, threads=threads)  # noqa: E731
    out: dict[str, list[float]] = {}
    for _ in range(rounds):
        for what, damage in (
            ("right", lambda at: None),
            ("one wrong byte", lambda at: at(places["byte"], 1, None)),
            ("one wrong row", lambda at: at(places["row"], row, other)),
            ("one wrong block", lambda at: at(places["block"], BLOCK_SIZE * HEADS * row, other)),
        ):
            saved: list = []

            def at(place, n, source):
                tensor = tensors[place.allocation]
                part = tensor[place.byte : place.byte + n]
                saved.append((part, part.copy()))
                part[:] = tensor[source.byte : source.byte + n] if source else part ^ 1

            damage(at)
            seconds, said = taken(verify)
            assert bool(said) == (what == "right"), said
            if not said:
                assert [b.block for b in said.blocks if not b.right] == [block], (what, str(said))
            out.setdefault(what, []).append(seconds)
            for part, was in saved:
                part[:] = was
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="MiB")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    for title, numbers in LAYOUTS.items():
        if args.only not in title:
            continue
        times = measure(*numbers, args.size << 20, args.threads, args.rounds)
        base = statistics.median(times["right"])
        for what, values in times.items():
            median = statistics.median(values)
            print(
                f"{args.size} MiB, {title:15} {what:16} {median * 1e3:9.1f} ms   {median / base:6.2f} of a right one",
                flush=True,
            )


if __name__ == "__main__":
    main()
