"""Writes the page from the measurements of kvcts_layout_ranking --json.

write_page.py NUMBERS.json PAGE.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

USES = {
    "prompt": (
        "Writing a prompt",
        "A prompt's K and V of one layer go into whole blocks of the pool, in an order that jumps: what "
        "`reshape_and_cache` does "
        "after prefill. Layouts that keep a token's heads together (NHD) are written as they come; others are written "
        "in pieces.",
    ),
    "token": (
        "Writing one token a request",
        "A decode step: one new token for each of up to 1024 requests, each in a block of its own. A token is small, "
        "so what "
        "counts is into how many places it is cut. Where channels are not contiguous a token touches as many cache "
        "lines as it has pieces.",
    ),
    "gather": (
        "Reading a context by its block table",
        "All tokens of one request, K and V of one layer, blocks in an order that jumps, into rows "
        "[token, head, channel]: how a decode kernel goes through the cache.",
    ),
    "heads": (
        "Cutting out half of the heads",
        "The upper half of the heads of all tokens and layers, into the same layout of a rank with twice the tensor "
        "parallelism. "
        "Layouts with heads outside of tokens (HND) have it in longer pieces.",
    ),
    "relayout": (
        "Changing the layout",
        "All of the cache into vLLM's FlashAttention layout `L x K B N H C`, or, for latents, into rows `L x B N C`: what a "
        "connector between two different backends does.",
    ),
}


def name(contender: dict) -> str:
    first, *others = contender["layouts"]
    return f"`{first}`" + (f" ({', '.join(others)})" if others else "")


def ranked(contenders: list[dict], use: str) -> list[dict]:
    """Fastest first, by the ratio to memcpy: speeds at different times are not comparable, alternating ratios are."""
    able = [c for c in contenders if "of_memcpy" in c["uses"][use]]
    return sorted(able, key=lambda c: -c["uses"][use]["of_memcpy"])


def kinds(result: dict) -> list[tuple[str, list[dict]]]:
    both = [
        ("K and V with heads", [c for c in result["contenders"] if not c["latent"]]),
        ("latents (MLA)", [c for c in result["contenders"] if c["latent"]]),
    ]
    return [(words, contenders) for words, contenders in both if contenders]


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def summary(result: dict) -> list[str]:
    rows = []
    for words, contenders in kinds(result):
        for use, (title, _) in USES.items():
            order = ranked(contenders, use)
            if order:
                first, last = order[0], order[-1]
                rows.append(
                    [
                        title,
                        words,
                        f"`{first['layouts'][0]}` ({first['uses'][use]['of_memcpy']:.2f})",
                        f"`{last['layouts'][0]}` ({last['uses'][use]['of_memcpy']:.2f})",
                    ]
                )
        fewest = min(contenders, key=lambda c: c["descriptors"]["block"])
        most = max(contenders, key=lambda c: c["descriptors"]["block"])
        rows.append(
            [
                "Naming a block in a transfer",
                words,
                *(
                    f"`{c['layouts'][0]}` ({c['descriptors']['block']:,} piece{'s'[: c['descriptors']['block'] - 1]})"
                    for c in (fewest, most)
                ),
            ]
        )
    return table(["use", "of", "fastest (of memcpy)", "slowest (of memcpy)"], rows)


def use_section(result: dict, use: str) -> list[str]:
    title, text = USES[use]
    lines = [f"## {title}", "", text, ""]
    for words, contenders in kinds(result):
        rows = []
        for place, c in enumerate(ranked(contenders, use), 1):
            speed = c["uses"][use]
            rows.append(
                [
                    str(place),
                    name(c),
                    f"`{c['template']}`",
                    c["dtype"],
                    f"{speed['bytes_per_second'] / 1e9:.2f}",
                    f"{speed['of_memcpy']:.2f}",
                    "not measured here",
                ]
            )
        if rows:
            lines += [f"### {words}", "", *table(["", "layout", "order", "dtype", "CPU GB/s", "of memcpy", "GPU"], rows)]
        without = [c for c in contenders if "why_not" in c["uses"][use]]
        for why in sorted({c["uses"][use]["why_not"] for c in without}):
            names = ", ".join(f"`{n}`" for c in without if c["uses"][use]["why_not"] == why for n in c["layouts"])
            lines += [f"Not in the table ({why}): {names}.", ""]
    return lines


def descriptor_section(result: dict) -> list[str]:
    lines = [
        "## Naming a block in a transfer",
        "",
        f"A transfer engine is given contiguous pieces (descriptors). So many name one block of all "
        f"{result['layers']} layers, and so many the upper half of its "
        "heads. Counted, not measured: it is the same on every machine. Fewer and longer pieces are cheaper on every "
        "engine.",
        "",
    ]
    for words, contenders in kinds(result):
        rows = []
        for c in sorted(contenders, key=lambda c: (c["descriptors"]["block"], c["descriptors"].get("half_heads", 0))):
            d = c["descriptors"]
            half = f"{d['half_heads']:,}" if "half_heads" in d else "one head"
            rows.append(
                [name(c), f"`{c['template']}`", c["dtype"], f"{d['block']:,}", f"{d['bytes'] // max(1, d['block']):,}", half]
            )
        lines += [
            f"### {words}",
            "",
            *table(["layout", "order", "dtype", "pieces a block", "bytes a piece", "pieces of half the heads"], rows),
        ]
    return lines


def trust(machine: dict) -> str:
    """How reliable the ranks are: other load on a machine changes single figures."""
    if machine["load"] <= machine["processors"] / 2:
        return "Differences below 0.1 say nothing."
    return (
        f"This machine was busy with other work (load {machine['load']:.0f} on {machine['processors']} processors): "
        f"between two such runs single figures "
        "moved by a factor of about 2, and first places changed hands. Read the tables as groups - near memcpy, half "
        "of it, a tenth of it - not as places, and "
        "measure again on a quiet machine before you decide on less. Pieces in a transfer are counted, and exact."
    )


def page(result: dict) -> str:
    machine = result["machine"]
    threads = f"{result['threads']} thread" + ("s" if result["threads"] != 1 else "")
    lines = [
        "<!-- needs build/bin/kvcts_layout_ranking -->\n# Which KV cache layout is fastest for what",
        "",
        "This page is for people who choose a layout, or a pair of them, for a system. No layout is best at "
        "everything: one that is written as tokens "
        "come is cut into pieces when a rank wants its heads, and the other way round. The tables rank the layouts of "
        "`cases/layouts/` for each use of a "
        "cache. A letter is an axis, outermost first: L layers, K the pair of K and V, B blocks, N tokens of a block, "
        "H heads, C channels; `L x` means one "
        "allocation a layer. Layouts whose bytes are in the same order are one row, whatever frameworks call them.",
        "",
        f"Executed on the CPU: {machine['cpu']}, {threads}, {machine.get('isa', '')}, {machine['date'][:10]}. "
        f"{result['tokens']:,} tokens in {result['layers']} layers; 8 heads of "
        "128 channels, blocks of 16 tokens and bf16 where the layout does not demand others. GPU: not measured here.",
        "",
        "*of memcpy* is the speed beside memcpy of as many bytes, the best of several turns each; 1.00 is as fast as "
        "memory is copied. Compare these ratios, not the "
        "GB/s. " + trust(machine),
        "",
        *summary(result),
        "To rank some of them on your machine (without `--quick`, which only shows that it runs):",
        "",
        "```console",
        "$ build/bin/kvcts_layout_ranking --layouts 'vllm-fa-*' --quick --rows 1 --json ranking.json",
        "2 layouts, 2 distinct orders of bytes; executed on the CPU, 1 thread; GPU: not measured here",
        "...",
        "gather: read a context by its block table, as attention does",
        "...",
        "$ harness/python/python harness/lab/ranking/write_page.py ranking.json ranking.md",
        "ranking.md: 2 distinct layouts ranked for 5 uses",
        "```",
        "",
    ]
    for use in USES:
        lines += use_section(result, use)
    lines += descriptor_section(result)
    for one in result["left_out"]:
        lines += [f"Left out: `{one['layout']}`: {one['why']}.", ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    if len(sys.argv) != 3:
        print(
            "expected two arguments: the JSON that kvcts_layout_ranking --json wrote, and the page to write", file=sys.stderr
        )
        return 2
    result = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(page(result))
    print(f"{sys.argv[2]}: {len(result['contenders'])} distinct layouts ranked for {len(USES)} uses")
    return 0


if __name__ == "__main__":
    sys.exit(main())
