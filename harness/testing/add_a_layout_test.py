"""Adding a layout means adding one file: it appears in layouts, list, run and the golden generation, and nothing else
changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kvtest import ROOT, finish, kvcts, kvcts_json, need_program

LAYOUT = """\
layout: test-blocks-heads-first
title: A layout that no system has, made by a test
template: "L x B K H N C"
dtypes: [fp16, bf16, fp32]
source: [{project: KV-CTS, version: test, file: harness/testing/add_a_layout_test.py, how: inferred}]
"""
ID = "kv/producer=test-blocks-heads-first/consumer=vllm-fa-nhd"


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts-layout-") as name:
        cases, golden = Path(name) / "cases", Path(name) / "golden"
        shutil.copytree(ROOT / "cases", cases)
        before = {e["id"] for e in kvcts_json("--cases", str(cases), "layouts")}
        (cases / "layouts" / "test-blocks-heads-first.yaml").write_text(LAYOUT)
        use = ["--cases", str(cases)]

        after = {e["id"] for e in kvcts_json(*use, "layouts")}
        assert after - before == {"test-blocks-heads-first"}, f"kvcts layouts shows {after - before} as new"
        drawn = kvcts(*use, "layouts", "test-blocks-heads-first")
        assert drawn.status == 0 and "head x " in drawn.out, drawn.err or drawn.out

        listed = kvcts_json(
            *use, "list", "--suite", "full", "--where", "producer == test-blocks-heads-first && consumer == vllm-fa-nhd"
        )
        assert listed["cases"], "kvcts list --suite full does not have it"
        plain = kvcts_json(*use, "list", "--suite", "full", "--id", ID)
        assert [c["id"] for c in plain["cases"]] == [ID], plain["cases"][:3]

        run = kvcts(*use, "run", "--suite", "full", "--id", ID, "--out", str(Path(name) / "run"))
        assert run.status == 0, f"running it ended with {run.status}: {run.err or run.out}"
        results = kvcts_json(*use, "report", str(Path(name) / "run"))["results"]
        assert [(r["id"], r["outcome"]) for r in results] == [(ID, "PASS")], results

        python = os.environ.get("KVCTS_PYTHON", sys.executable)
        if subprocess.run([python, "-c", "import numpy, ml_dtypes, h5py, yaml"], capture_output=True).returncode != 0:
            print("skipped: the golden generator needs the pinned environment; ./run_suite.sh install makes it")
            return 77
        shutil.copytree(ROOT / "golden", golden)
        made = subprocess.run(
            [python, str(golden / "generate.py"), "--golden", str(golden), "--cases", str(cases)],
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stderr
        assert made.stdout.startswith("test-blocks-heads-first") and len(made.stdout.splitlines()) == 1, made.stdout
        verified = kvcts(*use, "golden", "--folder", str(golden), "verify", "--no-python", "test-blocks-heads-first")
        assert verified.status == 0, verified.out
    print("one file: shown by layouts, list and run, and made and verified as a golden tensor")
    return 0


if __name__ == "__main__":
    finish(main)
