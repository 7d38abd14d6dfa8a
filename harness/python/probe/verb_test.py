"""kvcts layouts --shape: readings of a shape, the fact that settles them, strides, --json; clear errors."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import expect, finish, kvcts_json, need_program  # noqa: E402


def main() -> None:
    need_program()
    shape = "2,9,16,8,64"
    expect(13, "describe", shape, says="ambiguous: 2 readings; say num_kv_heads")
    told = expect(0, "describe", shape, "--heads", "8", says="K B N H C: 9 blocks of 16 tokens, 8 heads, head_dim 64")
    assert "ambiguous" not in told, told
    # Two blocks look like K and V: no number helps.
    expect(13, "describe", "2,2,16,8,64", "--heads", "8", "--block-size", "16", "--head-dim", "64", says="say axis names")
    # The same shape with heads outside in memory.
    hnd = expect(0, "describe", shape, "--strides", "73728,8192,64,1024,1", "--heads", "8", says="vllm-fa-hnd")
    assert "vllm-fa-nhd" not in hnd, hnd
    expect(1, "describe", "3,5,7", "--heads", "11", says="no layout of the catalogue")
    expect(2, "describe", shape, "--strides", "1,2", err="--strides has 2 numbers, expected one for each of the 5")
    expect(2, "describe", shape, "--dtype", "fp17", err="fp17")
    expect(2, "describe", shape, "--dtype", "int4", err="uint8")
    expect(2, "describe", "2,x,16", err="SHAPE")
    expect(2, "describe", "2,0,16", err="SHAPE")
    expect(2, "describe", "1,1,1,1,1,1,1,1,1", err="at most 8 dimensions")
    expect(2, "describe", ",".join(["1000000000"] * 8), err="64 bits")
    expect(2, "describe", shape, "--heads", "0", err="--heads")
    expect(2, "describe", err="SHAPE")


def same_words() -> None:
    """--json has the same content as the lines; kvcts_json accepts only status 0 or 1."""
    told = kvcts_json("describe", "2,9,16,8,64", "--heads", "8")
    (fit,) = told["fits"]
    assert (
        not told["ambiguous"]
        and fit["axes"] == "K B N H C"
        and fit["order"] == "K B N H C"
        and "vllm-fa-nhd" in fit["layouts"]
        and fit["heads"] == 8
    ), told


if __name__ == "__main__":
    finish(lambda: main() or same_words())
