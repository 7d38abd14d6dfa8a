"""kvcts repro --bytes: what a run of code under test left in memory, and a scripted case; lists, errors, --json."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import expect, kvcts_json, need_program  # noqa: E402


def main() -> None:
    need_program()
    # HND blocks under an NHD label, really moved: slot 0 of head 1 holds what was slot 1 of head 0.
    wrong = ["dump", "seeds/xformers-t4#wrong-inner-order"]
    expect(0, *wrong, says="consumer/g0/r0/kv.L0         consumer  ")
    told = kvcts_json(*wrong, "--region", "consumer/g0/r0/kv.L0", "--bytes", "256")
    assert told["wrong_bytes"] > 0 and sum(s["bytes"] for s in told["stretches"]) == 256, told
    first = told["stretches"][0]
    assert (
        first["expected"].startswith("K layer 0 block ") and ", generation 1, token 16, from rank 0" in first["expected"]
    ), first
    assert all(("head" in s["found"]) for s in told["stretches"]), told
    before = kvcts_json(*wrong, "--region", "consumer/g0/r0/kv.L0", "--at", "before", "--bytes", "64")
    assert before["wrong_bytes"] == 0 and before["stretches"][0]["found"] == "poison of consumer/g0/r0/kv.L0 + 0..63", before
    nothing = kvcts_json("dump", "crash/nothing", "--region", "consumer/g0/r0/kv.L0", "--bytes", "32")
    only = nothing["stretches"][0]
    assert (only["bytes"], only["found"], only["wrong"]) == (32, "what was there before", True), nothing
    # A correct one.
    expect(
        0,
        "dump",
        "kv/producer=vllm-fa-nhd/consumer=vllm-fa-hnd/dtype=fp8_e4m3",
        "--region",
        "consumer/g0/r0/kv.L1",
        "--bytes",
        "0x100",
        says="0 wrong here",
    )
    # Scripts, by memory and check.
    out = expect(0, "dump", "faults/axis-permuted", "--memory", "D/kv.L0", "--bytes", "128", "--offset", "512")
    assert "should be  K layer 0 block 4 slot" in out and ", from P rank 0" in out, out
    expect(2, "dump", "faults/axis-permuted", "--memory", "E", err="there are ")
    expect(2, "dump", "faults/axis-permuted", "--memory", "D/kv.L0", "--at", "nowhere", err="no check 'nowhere' was reached")
    expect(2, "dump", "faults/axis-permuted", "--memory", "D/kv.L0", "--offset", "999999", err="guards included")
    expect(2, *wrong, "--region", "kv.L9", err="no region is called 'kv.L9'")
    expect(2, *wrong, "--region", "consumer/g0/r0/kv.L0", "--at", "noon", err="--at expects before or after")
    expect(2, *wrong, "--offset", "many", err="whole number")
    expect(2, "dump", "faults/axis-permutet", err="axis-permutet")
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "one.yaml"
        file.write_text("case: my/one\nproducer: {layout: vllm-fa-nhd}\nconsumer: {layout: vllm-fa-hnd}\n")
        expect(
            0,
            "dump",
            str(file),
            "--region",
            "consumer/g0/r0/kv.L0",
            "--bytes",
            "64",
            says="my/one (PASS): consumer/g0/r0/kv.L0",
        )
    print("ok: windows in words")


if __name__ == "__main__":
    main()
