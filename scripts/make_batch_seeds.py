#!/usr/bin/env python3
"""make_batch_seeds.py [FOLDER] - writes the seed corpus of the fuzz target of schedules.

A schedule is five bytes that say what is run, then commands of two bytes (tests/fuzz/fuzz_batch.c).
"""

import os
import random
import sys


def head(shape, cache, weights, sequences, threads, shared, fastest=1, block=0):
    for sizes in range(256):
        if (sizes % 5, sizes >> 3 & 1, sizes >> 7) == (sequences - 1, threads - 1, fastest):
            if sizes >> 4 & 7 == block:
                break
    else:
        sizes = sequences - 1 | (threads - 1) << 3 | fastest << 7
    return bytes([shape, cache | weights << 2, sizes, shared >> 8, shared & 255])


def rows(sequence, n, every=1):
    return bytes([sequence << 3 | every, n - 1])


def one(sequence, token):
    return bytes([sequence << 3 | 5, 128 | token])


def rewind(sequence, length):
    return bytes([sequence << 3 | 2, length // 2])


def spoil(sequence, what):
    return bytes([sequence << 3 | 3, what])


STEP = bytes([4, 0])


def decode(sequences, n):
    return b"".join(b"".join(one(s, t) for s in sequences) + STEP for t in range(n))


def scattered(seed):
    draw = random.Random(seed)
    return bytes(draw.randrange(256) for _ in range(120))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/fuzz/corpus/batch"
    os.makedirs(folder, exist_ok=True)
    prefix = rows(0, 100) + rows(0, 100) + STEP
    seeds = {
        "alone": head(0, 0, 0, 1, 1, 0) + rows(0, 20) + decode([0], 5),
        "ragged": head(2, 1, 0, 3, 2, 0) + rows(0, 30) + rows(1, 7) + decode([2, 0, 1], 8),
        "mixed": head(5, 2, 1, 4, 2, 0) + rows(1, 40) + STEP + rows(0, 60, 0) + one(1, 3) + one(2, 4),
        "shared": head(3, 1, 0, 4, 2, 17) + rows(0, 17) + STEP + decode([1, 2, 3, 0], 6),
        "shared-chunk": head(6, 1, 3, 3, 2, 256) + prefix + rows(0, 60) + STEP + decode([2, 1, 0], 4),
        "shared-first": head(8, 2, 2, 3, 1, 1) + rows(0, 1) + STEP + rows(1, 40) + rows(2, 5),
        "shared-all": head(1, 0, 0, 2, 1, 300) + prefix + rows(0, 100) + STEP + one(1, 0) + one(0, 0),
        "shared-missing": head(4, 0, 1, 2, 2, 9) + rows(0, 8) + one(1, 1) + STEP + one(0, 2) + decode([1], 3),
        "places": head(9, 1, 0, 3, 2, 15) + rows(0, 15) + decode([0, 1, 2], 4) + rewind(1, 0)
        + decode([2, 1], 5) + rewind(0, 4) + rows(0, 30) + decode([1, 2], 3),
        "impossible": head(7, 0, 0, 2, 1, 0) + rows(0, 3) + spoil(1, 0) + spoil(0, 1) + spoil(1, 2) + STEP,
        "chunks": head(4, 1, 0, 2, 2, 0, block=3) + prefix + rows(1, 100) + rows(0, 70) + decode([1, 0], 4),
        "rotary": head(10, 1, 0, 3, 2, 20) + rows(0, 20) + STEP + rows(1, 30) + decode([2, 0, 1], 5),
        "layerwise": head(11, 2, 3, 2, 2, 0) + rows(0, 33) + rows(1, 7) + decode([1, 0], 5),
        "alibi-chunks": head(12, 0, 1, 2, 1, 250) + prefix + rows(0, 49) + STEP + rows(1, 40) + decode([0, 1], 9),
        "quadratic": head(13, 1, 2, 2, 2, 0, block=3) + rows(0, 40) + rows(1, 9) + decode([0, 1], 5),
        "sinusoidal": head(14, 0, 0, 2, 1, 0) + rows(1, 50) + one(0, 3) + STEP + rewind(1, 20) + rows(1, 9),
        "latent": head(15, 1, 0, 3, 2, 20) + rows(0, 20) + STEP + rows(1, 30) + decode([2, 0, 1], 5),
        "latent-chunks": head(15, 2, 1, 2, 1, 250) + prefix + rows(0, 49) + STEP + rows(1, 40) + decode([0, 1], 9),
        "empty": b"",
    }
    for i in range(8):
        seeds[f"scattered-{i}"] = scattered(i)
    for name, data in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


main()
