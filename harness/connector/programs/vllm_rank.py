"""One rank of one job, in a separate process: the configuration, the tensors and both halves of a connector of vLLM, the
real class, between the suite's memory and its other side. vllm_runner.py and vllm_engine.py call the halves."""

import importlib
import os
import pickle
from base64 import b64decode, b64encode

import rank_host
import vllm_model


class Rank(rank_host.Rank):
    meets = False  # the consumer's connector is made when its producer is known
    connector = scheduler = None  # the worker's half, and, in the first rank, the scheduler's

    def __init__(self, call):
        self.said = rank_host.Said("vllm")
        place, self.options = call["place"], call["options"]
        self.connector_name, self.producer = self.options["connector"], place["role"] == "producer"
        self.rank, self.ranks, self.port = place["rank"], place["ranks"], call["ports"][0]
        self.memories = [rank_host.Memory(entry) for entry in call["memory"]]
        self.engine_id = place["engine_id"]
        self.caches = [vllm_model.Group(call, place, number) for number in range(len(call["groups"]))]
        layout = self.options.get("kv_layout") or self.caches[0].layout
        vllm_model.announce(layout)
        os.environ.update(
            VLLM_NIXL_SIDE_CHANNEL_HOST=rank_host.ADDRESS,
            VLLM_NIXL_SIDE_CHANNEL_PORT=str(self.port),
            VLLM_MOONCAKE_BOOTSTRAP_PORT=str(self.port),
            VLLM_HOST_IP=rank_host.ADDRESS,
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
        self.arguments = call, layout, transfer
        if self.producer or not self.meets:
            self.connect()

    def connect(self):
        """Both halves, as an engine makes them, and the tensors that the worker's registers."""
        call, layout, transfer = self.arguments
        model = vllm_model.named(self.options, "model", self.producer)
        if vllm_model.stands_in():
            import vllm_stand_in

            self.config = vllm_stand_in.configure(self.caches, layout, transfer, self.rank, self.ranks, model or "kvcts")
            self.create(getattr(importlib.import_module(self.options["module"]), self.connector_name))
            return
        from vllm.config import set_current_vllm_config
        from vllm.distributed import parallel_state
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.engine.arg_utils import EngineArgs

        if self.connector_name == "MooncakeConnector":
            vllm_model.stand_in_for_device()
        arguments = vllm_model.engine_arguments(self.caches, model)
        self.config = EngineArgs(
            **arguments, tensor_parallel_size=self.ranks, kv_transfer_config=transfer
        ).create_engine_config()
        self.config.cache_config.kv_cache_layout = layout
        self.config.cache_config.num_gpu_blocks = self.caches[0].blocks
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
            vllm_model.stand_in_for_backend(self.caches[0].latent)
            before = rank_host.threads()
            self.create(KVConnectorFactory.create_connector)
        if self.connector_name.startswith("Nixl"):
            rank_host.calm(before)

    def create(self, kind):
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

        call, layout, _ = self.arguments
        cache = vllm_model.cache_config(self.caches, call["memory"], layout, self.config)
        self.connector = kind(self.config, KVConnectorRole.WORKER, cache)
        self.layers = {name: tensor for group in self.caches for name, tensor in group.tensors(self.memories)}
        self.connector.register_kv_caches(self.layers)
        if self.rank == 0:
            self.scheduler = kind(self.config, KVConnectorRole.SCHEDULER, cache)

    def metadata(self):
        handshake = self.connector and self.connector.get_handshake_metadata()
        return {"handshake": b64encode(pickle.dumps(handshake)).decode()}

    def serve(self, handshakes):
        """The first rank: its answer to the handshakes of all ranks."""
        if not self.scheduler or None in (all_of := [pickle.loads(b64decode(text)) for text in handshakes]):
            return
        if hasattr(self.scheduler, "set_xfer_handshake_metadata_pp_aware"):
            self.scheduler.set_xfer_handshake_metadata_pp_aware({(0, rank): one for rank, one in enumerate(all_of)})
        else:
            self.scheduler.set_xfer_handshake_metadata(dict(enumerate(all_of)))

    def close(self):
        """Deletes what one side's ranks share and would leave. The connector's own resources end with the
        process, without its half a second of shutdown."""
        if not vllm_model.stands_in():
            from vllm.distributed import parallel_state

            parallel_state.destroy_model_parallel()
