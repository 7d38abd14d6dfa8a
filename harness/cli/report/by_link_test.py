"""kvcts report RUN --by link: cases and controls of a run by the report that they link, as text and as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import expect, finish, need_program  # noqa: E402

LINK = "https://github.com/openucx/ucx/pull/10671"
LINKS = 'links: ["https://example.org/1", "https://example.org/2"]\n'
CASE = (
    "case: two/{name}\n"
    + LINKS
    + """geometry: {{layers: 1, blocks: 3, block_size: 4, heads: 2, head_dim: 8}}
memory: {{P: {{side: producer, layout: vllm-fa-nhd}}, D: {{layout: vllm-fa-nhd}}}}
requests: {{A: {{tokens: 6, blocks: {{P: [2, 0], D: [1, 2]}}}}}}
steps: [{{write: {{request: A, to: P}}}}, {{move: {{request: A, from: P, to: D}}}}]
controls: [{{name: again, set: {{seed: 2}}, expected: {{outcome: {outcome}}}}}]
"""
)


def museum(folder: Path) -> None:
    run = str(folder / "run")
    expect(0, "run", "--suite", "museum", "--id", "museum/m174-*", "--out", run)
    text = expect(0, "report", run, "--by", "link").splitlines()
    assert text == [
        LINK,
        "  museum/m174-ucx-10671  FAIL registration-missing-region, as expected; 1 of 1 controls as expected",
        "1 report, 1 with every case and control as expected",
    ], text
    (report,) = json.loads(expect(0, "report", run, "--by", "link", "--json"))["reports"]
    (case,) = report.pop("cases")
    assert case.pop("title"), case
    assert report == {"link": LINK, "controls": 1, "controls_as_expected": 1}, report
    assert case == {
        "case": "museum/m174-ucx-10671",
        "outcome": "FAIL",
        "class": "registration-missing-region",
        "verdict": "as expected",
    }, case
    for more in (["--out", str(folder / "x")], ["--compat"], ["--phases"], ["--for", "markdown"]):
        expect(2, "report", run, "--by", "link", *more, err="--by prints one thing; leave out --out")
    expect(2, "report", run, "--by", "system", err="link")


def several_cases_of_one_report(folder: Path) -> None:
    """One control does not end as it must: its case, the last line and the status say so."""
    file, run = folder / "two.yaml", str(folder / "two")
    file.write_text(CASE.format(name="a", outcome="PASS") + "---\n" + CASE.format(name="b", outcome="REFUSED"))
    expect(1, "run", "--file", str(file), "--out", run)
    text = expect(1, "report", run, "--by", "link").splitlines()
    assert text == [
        "https://example.org/1",
        "  two/a  PASS -, as expected; 1 of 1 controls as expected",
        "  two/b  PASS -, as expected; 0 of 1 controls as expected",
        "1 report, 0 with every case and control as expected",
    ], text
    (report,) = json.loads(expect(1, "report", run, "--by", "link", "--json"))["reports"]
    assert (len(report["cases"]), report["controls"], report["controls_as_expected"]) == (2, 2, 1), report


def nothing_linked(folder: Path) -> None:
    file, run = folder / "plain.yaml", str(folder / "plain")
    file.write_text(CASE.format(name="a", outcome="PASS").replace(LINKS, ""))
    expect(0, "run", "--file", str(file), "--out", run)
    expect(2, "report", run, "--by", "link", err="`kvcts run --suite museum` makes one")
    expect(2, "report", str(folder / "nowhere"), "--by", "link", err="kvcts report: ")


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts by link ") as name:
        museum(Path(name))
        several_cases_of_one_report(Path(name))
        nothing_linked(Path(name))
    print("kvcts report RUN --by link groups cases and controls by the report that they link")


if __name__ == "__main__":
    finish(main)
