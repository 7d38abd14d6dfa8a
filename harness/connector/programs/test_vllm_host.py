"""What the host of vLLM's connectors does itself, without vLLM: names of layouts, requests of both sides, answers of
several ranks."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest
import vllm_host
import vllm_model
import vllm_rank

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


def requests(role, options, call, groups=1):
    vllm_host.ROLE = role
    return vllm_host.Job.requests(types.SimpleNamespace(options=options, groups=groups, suffix=""), {"requests": call})


def test_groups_of_a_request_are_joined():
    told = [
        {"request": "r1", "group": group, "tokens": 30, "blocks": mine, "peer_blocks": theirs}
        for group, mine, theirs in ((1, [4], [5]), (0, [1, 2], [3, 0]))
    ]
    assert requests("producer", {}, told, groups=2) == [
        {
            "request": "r1",
            "tokens": 30,
            "groups": [{"blocks": [1, 2], "peer_blocks": [3, 0]}, {"blocks": [4], "peer_blocks": [5]}],
        }
    ]


def test_a_prefix_is_the_producers_on_both_sides():
    call = lambda mine, theirs: [{"request": "r1", "group": 0, "tokens": 16, "blocks": mine, "peer_blocks": theirs}]
    ((producer,), (consumer,)) = (
        requests(role, {"cached": [7]}, call(*blocks))
        for role, blocks in (("producer", ([1], [2])), ("consumer", ([2], [1])))
    )
    assert producer["groups"] == [{"blocks": [7, 1], "peer_blocks": [2]}]
    assert consumer["groups"] == [{"blocks": [2], "peer_blocks": [7, 1]}]


def test_requests_of_a_cases_own():
    also = {"also": [{"producer": [5, 6], "consumer": []}]}
    assert requests("producer", also, []) == [
        {"request": "also0", "tokens": None, "groups": [{"blocks": [5, 6], "peer_blocks": []}]}
    ]
    assert requests("consumer", also, []) == [
        {"request": "also0", "tokens": None, "groups": [{"blocks": [], "peer_blocks": [5, 6]}]}
    ]


def test_the_worst_answer_counts():
    done, refused, raised = ({"state": state} for state in ("done", "refused", "raised"))
    assert vllm_host.worst([done, done]) is None
    assert vllm_host.worst([done, refused, raised]) == raised
    assert vllm_host.worst([refused, done]) == refused


def test_a_version_without_a_pin_is_skipped(tmp_path):
    said = subprocess.run(
        [HERE.parent / "vllm" / "install.sh", "python3", tmp_path / "vllm-0.1.0", tmp_path], capture_output=True, text=True
    )
    assert said.returncode == 0 and "vLLM 0.1.0: SKIPPED" in said.stderr, said


@pytest.mark.parametrize("ends", ["by itself", "killed", "late"])
def test_nothing_of_a_rank_is_left_behind(monkeypatch, tmp_path, ends):
    def live(socket):
        open(os.path.join(os.environ["VLLM_RPC_BASE_PATH"], "a-socket"), "w").close()
        os.mkdir(os.path.join(tempfile.gettempdir(), "a-folder"))
        socket.send(b".")
        if ends != "by itself":
            time.sleep(600)
        os._exit(0)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(vllm_host.vllm_rank, "live", live)
    child = vllm_host.Child()
    assert child.socket.recv(1) == b"." and len(list(tmp_path.glob("*/*"))) == 2
    if ends == "killed":
        child.kill()
    else:
        vllm_host.LEAVING.append((child, time.monotonic() + (60 if ends == "by itself" else 0)))
    while vllm_host.LEAVING:
        vllm_host.reap()
    assert not list(tmp_path.iterdir())


def pool_call(**changes):
    memory = [{"name": "kv.L0", "file": "/proc/1/fd/3", "offset": 4096, "bytes": 8192}]
    return {
        "job": 1,
        "op": "read",
        "dtype": "bf16",
        "ports": [1, 2],
        "memory": memory,
        "groups": [{"ranks": [{}]}],
    } | changes


def idle_job(pool):
    child = types.SimpleNamespace(reap=lambda options: None, sleep=lambda asleep: None)
    job = types.SimpleNamespace(pool=pool, children=[child], ended=False)
    job.close = lambda: setattr(job, "ended", True)
    vllm_host.IDLE.append(job)
    return job


def test_a_job_on_a_pool_like_the_last_ones_is_another_request(monkeypatch):
    monkeypatch.setattr(vllm_host.os.path, "isdir", lambda path: False)
    pool = vllm_host.pool_of(pool_call(), {})
    other_files = [{"name": "kv.L0", "file": "/proc/1/fd/9", "offset": 4096, "bytes": 8192}]
    assert vllm_host.pool_of(pool_call(job=2, ports=[3, 4], memory=other_files), {}) == pool
    job = idle_job(pool)
    assert vllm_host.take_idle(pool) is job and not job.ended and not vllm_host.IDLE


@pytest.mark.parametrize(
    "changes, options",
    [
        ({"dtype": "fp16"}, {}),
        ({"memory": [{"name": "kv.L0", "file": "f", "offset": 8192, "bytes": 8192}]}, {}),
        ({}, {"kv_layout": "LBHNC"}),
        ({}, {"dies": "consumer"}),
    ],
)
def test_any_other_job_has_processes_of_its_own(monkeypatch, changes, options):
    monkeypatch.setattr(vllm_host.os.path, "isdir", lambda path: False)
    job = idle_job(vllm_host.pool_of(pool_call(), {}))
    assert vllm_host.take_idle(vllm_host.pool_of(pool_call(**changes), options)) is None and job.ended


def test_an_idle_rank_sleeps_and_can_be_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(
        vllm_host.vllm_rank, "live", lambda socket: [socket.send(socket.recv(1)) for _ in range(2)] and os._exit(0)
    )
    child = vllm_host.Child()
    child.sleep(True)
    child.socket.send(b"1")
    child.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        child.socket.recv(1)
    child.sleep(False)
    child.socket.settimeout(60)
    assert child.socket.recv(1) == b"1"
    child.sleep(True)
    child.kill()
    assert not list(tmp_path.iterdir())


def test_pages_that_a_nic_has_pinned_are_never_exchanged(monkeypatch):
    monkeypatch.setattr(vllm_host.os.path, "isdir", lambda path: path == "/sys/class/infiniband")
    assert vllm_host.pool_of(pool_call(), {}) is None


def test_a_rank_that_has_died_serves_no_further_job():
    job = idle_job("pool")
    job.children[0].reap = lambda options: 9
    assert vllm_host.take_idle("pool") is None and job.ended and not job.children


def test_both_sides_give_a_request_one_name(monkeypatch):
    names = set()
    for role, mine, theirs in (("producer", 2, 0), ("consumer", 0, 2)):
        monkeypatch.setattr(vllm_host, "ROLE", role)
        job = types.SimpleNamespace(served=mine, all=lambda *told, **named: [])
        vllm_host.Job.handshake(job, {"served": theirs})
        names.add(job.suffix)
    assert names == {"-2-0"}


def test_memory_is_exchanged_address_for_address(tmp_path):
    for name in ("first", "second", "longer"):
        (tmp_path / name).write_bytes(name[:1].encode() * (8192 if name == "longer" else 4096))
    entry = lambda name: {"name": "kv.L0", "file": tmp_path / name, "offset": 64}
    memory = vllm_rank.Memory(entry("first"))
    seen = memoryview(memory.map)
    memory.replace(entry("second"))
    assert seen[0:1] == b"s"
    seen[1:2] = b"!"
    assert (tmp_path / "second").read_bytes()[:2] == b"s!" and (tmp_path / "first").read_bytes()[:2] == b"ff"
    with pytest.raises(vllm_rank.template.Refusal, match="the registered size"):
        memory.replace(entry("longer"))


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
