"""kvcts triage: real runs of a catalogue with a connector that knows one order of axes and an engine that moves
nothing."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, kvcts, kvcts_json, need_program  # noqa: E402

NAIVE = """connector: naive-blocks
title: takes every cache for K B N H C and copies whole blocks
kind: contract
options: {unpack: [_, num_blocks, block_size, num_heads, head_dim], error: ValueError, reading: "K B N H C", plan: blocks}
any_block_size: false
any_tp: false
"""
BROKEN = "engine: broken\ntitle: moves nothing\nplugin: kvcts_engine_fixture\nprocesses: 1\noptions: {fault: nothing}\n"
SUITES = """suite: orders
title: a connector that knows one order
matrix:
  - axes: {producer: [vllm-fa-nhd, vllm-fa-hnd], consumer: [vllm-fa-nhd, vllm-fa-hnd], dtype: [bf16, fp16],
      geometry: [small, tiny],
           connector: [naive-blocks, reference]}
---
suite: broken-engine
title: an engine that moves nothing
matrix:
  - axes: {producer: [vllm-fa-nhd, flashinfer-hnd], consumer: [vllm-fa-hnd], dtype: [bf16, fp8_e4m3], geometry: [tiny],
      engine: [broken, memcpy]}
"""


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = folder / "cases"
        shutil.copytree(ROOT / "cases", cases)
        (cases / "connectors" / "naive.yaml").write_text(NAIVE)
        (cases / "engines" / "broken.yaml").write_text(BROKEN)
        (cases / "suites" / "mine.yaml").write_text(SUITES)
        ours = ["--cases", str(cases)]

        # One literal, refuted by nothing.
        assert kvcts("run", "--suite", "broken-engine", "--out", str(folder / "engines"), *ours).status == 1
        told = kvcts_json("triage", str(folder / "engines"), "--run", "--most", "12", *ours)
        (cause,) = told["causes"]
        (part,) = cause["rounds"][-1]["parts"]
        assert cause["ending"] == "FAIL silently-skipped" and cause["failures"] == part["explains"] == 4, cause
        assert part["when"] == "engine == broken" and part["against"] == [], part
        tested = part["tested"]
        assert (
            tested["against"] == 0 and tested["held"] >= 6 and abs(tested["at_least"] - 0.05 ** (1 / tested["held"])) < 1e-9
        ), tested
        assert {c["must"] for c in tested["cases"]} == {"fail", "pass"}, tested
        assert all((c["must"] == "fail") == ("engine=broken" in c["id"]) for c in tested["cases"]), tested

        # A relation between two sides, found last, after cases have refuted narrower ones.
        assert kvcts("run", "--suite", "orders", "--out", str(folder / "orders"), *ours).status == 1
        plain = kvcts_json("triage", str(folder / "orders"), *ours)["causes"][0]["rounds"]
        assert len(plain) == 1 and plain[0]["parts"][0]["refuting"], plain
        ended = kvcts("triage", str(folder / "orders"), "--run", "--most", "12", "--rounds", "10", *ours)
        assert ended.status == 0 and "naive-blocks" in ended.out, ended
        assert "again, with these results" in ended.out and "had to" in ended.out, ended.out
        assert "confidence right for at least" in ended.out.splitlines()[-1], ended.out
        # One round is not enough: refuted, with status 1.
        once = kvcts("triage", str(folder / "orders"), "--run", "--most", "12", "--rounds", "1", *ours)
        assert once.status == 1 and "against" in once.out, once
        # Its output is valid input for --where.
        found = [line.split(None, 1)[1] for line in ended.out.splitlines() if line.startswith("   when ")][-1]
        listed = kvcts("list", "--suite", "orders", "--where", found, *ours)
        assert listed.status == 0 and len(listed.out.splitlines()) == 8, (found, listed)
        assert all("naive-blocks" in line and "consumer=" in line for line in listed.out.splitlines()), listed.out

        # No failures; other classes; no run.
        assert (
            kvcts(
                "run", "--suite", "orders", "--where", "connector == reference", "--out", str(folder / "fine"), *ours
            ).status
            == 0
        )
        fine = kvcts("triage", str(folder / "fine"), *ours)
        assert fine.status == 0 and "no unexpected failures" in fine.out, fine
        other = kvcts("triage", str(folder / "orders"), "--class", "wrong-stride", *ours)
        assert other.status == 2 and "FAIL axis-permuted" in other.err, other
        assert kvcts("triage", str(folder / "nowhere"), *ours).status == 2
    print("ok: rules found, tried and refuted")


if __name__ == "__main__":
    main()
