#!/usr/bin/env python3
"""Check a package of `kvcts certify` again, with none of the suite's code: standard library and `cryptography` only.

    verify.py X.kvcert [--key vendor.pem] [--challenge challenge.json]

It checks what follows from the package's own bytes, and lists what only the suite can check (`kvcts verify`).
Exit status: 0 nothing is wrong, 1 something is, 2 a file cannot be read.

A package is a zip archive with no freedom left (names in order, nothing compressed, no times), read by rebuilding it:
statement.json (an in-toto Statement in a DSSE envelope), key.pem, rotations.json, plan.json, records.jsonl, tree.txt
(SHA-256 leaves as in RFC 9162, 2.1), and files of which the statement holds the SHA-256.
"""

import argparse
import base64
import hashlib
import json
import struct
import sys
import zlib
from collections import Counter
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

CERTIFICATE, ROTATION = "urn:kvcts:certificate:1", "urn:kvcts:key-rotation:1"
PAYLOAD, STATEMENT = "application/vnd.in-toto+json", "https://in-toto.io/Statement/v1"
OWN = "statement.json", "key.pem", "rotations.json", "plan.json", "records.jsonl", "tree.txt"
NOT_HERE, DEEPEST = ("suite", "profile", "planned", "cases", "digests"), 64


class Wrong(Exception):
    pass


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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
    return bytes(out + directory + end), places


def read_archive(data: bytes) -> tuple[dict[str, bytes], str]:
    """The files, and of which the archive's checksum is another than that of its content."""
    files: dict[bytes, bytes] = {}
    crcs, at = {}, 0
    while len(data) - at >= 30 and data[at : at + 4] == b"PK\x03\x04":
        crc, size, _, name_size = struct.unpack_from("<IIIH", data, at + 14)
        body = at + 30 + name_size
        if body + size > len(data):
            raise Wrong(f"the package ends too early, or a size in byte {at + 18} is wrong")
        name = data[at + 30 : body]
        if files and name <= list(files)[-1]:
            raise Wrong(f"the files of the package are not in order at '{name[:80].decode(errors='replace')}', byte {at}")
        files[name], crcs[name] = data[body : body + size], crc
        at = body + size
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
    unlike = [name.decode(errors="replace") for name in files if right[name] != crcs[name]]
    return {name.decode(errors="surrogateescape"): content for name, content in files.items()}, (unlike + [""])[0]


def depth(value) -> int:
    levels, at = 0, [value]
    while at := [
        inner
        for outer in at
        if isinstance(outer, (dict, list))
        for inner in (outer.values() if isinstance(outer, dict) else outer)
    ]:
        levels += 1
    return levels


def canonical(data: bytes, what: str):
    """JSON with sorted keys, no spaces, and UTF-8 as it stands."""
    try:
        value = json.loads(data.decode())
    except ValueError:
        raise Wrong(f"{what} is not JSON") from None
    if depth(value) > DEEPEST:
        raise Wrong(f"{what} is nested more than {DEEPEST} deep")
    if json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() != data:
        raise Wrong(f"{what} is not in its canonical form")
    return value


def parse_key(pem: bytes) -> Ed25519PublicKey:
    try:
        if isinstance(key := load_pem_public_key(pem), Ed25519PublicKey):
            return key
    except (ValueError, TypeError):
        pass
    raise Wrong("expected the public half of an Ed25519 key")


def id_of(key: Ed25519PublicKey) -> str:
    return sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def opened(envelope, predicate_type: str, key: Ed25519PublicKey) -> tuple[str, str, dict]:
    """Name and SHA-256 of the subject, and the predicate."""
    try:
        (signature,) = envelope["signatures"]
        payload = base64.b64decode(envelope["payload"], validate=True)
        if envelope["payloadType"] != PAYLOAD or signature["keyid"] != id_of(key):
            raise Wrong(f"the envelope is not one of key {id_of(key)}")
        signed = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)
        key.verify(base64.b64decode(signature["sig"], validate=True), signed)
        statement = json.loads(payload)
        (subject,) = statement["subject"]
        if statement["_type"] != STATEMENT or statement["predicateType"] != predicate_type:
            raise Wrong("the statement is of another type")
        return subject["name"], subject["digest"]["sha256"], statement["predicate"]
    except InvalidSignature:
        raise Wrong(f"the statement is not what key {id_of(key)} has signed") from None
    except (ValueError, KeyError, TypeError) as why:
        raise Wrong(f"the envelope has not the form that it must have ({why})") from None


def leads(rotations: list, trusted: Ed25519PublicKey, to: Ed25519PublicKey) -> bool:
    reached = [trusted]
    for key in reached:
        for rotation in rotations:
            try:
                _, digest, predicate = opened(rotation, ROTATION, key)
                new = parse_key(predicate["new"].encode())
            except (Wrong, KeyError, AttributeError, TypeError):
                continue
            if id_of(new) == digest and all(id_of(new) != id_of(known) for known in reached):
                reached.append(new)
    return any(id_of(key) == id_of(to) for key in reached)


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
        if key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) != self.files["key.pem"]:
            raise Wrong("key.pem is not in its canonical form")
        rotations = canonical(self.files["rotations.json"], "rotations.json")
        statement = canonical(self.files["statement.json"], "statement.json")
        self.subject, self.subject_digest, self.predicate = opened(statement, CERTIFICATE, key)
        if self.trusted and not leads(rotations, self.trusted, key):
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

    def check_tree(self) -> None:
        *self.texts, last = self.files["records.jsonl"].split(b"\n")
        leaves = [hashlib.sha256(b"\x00" + text).digest() for text in self.texts]
        mine, told = [leaf.hex() for leaf in leaves], self.files["tree.txt"].decode().split("\n")
        if last or self.predicate["root"] != self.subject_digest or len(leaves) != self.predicate["records"]:
            raise Wrong(f"expected {self.predicate['records']} whole records under one root, found {len(leaves)}")
        if mine + [""] != told:
            first = next((i for i, (a, b) in enumerate(zip(mine, told), 1) if a != b), len(mine))
            raise Wrong(f"record {first} is not the one of tree.txt")
        if root_of(leaves).hex() != self.subject_digest:
            raise Wrong("records and tree are not those that were signed")

    def check_records(self) -> None:
        self.records = [canonical(text, f"record {number}") for number, text in enumerate(self.texts, 1)]
        ids = [record["id"] for record in self.records]
        if sorted(set(ids), key=str.encode) != ids:
            raise Wrong("the records are out of order, or a case is recorded twice")

    def check_plan(self) -> None:
        self.plan = canonical(self.files["plan.json"], "plan.json")
        planned, recorded = self.plan["ids"], {record["id"] for record in self.records}
        if len(set(planned)) != len(planned):
            raise Wrong("a case is planned twice")
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
        told = {(claim["kind"], claim["name"]): claim["cases"] for claim in json.loads(self.files["claims.json"])}
        found = Counter((record["claim"]["kind"], record["claim"]["name"]) for record in self.records if "claim" in record)
        if told != found:
            raise Wrong("claims.json does not match the claims of the records")
        return f"{len(told)} declared"

    def check_isolation(self) -> str:
        told = json.loads(self.files["run.json"])["isolation"]
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
    try:
        verifier = Verifier(*(path.read_bytes() if path else None for path in (args.package, args.key, args.challenge)))
    except (OSError, Wrong) as why:
        print(f"verify.py: {why}", file=sys.stderr)
        return 2
    good = verifier.run()
    for what, state, words in verifier.lines:
        print(f"{what:<10} {state:<5} {words}")
    print(f"NOTHING WRONG: {verifier.subject}: {len(verifier.records)} records" if good else f"REJECTED: {what}: {words}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
