#!/usr/bin/env python3
"""lost.py ORIGINAL TEXT BYTES PIECES MODEL... - which predictions a model has lost, by what they take.

PIECES pieces of BYTES bytes of the text, evenly spread, go through each checkpoint alone (`decode score
--logits`, $DECODE). A Markdown table of the divergence from the original's predictions, in nats a token:
of the second token of a pair that the piece had before, at most 100 tokens ago or longer ago, which can
be copied; of a token that it had before, in no such pair; of new ones; and by position. Needs NumPy.
"""

import csv
import io
import os
import subprocess
import sys
import tempfile

import numpy as np

NEAR = 100
decode = os.environ.get("DECODE", "./decode")


def predictions(model, piece, folder):
    """Returns the piece's ids, and after each the natural logarithms of the probabilities of the next."""
    out = os.path.join(folder, "logits.npy")
    rows = subprocess.run([decode, "score", model, "-f", piece, "--logits", out, "--format", "csv"],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    x = np.load(out)
    x -= x.max(1, keepdims=True)
    x -= np.log(np.exp(x).sum(1, keepdims=True))
    return [int(row["id"]) for row in csv.DictReader(io.StringIO(rows))], x


def kinds(ids):
    """Says of every token but the first what can be known of it from those before."""
    pairs, had = {}, {ids[0]}
    for t in range(1, len(ids)):
        pair = (ids[t - 1], ids[t])
        if pair in pairs:
            yield f"a pair of at most {NEAR} tokens ago" if t - pairs[pair] <= NEAR else "a pair of longer ago"
        else:
            yield "a token that was there" if ids[t] in had else "a new token"
        pairs[pair] = t
        had.add(ids[t])


def main():
    original, text, size, n, *models = sys.argv[1:]
    size, n = int(size), int(n)
    with open(text, "rb") as whole:
        data = whole.read()
    parts = {}  # by name, for each token the divergence of every model
    with tempfile.TemporaryDirectory() as folder:
        piece = os.path.join(folder, "piece")
        for i in range(n):
            begin = i * (len(data) - size) // max(n - 1, 1)
            with open(piece, "w", encoding="utf-8") as out:
                out.write(data[begin:begin + size].decode("utf-8", "ignore"))
            ids, p = predictions(original, piece, folder)
            lost = [(np.exp(p) * (p - predictions(m, piece, folder)[1])).sum(1) for m in models]
            for t, kind in enumerate(kinds(ids)):
                # Row t predicts token t + 1.
                tokens_before = 2 ** int(np.log2(t + 1))
                for name in ("all", kind, f"{tokens_before} to {2 * tokens_before - 1} tokens before it"):
                    parts.setdefault(name, []).append([x[t] for x in lost])
    names = [os.path.basename(m).removesuffix(".gguf") for m in models]
    print("| predicted, nats a token | share | " + " | ".join(names) + " |\n|:--|--:|" + "--:|" * len(names))
    positions = sorted((name for name in parts if name[0].isdigit()), key=lambda name: int(name.split()[0]))
    for name in ["all", *sorted(name for name in parts if name.startswith("a ")), *positions[5:]]:
        means = np.mean(parts[name], 0)
        print(f"| {name} | {len(parts[name]) / len(parts['all']):.2f} | " + " | ".join(f"{x:.3f}" for x in means) + " |")


main()
