#!/usr/bin/env python3
"""make_blocks.py [FOLDER] - writes the golden data of tests/formats/test_blocks.c.

Needs the gguf package (its quants module is NumPy code of the ggml project). Numbers whose
result that code leaves to chance, like those where 1 / d overflows, are not among the data.

    x.f32                        the numbers
    x.f16 x.bf16 x.q8_0 x.q4_0   the numbers, encoded
    q8_0.f32 q4_0.f32            these, decoded
    x.q6_k q6_k.f32 ...          blocks of random bits of the types that are only read, and these, decoded
"""

import pathlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

BLOCK = 32
READ_ONLY = "Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL".split()


def blocks():
    """Returns numbers of many sizes, [n, 32], with ties of both block types among them."""
    r = np.random.default_rng(7)
    yield np.zeros((1, BLOCK))
    yield np.arange(-16, 16)[None]
    yield np.full((1, BLOCK), -3.5)
    yield r.standard_normal((16, BLOCK))
    yield r.standard_normal((8, BLOCK)) * 10.0 ** np.linspace(-30, 4, 8)[:, None]
    yield r.standard_normal((8, BLOCK)) * 2.0 ** r.uniform(-30, 0, (8, BLOCK))
    for step, most in ((127, 254), (8, 16)):
        ties = r.integers(-most, most + 1, (8, BLOCK)) * 0.5
        ties[:, 5] = np.where(np.arange(8) % 2, step, -step)
        yield ties * 2.0 ** r.integers(-20, 5, (8, 1))
    near = r.standard_normal((8, 1)) * (r.integers(-8, 8, (8, BLOCK)) + 0.5) / 8
    yield np.nextafter(near.astype(np.float32), r.choice([-9, 9], (8, BLOCK)).astype(np.float32))
    value = r.standard_normal((4, 1))
    yield value * r.choice([-1, 1], (4, BLOCK))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/blocks")
    folder.mkdir(parents=True, exist_ok=True)
    x = np.concatenate([np.asarray(b, np.float32) for b in blocks()])
    x.tofile(folder / "x.f32")
    for name in ("F16", "BF16", "Q8_0", "Q4_0"):
        kind = GGMLQuantizationType[name]
        encoded = quants.quantize(x, kind)
        encoded.tofile(folder / f"x.{name.lower()}")
        if name.startswith("Q"):
            quants.dequantize(encoded, kind).astype(np.float32).tofile(folder / f"{name.lower()}.f32")
    r = np.random.default_rng(8)
    for name in READ_ONLY:
        kind = GGMLQuantizationType[name]
        elements, size = GGML_QUANT_SIZES[kind]
        encoded = r.integers(0, 256, (768 // elements, size), np.uint8)
        x = quants.dequantize(encoded, kind)
        while (bad := ~np.isfinite(x).all(axis=1) | (np.abs(x) > 1e4).any(axis=1)).any():
            encoded[bad] = r.integers(0, 256, (bad.sum(), size), np.uint8)
            x = quants.dequantize(encoded, kind)
        encoded.tofile(folder / f"x.{name.lower()}")
        x.astype(np.float32).tofile(folder / f"{name.lower()}.f32")


if __name__ == "__main__":
    main()
