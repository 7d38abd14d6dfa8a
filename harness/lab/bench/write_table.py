"""Writes reports/results/benchmarks.md from what kvcts_bench and peers.py measured.

    write_table.py PAGE FILE.json...

Each file is one run: `kvcts_bench --json` or `peers.py --json`. The page states
machine and date of each run. A run on buffers that fit the caches (`kvcts_bench --size 1`) gets no table: it shows
how fast the arithmetic of rows below target is alone. Runs made with --quick are refused: their times mean nothing."""

import argparse
import collections
import json
import pathlib
import sys

CACHED = 2 << 20  # buffers up to this size stay in a processor's caches


def machine_line(run):
    m = run["machine"]
    return (
        f"Measured {m['date'][:10]} on {m['cpu']}, {m['processors']} processors, {m['memory_gib']} GiB, {m['os']}, "
        f"instruction set {m['isa']}, "
        f"compiler {m['compiler']}; load of the machine when the run began {m['load']}."
    )


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(" --- " if k == 0 else " ---: " for k in range(len(head))) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def amount(size):
    return f"{size >> 30} GiB" if size % (1 << 30) == 0 else f"{size >> 20} MiB"


def is_cached(run):
    return run["program"] != "peers.py" and bool(run["rows"]) and all(row["buffer_bytes"] <= CACHED for row in run["rows"])


def cached_speeds(runs):
    """With one thread: so little work is not worth several."""
    return {row["name"]: row["speed"] for run in runs if is_cached(run) for row in run["rows"] if row["threads"] == 1}


def reason(row, cached):
    """What is known about a row below target: its own explanation, and whether memory or arithmetic limits it."""
    words = [row["why"]] if row["why"] else []
    alone = cached.get(row["name"])
    if alone is not None:
        words.append(
            f"{row['speed'] / 1e9:.1f} GB/s, {row['against']} {row['reference_speed'] / 1e9:.1f}; with all buffers in "
            f"the caches one thread does {alone / 1e9:.1f}"
        )
    return "".join(f"; {part}" for part in words)


def rows_page(run, cached):
    """Kernels and their yardsticks: one column per setting."""
    settings = sorted({(row["buffer_bytes"], row["threads"]) for row in run["rows"]})
    by_name = collections.defaultdict(dict)
    for row in run["rows"]:
        by_name[row["name"]][row["buffer_bytes"], row["threads"]] = row
    head = ["kernel", "against", "target"] + [
        f"{amount(size)}, {threads} thread{'s' if threads > 1 else ''}" for size, threads in settings
    ]
    lines, short = [], []
    for name, found in by_name.items():
        one = next(iter(found.values()))
        cells = []
        for setting in settings:
            row = found.get(setting)
            if row is None:
                cells.append("")
                continue
            falls_short = row["target"] > 0 and row["ratio"] < row["target"]
            cells.append(f"**{row['ratio']:.2f}**" if falls_short else f"{row['ratio']:.2f}")
            if falls_short:
                short.append(
                    f"- `{name}`, {amount(setting[0])}, {setting[1]} thread{'s' if setting[1] > 1 else ''}: "
                    f"{row['ratio']:.2f} "
                    f"(wanted {row['target']:.2f}){reason(row, cached)}"
                )
        lines.append([f"`{name}`", one["against"], f"{one['target']:.2f}" if one["target"] else "", *cells])
    out = [
        "## Kernels beside their yardsticks\n",
        machine_line(run),
        "",
        "Ratio of speeds, median over turns of kernel and yardstick in one process on the same buffers; in bold what "
        "is below its target.\n",
        table(head, lines),
    ]
    out += [f"SKIPPED {amount(skip['buffer_bytes'])}: {skip['reason']}\n" for skip in run["skipped"]]
    if short:
        out += ["### Below target\n", "\n".join(short), ""]
    return "\n".join(out)


def peers_page(run):
    lines = [
        [
            row["name"],
            str(row["threads"]),
            f"{row['speed'] / 1e9:.2f}",
            f"{row['peer_speed'] / 1e9:.3f}",
            f"{row['ratio']:.1f}",
            str(row["target"]),
            "ok" if row["ratio"] >= row["target"] else "short",
        ]
        for row in run["rows"]
    ]
    out = [
        "## What people compare with today\n",
        machine_line(run),
        "",
        f"The same position-coded fp16 tensor of {run['mib']} MiB: kvcts regenerates and compares in place, the "
        f"others compare with a second copy.\n",
        table(["tool", "threads of kvcts", "kvcts GB/s", "tool GB/s", "ratio", "target", ""], lines),
    ]
    out += [f"{peer}: SKIPPED, {why}.\n" for peer, why in run["skipped"].items()]
    return "\n".join(out)


def page_of(run, cached):
    if run.get("quick"):
        sys.exit("write_table.py: a run made with --quick has no times to show; run kvcts_bench and peers.py without it")
    if run["program"] == "peers.py":
        return 2, peers_page(run)
    if not run["rows"]:
        sys.exit("write_table.py: a run without rows; see its `skipped`")
    return 1, rows_page(run, cached)


def page(runs):
    cached = cached_speeds(runs)
    parts = [text for _, text in sorted(page_of(run, cached) for run in runs if not is_cached(run) or run.get("quick"))]
    return "\n".join(
        [
            "# Benchmarks\n",
            "Numbers of `kvcts_bench` and `harness/lab/bench/peers.py`. Ratios within one run are what counts: kernel and "
            "yardstick take turns in one process on the same buffers.\n",
            *parts,
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("runs", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    options.page.write_text(page([json.loads(path.read_text()) for path in options.runs]))


if __name__ == "__main__":
    main()
