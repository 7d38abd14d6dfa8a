"""Pages are made from the output of the program and the catalogue, and a figure beyond its floor is reported. Only
short ones: the night makes all."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import compatibility  # noqa: E402
import figures  # noqa: E402
import museum  # noqa: E402
import pages  # noqa: E402
import rules  # noqa: E402
import sabotage  # noqa: E402
from kvtest import BUILD, ROOT, finish, kvcts, kvcts_json, need_program  # noqa: E402


def rule_page() -> None:
    """Every rule has a section with each of its engines' answers, as stated in the catalogue."""
    made: dict = {}
    text = rules.page(made)
    for rule in rules.documents("rules"):
        section = text.split(f"\n## {rule['rule']}\n")[1].split("\n## ")[0]
        for engine, seen in rules.stated(rule).items():
            assert f"| `{engine}` | " in section and f"| {seen} |" in section, (rule["rule"], engine, seen)
    assert made["rules"] == len(kvcts("rules", "--list").out.splitlines()), made


def museum_rows() -> None:
    entries = kvcts_json("museum", "--system", "UCX")["entries"]
    assert len(entries) >= 2 and all(
        museum.line(e)[6].startswith(("FAIL", "HANG", "CRASH")) for e in entries if e["expressed"]
    ), entries
    wrong = entries[0] | {"caught": False, "named": False}
    assert museum.line(wrong)[6].startswith("**missed**") and museum.line(wrong | {"caught": True})[6].startswith(
        "**misnamed**"
    )
    assert wrong["id"] in museum.unwaived([wrong]), "an entry that is missed needs a waiver"


def sabotage_rows() -> None:
    argv = ("sabotage", "--saboteur", "planner/ids-reversed", "--saboteur", "transport/honest")
    found = kvcts_json(*argv)
    wrong, right = found["saboteurs"]
    assert (sabotage.caught_and_named(wrong), sabotage.caught_and_named(right)) == ("bytes, named", "not caught"), found
    assert sabotage.totals_line(found) == "smoke: 1 of 1 faults caught, 1 named; 0 false alarms of 1 controls"
    assert sabotage.told_alike(wrong, wrong) and not sabotage.told_alike(wrong, wrong | {"wrong_bytes": 1})
    assert sabotage.naming(wrong | {"named": False, "diagnosed": "axis-permuted"}) == "axis-permuted"
    assert "| planner/ids-reversed | " in sabotage.main_table(found)


def kept_sections() -> None:
    """What needs vLLM stays as committed; what was made replaces it."""
    made = "# A\n\n## Caches\n\n| cache | x |\n| --- | --- |\n| one | new |\n\n## reference\n\nnew\n"
    old = (
        "# A\n\n## Caches\n\n| cache | x |\n| --- | --- |\n| one | old |\n| two | old |\n\n## reference\n\nold\n\n"
        "## real-x\n\nmeasured\n"
    )
    both = compatibility.with_kept(made, old, ["real-"])
    assert "| one | new |\n| two | old |" in both and both.endswith("## real-x\n\nmeasured\n") and "\nold\n" not in both, (
        both
    )
    assert compatibility.with_kept(made, old, []) == made


def held_floors() -> None:
    floors = {"a": {"least": 10}, "b": {"most": 0}}
    assert figures.beyond(floors, {"a": 10, "b": 0, "c": 3}) == []
    assert figures.beyond(floors, {"a": 9, "b": 1}) == ["a: expected at least 10, found 9", "b: expected at most 0, found 1"]
    assert "a: expected a figure, found none" in figures.beyond(floors, {"b": 0})[0]
    committed = figures.read()
    assert 10 <= len(committed) <= 60 and all(set(floor) <= {"least", "most"} and floor for floor in committed.values()), (
        committed
    )


def names() -> None:
    known = set(pages.makers(BUILD, BUILD / "pages"))
    committed = {path.stem for path in (ROOT / "reports" / "results").glob("*.md") if path.stem in known}
    assert committed == {"published-bugs", "compatibility", "engine-edges", "injected-faults", "benchmarks"}, committed


def main() -> None:
    need_program()
    for part in (rule_page, museum_rows, sabotage_rows, kept_sections, held_floors, names):
        part()


if __name__ == "__main__":
    finish(main)
