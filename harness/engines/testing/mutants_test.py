"""Each mutant (mutant.c) fails the test of conformance_test.cpp that is there for its fault, and no other; without a fault
it passes them all. Where a plain write is broken, that one test fails, and the others are skipped because of it or hold."""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import BUILD, finish  # noqa: E402

MUTANTS = {
    "": set(),
    "keeps-own": {"UsesNewMemoryAtTheAddressOfAFreedRegion"},
    "keeps-peers": {"UsesNewMemoryAtTheAddressOfAFreedPeerRegion"},
    "chunk:16384": {"MovesDescriptorsOfSizesAroundPowersOfTwo"},
    "chunk:32768": {"MovesDescriptorsOfSizesAroundPowersOfTwo"},
    "chunk:65536": {"MovesDescriptorsOfSizesAroundPowersOfTwo"},
    "nothing": {"APlainWriteArrives"},
}
# This one other tests see, too, if the thread that copies is late.
AHEAD = "CompletionIsNotAheadOfALargeLastPiece"


def results(mutant: str) -> dict[str, str]:
    """Each test by its name: passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "tests.json"
        subprocess.run(
            [
                str(BUILD / "bin" / "kvcts_test_engines"),
                "--gtest_filter=Engines/Conformance.*",
                f"--gtest_output=json:{report}",
            ],
            env={**os.environ, "KVCTS_CONFORMANCE": "kvcts_engine_mutant", "KVCTS_MUTANT": mutant},
            capture_output=True,
            timeout=250,
            check=False,
        )
        (suite,) = json.loads(report.read_text())["testsuites"]
    return {
        test["name"].split("/")[0]: "failed"
        if "failures" in test
        else "skipped"
        if test["result"] == "SKIPPED"
        else "passed"
        for test in suite["testsuite"]
    }


def exactly(mutant: str, expected: set[str]) -> None:
    seen = results(mutant)
    failed = {name for name, result in seen.items() if result == "failed"}
    assert failed == expected, f"mutant '{mutant}' fails {sorted(failed)}, expected {sorted(expected)}"
    skipped = {name for name, result in seen.items() if result == "skipped"}
    assert bool(skipped) == (mutant == "nothing"), f"mutant '{mutant}' skips {sorted(skipped)}"


def ahead() -> None:
    seen = results("ahead")
    assert seen[AHEAD] == "failed", seen


def main() -> int:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for part in [pool.submit(exactly, *one) for one in MUTANTS.items()] + [pool.submit(ahead)]:
            part.result()
    return 0


if __name__ == "__main__":
    finish(main)
