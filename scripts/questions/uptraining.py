#!/usr/bin/env python3
"""uptraining.py best FOLDER SHARE N | uptraining.py next FOLDER SHARE RATE... | uptraining.py table FOLDER LINES

FOLDER has bits per byte in files HEADS-METHOD-SEED-0.bits of conversions, and HEADS-METHOD-RATE-SEED-SHARE.bits of what SHARE
percent of the training more makes of them; METHOD is mean, first, random, fit, or MHA for the checkpoint that was converted.

best: the N rates that are best for seed 1, a line "HEADS METHOD RATE" for each.
next: of the RATEs, which rise, the one beyond the best where that is at the edge of those that were tried, in such lines.
table: rows of a table, of the heads and shares that are whole; LINES-HEADS.csv gets them for a picture.
"""

import collections
import glob
import math
import os
import sys

METHODS = ("mean", "first", "random", "fit")
T95 = {2: 12.706, 3: 4.303}  # Student t, of so many seeds


def read(folder):
    """Returns for each (heads, method, share) the bits of each seed at each rate; conversions have the rate 0."""
    cells = collections.defaultdict(lambda: collections.defaultdict(dict))
    for path in glob.glob(folder + "/*.bits"):
        heads, method, *rate, seed, share = os.path.basename(path)[: -len(".bits")].split("-")
        with open(path, encoding="ascii") as f:
            cells[int(heads), method, int(share)][rate[0] if rate else "0"][int(seed)] = float(f.read())
    return cells


def by_seed_1(rates):
    """Returns the rates, the best first."""
    return sorted(rates, key=lambda rate: rates[rate].get(1, math.inf))


def best(rates):
    return by_seed_1(rates)[0]


def over(a, b):
    """Returns the mean of a minus b, paired by seed, and half of its 95% interval. A side with one seed stands for all."""
    seeds = sorted(set(a) | set(b))
    of = [a.get(seed, a[1]) - b.get(seed, b[1]) for seed in seeds]
    mean, n = sum(of) / len(of), len(of)
    half = T95[n] * math.sqrt(sum((x - mean) ** 2 for x in of) / (n - 1) / n) if n > 1 else None
    return mean, half


def cell(of):
    return f"{of[0]:+.4f} | " + ("" if of[1] is None else f"{of[1]:.4f}")


def table(cells, lines):
    seeds = max(len(bits) for rates in cells.values() for bits in rates.values())
    print("| K/V heads | % more | method | rate | seed 1 at the others | bits/byte | over MHA | 95% | over the row above | 95% |")
    print("|--:|--:|:--|--:|:--|--:|--:|--:|--:|--:|")
    shares = sorted({share for _, _, share in cells})

    def taken(heads, method, share):
        rates = cells.get((heads, method, share), {})
        if not rates or (share and len(rates[best(rates)]) < seeds):
            return None
        return rates[best(rates)]

    def row(heads, share, method, before):
        rates, bits, mha = cells[heads, method, share], taken(heads, method, share), taken(8, "MHA", share)
        rate = best(rates)
        edge = "+" if len(rates) > 1 and rate in (min(rates, key=float), max(rates, key=float)) else ""
        others = ", ".join(f"{r}: {rates[r][1]:.4f}" for r in sorted(rates, key=float) if r != rate)
        print(f"| {heads} | {share} | {method} | {rate + edge if share else ''} | {others} | {sum(bits.values()) / len(bits):.4f} | "
              f"{' | ' if method == 'MHA' else cell(over(bits, mha))} | {cell(over(bits, before)) if before else ' | '} |")

    for share in shares:
        if taken(8, "MHA", share):
            row(8, share, "MHA", None)
    for heads in sorted({heads for heads, method, _ in cells if method != "MHA"}):
        with open(f"{lines}-{heads}.csv", "w", encoding="ascii") as out:
            found = [share for share in shares if taken(8, "MHA", share) and all(taken(heads, method, share) for method in METHODS)]
            for share in found:
                before = None
                for method in METHODS:
                    row(heads, share, method, before if method != "fit" else None)
                    before = taken(heads, method, share)
            print("series,x,y,low,high", file=out)
            for method in METHODS:
                for share in found:
                    mean, half = over(taken(heads, method, share), taken(8, "MHA", share))
                    print(f"{method},{share},{mean},{mean - (half or 0)},{mean + (half or 0)}", file=out)


def main():
    if sys.argv[1:2] == ["best"] and len(sys.argv) == 5:
        for (heads, method, share), rates in sorted(read(sys.argv[2]).items()):
            if share == int(sys.argv[3]):
                for rate in by_seed_1(rates)[: int(sys.argv[4])]:
                    print(heads, method, rate)
    elif sys.argv[1:2] == ["next"] and len(sys.argv) > 4:
        grid = sys.argv[4:]
        for (heads, method, share), rates in sorted(read(sys.argv[2]).items()):
            if share == int(sys.argv[3]):
                at = grid.index(best(rates))
                for rate in grid[max(at - 1, 0) : at + 2]:
                    if rate not in rates:
                        print(heads, method, rate)
    elif sys.argv[1:2] == ["table"] and len(sys.argv) == 4:
        table(read(sys.argv[2]), sys.argv[3])
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
