"""The ranking program on a small pool and the page from its numbers. Times are not checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import write_page

ROOT = Path(os.environ["KVCTS_SOURCE_DIR"])
PROGRAM = Path(os.environ["KVCTS_BINARY_DIR"]) / "bin" / "kvcts_layout_ranking"
if not PROGRAM.exists():
    pytest.skip("kvcts_layout_ranking is not built", allow_module_level=True)


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> dict:
    file = tmp_path_factory.mktemp("ranking") / "numbers.json"
    ended = subprocess.run(
        [PROGRAM, "--cases", ROOT / "cases", "--quick", "--json", file], capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(file.read_text())


def test_every_layout_of_the_catalogue_is_ranked_once(measured):
    found = [n for c in measured["contenders"] for n in c["layouts"]] + [one["layout"] for one in measured["left_out"]]
    assert sorted(found) == sorted(f.stem for f in (ROOT / "cases" / "layouts").glob("*.yaml"))


def test_every_use_has_a_speed_or_a_reason(measured):
    for contender in measured["contenders"]:
        assert set(contender["uses"]) == set(write_page.USES)
        for use in contender["uses"].values():
            assert use.get("why_not") or (use["bytes_per_second"] > 0 and use["of_memcpy"] > 0), contender["layouts"]


def test_descriptors_are_what_the_order_says(measured):
    by_name = {n: c["descriptors"] for c in measured["contenders"] for n in c["layouts"]}
    # Two layers: K and V of a block are apart in each, 16 * 8 * 128 * 2 bytes. Half of the heads is one piece per token.
    assert by_name["vllm-fa-nhd"] == {"block": 4, "bytes": 4 * 32768, "half_heads": 64}
    assert by_name["vllm-fa-hnd"] == {"block": 4, "bytes": 4 * 32768, "half_heads": 4}
    assert by_name["flashinfer-nhd"]["block"] == 2  # B K ...: K and V of a block are neighbours


def test_the_page_ranks_by_ratio_and_says_what_was_not_measured(measured):
    for _, contenders in write_page.kinds(measured):
        for use in write_page.USES:
            ratios = [c["uses"][use]["of_memcpy"] for c in write_page.ranked(contenders, use)]
            assert ratios == sorted(ratios, reverse=True)
    page = write_page.page(measured)
    for contender in measured["contenders"]:
        assert write_page.name(contender) in page
    rows = [line for line in page.splitlines() if line.startswith("| 1 |")]
    assert len(rows) >= 5 and all("not measured here" in row for row in rows)


def test_a_busy_machine_is_admitted():
    assert "busy with other work (load 9 on 2" in write_page.trust({"load": 9.1, "processors": 2})
    assert "busy" not in write_page.trust({"load": 0.4, "processors": 2})


def test_a_glob_that_matches_nothing_is_an_error():
    ended = subprocess.run(
        [PROGRAM, "--cases", ROOT / "cases", "--layouts", "nosuch*"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2 and "no layout matches 'nosuch*'" in ended.stderr


def test_usage(tmp_path):
    ended = subprocess.run([sys.executable, Path(write_page.__file__)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2 and "expected two arguments" in ended.stderr
