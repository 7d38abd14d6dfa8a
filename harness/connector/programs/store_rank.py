"""One rank of one side with a key-value store of pages, a class of the user's ($KVCTS_STORE): the producer's puts the blocks
of each request, the consumer's, another process, asks whether they are there and gets them.

    class MyStore:
        def __init__(self, config): ...          # SimpleNamespace: below
        def put(self, key, page): ...            # or set(); a page is all layers of one block, contiguous, each layer's axes
                                                 # in the order in which they lie in the cache
        def get(self, key, page): ...            # fills the page and returns True, or returns another; False or None: a miss
        def exists(self, key): ...               # True or False
        def close(self): ...                     # if it has one

    config: folder (of the case, for both sides; also as file_path where the class takes that), dtype ("bfloat16"), layout
    (vLLM's name of the order of axes), page_size (tokens), page_shape, model_name, is_mla_model, tp_rank, tp_size

A key is the hash of a prompt's tokens up to the page's end, and nothing else: dtype, layout, sizes and rank are the store's
to keep apart, by config.

    engine_options of a case:
      twice         each page is put a second time, with the same bytes
      restart       the producer's process has ended before the consumer opens the store
      flipped       one bit of what was put is another one in its file
      lost          the folder is deleted before the consumer opens the store
      never_put     this many pages, from the end, are not put
      other_prompt  the consumer asks for pages of another prompt"""

import hashlib
import importlib
import inspect
import shutil
import types
from pathlib import Path

import rank_host
import template
import vllm_model


class Rank(rank_host.Rank):
    def __init__(self, call):
        self.place, self.options = call["place"], call["options"]
        self.producer, self.rank = self.place["role"] == "producer", self.place["rank"]
        self.memories = [rank_host.Memory(entry) for entry in call["memory"]]
        self.groups = [vllm_model.Group(call, self.place, number) for number in range(len(call["groups"]))]
        if len(self.groups) > 1:
            raise template.Refusal("a store of pages has one KV cache group")
        self.layers = dict(self.groups[0].tensors(self.memories))
        self.shared = Path(self.place["folder"]) / "shared"
        if self.producer:
            (self.shared / "store").mkdir(parents=True, exist_ok=True)

    def page(self, block):
        """The parts of a block: one a layer, in the order of layers, axes as they lie in memory."""
        for tensor, claim in zip(self.layers.values(), self.groups[0].claims):
            if "B" not in claim["axes"]:
                raise template.Refusal("the tensors have no dim of their own for blocks")
            part = tensor[(*(slice(None),) * claim["axes"].index("B"), block)]
            strides = [stride for axis, stride in zip(claim["axes"], claim["strides"]) if axis != "B"]
            order = sorted(range(len(strides)), key=lambda dim: -strides[dim])
            yield part.permute(order) if vllm_model.torch() else part.transpose(order)

    def empty(self):
        part = next(self.page(0))
        shape = (len(self.layers), *part.shape)
        torch = vllm_model.torch()
        return torch.zeros(shape, dtype=part.dtype) if torch else template.np.zeros(shape, part.dtype)

    def open(self):
        group = self.groups[0]
        folder = str(self.shared / "store")
        config = types.SimpleNamespace(
            folder=folder,
            dtype=group.dtype if group.cache_dtype == "auto" else group.cache_dtype,
            layout=group.layout,
            page_size=group.block_size,
            page_shape=tuple(self.empty().shape),
            model_name="kvcts",
            is_mla_model=group.latent,
            tp_rank=self.rank,
            tp_size=self.place["ranks"],
            extra_config={},
        )
        kind = getattr(importlib.import_module(self.options["module"]), self.options["connector"])
        named = {"file_path": folder} if "file_path" in inspect.signature(kind).parameters else {}
        self.store = kind(config, **named)

    def keys(self, told):
        chain, out = told["request"] + (" other" if self.options.get("other_prompt") and not self.producer else ""), []
        for number in range(len(told["groups"][0]["blocks"])):
            chain = hashlib.sha256(f"{chain} {number}".encode()).hexdigest()
            out.append(chain)
        return out

    def begin(self, number, requests):
        self.told = [told | {"request": f"{told['request']}-{number}"} for told in requests]
        self.flag, self.answer = f"put-{number}", None
        if not self.producer and self.rank == 0:
            self.shared.unlink(missing_ok=True)
            self.shared.symlink_to(Path(self.peer["folder"]) / "shared")

    def poll(self):
        if self.answer is None:
            self.answer = self.put() if self.producer else self.get()
        return self.answer

    def put(self):
        self.open()
        for told in self.told:
            keys, blocks = self.keys(told), told["groups"][0]["blocks"]
            kept = len(keys) - self.options.get("never_put", 0)
            for _ in range(2 if self.options.get("twice") else 1):
                if kept:
                    self.put_pages(keys[:kept], blocks[:kept])
        self.shut()
        (self.shared / f"{self.flag}-{self.rank}").touch()
        return {"state": "done"} | ({"leaves": True} if self.options.get("restart") else {})

    def get(self):
        there = [self.shared / f"{self.flag}-{rank}" for rank in range(self.peer["ranks"])]
        if not all(flag.exists() for flag in there) or self.options.get("restart") and not (self.shared / "gone").exists():
            return None
        if self.options.get("lost"):
            shutil.rmtree(self.shared / "store", ignore_errors=True)
            (self.shared / "store").mkdir()
        if self.options.get("flipped") and self.rank == 0:
            rank_host.flip(self.shared / "store")
        self.open()
        for told in self.told:
            if told["groups"][0]["blocks"]:
                self.get_pages(self.keys(told), told["groups"][0]["blocks"])
        self.shut()
        return {"state": "done"}

    def put_pages(self, keys, blocks):
        put = getattr(self.store, "put", None) or self.store.set
        for key, block in zip(keys, blocks):
            page = self.empty()
            for at, part in zip(page, self.page(block)):
                at[...] = part
            if put(key, page) is False:
                raise template.Refusal("the store does not take the page")

    def get_pages(self, keys, blocks):
        pages = []
        for key, block in zip(keys, blocks):
            page, said = self.empty(), self.store.exists(key)
            got = self.store.get(key, page) if said else None
            if got is None or got is False:  # before anything is written
                asked = "get" if said else "exists"
                raise template.Refusal(f"{asked}() says that the page of block {block} is not there")
            if got is not True and tuple(got.shape) != tuple(page.shape):
                raise RuntimeError(f"get() returned a page of {tuple(got.shape)}, expected {tuple(page.shape)}")
            pages.append((block, page if got is True else got))
        for block, page in pages:
            for at, part in zip(page, self.page(block)):
                part[...] = at

    def shut(self):
        if hasattr(self.store, "close"):
            self.store.close()
