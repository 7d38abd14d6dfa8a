"""The shapes and strides that the attention backends of the installed vLLM report, as JSON, or compared with a file of
cases/oracles/.

    vllm_shapes.py [--check cases/oracles/vllm_shapes_0.33.0.json]

Runs in an environment with vLLM and torch for the CPU (run_suite.sh --with vllm). Up to 0.27.1: get_kv_cache_shape and
get_kv_cache_stride_order of every importable backend class. 0.33.0 has no such functions: the layouts, the views that
create_kv_cache_views makes, and the layouts that each backend supports. A class that fails to import is retried with
empty stand-ins for missing packages. What imports only here, or only where the file was made, is reported and does not
count as a difference. Exits with 1 if anything differs."""

import argparse
import contextlib
import importlib
import importlib.metadata
import importlib.util
import io
import itertools
import json
import os
import re
import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "connector" / "programs"))
import vllm_model  # noqa: E402

BLOCKS, BLOCK_SIZE, HEADS, HEAD_SIZE, LATENT = 7, 16, 3, 64, 576
STRINGS = ("auto", "bfloat16", "fp8", "fp8_e5m2")
STAND_INS = ("flashinfer", "vllm._C", "vllm._rocm_C", "aiter", "triton_kernels")


def said(function, *arguments, **named):
    """The answer, or the error in words."""
    try:
        out = function(*arguments, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:120]
    return list(out) if isinstance(out, tuple) else out


class Empty(mock.MagicMock):
    """A missing module: has every attribute, and none of them does anything."""

    __path__ = []
    __spec__ = None
    __all__ = []


def imported(module):
    """The module, or its error in words; the second try uses stand-ins."""
    for again in (False, True):
        lack = {name: Empty() for name in STAND_INS if again and name not in sys.modules}
        try:
            with mock.patch.dict(sys.modules, lack) if again else contextlib.nullcontext():
                found = importlib.import_module(module)
                if again:
                    print(f"{module} was imported with empty stand-ins", file=sys.stderr)
                return found
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
    return words


def modules_with(pattern):
    """Names of vLLM's modules whose text matches the pattern."""
    root = Path(importlib.util.find_spec("vllm").submodule_search_locations[0])
    for path in sorted(root.rglob("*.py")):
        if re.search(pattern, path.read_text(errors="replace")):
            yield ".".join(("vllm", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")


def orders(backend, **named):
    out = {}
    for hint in ("NHD", "HND"):
        os.environ["VLLM_KV_CACHE_LAYOUT"] = hint
        utils = sys.modules.get("vllm.v1.attention.backends.utils")
        if forget := getattr(getattr(utils, "get_kv_cache_layout", None), "cache_clear", None):
            forget()
        out[hint] = said(backend.get_kv_cache_stride_order, **named)
    return out


def shapes(backend):
    """{dtype string: shape}, with the sizes of latents if the class accepts no others."""
    for sizes in ((HEADS, HEAD_SIZE), (1, LATENT)):
        out = {text: said(backend.get_kv_cache_shape, BLOCKS, BLOCK_SIZE, *sizes, cache_dtype_str=text) for text in STRINGS}
        latent = said(backend.is_mla) is True or ".mla" in backend.__module__ or "deepseek" in backend.__module__
        if latent == (sizes[0] == 1):
            return out


def classes():
    """{module.class: facts} of the releases that have the functions."""
    from vllm.v1.attention.backend import AttentionBackend

    out = {}
    for module in modules_with(r"class \w+Backend\b.*:"):
        found = imported(module)
        for cls in [] if isinstance(found, str) else vars(found).values():
            if isinstance(cls, type) and issubclass(cls, AttentionBackend) and cls.__module__ == module:
                facts = {"shape": shapes(cls)}
                facts |= {f"stride_order_{hint}": order for hint, order in orders(cls).items()}
                facts |= {
                    f"stride_order_layers_{hint}": order
                    for hint, order in orders(cls, include_num_layers_dimension=True).items()
                }
                out[f"{module}.{cls.__name__}"] = facts
    return out


def views():
    """{spec dtype layout: facts} of the views that 0.33.0 makes of two layers."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheTensor, MLAAttentionSpec, create_kv_cache_views
    from vllm.v1.kv_cache_layout import KVCacheLayout

    out = {}
    for spec, dtype, name in itertools.product(
        ("full", "mla"),
        (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.uint8),
        ("LBHNC", "LBNHC", "BLHNC", "BLNHC"),
    ):
        heads, size, kind = (1, LATENT, MLAAttentionSpec) if spec == "mla" else (HEADS, HEAD_SIZE, FullAttentionSpec)
        made = kind(block_size=BLOCK_SIZE, num_kv_heads=heads, head_size=size, dtype=dtype)
        page = made.page_size_bytes
        layer, block = (BLOCKS * page, page) if name.startswith("L") else (page, 2 * page)
        raw = torch.zeros(2 * BLOCKS * page, dtype=torch.int8)
        whole = KVCacheTensor(size=raw.numel(), layers=["a", "b"], layer_stride=layer, block_stride=block, offset=0)
        first, second = create_kv_cache_views(raw, made, BLOCKS, KVCacheLayout[name], whole)
        out[f"{spec} {dtype} {name}"] = {
            "page_bytes": page,
            "shape": list(first.shape),
            "stride": list(first.stride()),
            "layer1_offset_elems": second.storage_offset() - first.storage_offset(),
        }
    return out


def supported():
    """{enum name: the layouts that the backend supports} for the importable ones."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    out = {}
    for member in AttentionBackendEnum:
        if not member.value:
            continue
        module, name = member.value.rsplit(".", 1)
        found = imported(module)
        if not isinstance(found, str):
            layouts = getattr(found, name).supported_kv_cache_layouts()
            out[member.name] = layouts if layouts is None else [layout.name for layout in layouts]
    return out


def regenerate():
    try:
        from vllm.v1.kv_cache_layout import KVCacheLayout
    except ImportError:
        return {"backends": classes()}
    return {
        "layouts": {layout.name: list(layout.value) for layout in KVCacheLayout},
        "views": views(),
        "supported": supported(),
    }


def stored(file):
    """The same facts as in the file."""
    if "layouts" not in file:
        facts = ("shape", *(f"stride_order_{more}{hint}" for more in ("", "layers_") for hint in ("NHD", "HND")))
        return {
            "backends": {
                f"{b['module']}.{b['class']}": {key: b[key] for key in facts if key in b}
                for b in file["backends"]
                if isinstance(b.get("shape"), dict)
            }
        }
    views = {
        f"{v['spec']} {v['dtype']} {v['layout']}": {
            key: v[key] for key in ("page_bytes", "shape", "stride", "layer1_offset_elems")
        }
        for v in file["views"]
    }
    return {
        "layouts": file["layouts"],
        "views": views,
        "supported": {
            b["enum"]: b["supported_kv_cache_layouts"] for b in file["backends"] if "supported_kv_cache_layouts" in b
        },
    }


def read(path, version):
    """The facts of a file, or one line that says what is wrong with it."""
    try:
        file = json.loads(path.read_text())
        of, facts = file["vllm"], stored(file)
        if any(not isinstance(table, dict) for table in facts.values()):
            raise TypeError("a table of facts is no mapping")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        sys.exit(f"vllm_shapes.py: {path} is no file of shapes as in cases/oracles: {type(error).__name__}: {error}")
    if of != version:
        sys.exit(f"vllm_shapes.py: {path} is of vLLM {of}, and {version} is installed")
    return facts


def words(fact):
    """Only an error's kind counts: its words name this machine's packages."""
    if isinstance(fact, dict):
        return {key: words(value) for key, value in fact.items()}
    return fact.split(":")[0] if isinstance(fact, str) else fact


def compare(here, there):
    """(facts that agree, lines that differ, lines that only one side has)"""
    agree, differ, alone = 0, [], []
    for table in here.keys() | there.keys():
        mine, theirs = here.get(table, {}), there.get(table, {})
        for name in sorted(mine.keys() | theirs.keys()):
            if name not in mine or name not in theirs:
                alone.append(f"{table} {name}: only {'here' if name in mine else 'in the file'}")
            elif words(mine[name]) == words(theirs[name]):
                agree += 1
            else:
                differ.append(f"{table} {name}: here {mine[name]}, in the file {theirs[name]}")
    return agree, differ, alone


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=Path, help="a file of cases/oracles/ of the same version")
    args = parser.parse_args()
    version = importlib.metadata.version("vllm").removesuffix("+cpu")
    kept = read(args.check, version) if args.check else None
    vllm_model.stand_in_for_platform()
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    with contextlib.redirect_stdout(io.StringIO()):
        facts = regenerate()
    if not args.check:
        print(json.dumps({"vllm": version, **facts}, indent=1, default=str))
        return 0
    agree, differ, alone = compare(facts, kept)
    print(
        *differ,
        *alone,
        f"vLLM {version}: {agree} entries agree, {len(differ)} differ, {len(alone)} are on one side only",
        sep="\n",
    )
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
