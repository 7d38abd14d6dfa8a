"""Packages as a vendor who means ill can make them: any value in any place, signed in ways that some library accepts. For
verify_fuzz_test.py; standard library, `cryptography`, and the form from reports/verify/verify.py."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import sys
import zlib
from itertools import pairwise
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT  # noqa: E402

sys.path.insert(0, str(ROOT / "reports" / "verify"))
import verify as second  # noqa: E402

L = second.ORDER
IDENTITY = bytes([1]) + bytes(31)
TORSION = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"  # a point of order 8


class Text(str):
    """JSON as it is to be written, whatever it is."""


def dump(value) -> bytes:
    """Canonical but for Text, which stands as it is. A lone surrogate becomes the three bytes that are not UTF-8."""
    if isinstance(value, Text):
        return value.encode(errors="surrogatepass")
    if isinstance(value, dict):
        return b"{" + b",".join(dump(key) + b":" + dump(value[key]) for key in sorted(value)) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(dump, value)) + b"]"
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


def archive(files: dict[str, bytes]) -> bytes:
    named = {name.encode("latin-1"): files[name] for name in sorted(files)}
    return bytes(second.archive(named, {name: zlib.crc32(data) for name, data in named.items()})[0])


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Scalar:
    """An Ed25519 key as its owner knows it, to sign in other ways than a library does."""

    def __init__(self, dice: random.Random) -> None:
        self.private = Ed25519PrivateKey.from_private_bytes(dice.randbytes(32))
        digest = bytearray(hashlib.sha512(self.private.private_bytes_raw()).digest()[:32])
        digest[0] &= 248
        digest[31] = digest[31] & 63 | 64
        self.secret = int.from_bytes(digest, "little") % L
        self.public = self.private.public_key()


def point(raw: bytes) -> tuple[int, int]:
    y = int.from_bytes(raw, "little") & (1 << 255) - 1
    p = second.P
    xx = (y * y - 1) * pow(-121665 * pow(121666, -1, p) * y * y + 1, -1, p) % p
    x = pow(xx, (p + 3) // 8, p)
    x = x if (x * x - xx) % p == 0 else x * pow(2, (p - 1) // 4, p) % p
    return (x if x & 1 == raw[31] >> 7 else p - x), y


def raw(at: tuple[int, int]) -> bytes:
    return (at[1] | (at[0] & 1) << 255).to_bytes(32, "little")


def pem(public: bytes) -> bytes:
    text = base64_of(bytes.fromhex("302a300506032b6570032100") + public)
    return f"-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n".encode()


def key_id(public: bytes) -> str:
    return second.sha256(bytes.fromhex("302a300506032b6570032100") + public)


def envelope(key: Scalar, statement, forge=None) -> dict:
    payload = dump(statement)
    signed = b"DSSEv1 %d %s %d %s" % (len(second.PAYLOAD), second.PAYLOAD.encode(), len(payload), payload)
    public, signature = forge(key, signed) if forge else (key.public.public_bytes_raw(), key.private.sign(signed))
    return {
        "payload": base64_of(payload),
        "payloadType": second.PAYLOAD,
        "signatures": [{"keyid": key_id(public), "sig": base64_of(signature)}],
    }


def statement_of(name: str, digest: str, kind: str, predicate) -> dict:
    subject = [{"name": name, "digest": {"sha256": digest}}]
    return {"_type": second.STATEMENT, "subject": subject, "predicateType": kind, "predicate": predicate}


def rotation(old: Scalar, new: Scalar) -> dict:
    said = {key: pem(of.public.public_bytes_raw()).decode() for key, of in (("old", old), ("new", new))}
    return envelope(old, statement_of("key", key_id(new.public.public_bytes_raw()), second.ROTATION, said))


# Signatures that some library accepts: each gives the public key and the signature.


def challenge_of(r: bytes, public: bytes, signed: bytes) -> int:
    return int.from_bytes(hashlib.sha512(r + public + signed).digest(), "little") % L


def by_identity(key: Scalar, signed: bytes):
    """The key counts for nothing: any nonce is a signature."""
    nonce = Scalar(random.Random(1))
    return IDENTITY, nonce.public.public_bytes_raw() + nonce.secret.to_bytes(32, "little")


def by_sign_bit(key: Scalar, signed: bytes):
    return IDENTITY[:31] + b"\x80", IDENTITY + bytes(32)


def by_large_y(key: Scalar, signed: bytes):
    return (second.P + 1).to_bytes(32, "little"), IDENTITY + bytes(32)


def by_no_nonce(key: Scalar, signed: bytes):
    public = key.public.public_bytes_raw()
    return public, IDENTITY + (challenge_of(IDENTITY, public, signed) * key.secret % L).to_bytes(32, "little")


def by_large_s(key: Scalar, signed: bytes):
    signature = key.private.sign(signed)
    return key.public.public_bytes_raw(), signature[:32] + (int.from_bytes(signature[32:], "little") + L).to_bytes(
        32, "little"
    )


def by_mixed_nonce(key: Scalar, signed: bytes):
    """R has a part of order 8: right for a library that multiplies by the cofactor."""
    public, nonce = key.public.public_bytes_raw(), Scalar(random.Random(signed))
    r = raw(second.plus(point(nonce.public.public_bytes_raw()), point(bytes.fromhex(TORSION))))
    return public, r + ((nonce.secret + challenge_of(r, public, signed) * key.secret) % L).to_bytes(32, "little")


def by_mixed_key(key: Scalar, signed: bytes):
    """The key has a part of order 8, which vanishes for one text of eight: the nonce is chosen for that."""
    public = raw(second.plus(point(key.public.public_bytes_raw()), point(bytes.fromhex(TORSION))))
    for number in range(1000):
        nonce = Scalar(random.Random(number))
        r = nonce.public.public_bytes_raw()
        h = challenge_of(r, public, signed)
        if h % 8 == 0:
            return public, r + ((nonce.secret + h * key.secret) % L).to_bytes(32, "little")
    raise AssertionError("no nonce")


FORGED = by_identity, by_sign_bit, by_large_y, by_no_nonce, by_large_s, by_mixed_nonce, by_mixed_key


class Package:
    """Its parts, to be changed before they are signed (`forge`), or after (`files`)."""

    def __init__(self, keys: list[Scalar], records: int = 7) -> None:
        self.keys, self.key, self.forge, self.payload = keys, keys[-1], None, None
        self.records: list = [
            {
                "id": f"kv/case={number}",
                "outcome": "PASS",
                "verdict": "as expected",
                "seed": (1 << 64) - 1,
                "bytes": {"moved": 4, "planned": 4, "wrong": 0},
                "digests": {"producer": {"after": "00ab", "before": "00ab"}},
                "message": 'é "\\\n\u202e\x1f\x7f😀',
            }
            for number in range(records)
        ]
        self.plan: object = {
            "challenge": None,
            "ids": [record["id"] for record in self.records],
            "negatives": [],
            "seed": (1 << 64) - 1,
            "suite": {"version": "1"},
        }
        self.rotations: object = [rotation(*pair) for pair in pairwise(keys)]
        self.claims: object = []
        self.run: object = {"isolation": "bubblewrap 0.8.0", "machine": {"cpus": 2}, "started": "2026-11-27T00:00:00Z"}
        self.evidence: object = {}
        self.more: dict[str, bytes] = {}
        self.predicate: dict = {}

    def files(self) -> dict[str, bytes]:
        """Signed as they are."""
        texts = [dump(record) for record in self.records]
        leaves = [hashlib.sha256(b"\0" + text).digest() for text in texts]
        root = second.root_of(leaves).hex()
        files = {
            "claims.json": dump(self.claims),
            "logs/evidence.json": dump(self.evidence),
            "logs/summary.txt": b"all is well\n",
            "plan.json": dump(self.plan),
            "product.yaml": b"product: P\n",
            "rotations.json": dump(self.rotations),
            "run.json": dump(self.run),
            **self.more,
        }
        predicate = {
            "files": {name: second.sha256(data) for name, data in files.items()},
            "records": len(texts),
            "root": root,
        }
        statement = statement_of("P 1", root, second.CERTIFICATE, predicate | self.predicate)
        if self.payload:
            statement = self.payload(statement)
        sealed = envelope(self.key, statement, self.forge)
        public = self.key.public.public_bytes_raw()
        if self.forge:
            public, _ = self.forge(self.key, b"")
        files["records.jsonl"] = b"".join(text + b"\n" for text in texts)
        files["tree.txt"] = "".join(leaf.hex() + "\n" for leaf in leaves).encode()
        files["key.pem"] = pem(public)
        files["statement.json"] = dump(sealed)
        return files

    def bytes(self) -> bytes:
        return archive(self.files())
