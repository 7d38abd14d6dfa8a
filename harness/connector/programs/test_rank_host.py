"""A process for each rank (rank_host.py): its end, its reuse, the requests that it is given."""

import multiprocessing
import os
import tempfile
import threading
import time
import types

import mirror
import pressure
import pytest
import rank_host

SEPARATE = frozenset({"dies"})


def requests(role, options, call, groups=1):
    job = types.SimpleNamespace(role=role, options=options, groups=groups, suffix="")
    return rank_host.Job.requests(job, {"requests": call})


def test_groups_of_a_request_are_joined():
    told = [
        {"request": "r1", "group": group, "tokens": 30, "blocks": mine, "peer_blocks": theirs}
        for group, mine, theirs in ((1, [4], [5]), (0, [1, 2], [3, 0]))
    ]
    assert requests("producer", {}, told, groups=2) == [
        {
            "name": "r1",
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
        {"name": "also0", "request": "also0", "tokens": None, "groups": [{"blocks": [5, 6], "peer_blocks": []}]}
    ]
    assert requests("consumer", also, []) == [
        {"name": "also0", "request": "also0", "tokens": None, "groups": [{"blocks": [], "peer_blocks": [5, 6]}]}
    ]


def test_blocks_are_free_when_every_rank_has_said_so():
    class Rank:
        def __init__(self, *polls):
            self.polls, self.given, self.pid = list(polls), [], 0

        def send(self, name, given):
            self.given += given

        def answer(self):
            return dict(self.polls.pop(0))

    pending, free = {"state": "pending"}, {"state": "pending", "freed": [{"request": "r1", "word": "sent"}]}
    ranks = [Rank(free, pending, {"state": "done"}), Rank(pending, free, {"state": "done"})]
    job = rank_host.Job.__new__(rank_host.Job)
    job.children, job.done, job.freeing, job.freed, job.served, job.began = ranks, {}, {}, [], 0, 0
    job.pressure, job.mirror = pressure.Pressure({}, "producer", "read"), mirror.Mirror()
    assert job.poll() is None and job.freed == []
    assert job.poll() is None and job.freed == [{"request": "r1", "word": "sent"}]
    assert job.poll() is not None and job.freed == [] and [rank.given for rank in ranks] == [["r1"], ["r1"]]


def test_the_worst_answer_counts():
    done, refused, raised = ({"state": state} for state in ("done", "refused", "raised"))
    assert rank_host.worst([done, done]) is None
    assert rank_host.worst([done, refused, raised]) == raised
    assert rank_host.worst([refused, done]) == refused


@pytest.mark.parametrize("ends", ["by itself", "killed", "late"])
def test_nothing_of_a_rank_is_left_behind(monkeypatch, tmp_path, ends):
    def live(socket):
        open(os.path.join(os.environ["TMPDIR"], "a-socket"), "w").close()
        os.mkdir(os.path.join(tempfile.gettempdir(), "a-folder"))
        socket.send(b".")
        if ends != "by itself":
            time.sleep(600)
        os._exit(0)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    host = rank_host.Host()
    host.live = live
    child = rank_host.Child(host)
    assert child.socket.recv(1) == b"." and len(list(tmp_path.glob("*/*"))) == 2
    if ends == "killed":
        child.kill()
    else:
        rank_host.LEAVING.append((child, time.monotonic() + (60 if ends == "by itself" else 0)))
    while rank_host.LEAVING:
        rank_host.reap()
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
    rank_host.IDLE.append(job)
    return job


def test_a_job_on_a_pool_like_the_last_ones_is_another_request(monkeypatch):
    monkeypatch.setattr(rank_host.os.path, "isdir", lambda path: False)
    pool = rank_host.pool_of(pool_call(), {}, SEPARATE)
    other_files = [{"name": "kv.L0", "file": "/proc/1/fd/9", "offset": 4096, "bytes": 8192}]
    assert rank_host.pool_of(pool_call(job=2, ports=[3, 4], memory=other_files), {}, SEPARATE) == pool
    job = idle_job(pool)
    assert rank_host.take_idle(pool) is job and not job.ended and not rank_host.IDLE


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
    monkeypatch.setattr(rank_host.os.path, "isdir", lambda path: False)
    job = idle_job(rank_host.pool_of(pool_call(), {}, SEPARATE))
    assert rank_host.take_idle(rank_host.pool_of(pool_call(**changes), options, SEPARATE)) is None and job.ended


def test_an_idle_rank_sleeps_and_can_be_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    host = rank_host.Host()
    host.live = lambda socket: [socket.send(socket.recv(1)) for _ in range(2)] and os._exit(0)
    child = rank_host.Child(host)
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
    monkeypatch.setattr(rank_host.os.path, "isdir", lambda path: path == "/sys/class/infiniband")
    assert rank_host.pool_of(pool_call(), {}, SEPARATE) is None


def test_a_rank_that_has_died_serves_no_further_job():
    job = idle_job("pool")
    job.children[0].reap = lambda options: 9
    assert rank_host.take_idle("pool") is None and job.ended and not job.children


def test_both_sides_give_a_request_one_name():
    names = set()
    for role, mine, theirs in (("producer", 2, 0), ("consumer", 0, 2)):
        job = types.SimpleNamespace(role=role, served=mine, all=lambda *told, **named: [])
        rank_host.Job.handshake(job, {"served": theirs})
        names.add(job.suffix)
    assert names == {"-2-0"}


def test_memory_is_exchanged_address_for_address(tmp_path):
    for name in ("first", "second", "longer"):
        (tmp_path / name).write_bytes(name[:1].encode() * (8192 if name == "longer" else 4096))
    entry = lambda name: {"name": "kv.L0", "file": tmp_path / name, "offset": 64}
    memory = rank_host.Memory(entry("first"))
    seen = memoryview(memory.map)
    memory.replace(entry("second"))
    assert seen[0:1] == b"s"
    seen[1:2] = b"!"
    assert (tmp_path / "second").read_bytes()[:2] == b"s!" and (tmp_path / "first").read_bytes()[:2] == b"ff"
    with pytest.raises(rank_host.template.Refusal, match="the registered size"):
        memory.replace(entry("longer"))


def test_what_one_host_writes_appears_on_the_other_and_only_there(tmp_path):
    producer, consumer, stranger = mirror.Mirror("127.0.0.1"), mirror.Mirror(), mirror.Mirror()
    waits = threading.Thread(target=producer.meet, args=(tmp_path / "p",))
    waits.start()
    with pytest.raises((multiprocessing.AuthenticationError, EOFError, ConnectionError)):
        stranger.meet(tmp_path / "s", [*producer.invitation[:2], "00" * 32])
    consumer.meet(tmp_path / "c", producer.invitation)
    waits.join()
    (tmp_path / "p" / "answers").write_bytes(b"one")
    for side in (producer, consumer):
        side.turn()
    assert (tmp_path / "c" / "answers").read_bytes() == b"one"
    (tmp_path / "c" / "over").write_bytes(b"two")
    for side in (consumer, producer, producer):
        side.turn()
    assert (tmp_path / "p" / "over").read_bytes() == b"two"
    assert not consumer.peer.poll()  # nothing goes back
