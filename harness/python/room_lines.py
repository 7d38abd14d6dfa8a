"""Lines of product code of each room, and how many it may have (the table room_lines of CMakeLists.txt)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = {".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".py", ".js"}


def is_product(file: Path) -> bool:
    """No test and no tool of one."""
    name = file.name
    if "_test." in name or name.startswith("test_") or name == "conftest.py":
        return False
    return file.suffix in CODE and not {"testing", "batches"} & set(file.relative_to(ROOT).parts)


def lines_of(room: str) -> int:
    return sum(
        len(file.read_bytes().splitlines()) for file in (ROOT / room).rglob("*") if file.is_file() and is_product(file)
    )


def budgets() -> dict[str, int]:
    table = re.search(r"set\(room_lines\n(.*?)\)", (ROOT / "CMakeLists.txt").read_text(), re.S)
    assert table, "CMakeLists.txt has no table room_lines"
    words = table[1].split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def over() -> list[str]:
    """Rooms that have more than they may."""
    out = []
    for room, most in budgets().items():
        if (lines := lines_of(room)) > most:
            out.append(
                f"room {room}: {lines:,} of {most:,} lines: delete something, or raise the figure in a commit that says "
                f"what it bought"
            )
    return out
