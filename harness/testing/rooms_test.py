"""The rooms: includes go to a room itself or to those above it in CMakeLists.txt, none has more lines than the table there
allows, and reports/guide/architecture.md has every room with the sentence that its CMakeLists.txt opens with.

    rooms_test.py           compares
    rooms_test.py --write   writes the list into the page
"""

from __future__ import annotations

import re
import sys

from kvtest import ROOT, finish

sys.path.insert(0, str(ROOT / "harness" / "python"))
import room_lines  # noqa: E402

PAGE = ROOT / "reports" / "guide" / "architecture.md"
HEADING = "## Rooms, each above those that use it\n"


def rooms() -> list[str]:
    """Folders of the rooms, in the order of CMakeLists.txt."""
    listed = re.search(r"set\(rooms\n(.*?)\)", (ROOT / "CMakeLists.txt").read_text(), re.S)
    assert listed, "CMakeLists.txt has no list of rooms"
    return listed[1].split()


def sentence(folder: str) -> str:
    """The first sentence of the comment that the folder's CMakeLists.txt opens with."""
    comment = re.match(r"(?:#.*\n)+", (ROOT / folder / "CMakeLists.txt").read_text())
    assert comment, f"{folder}/CMakeLists.txt: expected a sentence of what the room is in its first line, found none"
    return re.split(r"(?<=[.?])\s", " ".join(line.lstrip("# ") for line in comment[0].splitlines()))[0].rstrip(".")


def parts(room: str) -> list[str]:
    return sorted(f.parent.relative_to(ROOT).as_posix() for f in (ROOT / room).glob("*/CMakeLists.txt"))


def page_of_rooms() -> str:
    lines = []
    for room in rooms():
        lines.append(f"    {room:<24}{sentence(room)}")
        lines += [f"      {part.removeprefix(room + '/'):<22}{sentence(part)}" for part in parts(room)]
    return "\n".join(lines) + "\n"


def folders_are_rooms() -> None:
    found = {f"harness/{f.name}" for f in (ROOT / "harness").iterdir() if f.name != "cmake" and any(f.glob("**/*.[ch]pp"))}
    listed = {r for r in rooms() if r.startswith("harness/")}
    assert found == listed, (
        f"expected every folder of harness/ in CMakeLists.txt's rooms, found {sorted(found ^ listed)} in one only"
    )


def upward_includes() -> list[str]:
    """Also of tests, whose programs see more than a room does. Those of `testing` serve all."""
    order = {room.removeprefix("harness/"): place for place, room in enumerate(rooms())}
    wrong = []
    for room in rooms():
        name = room.removeprefix("harness/")
        for file in sorted((ROOT / room).rglob("*")):
            if file.suffix not in (".cpp", ".hpp", ".h", ".c", ".cu"):
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                include = re.match(r'\s*#\s*include "(?:harness/)?([^/"]+)/', line)
                if include and order.get(include[1], -1) > order[name]:
                    wrong.append(
                        f"{file.relative_to(ROOT)}:{number}: {line.strip()} (room '{include[1]}' is below '{name}' in "
                        f"CMakeLists.txt)"
                    )
    return wrong


def main() -> None:
    folders_are_rooms()
    text = PAGE.read_text()
    begin = text.index(HEADING) + len(HEADING) + 1
    end = text.index("\n## ", begin)
    if "--write" in sys.argv:
        PAGE.write_text(text[:begin] + page_of_rooms() + text[end:])
        return
    expected = [room for room in rooms() if room != "harness/testing"] + ["reports"]
    assert list(room_lines.budgets()) == expected, "CMakeLists.txt: room_lines has other rooms than the list above it"
    wrong = upward_includes() + room_lines.over()
    assert not wrong, "\n".join(wrong)
    assert text[begin:end] == page_of_rooms(), (
        "reports/guide/architecture.md has other rooms than CMakeLists.txt: harness/testing/rooms_test.py --write"
    )


if __name__ == "__main__":
    finish(main)
