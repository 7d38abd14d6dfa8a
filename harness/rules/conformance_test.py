"""kvcts conformance: the templates and the plug-ins built against the frozen headers conform; each lie of the hostile plug-in is found by the
test that asks for it; what cannot be opened is one clear sentence."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testing"))
from kvtest import BUILD, kvcts, kvcts_json, need_program  # noqa: E402

EXAMPLES = BUILD / "harness/engines/example"
# What the hostile plug-in (harness/engines/hostile.c) says or does -> a test that must be BROKEN. It is the template otherwise.
LIES = {
    "claim:can_write=0": "writes", "claim:can_read=0": "reads", "claim:memories=3": "cuda-memory", "claim:memories=2": "host-memory",
    "claim:kinds=3": "files", "claim:kinds=5": "objects", "two-sided": "target-stands-still", "claim:repeated_registration=0": "registered-twice",
    "claim:overlapping_registration=0": "registered-overlapping", "claim:zero_length=0": "nothing-among-others",
    "claim:unregistered_local=1": "local-memory-of-nobody", "claim:revokes=1": "region-taken-back", "claim:notifications=1": "notifies",
    "hasty": "notified-after-the-data", "unsafe": "four-threads", "early": "visible-when-complete", "early+claim:completion=0": "visible-when-flushed", "claim:ordering=1": "later-request-wins",
    "noisy": "quiet-once-cancelled", "claim:peer_death=1": "dead-peer", "two-sided+claim:peer_death=2": "killed-on-the-way",
    "claim:alignment=64": "misaligned", "claim:max_descriptors=10": "too-many-descriptors", "claim:max_bytes=65536": "too-long-descriptor",
    "late": "writes-and-nothing-else", "again": "completion-is-remembered", "threads": "agents-come-and-go", "files": "agents-come-and-go",
    "excess": "writes", "exit:post": "writes", "abort:add_peer": "another-process", "nothing:poll": "writes",
}
# Both are seen by the test of the other claim as well: a target that stands still makes no progress.
ALSO = {"two-sided": "target-makes-no-progress", "early+claim:completion=0": "visible-when-flushed"}
UNOPENED = {"exit:open": "ended with status 7", "abort:open": "SIGABRT", "garbage:open": "returned status 4711", "nothing:open": "returned OK and no agent",
            "claim:alignment=3": "expected a power of two"}


def verdicts(plugin: str, *options: str) -> dict[str, dict]:
    return {test["test"]: test for test in kvcts_json("conformance", plugin, *options, timeout=300)["tests"]}


def main() -> int:
    need_program()
    for version in ("now", "v1"):
        plugin, memory = EXAMPLES / f"kvcts_engine_template_{version}.so", EXAMPLES / f"kvcts_memory_template_{version}.so"
        for options in ([], ["--memory", str(memory)]):
            ended = kvcts("conformance", str(plugin), *options, timeout=300)
            assert ended.status == 0 and " 0 BROKEN" in ended.out, ended

    tests = verdicts("hostile")
    assert all(test["verdict"] != "BROKEN" for test in tests.values()), [t for t in tests.values() if t["verdict"] == "BROKEN"]
    for mode, test in LIES.items():
        for name in (test, ALSO.get(mode, test)):
            seen = verdicts("hostile", "--option", f"mode={mode}", "--test", name)[name]
            assert seen["verdict"] == "BROKEN", f"mode {mode} passes {name}: {seen}"
    asked = set(LIES.values()) | set(ALSO.values())
    blind = {name for name, test in tests.items() if test["claim"] != "always" and name not in asked}
    # Not lies of this plug-in: claims that are only weaker than what it does, and the good halves of a pair of tests.
    assert blind == {"hip-memory", "other-memory", "later-descriptor-wins", "aligned", "most-descriptors", "longest-descriptor"}, blind

    for mode, words in UNOPENED.items():
        ended = kvcts("conformance", "hostile", "--option", f"mode={mode}")
        assert ended.status == 1 and words in ended.out and ended.out.count("\n") == 1, (mode, ended)
    for argv, words in ((["/nonexistent/x.so"], "there is no plug-in file"), (["no-such-engine"], "expected an engine of cases/engines"),
                        (["shm", "--test", "no-such-test"], "a test of cases/claims"), (["shm", "--option", "novalue"], "KEY=VALUE"), (["own"], "has no plug-in")):
        ended = kvcts("conformance", *argv)
        assert ended.status in (1, 2) and words in ended.out + ended.err, (argv, ended)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
