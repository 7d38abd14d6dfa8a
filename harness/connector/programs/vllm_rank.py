"""One rank of one job, in a separate process: a connector of vLLM, the real class, between the suite's memory and its
other side. vllm_host.py starts it and lists what replaces the engine around it."""

import importlib
import inspect
import logging
import os
import pickle
import time
from base64 import b64decode, b64encode

import rank_host
import vllm_model

BY_HAND = ("NixlConnector", "MooncakeConnector")  # whose requests have no scheduler half here
MODULES = {  # of a rank's class, if not vllm_engine
    "MooncakeStoreConnector": "vllm_mooncake_store",
    "OffloadingConnector": "vllm_offload",
}
LEASE = 600  # s; how long a producer keeps blocks for a consumer


def packed(thing):
    return b64encode(pickle.dumps(thing)).decode()


def unpacked(text):
    return pickle.loads(b64decode(text))


def fit(function, *arguments, **named):
    """Calls it with those of the named arguments that this version of vLLM accepts."""
    known = inspect.signature(function).parameters
    return function(*arguments, **{key: value for key, value in named.items() if key in known})


class Said(logging.Handler):
    """The last error that vLLM logged: its reason for a failed load."""

    text = ""

    def emit(self, record):
        error = record.exc_info and record.exc_info[1]
        self.text = (f"{type(error).__name__}: {error}" if error else record.getMessage())[:300]


class Rank:
    def __init__(self, call):
        self.said = Said(logging.ERROR)
        logging.getLogger("vllm").addHandler(self.said)
        place, self.options = call["place"], call["options"]
        self.connector_name, self.producer = self.options["connector"], place["role"] == "producer"
        self.nixl, self.rank, self.ranks, self.port = (
            self.connector_name == "NixlConnector",
            place["rank"],
            place["ranks"],
            call["ports"][0],
        )
        self.memories = [rank_host.Memory(entry) for entry in call["memory"]]
        self.engine_id = place["engine_id"]
        self.caches = [vllm_model.Group(call, place, number) for number in range(len(call["groups"]))]
        layout = self.options.get("kv_layout") or self.caches[0].layout
        vllm_model.announce(layout)
        os.environ.update(
            VLLM_NIXL_SIDE_CHANNEL_HOST="127.0.0.1",
            VLLM_NIXL_SIDE_CHANNEL_PORT=str(self.port),
            VLLM_MOONCAKE_BOOTSTRAP_PORT=str(self.port),
            VLLM_HOST_IP="127.0.0.1",
        )
        os.environ.update(self.options.get("environment", {}))
        from vllm.config import KVTransferConfig

        transfer = {
            "kv_role": "kv_producer" if self.producer else "kv_consumer",
            "kv_load_failure_policy": "recompute",
        } | self.options.get("transfer_config", {})
        transfer = KVTransferConfig(
            kv_connector=self.options.get("through", self.connector_name),
            engine_id=self.engine_id,
            kv_connector_extra_config=self.extra_config() | self.options.get("extra", {}),
            **transfer,
        )
        self.create(call, layout, transfer)

    def create(self, call, layout, transfer):
        """Both halves, as an engine makes them, and the tensors that the worker's registers."""
        from vllm.config import set_current_vllm_config
        from vllm.distributed import parallel_state
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
        from vllm.engine.arg_utils import EngineArgs

        caches = self.caches
        if self.connector_name == "MooncakeConnector":
            vllm_model.stand_in_for_device()
        self.config = EngineArgs(
            **vllm_model.engine_arguments(caches), tensor_parallel_size=self.ranks, kv_transfer_config=transfer
        ).create_engine_config()
        self.config.cache_config.kv_cache_layout = layout
        self.config.cache_config.num_gpu_blocks = caches[0].blocks
        self.config.parallel_config.rank = self.rank
        parallel_state.init_distributed_environment(
            world_size=self.ranks,
            rank=self.rank,
            local_rank=self.rank,
            backend="gloo",
            distributed_init_method=f"tcp://127.0.0.1:{call['ports'][1]}",
        )
        with set_current_vllm_config(self.config):
            parallel_state.initialize_model_parallel(self.ranks, 1)
            cache = vllm_model.cache_config(caches, call["memory"], layout, self.config)
            vllm_model.stand_in_for_backend(caches[0].latent)
            before = rank_host.threads()
            create = lambda role: KVConnectorFactory.create_connector(self.config, role, cache)
            self.connector, self.scheduler = create(KVConnectorRole.WORKER), None
            self.layers = {name: tensor for group in caches for name, tensor in group.tensors(self.memories)}
            self.connector.register_kv_caches(self.layers)
            if self.schedules():
                self.scheduler = create(KVConnectorRole.SCHEDULER)
        if self.connector_name.startswith("Nixl"):
            rank_host.calm(before)

    def extra_config(self):
        return {} if self.nixl else {"mooncake_protocol": "tcp"}

    def schedules(self):
        """Whether it has a scheduler half: a producer's answers the consumer's handshakes."""
        return self.nixl and self.producer and self.rank == 0

    def again(self, memory):
        """Another job's memory replaces the last one's, address for address: registrations stay valid."""
        for at, entry in zip(self.memories, memory, strict=True):
            at.replace(entry)
        self.said.text = ""

    def metadata(self):
        return {"handshake": packed(self.connector.get_handshake_metadata() if self.nixl and self.producer else None)}

    def serve(self, handshakes):
        """The first rank of a producer: its answer to the handshakes of all ranks."""
        if self.scheduler:
            self.scheduler.set_xfer_handshake_metadata_pp_aware(
                {(0, rank): unpacked(text) for rank, text in enumerate(handshakes)}
            )

    def meet(self): ...

    def begin(self, number, requests):
        """What the scheduler would pass to this side: a request is {request, groups: [{blocks, peer_blocks}, ...]}."""
        self.began, self.ended, self.errors = time.monotonic(), set(), set()
        if self.nixl:
            from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlConnectorMetadata as Metadata
        else:
            from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector import (
                MooncakeConnectorMetadata as Metadata,
            )
        if self.nixl and not self.producer and max(self.ranks, self.peer["ranks"]) > 1:
            vllm_model.stand_in_for_processors()
        self.empty, steps = Metadata(), [Metadata()]
        self.waiting = {f"{request['request']}-{number}" for request in requests}
        for request in requests:
            name = f"{request['request']}-{number}"
            blocks, peer_blocks = ([group[key] for group in request["groups"]] for key in ("blocks", "peer_blocks"))
            if not any(blocks) and not self.producer:
                blocks = []
            if self.nixl and self.producer:
                steps[0].reqs_in_batch.add(name)
                steps[0].reqs_to_send[name] = time.perf_counter() + self.options.get("lease", LEASE)
            elif self.nixl:
                fit(
                    steps[0].add_new_req_to_recv,
                    name,
                    tuple(blocks),
                    {
                        "remote_block_ids": tuple(peer_blocks),
                        "remote_engine_id": self.peer["engine_id"],
                        "remote_request_id": name,
                        "remote_host": "127.0.0.1",
                        "remote_port": self.peer["port"],
                        "tp_size": self.peer["ranks"],
                    },
                    awaiting_kvs=True,
                )
            elif self.producer:
                steps[0].add_new_req(name, [], {"transfer_id": name}, load_remote_cache=False)
                steps.append(Metadata())
                if self.options.get("aborts") == "producer":  # before the prefill is over
                    steps[-1].reqs_not_processed.add(name)
                    self.waiting.discard(name)
                else:
                    steps[-1].add_new_req(name, blocks, {"transfer_id": name}, load_remote_cache=False)
            else:
                steps[0].add_new_req(
                    name,
                    blocks,
                    {
                        "transfer_id": name,
                        "remote_engine_id": self.peer["engine_id"],
                        "remote_bootstrap_addr": f"http://127.0.0.1:{self.peer['port']}",
                    },
                )
            if not any(blocks) and not self.producer:  # all of it is already in this side's cache: no one waits for it here
                self.waiting.discard(name)
        for step in steps:
            self.step(step)

    def step(self, metadata):
        self.connector.bind_connector_metadata(metadata)
        self.connector.start_load_kv(None)
        self.connector.clear_connector_metadata()

    def poll(self):
        """A step of the engine without new requests. The answer when the transfer is over, else None."""
        self.step(self.empty)
        if hasattr(self.connector, "get_transfer_results"):
            results = self.connector.get_transfer_results(set())
            sent, received, failed = results.finished_sending, results.finished_recving, results.failed_recving
        else:
            (sent, received), failed = self.connector.get_finished(set()), ()
        self.errors |= set(self.connector.get_block_ids_with_load_errors())
        self.waiting -= set(sent or ()) if self.producer else set(received or ())
        after = f"after {time.monotonic() - self.began:.1f} s" + (f"; vLLM says: {self.said.text}" if self.said.text else "")
        if failed:
            return {
                "state": "refused",
                "type": "failed_recving",
                "text": f"requests {sorted(failed)} failed to load, {after}",
            }
        if self.errors:
            return {"state": "done", "load_errors": sorted(self.errors), "text": after}
        return None if self.waiting else {"state": "done"}

    def close(self):
        """Deletes what one side's ranks share and would leave. The connector's own resources end with the
        process, without its half a second of shutdown."""
        from vllm.distributed import parallel_state

        parallel_state.destroy_model_parallel()


def kind_of(options):
    """The class of a rank with these options."""
    if options["connector"] in BY_HAND and not {"class", "store"} & options.keys():
        return Rank
    module = "store_rank" if "store" in options else MODULES.get(options["connector"], "vllm_engine")
    return importlib.import_module(module).Rank  # which needs this one
