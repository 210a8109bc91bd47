#!/usr/bin/env python3
"""make_saved_seeds.py [FOLDER] - writes the seeds of fuzz_saved: whole files, made byte by byte, so
that they do not depend on the reader and writer they test, and choices of what stands in one
(tests/fuzz/fuzz_saved.c)."""
import os
import struct
import sys

MASK = 2**64 - 1
KEY, MODEL = 0x6465636F64652121, 12345


def siphash(k0, k1, data):
    """SipHash-1-3."""
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(x, by):
        return (x << by | x >> (64 - by)) & MASK

    def turn():
        v[0] = (v[0] + v[1]) & MASK
        v[2] = (v[2] + v[3]) & MASK
        v[1] = rotate(v[1], 13) ^ v[0]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = rotate(v[0], 32)
        v[2] = (v[2] + v[1]) & MASK
        v[0] = (v[0] + v[3]) & MASK
        v[1] = rotate(v[1], 17) ^ v[2]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = rotate(v[2], 32)

    tail = data[len(data) // 8 * 8 :].ljust(7, b"\0") + bytes([len(data) & 255])
    for (m,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8] + tail):
        v[3] ^= m
        turn()
        v[0] ^= m
    v[2] ^= 255
    for _ in range(3):
        turn()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


# A file's first letters choose the last tiny model with a cache of this type.
Q8_0, POSITION_BYTES = 8, 2 * 2 * (8 + 8 + 2 + 2)


def saved(version=2, model=MODEL, kind=Q8_0, text=(1, 2, 3), cached=2, recent=(2, 3), increment=7, ended=0):
    numbers = version, model, kind, POSITION_BYTES, len(text), cached, len(recent), 5, increment, 9, ended
    parts = [b"DECSAVED" + struct.pack("<11Q", *numbers)]
    parts += [struct.pack(f"<{len(tokens)}i", *tokens) for tokens in (text, recent) if tokens]
    parts += [bytes((7 * p + 3 * i) % 64 for i in range(POSITION_BYTES)) for p in range(cached)]
    value = 0
    for part in parts:
        value = siphash(value, KEY, part)
    return b"".join(parts) + struct.pack("<Q", value)


def choices(what, how, said, text, cached, recent=(), content=b""):
    """What stands in a file: `content` of the positions."""
    numbers = [what, how, said, len(text), cached, len(recent), 3, 5, 7]
    return bytes(numbers + [*text, *recent]) + content


WORDS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1, 2, 3, 4, 5, 6, 7, 8]
SHIFTS, KEEPS = 64, 128
SEEDS = {
    "empty": b"",
    "whole": saved(),
    "nothing-cached": saved(cached=0, recent=()),
    "bad-checksum": saved()[:-1] + b"!",
    "bad-count": saved(cached=4),
    "bad-increment": saved(increment=8),
    "bad-token": saved(text=(1, 16)),
    "bad-type": saved(kind=0),
    "bad-version": saved(version=1),
    "bad-end": saved(ended=2),
    "ended": saved(ended=1),
    "other-model": saved(model=1),
    "short": saved()[:60],
    "long": saved() + b"x",
    "f32": choices(0, 1, 9 + 64, WORDS[:7], 6, content=bytes(range(1, 200)) * 4),
    "f32-nan": choices(0, 3, 9, WORDS[:7], 6, content=b"\xff" * 900),
    "f16": choices(1 + 9, 7 + 64, 20, WORDS[:12], 11, WORDS[:6], bytes(range(60)) * 40),
    "q8_0": choices(2 + 6, 2, 31, WORDS[:5], 5, content=b"\x80\x81\x7f" * 200),
    "full": choices(0, 1, 31, WORDS, 20, content=bytes(range(60)) * 40),
    "full-shift": choices(0 + SHIFTS, 3, 31 + 96, WORDS, 20, content=bytes(range(60)) * 40),
    "shift-kept": choices(2 + 4 + SHIFTS + KEEPS, 7 + 40, 31 + 224, WORDS[:18], 3, WORDS[:9]),
}

if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/fuzz/corpus/saved"
    os.makedirs(folder, exist_ok=True)
    for name, content in SEEDS.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content)
