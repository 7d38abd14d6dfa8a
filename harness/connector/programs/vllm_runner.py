"""The model runner of vllm_engine.py, in every rank: its calls of a connector's worker half, and the suite's memory block by
block: what has not been computed yet, what is computed now, and blocks that another request has taken."""

import pickle
import time
import types
import zlib

import template
import vllm_model
import vllm_rank


PATIENCE = 20  # s; for the producer to give its blocks back, on a crowded machine


def write(file, thing):
    """Whole or not at all."""
    part = file.with_name(file.name + ".part")
    part.write_bytes(pickle.dumps(thing))
    part.rename(file)


class Runner(vllm_rank.Rank):
    def poll(self):
        if self.broken is None:
            try:
                self.follow()
                if self.answer is None:
                    self.schedule()
                    self.follow()
                return self.answer
            except Exception as error:
                self.broken, self.until = error, time.monotonic() + PATIENCE
                self.restore()
                write(self.shared / f"over-{self.job}", False)
        # The case ends with this answer: not before the producer's blocks are as they were.
        if self.producer or (self.shared / f"restored-{self.job}").exists() or time.monotonic() > self.until:
            raise self.broken
        return None

    def schedule(self):
        try:
            next(self.flow, None)
        except template.Refusal:
            raise
        except Exception as error:
            error.ends_engine = True  # no request of vLLM survives an exception of its scheduler
            raise

    def follow(self):
        while (file := self.steps / str(self.next)).exists():
            order, what = pickle.loads(file.read_bytes())
            answer = getattr(self, order)(**what)
            write(self.steps / f"{self.next}.{self.rank}", answer)
            self.next += 1

    def end(self, answer):
        self.answer = answer
        if answer["state"] == "done" and (changed := self.changed()):
            text = f"the KV cache of {changed[0]} changed after wait_for_layer_load() had returned for it"
            self.answer = {"state": "raised", "type": "LoadedTooLate", "text": text}

    def run(self, meta, layers, finished, computes):
        """A model runner's calls in one step: with a forward over that number of layers, or without one."""
        one, forward = self.connector, layers is not None
        graph = self.options.get("full_graph") and not self.producer
        attention = {name: self.attention(group.latent) for group in self.caches for name in group.names}
        if not forward or graph:
            attention = None
        if hasattr(one, "handle_preemptions"):
            one.handle_preemptions(meta)
        one.bind_connector_metadata(meta)
        modules = {name: types.SimpleNamespace(kv_cache=tensor) for name, tensor in self.layers.items()}
        one.start_load_kv(types.SimpleNamespace(attn_metadata=attention, no_compile_layers=modules))
        for name, tensor in list(self.layers.items())[:layers] if attention else ():  # else no layer calls the connector
            one.wait_for_layer_load(name)
            if not self.producer:
                has = len(self.options.get("cached", []))
                loaded = {request: first // self.size(0) - has for request, (first, _) in computes.items()}
                self.seen[name] = loaded, self.digest(name, loaded)
            self.compute(name, computes)
            one.save_kv_layer(name, tensor, attention[name])
        if layers in (None, len(self.layers)):
            one.wait_for_save()
        if hasattr(one, "get_transfer_results"):
            results = one.get_transfer_results(finished)
            sending, receiving, failed = results.finished_sending, results.finished_recving, results.failed_recving
        else:
            (sending, receiving), failed = one.get_finished(finished), ()
        answer = {
            "sending": set(sending or ()),
            "receiving": set(receiving or ()),
            "failed": set(failed or ()),
            "errors": set(one.get_block_ids_with_load_errors()),
            "meta": one.build_connector_worker_meta() if hasattr(one, "build_connector_worker_meta") else None,
        }
        one.clear_connector_metadata()
        return answer

    @staticmethod
    def attention(latent):
        if latent and not vllm_model.stands_in():
            from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadata

            return MLACommonMetadata.__new__(MLACommonMetadata)
        return types.SimpleNamespace()

    # ---- the suite's memory, block by block -------------------------------------------------------------------------
    def blocks_of(self, name, blocks):
        """The parts of a layer's tensor that these blocks are; none where the view has no dim of its own for blocks."""
        for number, group in enumerate(self.caches):
            if name in group.names and "B" in (axes := self.claim(name)["axes"]):
                at = (slice(None),) * axes.index("B")
                yield from (self.layers[name][(*at, block)] for block in blocks[number] if block < group.blocks)

    def mine(self, until=None):
        """Each request's blocks by group: those of the case; `until`: the first ones only, by request."""
        ends = until or {}
        return [[group["blocks"][: ends.get(name)] for group in told["groups"]] for name, told in self.told.items()]

    def compute(self, name, spans):
        """What the model computes of the prompts in a layer: what the suite had filled the producer's blocks with. The
        consumer's model has it from the producer's rank, which has published it."""
        for request, (first, end) in spans.items():
            if self.producer:
                self.reveal(name, request, first, end)
                continue
            block, prefix = first // self.size(0), len(self.options.get("cached", []))
            mine = self.told[request]["groups"][0]["blocks"][block - prefix :]
            if not mine or first >= end:
                continue
            for part, told in zip(self.blocks_of(name, [mine]), self.computed(name, request)[block:]):
                part[...] = vllm_model.like(part, told)

    def computed(self, name, request):
        """A layer's blocks as this rank's model computes them; a refusal where the producer's rank has none of that form."""
        file, axes = self.shared / f"computed-{self.job}-{self.rank}", self.axes(name)
        theirs, parts = pickle.loads(file.read_bytes())[name][request] if file.exists() else ([], [])
        form = next(self.blocks_of(name, [self.told[request]["groups"][0]["blocks"]])).shape
        if sorted(theirs) == sorted(axes) and self.peer["ranks"] == self.ranks:
            parts = [part.transpose([theirs.index(axis) for axis in axes]) for part in parts]
            if [part.shape for part in parts[:1]] == [tuple(form)]:
                return parts
        raise template.Refusal("the prompt is loaded in part, and the sides' caches are of unlike forms")

    def claim(self, name):
        return next(group.claims[group.names.index(name)] for group in self.caches if name in group.names)

    def axes(self, name):
        """Of one block in a layer's tensor."""
        return [axis for axis in self.claim(name)["axes"] if axis != "B"]

    def publish(self):
        """What this rank's model computed, for the tokens that the consumer's has to compute again."""
        out = {}
        for name in self.caches[0].names:
            out[name] = {
                request: (
                    self.axes(name),
                    [vllm_model.array_of(part) for part in self.blocks_of(name, [told["groups"][0]["blocks"]])],
                )
                for request, told in self.told.items()
            }
        write(self.shared / f"computed-{self.job}-{self.rank}", out)

    def digest(self, name, until=None):
        blocks = self.mine(until)
        return [zlib.crc32(vllm_model.bytes_of(part)) for one in blocks for part in self.blocks_of(name, one)]

    def changed(self):
        return [name for name, (until, digest) in self.seen.items() if self.digest(name, until) != digest]

    def let_go(self, requests, word):
        for name in requests:
            self.free(self.told[name], word)

    def hide(self):
        """Nothing of any prompt has been computed."""
        self.hidden = {}
        for name in self.layers:
            for request, told in self.told.items():
                blocks = [group["blocks"] for group in told["groups"]]
                self.hidden[name, request] = [(part, vllm_model.copy_of(part)) for part in self.blocks_of(name, blocks)]
                self.kept += self.hidden[name, request]
        for part, _ in self.kept:
            vllm_model.invert(part)
        for name, request in self.hidden:  # slots beyond a prompt's tokens are as they were
            self.reveal(name, request, self.tokens(self.told[request]), 1 << 40)

    def tokens(self, told):
        """Of a request: those of the case, and those of the prefix that the consumer has already."""
        if told["tokens"] is None:  # of `also`: whole blocks, of which the consumer may have all
            return max(map(len, told["groups"][0].values())) * self.caches[0].block_size
        return told["tokens"] + len(self.options.get("cached", [])) * self.caches[0].block_size

    def reveal(self, name, request, first, end):
        """These tokens of a request, in one layer."""
        size, axes = next(group.block_size for group in self.caches if name in group.names), self.axes(name)
        for number, (part, was) in enumerate(self.hidden[name, request]):
            slots = slice(max(first - number * size, 0), max(end - number * size, 0))
            at = (*(slice(None),) * axes.index("N"), slots) if "N" in axes else (slice(None) if slots.stop else slice(0),)
            part[at] = was[at]

    def keep(self, requests):
        for blocks in requests:
            for name in self.layers:
                for part in self.blocks_of(name, blocks):
                    self.kept.append((part, vllm_model.copy_of(part)))

    def restore(self):
        for part, was in self.kept:
            part[...] = was
        self.kept = []
