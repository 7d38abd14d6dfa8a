"""reports/sabotage.md says what `kvcts sabotage --page` prints: a sample of its rows is run again, its sums are those of its rows, and every saboteur
of cases/saboteurs/ is on it. The whole page takes minutes to write; --all does that and compares it."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, kvcts, need_program  # noqa: E402

SAMPLE = ["planner/ids-off-by-one", "planner/partial-block-dropped", "connector/kv-exchanged", "connector/last-layer-missing", "reader/producers-ids",
          "transport/nothing", "transport/every-third-dropped", "transport/source-compacted", "transport/previous-request", "writer/swapped-halfwords"]


BEHIND = ["planner/ids-off-by-one", "transport/every-third-dropped", "writer/swapped-halfwords"]
ENGINE = "nixl-tcp"


def cells(lines: list[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def behind_engines(page: str, known: set[str]) -> None:
    """The section about released engines: every saboteur is there, sums are those of the columns, and a sample of one engine is run again."""
    section = next(part for part in page.split("\n## ") if part.startswith("Behind released engines"))
    head = next(line for line in section.splitlines() if line.startswith("| saboteur |"))
    engines = [name.strip("`") for name in cells([head])[0][2:]]
    rows = {row[0]: row[1:] for row in cells([line for line in section.splitlines() if re.match(r"\| \w+/", line)])}
    assert set(rows) == known, "write reports/sabotage.md again: build/bin/kvcts sabotage --page > reports/sabotage.md"
    for i, engine in enumerate(engines, 1):
        column = [row[i] for row in rows.values()]
        controls = sum(cell == "not caught" for cell in column)
        named = sum(cell.endswith(", named") for cell in column)
        skipped = sum(cell.startswith("SKIPPED") for cell in column)
        caught = named + sum(", called " in cell for cell in column)
        assert caught + skipped == len(known) - controls and named >= 0.95 * caught, (engine, caught, named, skipped)
        sums = rf"\| `{re.escape(engine)}` \| {len(known) - controls} \| {caught} \| {named} \| \d+ \| {skipped} \| 0 \|"
        assert re.search(sums, section), (engine, sums)
    ended = kvcts("sabotage", "--page", "--behind", ENGINE, *(word for saboteur in BEHIND for word in ("--saboteur", saboteur)))
    if "./run_suite.sh install" in ended.err:
        print(f"{ENGINE}: left out, its package is not installed")
        return
    again = {row[0]: row[2] for row in cells([line for line in ended.out.splitlines() if re.match(r"\| \w+/", line)])}
    column = 1 + engines.index(ENGINE)
    assert ended.status == 0 and again == {one: rows[one][column] for one in BEHIND}, (ended, again)


def main() -> int:
    need_program()
    page = (ROOT / "reports" / "sabotage.md").read_text()
    if "--all" in sys.argv:
        ended = kvcts("sabotage", "--page", timeout=7200)
        print("\n".join(difflib.unified_diff(page.splitlines(), ended.out.splitlines(), "reports/sabotage.md", "kvcts sabotage --page", lineterm="", n=0)))
        return 1 if ended.out != page or ended.status else 0
    table = [line.split(" | ") for line in page.split("\n## ")[0].splitlines() if re.match(r"\| \w+/", line)]
    known = {line.split(" ")[0] for line in kvcts("sabotage", "--list").out.splitlines()}
    assert {row[0].removeprefix("| ") for row in table} == known, "write reports/sabotage.md again: build/bin/kvcts sabotage --page > reports/sabotage.md"
    wrong = [row for row in table if row[3] != "(right code)"]
    caught, named = sum(row[2] != "NOT CAUGHT" for row in wrong), sum(row[4] == "yes" for row in wrong)
    sums = f"smoke: {caught} of {len(wrong)} saboteurs caught, {named} named ({100 * named / len(wrong):.1f} %); 0 false alarms of {len(table) - len(wrong)} controls"
    assert sums in page and caught == len(wrong) and named >= 0.95 * len(wrong), sums
    nightly = re.search(r"^nightly: (\d+) of (\d+) saboteurs caught, (\d+) named .*; 0 false alarms", page, re.M)
    assert nightly and nightly[1] == nightly[2] == str(len(wrong)) and int(nightly[3]) >= 0.95 * len(wrong), nightly
    ended = kvcts("sabotage", "--page", *(word for saboteur in SAMPLE for word in ("--saboteur", saboteur)))
    rows = ended.out.splitlines()
    assert ended.status == 0 and len(rows) == len(SAMPLE), (ended.status, ended.out, ended.err)
    missing = [row for row in rows if row not in page.splitlines()]
    assert not missing, "not on reports/sabotage.md:\n" + "\n".join(missing)
    behind_engines(page, known)
    print(f"{len(rows)} rows are as on the page; {sums}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
