"""A job's pressure (pressure.py): whom it slows and stops, and what comes late."""

import os
import signal
import sys
import time
import types

import pressure
import pytest
import template


def test_the_side_that_moves_no_bytes_is_the_one_that_stops():
    stops = lambda role, op: pressure.Pressure({"pressure": {"peer": "stops"}}, role, op).stops
    assert stops("consumer", "write") and stops("producer", "read")
    assert not stops("producer", "write") and not stops("consumer", "read")


def test_the_consumer_is_the_reader_whoever_moves_the_bytes():
    slow = lambda key, role: pressure.Pressure({"pressure": {key: "slow"}}, role, "write").slow
    assert slow("reader", "consumer") and slow("writer", "producer")
    assert not slow("reader", "producer") and not slow("writer", "consumer")


def test_an_unknown_pressure_is_refused():
    with pytest.raises(template.Refusal, match="expected a pressure of"):
        pressure.Pressure({"pressure": {"reader": "stops"}}, "consumer", "read")


def test_a_stopped_process_runs_again_before_it_is_asked():
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    one = pressure.Pressure({"pressure": {"peer": "stops"}}, "consumer", "write")
    state = lambda: open(f"/proc/{child}/stat").read().rsplit(")", 1)[1].split()[0]
    try:
        one.stop([child])
        until = time.monotonic() + 60
        while state() != "T" and time.monotonic() < until:
            pass
        assert one.asleep() and state() == "T"
        one.wake([child])
        assert not one.asleep() and state() != "T"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_notifications_come_late_and_nothing_does_not(monkeypatch):
    class Agent:
        notifications = {}

        def get_new_notifs(self):
            return self.notifications

    monkeypatch.setitem(sys.modules, "nixl._api", types.SimpleNamespace(nixl_agent=Agent))
    monkeypatch.delitem(sys.modules, "zmq", raising=False)
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    pressure.Pressure({"pressure": {"notification": "slow"}}, "consumer", "write").begin()
    agent = Agent()
    assert agent.get_new_notifs() == {} and slept == []
    agent.notifications = {"peer": [b"done"]}
    assert agent.get_new_notifs() == {"peer": [b"done"]} and slept == [pressure.LATE]
