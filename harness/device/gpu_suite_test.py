"""Suite gpu-acceptance on the stand-in driver: kernels that hang or fail end as they must, with their name; nothing is
shown as executed. Without a driver everything is SKIPPED, and the run is incomplete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BUILD = Path(os.environ["KVCTS_BINARY_DIR"])
STAND_IN = BUILD / "lib/kvcts/testing/libkvcts_fake_cuda.so"


def run(driver: str, *argv: str) -> tuple[int, str, dict]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        environment = {**os.environ, "KVCTS_CUDA_DRIVER": driver, "KVCTS_FAKE_DEVICES": "2"}
        done = subprocess.run(
            [str(BUILD / "bin/kvcts"), "run", "--suite", "gpu-acceptance", *argv, "--out", str(out)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
        results = json.loads((out / "results.json").read_text())
        assert driver != str(STAND_IN) or results["run"]["machine"]["gpus"][0]["arch"].startswith("sm_"), (
            "the run does not say on which devices"
        )
        return done.returncode, done.stdout + done.stderr, {c["id"]: c for c in results["results"]}


def main() -> None:
    status, said, cases = run("/nonexistent/libcuda.so.1", "--id", "gpu/*")
    assert status == 5 and "Incomplete (nothing run)" in said, said
    assert cases and all(c["outcome"] == "SKIPPED" for c in cases.values()), said

    status, said, cases = run(str(STAND_IN), "--id", "gpu/*")
    print(said)
    assert status == 0, said
    assert not any(c["outcome"] in ("SKIPPED", "ERROR", "NOT_RUN") for c in cases.values()), said
    assert all(c["evidence"] == "modelled" for c in cases.values()), "a stand-in is never shown as executed"
    hang = cases["gpu/never-ends"]
    assert hang["outcome"] == "HANG" and "kernel kvcts_never_ends" in hang["message"], hang
    dumps = [e["text"] for e in hang["evidence_files"] if e["kind"].startswith("gpu core")]
    assert len(dumps) == 1 and "bytes" in dumps[0], hang["evidence_files"]
    canaries = [e["text"] for e in hang["evidence_files"] if e["kind"] == "canary"]
    assert len(canaries) == 1 and canaries[0].startswith("passes after"), hang["evidence_files"]
    for case in ("gpu/never-ends", "gpu/waits-for-flag"):  # what the stand-in wrote
        for e in cases[case]["evidence_files"]:
            if e["kind"].startswith("gpu core"):
                Path(e["text"].split(",")[0]).unlink(missing_ok=True)

    # Every path and kind of memory, a golden tensor each.
    status, said, cases = run(str(STAND_IN), "--where", "content == golden && producer == vllm-fa-hnd && dtype == bf16")
    assert status == 0 and len(cases) >= 8 and all(c["outcome"] == "PASS" for c in cases.values()), said
    print(f"{len(cases)} cases: every kind of device memory, every path")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
