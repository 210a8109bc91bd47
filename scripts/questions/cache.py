#!/usr/bin/env python3
"""cache.py table BENCH.csv LINES.csv TITLE EVAL.csv... | cache.py outliers LABEL MODEL TEXT

table: from `decode eval --kv-type`, the original first, and `decode bench --kv-type` a row for each number of K/V heads and type of the
cache: bytes a token as a share of an F16 cache with all heads, divergence, perplexity over the original's, tokens a
second of one sequence and of 16, the median of the rounds that bench has no doubt of. Names of models are cache.sh's. And for shares of 1/2 to 1/8
the row that loses least within them, of those that were trained on apart.

outliers: rows of a table; of keys, as they are cached, and of values, blocks of 32 numbers as `decode attend --trace` ($DECODE) has them: how
large the largest of a block is over the root of its mean square, and the error of 4 bits (q4_0) over that, before and
after the Hadamard matrix of the head. Needs NumPy.
"""

import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

BITS = {"f32": 32, "f16": 16, "q8_0": 8.5, "q5_0": 5.5, "q4_0": 4.5}  # of a number, with its part of a block's scale


def share(kv_heads, all_heads, kv_type):
    """Returns the share of the bytes of an F16 cache with all heads."""
    key, _, value = kv_type.partition("/")
    return kv_heads / all_heads * (BITS[key] + BITS[value or key]) / 32


def told(path):
    """Returns what a file's name says: the heads, how they came to be, and the name of what runs as fast."""
    name = os.path.basename(path)[: -len(".gguf")]
    how, heads = re.fullmatch(r".*-(auto|up|)(\d+)", name).groups()
    return int(heads), {"auto": " by layers", "up": " trained on", "": ""}[how], name.replace("-up", "-")


def read(path):
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def table(timed, lines, title, *evaluated):
    rates = {}
    for row in read(timed):  # rounds, each with its header
        if row["model"] != "model" and not row["note"]:
            rates.setdefault((told(row["model"])[2], row["kv_type"], int(row["batch"])), []).append(float(row["tokens_per_s"]))
    rows = [row for path in evaluated for row in read(path)]
    most, base = told(rows[0]["model"])[0], float(rows[0]["perplexity"])
    found = []
    for row in rows:
        heads, how, like = told(row["model"])
        speed = " | ".join(f"{statistics.median(rates[at]):,.0f}" if (at := (like, row["kv_type"], batch)) in rates else "" for batch in (1, 16))
        found.append((share(heads, most, row["kv_type"]), float(row["kl_mean"]), f"{heads}{how}", row["kv_type"], float(row["perplexity"]) / base, speed))

    def line(of):
        part, lost, variant, kv, over, speed = of
        return f"{variant} | {kv} | {part:.3f} | {lost:.5f} | {over:.4f} | {speed} |"

    print(f"{title}:\n\n| K/V heads | cache | of an F16 cache | divergence | perplexity over the original's | tokens/s | of 16 |")
    print("|:--|:--|--:|--:|--:|--:|--:|")
    for of in found:
        print("| " + line(of))
    print("\n| at most | K/V heads | cache | of an F16 cache | divergence | perplexity over the original's | tokens/s | of 16 |\n|--:|:--|:--|--:|--:|--:|--:|--:|")
    for parts in (2, 3, 4, 8):
        for trained in (False, True):
            within = [of for of in found if of[0] <= 1 / parts + 1e-9 and ("trained" in of[2]) == trained]
            if within:
                print(f"| 1/{parts} | " + line(min(within, key=lambda of: (round(of[1], 5), of[0]))))
    with open(lines, "w", encoding="utf-8") as out:
        out.write("series,x,y\n")
        for variant in dict.fromkeys(of[2] for of in found):
            number, _, how = variant.partition(" ")
            for part, lost, _, kv, *_ in sorted(of for of in found if of[2] == variant):
                if lost > 0 and kv != "q4_0/q8_0":  # beside its like, of the same bytes
                    out.write(f"{number} K/V head{'s' * (number != '1')}{' ' * bool(how)}{how},{part:.4f},{lost}\n")


def n_kv_heads(model):
    """Returns the K/V heads of a checkpoint whose layers all have as many."""
    rows = subprocess.run([os.environ.get("DECODE", "./decode"), "info", model, "--format", "json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    of = json.loads(rows)
    return (of[0] if isinstance(of, list) else of)["n_kv_heads"]


def outliers(label, model, text):
    import numpy as np
    of = {}
    heads = n_kv_heads(model)
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
    if sys.argv[1:2] == ["table"] and len(sys.argv) > 5:
        table(*sys.argv[2:])
    elif sys.argv[1:2] == ["outliers"] and len(sys.argv) == 5:
        outliers(*sys.argv[2:])
    else:
        sys.exit(__doc__.strip())
