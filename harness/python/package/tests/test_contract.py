"""pytest --kvcts-connector and --kvcts-store: a right class passes, each of its mutants fails in the case that is about its
fault, and a wrong name is one sentence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[4] / "reports" / "guide" / "python.md"
[SOURCE] = re.findall(r"```python file=file_connector.py\n(.*?)```", GUIDE.read_text(), re.S)

# Fault: what is replaced, with what, and the case that fails.
MUTANTS = {
    "files are named without a dtype": ("{of[0].dtype}-{of[1].cache_dtype}-", "", "contract/dtypes-differ"),
    "files are named without the number of ranks": ("-{of[2].tensor_parallel_size}", "", "contract/latents#tp-1-2"),
    "ranks share a file": ("-{self._vllm_config.parallel_config.rank}.npy", ".npy", "geometry=gqa-8/ptp=2/ctp=2"),
    "what is in the prefix cache counts as stored": (
        "max(0, stored * self.size - computed)",
        "stored * self.size",
        "contract/prefix",
    ),
    "a prefix shifts the blocks": (")[first:last]", ")[: last - first]", "contract/prefix"),
    "blocks that are not computed yet are saved": (
        "end = new.num_computed_tokens + scheduled.num_scheduled_tokens[new.req_id]",
        "end = len(new.prompt_token_ids)",
        "contract/chunked-prefill#mid-block",
    ),
    "all layers are saved with the first": (
        "np.save(self.path(name, layer), cache[block])",
        "[np.save(self.path(name, n), c[block]) for n, c in self.caches.items() if '.0.' in layer]",
        "contract/whole-blocks",
    ),
    "every prompt is stored": (
        "stored = next((n for n, name in enumerate(names) if not (self.folder / name).exists()), len(names))",
        "stored = len(names)",
        "contract/other-prompt",
    ),
    "a lost file is not told": ("return self.lost", "return set()", "contract/lost"),
    "blocks are kept for ever": (
        "    def wait_for_layer_load",
        "    def request_finished(self, request, blocks):\n        return True, None\n\n    def wait_for_layer_load",
        "contract/unasked",
    ),
}

LATE_SAVE = """        for name, block in self._get_connector_metadata().save:
            threading.Timer(0.3, self.late, [name, block]).start()

    def late(self, name, block):
        for layer, cache in self.caches.items():
            np.save(self.path(name, layer), cache[block])
        (self.folder / name).touch()
"""


def kit(folder: Path, subject: str, *argv: str, kind: str = "connector") -> str:
    """Output of a session with the kit alone."""
    environment = {k: v for k, v in os.environ.items() if k not in ("KVCTS_CONNECTOR", "KVCTS_STORE")}
    words = ["-m", "pytest", "-q", "-rfs", "-p", "no:cacheprovider", "-p", "kvcts.pytest_plugin"]
    done = subprocess.run(
        [sys.executable, *words, f"--kvcts-{kind}", subject, *argv],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_a_right_class_passes_and_declines_in_its_own_words(tmp_path):
    (tmp_path / "file_connector.py").write_text(SOURCE)
    said = kit(tmp_path, "file_connector:FileConnector")
    found = re.search(r"(\d+) passed, (\d+) skipped in", said)
    assert found and int(found[1]) > 60 and " failed" not in said, said
    assert "the connector says that it can load 0 tokens where 80 have been computed" in said


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_wrong_class_fails_where_its_fault_is(tmp_path, fault):
    before, after, case = MUTANTS[fault]
    assert before in SOURCE
    (tmp_path / "mutant.py").write_text("import threading\nimport time\n" + SOURCE.replace(before, after))
    said = kit(
        tmp_path, "mutant:FileConnector", "-k", case.replace("/", " and ").replace("#", " and ").replace("=", " and ")
    )
    assert f"FAILED ::{case}" in said or f"{case}/" in said and "FAILED" in said, said
    assert f"KVCTS_CONNECTOR={tmp_path}:mutant:FileConnector" in said and "kvcts repro" in said


def test_a_scheduler_half_that_raises_ends_the_engine_and_what_it_printed_is_shown(tmp_path):
    source = SOURCE.replace(
        "        last = first",
        "        print('allocated', first)\n        raise ValueError('no more')\n        last = first",
    )
    (tmp_path / "mutant.py").write_text(source)
    said = kit(tmp_path, "mutant:FileConnector", "-k", "lost")  # which expects a refusal
    assert "FAILED ::contract/lost - ValueError: no more (at mutant.py:" in said, said
    assert "Captured stdout (producer) call" in said and "allocated 0" in said and "Traceback (most recent" in said, said


def test_blocks_that_are_free_hold_something_else(tmp_path):
    """A save in the background, by a class that does not keep the blocks until it is over."""
    source = "import threading\n" + SOURCE[: SOURCE.index("        for name, _ in self._get")] + LATE_SAVE
    ask = "max(0, stored * self.size - computed)"
    source = source.replace(ask, f"None if stored < len(names) else {ask}")
    (tmp_path / "mutant.py").write_text(source)
    said = kit(tmp_path, "mutant:FileConnector", "-k", "contract and whole and blocks and not one")
    assert "FAILED ::contract/whole-blocks - 64" in said and "the producer said request_finished of r1" in said, said


HANDOFF = """
from pathlib import Path

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata


class Todo(KVConnectorMetadata):
    def __init__(self, load=(), save=()):
        self.load, self.save = list(load), list(save)


class Handoff(KVConnectorBase_V1):
    # Whole blocks of a request, tail and all; the producer's answer names them.

    def __init__(self, config, role, cache):
        super().__init__(config, role, cache)
        self.folder = Path(config.kv_transfer_config.get_from_extra_config("shared_storage_path", "."))
        self.size, self.loads, self.rank = config.cache_config.block_size, [], config.parallel_config.rank

    def request_finished(self, request, blocks):
        if not (request.kv_transfer_params or {}).get("do_remote_decode"):
            return False, None
        return False, {"name": request.request_id, "tokens": request.num_computed_tokens}

    def get_num_new_matched_tokens(self, request, computed):
        return max(0, (request.kv_transfer_params or {}).get("tokens", 0) - computed), False

    def update_state_after_alloc(self, request, blocks, tokens):
        if tokens:
            first = request.num_computed_tokens // self.size
            self.loads.append((request.kv_transfer_params["name"], first, blocks.get_block_ids()[0][first:]))

    def build_connector_meta(self, scheduled):
        todo, self.loads = Todo(self.loads), []
        for new in scheduled.scheduled_new_reqs:
            todo.save.append((new.req_id, 0, new.block_ids[0]))
        for name, ids, computed in zip(*(getattr(scheduled.scheduled_cached_reqs, key)
                                         for key in ("req_ids", "new_block_ids", "num_computed_tokens"))):
            todo.save.append((name, -(-computed // self.size), ids[0]))
        return todo

    def register_kv_caches(self, caches):
        self.caches = caches

    def path(self, name, number, layer):
        return self.folder / f"{name}-{number}-{layer}-{self.rank}.npy"

    def start_load_kv(self, context, **_):
        for name, first, blocks in self._get_connector_metadata().load:
            for number, block in enumerate(blocks, first):
                for layer, cache in self.caches.items():
                    cache[block] = np.load(self.path(name, number, layer))

    def wait_for_layer_load(self, layer): ...

    def save_kv_layer(self, layer, cache, attention, **_):
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, first, blocks in self._get_connector_metadata().save:
            for number, block in enumerate(blocks, first):
                np.save(self.path(name, number, layer), cache[block])

    def wait_for_save(self): ...
"""


def test_the_tail_of_a_last_block_may_travel_along(tmp_path):
    """Of a class that hands requests over whole, and by name."""
    (tmp_path / "handoff.py").write_text(HANDOFF)
    for chosen in ("contract and whole and blocks", "prefix and not chunked", "ids and not gqa and not cbs and not pbs"):
        said = kit(tmp_path, "handoff:Handoff", "-k", chosen)
        assert re.search(r"\d+ passed", said) and " failed" not in said, said


def test_a_class_that_does_nothing_does_not_pass(tmp_path):
    (tmp_path / "idle.py").write_text(
        SOURCE.replace("return max(0, stored * self.size - computed), False", "return 0, False")
    )
    said = kit(tmp_path, "idle:FileConnector", "-k", "whole and blocks")
    assert "FAILED ::contract/whole-blocks" in said, said


@pytest.mark.parametrize(
    "subject, says",
    [
        ("file_connector", "--kvcts-connector expects MODULE:CLASS, found 'file_connector'"),
        ("no_such_module:Class", "there is no module no_such_module in "),
        ("file_connector:Other", "has no attribute 'Other'"),
    ],
)
def test_a_wrong_name_is_one_sentence(tmp_path, subject, says):
    (tmp_path / "file_connector.py").write_text(SOURCE)
    said = kit(tmp_path, subject, "-k", "contract")
    assert says in said and "Traceback" not in said, said


STORE = """
import os
from pathlib import Path

import numpy as np


class FileStore:
    def __init__(self, config):
        self.folder, rank = Path(config.folder), 0 if config.is_mla_model else config.tp_rank
        shape = "x".join(map(str, config.page_shape))
        self.form = f"{config.dtype}-{config.layout}-{shape}-{rank}of{config.tp_size}"

    def path(self, key):
        return self.folder / f"{key}-{self.form}"

    def put(self, key, page):
        part = self.path(key).with_suffix(f".{os.getpid()}")
        part.write_bytes(page.tobytes())
        part.rename(self.path(key))

    def get(self, key, page):
        page[...] = np.fromfile(self.path(key), page.dtype)[: page.size].reshape(page.shape)
        return True

    def exists(self, key):
        return self.path(key).exists()
"""
STORES = {
    "files are named without a dtype": ("{config.dtype}-", "", "store/dtypes-differ", "dtypes and not fp8"),
    "files are named without a layout": (
        "{config.layout}-{shape}-",
        "",
        "store/layouts-differ#same-shape",
        "same and shape",
    ),
    "ranks share a file": ("-{rank}of{config.tp_size}", "", "store/ranks", "store and ranks and not tp and not latents"),
    "everything is there": ("return self.path(key).exists()", "return True", "store/never-put", "never and not none"),
    "half of a page is kept": (
        "part.write_bytes(page.tobytes())",
        "part.write_bytes(page.tobytes()[:-64] + bytes(64))",
        "store/put-get",
        "put-get",
    ),
    "the first page is returned": (
        "np.fromfile(self.path(key)",
        "np.fromfile(min(self.folder.iterdir())",
        "store/put-get",
        "put-get",
    ),
}


def test_a_right_store_passes(tmp_path):
    (tmp_path / "file_store.py").write_text(STORE)
    said = kit(tmp_path, "file_store:FileStore", kind="store")
    assert re.search(r"7\d passed", said) and " failed" not in said, said


@pytest.mark.parametrize("fault", STORES)
def test_a_wrong_store_fails_where_its_fault_is(tmp_path, fault):
    before, after, case, chosen = STORES[fault]
    assert before in STORE
    (tmp_path / "mutant.py").write_text(STORE.replace(before, after))
    said = kit(tmp_path, "mutant:FileStore", "-k", chosen, kind="store")
    assert f"FAILED ::{case}" in said and f"KVCTS_STORE={tmp_path}:mutant:FileStore" in said, said
