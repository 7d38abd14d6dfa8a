"""Pages are made from the output of the program and the catalogue, and a figure beyond its floor is reported. Only
short ones: the night makes all."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import compatibility  # noqa: E402
import connectors  # noqa: E402
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


INDEX = """collection: all
title: t
entries:
  - {id: M1, report: a/b#7, system: A, class: axis-permuted, data: confirmed, date: "2026", version: "1"}
  - {id: M2, report: a/b#8, system: B, class: truncated, data: partial, date: "2026", version: "1"}
"""
CASE = """case: museum/m1-b-7
title: NHD read as HND
links: ["https://example.org", "https://github.com/a/b/pull/7"]
steps: [{write: {request: A, to: P}}]
expected: {outcome: FAIL, class: axis-permuted}
controls: [{name: intended, as_intended: true}]
"""
GIVEN = "# not expressed: M2 a/b#8: no report says which bytes\n"
# What replaces what in GIVEN + CASE, and the sentence about it.
BROKEN = (
    (GIVEN, "", "M2: expected cases or a line '# not expressed', found neither"),
    (CASE, "", "M1: expected cases or a line '# not expressed', found neither"),
    (GIVEN, GIVEN + "# not expressed: M1 a/b#7: why\n", "M1: expected cases or a line '# not expressed', found both"),
    (GIVEN, GIVEN * 2, "M2: expected one line '# not expressed', found another"),
    ("M2 a/b#8:", "M2:", "expected '# not expressed: ID REPOSITORY#NUMBER: REASON', found '# not expressed: M2: no"),
    ("M2 a/b#8", "M3 a/b#8", "expected an entry of cases/museum/index with that report, found '# not expressed: M3 a/b#8"),
    ("M2 a/b#8", "M2 a/b#9", "expected an entry of cases/museum/index with that report, found '# not expressed: M2 a/b#9"),
    ("museum/m1-b-7", "museum/first", "museum/first: expected museum/m<number>-..., with an entry"),
    ("museum/m1-b-7", "museum/m4-b-7", "museum/m4-b-7: expected museum/m<number>-..., with an entry"),
    ("pull/7", "pull/70", "museum/m1-b-7: expected a link to a/b#7; add it to 'links'"),
    ("class: axis-permuted", "class: truncated", "the class of M1, axis-permuted, found truncated"),
    (", class: axis-permuted", "", "the class of M1, axis-permuted, found none"),
    ("steps: [{write: {request: A, to: P}}]\n", "", "museum/m1-b-7: expected memory and steps, found neither"),
    ("controls: [{name: intended, as_intended: true}]\n", "", "museum/m1-b-7: expected a control, found none"),
)


def museum_index() -> None:
    """Every entry of the committed index has cases or a reason; what does not add up is refused in one sentence."""
    entries = museum.read()
    assert [entry["id"] for entry in entries] == [f"M{number:03}" for number in range(1, 223)], len(entries)
    with tempfile.TemporaryDirectory(prefix="kvcts pages ") as folder:
        cases = Path(folder) / "museum"
        (cases / "index").mkdir(parents=True)
        (cases / "index" / "all.yaml").write_text(INDEX)
        for old, new, sentence in (("", "", ""), *BROKEN):
            assert old in GIVEN + CASE, old
            (cases / "a.yaml").write_text((GIVEN + CASE).replace(old, new) if old else GIVEN + CASE)
            try:
                first, second = museum.read(Path(folder))
                assert not sentence, f"expected {sentence!r}, found nothing wrong"
                assert (first["link"], second["reason"]) == ("https://github.com/a/b/pull/7", "no report says which bytes")
            except RuntimeError as found:
                assert sentence and sentence in str(found), f"expected {sentence!r}, found {str(found)!r}"


def museum_rows() -> None:
    """How an entry fared, by the results of its cases and controls."""
    entry = museum.read()[0]
    name = entry["cases"][0]["case"]
    control = f"{name}#{entry['cases'][0]['controls'][0]['name']}"

    def judged(outcome: str, fault_class: str, verdict: str = "as expected") -> dict:
        case = {"outcome": outcome, "message": "why", "diagnosis": {"fault_class": fault_class} if fault_class else {}}
        return museum.judge(entry, {name: case, control: {"verdict": verdict}})

    for outcome, fault_class, ends in (
        ("FAIL", "axis-permuted", "FAIL axis-permuted"),
        ("HANG", "hang-transfer", "**misnamed**: HANG hang-transfer"),
        ("FAIL", "", "**misnamed**: FAIL, not named"),
        ("REFUSED", "", "**misnamed**: REFUSED"),
        ("PASS", "", "**missed**: PASS"),
        ("SKIPPED", "", "**missed**: SKIPPED"),
        ("ERROR", "", "**missed**: ERROR: why"),
    ):
        assert museum.line(judged(outcome, fault_class))[6] == ends, (outcome, museum.line(judged(outcome, fault_class)))
    assert museum.judge(entry, {})["ending"] == "NOT_RUN"
    right = judged("FAIL", "axis-permuted")
    assert right["controls_good"] == 1 and judged("FAIL", "axis-permuted", "XFAIL")["controls_good"] == 0
    assert museum.unwaived([judged("PASS", "")]) ^ museum.unwaived([right]) == {entry["id"]}, "a missed entry needs a waiver"


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
    assert committed == {"published-bugs", "compatibility", "connectors", "engine-edges", "injected-faults", "benchmarks"}, (
        committed
    )


def connector_page() -> None:
    """As committed: it needs no run, so a change of the catalogue or of cases/registry.yaml comes with it."""
    made: dict = {}
    text = connectors.page(made)
    committed = (ROOT / "reports" / "results" / "connectors.md").read_text().partition("\n")[2]
    assert text == committed, (
        "reports/results/connectors.md: expected what the catalogue says, found another text; "
        "./run_suite.sh pages connectors && cp build/pages/connectors.md reports/results/"
    )
    lines = len(text.splitlines()) + 1
    assert lines <= 80, f"reports/results/connectors.md: expected at most 80 lines, found {lines}; merge rows"
    assert made["connectors.hosted"] >= 14, made


def main() -> None:
    need_program()
    for part in (rule_page, museum_index, museum_rows, sabotage_rows, kept_sections, held_floors, names, connector_page):
        part()


if __name__ == "__main__":
    finish(main)
