"""Code is formatted: clang-format and ruff change nothing, and no line has more than 125 columns.

    format_test.py           checks
    format_test.py --write   formats

Only code is searched for long lines: text in Markdown, data in YAML and JSON, and pinned hashes may be as long as they
need to be.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from kvtest import ROOT, finish

COLUMNS = 125
CLANG = {".cpp", ".hpp", ".h", ".c", ".cu", ".js"}
CODE = CLANG | {".py", ".pyi", ".css", ".html", ".sh", ".cmake", ".yml"}
SCRIPTS = {"CMakeLists.txt", "gpu-acceptance", "python", "Jenkinsfile"}  # code by name
FROZEN = "harness/engines/transport/compat/"  # verbatim copies of released headers
BIN = Path(sysconfig.get_path("scripts"))


def code() -> list[str]:
    """Tracked files, and those that git would track."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [
        f
        for f in listed
        if (Path(f).suffix in CODE or Path(f).name in SCRIPTS) and not f.startswith(FROZEN) and (ROOT / f).is_file()
    ]


def long_lines(files: list[str]) -> list[str]:
    return [
        f"{file}:{number}: {len(line)} columns, expected at most {COLUMNS}"
        for file in files
        for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]


def unformatted(files: list[str], write: bool) -> list[str]:
    by_clang = [f for f in files if Path(f).suffix in CLANG]
    clang = [BIN / "clang-format", *(["-i"] if write else ["--dry-run"]), *by_clang]
    ruff = [BIN / "ruff", "format", "--no-cache", *([] if write else ["--check"]), "."]
    said = []
    for command in (clang, ruff):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        lines = (done.stdout + done.stderr).splitlines()
        said += [line for line in lines if "warning: code should be" in line or line.startswith("Would reformat: ")]
        assert done.returncode in (0, 1), f"{command[0]} ended with {done.returncode}: {lines}"
    return said


def main() -> None:
    for tool in ("clang-format", "ruff"):
        if not (BIN / tool).exists():
            print(f"skipped: {tool} is not in .venv; ./run_suite.sh install puts it there")
            sys.exit(77)
    if not (ROOT / ".git").exists():
        print("skipped: this is not a checkout, so there is no list of its files")
        sys.exit(77)
    files = code()
    assert len(files) > 1000, f"expected the files of a whole checkout, found {len(files)}"
    problems = unformatted(files, "--write" in sys.argv) + long_lines(files)
    assert not problems, "\n".join([*problems[:40], "harness/testing/format_test.py --write formats; wrap the rest by hand"])
    print(f"{len(files)} files of code: formatted, at most {COLUMNS} columns")


if __name__ == "__main__":
    finish(main)
