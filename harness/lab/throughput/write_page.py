"""Measures the cost of the transport ABI, each engine in a separate process, and writes its page. Use a quiet machine.

write_page.py [--build build] [--page build/pages/engine-throughput.md] [--turns 31] [--seconds 0.1] [--engine NAME]...
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Engine -> the loop to compare it with.
ENGINES = {
    "memcpy": "copy",
    "shm": "copy",
    "ucx-shm": "ucx",
    "ucx-tcp": "ucx",
    "nixl-tcp": "nixl",
    "nixl-cma": "nixl",
    "nixl-1.2-tcp": "nixl",
    "nixl-1.2-cma": "nixl",
    "mooncake": "mooncake",
    "mooncake-0.3.12": "mooncake",
}
NOT_HERE = 77  # exit status: the engine cannot run on this machine
GOAL = 0.95
HEAD = """# What the transport ABI costs

The same list of descriptors, permuted, written through the plug-in as a worker drives it (prepared once, posted again and
again) and by a minimal loop of the engine's own calls (`harness/lab/throughput/direct_*.cpp`), in turns within one process
and against one target, which is the plug-in's in both. The ratio is the median of {turns} turns' ratios; the goal is {goal},
what is below it is in bold. The plug-in does more than the loop: it counts bytes and descriptors, looks at the path that was
taken, and waits with growing patience where the loop spins. So where processes have to share a processor the plug-in may be
the faster one: it makes room for the target.

    harness/lab/throughput/write_page.py     # a quiet machine; writes this page

{kept}. Measured {date} on {cpu}, {processors} processors, load when it began {load}. Rates are of this machine and loopback,
and say nothing of the engines.

"""


def machine() -> dict[str, str]:
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown",
    )
    return {
        "cpu": cpu,
        "processors": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.2f}",
        "date": time.strftime("%Y-%m-%d"),
        "goal": str(GOAL),
    }


def amount(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--page", type=Path, default=ROOT / "build" / "pages" / "engine-throughput.md")
    parser.add_argument("--turns", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.1, help="that a turn lasts at least")
    parser.add_argument("--engine", action="append", choices=ENGINES)
    options = parser.parse_args()
    where = machine()  # before the load is ours
    rows, missing, kept, broken = [], [], 0, False
    for engine in options.engine or ENGINES:
        argv = [
            options.build / "bin" / f"kvcts-engine-throughput-{ENGINES[engine]}",
            engine,
            "--cases",
            ROOT / "cases",
            "--turns",
            str(options.turns),
            "--seconds",
            str(options.seconds),
        ]
        if not argv[0].exists():
            missing.append(f"- `{engine}`: {argv[0].name} was not built")
            continue
        done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
        print(f"{engine}: {done.returncode}", file=sys.stderr, flush=True)
        if done.returncode != 0:
            why = [f"ended with {done.returncode}", *done.stderr.strip().splitlines()][-1]
            missing.append(f"- `{engine}`: {why}")
            broken |= done.returncode != NOT_HERE
            continue
        one = json.loads(done.stdout[done.stdout.index("{\n") :])  # UCX warns on standard output, too
        for row in one["rows"]:
            good = row["ratio"] >= GOAL
            kept += good
            rows.append(
                f"| `{one['engine']}` {one['version']} | {row['count']:,} x {amount(row['bytes'])} | "
                f"{row['direct'] / 1e9:.2f} GB/s | "
                f"{row['abi'] / 1e9:.2f} GB/s | {'' if good else '**'}{row['ratio']:.2f}{'' if good else '**'} |\n"
            )
    text = HEAD.format(**where, turns=options.turns, kept=f"{kept} of {len(rows)} lists keep the goal")
    text += "| engine | list | direct | through the ABI | ratio |\n| --- | --- | ---: | ---: | ---: |\n" + "".join(rows)
    if missing:
        text += "\nNot measured:\n\n" + "\n".join(missing) + "\n"
    options.page.write_text(text)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
