"""The map of a failure in index.html, read with an XML parser: the strips match the result's picture. Needs no browser;
test_page.py tests the look."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, kvcts, need_program  # noqa: E402

LIMIT = 20 * 1024
AXES = ["rank", "layer", "kv", "block", "slot", "head", "channel", "generation"]

PLAIN = """case: my/label-believed
producer: {layout: flashinfer-hnd, claim: {layout: flashinfer-nhd}}
consumer: {layout: flashinfer-nhd}
---
case: my/nothing-moved
geometry: {layers: 1}
producer: {layout: vllm-fa-nhd}
engine: fixture
engine_options: {fault: nothing}
---
"""


def strips(svg: ElementTree.Element) -> dict[str, tuple[list, list]]:
    """Axis -> what belongs there and what is there: (class, first column, columns) of each rectangle."""
    groups = {g[0].text.split(":")[0]: g for g in svg if g.tag == "g"}
    out = {}
    for axis, group in groups.items():
        rows: dict[float, list] = {}
        for rect in group.iter("rect"):
            rows.setdefault(float(rect.get("y")), []).append(
                (rect.get("class"), float(rect.get("x")), float(rect.get("width")))
            )
        above, below = (rows[y] for y in sorted(rows))
        out[axis] = (above, below)
    return out


def colours(moves: list, key: str, axis: str) -> list[str]:
    at = AXES.index(axis)
    return ["pad" if isinstance(m[key], str) else f"t{m[key][at] % 8}" for m in moves]


def spread(row: list, count: int) -> list[str]:
    """Rectangles back to one class a column."""
    cell = 576 / count
    out = []
    for shade, x, width in row:
        assert round((x - 78) / cell) == len(out), (shade, x, cell, len(out))
        out += [shade] * round((width + 0.6) / cell)
    return out


def check(page: str, results: list) -> None:
    cards = re.findall(r"<article class=\"cause\".*?</article>", page, re.S)
    assert len(cards) == len(results), (len(cards), len(results))
    for result in results:
        card = next(c for c in cards if result["id"] in c)
        drawings = re.findall(r"<svg [^>]*class=\"map\".*?</svg>", card, re.S)
        assert len(drawings) == 1, (result["id"], len(drawings))
        assert len(drawings[0]) < LIMIT and len(json.dumps(result["picture"])) < 2 * LIMIT, (result["id"], len(drawings[0]))
        svg = ElementTree.fromstring(drawings[0])
        moves = result["picture"]["moves"]
        assert result["picture"]["moves_from"] == "bytes", result["id"]
        wrong = sum(m["should"] != m["did"] for m in moves)
        assert wrong > 0 and svg.get("aria-label").startswith(f"{wrong} of {len(moves)} byte range"), (
            result["id"],
            svg.get("aria-label"),
        )
        found = strips(svg)
        assert {"block", "head", "kv", "generation"} <= found.keys(), found.keys()
        for axis, (above, below) in found.items():
            assert spread(above, len(moves)) == colours(moves, "should", axis), (result["id"], axis)
            assert spread(below, len(moves)) == colours(moves, "did", axis), (result["id"], axis)
        marks = next(p for p in svg if p.tag == "path" and p.get("class") == "off").get("d")
        assert marks.count("M") == wrong, (result["id"], marks)


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Faults of scripts without their expected failure, of classes that no other has: a card shows one case.
        scripts = (ROOT / "cases" / "faults" / "layout.yaml").read_text()
        scripts = "---\n".join(
            d for d in scripts.split("---\n") if re.search(r"^case: faults/(kv-split|head-shard|layer-misrouted)$", d, re.M)
        )
        scripts = re.sub(r"^(expected|controls): .*\n", "", scripts, flags=re.M)
        assert "actually" in scripts
        (folder / "cases.yaml").write_text(PLAIN + scripts)
        ended = kvcts("run", "--file", str(folder / "cases.yaml"), "--out", str(folder / "run"))
        assert ended.status == 1, ended
        results = json.loads((folder / "run" / "results.json").read_text())["results"]
        assert len(results) == 5 and all(r["outcome"] == "FAIL" for r in results), results
        check((folder / "run" / "index.html").read_text(), results)
        nothing = next(r for r in results if r["id"] == "my/nothing-moved")["picture"]["moves"]
        assert all(m["did"] == "what was there before" for m in nothing), nothing[:3]
    print("ok: maps are what the bytes say")


if __name__ == "__main__":
    main()
