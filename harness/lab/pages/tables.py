"""Building blocks of pages: Markdown tables, documents of cases/, and the program's output as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

try:
    import yaml
except ImportError:
    print("skipped: PyYAML is not installed (./run_suite.sh install)")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, kvcts_json  # noqa: E402


def cell(text: str) -> str:
    """Escapes '|', which would end the cell."""
    return text.replace("|", "\\|")


def table(head: list[str], rows: Iterable[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, row)) + " |\n" for row in lines)


def documents(folder: str, cases: Path = ROOT / "cases") -> list[dict]:
    return [
        document
        for path in sorted((cases / folder).glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]


def kvcts_answer(*argv: str):
    """The JSON of a verb that ends with 0, or with 1 because something is not as expected."""
    return kvcts_json(*argv, timeout=7200)
