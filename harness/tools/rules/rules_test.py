"""kvcts conformance --rules: a sample plays as stated, and a rule that an engine answers differently is reported as
changed."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, finish, kvcts, kvcts_json, need_program  # noqa: E402

SAMPLE = ["idle-target", "truncated-blob", "stale-metadata", "straddle-two-regions", "notified-after-data", "killed-target"]
ENGINES = ["shm", "ucx-tcp", "nixl-tcp", "nixl-1.2-tcp"]


def main() -> int:
    need_program()
    chosen = [word for engine in ENGINES for word in ("--engine", engine)]
    for played in kvcts_json("rules", *SAMPLE, *chosen, timeout=300):
        place = f"{played['rule']} with {played['engine']}"
        assert played["verdict"] in ("as stated", "SKIPPED", "not stated"), f"{place}: {played}"
        assert played["verdict"] != "SKIPPED" or "./run_suite.sh install" in played["skipped"], played
        assert played["seen"] or played["verdict"] == "SKIPPED", f"{place}: nothing was seen"

    with tempfile.TemporaryDirectory() as place:
        cases = Path(place) / "cases"
        shutil.copytree(ROOT / "cases", cases, ignore=shutil.ignore_patterns("museum", "oracles"))
        rules = cases / "rules"
        shutil.rmtree(rules)
        rules.mkdir()
        rule = (
            "rule: odd\ntitle: odd offsets\nsteps: [{do: transfer, as: write, copies: [{local_at: 1, remote_at: "
            "3}]}, {do: check, as: bytes}]\n"
        )
        (rules / "a.yaml").write_text(
            rule + 'expect: {shm: "write: done; bytes: arrived", memcpy: "write: done; bytes: arrived"}\n'
        )
        ended = kvcts("--cases", str(cases), "rules", "--engine", "shm", "--runs", "3")
        assert ended.status == 0 and "as stated" in ended.out and "(3 of 3)" in ended.out, ended
        # Does not happen, and is reported as such.
        (rules / "a.yaml").write_text(rule + 'expect: {shm: "write: not found; bytes: untouched"}\n')
        ended = kvcts("--cases", str(cases), "rules")
        assert (
            ended.status == 1 and "CHANGED RULE" in ended.out and "stated: write: not found; bytes: untouched" in ended.out
        ), ended
        # The bytes are really compared.
        (rules / "a.yaml").write_text(
            rule.replace(
                "{do: check", "{do: prepare, request: never, copies: [{remote_at: 131072}]}, {do: check, request: never"
            )
            + 'expect: {shm: "write: done; bytes: untouched"}\n'
        )
        ended = kvcts("--cases", str(cases), "rules")
        assert "bytes: untouched" in ended.out, ended
        (rules / "a.yaml").write_text(
            rule.replace(
                "{do: check",
                "{do: prepare, request: more, copies: [{local_at: 1, remote_at: 3}, {local_at: 65536, remote_at: "
                "65536}]}, {do: check, request: more",
            )
            + 'expect: {shm: "write: done; bytes: partly"}\n'
        )
        ended = kvcts("--cases", str(cases), "rules")
        assert ended.status == 0 and "bytes: partly" in ended.out, ended
        # The content when the target is notified counts, not what comes later.
        (cases / "engines" / "hasty.yaml").write_text(
            "engine: hasty\ntitle: tells before it writes\nplugin: kvcts_engine_hostile\nprocesses: 2\nsetup_ms: 2\n"
            "options: {mode: hasty}\nnotes: of this test\n"
        )
        (rules / "a.yaml").write_text(
            "rule: told\ntitle: told before\nsteps:\n  - {do: prepare, notification: here, copies: [{bytes: 4096}]}\n "
            " - {do: take, side: target, as: told, within: 10s}\n"
            "  - {do: post}\n  - {do: wait, within: 10s}\n  - {do: check, side: target, as: bytes}\nexpect: {hasty: "
            "'told: came; bytes: later'}\n"
        )
        ended = kvcts("--cases", str(cases), "rules")
        assert ended.status == 0 and "bytes: later" in ended.out, ended
        # Steps that take longer than promised.
        watch = (
            "rule: slow\ntitle: a second of nothing\nsteps: [{do: watch, within: 1s, as: bytes}]\ntimed: bytes\n"
            'promise: none\npromised: {shm: %s}\nexpect: {shm: "quiet"}\n'
        )
        for promised, status in (("30s", 0), ("1ms", 1)):
            (rules / "a.yaml").write_text(watch % promised)
            ended = kvcts("--cases", str(cases), "rules")
            assert ended.status == status and ("CHANGED RULE" in ended.out) == (status == 1), ended
        for text, says in (
            (rule.replace("transfer", "teleport"), "teleport"),
            (rule + "expect: {no-such: done}\n", "no-such"),
            (rule.replace("as: write", "as: write, whither: 3"), "whither"),
        ):
            (rules / "a.yaml").write_text(text if "expect" in text else text + "expect: {shm: done}\n")
            ended = kvcts("--cases", str(cases), "rules")
            assert ended.status in (2, 3) and says in ended.err and "Traceback" not in ended.err, (text, ended)

    return 0


if __name__ == "__main__":
    finish(main)
