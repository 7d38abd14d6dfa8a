"""What an engine does with a connector of vLLM, for one rank of one side: its scheduler asks the connector's scheduler half,
its model runner calls the worker half, in the order of vLLM 0.33.0 (v1/core/sched/scheduler.py, v1/worker). The producer's
engine computes prompts (the suite has filled their blocks), the consumer's gets the same prompts afterwards and what the
producer's request_finished() returned.

    engine_options of a case, besides those of vllm_host.py:
      prompt        [producer's, consumer's]: tokens that each prompt has beyond the case's; default [1, 2], because a
                    store that keeps whole blocks may leave out a prompt's last token, and must not be asked for all of it
      chunk         the producer computes this many tokens in its first step, the others in a second
      shared        the consumer's prompt has only this many first tokens of the producer's
      identity      {salt, lora, image, model: [producer's, consumer's]}, each a name or null: the request's cache salt, its
                    LoRA adapter, the hash of an image (tokens 2 to 5), and the end of the path of the engine's model. Where
                    the sides differ, the consumer's prompt has another cache, and nothing of the producer's may be loaded
      lost          what the connector has put into its folder is deleted once it has said that the tokens are there
      flipped       before the consumer asks, one bit in the middle of the longest file in that folder is another one
      leaves        the producer's processes are killed when its requests are finished; connected: when it has also served
                    those of which the consumer needs nothing (`also`), and so both know each other
      aborts        consumer: its requests are given up while they load; their blocks are free when it says so
                    producer: its requests are given up in the midst of their prefill, when the consumer has asked for them
      unasked       the consumer never asks; what the producer keeps for it comes back when its lease is over
      saved         the producer's step ends after this many layers
      through       MultiConnector: each side's is one of two children, with separate folders; the consumer's first is empty
      full_graph    the consumer's step replays a full CUDA graph: its forward context has no attention metadata

The producer's blocks hold nothing of a prompt before its engine computes that: token by token over the steps, layer by layer
within one. What the connector calls free the suite gives to another request at once.

The first rank has the scheduler and its half. It gives each step to all ranks, itself included, as a file; each answers with
a file, as vLLM's executor does with messages."""

import itertools
import json
import os
import pickle
import random
import shutil
import time
import types
from pathlib import Path

import rank_host
import template
import vllm_model
import vllm_runner
from vllm_runner import PATIENCE, write

LEASE = 600  # s; how long a producer keeps blocks for a consumer
ASKED = 1  # s; after which the consumer waits for a producer that gives up


class Rank(vllm_runner.Runner):
    def __init__(self, call):
        folder = Path(call["place"]["folder"])
        self.steps, self.shared = folder / "steps", folder / "shared"
        self.steps.mkdir(exist_ok=True)
        if call["place"]["role"] == "producer":
            self.files("x").parent.mkdir(parents=True, exist_ok=True)
        self.next, self.count = 0, itertools.count()
        super().__init__(call)

    def files(self, name):
        return self.shared / "files" / name

    def extra_config(self):
        extra = json.loads(os.environ.get("KVCTS_CONNECTOR_EXTRA", "{}").replace("{folder}", str(self.files("own"))))
        if "through" not in self.options:
            # vLLM's 30 s pass where eight polling ranks share two cores; only a case about leases wants a short one.
            own = {"shared_storage_path": str(self.files("own")), "kv_lease_duration": LEASE, "mooncake_protocol": "tcp"}
            return own | extra
        children = ("first", "second") if self.producer else ("empty", "second")
        return {
            "connectors": [
                {
                    "kv_connector": self.connector_name,
                    "kv_role": "kv_both",
                    "kv_connector_extra_config": {"shared_storage_path": str(self.files(name))},
                }
                for name in children
            ]
        }

    def create_pool(self):
        """The engine's pool of blocks; a connector that reads them after their request keeps a reference in it."""
        self.pool = None
        if self.scheduler and hasattr(self.scheduler, "bind_gpu_block_pool"):
            from vllm.v1.core.block_pool import BlockPool

            self.pool = BlockPool(self.caches[0].blocks, True, self.size(0))
            self.scheduler.bind_gpu_block_pool(self.pool)

    def referenced(self, one):
        return self.pool is not None and any(self.pool.blocks[b].ref_cnt for group in one.blocks for b in group if b)

    # ---- requests ---------------------------------------------------------------------------------------------------
    def begin(self, number, requests):
        self.answer, self.broken, self.kept, self.seen = None, None, [], {}
        self.told = {f"{told['request']}-{number}": told for told in requests}
        self.job = next(iter(self.told), f"none-{number}")  # of this transfer: connectors may outlive a job
        if self.connector_name.startswith("Nixl") and max(self.ranks, self.peer["ranks"]) > 1:
            vllm_model.stand_in_for_processors()
        if not self.producer and self.rank == 0 and (theirs := Path(self.peer["folder"]) / "shared") != self.shared:
            self.shared.unlink(missing_ok=True)
            self.shared.symlink_to(theirs)
        if self.connector is None:
            self.connect()
        if not hasattr(self, "pool"):
            self.create_pool()
        self.flow = (self.produce() if self.producer else self.consume()) if self.rank == 0 else iter(())

    def request(self, name, told, params):
        """A request of this side's engine: its blocks by group, how many of its tokens are in the case, and how many of
        these are already in its cache."""
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256_cbor
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.request import Request

        prefix, size = self.options.get("cached", []), self.caches[0].block_size
        blocks = [list(group["blocks"]) for group in told["groups"]]
        tokens = self.tokens(told)
        whole = not self.producer and tokens > 0 and not any(blocks)  # all of it is in this side's cache
        more = 0 if whole else self.options.get("prompt", (1, 2))[0 if self.producer else 1]
        ids = [drawn.randrange(64) for drawn in [random.Random(name)] for _ in range(tokens + more)]
        if not self.producer and (shared := self.options.get("shared")) is not None:
            ids[shared:] = [63 - token for token in ids[shared:]]
        if not self.producer:
            blocks[0] = prefix + blocks[0]
        arguments = SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": params})
        arguments.update_from_generation_config({}, 2)
        init_none_hash(sha256_cbor)
        hasher = get_request_block_hasher(size, sha256_cbor)
        request = Request(name, ids, arguments, None, block_hasher=hasher, **self.identity())
        computed = tokens if whole else 0 if self.producer else len(prefix) * size
        return types.SimpleNamespace(
            request=request, name=name, blocks=blocks, tokens=tokens, computed=computed, whole=whole
        )

    def identity(self):
        """What distinguishes equal token ids: arguments of this side's Request."""
        from vllm.lora.request import LoRARequest
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

        salt, lora, image = (vllm_model.named(self.options, kind, self.producer) for kind in ("salt", "lora", "image"))
        images = [MultiModalFeatureSpec(None, "image", image, PlaceholderRange(2, 4), image)] if image else None
        return {
            "cache_salt": salt,
            "lora_request": LoRARequest(lora, 1, f"adapters/{lora}") if lora else None,
            "mm_features": images,
        }

    @staticmethod
    def allocation(one, hashed):
        """The request's blocks as vLLM's cache manager hands them out; the first `hashed` are its prefix cache's."""
        from vllm.v1.core.kv_cache_manager import KVCacheBlocks
        from vllm.v1.core.kv_cache_utils import KVCacheBlock

        groups = tuple([KVCacheBlock(block) for block in group] for group in one.blocks)
        for block in groups[0][:hashed]:
            block.set_block_hash(f"{one.name}-{block.block_id}".encode())
        return KVCacheBlocks(groups)

    def output(self, new=(), cached=(), finished=()):
        """What the scheduler decided for a step: new requests with their tokens, and further tokens of running ones."""
        from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput

        output = SchedulerOutput.make_empty()
        output.finished_req_ids = set(finished)
        for one, tokens in new:
            blocks = tuple(group[: -(-(one.request.num_computed_tokens + tokens) // self.size(n))] or [0]
                           for n, group in enumerate(one.blocks))  # fmt: skip
            output.scheduled_new_reqs.append(NewRequestData.from_request(one.request, blocks))
        if cached:
            running = output.scheduled_cached_reqs = type(output.scheduled_cached_reqs)([], set(), [], {}, [], [], [])
            for one, tokens in cached:
                have = -(-one.request.num_computed_tokens // self.size(0))
                running.req_ids.append(one.name)
                running.new_block_ids.append(tuple(group[have:] for group in one.blocks))
                running.num_computed_tokens.append(one.request.num_computed_tokens)
                running.num_output_tokens.append(0)
        output.num_scheduled_tokens = {one.name: tokens for one, tokens in (*new, *cached)}
        output.total_num_scheduled_tokens = sum(output.num_scheduled_tokens.values())
        if hasattr(output, "kv_connector_block_state"):
            from vllm.v1.core.sched.output import KVConnectorBlockState

            blocks = {one.name: tuple(one.blocks) for one, _ in (*new, *cached)}
            output.kv_connector_block_state = KVConnectorBlockState(set(blocks), blocks.get, {})
        return output

    def size(self, group):
        return self.caches[group].block_size

    def finished(self, one, status):
        """Whether its blocks stay in use, and what the engine's answer carries to the other side."""
        from vllm.v1.request import RequestStatus

        one.request.status = getattr(RequestStatus, status)
        whole = getattr(self.scheduler, "request_finished_all_groups", None)
        return (
            whole(one.request, tuple(one.blocks)) if whole else self.scheduler.request_finished(one.request, one.blocks[0])
        )

    # ---- the scheduler, in the first rank ---------------------------------------------------------------------------
    def perform(self, order, **what):
        """Gives all ranks something to do. Their answers, when all have one."""
        number = next(self.count)
        write(self.steps / str(number), (order, what))
        files = [self.steps / f"{number}.{rank}" for rank in range(self.ranks)]
        while not all(file.exists() for file in files):
            yield
        return [pickle.loads(file.read_bytes()) for file in files]

    def step(self, output, layers=None, finished=(), computes=None):
        """A step of the engine: every rank's results, which the scheduler's half hears of, too. layers None: no forward.
        computes: of each request, the tokens that its model computes: first and end."""
        from vllm.v1.outputs import KVConnectorOutput

        meta = self.scheduler.build_connector_meta(output)
        answers = yield from self.perform("run", meta=meta, layers=layers, finished=set(finished), computes=computes or {})
        for kind in ("sending", "receiving"):  # over when every rank has said so
            for answer in answers:
                for name in answer[kind]:
                    self.said_by.setdefault((kind, name), []).append(name)
        over = {kind: {name for (k, name), all_of in self.said_by.items() if k == kind and len(all_of) == self.ranks}
                for kind in ("sending", "receiving")}  # fmt: skip
        for kind, names in over.items():
            for name in names:
                del self.said_by[kind, name]
        metas = [answer["meta"] for answer in answers if answer["meta"] is not None]
        told = KVConnectorOutput(over["sending"] or None, over["receiving"] or None)
        told.kv_connector_worker_meta = metas[0] if metas else None
        for meta in metas[1:]:
            told.kv_connector_worker_meta = told.kv_connector_worker_meta.aggregate(meta)
        self.errors.update(block for answer in answers for block in answer["errors"])
        self.failed.update(name for answer in answers for name in answer["failed"])
        told.invalid_block_ids, told.failed_recving = set(self.errors), set(self.failed)
        if hasattr(self.scheduler, "update_connector_output"):
            self.scheduler.update_connector_output(told)
        return over

    def produce(self):
        self.said_by, self.errors, self.failed = {}, set(), set()
        params = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None}
        all_of = [self.request(name, told, params | {"transfer_id": name}) for name, told in self.told.items()]
        for one in all_of:
            self.notice(one)
            found, _ = self.scheduler.get_num_new_matched_tokens(one.request, 0)
            if found and found > 0:
                raise RuntimeError(
                    f"the connector says that {found} tokens of a prompt are stored that nothing has computed"
                )
            self.scheduler.update_state_after_alloc(one.request, self.allocation(one, 0), 0)
        layers = self.options.get("saved", len(self.layers))
        yield from self.perform("hide")
        first = {one.name: min(self.options.get("chunk", one.tokens), one.tokens) for one in all_of}
        computes = {one.name: (0, first[one.name]) for one in all_of}
        yield from self.step(self.output(new=[(one, first[one.name]) for one in all_of]), layers, computes=computes)
        for one in all_of:
            one.request.num_computed_tokens = first[one.name]
        held, names, answers = set(), {one.name for one in all_of}, {}
        if aborts := self.options.get("aborts") == "producer":
            write(self.shared / f"answers-{self.job}", {name: {} for name in names})
            until = time.monotonic() + ASKED
            while time.monotonic() < until:
                yield
        elif rest := [(one, one.tokens - first[one.name]) for one in all_of if first[one.name] < one.tokens]:
            computes = {one.name: (first[one.name], one.tokens) for one, _ in rest}
            yield from self.step(self.output(cached=rest), layers, computes=computes)
        yield from self.perform("restore")  # what no prompt has: slots beyond its tokens
        if "saved" in self.options:
            write(self.shared / f"answers-{self.job}", {})
            while True:
                yield
        yield from self.perform("publish")
        for one in all_of:
            one.request.num_computed_tokens = first[one.name] if aborts else one.tokens
            wait, answers[one.name] = self.finished(one, "FINISHED_ABORTED" if aborts else "FINISHED_LENGTH_CAPPED")
            if wait:
                held.add(one.name)
                answers[one.name] = answers[one.name] or {}  # a router's parameters are enough
        told, kept, busy = names, time.monotonic(), [one for one in all_of if one.name not in held]
        if leaves := self.options.get("leaves"):
            write(self.shared / f"answers-{self.job}", answers)
            while leaves == "connected" and not (yield from self.step(self.output(finished=told), finished=told))["sending"]:
                told = ()
                yield
            yield from self.perform("end", answer={"state": "done", "leaves": True})
            return
        if aborts:
            yield from self.step(self.output(finished=told), finished=told)
        while True:
            yield from self.give_away([one for one in busy if not self.referenced(one)], "request_finished")
            if not (busy := [one for one in busy if self.referenced(one)]):
                break
            held -= (yield from self.step(self.output(finished=told), finished=told))["sending"]
            told = ()
        if not aborts:
            write(self.shared / f"answers-{self.job}", answers)
        while held:
            over = yield from self.step(self.output(finished=told), finished=told)
            told = ()
            yield from self.give_away([one for one in all_of if one.name in held & over["sending"]], "finished_sending")
            held -= over["sending"]
            if self.other_is_over() and not self.loaded():
                break  # its lease is the connector's own
            if time.monotonic() > kept + PATIENCE and self.options.get("unasked"):
                raise RuntimeError(
                    f"{PATIENCE} s after its end, the connector keeps the blocks of {', '.join(held)}, unasked for"
                )
            yield
        while not self.other_is_over():
            yield
        write(self.shared / f"restored-{self.job}", None)
        yield from self.perform("end", answer={"state": "done"})

    def other_is_over(self):
        return (self.shared / f"over-{self.job}").exists()

    def loaded(self):
        """Whether the consumer, which is over, has asked for all, or none of it, and got it."""
        return pickle.loads((self.shared / f"over-{self.job}").read_bytes())

    def give_away(self, requests, word):
        """Their blocks are another request's from here on."""
        if names := [one.name for one in requests]:
            yield from self.perform("let_go", requests=names, word=word)
            while not self.given.issuperset(self.told[name]["name"] for name in names):
                yield

    def notice(self, one):
        if hasattr(self.scheduler, "on_new_request"):
            self.scheduler.on_new_request(one.request)

    def consume(self):
        self.said_by, self.errors, self.failed = {}, set(), set()
        said, gone, leaves = self.shared / f"answers-{self.job}", self.shared / "gone", self.options.get("leaves")
        while not said.exists() or leaves is True and not gone.exists():
            yield
        answers = pickle.loads(said.read_bytes())
        if self.options.get("unasked"):
            yield from self.over(True, {"state": "done"})
            return
        all_of = [self.request(name, told, self.carried(name, answers.get(name))) for name, told in self.told.items()]
        if leaves == "connected":
            yield from self.load(*(yield from self.ask([one for one in all_of if one.whole], answers)))
            while not gone.exists():
                yield from self.step(self.output())
                yield
            all_of = [one for one in all_of if not one.whole]
        now, later = yield from self.ask(all_of, answers)
        if self.options.get("aborts") == "consumer":
            yield from self.abort(now, later)
        else:
            yield from self.load(now, later)
        answer = self.ending()
        yield from self.over(answer == {"state": "done"} and self.options.get("aborts") != "consumer", answer)

    def ask(self, requests, answers):
        """What the connector can load of them: requests that load within a step, and those that load between steps."""
        now, later = [], []
        if self.options.get("flipped"):
            rank_host.flip(self.files("own"))
        for one in requests:
            self.notice(one)
            one.request.num_computed_tokens = one.computed
            while (found := self.scheduler.get_num_new_matched_tokens(one.request, one.computed))[0] is None:
                yield from self.step(self.output())  # which may be what answers it
                yield
            one.found, waits = found
            self.check(one, answers.get(one.name) is not None)
            (later if waits and one.found else now).append(one)
        if self.options.get("lost"):
            if not any(self.files("own").rglob("*")):
                raise template.Refusal("the connector keeps nothing in its folder: nothing of it can be lost")
            shutil.rmtree(self.files("own"))
        for one in later + now:
            hashed = len(self.options.get("cached", []))
            self.scheduler.update_state_after_alloc(one.request, self.allocation(one, hashed), one.found)
        return now, later

    def over(self, loaded, answer):
        write(self.shared / f"over-{self.job}", loaded)
        until = time.monotonic() + PATIENCE
        if answer != {"state": "done"} and not self.options.get("leaves"):  # the case ends with it, see poll()
            while not (self.shared / f"restored-{self.job}").exists() and time.monotonic() < until:
                yield
        yield from self.perform("end", answer=answer)

    def carried(self, name, params):
        """The consumer's kv_transfer_params, as a router passes them on."""
        if params is None:
            return None
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "transfer_id": name,
            "remote_engine_id": self.peer["engine_id"],
            "remote_bootstrap_addr": f"http://{rank_host.PEER_ADDRESS}:{self.peer['port']}",
            "remote_host": rank_host.PEER_ADDRESS,
            "tp_size": self.peer["ranks"],
        } | params

    def check(self, one, carried):
        """What it says that it can load is what the producer has computed of this prompt."""
        unlike = {kind: both for kind, both in self.options.get("identity", {}).items() if both[0] != both[1]}
        if carried and (unlike or "shared" in self.options):
            raise template.Refusal("kv_transfer_params name the request: nothing is looked up by its prompt")
        if unlike and one.found:
            raise RuntimeError(f"the connector says that it can load {one.found} tokens of another cache: {unlike}")
        prompt = self.options.get("shared", len(one.request.prompt_token_ids))
        most = min(one.tokens, prompt) - one.computed
        if one.found < 0 or one.found > (len(one.request.prompt_token_ids) - one.computed if carried else max(most, 0)):
            raise RuntimeError(
                f"the connector says that it can load {one.found} tokens of a prompt of which {most} are stored"
            )
        if "shared" in self.options and one.found <= most:
            raise template.Refusal(f"the connector says that {one.found} tokens are stored of another prompt's {most}")
        wanted, size = one.tokens - one.computed, self.size(0)
        if one.found < wanted and (one.found == 0 or one.found % size or len(self.caches) > 1):
            prompt = len(one.request.prompt_token_ids)
            files = sum(file.is_file() for file in self.files("own").rglob("*"))
            raise template.Refusal(
                f"the connector says that it can load {one.found} tokens where {wanted} have been computed: the engine "
                f"computes the others (this prompt has {prompt} tokens; the producer's began with the same {one.tokens}, "
                f"which were scheduled; the connector's folder holds {files} files)"
            )
        if one.found < wanted:
            self.computed(next(iter(self.layers)), one.name)

    def load(self, now, later):
        """Requests that load while others compute, then one step with all of them."""
        waiting = {one.name for one in later}
        while waiting:
            over = yield from self.step(self.output())
            waiting -= over["receiving"]
            if self.failed or self.errors:
                return
            yield
        for one in later:
            one.request.num_computed_tokens = one.tokens
            self.scheduler.update_state_after_alloc(one.request, self.allocation(one, len(one.blocks[0])), 0)
        for one in now:
            one.request.num_computed_tokens = one.computed + one.found
        new = [(one, len(one.request.prompt_token_ids) - one.request.num_computed_tokens) for one in now + later]
        computed = {one.name: (one.computed + one.found, one.tokens) for one in now + later}
        yield from self.step(self.output(new=new), len(self.layers), computes=computed)
        if self.errors:
            return
        for one in now + later:
            one.request.num_computed_tokens = len(one.request.prompt_token_ids)
            self.finished(one, "FINISHED_LENGTH_CAPPED")

    def abort(self, now, later):
        if now:
            raise template.Refusal("the connector loads within a step of the engine: nothing can be given up meanwhile")
        yield from self.perform("keep", requests=[one.blocks for one in later])
        over = yield from self.step(self.output())
        for one in later:
            self.finished(one, "FINISHED_ABORTED")
        waiting, told = {one.name for one in later} - over["receiving"], {one.name for one in later}
        while waiting:  # the scheduler keeps the blocks until the load is over
            over = yield from self.step(self.output(finished=told), finished=told)
            waiting, told = waiting - over["receiving"], ()
            yield
        yield from self.perform("restore")  # free: what comes now is written into another request's blocks

    def ending(self):
        said = f"; it says: {self.said.text}" if self.said.text else ""
        if self.failed:
            text = f"requests {sorted(self.failed)} failed to load{said}"
            return {"state": "refused", "type": "failed_recving", "text": text}
        if self.errors:
            return {"state": "done", "load_errors": sorted(self.errors), "text": f"the connector says so{said}"}
        return {"state": "done"}
