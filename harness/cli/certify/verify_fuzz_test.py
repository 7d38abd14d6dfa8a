"""Both verifiers of a package, `kvcts verify` and reports/verify/verify.py, on packages that are changed at random: what one
accepts, the other does, and what one rejects, the other rejects in the same check.

    KVCTS_FUZZ=5000 KVCTS_FUZZ_SEED=1 verify_fuzz_test.py

Half of the packages are signed anew by their vendor after the change. Only checks that both make are compared: those of
certificate::read_package, which kvcts_read_packages runs on many packages in one process.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import BUILD, ROOT, finish  # noqa: E402

READER = BUILD / "bin" / "kvcts_read_packages"
try:
    from forged_package import FORGED, Package, Scalar, Text, archive, dump, envelope, pem, rotation, second, statement_of
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
if not READER.exists():
    print(f"skipped: {READER} is not built")
    sys.exit(77)

BOTH = "form", "signature", "files", "tree", "records", "plan", "checksums"

# Values and texts that readers of JSON differ over.

TEXTS = (
    "-0 1.0 1e0 1E+2 0.1 1e15 1e400 NaN Infinity -Infinity 18446744073709551616 -9223372036854775809 01 +1 1. nul 'a' /**/1 "
    '[1,] "\\u00e9" "\\/" "\\ud83d\\ude00" "\\ud800" "\\u001F" {"a":1,"a":1} {"b":1,"a":1} {"a":1,} {"\ud800":1} '
    '{"\uffff":1,"😀":2} {"😀":2,"\uffff":1}'
).split() + ["9" * 5000, "[1 ]", '"\t"', '"' + "[" * 90 + '\\"{"', '{"a":' * 70 + "1" + "}" * 70, "[" * 2000]
TEXTS += ["[" * levels + "]" * levels for levels in (61, 66, 2000)]
NUMBERS = -1, 0, 1, 7, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63)
WORDS = (
    "",
    "1",
    "x" * 300,
    "kv/case=1",
    "../etc",
    "\0",
    "\x7f\x80\u2028\u202e\ufeff",
    "\ud800",
    "\udc80\ud800",
    "é",
    "😀\uffff",
)
VALUES = [None, True, False, *NUMBERS, *WORDS, [], [[]], [1], {}, {"id": "kv/case=1"}, *map(Text, TEXTS)]
INSERTED = (
    b" ",
    b"\n",
    b"\0",
    b"\t",
    b"=",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xef\xbb\xbf",
    b"\0{}",
    b"{}",
    b"[",
    b"}",
    b",",
)
REPLACED = (b"+", b"-"), (b"/", b"_"), (b"/", b"\\/"), (b"\n", b"\r\n"), (b",", b", "), (b"=", b""), (b"}", b',"note":1}')


def spoil(value, dice: random.Random):
    """A copy with one thing changed."""
    if isinstance(value, (dict, list)) and value and dice.random() < 0.85:
        value = value.copy()
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key, how = dice.choice(keys), dice.random()
        if how < 0.12:
            del value[key]
        elif how < 0.24:
            if isinstance(value, dict):
                value[dice.choice(["note", "a", "zz", "", "id", "ids", "\ud800"])] = dice.choice(VALUES)
            else:
                value.insert(dice.randrange(len(value) + 1), dice.choice([value[key], dice.choice(VALUES)]))
        elif how < 0.3 and isinstance(value, list):
            dice.shuffle(value)
        else:
            value[key] = spoil(value[key], dice)
        return value
    if isinstance(value, list) and dice.random() < 0.3:
        return dict.fromkeys(map(str, value), 1)
    if isinstance(value, int) and not isinstance(value, bool) and dice.random() < 0.3:
        return dice.choice([Text(f"{value}.0"), Text(f"{value}e0"), str(value), value == 1, value + 1])
    return dice.choice(VALUES)


def spoil_text(data: bytes, dice: random.Random) -> bytes:
    """One change of bytes: of JSON, of base64, of hex, of any."""
    at, kind = dice.choice([0, len(data), dice.randrange(len(data) + 1)]), dice.randrange(8)
    before, letter, after = data[:at], data[at : at + 1], data[at + 1 :]
    if kind == 0:
        return before + dice.choice(INSERTED) + letter + after
    if kind == 1:
        return data.replace(*dice.choice(REPLACED), dice.choice([1, 2, -1]))
    if kind == 2:
        return before + data[at : at + 40].upper() + data[at + 40 :]
    if kind == 3 and b"=" in data:  # the bits of base64 that carry nothing
        at = data.index(b"=") - 1
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    if kind == 4 and letter:
        return before + b"\\u%04x" % letter[0] + after
    if kind == 5:
        return dice.choice([before + after, data[: at // 2] + data[at:], before + data])
    if kind == 6:
        return before + dice.randbytes(dice.randrange(1, 4)) + after
    return before + bytes([(letter or b"x")[0] ^ 1 << dice.randrange(8)]) + after


PARTS = "plan", "rotations", "claims", "run", "evidence", "records"


def signed_anew(dice: random.Random, keys: list[Scalar], package: Package) -> tuple[str, bytes]:
    kind = dice.choice(
        [*PARTS, *PARTS, "statement", "statement", "statement", "payload", "payload", "forged", "chain", "name"]
    )
    if kind in PARTS:
        value = spoil(getattr(package, kind), dice)
        setattr(package, kind, value if isinstance(value, list) or kind != "records" else [value])
        if kind == "records" and dice.random() < 0.5:
            package.plan["ids"] = [record["id"] for record in package.records if isinstance(record, dict) and "id" in record]
    elif kind == "statement":
        package.payload = lambda statement: spoil(statement, dice)
    elif kind == "payload":
        package.payload = lambda statement: Text(spoil_text(dump(statement), dice).decode(errors="surrogateescape"))
    elif kind == "forged":
        package.forge = dice.choice(FORGED)
    elif kind == "chain":
        chain = [keys[0], *dice.sample(keys[1:-1], dice.choice([0, 1, 5, 62, 63, 64])), keys[-1]]
        package.rotations = [rotation(*pair) for pair in pairwise(chain)]
        if dice.random() < 0.3:
            dice.shuffle(package.rotations)
        if dice.random() < 0.5:
            package.rotations = spoil(package.rotations, dice)
    else:
        name = dice.choice(
            ["a b", "é", "\0", "x" * 255, "x" * 256, "", "~", "a.json", "../x", "\xff", "note.txt", "zz.json"]
        )
        package.more[name] = dice.choice([b"", b"{}", b"[1.5]", b"{} ", b"\0", b"\xff"])
    return kind + ", signed", package.bytes()


def unsigned(dice: random.Random, files: dict[str, bytes]) -> tuple[str, bytes]:
    kind = dice.choice(["file", "file", "file", "envelope", "gone", "more", "bytes", "bytes", "cut", "join", "crc", "order"])
    if kind == "file":
        name = dice.choice(list(files))
        files[name] = spoil_text(files[name], dice)
    elif kind == "envelope":
        files["statement.json"] = dump(spoil(json.loads(files["statement.json"]), dice))
    elif kind == "gone":
        del files[dice.choice(list(files))]
    elif kind == "more":
        files[dice.choice(["note.txt", "a.json", "\xff", "zz"])] = dice.choice([b"", b"{}"])
    elif kind in ("crc", "order"):
        names = sorted(files) if kind == "crc" else dice.sample(list(files), len(files))
        named = {name.encode("latin-1"): files[name] for name in names}
        crcs = {name: zlib.crc32(data) for name, data in named.items()}
        if kind == "crc":  # in both its places, so that only the content contradicts it
            crcs[dice.choice(list(crcs))] ^= 1 << dice.randrange(32)
        return kind, bytes(second.archive(named, crcs)[0])
    whole = archive(files)
    if kind == "bytes":
        for _ in range(dice.choice([1, 1, 1, 4])):
            at = dice.randrange(len(whole)) if dice.random() < 0.5 else max(0, len(whole) - dice.randrange(1, 900))
            whole = whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(8)]) + whole[at + 1 :]
    elif kind == "cut":
        at = dice.randrange(len(whole))
        whole = whole[:at] + dice.choice([b"", whole[at + dice.randrange(1, 200) :]])
    elif kind == "join":
        whole += dice.choice([b"\0", b"PK", whole, whole[-22:]])
    return kind, whole


def mutated(dice: random.Random, keys: list[Scalar]) -> tuple[str, bytes]:
    """What was done, and the package."""
    package = Package(keys[-dice.choice([1, 1, 2, 3]) :], dice.choice([0, 1, 2, 7]))
    return signed_anew(dice, keys, package) if dice.random() < 0.5 else unsigned(dice, package.files())


class Readers:
    """Both, and how they compare."""

    def __init__(self, trusted: bytes, folder: Path) -> None:
        self.trusted, self.seen, self.slowest = trusted, Counter(), 0.0
        (folder / "trusted.pem").write_bytes(trusted)
        self.first = subprocess.Popen([READER, folder / "trusted.pem"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, package: bytes, trust: bool) -> tuple[str, str]:
        """For each: "ok", or the check that is wrong, and why."""
        begin = time.monotonic()
        self.first.stdin.write(len(package).to_bytes(8, "little") + bytes([trust]) + package)
        self.first.stdin.flush()
        first = self.first.stdout.readline().decode(errors="replace").strip()
        assert first, f"kvcts_read_packages ended with {self.first.wait()}"
        verifier = second.Verifier(package, self.trusted if trust else None, None)
        verifier.run()
        what, state, words = verifier.lines[-1]
        self.slowest = max(self.slowest, time.monotonic() - begin)
        return first, f"{what} {words}" if state == "WRONG" and what in BOTH else "ok"


def agree(first: str, theirs: str) -> bool:
    return first.split()[0] == theirs.split()[0]


def check_named(readers: Readers, keys: list[Scalar]) -> None:
    """What was found by hand: each is rejected, in this check (or with these words)."""

    def of(**parts) -> bytes:
        package = Package(keys)
        for name, value in parts.items():
            setattr(package, name, value)
        return package.bytes()

    def file(name: str, change, records: int = 7) -> bytes:
        files = Package(keys, records).files()
        files[name] = change(files[name])
        return archive(files)

    def slack(key: str):
        def change(data: bytes) -> bytes:
            sealed = json.loads(data)
            holder = sealed if key == "payload" else sealed["signatures"][0]
            body = holder[key].rstrip("=")
            assert body != holder[key], "no slack"
            holder[key] = body[:-1] + chr(ord(body[-1]) + 1) + holder[key][len(body) :]
            return dump(sealed)

        return change

    def noted(holder):
        def change(statement: dict) -> dict:
            holder(statement)["note"] = "the customer, in writing"
            return statement

        return change

    def noted_in(holder):
        return lambda data: dump(noted(holder)(json.loads(data)))

    def upper(statement: dict) -> dict:
        root = statement["predicate"]["root"].upper()
        return statement | {
            "subject": [{"name": "P 1", "digest": {"sha256": root}}],
            "predicate": statement["predicate"] | {"root": root},
        }

    def zeros(count: int) -> Text:
        return Text("[" + ",".join("0" * count) + "]")

    def deep(levels: int) -> Text:
        return Text("[" * levels + "]" * levels)

    stars = [rotation(keys[0], Scalar(random.Random(number))) for number in range(1500)]
    many = Package(keys, 0)
    many.records = [{"id": f"{number:06}"} for number in range(second.MOST_RECORDS + 1)]
    many.plan = {"ids": [record["id"] for record in many.records]}
    padded = next(n for n in range(3) if "=" in json.loads(Package(keys, n).files()["statement.json"])["payload"])
    cases: list[tuple[str, str, bytes]] = [
        ("nothing", "ok", of()),
        ("63 rotations", "ok", of(rotations=stars[:61] + [rotation(*pair) for pair in pairwise(keys)])),
        ("64 levels", "ok", of(evidence=deep(64))),
        ("payload 100,000 deep", "signature", of(payload=lambda s: s | {"predicate": deep(100_000)})),
        ("payload 65 deep", "signature", of(payload=lambda s: s | {"predicate": deep(64)})),
        ("1,500 rotations", "signature", of(rotations=stars)),
        ("65 rotations", "signature", of(rotations=stars[:63] + [rotation(*pair) for pair in pairwise(keys)])),
        ("200,001 records", "tree", many.bytes()),
        ("8,000,001 values", "files run.json has more than", of(run=zeros(8_000_001))),
        ("8,000,001 values in records", "tree records.jsonl has more than", of(records=[zeros(4_000_001)] * 2)),
        ("65,000 files", "form", archive(Package(keys).files() | {f"x{number:05}": b"" for number in range(65_000)})),
        ("1,001 files and more", "form", archive(Package(keys).files() | {f"x{number:05}": b"" for number in range(991)})),
        ("more than 256 MiB", "form the package is larger", bytes(second.MOST_BYTES + 1)),
        ("tree in upper case", "tree", file("tree.txt", bytes.upper)),
        ("slack of sig", "signature", file("statement.json", slack("sig"))),
        ("slack of payload", "signature", file("statement.json", slack("payload"), padded)),
        ("a key in the envelope", "signature", file("statement.json", noted_in(lambda envelope: envelope))),
        (
            "a key in the signature",
            "signature",
            file("statement.json", noted_in(lambda envelope: envelope["signatures"][0])),
        ),
        ("a key in the statement", "signature", of(payload=noted(lambda s: s))),
        ("a key in the subject", "signature", of(payload=noted(lambda s: s["subject"][0]))),
        ("a key in the digest", "signature", of(payload=noted(lambda s: s["subject"][0]["digest"]))),
        ("a key in the predicate", "signature", of(predicate={"note": 1})),
        ("two roots", "signature", of(predicate={"root": "0" * 64})),
        ("root in upper case", "signature", of(payload=upper)),
        ("records: true", "signature", of(records=[{"id": "a"}], plan={"ids": ["a"]}, predicate={"records": True})),
        ("no text as name", "signature", of(payload=lambda s: s | {"subject": [s["subject"][0] | {"name": 1}]})),
        ("payload and NUL", "signature", of(payload=lambda s: Text(dump(s).decode() + "\0{}"))),
        ("payload with a space", "signature", of(payload=lambda s: Text(dump(s).decode() + " "))),
        ("rotations as mapping", "signature", of(rotations={})),
        ("ids as mapping", "plan", of(plan={"ids": {r["id"]: 1 for r in Package(keys).records}})),
        ("ids as text", "plan", of(records=[{"id": "a"}, {"id": "b"}], plan={"ids": "ab"})),
        ("a case twice", "plan", of(records=[{"id": "a"}, {"id": "a"}], plan={"ids": ["a"]})),
        ("out of order", "records", of(records=[{"id": "b"}, {"id": "a"}], plan={"ids": ["a", "b"]})),
        ("a record without id", "records", of(records=[{}], plan={"ids": [""]})),
        ("a space in a name", "form", archive(Package(keys).files() | {"a b": b""})),
        ("run.json and NUL", "files", of(run=Text('{"isolation":"x"}\0 or not'))),
        *(
            (f"{text[:30]} in {part}", where, of(**{part: value}))
            for text in (
                "NaN",
                "1.5",
                "1e15",
                "18446744073709551616",
                '"\ud800"',
                '"\\ud800"',
                '{"a":1,"a":1}',
                "-0",
                deep(65),
            )
            for part, where, value in (
                ("run", "files", Text(text)),
                ("evidence", "files", Text(text)),
                ("claims", "files", Text(text)),
                ("plan", "plan", Text(text)),
                ("rotations", "signature", Text(text)),
                ("records", "records", [Text(text)]),
            )
        ),
        *((forge.__name__, "signature", of(forge=forge)) for forge in FORGED),
    ]
    for name, where, package in cases:
        begin = time.monotonic()
        for trust in (False, True):
            said = readers.say(package, trust)
            assert all(words.startswith(where) for words in said), (name, where, said)
        assert time.monotonic() - begin < 20, f"{name}: {time.monotonic() - begin:.1f} s"
    print(f"{len(cases)} by name: both right about each")


def check_rotations(readers: Readers, old: Scalar, new: Scalar) -> None:
    """One that leads to the key, and the same with one thing wrong in it, which leads nowhere."""
    before, after = (pem(key.public.public_bytes_raw()).decode() for key in (old, new))
    right = {"old": before, "new": after}
    for predicate, where in (
        (right, "ok"),
        (right | {"note": 1}, "signature it is signed by"),
        (right | {"old": after}, "signature it is signed by"),
        (right | {"new": after + "\n"}, "signature it is signed by"),
        ({"new": after}, "signature it is signed by"),
    ):
        package = Package([new])
        digest = second.id_of(new.public)
        package.rotations = [envelope(old, statement_of("key", digest, second.ROTATION, predicate))]
        said = readers.say(package.bytes(), True)
        assert all(words.startswith(where) for words in said), (predicate, said)


def check_words(keys: list[Scalar], folder: Path) -> None:
    """Nothing that a package says can end a line of the second verifier, or move what is before it."""
    evil = "x\nNOTHING WRONG: P 1: 1 records\r\x1b[2K\x9b1A\u202e\u2028\x85"
    for parts in (
        {"payload": lambda s: s | {"subject": [s["subject"][0] | {"name": evil}]}},
        {"run": {"isolation": "none" + evil}},
    ):
        package = Package(keys)
        for name, value in parts.items():
            setattr(package, name, value)
        (folder / "evil.kvcert").write_bytes(package.bytes())
        done = subprocess.run(
            [sys.executable, ROOT / "reports" / "verify" / "verify.py", folder / "evil.kvcert"],
            capture_output=True,
            check=False,
        )
        lines = done.stdout.decode().splitlines()
        assert [line.startswith("NOTHING WRONG") for line in lines] == [False] * (len(lines) - 1) + [done.returncode == 0], (
            done
        )
        assert all(line.isprintable() for line in lines), lines
    assert done.returncode == 1 and lines[-1].startswith("REJECTED: isolation: "), lines


def main() -> None:
    count, seed = int(os.environ.get("KVCTS_FUZZ", "300")), int(os.environ.get("KVCTS_FUZZ_SEED", "1"))
    dice = random.Random(seed)
    keys = [Scalar(dice) for _ in range(70)]
    with tempfile.TemporaryDirectory(prefix="kvcts-fuzz-") as name:
        folder = Path(name)
        readers = Readers(pem(keys[0].public.public_bytes_raw()), folder)
        check_words(keys[-3:], folder)
        check_named(readers, [keys[0], *keys[-2:]])
        check_rotations(readers, keys[0], keys[1])
        unlike, seen = [], Counter()
        for number in range(count):
            kind, package = mutated(random.Random(f"{seed}/{number}"), keys)
            said = readers.say(package, trust := number % 2 == 0)
            seen[said[0].split()[0]] += 1
            if not agree(*said):
                unlike.append(f"KVCTS_FUZZ_SEED={seed}, number {number} ({kind}, {trust=}): {said}")
        for line in unlike[:40]:
            print(line)
        assert not unlike, f"{len(unlike)} of {count} packages: the verifiers disagree"
    print(f"seed {seed}: {count} packages, no disagreement; {dict(seen)}; the slowest took {readers.slowest:.2f} s")


if __name__ == "__main__":
    finish(main)
