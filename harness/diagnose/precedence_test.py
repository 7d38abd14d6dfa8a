"""reports/precedence.md says what the code does: the families in their order with the classes that each may give, the class of each quantity
that code compares, and no class that nothing gives.

    precedence_test.py            compares
    precedence_test.py --print    prints the two tables as the page must have them (words of the last column are the page's)
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(os.environ.get("KVCTS_SOURCE_DIR", Path(__file__).resolve().parents[2]))
ROOM = ROOT / "harness" / "diagnose"
SOURCES = sorted(f for f in [*ROOM.glob("*.cpp"), *(ROOM / "families").glob("*.cpp"), *(ROOT / "harness" / "scene").rglob("*.cpp")] if "test" not in f.name)
PAGE = ROOT / "reports" / "precedence.md"


def vocabulary() -> list[str]:
    text = (ROOT / "harness" / "case" / "outcome.cpp").read_text()
    table = text[text.index("fault_classes() {"):]
    return re.findall(r'^      \{"([a-z0-9-]+)",', table, re.M)


def functions(path: Path) -> dict[str, str]:
    """Bodies of the functions at the outermost level, by name: they begin in the first column and end with a "}" there."""
    out: dict[str, str] = {}
    name = ""
    for line in path.read_text().splitlines():
        begins = re.match(r"(?!namespace|struct|class|template|using|//|#|\})\S.*?\b(\w+)\(", line)
        if not name and begins:
            name = begins[1]
            out[name] = out.get(name, "") + line[begins.end():] + "\n"
            if line.endswith("}") or line.endswith(";"):
                name = ""
        elif line == "}":
            name = ""
        elif name:
            out[name] += line + "\n"
    return out


def classes_of(name: str, known: dict[str, str], words: set[str], seen: set[str] | None = None) -> set[str]:
    """Classes that a function names, or that functions which it calls name."""
    seen = seen if seen is not None else set()
    if name in seen or name not in known:
        return set()
    seen.add(name)
    body = known[name]
    found = set(re.findall(r'"([a-z0-9-]+)"', body)) & words
    for called in sorted(set(re.findall(r"\b(\w+)\b", body)) & known.keys()):
        found |= classes_of(called, known, words, seen)
    return found


def reached(name: str, known: dict[str, str], seen: set[str] | None = None) -> set[str]:
    """A function and all that it calls."""
    seen = seen if seen is not None else set()
    if name in known and name not in seen:
        seen.add(name)
        for called in re.findall(r"\b(\w+)\b", known[name]):
            reached(called, known, seen)
    return seen


def families() -> list[tuple[str, str]]:
    return re.findall(r'\{"([^"]+)", (propose_\w+)\}', (ROOM / "precedence.cpp").read_text())


def family_classes() -> dict[str, list[str]]:
    words = vocabulary()
    variants: dict[str, str] = {}
    for path in sorted((ROOT / "harness" / "scene" / "faults").glob("*.cpp")):
        variants |= functions(path)
    out = {}
    for path in (f for f in SOURCES if f.parent.name == "families" and f.stem not in ("names", "tools")):
        # A helper of the same name in another file is another function: each file sees its own and variants.cpp's.
        known = {**variants, **functions(path)}
        for name, function in families():
            if function in functions(path):
                found = classes_of(function, known, set(words))
                out[name] = [w for w in words if w in found]
                if "families()" in "".join(known.get(word, "") for word in reached(function, known)):
                    out[name] = []  # asks all others
    everything = {word for found in out.values() for word in found}
    return {name: found or [w for w in words if w in everything] for name, found in out.items()}


def quantities() -> dict[str, str]:
    text = (ROOM / "explain.cpp").read_text()
    begin = text.index("class_of_quantity(const std::string& about) {")
    return dict(re.findall(r'\{"(\w+)", "([a-z0-9-]+)"\}', text[begin:text.index("};", begin)]))


def rows(heading: str) -> list[list[str]]:
    """Cells of the first table below a heading of the page, without its head."""
    text = PAGE.read_text()
    lines = text[text.index(f"\n## {heading}\n"):].splitlines()[2:]
    table = []
    for line in lines:
        if line.startswith("|"):
            table.append([c.strip() for c in line.strip("|").split("|")])
        elif table or line.startswith("## "):
            break
    return table[2:]


def print_tables() -> None:
    of = family_classes()
    for number, (name, _) in enumerate(families(), 1):
        print(f"| {number} | {name} | {', '.join(of.get(name, []))} | ... |")
    print()
    by_class: dict[str, list[str]] = {}
    for quantity, fault_class in quantities().items():
        by_class.setdefault(fault_class, []).append(quantity)
    for fault_class in vocabulary():
        if fault_class in by_class:
            print(f"| {', '.join(by_class[fault_class])} | {fault_class} |")


def main() -> int:
    if "--print" in sys.argv:
        print_tables()
        return 0
    problems = []
    of = family_classes()
    assert len(of) == len(families()) >= 10 and len(quantities()) >= 10, "the sources are not understood: mend this test"
    shown = {row[1]: row for row in rows("One cause")}
    if [row[1] for row in rows("One cause")] != [name for name, _ in families()]:
        problems.append(f"families: the page has {list(shown)}, precedence.cpp has {[name for name, _ in families()]}")
    for number, (name, _) in enumerate(families(), 1):
        if name not in shown:
            continue
        row = shown[name]
        if row[0] != str(number) or row[2] != ", ".join(of[name]):
            problems.append(f"family '{name}': the page has {row[:3]}, the sources {number} and {', '.join(of[name])}")
        if len(row[3]) < 10:
            problems.append(f"family '{name}': no words")
    page = {q.strip(): row[1] for row in rows("What code compared") for q in row[0].split(",")}
    if page != quantities():
        problems.append(f"quantities: the page has {sorted(page.items())}, explain.cpp has {sorted(quantities().items())}")
    everything = "".join(path.read_text() for path in SOURCES)
    for fault_class in vocabulary():
        given = f'"{fault_class}"' in everything
        named = re.search(rf"(?<![a-z-]){fault_class}(?![a-z-])", PAGE.read_text()) is not None
        if given != named:
            problems.append(f"class {fault_class}: {'given by the sources, not on the page' if given else 'on the page, given by nothing'}")
    print("\n".join(problems) or "the page says what the sources do")
    if problems:
        print("`harness/diagnose/precedence_test.py --print` prints what the tables have to be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
