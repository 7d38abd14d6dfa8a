"""kvcts conformance: the templates and the plug-ins built against the frozen headers conform; each lie of the
hostile plug-in is found by its test; a plug-in that cannot be opened yields one clear sentence."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import BUILD, ROOT, finish, kvcts, kvcts_json, need_program  # noqa: E402

EXAMPLES = BUILD / "harness/engines/example"
TEMPLATE = str(EXAMPLES / "kvcts_engine_template_now.so")
# What the hostile plug-in (harness/engines/hostile.c) claims or does -> a test that must be BROKEN. Otherwise it is
# the template.
LIES = {
    "claim:can_write=0": "writes",
    "claim:can_read=0": "reads",
    "claim:memories=3": "cuda-memory",
    "claim:memories=2": "host-memory",
    "claim:kinds=3": "files",
    "claim:kinds=5": "objects",
    "two-sided": "target-stands-still",
    "claim:repeated_registration=0": "registered-twice",
    "claim:overlapping_registration=0": "registered-overlapping",
    "claim:zero_length=0": "nothing-among-others",
    "claim:unregistered_local=1": "local-memory-of-nobody",
    "claim:revokes=1": "region-taken-back",
    "claim:notifications=1": "notifies",
    "hasty": "notified-after-the-data",
    "unsafe": "four-threads",
    "early": "visible-when-complete",
    "early+claim:completion=0": "visible-when-flushed",
    "claim:ordering=1": "later-request-wins",
    "noisy": "quiet-once-cancelled",
    "claim:peer_death=1": "dead-peer",
    "two-sided+claim:peer_death=2": "killed-on-the-way",
    "claim:alignment=64": "misaligned",
    "claim:max_descriptors=10": "too-many-descriptors",
    "claim:max_bytes=65536": "too-long-descriptor",
    "late": "writes-and-nothing-else",
    "again": "completion-is-remembered",
    "threads": "agents-come-and-go",
    "files": "agents-come-and-go",
    "excess": "writes",
    "exit:post": "writes",
    "abort:add_peer": "another-process",
    "nothing:poll": "writes",
}
# The test of the other claim sees both as well: a stopped target makes no progress.
ALSO = {"two-sided": "target-makes-no-progress", "early+claim:completion=0": "visible-when-flushed"}
UNOPENED = {
    "exit:open": "ended with status 7",
    "abort:open": "SIGABRT",
    "garbage:open": "returned status 4711",
    "nothing:open": "returned OK and no agent",
    "claim:alignment=3": "expected a power of two",
}


# An edit of the template provider (transport/template/memory.c) -> the test that must be BROKEN.
PROVIDERS = {
    "copies": ("(memcpy(at, from, bytes), KVCTS_OK)", "(memcpy(at, from, bytes - 1), KVCTS_OK)"),
    "allocations-apart": (
        'const int fd = memfd_create("acme", MFD_CLOEXEC);',
        'static int one = -1;\n  if (one < 0) one = memfd_create("acme", MFD_CLOEXEC);\n  const int fd = dup(one);',
    ),
    "refusals": ("bytes <= b->bytes - offset)", "bytes <= b->bytes)"),
    # Only the second call releases it, so that closing the pool does not hang.
    "released": (
        "if (b->handle != handle) continue;",
        "if (b->handle != handle) continue;\n    if (b->fd >= 0) return close(b->fd), b->fd = -1, KVCTS_OK;",
    ),
    "host-accessible": ("out->address = base + offset", "out->address = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)"),
    "exports": (
        "return map(pool, fcntl(fd, F_DUPFD_CLOEXEC, 3), offset, bytes, out);",
        "return allocate(pool, bytes, out);",
    ),
}
# A pool of this one is never closed: takes 100 s until that is BROKEN.
NEVER_CLOSES = ("if (b->handle != handle) continue;", "if (b->handle == handle) return KVCTS_OK;")


def wrong_provider(test: str, right: str, wrong: str) -> None:
    source = (ROOT / "harness/engines/transport/template/memory.c").read_text()
    assert source.count(right) == 1, right
    with tempfile.TemporaryDirectory() as place:
        code, library = Path(place) / "wrong.c", Path(place) / f"{test}.so"
        code.write_text(source.replace(right, wrong))
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-I", str(ROOT / "harness/engines/transport"), "-o", str(library), str(code)],
            check=True,
        )
        tests = kvcts_json("conformance", TEMPLATE, "--memory", str(library), "--test", "writes", timeout=300)["memory"][
            "tests"
        ]
    broken = {one["test"] for one in tests if one["verdict"] == "BROKEN"}
    assert test in broken, f"a provider that is wrong in '{test}' passes it: {tests}"


def no_provider() -> None:
    ended = kvcts("conformance", TEMPLATE, "--memory", TEMPLATE)
    assert ended.status == 1 and "exports no kvcts_memory_entry; it is not a memory plug-in" in ended.out, ended


def beyond_refuting() -> None:
    """A claim of device memory holds unless it is answered "not supported"; without a device this is reported."""
    source = (ROOT / "harness/engines/transport/template/transport.c").read_text()
    with tempfile.TemporaryDirectory() as place:
        code, library = Path(place) / "any.c", Path(place) / "kvcts_engine_any.so"
        for right, wrong in (("in->memory != KVCTS_MEMORY_HOST || ", ""), ("1u << KVCTS_MEMORY_HOST", "15u")):
            assert source.count(right) == 1, right
            source = source.replace(right, wrong)
        code.write_text(source)
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-I", str(ROOT / "harness/engines/transport"), "-o", str(library), str(code)],
            check=True,
        )
        said = kvcts("conformance", str(library), "--test", "cuda-memory", "--test", "host-memory")
        assert (
            said.status == 0
            and said.out.count("not refutable here: memories.cuda") == 1
            and "refutable here: memories.host" not in said.out
        ), said


def verdicts(plugin: str, *options: str) -> dict[str, dict]:
    return {test["test"]: test for test in kvcts_json("conformance", plugin, *options, timeout=300)["tests"]}


def template(version: str, *options: str) -> None:
    ended = kvcts("conformance", str(EXAMPLES / f"kvcts_engine_template_{version}.so"), *options, timeout=300)
    assert ended.status == 0 and " 0 BROKEN" in ended.out, ended


def honest() -> None:
    """Without a lie the hostile plug-in conforms, and every tested claim has a lie above."""
    tests = verdicts("hostile")
    assert all(test["verdict"] != "BROKEN" for test in tests.values()), [
        t for t in tests.values() if t["verdict"] == "BROKEN"
    ]
    blind = {
        name for name, test in tests.items() if test["claim"] != "always" and name not in {*LIES.values(), *ALSO.values()}
    }
    # Not lies: claims that are only weaker than its behaviour, and the good halves of a pair of tests.
    assert blind == {
        "hip-memory",
        "other-memory",
        "later-descriptor-wins",
        "aligned",
        "most-descriptors",
        "longest-descriptor",
    }, blind


def lie(mode: str, test: str) -> None:
    found = verdicts("hostile", "--option", f"mode={mode}", "--test", test)[test]
    assert found["verdict"] == "BROKEN", f"mode {mode} passes {test}: {found}"


def mutant(mode: str, test: str) -> None:
    """A fault that only this test of all sees."""
    tests = verdicts(str(EXAMPLES / "kvcts_engine_mutant.so"), "--environment", f"KVCTS_MUTANT={mode}")
    broken = {name for name, found in tests.items() if found["verdict"] == "BROKEN"}
    assert broken == {test}, f"mutant {mode} breaks {sorted(broken)}, expected {test}"


def plain_write() -> None:
    """What else is broken where a plain write is says nothing new: that comes first."""
    ended = kvcts("conformance", "hostile", "--option", "mode=excess", "--test", "writes", "--test", "no-descriptor")
    assert ended.status == 1 and ended.out.splitlines()[1] == "a plain write is broken: look at `writes` first", ended


def lifetime(test: str, seen: str, *options: str) -> None:
    """The fixture delivers bytes early or late, or its process ends badly."""
    ended = kvcts_json(
        "conformance",
        "fixture",
        *(word for option in options for word in ("--option", option)),
        "--test",
        "writes-and-nothing-else",
        timeout=300,
    )
    broken = {one["test"]: one["seen"] for one in ended["tests"] if one["verdict"] == "BROKEN"}
    assert seen in broken.get(test, ""), (options, broken)


def unopened(mode: str, words: str) -> None:
    ended = kvcts("conformance", "hostile", "--option", f"mode={mode}")
    assert ended.status == 1 and words in ended.out and ended.out.count("\n") == 1, (mode, ended)


def refused(words: str, *argv: str) -> None:
    ended = kvcts("conformance", *argv)
    assert ended.status in (1, 2) and words in ended.out + ended.err, (argv, ended)


def templates() -> list[tuple]:
    """Today's and version 1's, each with and without its memory provider; one of each sort unless --all."""
    every = [
        (template, version, *options)
        for version in ("now", "v1")
        for options in ([], ["--memory", str(EXAMPLES / f"kvcts_memory_template_{version}.so")])
    ]
    return every if "--all" in sys.argv else [every[0], every[3]]


def parts() -> list[tuple]:
    """Functions with their arguments; none needs another, and the long ones come first."""
    return [
        (honest,),
        *templates(),
        *((lie, mode, test) for mode, test in [*LIES.items(), *ALSO.items()]),
        *((mutant, f"chunk:{size}", "short-last-chunk") for size in (16384, 65536)),
        (mutant, "keeps-own", "other-memory-here"),
        (mutant, "keeps-peers", "other-memory-there"),
        *((wrong_provider, test, right, wrong) for test, (right, wrong) in PROVIDERS.items()),
        *([(wrong_provider, "released", *NEVER_CLOSES)] if "--all" in sys.argv else []),
        (no_provider,),
        (plain_write,),
        (beyond_refuting,),
        (lifetime, "writes-and-nothing-else", "bytes: untouched", "fault=deferred", "phase=release"),
        (lifetime, "writes-and-nothing-else", "bytes: untouched", "fault=early", "delay_us=100000"),
        (lifetime, "writes-and-nothing-else", "afterwards: changed", "fault=late_write", "delay_us=900000"),
        (lifetime, "end-of-process", "SIGSEGV after close()", "fault=segv", "phase=exit"),
        (lifetime, "end-of-process", "status 3 after close()", "fault=exit3", "phase=exit"),
        *((unopened, mode, words) for mode, words in UNOPENED.items()),
        (refused, "there is no plug-in file", "/nonexistent/x.so"),
        (refused, "expected an engine of cases/engines", "no-such-engine"),
        (refused, "a test of cases/claims", "shm", "--test", "no-such-test"),
        (refused, "KEY=VALUE", "shm", "--option", "novalue"),
        (refused, "has no plug-in", "own"),
    ]


def main() -> int:
    need_program()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # they mostly wait
        for part in [pool.submit(*part) for part in parts()]:
            part.result()
    return 0


if __name__ == "__main__":
    finish(main)
