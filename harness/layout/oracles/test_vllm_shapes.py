"""How vllm_shapes.py compares a vLLM's answers with the files of cases/oracles/, without vLLM."""

import copy
import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import vllm_shapes  # noqa: E402


def facts(version):
    return vllm_shapes.stored(
        json.loads((HERE.parents[2] / "cases" / "oracles" / f"vllm_shapes_{version}.json").read_text())
    )


@pytest.mark.parametrize("version, entries", [("0.27.1", 44), ("0.33.0", 38)])
def test_a_file_agrees_with_itself(version, entries):
    agree, differ, alone = vllm_shapes.compare(facts(version), facts(version))
    assert agree >= entries and not differ and not alone


@pytest.mark.parametrize(
    "version, table, spoil",
    [
        (
            "0.27.1",
            "backends",
            lambda b: b["vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"]["shape"]["auto"].reverse(),
        ),
        (
            "0.27.1",
            "backends",
            lambda b: b["vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"].update(stride_order_HND=[0, 2, 1, 3]),
        ),
        ("0.33.0", "views", lambda v: v["full torch.float16 LBHNC"].update(layer1_offset_elems=1)),
        ("0.33.0", "layouts", lambda names: names.update(LBHNC=[0, 1, 3, 2, 4])),
        ("0.33.0", "supported", lambda backends: backends.update(FLASH_ATTN=["LBHNC"])),
    ],
)
def test_one_other_number_is_a_difference(version, table, spoil):
    other = copy.deepcopy(facts(version))
    spoil(other[table])
    _, differ, _ = vllm_shapes.compare(other, facts(version))
    assert len(differ) == 1 and differ[0].startswith(table)


def test_what_one_side_lacks_is_told_and_is_no_difference():
    less = facts("0.33.0")
    del less["supported"]["CPU_ATTN"]
    _, differ, alone = vllm_shapes.compare(less, facts("0.33.0"))
    assert not differ and alone == ["supported CPU_ATTN: only in the file"]


def test_an_error_counts_by_its_kind():
    here, there = (
        {"backends": {"a": {"shape": {"auto": "AssertionError: of this machine"}}}},
        {"backends": {"a": {"shape": {"auto": "AssertionError: of that"}}}},
    )
    assert vllm_shapes.compare(here, there)[0] == 1
    there["backends"]["a"]["shape"]["auto"] = "ValueError: of that"
    assert len(vllm_shapes.compare(here, there)[1]) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"vllm": "0.27.1", "back',
        "[]",
        '{"vllm": "0.27.1"}',
        '{"vllm": "0.27.1", "backends": 7}',
        '{"vllm": "1", "layouts": [], "views": [], "backends": []}',
    ],
)
def test_a_spoiled_file_is_one_line_of_error(tmp_path, text):
    file = tmp_path / "spoiled.json"
    file.write_text(text)
    with pytest.raises(SystemExit) as stop:
        vllm_shapes.read(file, "0.27.1")
    assert "is no file of shapes" in stop.value.code and "\n" not in stop.value.code


def test_a_file_of_another_version_is_told():
    with pytest.raises(SystemExit, match="is of vLLM 0.27.1, and 0.33.0 is installed"):
        vllm_shapes.read(HERE.parents[2] / "cases" / "oracles" / "vllm_shapes_0.27.1.json", "0.33.0")
