#!/usr/bin/env python3
"""make_bins_seeds.py [FOLDER] - writes the seed corpus of the fuzz target of llama2.c's and llm.c's
checkpoints.

The files are made byte by byte, so that they do not depend on the readers they test.
"""

import os
import struct
import sys


def floats(n):
    return struct.pack(f"<{n}f", *(i % 7 / 8 - 0.375 for i in range(n)))


def int8s(n, group):
    return bytes(i * 37 % 256 for i in range(n)) + floats(n // group)


def llama2c(version, dim=8, ff=12, layers=2, heads=2, kv_heads=1, vocab=5, ctx=3, tied=True, group=4):
    kv = dim // heads * kv_heads
    numbers = (dim, ff, layers, heads, kv_heads, vocab if tied or version else -vocab, ctx)
    embedding, norm = vocab * dim, dim
    attention = [dim * dim, kv * dim, kv * dim, dim * dim]
    if version == 0:
        parts = [embedding] + [norm] * layers
        parts += [n for n in attention for _ in range(layers)] + [norm] * layers
        parts += [ff * dim] * 3 * layers + [norm] + [ctx * (dim // heads // 2)] * 2
        parts += [] if tied else [embedding]
        return struct.pack("<7i", *numbers) + b"".join(floats(n) for n in parts)
    head = struct.pack("<Ii7iBi", 0x616B3432, version, *numbers, tied, group if version == 2 else 0)
    norms = floats(norm * (2 * layers + 1))
    parts = [embedding] + [n for n in attention for _ in range(layers)] + [ff * dim] * 3 * layers
    parts += [] if tied else [embedding]
    body = (int8s(n, group) if version == 2 else floats(n) for n in parts)
    return head.ljust(256, b"\0") + norms + b"".join(body)


def llmc(version, ctx=4, vocab=5, layers=2, heads=2, width=8, padded=8):
    rows = vocab if version == 1 else padded
    head = struct.pack("<8i", 20240326, version, ctx, vocab, layers, heads, width,
                       0 if version == 1 else padded)
    n = rows * width + ctx * width + layers * (12 * width * width + 13 * width) + 2 * width
    body = struct.pack(f"<{n}H", *(0x3C00 + i % 64 for i in range(n))) if version == 5 else floats(n)
    return head.ljust(1024, b"\0") + body


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/fuzz/corpus/bins"
    os.makedirs(folder, exist_ok=True)
    seeds = {
        "llama-0": llama2c(0),
        "llama-0-own": llama2c(0, tied=False),
        "llama-1": llama2c(1, kv_heads=2),
        "llama-1-own": llama2c(1, tied=False),
        "llama-2": llama2c(2),
        "llama-2-own": llama2c(2, tied=False, group=8),
        "llama-2-alone": llama2c(2, layers=1, heads=1, group=1, ff=1, vocab=1, ctx=1),
        "llama-short": llama2c(1)[:300],
        "llama-long": llama2c(0) + b"\0",
        "llama-bad-group": llama2c(2, group=3),
        "llama-bad-version": llama2c(3),
        "llama-largest": struct.pack("<7i", 65536, 1 << 24, 1024, 32768, 32768, -(1 << 24), 1 << 22),
        "llama-negative": struct.pack("<7i", 8, 12, -2, 2, 1, -(1 << 31), 3),
        "gpt2-1": llmc(1),
        "gpt2-3": llmc(3),
        "gpt2-5": llmc(5),
        "gpt2-short": llmc(3)[:1023],
        "gpt2-bad-padding": llmc(3, padded=4),
        "gpt2-bad-version": llmc(2),
        "gpt2-largest": llmc(3)[:8] + struct.pack("<6i", 1 << 22, 1 << 24, 1024, 65536, 65536, 1 << 24)
        + bytes(992),
        "llama-3": struct.pack("<2i", 20240803, 3),
        "empty": b"",
    }
    for name, data in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


main()
