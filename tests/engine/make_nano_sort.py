#!/usr/bin/env python3
"""make_nano_sort.py PARTIALS.npz - writes tests/data/real/nano-sort.npy, float32 [33, 484]: the
activations that the author of nano-sort.gguf published, for 3 texts of 11 tokens.

The npz holds the arrays of gpt-nano-sort-t0-partials.json of bbycroft/llm-viz (MIT, as is the model),
[3, 11, columns] each. Arrays of the inside of a block are of block 0. Needs NumPy.
"""

import sys

import numpy as np

COLUMNS = ("x", "ln1", "qkv", "y", "attnResid", "block0", "block1", "block2", "lm_head")


def main():
    partials = np.load(sys.argv[1])
    columns = [partials["idx"][..., None]] + [partials[name] for name in COLUMNS]
    rows = np.concatenate(columns, axis=-1).astype(np.float32)
    np.save("tests/data/real/nano-sort.npy", rows.reshape(-1, rows.shape[-1]))


if __name__ == "__main__":
    main()
