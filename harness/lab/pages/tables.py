"""Markdown tables, and what the program says as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import kvcts_json  # noqa: E402


def cell(text: str) -> str:
    """A '|' would end the cell."""
    return text.replace("|", "\\|")


def table(head: list[str], rows: Iterable[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, row)) + " |\n" for row in lines)


def kvcts_answer(*argv: str):
    """The JSON of a verb that ends with 0, or with 1 because something is not as expected."""
    return kvcts_json(*argv, timeout=7200)
