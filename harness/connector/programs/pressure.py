"""What makes a job hard for its connectors, for every host on rank_host.py. In a case, as its engine_options:

pressure: {reader: slow}        the consumer's engine takes 0.1 s for each step
          {writer: slow}        the producer's does
          {notification: slow}  what NIXL's agents and ZeroMQ's sockets receive beside the data comes 0.2 s late
          {peer: stops}         the processes of the side that moves no bytes stop for 0.2 s, after each step"""

import os
import signal
import sys
import time

import template

STEP, LATE, STOP = 0.1, 0.2, 0.2  # s
KINDS = {"reader": "slow", "writer": "slow", "notification": "slow", "peer": "stops"}


class Pressure:
    def __init__(self, options, role, op):
        """role: producer or consumer; op: read or write, of the side that moves bytes."""
        self.wanted = options.get("pressure", {})
        if unknown := self.wanted.items() - KINDS.items():
            raise template.Refusal(f"expected a pressure of {KINDS}; found {dict(unknown)}")
        consumer = role == "consumer"
        self.slow = ("reader" if consumer else "writer") in self.wanted
        self.stops = "peer" in self.wanted and consumer == (op == "write")
        self.until = 0.0

    # ---- in the process of a rank -----------------------------------------------------------------------------------
    def begin(self):
        """Before anything of the connector is made."""
        if "notification" not in self.wanted:
            return
        for module, kind, names in (
            ("nixl._api", "nixl_agent", ("get_new_notifs",)),
            ("zmq", "Socket", ("recv", "recv_multipart")),
        ):
            if module in sys.modules:
                for name in names:
                    delay(getattr(sys.modules[module], kind), name)

    def step(self):
        if self.slow:
            time.sleep(STEP)

    # ---- in the host ------------------------------------------------------------------------------------------------
    def asleep(self):
        return time.monotonic() < self.until

    def stop(self, pids):
        if self.stops:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            self.until = time.monotonic() + STOP

    def wake(self, pids):
        """Lets them run for a moment before they are asked anything."""
        if self.until:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            self.until = 0.0
            time.sleep(STEP)


def delay(kind, name):
    """What this method of a class returns comes late, if it is anything."""
    original = getattr(kind, name)

    def late(*arguments, **named):
        if result := original(*arguments, **named):
            time.sleep(LATE)
        return result

    setattr(kind, name, late)
