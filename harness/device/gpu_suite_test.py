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


def run(driver: str, *argv: str, dumps: dict | None = None) -> tuple[int, str, dict]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        environment = {**os.environ, "KVCTS_CUDA_DRIVER": driver, "KVCTS_FAKE_DEVICES": "2", **(dumps or {})}
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
    assert hang["facts"]["engine_claims"]["device_evidence"] == "modelled", hang["facts"]
    cores = [e["text"] for e in hang["evidence_files"] if e["kind"] == "gpu core"]
    assert len(cores) == 1 and cores[0].startswith("not requested"), hang["evidence_files"]
    canaries = [e["text"] for e in hang["evidence_files"] if e["kind"] == "canary"]
    assert len(canaries) == 1 and canaries[0].startswith("passes after"), hang["evidence_files"]

    # With dumps enabled, as the advice says: a hang has one, and a failing kernel aborts its process.
    words = cores[0].splitlines()[1].split(" kvcts ")[0].split()
    status, said, cases = run(
        str(STAND_IN), "--id", "gpu/never-ends", "--id", "gpu/illegal-address", dumps=dict(w.split("=") for w in words)
    )
    assert status == 1 and cases["gpu/illegal-address"]["outcome"] == "CRASH", said
    (core,) = [e["text"] for e in cases["gpu/never-ends"]["evidence_files"] if e["kind"] == "gpu core"]
    assert "bytes; cuda-gdb" in core, core
    Path(core.split(",")[0]).unlink()

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
