#!/usr/bin/env python3
"""padding.py MODEL.gguf ID,ID,... [N] - what masking and numbering do about N pads (id 0) in front of a text.

A forward pass of a gpt2 checkpoint in NumPy, apart from the program's: rows of a Markdown table with the
log-probability of the text's last token where the pads are masked or not, and where positions count from the
first pad or from the text (the pads then all have 0). Needs gguf and NumPy.
"""

import math
import sys

import numpy as np
from gguf import GGUFReader


def normed(x, t, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * t[name + ".weight"] + t[name + ".bias"]


def times(x, t, name):
    return x @ t[name + ".weight"].T + t[name + ".bias"]


def log_p(t, layers, heads, ids, places, masked):
    """Returns the natural log-probability of the last id. Only the first `masked` queries look at the first `masked` keys."""
    x = t["token_embd.weight"][ids[:-1]] + t["position_embd.weight"][places[:-1]]
    n = len(x)
    seen = np.tril(np.ones((n, n), bool))
    seen[:, :masked] &= np.eye(n, dtype=bool)[:, :masked]
    for layer in range(layers):
        q, k, v = (np.stack(np.split(y, heads, 1)) for y in
                   np.split(times(normed(x, t, f"blk.{layer}.attn_norm"), t, f"blk.{layer}.attn_qkv"), 3, 1))
        scores = np.where(seen, q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[2]), -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + times(np.concatenate(list(weights @ v), 1), t, f"blk.{layer}.attn_output")
        y = times(normed(x, t, f"blk.{layer}.ffn_norm"), t, f"blk.{layer}.ffn_up")
        y = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        x = x + times(y, t, f"blk.{layer}.ffn_down")
    logits = normed(x, t, "output_norm")[-1] @ t["token_embd.weight"].T
    return logits[ids[-1]] - logits.max() - math.log(np.exp(logits - logits.max()).sum())


def main():
    reader = GGUFReader(sys.argv[1])
    ids, n = [int(i) for i in sys.argv[2].split(",")], int(sys.argv[3]) if len(sys.argv) > 3 else 3
    t = {x.name: np.array(x.data, np.float64) for x in reader.tensors}
    layers, heads = (int(reader.fields[f"gpt2.{key}"].parts[-1][0]) for key in ("block_count", "attention.head_count"))
    padded = [0] * n + ids
    count, text = list(range(len(padded))), [0] * n + list(range(len(ids)))
    for label, of, places, masked in (("alone", ids, list(range(len(ids))), 0), ("in front", padded, count, 0),
                                      ("in front, masked", padded, count, n), ("in front, text from 0", padded, text, 0),
                                      ("in front, both", padded, text, n)):
        print(f"| {label} | {log_p(t, layers, heads, of, places, masked):.4f} |")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    main()
