"""What the host of vLLM's connectors does itself, without vLLM: names of layouts, requests of both sides, answers of
several ranks."""

import contextlib
import subprocess
import sys
import types
from pathlib import Path

import pytest
import vllm_model
import vllm_runner
import vllm_stand_in

HERE = Path(__file__).resolve().parent


def claim(strides, axes="B H N KC", memory=0):
    return {"strides": strides, "axes": axes.split(), "memory": memory}


@pytest.mark.parametrize(
    "claims, name",
    [
        ([claim([8192, 2048, 128, 2])], "LBHNC"),
        ([claim([8192, 128, 512, 2])], "LBNHC"),
        ([claim([16384, 2048, 128, 2]), claim([16384, 2048, 128, 2])], "BLHNC"),
        ([claim([16384, 128, 512, 2]), claim([16384, 128, 512, 2])], "BLNHC"),
        ([claim([8192, 2048, 128, 2]), claim([8192, 2048, 128, 2], memory=1)], "LBHNC"),
        ([claim([18432, 1152, 2], "B N C")], "LBHNC"),
        ([claim([57344, 8192, 2], "K B NHC")], "LBNHC"),
    ],
)
def test_layouts_have_vllms_names(claims, name):
    assert vllm_model.layout_of(claims) == name


def test_a_version_without_a_pin_is_skipped(tmp_path):
    said = subprocess.run(
        [HERE.parent / "vllm" / "install.sh", "python3", tmp_path / "vllm-0.1.0", tmp_path], capture_output=True, text=True
    )
    assert said.returncode == 0 and "vLLM 0.1.0: SKIPPED" in said.stderr, said


def test_a_handshake_has_a_minute_and_other_options_are_the_sockets(monkeypatch):
    told, zmq, worker = [], types.ModuleType("zmq"), types.ModuleType("base_worker")
    zmq.RCVTIMEO = 27
    socket = types.SimpleNamespace(setsockopt=lambda *option: told.append(option), recv=lambda: b"answer")
    worker.zmq_ctx = lambda *which: contextlib.nullcontext(socket)
    nixl = "vllm.distributed.kv_transfer.kv_connector.v1.nixl"
    for name, module in {"zmq": zmq, nixl: types.SimpleNamespace(base_worker=worker), f"{nixl}.base_worker": worker}.items():
        monkeypatch.setitem(sys.modules, name, module)
    for _ in range(2):
        vllm_model.stand_in_for_processors.__wrapped__()
    with worker.zmq_ctx("REQ", "tcp://127.0.0.1:1") as used:
        used.setsockopt(zmq.RCVTIMEO, 5000)
        used.setsockopt(3, 1)
        assert used.recv() == b"answer"
    assert told == [(zmq.RCVTIMEO, vllm_model.HANDSHAKE_MS), (3, 1)]


@pytest.mark.parametrize(
    "tokens, mine, theirs, whole", [(40, [4, 0, 2], [1, 0, 6], 56), (None, [], [5, 6], 32), (None, [5, 6], [], 32)]
)
def test_a_request_without_blocks_has_the_other_sides_tokens(tokens, mine, theirs, whole):
    rank = types.SimpleNamespace(caches=[types.SimpleNamespace(block_size=16)], options={"cached": [7]})
    told = {"tokens": tokens, "groups": [{"blocks": mine, "peer_blocks": theirs}]}
    assert vllm_runner.Runner.tokens(rank, told) == whole


def hashes(**identity):
    hasher = vllm_stand_in.get_request_block_hasher(16, vllm_stand_in.sha256)
    request = vllm_stand_in.Request("r", list(range(40)), vllm_stand_in.SamplingParams(), block_hasher=hasher, **identity)
    return request.block_hashes


def test_equal_tokens_under_another_identity_have_other_hashes():
    image = vllm_stand_in.MultiModalFeatureSpec(None, "image", "cat", vllm_stand_in.PlaceholderRange(2, 4))
    lora = vllm_stand_in.LoRARequest("poet", 1, "adapters/poet")
    kinds = {}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"lora_request": lora}, {"mm_features": [image]}
    assert all(hashes(**kind) == hashes(**kind) for kind in kinds)
    for block in range(2):
        assert len({hashes(**kind)[block] for kind in kinds}) == len(kinds)


def test_each_side_has_its_own_name():
    options = {"identity": {"salt": ["a", None]}}
    assert vllm_model.named(options, "salt", True) == "a" and vllm_model.named(options, "salt", False) is None
    assert vllm_model.named(options, "lora", True) is None and vllm_model.named({}, "salt", True) is None
