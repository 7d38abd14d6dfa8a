"""One rank of LMCacheMPConnector: vllm_engine.py's, with LMCache's own server (lmcache.v1.multiprocess.server), which the
producer's first rank starts and which ends with that rank however it ends. On CPU tensors the worker's half copies whole
chunks between the caches and the server's shared memory (transfer mode engine_driven, the CPU's own default:
lmcache/v1/platform/devices/cpu/__init__.py:90); nothing of it is replaced. The other mode, lmcache_driven, would move the
caches into memory of its own, where the suite does not look.

    engine_options of a case, besides those of vllm_host.py and vllm_engine.py:
      chunk_blocks  a chunk of LMCache's is this many of the engine's blocks; default 1 (LMCache's: 256 tokens)"""

import ctypes
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path

import lmcache.v1.multiprocess.server  # noqa: F401  # before the fork, or each server would take seconds to import it
import vllm_engine

GIB = 0.0625  # of the server's memory
STARTS = 60  # s; for the server to listen, on a crowded machine
SERVER = "lmcache.v1.multiprocess.server"


def serve(port, tokens):
    """In a forked process, the server's own main; `tokens` are those of a chunk. Does not return."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: ended that way it deletes its shared memory
    log = os.open(Path(tempfile.gettempdir()) / "server.log", os.O_WRONLY | os.O_CREAT, 0o600)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor != log:  # the rank's are not the server's: the suite sees from them that a rank has ended
            os.dup2(log, descriptor)
    sys.argv = (
        f"{SERVER} --host 127.0.0.1 --port {port} --chunk-size {tokens} --supported-transfer-mode engine_driven".split()
    )
    sys.argv += f"--l1-size-gb {GIB} --no-l1-use-lazy --eviction-policy LRU --disable-observability".split()
    sys.argv += f"--shm-name lmcache_l1_pool_{os.getpid()} --worker-reap-timeout-seconds {vllm_engine.LEASE}".split()
    try:
        runpy.run_module(SERVER, run_name="__main__")
    except BaseException:
        traceback.print_exc()  # into the log
    os._exit(0)


def start_server(port, tokens):
    server = os.fork()
    if server == 0:
        serve(port, tokens)
    until = time.monotonic() + STARTS
    while os.waitpid(server, os.WNOHANG)[0] == 0 and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError("LMCache's server does not listen: " + Path(tempfile.gettempdir(), "server.log").read_text()[-300:])


class Rank(vllm_engine.Rank):
    meets = True

    def connect(self):
        port = self.port if self.producer else self.peer["port"]
        if self.producer and self.rank == 0:
            start_server(port, self.caches[0].block_size * self.options.get("chunk_blocks", 1))
        self.arguments[2].kv_connector_extra_config |= {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": port}
        super().connect()

    def check(self, one, carried):
        """Nothing that the producer returns names a request: LMCache finds chunks by the prompt."""
        super().check(one, False)
