#!/usr/bin/env python3
"""recall.py TEXT N LINES.csv [--short LETTERS] [--heads] NAME=MODEL... - what answers cost at a distance.

Of the lines of TEXT's last tenth, which end in the letter that they began with (`texts.sh recall`), the
first N of each distance from 2 to 3, 4 to 7 ... and 64 to 99 letters between. Each line alone goes
through each model ($DECODE), so that no window cuts it. A Markdown table: the bits of the last letter,
mean and half of the interval that holds it 95% of the time; with --short of the line's last LETTERS
alone, and with --heads without each of its heads, both over the whole line, line by line. A second table
of --heads: the mean weight of the last letter's predecessor on the line's first letter. LINES.csv gets the
means for a picture. Needs NumPy for --heads.
"""

import csv
import io
import math
import os
import subprocess
import sys
import tempfile

decode = os.environ.get("DECODE", "./decode")
PLACES = [(2, 3), (4, 7), (8, 15), (16, 31), (32, 63), (64, 99)]


def run(*words):
    return subprocess.run([decode, *words, "-t", "1", "-q", "--format", "csv"], check=True, stdout=subprocess.PIPE, text=True).stdout


def cost(model, line, path, *options):
    """Returns the bits of the line's last letter."""
    with open(path, "w", encoding="ascii") as f:
        f.write(line)
    rows = list(csv.DictReader(io.StringIO(run("score", model, "-f", path, *options))))
    return -float(rows[-1]["logprob"]) / math.log(2)


def mean(x):
    """Returns the mean, and half of its 95% interval."""
    m = sum(x) / len(x)
    if len(x) < 2:
        return m, 0.0
    return m, 1.96 * math.sqrt(sum((y - m) ** 2 for y in x) / (len(x) - 1) / len(x))


def chosen(path, n):
    """Returns n lines for each of the PLACES, from the last tenth."""
    with open(path, encoding="ascii") as f:
        lines = f.read().split("\n")[:-1]
    held_out = lines[len(lines) - len(lines) // 10:]
    return [[line for line in held_out if a <= len(line) - 3 <= b][:n] for a, b in PLACES]


def main():
    words, short, ablate = sys.argv[1:], 0, False
    models = []
    text, n, out = words[0], int(words[1]), words[2]
    i = 3
    while i < len(words):
        if words[i] == "--short":
            short, i = int(words[i + 1]), i + 1
        elif words[i] == "--heads":
            ablate = True
        else:
            models.append(words[i].split("=", 1))
        i += 1
    places = chosen(text, n)
    head = " | ".join(f"{a} to {b}" for a, b in PLACES)
    print(f"| model | bits of the answer | {head} |\n|:--|:--|" + "--:|" * len(PLACES))
    print("| | lines | " + " | ".join(str(len(lines)) for lines in places) + " |")
    looks = []
    with open(out, "w", encoding="utf-8") as lines_csv, tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "line")
        lines_csv.write("series,x,y,low,high\n")

        def row(name, what, costs, whole):
            """Prints a row of the table, over the whole line if that is given, and keeps its means for the picture."""
            cells = []
            for (a, _), of, own in zip(PLACES, costs, whole or costs):
                if not of:
                    cells.append("")
                    continue
                m, half = mean([x - y for x, y in zip(of, own)] if whole else of)
                cells.append(f"{m:{'+' if whole else ''}.2f} ± {half:.2f}")
                m, half = mean(of)
                label = f"{name} {what}" if whole else name
                lines_csv.write(f"{label},{a},{m},{m - half},{m + half}\n")
            print(f"| {name} | {'over that, ' if whole else ''}{what} | " + " | ".join(cells) + " |", flush=True)

        for name, model in models:
            whole = [[cost(model, line, path) for line in lines] for lines in places]
            row(name, "the whole line", whole, None)
            if short:
                row(name, f"its last {short} letters", [[cost(model, line[-short:], path) for line in lines] for lines in places], whole)
            if not ablate:
                continue
            import numpy
            weights = os.path.join(folder, "weights.npy")
            seen = [[] for _ in PLACES]  # for each line [layers, heads]
            for at, lines in zip(seen, places):
                for line in lines:
                    with open(path, "w", encoding="ascii") as f:
                        f.write(line[:-1])
                    run("attend", model, "-f", path, "--npy", weights)
                    at.append(numpy.load(weights)[:, :, -1, 0])
            shape = next(at[0].shape for at in seen if at)
            for layer, of in numpy.ndindex(*shape):
                row(name, f"without head {layer}.{of}", [[cost(model, line, path, "--without", f"{layer}.{of}") for line in lines]
                                                       for lines in places], whole)
                looks.append(f"| {name} | {layer}.{of} | " + " | ".join(
                    f"{numpy.mean([w[layer, of] for w in at]):.2f}" if at else "" for at in seen) + " |")
    if looks:
        print(f"\n| model | head's weight on the capital | {head} |\n|:--|:--|" + "--:|" * len(PLACES))
        print("\n".join(looks))


if __name__ == "__main__":
    if len(sys.argv) < 5 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    main()
