"""The promises of reports/guide/isolation.md: engine attacker tries to break each, and is refused or caught."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kvtest import BUILD, KVCTS, ROOT, finish, memory_files, need_program, results, sandbox_works

ENTRY = "engine: attacker\ntitle: tries to reach what judges it\nplugin: kvcts_engine_attacker\nprocesses: 2\nsetup_ms: 5\n"
CASE = (
    "case: attack/{name}\ngeometry: {{base: small, layers: 1, blocks: {blocks}}}\n"
    "producer: {{layout: vllm-fa-nhd}}\nconsumer: {{layout: vllm-fa-hnd}}\nengine: attacker\n"
    "engine_options: {{attack: {attack}, target: '{target}', corrupt: '{corrupt}'}}\ndeadlines: {{transfer: 1s, "
    "complete: 1s}}\nexpected: {expected}\n"
)
REFUSED = [
    "see-judges",
    "signal-judges",
    "take-channel",
    "trace-judge",
    "read-judge",
    "copy-judge",
    "list-descriptors",
    "mount",
    "new-namespace",
    "into-kernel",
    "reach-devices",
    "leave-files",
    "leave-memory",
]


LATE = ["move-in-facts", "move-in-a-thread", "answer-for-the-worker"]


LISTENER = socket.create_server(("127.0.0.1", 0))
SECRET = f"secret-of-a-ci-{os.getpid()}"
os.environ["CI_TOKEN"] = SECRET


def blocks(name: str) -> int:
    """Of the pool: comparing it takes longer than the wait of a worker's impostor."""
    return 4096 if name == "answer-for-the-worker" else 64


def attacks(folder: Path, out: Path) -> list[tuple[str, str, str, str]]:
    """Name, attack, target, expected."""
    mark = f"attacker-{os.getpid()}"
    return [
        *((name, name, {"leave-files": mark, "leave-memory": "7117117"}.get(name, "-"), "PASS") for name in REFUSED),
        ("read-the-store", "read-file", str(out / "store.db"), "PASS"),
        ("write-the-suite", "write-file", str(BUILD / "lib" / "kvcts" / "engines" / "kvcts_engine_memcpy.so"), "PASS"),
        ("write-the-cases", "add-file", str(folder / "cases"), "PASS"),
        ("write-the-machine", "add-file", "/etc", "PASS"),
        ("write-a-setting", "write-file", "/proc/sys/kernel/core_pattern", "PASS"),
        ("reach-the-network", "reach-network", str(LISTENER.getsockname()[1]), "PASS"),
        ("know-the-environment", "know-word", SECRET[::-1], "PASS"),
        ("know-its-id", "know-word", "attack/know-its-id"[::-1], "PASS"),
        ("know-the-verdict", "know-word", '"expected"'[::-1], "PASS"),
        ("leave-a-daemon", "leave-daemon", f"1{os.getpid()}.5", "{outcome: FAIL, contains: left a process behind}"),
        *((name, name, "-", "{outcome: FAIL, contains: before the data had arrived}") for name in LATE),
        ("chase-itself", "fork-and-end", "-", "{outcome: FAIL, contains: left a process behind}"),
        ("fork-without-end", "fork-without-end", "-", "{outcome: CRASH, contains: processes in the sandbox}"),
        ("stretch-its-deadline", "stretch-deadline", "-", "{outcome: HANG}"),
    ]


def tried(folder: Path, user: int | None) -> None:
    out = folder / f"run-{user}"
    rows = attacks(folder, out)
    file = folder / "attacks.yaml"
    # All of it again with wrong bytes: no attack makes a pass of them.
    cases = [
        CASE.format(name=name, attack=attack, target=target, corrupt="0", expected=expected, blocks=blocks(name))
        for name, attack, target, expected in rows
    ]
    cases += [
        CASE.format(name=name + "-corrupt", attack=attack, target=target, corrupt="1", expected="FAIL", blocks=64)
        for name, attack, target, expected in rows
        if expected == "PASS"
    ]
    file.write_text("---\n".join(cases))
    before = memory_files()
    begin = time.monotonic()
    extra = {"user": user, "group": user} if user is not None else {}
    ended = subprocess.run(
        [KVCTS, "--cases", folder / "cases", "run", "--file", file, "-j", "2", "--watch", "0s", "--out", out],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        **extra,
    )
    took = time.monotonic() - begin
    assert ended.returncode == 0 and "not isolated" not in ended.stdout, ended.stdout[-3000:] + ended.stderr
    found = {result["id"].removeprefix("attack/"): result for result in results(out)}
    assert len(found) == len(cases)
    for name, *_ in rows[:-3]:
        said = found[name]["facts"]["engine_claims"]["attack"]
        assert said.startswith("refused: "), (name, said)
    print(
        f"{len(rows)} attacks as {'a plain user' if user is not None else 'this user'}: "
        + "; ".join(f"{name}: {found[name]['facts']['engine_claims']['attack'][9:]}" for name, *_ in rows[:-2])
    )
    assert found["stretch-its-deadline"]["wall_ns"] < 12e9 and took < 120, "a status page that lies stretches no deadline"
    again = subprocess.run(
        [KVCTS, "--json", "--cases", folder / "cases", "repro", "attack/read-the-store", "--file", file, "--run", out],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=folder,
        **extra,
    )
    said = json.loads(again.stdout)["facts"]["engine_claims"]["attack"]
    assert again.returncode == 0 and said.startswith("refused: "), ("repro shows the store that it reads", said)
    # Nothing is left on the machine.
    assert memory_files() == before
    mark = rows[REFUSED.index("leave-files")][2]
    assert not [place for place in ("/tmp", "/var/tmp", "/dev/shm", "/run") if (Path(place) / mark).exists()]
    assert "7117117" not in subprocess.run(["ipcs", "-m"], capture_output=True, text=True).stdout
    assert subprocess.run(["pgrep", "-f", f"^sleep 1{os.getpid()}.5$"], capture_output=True).returncode == 1


def page(folder: Path) -> None:
    """Every promise of the page names attacks that this test makes, and every attack stands behind one."""
    text = (ROOT / "reports" / "guide" / "isolation.md").read_text()
    named = set(re.findall(r"`([a-z-]+)`", text.split("## Promises", 1)[1].split("\n## ", 1)[0]))
    made = {name for name, *_ in attacks(folder, folder)}
    assert named == made and len(made) >= 15, named ^ made


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts-isolation-") as place:
        folder = Path(place)
        page(folder)
        shutil.copytree(ROOT / "cases", folder / "cases")
        (folder / "cases" / "engines" / "attacker.yaml").write_text(ENTRY)
        if not sandbox_works():
            print("skipped: no sandbox here")
            sys.exit(77)
        tried(folder, None)
        if os.getuid() == 0:
            nobody = 65534
            subprocess.run(["chown", "-R", str(nobody), folder], check=True)
            if subprocess.run([KVCTS, "--version"], user=nobody, capture_output=True).returncode == 0:
                tried(folder, nobody)


if __name__ == "__main__":
    finish(main)
