"""kvcts-gpu-check: every check on the stand-in driver, a clean SKIPPED without a driver, and faults that it must find."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BUILD, SOURCE = Path(os.environ["KVCTS_BINARY_DIR"]), Path(os.environ["KVCTS_SOURCE_DIR"])
PROGRAM, STAND_IN = BUILD / "bin/kvcts-gpu-check", BUILD / "lib/kvcts/testing/libkvcts_fake_cuda.so"


def check(*argv: str, driver: str) -> tuple[int, str, dict]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "check.json"
        ran = subprocess.run(
            [str(PROGRAM), "--json", str(file), *argv],
            env={**os.environ, "KVCTS_CUDA_DRIVER": driver},
            capture_output=True,
            text=True,
            timeout=280,
        )
        return ran.returncode, ran.stdout + ran.stderr, json.loads(file.read_text()) if file.exists() else {}


def main() -> None:
    # Without a driver: skipped, with the reason, and a document that says so.
    status, said, document = check(driver="/nonexistent/libcuda.so.1")
    assert status == 0 and said.startswith("SKIPPED: ") and "no CUDA driver" in document["skipped"], said

    status, said, document = check("--mib", "8", driver=str(STAND_IN))
    assert status == 0, said
    outcomes = {c["check"]: c["outcome"] for c in document["checks"]}
    skipped = {name for name, outcome in outcomes.items() if outcome == "skipped"}
    assert skipped <= {"peers", "far"}, said  # one device, 2 GiB of pretended memory
    assert set(outcomes) >= {"canary", "neighbours", "goldens", "memory", "conversions", "relayouts", "speed"}
    assert document["device"]["evidence"] == "modelled", "a stand-in is never shown as executed"
    goldens = next(c for c in document["checks"] if c["check"] == "goldens")["numbers"]
    assert goldens["tensors"] > 100, goldens
    ratios = next(c for c in document["checks"] if c["check"] == "speed")["numbers"]
    assert {"generate", "check", "relayout NHD to HND"} <= set(ratios) and ratios["generate"]["of"] == "memset"
    print(said)

    status, said, _ = check("--only", "speeds", driver=str(STAND_IN))
    assert status == 2 and "'speeds'" in said


if __name__ == "__main__":
    try:
        main()
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
