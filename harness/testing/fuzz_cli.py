"""Bad input, a thousand times: always one clear line and exit status 2 or 3 (or success, where a mutation did no harm),
never a signal.

    fuzz_cli.py [--mutations 1200] [--seed 1] [--only yaml,flags,...] [--jobs 2] [--program PATH]

Kinds of input: YAML of case files and of the catalogue, layout strings, case ids, axis expressions, HDF5 golden files
(with and without a manifest that knows the damage), run stores, command lines. A failure prints the seed and keeps the
input."""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kvtest import ROOT, Ended, kvcts, need_program

ODD = [
    "",
    "\0",
    "\n",
    "\r",
    "\t",
    "'",
    '"',
    "{",
    "}",
    "[",
    "]",
    ":",
    "#",
    "&a",
    "*a",
    "!!python/object",
    "%",
    "/",
    "..",
    "-1",
    "0",
    "1e400",
    "99999999999999999999",
    "-9223372036854775808",
    "NaN",
    "\u202e",
    "\ufffd",
    "é",
    "\x1b[31m",
    "x" * 3000,
    "(" * 400,
    "---",
    "...",
    "<<",
    "~",
]


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        if not out:
            break
        kind = rng.randrange(5)
        at = rng.randrange(len(out))
        if kind == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at] = rng.randrange(256)
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            end = min(len(out), at + rng.randrange(1, 64))
            del out[at:end]
        else:
            out[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 32)))
    return bytes(out)


def mutate_text(rng: random.Random, text: str) -> str:
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        kind = rng.randrange(6)
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.randrange(1, 12))
        if kind == 0:
            text = text[:at] + rng.choice(ODD) + text[at:]
        elif kind == 1:
            text = text[:at] + text[end:]
        elif kind == 2:
            text = text[:at] + rng.choice(ODD) + text[end:]
        elif kind == 3:
            text = text[:at]
        elif kind == 4:
            text = text + text[at:end] * rng.randrange(1, 5)
        else:
            lines = text.split("\n")
            rng.shuffle(lines)
            text = "\n".join(lines)
    return text


EDGES = [
    "0",
    "-1",
    str(2**31),
    str(2**32 + 1),
    str(10**12),
    str(2**63 - 1),
    str(2**64),
    "1e12",
    "nan",
    "[" + "0, " * 20000 + "0]",
]


def mutate_number(rng: random.Random, text: str) -> str:
    """One number of a file replaced by one at an edge."""
    at = rng.choice([m.span() for m in re.finditer(r"(?<=[ \[:,])-?\d+(?=[ ,}\]\n])", text)])
    return text[: at[0]] + rng.choice(EDGES) + text[at[1] :]


def argument(text: str) -> str:
    """What can be an argument of a program at all: no zero byte, and not an option by accident."""
    return text.replace("\0", "").lstrip("-") or "x"


@dataclass
class Attempt:
    argv: list[str]
    what: str
    keep: Path | None = None
    must_fail: bool = False
    statuses: tuple[int, ...] = ()  # those that are right, where a run may also end in any other way than as expected


class Fuzzer:
    def __init__(self, work: Path, rng: random.Random):
        self.work, self.rng, self.count = work, rng, 0
        self.cases = ROOT / "cases"
        self.case_files = sorted(p for kind in ("seeds", "crash", "faults") for p in (self.cases / kind).glob("*.yaml"))
        self.catalogue_files = sorted(p for p in self.cases.glob("*/*.yaml") if p not in self.case_files)
        self.layouts = [e["template"] for e in self.json("layouts")]
        self.ids = [c["id"] for c in self.json("list", "--suite", "smoke")["cases"]]
        self.golden_files = sorted((ROOT / "golden").glob("*.h5"))
        self.store: bytes | None = None

    @staticmethod
    def json(*argv: str):
        ended = kvcts(*argv, "--json")
        if ended.status != 0:
            raise SystemExit(f"FAILED: kvcts {' '.join(argv)} ended with {ended.status}: {ended.err}")
        return json.loads(ended.out)

    def place(self, suffix: str = "") -> Path:
        self.count += 1
        return self.work / f"{self.count}{suffix}"

    # ---- one function a kind of input ----

    def case_yaml(self) -> Attempt:
        path = self.place(".yaml")
        data = self.rng.choice(self.case_files).read_bytes()
        if self.rng.random() < 0.6:
            path.write_text(mutate_text(self.rng, data.decode()), errors="replace")
        else:
            path.write_bytes(mutate_bytes(self.rng, data))
        return Attempt(["list", "--file", str(path)], f"case file {path}", path)

    def case_numbers(self) -> Attempt:
        path = self.place(".yaml")
        documents = self.rng.choice(self.case_files).read_text().split("\n---\n")
        path.write_text(mutate_number(self.rng, self.rng.choice([d for d in documents if re.search(r"\d", d)])))
        return Attempt(
            ["run", "--file", str(path), "--out", str(self.place())],
            f"numbers of a case file {path}",
            path,
            False,
            (0, 1, 2, 5),
        )

    def catalogue_yaml(self) -> Attempt:
        folder = self.place()
        shutil.copytree(
            self.cases, folder, copy_function=lambda s, d: Path(d).symlink_to(s), ignore=shutil.ignore_patterns("oracles")
        )
        original = self.rng.choice(self.catalogue_files)
        broken = folder / original.relative_to(self.cases)
        broken.unlink()
        broken.write_bytes(
            mutate_text(self.rng, original.read_text()).encode(errors="replace")
            if self.rng.random() < 0.6
            else mutate_bytes(self.rng, original.read_bytes())
        )
        return Attempt(["--cases", str(folder), "list", "--suite", "smoke"], f"catalogue file {broken}", folder)

    def layout_string(self) -> Attempt:
        return Attempt(["layouts", argument(mutate_text(self.rng, self.rng.choice(self.layouts)))], "layout string")

    def case_id(self) -> Attempt:
        wrong = argument(mutate_text(self.rng, self.rng.choice(self.ids)))
        return Attempt(self.rng.choice([["explain", wrong], ["list", "--id", wrong]]), "case id")

    def expression(self) -> Attempt:
        right = self.rng.choice(
            ["dtype==bf16 && engine!=ucx", "arch >= sm_80 || !(geometry == small)", "producer in [vllm-fa-nhd]", "seed < 3"]
        )
        return Attempt(["list", "--suite", "smoke", "--where", argument(mutate_text(self.rng, right))], "axis expression")

    def hdf5(self) -> Attempt:
        folder = self.place()
        folder.mkdir()
        original = self.rng.choice(self.golden_files)
        manifest = json.loads((ROOT / "golden" / "MANIFEST.json").read_text())
        data = mutate_bytes(self.rng, original.read_bytes())
        (folder / original.name).write_bytes(data)
        entry = manifest["files"][original.name]
        # A manifest that knows the damaged file lets libhdf5 see it: the reader's process must take the blow.
        if known := self.rng.random() < 0.8:
            entry["sha256"] = hashlib.sha256(data).hexdigest()
            entry["bytes"] = len(data)
        manifest["files"] = {original.name: entry}
        (folder / "MANIFEST.json").write_text(json.dumps(manifest))
        dtype = self.rng.choice(sorted(entry["dtypes"]))
        must_fail = not known and data != original.read_bytes()
        return Attempt(
            ["golden", "--folder", str(folder), "show", original.stem, dtype], f"golden file {folder}", folder, must_fail
        )

    def manifest(self) -> Attempt:
        folder = self.place()
        folder.mkdir()
        (folder / "MANIFEST.json").write_bytes(
            mutate_text(self.rng, (ROOT / "golden" / "MANIFEST.json").read_text()).encode(errors="replace")
        )
        return Attempt(["golden", "--folder", str(folder), "list"], f"manifest {folder}", folder)

    def run_store(self) -> Attempt:
        if self.store is None:
            folder = self.work / "run"
            ended = kvcts("run", "--suite", "seeds", "--out", str(folder))
            if ended.status != 0:
                raise SystemExit(f"FAILED: the run that makes a store ended with {ended.status}: {ended.err}")
            self.store = (folder / "store.db").read_bytes()
        folder = self.place()
        folder.mkdir()
        (folder / "store.db").write_bytes(mutate_bytes(self.rng, self.store))
        return Attempt(
            self.rng.choice([["report", str(folder), "--json"], ["run", "--resume", str(folder)]]),
            f"run store {folder}",
            folder,
        )

    def command_line(self) -> Attempt:
        verbs = ["list", "run", "repro", "minimize", "dump", "explain", "doctor", "golden", "report", "schema", "layouts"]
        flags = [
            "--suite",
            "--id",
            "--where",
            "--draw",
            "--draw-seed",
            "--cover",
            "--shard",
            "--budget",
            "--file",
            "--resume",
            "--out",
            "-j",
            "--seed",
            "--require",
            "--hold",
            "--json",
            "--cases",
            "--rows",
            "--geometry",
            "--dtype",
        ]
        values = [o for o in ODD if "\0" not in o] + [
            "smoke",
            "nothing",
            "1/0",
            "0/0",
            "5/4",
            "-5",
            "1e9",
            "*",
            "verify",
            "[",
            "a==",
            "sm_90",
        ]
        # Never a full command line by accident that would start a long run: --shard 1/0 is wrong for every verb.
        argv = [self.rng.choice(verbs if self.rng.random() < 0.9 else ODD[4:])]
        for _ in range(self.rng.randrange(1, 5)):
            argv.append(self.rng.choice(flags) if self.rng.random() < 0.6 else self.rng.choice(values))
        return Attempt([a.replace("\0", "") for a in argv] + ["--shard", "1/0"], "command line", None, True)


KINDS = {
    "yaml": (Fuzzer.case_yaml, 4),
    "numbers": (Fuzzer.case_numbers, 3),
    "catalogue": (Fuzzer.catalogue_yaml, 3),
    "layouts": (Fuzzer.layout_string, 3),
    "ids": (Fuzzer.case_id, 2),
    "expressions": (Fuzzer.expression, 2),
    "hdf5": (Fuzzer.hdf5, 2),
    "manifest": (Fuzzer.manifest, 1),
    "stores": (Fuzzer.run_store, 2),
    "flags": (Fuzzer.command_line, 3),
}


def judge(attempt: Attempt) -> tuple[int | None, str | None]:
    """Exit status, and what is wrong with how the program took it (None: nothing)."""
    try:
        ended = kvcts(*attempt.argv, timeout=60)
    except subprocess.TimeoutExpired:
        return None, "no end within 60 s"
    return ended.status, fault_of(attempt, ended)


def fault_of(attempt: Attempt, ended: Ended) -> str | None:
    lines = ended.err.splitlines()
    if named := next((words for words in ("basic_string", "std::", "map::at", "vector::") if words in ended.err), None):
        return f"says {named}; {ended.err[-300:]!r}"
    if ended.status < 0:
        return f"ended by signal {-ended.status}; standard error: {ended.err[-300:]}"
    if attempt.statuses:
        if ended.status not in attempt.statuses or "bad_alloc" in ended.out + ended.err:
            return f"ended with {ended.status}; {(ended.err or ended.out)[-300:]!r}"
        return None
    if ended.status == 0 and not attempt.must_fail:
        return None
    if ended.status == 4 and not attempt.must_fail:  # a filter that is well formed and matches nothing
        return None if len(lines) == 1 else f"an empty selection is explained in {len(lines)} lines: {ended.err[:300]!r}"
    if ended.status not in (2, 3) and not (ended.status == 1 and attempt.argv[0] == "report"):
        return f"ended with {ended.status}, expected 2 or 3; standard error: {ended.err[:300]!r}"
    if ended.status == 1:
        return None
    if len(lines) != 1 or not lines[0].startswith("kvcts"):
        return f"status {ended.status} with {len(lines)} lines on standard error instead of one: {ended.err[:300]!r}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    need_program()
    chosen = {k: v for k, v in KINDS.items() if not args.only or k in args.only.split(",")}
    work = Path(tempfile.mkdtemp(prefix="kvcts-fuzz-"))
    fuzzer = Fuzzer(work, random.Random(args.seed))
    names = [name for name, (_, weight) in chosen.items() for _ in range(weight)]
    counts: Counter[str] = Counter()
    statuses: Counter[int | None] = Counter()
    failures = []
    batch_size = 64  # inputs are made in one thread (one seed, one order) and tried in several
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for start in range(0, args.mutations, batch_size):
            batch = []
            for i in range(start, min(start + batch_size, args.mutations)):
                name = names[i % len(names)]
                counts[name] += 1
                batch.append(chosen[name][0](fuzzer))
            for attempt, (status, problem) in zip(batch, pool.map(judge, batch)):
                statuses[status] += 1
                if problem:
                    failures.append(attempt)
                    print(f"FAILED {attempt.what}: kvcts {attempt.argv!r}\n  {problem}", flush=True)
                elif attempt.keep:
                    shutil.rmtree(attempt.keep) if attempt.keep.is_dir() else attempt.keep.unlink()
    print(
        f"seed {args.seed}: {sum(counts.values())} mutations ({', '.join(f'{n} {k}' for k, n in counts.items())}); "
        f"exit statuses {', '.join(f'{s}: {n}' for s, n in statuses.most_common())}; {len(failures)} failures"
        + (f"; the inputs are in {work}" if failures else "")
    )
    if not failures:
        shutil.rmtree(work)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
