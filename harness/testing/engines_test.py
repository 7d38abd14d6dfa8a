"""A sample of suite engines: every case as expected, each on the path that its engine is named after; another path:
FAIL; without the packages: SKIPPED, and the run incomplete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from kvtest import ROOT, finish, kvcts, need_program, results

MISSPELT = """connector: mykw
title: its program is mykv.py
kind: program
options: {command: ["{python}", "{connectors}/mykw.py"]}
any_block_size: false
any_tp: false
"""


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory() as place:
        sample = Path(place) / "sample"
        done = kvcts("run", "--suite", "engines", "--shard", "1/6", "--out", str(sample), timeout=600)
        skipped = any(case["outcome"] == "SKIPPED" and not case["facts"]["lack"]["optional"] for case in results(sample))
        assert done.status == (5 if skipped else 0), f"the sample ended with {done.status}\n{done.out}\n{done.err}"
        ran: Counter[str] = Counter()
        for case in results(sample):
            engine, path = case["facts"].get("engine", "own"), case["facts"].get("engine_claims", {})
            ran[engine + (" SKIPPED" if case["outcome"] == "SKIPPED" else "")] += 1
            if case["outcome"] == "PASS":
                assert int(path.get("engine_bytes", 1)) > 0, f"{case['id']}: the engine counted nothing"
                assert int(path.get("messages_answered", 1)) > 0, f"{case['id']}: the target answered nothing"

        cases, astray = Path(place) / "cases", Path(place) / "astray"
        shutil.copytree(ROOT / "cases", cases, ignore=shutil.ignore_patterns("museum", "oracles"))
        entries = (cases / "engines" / "ucx.yaml").read_text()
        (cases / "engines" / "ucx.yaml").write_text(
            entries.replace("options: {verbs: am, error_handling: peer}", "options: {verbs: rma, error_handling: peer}")
        )
        other = kvcts(
            "--cases", str(cases), "run", "--id", "kv/producer=vllm-fa-nhd/engine=ucx-am-tcp", "--out", str(astray)
        )
        (case,) = results(astray)
        if case["outcome"] != "SKIPPED":
            assert other.status == 1 and case["outcome"] == "FAIL", case
            assert (
                'expected verbs "am", engine reported "rma"' in case["message"]
                and case["facts"]["engine_claims"]["verbs"] == "rma"
            ), case

        (cases / "connectors" / "mykw.yaml").write_text(MISSPELT)
        named = ("--id", "kv/producer=vllm-fa-nhd/consumer=flashinfer-hnd/connector=mykw/engine=own")
        misspelt = kvcts("--cases", str(cases), "run", *named, "--out", str(Path(place) / "misspelt"))
        assert misspelt.status == 2 and "no connector program mykw.py in" in misspelt.err, misspelt

        bare = Path(place) / "bare"
        without = kvcts(
            "run",
            "--id",
            "kv/producer=vllm-fa-nhd/engine=nixl-tcp",
            "--out",
            str(bare),
            env={**os.environ, "KVCTS_ENGINE_PACKAGES": place},
        )
        assert without.status == 5, without.err
        (case,) = results(bare)
        assert case["outcome"] == "SKIPPED" and "./run_suite.sh install" in case["message"], case
        required = kvcts(
            "run",
            "--id",
            "kv/producer=vllm-fa-nhd/engine=nixl-tcp",
            "--require",
            "nixl-1.5.1",
            "--out",
            str(Path(place) / "required"),
            env={**os.environ, "KVCTS_ENGINE_PACKAGES": place},
        )
        assert required.status == 1, "what is required and missing is a failure"
    print(", ".join(f"{count} {engine}" for engine, count in sorted(ran.items())))
    return 0


if __name__ == "__main__":
    finish(main)
