"""Prints a page from the counts of the tests in identity_test.cpp.

usage: identity_report.py BUILD_FOLDER
"""

import os
import pathlib
import subprocess
import sys

PAGE = """# Can every byte be asked who it is?

Counted by `harness/lab/identity/identity_test.cpp`, written by `harness/lab/identity/identity_report.py`. Everything is
arithmetic or was executed on a CPU. Rendering, tags and poison are the ones that the checker uses.

## Names are unique

A byte's signature is its value in the first 24 passes (`clues.hpp`), hashed to 64 bits. For each dtype: all bytes of a box
of 2 kv x 4 layers x 4 heads x 32 tokens x 4 generations x 256 bytes of channels, once as data and once as scales, global
scales of 64 layers and 32 generations, the poison of four memories with their guards, and the 256 constants, in one crowd.
`collisions`: names whose signature another one has.

| dtype | bytes of data | of scales | of global scales | of poison | collisions |
| --- | --- | --- | --- | --- | --- |
{decoding}

What a pass adds to the signature of the poorest byte of a code, what 24 passes come to (64 bits of hash at most), and how
many pairs of 2^20 names are then expected to agree by chance. Bits that never change over passes (the digit that keeps a
scale apart from its neighbours) are not counted, though they help.

| dtype | component | bits a pass | bits | pairs of 2^20 names |
| --- | --- | --- | --- | --- |
{room}

Two limits. Dtypes of one width and one rule (bf16 and fp16; the fp8 kinds and e8m0; int8 and uint8) have the same tags at
the same coordinate, so that a name is a coordinate, and its dtype is the layout's. Content `codes` counts upwards along a
row and repeats every 2^bits channels: it shows what travels, and names nothing.

## Deciding passes

A pass compares the smallest unit that code under test can move: n codes side by side. Two different units agree in one pass
with p = 2^-(n * entropy), in k passes with 2^-(n * entropy * k); `kernels::deciding_passes` is the least k that brings this
to 2^-64 or below.

| dtype | component | entropy of a code | 1 code | 4 codes | 8 codes | 16 codes | 64 codes |
| --- | --- | --- | --- | --- | --- | --- | --- |
{deciding}

Simulated where p is large enough to be seen: 1,310,720 pairs that differ by one step along layer, token, head, generation or
channel (scales: by four, where their digit is the same). A test holds each count to the expected one within five sigma.

| dtype | component | codes | passes | p | expected | counted |
| --- | --- | --- | --- | --- | --- | --- |
{collisions}

Tag and poison never agree: bit 0 of every code is set, and clear in poison.

## Every bit pattern travels

Content `codes` in one pass of a request of 128 tokens, 16 heads and 2 layers, moved from NHD to HND by the machine: how many
codes of the dtype arrived, each at its place, and how many elements were NaN (quiet and signalling, all payloads), infinite,
-0 and subnormal. fp32 has too many codes to come in turn; a list of 16 kinds does, with anything in between (`numbers.hpp`).

| dtype | codes | NaN | infinite | -0 | subnormal |
| --- | --- | --- | --- | --- | --- |
{patterns}
"""

TESTS = {
    "decoding": "*Decoding*",
    "room": "*ASignatureHasRoom*",
    "deciding": "*DecidingPasses*",
    "collisions": "*Collisions*",
    "patterns": "*BitPatterns*",
}


def rows(program: pathlib.Path, tests: str) -> str:
    done = subprocess.run(
        [program, f"--gtest_filter={tests}"],
        env=os.environ | {"KVCTS_IDENTITY_ROWS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{program} failed:\n{done.stdout}")
    return "\n".join(line[5:] for line in done.stdout.splitlines() if line.startswith("row: "))


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = pathlib.Path(sys.argv[1]) / "bin" / "kvcts_test_lab"
    if not program.exists():
        sys.exit(f"expected the test {program}, found none; build that target first")
    print(PAGE.format(**{name: rows(program, tests) for name, tests in TESTS.items()}), end="")


if __name__ == "__main__":
    main()
