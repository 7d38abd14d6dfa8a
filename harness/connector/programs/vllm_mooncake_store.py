"""One rank of MooncakeStoreConnector: vllm_engine.py's, with what a deployment has around it: a mooncake_master, which the
producer's first rank starts and which ends with that rank however it ends, and a configuration in a file."""

import ctypes
import importlib.util
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import vllm_engine
import vllm_model

SEGMENT, BUFFER = 64 << 20, 32 << 20
LISTENS = 30  # s; for the master to listen


def start_master(port, metrics):
    """The master of this environment's wheel, in memory only."""
    binary = Path(importlib.util.find_spec("mooncake").origin).with_name("mooncake_master")
    master = subprocess.Popen(
        [
            binary,
            f"--rpc_port={port}",
            "--rpc_address=127.0.0.1",
            f"--metrics_port={metrics}",
            "--metrics_host=127.0.0.1",
            "--enable_metric_reporting=false",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG
    )
    until = time.monotonic() + LISTENS
    while master.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"mooncake_master does not listen: it ended with {master.poll()}")


class Rank(vllm_engine.Rank):
    meets = True

    def connect(self):
        port = self.port if self.producer else self.peer["port"]
        if self.producer and self.rank == 0:
            start_master(port, self.arguments[0]["ports"][2])
        vllm_model.stand_in_for_events()
        file = Path(tempfile.gettempdir()) / "mooncake.json"
        file.write_text(
            json.dumps(
                {
                    "metadata_server": "P2PHANDSHAKE",
                    "master_server_address": f"127.0.0.1:{port}",
                    "protocol": "tcp",
                    "global_segment_size": SEGMENT,
                    "local_buffer_size": BUFFER,
                }
            )
        )
        os.environ["MOONCAKE_CONFIG_PATH"] = str(file)
        super().connect()
