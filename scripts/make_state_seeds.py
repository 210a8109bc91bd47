#!/usr/bin/env python3
"""make_state_seeds.py [FOLDER] - writes the seed corpus of the fuzz target of training states.

The files are made byte by byte, so that they do not depend on the reader and writer they test.
"""

import os
import struct
import sys

FIELDS, FLOATS = 26, 16


def hashed(data):
    value = 0xCBF29CE484222325
    for (word,) in struct.iter_unpack("<Q", data):
        value = (value ^ word) * 0x100000001B3 % 2**64
    return data + struct.pack("<Q", value)


def state(step=2, best_step=1, best=1.5, rate=1e-3, version=5, floats=3 * FLOATS):
    header = b"DECTRAIN" + struct.pack("<Q", version) + struct.pack(f"<{FIELDS}Q", *range(FIELDS))
    progress = struct.pack("<QQdQQQQQd", step, best_step, best, 7, 9, FLOATS, 1000, 11, rate)
    return header + progress + struct.pack(f"<{floats}f", *(i / 8 for i in range(floats)))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/fuzz/corpus/state"
    os.makedirs(folder, exist_ok=True)
    seeds = {
        "whole": hashed(state()),
        "unmeasured": hashed(state(best=float("inf"), best_step=0)),
        "bad-hash": state() + bytes(8),
        "bad-version": hashed(state(version=4)),
        "bad-rate": hashed(state(rate=-1e-3)),
        "unchosen": hashed(state(step=0, best_step=0, rate=0)),
        "bad-steps": hashed(state(step=2**40)),
        "bad-best": hashed(state(best=float("nan"))),
        "bad-length": hashed(state(floats=2 * FLOATS)),
        "bad-magic": hashed(b"GGUF" + state()[4:]),
        "short": state()[:40],
        "empty": b"",
        # Of one byte, which chooses the run that is resumed: see the target.
        "llama": b"\x10",
        "transformer": b"\x21",
        "quadratic": b"\x30",
    }
    for name, data in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


main()
