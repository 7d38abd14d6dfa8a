"""The C++ conversions against ml_dtypes and NumPy, for every fp16 and bf16 input, every code back, and blocks by formula."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")

FILTER = next(Path(os.environ["KVCTS_BINARY_DIR"]).glob("bin/kvcts_convert_filter"), None)
if FILTER is None:
    pytest.skip("kvcts_convert_filter is not built", allow_module_level=True)

FLOATS = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}
WIDE = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}
INTEGERS = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7)}
NIBBLES = {"int4", "e2m1"}
# The canonical NaN of each format; e2m1 has none and gets its largest number.
NAN = {
    "fp16": 0x7FFF,
    "bf16": 0x7FFF,
    "e4m3fn": 0x7F,
    "e5m2": 0x7F,
    "e4m3fnuz": 0x80,
    "e5m2fnuz": 0x80,
    "e8m0": 0xFF,
    "e2m1": 7,
}


def run(*args, data: bytes) -> bytes:
    ended = subprocess.run([FILTER, *map(str, args)], input=data, capture_output=True, timeout=120)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout


def codes_of(raw: bytes, dtype: str, n: int) -> np.ndarray:
    if dtype in NIBBLES:
        both = np.frombuffer(raw, np.uint8)
        return np.stack([both & 15, both >> 4], axis=1).reshape(-1)[:n]
    return np.frombuffer(raw, {"fp32": np.uint32, "fp16": np.uint16, "bf16": np.uint16}.get(dtype, np.uint8))


def converted(source: str, target: str, data: np.ndarray, overflow="special", rounding="nearest") -> np.ndarray:
    return codes_of(run("convert", source, target, overflow, rounding, data.size, data=data.tobytes()), target, data.size)


def wide_inputs(source: str) -> np.ndarray:
    """Every input of 16 bits; for fp32, those of bf16 with lower bits that decide ties."""
    if source != "fp32":
        return np.arange(1 << 16, dtype=np.uint16).view(WIDE[source])
    tops = np.arange(1 << 16, dtype=np.uint32) << 16
    return np.concatenate([tops | low for low in (0, 1, 0x8000, 0x7FFF, 0x8001, 0xFFFF)]).astype(np.uint32).view(np.float32)


def expected(values: np.ndarray, target: str, overflow: str) -> np.ndarray:
    """ml_dtypes' code, with this suite's rule for values without a number: the canonical NaN, and saturation."""
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float32)
    kind = FLOATS[target]
    size = np.uint16 if target in ("fp16", "bf16") else np.uint8
    if target == "e8m0":
        wide = np.abs(wide)
    with np.errstate(all="ignore"):
        numbers = wide.astype(kind)
        codes = numbers.view(size).copy()
        largest = float(ml_dtypes.finfo(kind).max)
        beyond = ~np.isfinite(numbers.astype(np.float32)) & ~np.isnan(wide)
    if target == "e8m0":
        # Below 2^-126 ml_dtypes rounds up everything except 2^-127; here, too, by value with ties up.
        least = wide < 2.0**-126
        codes[least] = wide[least] >= 1.5 * 2.0**-127
        beyond &= wide > 0
    if overflow == "saturate":
        codes[beyond] = np.where(np.signbit(wide[beyond]), -largest, largest).astype(kind).view(size)
    elif target in ("e4m3fn", "e4m3fnuz", "e5m2fnuz", "e8m0"):
        codes[beyond] = NAN[target]
    codes[np.isnan(wide)] = NAN[target]
    return codes


@pytest.mark.parametrize("overflow", ["saturate", "special"])
@pytest.mark.parametrize("source,target", [(s, t) for s in WIDE for t in FLOATS if s != t])
def test_encoding_is_that_of_ml_dtypes(source, target, overflow):
    values = wide_inputs(source)
    want = expected(values, target, overflow)
    got = converted(source, target, values, overflow)
    wrong = np.flatnonzero(got != want)
    assert wrong.size == 0, [(float(values[i]), hex(got[i]), hex(want[i])) for i in wrong[:8]]


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", WIDE)
def test_integers_are_rounded_to_even_and_clamped(source, target):
    with np.errstate(invalid="ignore"):
        values = wide_inputs(source).astype(np.float64)
    want = np.clip(np.rint(np.nan_to_num(values, nan=0, posinf=1e9, neginf=-1e9)), *INTEGERS[target]).astype(np.int64)
    got = converted(source, target, wide_inputs(source))
    assert np.array_equal(got, want & (15 if target == "int4" else 255))


@pytest.mark.parametrize("source", [*FLOATS, "int8", "uint8", "int4"])
def test_every_code_back(source):
    bits = 16 if source in ("fp16", "bf16") else 4 if source in NIBBLES else 8
    codes = np.arange(1 << bits, dtype=np.uint16 if bits == 16 else np.uint8)
    packed = (codes[0::2] | codes[1::2] << 4) if bits == 4 else codes
    got = np.frombuffer(run("convert", source, "fp32", "special", "down", codes.size, data=packed.tobytes()), np.uint32)
    if source in INTEGERS:
        signed = codes.astype(np.int64)
        want = np.where(signed > INTEGERS[source][1], signed - (1 << bits), signed).astype(np.float32)
    else:
        want = codes.view(FLOATS[source]).astype(np.float32)
    nan = np.isnan(want)
    assert np.array_equal(got[~nan], want.view(np.uint32)[~nan])
    assert np.all(got[nan] == 0x7FFFFFFF)


def test_e8m0_down_and_up_are_the_binades_below_and_above():
    values = np.abs(wide_inputs("fp32"))
    values = values[np.isfinite(values) & (values > 0)]
    mantissa, exponent = np.frexp(values.astype(np.float64))
    floor = np.clip(exponent - 1 + 127, 0, 254)
    ceil = np.clip(np.where(mantissa == 0.5, exponent - 1, exponent) + 127, 0, 254)
    assert np.array_equal(converted("fp32", "e8m0", values, "saturate", "down"), floor)
    assert np.array_equal(converted("fp32", "e8m0", values, "saturate", "up"), ceil)


def blocks(n: int, width: int, source: str) -> np.ndarray:
    """Blocks of very different size, some zero, some with ties."""
    noise = np.random.default_rng(11)
    data = noise.standard_normal((n, width)) * np.exp2(noise.integers(-12, 12, (n, 1)))
    data[::7] = 0
    data[1::7] = noise.integers(-24, 25, data[1::7].shape) / 4
    return data.astype(WIDE[source])


def quantised(rule, source, data, element, scale_type, scale_bytes, g=1.0, rounding="down"):
    raw = run("quantise", rule, source, data.shape[0], repr(float(g)), rounding, data=data.tobytes())
    codes = codes_of(raw[: len(raw) - data.shape[0] * scale_bytes], element, data.size).reshape(data.shape)
    return codes, np.frombuffer(raw[len(raw) - data.shape[0] * scale_bytes :], scale_type)


def encoded(values: np.ndarray, element: str) -> np.ndarray:
    return expected(values.reshape(-1), element, "saturate").reshape(values.shape)


@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("g", [1.0, 0.0078125, 0.0031])
def test_nvfp4_by_formula(source, g):
    data = blocks(5000, 16, source)
    x, g = data.astype(np.float32), np.float32(g)
    codes, scales = quantised("nvfp4", source, data, "e2m1", np.uint8, 1, g)
    amax = np.abs(x).max(axis=1)
    want_scales = encoded(amax / (np.float32(6) * g), "e4m3fn")
    assert np.array_equal(scales, want_scales)
    scale = want_scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * g
    with np.errstate(divide="ignore"):
        factor = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
    assert np.array_equal(codes, encoded(x * factor[:, None], "e2m1"))
    # Decoded values are near the inputs: within half a step of the block's largest binade, 1/6 of its scale's 6.
    back = np.frombuffer(
        run("dequantise", "nvfp4", "fp32", data.shape[0], repr(float(g)), "down", data=pack(codes) + scales.tobytes()),
        np.float32,
    )
    values = codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32) * scale[:, None]
    assert np.array_equal(back.reshape(data.shape), values)
    fits = (want_scales > 8) & (want_scales < 0x7E)  # the scale is a normal number and not saturated
    assert fits.sum() > 500
    assert np.all(np.abs(values - x)[fits] <= 1.0626 * scale[fits][:, None])


def pack(codes: np.ndarray) -> bytes:
    flat = codes.reshape(-1).astype(np.uint8)
    return (flat[0::2] | flat[1::2] << 4).tobytes()


@pytest.mark.parametrize("rounding", ["down", "up"])
@pytest.mark.parametrize("rule,element,emax,largest", [("mxfp8", "e4m3fn", 8, 448), ("mxfp4", "e2m1", 2, 6)])
def test_mx_by_formula(rule, element, emax, largest, rounding):
    data = blocks(5000, 32, "bf16")
    x = data.astype(np.float32)
    codes, scales = quantised(rule, "bf16", data, element, np.uint8, 1, rounding=rounding)
    amax = np.abs(x).max(axis=1).astype(np.float64)
    with np.errstate(divide="ignore"):
        exponent = (
            np.floor(np.log2(amax)) - emax if rounding == "down" else np.ceil(np.log2((amax / largest).astype(np.float32)))
        )
    want = np.where(amax == 0, 0, np.clip(np.nan_to_num(exponent, neginf=-127) + 127, 0, 254)).astype(np.uint8)
    assert np.array_equal(scales, want)
    assert np.array_equal(
        codes, encoded((x * np.exp2(127.0 - want.astype(np.float64))[:, None]).astype(np.float32), element)
    )
    if rounding == "up":
        assert np.all(np.abs(x) <= largest * np.exp2(want.astype(np.float64) - 127)[:, None]), "nothing saturates"


@pytest.mark.parametrize(
    "element,largest", [("e4m3fn", 448), ("e5m2", 57344), ("e4m3fnuz", 240), ("e5m2fnuz", 57344), ("int8", 127)]
)
def test_rows_by_formula(element, largest):
    data = blocks(2000, 128, "fp16")
    x = data.astype(np.float32)
    codes, scales = quantised(f"row:{element}:128", "fp16", data, element, np.float32, 4)
    scale = np.abs(x).max(axis=1) / np.float32(largest)
    assert np.array_equal(scales, scale)
    with np.errstate(divide="ignore"):
        scaled = x * np.where(scale == 0, np.float32(0), np.float32(1) / scale)[:, None]
    want = (
        np.clip(np.rint(scaled), -128, 127).astype(np.int8).view(np.uint8) if element == "int8" else encoded(scaled, element)
    )
    assert np.array_equal(codes, want)
