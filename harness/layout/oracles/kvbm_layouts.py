"""cases/oracles/kvbm_layouts.json: the strides of Dynamo KVBM's block layouts, read from its source text.

    kvbm_layouts.py KV_BLOCK_LAYOUT.rs COMMIT > cases/oracles/kvbm_layouts.json

KV_BLOCK_LAYOUT.rs is lib/kvbm-physical/src/layout/kv_block_layout.rs of ai-dynamo/dynamo at COMMIT. Its dim_order()
gives the dims of a block from outermost to innermost; head_dim is innermost and implied. Blocks are outermost in a
FullyContiguous layout. LayerSeparate is not in that file: its strides are restated here from layer_separate.rs beside
it, at 08d8331 (later than COMMIT), for BlockIsFirstDim (region = page_size * inner_dim, outer = region, block = outer *
outer_dim) and an inner shape of NHD."""

import json
import re
import sys

SIZES = {"layers": 3, "blocks": 7, "outer": 2, "page": 4, "heads": 5, "head_dim": 8}
DIMS = {"Layer": "layers", "Outer": "outer", "Page": "page", "Head": "heads"}


def contiguous(order):
    strides, stride = {}, 1
    for dim in reversed([*order, "head_dim"]):
        strides[dim] = stride
        stride *= SIZES[dim]
    return strides


def main():
    text, commit = open(sys.argv[1]).read(), sys.argv[2]
    arms = re.findall(r"Self::(\w+) => Some\(\[(\w+), (\w+), (\w+), (\w+)\]\)", text)
    layouts = {f"FullyContiguous/{name}": contiguous(["blocks", *(DIMS[dim] for dim in dims)]) for name, *dims in arms}
    if len(layouts) != 4:
        raise SystemExit(f"expected four layouts with a dim order, found {sorted(layouts)}")
    region = SIZES["page"] * SIZES["heads"] * SIZES["head_dim"]
    separate = contiguous(["page", "heads"]) | {"outer": region, "blocks": region * SIZES["outer"]}
    layouts["LayerSeparate/OperationalNHD"] = separate
    json.dump({"project": "Dynamo KVBM", "commit": commit, "sizes": SIZES, "strides": layouts}, sys.stdout, indent=1)
    print()


main()
