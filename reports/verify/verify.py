#!/usr/bin/env python3
"""Check a package of `kvcts certify` again, with none of the suite's code: standard library and `cryptography` only.

    verify.py X.kvcert [--key vendor.pem] [--challenge challenge.json]

It checks what follows from the package's own bytes, and lists what only the suite can check (`kvcts verify`).
Exit status: 0 nothing is wrong, 1 something is, 2 a file cannot be read.

A package is a zip archive with no freedom left (names in order, nothing compressed, no times), read by rebuilding it:
statement.json (an in-toto Statement in a DSSE envelope), key.pem, rotations.json, plan.json, records.jsonl, tree.txt
(SHA-256 leaves as in RFC 9162, 2.1), and files of which the statement holds the SHA-256. JSON has one form as well:
sorted keys, no spaces, UTF-8, integers of 64 bits, 64 levels.
"""

import argparse
import base64
import hashlib
import json
import re
import struct
import sys
import zlib
from collections import Counter
from functools import cache
from itertools import accumulate
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

CERTIFICATE, ROTATION = "urn:kvcts:certificate:1", "urn:kvcts:key-rotation:1"
PAYLOAD, STATEMENT = "application/vnd.in-toto+json", "https://in-toto.io/Statement/v1"
OWN = "statement.json", "key.pem", "rotations.json", "plan.json", "records.jsonl", "tree.txt"
NOT_HERE = "suite", "profile", "planned", "cases", "digests"
# Before memory is taken.
MOST_BYTES, MOST_FILES, MOST_RECORDS, MOST_VALUES, MOST_ROTATIONS, DEEPEST = 256 << 20, 1000, 200_000, 8_000_000, 64, 64
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493  # of Ed25519 (RFC 8032, 5.1)


class Wrong(Exception):
    pass


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def clean(words) -> str:
    """Words of a package, without what a terminal obeys: control characters, ends of lines, changes of direction."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(words)[:400])


def archive(files: dict[bytes, bytes], crcs: dict[bytes, int]) -> tuple[bytes, list[tuple[int, str]]]:
    """Their one form, and what begins where in it."""
    out, directory, places = bytearray(), bytearray(), []
    for name, data in files.items():
        facts = struct.pack("<HHHHHIIIHH", 20, 0x0800, 0, 0, 0x0021, crcs[name], len(data), len(data), len(name), 0)
        place = struct.pack("<HHHII", 0, 0, 0, 0o100644 << 16, len(out))
        directory += struct.pack("<IH", 0x02014B50, 0x0314) + facts + place + name
        places.append((len(out), "the head of " + name.decode(errors="replace")))
        out += struct.pack("<I", 0x04034B50) + facts + name
        places.append((len(out), name.decode(errors="replace")))
        out += data
    places.append((len(out), "the directory at its end"))
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, len(files), len(files), len(directory), len(out), 0)
    out += directory + end
    return out, places


def read_archive(data: bytes) -> tuple[dict[str, bytes], str]:
    """The files, and of which the archive's checksum is another than that of its content."""
    if len(data) > MOST_BYTES:
        raise Wrong("the package is larger than 256 MiB")
    files: dict[bytes, memoryview] = {}
    crcs, at, last = {}, 0, b""
    while len(data) - at >= 30 and data[at : at + 4] == b"PK\x03\x04":
        crc, size, _, name_size = struct.unpack_from("<IIIH", data, at + 14)
        body = at + 30 + name_size
        if body + size > len(data):
            raise Wrong(f"the package ends too early, or a size in byte {at + 18} is wrong")
        name = data[at + 30 : body]
        if len(files) == MOST_FILES:
            raise Wrong("the package has more than 1,000 files")
        if files and name <= last:
            raise Wrong(f"the files of the package are not in order at '{name[:80].decode(errors='replace')}', byte {at}")
        files[name], crcs[name] = memoryview(data)[body : body + size], crc
        at, last = body + size, name
    if not files:
        raise Wrong("expected a package, found something else")
    right = {name: zlib.crc32(content) for name, content in files.items()}
    if archive(files, crcs)[0] != data:
        expected, places = archive(files, right)
        offset = next((i for i, (a, b) in enumerate(zip(expected, data)) if a != b), min(len(expected), len(data)))
        place = [name for start, name in places if start <= offset][-1]
        raise Wrong(
            f"byte {offset} of the package is not what it must be: {'behind its end' if offset >= len(expected) else place}"
        )
    if not all(re.fullmatch(rb"[!-~]{1,255}", name) for name in files):
        raise Wrong("the name of a file of the package is not 1 to 255 printable characters")
    unlike = [name.decode() for name in files if right[name] != crcs[name]]
    return {name.decode(): bytes(content) for name, content in files.items()}, (unlike + [""])[0]


def integer(digits: str) -> int:
    if -(1 << 63) <= (value := int(digits)) < 1 << 64:
        return value
    raise ValueError


def refused(_: str):
    raise ValueError  # a fraction, NaN, Infinity


def expect_few_values(data: bytes, what: str) -> None:
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > MOST_VALUES:
        raise Wrong(f"{what} has more than 8,000,000 values")


def canonical(data: bytes, what: str):
    """JSON of which there is one text per value."""
    expect_few_values(data, what)
    if data.count(b"[") + data.count(b"{") > DEEPEST:  # otherwise it cannot be
        outside = b"".join(data.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])  # of all strings
        if max(accumulate((c in b"[{") - (c in b"]}") for c in outside), default=0) > DEEPEST:
            raise Wrong(f"{what} is nested more than {DEEPEST} deep")
    try:
        value = json.loads(data.decode(), parse_int=integer, parse_float=refused, parse_constant=refused)
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Wrong(f"{what} is not JSON of whole numbers and whole characters") from None
    if text != data:
        raise Wrong(f"{what} is not in its canonical form")
    return value


def expect(fits: bool, what: str) -> None:
    if not fits:
        raise Wrong(f"{what} has not the form that it must have")


def has_keys(value, *keys: str) -> bool:
    return isinstance(value, dict) and sorted(value) == sorted(keys)


def is_hex(value) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def unpacked(text, what: str) -> bytes:
    """Of base64, of which there is one text, too."""
    try:
        if base64.b64encode(data := base64.b64decode(text, validate=True)).decode() == text:
            return data
    except (ValueError, TypeError):
        pass
    raise Wrong(f"expected base64 in the {what} of an envelope")


def plus(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """Of two points of the curve (RFC 8032, 5.1.4, without its third and fourth coordinates)."""
    (x, y), (u, v) = a, b
    k = -121665 * pow(121666, -1, P) * x * y * u * v
    return (x * v + y * u) * pow(1 + k, -1, P) % P, (y * v + x * u) * pow(1 - k, -1, P) % P


@cache
def is_safe(raw: bytes) -> bool:
    """Whether they are a point of the main group. Anybody can sign for one of small order, and libraries differ over others.
    The sign of x does not matter to that."""
    y = int.from_bytes(raw, "little") & (1 << 255) - 1
    xx = (y * y - 1) * pow(-121665 * pow(121666, -1, P) * y * y + 1, -1, P) % P
    x = pow(xx, (P + 3) // 8, P)
    x = x if (x * x - xx) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    if y >= P or x == 0 or (x * x - xx) % P:
        return False
    total, power = (0, 1), (x, y)
    for bit in reversed(f"{ORDER:b}"):
        total, power = plus(total, power) if bit == "1" else total, plus(power, power)
    return total == (0, 1)


def parse_key(pem: bytes) -> Ed25519PublicKey:
    try:
        if isinstance(key := load_pem_public_key(pem), Ed25519PublicKey) and is_safe(key.public_bytes_raw()):
            return key
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass
    raise Wrong("expected the public half of an Ed25519 key, a safe one")


def pem_of(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def id_of(key: Ed25519PublicKey) -> str:
    return sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def opened(envelope, predicate_type: str, key: Ed25519PublicKey) -> tuple[str, str, dict]:
    """Name and SHA-256 of the subject, and the predicate."""
    expect(has_keys(envelope, "payload", "payloadType", "signatures"), "the envelope")
    signatures = envelope["signatures"]
    expect(
        isinstance(signatures, list) and len(signatures) == 1 and has_keys(signatures[0], "keyid", "sig"), "the signature"
    )
    if envelope["payloadType"] != PAYLOAD or signatures[0]["keyid"] != id_of(key):
        raise Wrong(f"the envelope is not one of key {id_of(key)}")
    payload, signature = unpacked(envelope["payload"], "payload"), unpacked(signatures[0]["sig"], "signature")
    try:
        key.verify(signature, b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload))
        if signature[:32] == bytes([1]) + bytes(31):  # no nonce: libraries differ over it
            raise InvalidSignature
    except InvalidSignature:
        raise Wrong(f"the statement is not what key {id_of(key)} has signed") from None
    statement = canonical(payload, "the statement")
    expect(has_keys(statement, "_type", "predicate", "predicateType", "subject"), "the statement")
    expect(statement["_type"] == STATEMENT and statement["predicateType"] == predicate_type, "the statement's type")
    subject = statement["subject"]
    expect(isinstance(subject, list) and len(subject) == 1 and has_keys(subject[0], "digest", "name"), "the subject")
    name, digest = subject[0]["name"], subject[0]["digest"]
    expect(isinstance(name, str) and has_keys(digest, "sha256") and is_hex(digest["sha256"]), "the subject")
    return name, digest["sha256"], statement["predicate"]


def leads(rotations, trusted: Ed25519PublicKey, to: Ed25519PublicKey) -> bool:
    expect(isinstance(rotations, list) and len(rotations) <= MOST_ROTATIONS, "rotations.json")
    reached = [trusted]
    for key in reached:
        if id_of(key) == id_of(to):
            return True
        for rotation in rotations:
            try:
                _, digest, predicate = opened(rotation, ROTATION, key)
                expect(has_keys(predicate, "new", "old") and isinstance(predicate["new"], str), "the rotation")
                new = parse_key(predicate["new"].encode())
                expect([pem_of(key).decode(), pem_of(new).decode()] == [predicate["old"], predicate["new"]], "the rotation")
            except Wrong:
                continue
            if id_of(new) == digest and all(id_of(new) != id_of(known) for known in reached):
                reached.append(new)
    return False


def root_of(leaves: list[bytes]) -> bytes:
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256(b"").digest()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + root_of(leaves[:half]) + root_of(leaves[half:])).digest()


class Verifier:
    def __init__(self, data: bytes, key: bytes | None, challenge: bytes | None) -> None:
        self.data, self.trusted, self.challenge_text = data, parse_key(key) if key else None, challenge
        self.lines: list[tuple[str, str, str]] = []

    def run(self) -> bool:
        self.lines += [(what, "-", "not looked at: kvcts verify does") for what in NOT_HERE]
        for what in (
            "form",
            "signature",
            "files",
            "tree",
            "records",
            "plan",
            "checksums",
            "challenge",
            "outcomes",
            "claims",
            "isolation",
            "negatives",
        ):
            try:
                self.lines.append((what, "ok", getattr(self, "check_" + what)() or ""))
            except Wrong as why:
                self.lines.append((what, "WRONG", str(why)))
            except (KeyError, TypeError, AttributeError, ValueError, IndexError, UnicodeError, RecursionError) as why:
                self.lines.append((what, "WRONG", f"a value is not of the kind that it must be ({why!r})"))
            if self.lines[-1][1] == "WRONG":
                return False
        return True

    def check_form(self) -> None:
        self.files, self.unlike = read_archive(self.data)
        for name in OWN:
            if name not in self.files:
                raise Wrong(f"the package has no {name}")

    def check_signature(self) -> str:
        key = parse_key(self.files["key.pem"])
        if pem_of(key) != self.files["key.pem"]:
            raise Wrong("key.pem is not in its canonical form")
        rotations = canonical(self.files["rotations.json"], "rotations.json")
        statement = canonical(self.files["statement.json"], "statement.json")
        self.subject, self.subject_digest, self.predicate = opened(statement, CERTIFICATE, key)
        expect(has_keys(said := self.predicate, "files", "records", "root"), "the predicate")
        expect(isinstance(said["files"], dict) and type(said["records"]) is int and said["records"] >= 0, "the predicate")
        expect(said["root"] == self.subject_digest, "the predicate")
        if not leads(rotations, self.trusted or key, key):
            raise Wrong(
                f"it is signed by key {id_of(key)}, and nothing leads there from the key that is trusted, "
                f"{id_of(self.trusted)}"
            )
        return f"by key {id_of(key)}" + ("" if self.trusted else ", which came in the package")

    def check_files(self) -> None:
        others = ("statement.json", "key.pem", "records.jsonl", "tree.txt")
        found = {name: sha256(data) for name, data in self.files.items() if name not in others}
        for name in sorted(found.keys() | self.predicate["files"].keys()):
            if found.get(name) != self.predicate["files"].get(name):
                raise Wrong(f"{name} is not the one that was signed")
        self.json = {name: canonical(self.files[name], name) for name in found if name.endswith(".json") and name not in OWN}

    def check_tree(self) -> None:
        if any(self.files[name].count(b"\n") > MOST_RECORDS for name in ("records.jsonl", "tree.txt")):
            raise Wrong("there are more than 200,000 records")
        expect_few_values(self.files["records.jsonl"], "records.jsonl")
        *self.texts, last = self.files["records.jsonl"].split(b"\n")
        leaves = [hashlib.sha256(b"\x00" + text).digest() for text in self.texts]
        mine, told = [leaf.hex().encode() for leaf in leaves], self.files["tree.txt"].split(b"\n")
        if last or len(leaves) != self.predicate["records"]:
            raise Wrong(f"expected {self.predicate['records']} whole records under one root, found {len(leaves)}")
        if mine + [b""] != told:
            first = next((i for i, (a, b) in enumerate(zip(mine, told), 1) if a != b), len(mine))
            raise Wrong(f"record {first} is not the one of tree.txt")
        if root_of(leaves).hex() != self.subject_digest:
            raise Wrong("records and tree are not those that were signed")

    def check_records(self) -> None:
        self.records = [canonical(text, f"record {number}") for number, text in enumerate(self.texts, 1)]
        ids = [record["id"] for record in self.records]
        if sorted(ids, key=str.encode) != ids:
            raise Wrong("the records are out of order")

    def check_plan(self) -> None:
        self.plan = canonical(self.files["plan.json"], "plan.json")
        planned, recorded = self.plan["ids"], {record["id"] for record in self.records}
        if not isinstance(planned, list) or len(set(planned)) != len(planned) or len(recorded) != len(self.records):
            raise Wrong("a case is planned or recorded twice")
        if other := recorded ^ set(planned):
            what = "has a record and was not planned" if min(other) in recorded else "was planned and has no record"
            raise Wrong(f"case '{min(other)}' {what}")

    def check_checksums(self) -> None:
        if self.unlike:
            raise Wrong(f"the archive's checksum of {self.unlike} is not that of its content")

    def check_challenge(self) -> str:
        told = self.plan["challenge"]
        if self.challenge_text is None:
            return "none was given here" if told else "there was none"
        if told != sha256(self.challenge_text):
            raise Wrong("the package answers no challenge, or another one")
        asked = json.loads(self.challenge_text)
        seed = max(1, int.from_bytes(hashlib.sha256((asked["secret"] + " seed").encode()).digest()[:8], "big"))
        if self.plan["seed"] != seed or len(self.plan["negatives"]) != asked["negatives"]:
            raise Wrong("the seed or the number of negatives does not follow from the challenge")
        return "the one that was given"

    def check_outcomes(self) -> str:
        for record in self.records:
            case, outcome, verdict, bytes_ = record["id"], record["outcome"], record["verdict"], record["bytes"]
            passed, claimed = outcome == "PASS", "claim" in record
            if record.get("negative", False):
                continue
            good, seeded = outcome in ("PASS", "REFUSED", "UNSUPPORTED"), "/content=golden" not in case
            spoilt = bytes_["wrong"] != 0 or bytes_["moved"] != bytes_["planned"]
            for wrong, words in (
                (verdict not in ("as expected", "XFAIL", "XPASS"), f"is {outcome} and {verdict}"),
                (verdict == "as expected" and not good, f"is {outcome}, and recorded as expected"),
                ((verdict == "XFAIL" or outcome == "UNSUPPORTED") and not claimed, f"is {outcome}, and nothing claims that"),
                (passed and spoilt, f"is PASS with {bytes_['wrong']} wrong bytes"),
                (passed and "digests" not in record, "is PASS, and tells no digests"),
                (outcome != "UNSUPPORTED" and seeded and record["seed"] != self.plan["seed"], "was run with another seed"),
            ):
                if wrong:
                    raise Wrong(f"'{case}' {words}")
            if passed and record["digests"]["producer"]["before"] != record["digests"]["producer"]["after"]:
                raise Wrong(f"'{case}' is PASS, and its source has changed")
        return f"{len(self.records)} records"

    def check_claims(self) -> str:
        told = {(claim["kind"], claim["name"]): claim["cases"] for claim in self.json["claims.json"]}
        found = Counter((record["claim"]["kind"], record["claim"]["name"]) for record in self.records if "claim" in record)
        if told != found:
            raise Wrong("claims.json does not match the claims of the records")
        return f"{len(told)} declared"

    def check_isolation(self) -> str:
        told = self.json["run.json"]["isolation"]
        if not told or told.startswith("none"):
            raise Wrong(f"the run was not isolated: {told}")
        return told

    def check_negatives(self) -> str:
        told = {record["id"]: record for record in self.records if record.get("negative", False)}
        if sorted(told) != sorted(self.plan["negatives"]):
            raise Wrong("the negatives of the records are not those of the plan")
        for case, record in told.items():
            if record["outcome"] != "FAIL" or not record.get("exact", False) or record["bytes"]["wrong"] == 0:
                raise Wrong(f"negative '{case}' ended in {record['outcome']}, and has to be FAIL")
        return f"{len(told)} told; which they must be, kvcts verify knows"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option in ("package", "--key", "--challenge"):
        parser.add_argument(option, type=Path)
    args = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        texts = [path.open("rb").read(MOST_BYTES + 1) if path else None for path in (args.package, args.key, args.challenge)]
        verifier = Verifier(*texts)
    except (OSError, Wrong) as why:
        print(f"verify.py: {clean(why)}", file=sys.stderr)
        return 2
    good = verifier.run()
    for what, state, words in verifier.lines:
        print(f"{what:<10} {state:<5} {clean(words)}")
    wrong = f"REJECTED: {what}: {clean(words)}"
    print(f"NOTHING WRONG: {clean(verifier.subject)}: {len(verifier.records)} records" if good else wrong)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
