"""Documents tell the truth: runs every command of their ```console blocks and compares what it prints.

In a block, "$ command" is a command ("> " continues it), and what follows is its output. "..." stands for anything:
alone on a line for any lines, inside a line for any text. Figures that change from run to run (times, rates, sizes,
dates) need not agree. A command must end with status 0 unless the block shows "[status N]" as its last output line. A
```yaml block whose info string has "file=PATH" is written there first. The two set-up commands (./run_suite.sh alone
and with self-test) are not run.

A block with "needs=sandbox" in its info string is passed over, and that is said, on a machine without one.

With --fill, a command whose output is the one word FILL gets its real output written into the document.

A document with a line "<!-- needs GLOB -->" is passed over, and that is said, where no file of the checkout matches.

Everything happens in a copy of the checkout's data, so that examples may add files: `build/` leads to the build folder.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from kvtest import BUILD, ROOT, need_program, sandbox_works

SETUP = re.compile(r"^(\./run_suite\.sh( self-test)?|git clone .*|cd .*)$")
# Lines that a crowded machine adds: of a run that it makes slow, of a program that it starts slowly.
PROGRESS = re.compile(r"[\d,]+/[\d,]+(, .*)?$|start-up of \S+: ")
CHANGING = [
    (re.compile(r"; not isolated \(.*\)$"), ""),  # of a machine without a sandbox
    (re.compile(r"KVCTS_(CASES|PYTHON)=('[^']*'|\S+) "), ""),  # of repro lines: what this test itself has set
    (re.compile(r"'?/[^' ]*/(kvcts doc [^/']+|kv-cts)/([^' ]+)'?"), r"\2"),  # in a checkout
    (re.compile(r"\d+(\.\d+)? ?(ns|us|µs|ms|s|min|B|KiB|MiB|GiB|MB|GB|bytes/s|cases/s|/s|%)(?![A-Za-z0-9])"), "#"),
    (re.compile(r"slowest # \S+"), "slowest #"),  # which case that is, the machine decides
    (re.compile(r"\d{8}-\d{6}\S*"), "#"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?Z?)?"), "#"),
]


@dataclass
class Command:
    line: int
    text: str
    expected: list[str] = field(default_factory=list)


@dataclass
class FileBlock:
    path: str
    text: str


def blocks(document: Path) -> list[Command | FileBlock]:
    steps: list[Command | FileBlock] = []
    fence, info, body = None, "", []
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if fence is None:
            if match := re.match(r"^(```+)\s*(.*)$", line):
                fence, info, body = match[1], match[2], []
            continue
        if line.strip() != fence:
            body.append((number, line))
            continue
        if info.split() == ["console", "needs=sandbox"] and not sandbox_works():
            print(f"{document.name}:{number}: not run, there is no sandbox here")
        elif info.split()[:1] == ["console"]:
            steps += commands(body)
        elif match := re.search(r"file=(\S+)", info):
            steps.append(FileBlock(match[1], "\n".join(text for _, text in body) + "\n"))
        fence = None
    return steps


def commands(body: list[tuple[int, str]]) -> list[Command]:
    found: list[Command] = []
    for number, line in body:
        if line.startswith("$ "):
            found.append(Command(number, line[2:]))
        elif line.startswith("> ") and found and not found[-1].expected:
            found[-1].text += "\n" + line[2:]
        elif found:
            found[-1].expected.append(line)
    return found


def plain(line: str) -> str:
    line = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
    for pattern, replacement in CHANGING:
        line = pattern.sub(replacement, line)
    return re.sub(r"\s+", " ", line)


def matches(expected: list[str], actual: list[str]) -> bool:
    """Expected lines against actual ones, "..." lines matching any number of lines."""
    if not expected:
        return not actual
    if expected[0].strip() == "...":
        return any(matches(expected[1:], actual[i:]) for i in range(len(actual) + 1))
    if not actual:
        return False
    pattern = ".*".join(
        re.escape(plain(part)) if i in (0,) else re.escape(plain(part).strip())
        for i, part in enumerate(expected[0].split("..."))
    )
    # Ellipses and masks must not depend on blanks around them.
    pattern = re.sub(r"(\\ )*\.\*(\\ )*", ".*", pattern)
    return re.fullmatch(pattern, plain(actual[0])) is not None and matches(expected[1:], actual[1:])


def workplace(folder: Path) -> None:
    """A checkout to play in: data copied, the rest linked."""
    for entry in ROOT.iterdir():
        if entry.name in (".git", ".venv", "runs") or entry.name.startswith("build"):
            continue
        if entry.name in ("cases", "golden"):
            shutil.copytree(entry, folder / entry.name)
        else:
            (folder / entry.name).symlink_to(entry)
    (folder / "build").symlink_to(BUILD)
    if (ROOT / ".venv").exists():
        (folder / ".venv").symlink_to(ROOT / ".venv")


def fill(document: Path, command: Command, actual: list[str]) -> None:
    lines = document.read_text().splitlines()
    at = lines.index("FILL", command.line - 1)
    document.write_text("\n".join([*lines[:at], *(re.sub(r"\s+$", "", a) for a in actual), *lines[at + 1 :]]) + "\n")


def check(document: Path, folder: Path, filling: bool) -> list[str]:
    problems = []
    env = {**os.environ, "KVCTS_CASES": str(folder / "cases"), "CI": "true", "TERM": "dumb"}
    for step in blocks(document):
        if isinstance(step, FileBlock):
            (folder / step.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / step.path).write_text(step.text)
            continue
        if SETUP.match(step.text):
            continue
        where = f"{document.name}:{step.line}: $ {step.text.splitlines()[0]}"
        expected, status = step.expected, 0
        while expected and not expected[-1].strip():
            expected = expected[:-1]
        if expected and (match := re.fullmatch(r"\[status (\d+)\]", expected[-1].strip())):
            expected, status = expected[:-1], int(match[1])
        try:
            ended = subprocess.run(
                ["bash", "-c", step.text],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=240,
            )
        except subprocess.TimeoutExpired:
            problems.append(f"{where}\n  did not end within 240 s")
            continue
        actual = [line for line in ended.stdout.decode(errors="replace").splitlines() if not PROGRESS.match(line)]
        while actual and not actual[-1].strip():
            actual.pop()
        if filling and expected == ["FILL"]:
            fill(document, step, actual + ([f"[status {ended.returncode}]"] if ended.returncode else []))
        elif ended.returncode != status:
            problems.append(
                f"{where}\n  ended with status {ended.returncode}, expected {status}; it printed\n    "
                + "\n    ".join(actual[-15:])
            )
        elif expected and not matches(expected, actual):
            problems.append(
                f"{where}\n  printed\n    " + "\n    ".join(actual[:60]) + "\n  expected\n    " + "\n    ".join(expected)
            )
        else:
            print(f"ok {where}", flush=True)
    return problems


def main() -> int:
    need_program()
    filling = "--fill" in sys.argv
    wanted = [ROOT / a for a in sys.argv[1:] if a != "--fill"] or [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "cases" / "README.md",
        *sorted((ROOT / "reports").glob("**/*.md")),
    ]

    def one(document: Path) -> list[str]:
        if (needs := re.search(r"^<!-- needs (\S+) -->$", document.read_text(), re.M)) and not list(
            BUILD.glob(needs[1].removeprefix("build/"))
        ):
            print(f"{document.name}: not run, {needs[1]} is not built")
            return []
        with tempfile.TemporaryDirectory(prefix="kvcts doc ") as name:  # a blank in the path, on purpose
            workplace(Path(name))
            return check(document, Path(name), filling)

    # The longest first: two at once end together.
    wanted.sort(key=lambda document: -document.stat().st_size)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        problems = [problem for found in pool.map(one, wanted) for problem in found]
    print("\n".join(problems))
    print(
        f"{len(problems)} commands do not do what the documents say"
        if problems
        else "every command does what the documents say"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
