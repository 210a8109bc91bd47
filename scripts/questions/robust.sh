#!/usr/bin/env bash
# robust.sh TEXT - Are many heads more robust than few? It trains a llama of 2 layers of 64 with 2 heads of 32 and with 32 heads of 2
# (300 steps of 8 windows of 64 bytes, Muon), and then leaves out shares of their heads: of the 4 heads in every way there is, of the 64 in
# 24 ways drawn at random for each seed. Takes 3 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
study heads "$text" --arch llama --layers 2 --embd 64 --ctx 64 --steps "$(steps 300)" --optimizer muon --heads 2,32
baseline "$text" 1 bigrams
python3 - "$text" "$([ $short = no ] && echo 24 || echo 1)" "$dir/lines.csv" $(for heads in 2 32; do best heads heads-$heads | sed "s/^/$heads=/"; done) <<'PYTHON'
import csv
import io
import itertools
import math
import os
import random
import subprocess
import sys
text, draws, out, *models = sys.argv[1:]
SHARES = (0, 0.25, 0.5, 0.75)


def bits(model, without):
    words = [os.environ["DECODE"], "eval", model, text, "--range", "0.9:0.92", "-t", "1", "--format", "csv", "-q"]
    words += ["--without", ",".join(without)] if without else []
    rows = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(next(csv.DictReader(io.StringIO(rows)))["bits_per_byte"])


def ways(heads, share, seed):
    """Sets of heads that are left out: all there are, or some drawn at random."""
    names = [f"{layer}.{head}" for layer in (0, 1) for head in range(heads)]
    n = int(share * len(names))
    if math.comb(len(names), n) <= 6:
        return list(itertools.combinations(names, n))
    draw = random.Random(f"{seed} {share}")
    return [draw.sample(names, n) for _ in range(int(draws))]


def mean(x):
    return sum(x) / len(x)


def deviation(x):
    return math.sqrt(sum((y - mean(x)) ** 2 for y in x) / (len(x) - 1)) if len(x) > 1 else 0.0


found, seeds = {}, {}  # (heads, share): a list of bits for each seed
for heads, model in (word.split("=", 1) for word in models):
    heads = int(heads)
    seeds[heads] = seeds.get(heads, 0) + 1
    for share in SHARES:
        found.setdefault((heads, share), []).append([bits(model, w) for w in ways(heads, share, seeds[heads])])
print("\n| heads a layer | of them left out | removals a seed | bits/byte | ± over removals | over none left out | over 2 heads | 95% |")
print("|--:|--:|--:|--:|--:|--:|--:|--:|")
with open(out, "w") as lines:
    print("series,x,y,low,high", file=lines)
    for (heads, share), of in found.items():
        by_seed = [mean(x) for x in of]
        spread = mean([deviation(x) for x in of])
        lost = mean([x - mean(y) for x, y in zip(by_seed, found[heads, 0])])
        over = [x - mean(y) for x, y in zip(by_seed, found[2, share])]
        behind = f"{mean(over):+.3f} | {4.303 * deviation(over) / math.sqrt(len(over)):.3f}" if heads != 2 else " | "  # Student t of three seeds
        print(f"| {heads} | {share} | {len(of[0])} | {mean(by_seed):.3f} | {spread:.3f} | {lost:+.3f} | {behind} |")
        print(f"{heads} heads,{share},{mean(by_seed)},{mean(by_seed) - spread},{mean(by_seed) + spread}", file=lines)
PYTHON
picture --panel rates "$dir/heads/study.csv" --panel lines "$dir/lines.csv" --title "without some of the heads" \
    --x "share of the heads left out" --y "bits per byte" --level "bigrams=$(counts "$text" 1 | cut -d' ' -f2)"
