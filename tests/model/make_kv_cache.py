#!/usr/bin/env python3
"""make_kv_cache.py [FILE] - writes the golden data of tests/model/test_kv_cache.c, by NumPy and the gguf package.

For every size of a head and every pair of types, in the order of the test, it has the blocks that the gguf package makes
of the rotated keys and values, where the type has blocks, and then the result of attention to the numbers in these blocks,
in float64. Two query heads share the K/V head. Keys, values and queries are functions of their index alone.
"""

import sys

import numpy as np
from gguf import GGMLQuantizationType, quants

POSITIONS = 19
HEADS = 2
SIZES = (64, 48, 80, 96, 20)
PAIRS = (("f32", "f16"), ("q8_0", "q4_0"), ("q5_0", "q4_0"), ("q4_0", "q5_0"))
ROTATED = ("q8_0", "q5_0", "q4_0")


def numbers(rows, n, salt):
    """Returns [rows, n] from -1 to 1; every seventh column is an outlier."""
    i = np.arange(rows * n, dtype=np.uint64) + np.uint64(salt)
    bits = (i * np.uint64(2654435761) ^ (i * np.uint64(40503) >> np.uint64(7))) % np.uint64(1 << 24)
    x = bits.astype(np.float64) / 2**23 - 1
    return (x.reshape(rows, n) * np.where(np.arange(n) % 7 == 3, 8, 1)).astype(np.float32)


def hadamard(n):
    """Returns the rotation [n, n] of runs of numbers, each as long as the largest power of two, at least 8, that divides n."""
    size = n & -n
    if size < 8:
        return np.eye(n)
    h = np.ones((1, 1))
    while len(h) < size:
        h = np.block([[h, h], [h, -h]])
    return np.kron(np.eye(n // size), h / np.sqrt(size))


def stored(x, kind):
    """Returns the bytes of the rows' blocks and the numbers in them; the last block of a row is filled with zeros."""
    if kind in ("f32", "f16"):
        return b"", x.astype(kind.replace("f", "float")).astype(np.float64)
    rows, n = x.shape
    padded = np.zeros((rows, (n + 31) // 32 * 32), np.float32)
    padded[:, :n] = x
    blocks = quants.quantize(padded, GGMLQuantizationType[kind.upper()])
    return blocks.tobytes(), quants.dequantize(blocks, GGMLQuantizationType[kind.upper()]).astype(np.float64)[:, :n]


def main():
    out = b""
    for n in SIZES:
        keys, values, queries = numbers(POSITIONS, n, 1), numbers(POSITIONS, n, 70001), numbers(HEADS, n, 900001)
        for key_type, value_type in PAIRS:
            turn_keys = hadamard(n) if key_type in ROTATED else np.eye(n)
            turn_values = hadamard(n) if value_type in ROTATED else np.eye(n)
            key_bytes, k = stored((keys @ turn_keys).astype(np.float32), key_type)
            value_bytes, v = stored((values @ turn_values).astype(np.float32), value_type)
            scores = (queries / np.sqrt(n)) @ turn_keys @ k.T
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            result = weights @ v @ turn_values
            out += key_bytes + value_bytes + result.astype(np.float64).tobytes()
    open(sys.argv[1] if len(sys.argv) > 1 else "tests/data/kv-cache.bin", "wb").write(out)


main()
