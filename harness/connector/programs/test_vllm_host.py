"""What the host of vLLM's connectors does by itself, without vLLM: names of layouts, requests of both sides, the answers of several ranks."""

import subprocess
import types
from pathlib import Path

import pytest
import vllm_host
import vllm_model

HERE = Path(__file__).resolve().parent


def claim(strides, axes="B H N KC", memory=0):
    return {"strides": strides, "axes": axes.split(), "memory": memory}


@pytest.mark.parametrize("claims, name", [
    ([claim([8192, 2048, 128, 2])], "LBHNC"),
    ([claim([8192, 128, 512, 2])], "LBNHC"),
    ([claim([16384, 2048, 128, 2]), claim([16384, 2048, 128, 2])], "BLHNC"),
    ([claim([16384, 128, 512, 2]), claim([16384, 128, 512, 2])], "BLNHC"),
    ([claim([8192, 2048, 128, 2]), claim([8192, 2048, 128, 2], memory=1)], "LBHNC"),
    ([claim([18432, 1152, 2], "B N C")], "LBHNC"),
    ([claim([57344, 8192, 2], "K B NHC")], "LBNHC"),
])
def test_layouts_have_vllms_names(claims, name):
    assert vllm_model.layout_of(claims) == name


def requests(role, options, call, groups=1):
    vllm_host.ROLE = role
    return vllm_host.Job.requests(types.SimpleNamespace(options=options, groups=groups), {"requests": call})


def test_groups_of_a_request_are_joined():
    told = [{"request": "r1", "group": 1, "blocks": [4], "peer_blocks": [5]}, {"request": "r1", "group": 0, "blocks": [1, 2], "peer_blocks": [3, 0]}]
    assert requests("producer", {}, told, groups=2) == [{"request": "r1", "groups": [{"blocks": [1, 2], "peer_blocks": [3, 0]}, {"blocks": [4], "peer_blocks": [5]}]}]


def test_a_prefix_is_the_producers_on_both_sides():
    call = lambda mine, theirs: [{"request": "r1", "group": 0, "blocks": mine, "peer_blocks": theirs}]
    ((producer,), (consumer,)) = (requests(role, {"cached": [7]}, call(*blocks)) for role, blocks in (("producer", ([1], [2])), ("consumer", ([2], [1]))))
    assert producer["groups"] == [{"blocks": [7, 1], "peer_blocks": [2]}]
    assert consumer["groups"] == [{"blocks": [2], "peer_blocks": [7, 1]}]


def test_requests_of_a_cases_own():
    also = {"also": [{"producer": [5, 6], "consumer": []}]}
    assert requests("producer", also, []) == [{"request": "also0", "groups": [{"blocks": [5, 6], "peer_blocks": []}]}]
    assert requests("consumer", also, []) == [{"request": "also0", "groups": [{"blocks": [], "peer_blocks": [5, 6]}]}]


def test_the_worst_answer_counts():
    done, refused, raised = ({"state": state} for state in ("done", "refused", "raised"))
    assert vllm_host.worst([done, done]) is None
    assert vllm_host.worst([done, refused, raised]) == raised
    assert vllm_host.worst([refused, done]) == refused


def test_a_version_without_a_pin_is_skipped(tmp_path):
    said = subprocess.run([HERE.parent / "vllm" / "install.sh", "python3", tmp_path / "vllm-0.1.0", tmp_path], capture_output=True, text=True)
    assert said.returncode == 0 and "vLLM 0.1.0: SKIPPED" in said.stderr, said
