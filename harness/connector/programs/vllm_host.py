"""Hosts a connector of vLLM, the real class, as a connector program: NixlConnector (the consumer pulls), MooncakeConnector
and NixlPushConnector (the producer pushes), ExampleConnector (files: the producer saves, the consumer loads),
MooncakeStoreConnector (vllm_mooncake_store.py), OffloadingConnector (vllm_offload.py) or a class of the user's
($KVCTS_CONNECTOR; a store of pages, $KVCTS_STORE: store_rank.py), on CPU tensors in the suite's memory. No GPU, no model
weights, no compiled part of vLLM. vLLM 0.33.0 and 0.27.1: whichever is installed; a user's class runs without vLLM,
too (vllm_stand_in.py).

    options: {connector: one of PACKAGES, or class: true}, and in a case, as its
    engine_options, beside those of vllm_engine.py:
      kv_layout         the layout that the engine reports, if not the strides'
      extra             more keys of kv_connector_extra_config;  transfer_config: of KVTransferConfig;  environment: of
                        the rank's process
      sliding_window    of the second KV cache group
      cached            block ids before the producer's list: the consumer already has them (one group)
      also              [{producer: [ids], consumer: [ids]}]: further requests of which nothing arrives: all cached (no
                        ids), or of a dead side
      dies, aborts      producer | consumer: that side is killed when the transfer begins, or abandons its requests;
                        dies_at: connected: the producer is killed when both have talked, and the consumer's requests
                        come after that
      alias             every layer gets the first one's tensor
      lease             seconds that a producer keeps blocks for (default 600)

What replaces the engine around the connector, so that no one takes this for a full deployment:
  - the attention backend is reported as FLASH_ATTN (TRITON_MLA for latents); the CPU platform would choose another one;
  - the layout is set from the strides that the suite claims, separately on each side: vLLM's engine core would resolve it;
  - NixlConnector, MooncakeConnector: metadata of requests is made by hand, as their scheduler halves would make it; for
    the others vllm_engine.py calls both halves as an engine does, and lets appear what a model would compute;
  - MooncakeConnector: torch.accelerator answers device 0; the transfer engine speaks tcp;
  - threads that the connector starts outside Python run at nice 19: NIXL's poll without a pause;
  - a model of one Llama (DeepSeek-V2 for latents) configuration without weights; each group's layers have separate tensors.

This process imports vLLM once and forks a process per rank (vllm_rank.py). A job on a pool like that of the last job, if
that went well, is another request on the existing registered connectors: its memory replaces the last job's (its result
says so: engine_claims.registration). Every other job has separate processes, so it never sees what another one left."""

import gc
import importlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import uuid

import template
import vllm_model
import vllm_rank

ROLE, OPTIONS = None, {}
PACKAGES = {
    "NixlConnector": ("nixl", "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector"),
    "NixlPushConnector": ("nixl", "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector"),
    "MooncakeConnector": ("mooncake", "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector"),
    "ExampleConnector": ("safetensors", "vllm.distributed.kv_transfer.kv_connector.v1.example_connector"),
    "OffloadingConnector": ("torch", "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector"),
    "MooncakeStoreConnector": ("mooncake", "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.connector"),
}
PUSHES = ("MooncakeConnector", "NixlPushConnector")  # whose producer writes


def take_class():
    """The class under test, $KVCTS_CONNECTOR or $KVCTS_STORE: [FOLDER:]MODULE:CLASS, FOLDER being where its module lies. Why
    there is none, in words; ""."""
    kind = "store" if "store" in OPTIONS else "connector"
    named = os.environ.get(f"KVCTS_{kind.upper()}", "")
    folder, module, name = ([""] * 3 + named.split(":"))[-3:]
    if not module or not name:
        return f"no class is under test: kvcts run --{kind} MODULE:CLASS, or pytest --kvcts-{kind}; found '{named}'"
    sys.path[:0] = [folder] if folder else []
    try:
        real = "store" not in OPTIONS and importlib.util.find_spec("vllm") is not None
        if not real:
            importlib.import_module("vllm_stand_in").install()
        else:
            vllm_model.stand_in_for_platform()
        loaded = importlib.import_module(module)
        subject = getattr(loaded, name)
    except (ImportError, AttributeError) as error:
        return f"{named} cannot be imported by {sys.executable}: {error}"
    OPTIONS.update({"class": named, "connector": name, "module": module})
    OPTIONS.setdefault("transfer_config", {})["kv_connector_module_path"] = module
    os.environ["KVCTS_CONNECTOR_FOLDER"] = os.path.dirname(os.path.abspath(sys.modules[subject.__module__].__file__))
    return "" if real or vllm_model.torch() or template.np is not None else "NumPy is missing: pip install numpy"


def missing():
    """What has to be installed, in words; "" when all is there."""
    if "class" in OPTIONS or "store" in OPTIONS:
        return take_class()
    lack = [
        name for name in ("vllm", "torch", "zmq", PACKAGES[OPTIONS["connector"]][0]) if not importlib.util.find_spec(name)
    ]
    return (
        f"{', '.join(lack)} cannot be imported by {sys.executable}; set KVCTS_PYTHON_VLLM to the interpreter of an "
        f"environment that has vLLM 0.33.0"
        if lack
        else ""
    )


def preload():
    """All that a rank imports, before the first fork."""
    if vllm_model.stands_in():
        gc.freeze()
        return
    vllm_model.stand_in_for_platform()
    for name in (
        "torch",
        "vllm.engine.arg_utils",
        "vllm.distributed.kv_transfer.kv_connector.factory",
        "vllm.v1.kv_cache_interface",
        OPTIONS.get("module") or PACKAGES[OPTIONS["connector"]][1],
    ):
        importlib.import_module(name)
    vllm_model.warm(OPTIONS["connector"], OPTIONS.get("module"))
    gc.freeze()  # otherwise a collection in a rank would touch, and so copy, everything imported


class Child:
    """The process of one rank. It answers each call immediately. Its folder for temporary files is deleted with it,
    however it ends."""

    def __init__(self):
        self.socket, theirs = socket.socketpair()
        self.folder = tempfile.mkdtemp(prefix="rank-")
        self.pid = os.fork()
        if self.pid == 0:
            self.socket.close()
            tempfile.tempdir = self.folder
            os.environ.update(TMPDIR=self.folder, VLLM_RPC_BASE_PATH=self.folder)
            vllm_rank.live(theirs)
        theirs.close()
        self.stream = self.socket.makefile("rwb")

    def send(self, name, **arguments):
        body = json.dumps({"call": name, "id": 0, **arguments}).encode()
        self.stream.write(struct.pack("<I", len(body)) + body)
        self.stream.flush()

    def answer(self):
        header = self.stream.read(4)
        if len(header) < 4:
            self.follow()
        answer = json.loads(self.stream.read(struct.unpack("<I", header)[0]))
        del answer["id"]  # of these calls, not of the suite's
        return answer

    def follow(self):
        """It ended by itself during a call: this program then ends the same way."""
        status = self.reap(0)
        if os.WIFSIGNALED(status):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
            os.kill(os.getpid(), os.WTERMSIG(status))
        os._exit(os.WEXITSTATUS(status) or 1)

    def sleep(self, asleep):
        """NIXL's progress thread polls without a pause: an idle agent would take a whole core."""
        os.kill(self.pid, signal.SIGSTOP if asleep else signal.SIGCONT)

    def reap(self, options, keep=False):
        """Its status; None while it is alive."""
        pid, status = os.waitpid(self.pid, options)
        if pid == 0:
            return None
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        return status

    def kill(self, keep=False):
        """keep: its folder stays, for the other side; the run's ends with it."""
        os.kill(self.pid, signal.SIGKILL)
        self.reap(0, keep)


class Job:
    """One job of this side, over all of its ranks."""

    def __init__(self, call):
        ranks = len(call["groups"][0]["ranks"])
        if any(len(group["ranks"]) != ranks for group in call["groups"]):
            raise template.Refusal("this host drives the same number of ranks in all KV cache groups")
        self.options, self.groups, self.well = OPTIONS | call["options"], len(call["groups"]), False
        self.pool = pool_of(call, self.options)
        if last := take_idle(self.pool):
            self.engine_id, self.port, self.children, self.served = last.engine_id, last.port, last.children, last.served + 1
            self.answers = self.all("register", again=call["memory"])
        else:
            self.engine_id, self.port, self.children, self.served = str(uuid.uuid4()), call["ports"][0], [], 0
            self.answers = self.start(call, ranks)

    def start(self, call, ranks):
        heads, first_layer, layers = [], [], 0
        for group in call["groups"]:
            heads.append(max(rank["geometry"]["first_head"] + rank["geometry"]["heads"] for rank in group["ranks"]))
            first_layer.append(layers)
            layers += len(group["ranks"][0]["tensors"])
        for rank in range(ranks):
            mine = [{"name": group["name"], "ranks": [group["ranks"][rank]]} for group in call["groups"]]
            self.children.append(Child())
            place = {
                "role": ROLE,
                "rank": rank,
                "ranks": ranks,
                "engine_id": self.engine_id,
                "heads": heads,
                "first_layer": first_layer,
                "folder": self.children[0].folder,
            }
            self.children[-1].send(
                "register",
                **{key: call[key] for key in ("op", "dtype", "ports", "memory")},
                groups=mine,
                options=self.options,
                place=place,
            )
        return [child.answer() for child in self.children]

    def all(self, name, **arguments):
        for child in self.children:
            child.send(name, **arguments)
        return [child.answer() for child in self.children]

    def register(self):
        if bad := worst(self.answers):
            return bad
        bad = None if self.served else worst(self.all("serve", handshakes=[answer["handshake"] for answer in self.answers]))
        return bad or {
            "metadata": {
                "engine_id": self.engine_id,
                "port": self.port,
                "ranks": len(self.children),
                "served": self.served,
                "folder": self.children[0].folder,
            }
        }

    def handshake(self, peer):
        # Connectors that outlive a job must not see a request name again: both sides know how many jobs each has served.
        both = (self.served, peer["served"])[:: 1 if ROLE == "producer" else -1]
        self.suffix = "-{}-{}".format(*both) if any(both) else ""
        return worst(self.all("handshake", peer=peer)) or {}

    def requests(self, call):
        """The requests of the call with their groups joined, plus those that the case's options add."""
        joined, tokens, mine = {}, {}, "blocks" if ROLE == "producer" else "peer_blocks"
        for request in call["requests"]:
            tokens[request["request"]] = request["tokens"]
            groups = joined.setdefault(request["request"], [{"blocks": [], "peer_blocks": []} for _ in range(self.groups)])
            groups[request["group"]] = {key: request[key] for key in ("blocks", "peer_blocks")}
            groups[request["group"]][mine] = self.options.get("cached", []) + groups[request["group"]][mine]
        for number, more in enumerate(self.options.get("also", [])):
            sides = more["producer"], more["consumer"]
            joined[f"also{number}"] = [dict(zip(("blocks", "peer_blocks"), sides if ROLE == "producer" else sides[::-1]))]
        return [
            {"request": name + self.suffix, "groups": groups, "tokens": tokens.get(name)} for name, groups in joined.items()
        ]

    def transfer(self, call):
        """None if the answer comes later."""
        self.done, self.later, self.began = {}, None, time.monotonic()
        dies, begin = (
            self.options.get("dies"),
            lambda: self.all("transfer", transfer=call["transfer"], requests=self.requests(call)),
        )
        if "dies_at" in self.options and ROLE == "producer":
            self.later = time.monotonic() + 1.5, lambda: self.close(kill=True)
        elif "dies_at" in self.options:
            self.later = time.monotonic() + 3, begin
            greeting = {"request": "greeting", "groups": [{"blocks": [], "peer_blocks": [0]} for _ in range(self.groups)]}
            return worst(self.all("transfer", transfer=call["transfer"], requests=[greeting]))
        elif dies == ROLE:
            self.close(kill=True)
            return {}
        return worst(begin())

    def poll(self):
        """The answer of all ranks; None until every rank has one."""
        if self.later:
            when, act = self.later
            if time.monotonic() < when:
                return None
            self.later = None
            act()
        for child in self.children:
            if child not in self.done:
                child.send("poll")
                if (answer := child.answer())["state"] != "pending":
                    self.done[child] = answer
        answers = list(self.done.values())
        if bad := worst(answers):
            return bad
        if errors := sorted({block for answer in answers for block in answer.get("load_errors", [])}):
            return {"load_errors": errors, "text": next(answer["text"] for answer in answers if "load_errors" in answer)}
        if len(answers) < len(self.children):
            return None
        if any(answer.get("leaves") for answer in answers):
            stays = self.children[0].folder
            for child in self.children:
                child.kill(keep=True)
            self.children = []
            open(os.path.join(stays, "shared", "gone"), "w").close()
        self.well = time.monotonic() - self.began < LATE
        return {"path": {"registration": "of the job before" if self.served else "of its own"}}

    def close(self, kill=False):
        """Releases the processes without waiting for their end."""
        for child in self.children:
            if kill:
                child.kill()
            else:
                child.send("shutdown")
                LEAVING.append((child, time.monotonic() + 5))
        self.children = []


def pool_of(call, options):
    """What a job must share with the last one to be another request on the same connectors. None: nothing is shared."""
    if {"dies", "aborts", "also", "cached", "lease", "class", "store"} & options.keys() or os.path.isdir(
        "/sys/class/infiniband"
    ):  # a NIC would continue with the old pages
        return None
    memory = [{key: entry[key] for key in ("name", "offset", "bytes")} for entry in call["memory"]]
    return json.dumps([options, call["op"], call["dtype"], call["groups"], memory], sort_keys=True)


def take_idle(pool):
    """The last job, if it is like this one; otherwise its processes end."""
    if not IDLE:
        return None
    last = IDLE.pop()
    alive = [child for child in last.children if child.reap(os.WNOHANG) is None]
    for child in alive:
        child.sleep(False)
    if pool is not None and last.pool == pool and alive == last.children:
        return last
    last.children = alive
    last.close()
    return None


def worst(answers):
    """The first refusing answer, exceptions before refusals; None if there is none."""
    return next((answer for state in ("raised", "refused") for answer in answers if answer["state"] == state), None)


PENDING = {}
LATE = 5  # s; a longer job met something that the next one should not
IDLE = []  # the last job, if it went well
LEAVING = []  # processes of jobs that are over, with their deadlines


def reap():
    for entry in list(LEAVING):
        child, deadline = entry
        if child.reap(os.WNOHANG) is None:
            if time.monotonic() < deadline:
                continue
            child.kill()
        LEAVING.remove(entry)


def handle(call, jobs):
    global ROLE, OPTIONS
    name = call["call"]
    if name == "hello":
        ROLE, OPTIONS = call["role"], call["options"]
        if lack := missing():
            return {"state": "skipped", "text": lack}
        began = time.monotonic()
        preload()
        import vllm

        torch = vllm_model.torch()
        return {
            "name": OPTIONS["connector"],
            "version": vllm.__version__,
            "capabilities": {"ops": ["write" if OPTIONS["connector"] in PUSHES else "read"], "abandon": True},
            "facts": {
                "torch": torch.__version__ if torch else "none: NumPy's arrays",
                "interface": "stand-in, without vLLM" if vllm_model.stands_in() else "vLLM's own",
                "python": sys.version.split()[0],
                "import_s": round(time.monotonic() - began, 1),
            },
        }
    if name == "register":
        reap()
        jobs[call["job"]] = Job(call)
        return jobs[call["job"]].register()
    if name == "handshake":
        return jobs[call["job"]].handshake(call["peer"])
    if name == "transfer":
        answer = jobs[call["job"]].transfer(call)
        if answer is None:
            PENDING[call["id"]] = call["job"]
            return {"state": "pending"}
        return answer
    if name == "poll":
        ended = [
            {"id": number, "state": "done", **answer}
            for number, job in list(PENDING.items())
            if (answer := jobs[job].poll()) is not None
        ]
        for answer in ended:
            del PENDING[answer["id"]]
        return {"calls": ended}
    if name == "release":
        for number in [number for number, job in PENDING.items() if job == call["job"]]:
            del PENDING[number]
        if job := jobs.pop(call["job"], None):
            if job.well and job.pool:
                take_idle(None)
                IDLE.append(job)
                for child in job.children:
                    child.sleep(True)
            else:
                job.close()
    if name == "shutdown":
        for job in [*jobs.values(), *IDLE]:
            job.close(kill=True)
        for child, _ in LEAVING:
            child.kill()
    return {}


os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("UCX_MEM_MMAP_HOOK_MODE", "none")
os.environ.setdefault("MC_FORCE_TCP", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
template.handle = handle
if __name__ == "__main__":
    template.main()
