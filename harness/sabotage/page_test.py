"""reports/sabotage.md says what `kvcts sabotage --page` prints: a sample of its rows is run again, its sums are those of its rows, and every saboteur
of cases/saboteurs/ is on it. The whole page takes minutes to write; --all does that and compares it."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testing"))
from kvtest import ROOT, kvcts, need_program  # noqa: E402

SAMPLE = ["planner/ids-off-by-one", "planner/partial-block-dropped", "connector/kv-exchanged", "connector/last-layer-missing", "reader/producers-ids",
          "transport/nothing", "transport/every-third-dropped", "transport/source-compacted", "transport/previous-request", "writer/swapped-halfwords"]


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
    print(f"{len(rows)} rows are as on the page; {sums}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
