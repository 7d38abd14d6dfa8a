"""A suite as a CTest entry: suite_test.py SUITE. Runs it as a person would; its exit status is the test's."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from kvtest import BUILD, kvcts, kvcts_json, need_program

DETECTION = 0.25  # of the time in cases that pass: to tell every byte of every region apart, and to name causes


def ucx_ran(run: Path) -> bool:
    """Where it is missing, what is left of smoke are transfers that cost nothing, and the share of anything else is large."""
    results = json.loads((run / "results.json").read_text())["results"]
    return any(r["outcome"] == "PASS" and str(r["facts"].get("engine", "")).startswith("ucx") for r in results)


def main() -> int:
    need_program()
    suite = sys.argv[1]
    out = BUILD / "suites" / suite
    shutil.rmtree(out, ignore_errors=True)
    ended = kvcts("run", "--suite", suite, "-j", str(os.cpu_count() or 1), "--out", str(out), timeout=1700)
    print(ended.out[-6000:])
    print(ended.err[-2000:])
    if ended.status == 0 and suite == "smoke" and ucx_ran(out):
        share = kvcts_json("report", str(out), "--phases")["detection"]
        print(f"identity and diagnosis: {100 * share:.1f} % of the time in cases that passed, at most {100 * DETECTION:.0f} % expected")
        return int(share >= DETECTION)
    return ended.status


if __name__ == "__main__":
    sys.exit(main())
