"""Element dtypes and cache schemes. Widths come from ml_dtypes, not from the C++."""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import yaml

from . import GoldenError

NUMPY = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "int8": np.int8,
    "uint8": np.uint8,
    "int4": ml_dtypes.int4,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}
_INTEGERS = ("int8", "uint8", "int4")


def is_integer(name):
    return name in _INTEGERS


def bits(name):
    """Bits of one code in memory: 32, 16, 8 or 4."""
    return (ml_dtypes.iinfo if is_integer(name) else ml_dtypes.finfo)(NUMPY[name]).bits


def code_type(name):
    """The unsigned NumPy type that holds one right-aligned code."""
    return {32: np.uint32, 16: np.uint16, 8: np.uint8, 4: np.uint8}[bits(name)]


def values(name, codes):
    """float64 values of right-aligned codes, by reinterpreting them as ml_dtypes elements."""
    return np.ascontiguousarray(codes.astype(code_type(name))).view(NUMPY[name]).astype(np.float64)


@dataclass(frozen=True)
class Scheme:
    """A cache dtype: data codes and their scales."""

    name: str
    title: str = ""
    data: str = "fp16"
    scale: str = ""
    group: int = 0  # channels for one scale; 0 = a whole row
    global_scale: str = ""
    facts: dict = field(default_factory=dict, hash=False, compare=False)

    @property
    def x(self):
        """Elements in 16 bytes: the packing factor of paged_attn's key cache."""
        return 128 // bits(self.data)

    def groups(self, width):
        """Scales of a row of `width` channels."""
        if not self.scale:
            return None
        if self.group and width % self.group:
            raise GoldenError(f"dtype {self.name}: {width} channels do not divide into scale groups of {self.group}")
        return width // self.group if self.group else 1


def load_schemes(path):
    """The schemes of one file of cases/dtypes (one YAML document each)."""
    schemes = []
    for doc in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        scale = doc.get("scale") or {}
        for dtype in (doc["data"], scale.get("dtype"), doc.get("global_scale")):
            if dtype and dtype not in NUMPY:
                raise GoldenError(f"{path.name}: '{dtype}' is not a dtype; known: {' '.join(NUMPY)}")
        schemes.append(
            Scheme(
                doc["dtype"],
                doc.get("title", ""),
                doc["data"],
                scale.get("dtype", ""),
                int(scale.get("group", 0)),
                doc.get("global_scale") or "",
                doc.get("facts") or {},
            )
        )
    return schemes
