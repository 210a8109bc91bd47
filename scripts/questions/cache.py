#!/usr/bin/env python3
"""cache.py table EVAL.csv BENCH.csv LINES.csv TITLE | cache.py outliers LABEL MODEL TEXT

table: from `decode eval --kv-type` and `decode bench --kv-type` a row for each number of K/V heads and type of the
cache: bytes a token as a share of an F16 cache with all heads, divergence, perplexity over the original's, tokens a
second of one sequence and of 16, where bench has no doubt of them; and for shares of 1/2 to 1/8 the row that loses least within them.

outliers: rows of a table; of keys, as they are cached, and of values, blocks of 32 numbers as `decode attend --trace` ($DECODE) has them: how
large the largest of a block is over the root of its mean square, and the error of 4 bits (q4_0) over that, before and
after the Hadamard matrix of the head. Needs NumPy.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile

BITS = {"f32": 32, "f16": 16, "q8_0": 8.5, "q5_0": 5.5, "q4_0": 4.5}  # a number, with its part of a block's scale


def share(kv_heads, all_heads, kv_type):
    """Of the bytes of an F16 cache with all heads; kv_heads is a number, or a list of one a layer."""
    key, _, value = kv_type.partition("/")
    return kv_heads / all_heads * (BITS[key] + BITS[value or key]) / 32


def mean_heads(model):
    """Mean number of K/V heads of a checkpoint's layers."""
    rows = subprocess.run([os.environ.get("DECODE", "./decode"), "info", model, "--format", "json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    of = json.loads(rows)
    of = of[0] if isinstance(of, list) else of
    layers = [int(n) for n in of["kv_heads_by_layer"].split(",") if n] or [of["n_kv_heads"]]
    return sum(layers) / len(layers)


def table(evaluated, timed, lines, title):
    with open(evaluated, newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    rates = {}
    with open(timed, newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            if not row["note"]:
                rates[int(row["n_kv_heads"]), row["kv_type"], int(row["batch"])] = float(row["tokens_per_s"])
    heads = {row["model"]: mean_heads(row["model"]) for row in rows}
    most = max(heads.values())
    base = float(rows[0]["perplexity"])
    found = []
    for row in rows:
        n = heads[row["model"]]
        auto = "auto" in os.path.basename(row["model"])  # bench has no row of it: its mean is that of another variant
        speed = [None if auto else rates.get((n, row["kv_type"], batch)) for batch in (1, 16)]
        found.append((share(n, most, row["kv_type"]), float(row["kl_mean"]), n, row["kv_type"], float(row["perplexity"]) / base, speed, auto))
    print(f"{title}:\n\n| K/V heads | cache | of an F16 cache | divergence | perplexity over the original's | tokens/s | of 16 |")
    print("|:--|:--|--:|--:|--:|--:|--:|")

    def line(of):
        part, lost, n, kv, over, speed, auto = of
        cells = " | ".join(f"{x:,.0f}" if x else "" for x in speed)
        return f"{n:g}{' by layers' if auto else ''} | {kv} | {part:.3f} | {lost:.5f} | {over:.4f} | {cells} |"

    for of in found:
        print("| " + line(of))
    print(f"\n| at most | K/V heads | cache | of an F16 cache | divergence | perplexity over the original's | tokens/s | of 16 |\n|--:|:--|:--|--:|--:|--:|--:|--:|")
    for parts in (2, 3, 4, 8):
        within = [of for of in found if of[0] <= 1 / parts + 1e-9]
        if within:
            print(f"| 1/{parts} | " + line(min(within, key=lambda of: of[1])))
    with open(lines, "w", encoding="utf-8") as out:
        out.write("series,x,y\n")
        for part, lost, n, kv, *_, auto in sorted(found, key=lambda of: (-of[2], of[6], of[0])):
            if lost > 0 and kv != "q4_0/q8_0":  # beside its like, of the same bytes
                out.write(f"{n:g} K/V heads{' by layers' if auto else ''},{part:.4f},{lost}\n")


def outliers(label, model, text):
    import numpy as np
    of = {}
    heads = int(mean_heads(model))
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "trace.json")
        layers, query_heads = 1, heads
        layer = 0
        while layer < layers:
            for head in range(0, query_heads, max(query_heads // heads, 1)):
                subprocess.run([os.environ.get("DECODE", "./decode"), "attend", model, "-f", text, "--range", "0:0.5", "--truncate", "right", "--trace",
                                f"{layer}.{head}", "--json", out, "-q"], check=True, stdout=subprocess.DEVNULL)
                with open(out, encoding="utf-8") as f:
                    trace = json.load(f)
                layers, query_heads = max(trace["layers"]) + 1, max(trace["heads"]) + 1
                steps = [(step["step"], np.array(step["rows"])) for step in trace["trace"] if "rows" in step]
                keys = [rows for name, rows in steps if name.startswith("K")][-1]  # the last is behind the positions
                values = next(rows for name, rows in steps if name.startswith("V"))
                for name, rows in (("keys", keys), ("values", values)):
                    of.setdefault(name, []).append(rows[1:])  # the first token is where heads park
            layer += 1
    for name, blocks in of.items():
        cells = []
        for rotated in (False, True):
            ratio, error, power = [], 0.0, 0.0
            for x in blocks:
                d = x.shape[1] & -x.shape[1]
                if rotated:
                    h = np.array([[1.0]])
                    while len(h) < d:
                        h = np.block([[h, h], [h, -h]])
                    x = (x.reshape(-1, d) @ h / np.sqrt(d)).reshape(x.shape)
                b = x.reshape(-1, 32)
                rms = np.sqrt((b * b).mean(1)) + 1e-12
                ratio.append(abs(b).max(1) / rms)
                at = np.take_along_axis(b, abs(b).argmax(1)[:, None], 1)
                scale = at / -8 + 1e-30
                q = np.clip(np.floor(b / scale + 8.5), 0, 15)
                error += ((scale * (q - 8) - b) ** 2).sum()
                power += (b * b).sum()
            cells += [f"{np.concatenate(ratio).mean():.2f}", f"{np.sqrt(error / power):.3f}"]
        print(f"| {label}: {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"] and len(sys.argv) == 6:
        table(*sys.argv[2:])
    elif sys.argv[1:2] == ["outliers"] and len(sys.argv) == 5:
        outliers(*sys.argv[2:])
    else:
        sys.exit(__doc__.strip())
