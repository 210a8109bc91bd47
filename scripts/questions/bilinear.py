#!/usr/bin/env python3
"""bilinear.py MODEL.gguf TRACE.json LAYER HEAD OUT.csv - compares the scores of `decode attend --trace`, which
are products of a query and a key, with x W y: W is the head's Wq'Wk over the root of d_k, with a row and a
column for the biases. Of a gpt2 checkpoint with as many K/V heads as heads. Needs gguf and NumPy.
"""

import json
import sys

import numpy as np
from gguf import GGUFReader


def main():
    path, trace, layer, head, out = sys.argv[1:6]
    reader = GGUFReader(path)
    tensors = {t.name: np.array(t.data, np.float64) for t in reader.tensors}
    heads = int(reader.fields["gpt2.attention.head_count"].parts[-1][0])
    joined = np.column_stack([tensors[f"blk.{layer}.attn_qkv.weight"], tensors[f"blk.{layer}.attn_qkv.bias"]])
    d = joined.shape[1] - 1
    k = d // heads
    query, key = (joined[at + int(head) * k: at + (int(head) + 1) * k] for at in (0, d))
    w = query.T @ key / np.sqrt(k)
    with open(trace, encoding="utf-8") as f:
        steps = {step["step"].split(" = ")[0].split(",")[0]: step for step in json.load(f)["trace"]}
    x = np.column_stack([np.array(steps["X"]["rows"]), np.ones(len(steps["X"]["rows"]))])
    theirs = np.array(steps["scores"]["rows"][0])
    ours = x[-1] @ w @ x[: len(theirs)].T
    values = np.linalg.svd(w, compute_uv=False)
    print("| token | q·k / √d_k | x W y |")
    print("|--:|--:|--:|")
    for i, (a, b) in enumerate(zip(theirs, ours)):
        print(f"| {i} | {a:.4f} | {b:.4f} |")
    print(f"\nlargest difference {abs(theirs - ours).max():.0e}; W is {w.shape[0]} x {w.shape[1]}, of rank {np.linalg.matrix_rank(w)}: d_k is {k}")
    with open(out, "w", encoding="utf-8") as f:
        f.write("series,x,y\n" + "".join(f"W,{i + 1},{v}\n" for i, v in enumerate(values[:64])))


if __name__ == "__main__":
    main()
