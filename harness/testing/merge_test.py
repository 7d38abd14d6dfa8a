"""kvcts merge: merged shards of a suite equal the whole run except for times and workers; a merge that is killed leaves
nothing behind."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from kvtest import KVCTS, expect, finish, need_program

# Times, and what depends on which worker had a case at which moment. Cases that share an execution and are in different
# shards run once in each.
CHANGING = {
    "executions",
    "ns",
    "wall_ns",
    "phases",
    "peak_bytes",
    "worker",
    "worker_ordinal",
    "ran_before",
    "engine_claims",
    "case_ns",
    "started",
    "busy_ms",
    "sessions",
    "shared_with",
    "watched_ms",
    "host",
}
SHARDS = 3
SELECTION = ["--suite", "smoke", "--where", "engine != ucx-shm && engine != ucx-tcp"]


def steady(value):
    if isinstance(value, dict):
        return {key: steady(one) for key, one in value.items() if key not in CHANGING}
    return [steady(one) for one in value] if isinstance(value, list) else value


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def whole_and_shards(folder: Path) -> list[str]:
    parts = [folder / f"shard {k}" for k in range(1, SHARDS + 1)]
    for k, part in enumerate(parts, 1):
        expect(0, "run", *SELECTION, "--shard", f"{k}/{SHARDS}", "-j", "2", "--out", str(part))
    expect(0, "run", *SELECTION, "-j", "2", "--out", str(folder / "whole"))
    names = list(map(str, parts))
    expect(0, "merge", str(folder / "merged"), *reversed(names))
    merged, whole = results(folder / "merged"), results(folder / "whole")
    assert len(merged["results"]) > 300 and [r["id"] for r in merged["results"]] == [r["id"] for r in whole["results"]]
    different = [(a, b) for a, b in zip(steady(merged["results"]), steady(whole["results"])) if a != b]
    assert not different, different[0]
    assert steady(merged) == steady(whole), [
        (key, steady(merged)[key], steady(whole)[key]) for key in whole if steady(merged)[key] != steady(whole)[key]
    ][:2]
    assert [session["argv"][1] for session in merged["run"]["sessions"]] == ["run"] * SHARDS + ["merge"]
    return names


def by_time(folder: Path) -> None:
    """Shards that take equally long, whatever a run has written to the file since; of other times they are not merged."""
    times, later = folder / "times.json", folder / "later.json"
    select = ["--suite", "smoke", "--where", "engine == memcpy", "-j", "2"]
    expect(0, "run", *select, "--rotate", str(times), "--out", str(folder / "measured"))
    cases = json.loads(times.read_text())["cases"]
    for n, id in enumerate(sorted(cases)):
        cases[id][3] = 10**6 * (1 + n % 50) ** 2
    times.write_text(json.dumps({"format": "kvcts-rotation", "version": 1, "cases": cases}))
    cases[min(cases)][3] = 10**10
    later.write_text(json.dumps({"format": "kvcts-rotation", "version": 1, "cases": cases}))

    def shard(k: int, file: Path, name: str) -> str:
        out = str(folder / f"{name} {k}")
        expect(0, "run", *select, "--shard", f"{k}/3", "--shard-times", str(file), "--out", out)
        return out

    parts = [shard(k, times, "timed") for k in (1, 2, 3)]
    spent = [
        sum(json.loads(times.read_text())["cases"].get(r["id"], [0] * 4)[3] for r in results(Path(p))["results"])
        for p in parts
    ]
    assert max(spent) - min(spent) < 2500 * 10**6 and min(spent) > 0, spent
    expect(2, "merge", str(folder / "mixed"), *parts[:2], shard(3, later, "other"), err="found a cut by other times")
    # A shard that is resumed has its cases, not those that another cut would give it.
    times.write_text(later.read_text())
    expect(0, "run", "--resume", parts[2], says="already decided")
    expect(0, "merge", str(folder / "timed"), *parts)
    assert {r["id"] for r in results(folder / "timed")["results"]} == {
        r["id"] for r in results(folder / "measured")["results"]
    }


def wrong(folder: Path, names: list[str]) -> None:
    out = str(folder / "nothing")
    expect(2, "merge", out, *names[:2], err="shard 3 of 3 is missing")
    expect(2, "merge", out, *names, names[0], err="decided in")
    expect(2, "merge", out, str(folder / "whole"), err="found a whole run")
    expect(2, "merge", str(folder / "merged"), *names, err="found one with files in it")
    broken = Path(names[0]) / "store.db"
    kept = broken.read_bytes()
    broken.write_bytes(kept[: len(kept) // 2])
    expect(2, "merge", out, *names, err="damaged")
    broken.write_bytes(kept)
    assert not Path(out).exists()


def full(folder: Path, names: list[str]) -> None:
    """No room, at any size: one sentence, and nothing is left to fill the disk."""
    size = (folder / "merged" / "store.db").stat().st_size
    for room in (size // 50, size // 5, size // 2):
        out = folder / f"full {room}"
        ended = subprocess.run(
            [KVCTS, "merge", out, *names],
            capture_output=True,
            text=True,
            restore_signals=False,  # Python ignores SIGXFSZ
            preexec_fn=lambda room=room: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        )
        assert (
            ended.returncode == 3 and "free space and merge again" in ended.stderr and len(ended.stderr.splitlines()) == 1
        ), ended
        assert not out.exists() and not Path(f"{out}.merging").exists()


def killed(folder: Path, names: list[str]) -> None:
    """At any moment: either nothing is there, or the whole run."""
    chance = random.Random(1)
    for i in range(12):
        out = folder / f"killed {i}"
        merging = subprocess.Popen([KVCTS, "merge", out, *names], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.random() * 0.15)
        merging.kill()
        merging.wait()
        if not out.exists():
            expect(0, "merge", str(out), *names)
        expect(0, "report", str(out), "--out", str(out))
        assert steady(results(out)["results"]) == steady(results(folder / "merged")["results"])
        assert not Path(f"{out}.merging").exists()


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts merge ") as place:
        folder = Path(place)
        names = whole_and_shards(folder)
        wrong(folder, names)
        full(folder, names)
        killed(folder, names)
        by_time(folder)


if __name__ == "__main__":
    finish(main)
