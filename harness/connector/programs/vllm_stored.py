"""One rank of a job with vLLM's ExampleConnector, which stores caches in files (safetensors, one per layer and prompt):
the producer's engine computes a prompt and saves it, the consumer's gets the same token ids and loads them. Both halves
are the real class, scheduler and worker.

    engine_options of a case, besides those of vllm_host.py:
      prompt        [producer's, consumer's]: tokens that each prompt has beyond the case's; default [1, 2],
                    because the connector saves whole blocks of a prompt without its last token, and looks for those of
                    one without its last two
      chunk         the producer's engine computed this many tokens of its prompt in the step that saves: chunked prefill
      saved         this many layers are in files when the consumer looks; the others never will be
      through       MultiConnector: each side's is one of two children, with separate folders; the consumer's first is empty
      full_graph    the consumer's step replays a full CUDA graph: its forward context has no attention metadata

What replaces the engine:
  - a step of its model runner: metadata bound, a load, for each layer a wait and a save, a wait for all saves; nothing is
    computed in between, and the following steps are left out;
  - requests and the scheduler's output are vLLM's own classes, block ids the suite's, token ids are drawn from the
    request's name;
  - the forward context: layers, and attention metadata without content (of MLA's class for latents);
  - the consumer starts when the producer's step is over; both use a folder of the producer's first rank as storage.
"""

import random
import types
from pathlib import Path

import template
import vllm_rank


class Rank(vllm_rank.Rank):
    def __init__(self, call):
        self.shared = Path(call["place"]["folder"]) / "shared"
        if call["place"]["role"] == "producer":
            self.shared.mkdir(exist_ok=True)
        super().__init__(call)

    def extra_config(self):
        if "through" not in self.options:
            return {"shared_storage_path": str(self.shared / "files")}
        children = ("first", "second") if self.producer else ("empty", "second")
        return {
            "connectors": [
                {
                    "kv_connector": self.connector_name,
                    "kv_role": "kv_both",
                    "kv_connector_extra_config": {"shared_storage_path": str(self.shared / name)},
                }
                for name in children
            ]
        }

    def schedules(self):
        return True

    def begin(self, number, requests):
        self.requests = [self.request(f"{told['request']}-{number}", told) for told in requests]
        if self.producer:
            self.scheduled = self.schedule()  # of all ranks, before one of them saves
        elif self.rank == 0:
            self.shared.unlink(missing_ok=True)
            self.shared.symlink_to(Path(self.peer["folder"]) / "shared")

    def request(self, name, told):
        """A request of this side's engine: its blocks, how many of its tokens are in the case, and how many of these
        are already in its cache."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        (group,), prefix, size = told["groups"], self.options.get("cached", []), self.caches[0].block_size
        tokens = told["tokens"] + len(prefix) * size
        more = self.options.get("prompt", (1, 2))[0 if self.producer else 1]
        drawn, params = random.Random(name), SamplingParams(max_tokens=1)
        params.update_from_generation_config({}, 2)
        request = Request(name, [drawn.randrange(64) for _ in range(tokens + more)], params, None)
        blocks, computed = (group["blocks"], 0) if self.producer else (prefix + group["blocks"], len(prefix) * size)
        if self.producer and "chunk" in self.options:
            blocks = blocks[: -(-self.options["chunk"] // size)]
        return types.SimpleNamespace(
            request=request, blocks=blocks or [0], tokens=tokens, computed=computed
        )  # an engine has a block for the shortest prompt

    def schedule(self):
        """What the scheduler half passes to the worker half for a step that schedules these requests for the first
        time."""
        from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput

        output = SchedulerOutput.make_empty()
        for one in self.requests:
            found, _ = self.scheduler.get_num_new_matched_tokens(one.request, one.computed)
            if not self.producer and found != (wanted := one.tokens - one.computed):
                text = f"the connector says that {found} tokens are in its files, where {wanted} have been computed"
                raise template.Refusal(text + ": the engine computes the others") if found < wanted else RuntimeError(text)
            self.scheduler.update_state_after_alloc(one.request, None, found)
            output.scheduled_new_reqs.append(NewRequestData.from_request(one.request, (one.blocks,)))
        return self.scheduler.build_connector_meta(output)

    def poll(self):
        if self.producer and self.scheduled:
            self.step(self.scheduled, self.options.get("saved", len(self.layers)))
            self.scheduled = None
            for one in self.requests:
                self.saved(one, self.rank).touch()
            return None if "saved" in self.options else {"state": "done"}
        if self.producer or not all(
            self.saved(one, rank).exists() for one in self.requests for rank in range(self.peer["ranks"])
        ):
            return None
        self.step(self.schedule(), len(self.layers))
        return {"state": "done"}

    def step(self, scheduled, layers):
        """A model runner's calls of the worker half in one step, up to that number of layers."""
        attention = (
            None
            if self.options.get("full_graph") and not self.producer
            else {name: self.attention(group.latent) for group in self.caches for name in group.names}
        )
        self.connector.bind_connector_metadata(scheduled)
        self.connector.start_load_kv(
            types.SimpleNamespace(
                attn_metadata=attention,
                no_compile_layers={name: types.SimpleNamespace(kv_cache=tensor) for name, tensor in self.layers.items()},
            )
        )
        for name, tensor in (
            list(self.layers.items())[:layers] if attention else ()
        ):  # without it, no layer calls the connector
            self.connector.wait_for_layer_load(name)
            self.connector.save_kv_layer(name, tensor, attention[name])
        if layers == len(self.layers):
            self.connector.wait_for_save()
        self.connector.clear_connector_metadata()

    @staticmethod
    def attention(latent):
        from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadata

        return MLACommonMetadata.__new__(MLACommonMetadata) if latent else types.SimpleNamespace()

    def saved(self, one, rank):
        return self.shared / f"{one.request.request_id}.{rank}"
