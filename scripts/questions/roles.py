#!/usr/bin/env python3
"""roles.py MODEL SENTENCES MAPS.json - which heads look from a word at the one that it goes with?

SENTENCES are those of roles.tsv, and MODEL runs by $DECODE. The pairs of each kind are halved: on one half
heads are chosen, on the other they are tested. A head's weight on the right word is compared with even
attention to all tokens so far; with its own mean weight at that distance, over all other queries of all
sentences; and with its weight on the misleading word. What is counted is a pair, the mean of its two versions.
A head passes where all three differences are above 0 beyond their 95% interval. Looked is from the word itself
("at it") and from the token before ("before it"), which has to predict it; that one is the same in both versions of a pronoun's pair. Then the three
best heads of each kind, of a pronoun at it, of others before it, are left out, and the nats of the word, of a
pronoun those of the word that says whom it meant, are measured on the other half of every kind; beside them
those without three heads drawn at random.

Prints Markdown tables; MAPS.json gets a map of the best head of each kind with its tokens. Needs NumPy.
"""

import csv
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

OPENING = "We read this: "  # so that no word of a sentence is the first token, where heads park
EXAMPLES = ("The animal did not cross the street because it was too tired", "The animal did not cross the street because it was too wide")
T95 = {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 9: 2.262}  # Student t
DRAWS = 3
decode = os.environ.get("DECODE", "./decode")


def versions(line, probe):
    """Returns for both texts of a line (text, right, other, asked, whole, predicted): the places of the right, the misleading and
    the asked word in the text, and the whole text with the place of the word that is predicted."""
    for version in (0, 1):
        text, places = OPENING, {}
        for part in re.finditer(r"<(\d+) ([^ >]+)>|\{([^}]*)\}|([^<{]+)", line):
            marks, word, asked, plain = part.groups()
            chosen = re.sub(r"(\S+?)/(\S+)", lambda m: m.group(version + 1), word or asked or plain)
            if word:
                right = str(version + 1) in marks
                places["right" if right else "other"] = len(text) + len(chosen) - 1
            elif asked:
                places["asked"] = len(text)
            text += chosen
        before, _, answers = probe.partition("{")
        whole = text + before
        predicted = len(whole) if probe else places["asked"]
        yield text, places["right"], places["other"], places["asked"], whole + answers.rstrip("}").split("/")[version if probe else 0], predicted


class Model:
    """A checkpoint that is run over texts, each time as a process."""

    def __init__(self, path, folder):
        self.path, self.file, self.array = path, os.path.join(folder, "text"), os.path.join(folder, "weights.npy")

    def run(self, command, text, *options):
        with open(self.file, "w", encoding="utf-8") as f:
            f.write(text)
        return subprocess.run([decode, command, self.path, "-f", self.file, "-q", "--format", "csv", *options],
                              check=True, stdout=subprocess.PIPE, text=True).stdout

    def tokens(self, text, *options):
        """Returns the tokens, the place of each one's last letter, and the nats of each."""
        rows = list(csv.DictReader(io.StringIO(self.run("score", text, *options))))
        ends = np.cumsum([len(row["text"]) for row in rows]) - 1
        return [row["text"] for row in rows], ends, [-float(row["logprob"]) if row["logprob"] else None for row in rows]

    def nats(self, text, place, *options):
        """Returns the index of the token that begins at a place of the text, or with the space before it."""
        _, ends, nats = self.tokens(text, *options)
        return nats[int(np.searchsorted(ends, place))]

    def weights(self, text):
        self.run("attend", text, "--npy", self.array)
        return np.load(self.array)


def interval(x, axis=0):
    """Returns the mean over an axis, and half of its 95% interval."""
    n = x.shape[axis]
    return x.mean(axis), T95.get(n - 1, 1.96 + 2.4 / max(n - 1, 1)) * x.std(axis, ddof=1) / np.sqrt(n)


def main():
    path, sentences, maps = sys.argv[1:]
    few = int(os.environ.get("PAIRS", "1000"))
    kinds = {}
    with open(sentences, encoding="utf-8") as f:
        for line in f:
            if line.strip() and line[0] != "#":
                kind, text, *probe = line.rstrip("\n").split("\t")
                if len(kinds.setdefault(kind, [])) < few:
                    kinds[kind].append(list(versions(text, *probe or [""])))
    with tempfile.TemporaryDirectory() as folder:
        model = Model(path, folder)
        items, total, count = {}, 0, 0  # items: what was found, [pairs, versions] of each kind
        for kind, pairs in kinds.items():
            for pair in pairs:
                for text, right, other, asked, whole, predicted in pair:
                    names, ends, _ = model.tokens(text)
                    nats = model.nats(whole, predicted)
                    w = model.weights(text).astype(np.float64)
                    r, o, q = (int(np.searchsorted(ends, place)) for place in (right, other, asked))
                    items.setdefault(kind, []).append((w, r, o, q, nats, names))
                    # The baseline is by distance, of all queries but those that are asked about, and of all keys but the first token.
                    n = w.shape[-1]
                    by = np.zeros(w.shape[:2] + (64,))
                    seen = np.zeros(64)
                    for i in range(1, n):
                        if i not in (q, q - 1):
                            by[:, :, :i] += w[:, :, i, i:0:-1]
                            seen[:i] += 1
                    total, count = total + by, count + seen
        profile = total / np.maximum(count, 1)
        layers, heads = profile.shape[:2]
        print(f"| kind, looked from | pairs chosen on, tested on | heads that pass | of them in the test | if the halves had nothing in common | best head "
              "| on the right word | over even | ± | over its distance | ± | over the misleading word | ± |")
        print("|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
        best, first = {}, []
        for kind, of in items.items():
            for place, back in (("before it", 1), ("at it", 0)):
                rows = []
                for w, r, o, q, _, _ in of:
                    i = q - back
                    rows.append([w[:, :, i, r], w[:, :, i, r] - 1 / (i + 1), w[:, :, i, r] - profile[:, :, i - r], w[:, :, i, r] - w[:, :, i, o]])
                x = np.array(rows)
                x = x.reshape(-1, 2, *x.shape[1:]).mean(1)  # pairs
                chosen, tested = x[::2], x[1::2]
                (m, half), (tm, thalf) = interval(chosen), interval(tested)
                passes = (m[1:] > half[1:]).all(0)
                both = passes & (tm[1:] > thalf[1:]).all(0)
                other = ((tm[1:] > thalf[1:]).all(0)).mean()
                rank = np.where(passes, m[1:].min(0), -1 + m[1:].min(0))
                order = [divmod(int(h), heads) for h in np.argsort(-rank, axis=None)[:3]]
                if back == (kind != "pronoun"):
                    best[kind] = order
                l, h = order[0]
                cells = " | ".join(f"{tm[k, l, h]:+.3f} | {thalf[k, l, h]:.3f}" for k in (1, 2, 3))
                print(f"| {kind}, {place} | {len(chosen)}, {len(tested)} | {passes.sum()} | {both.sum()} | {other * passes.sum():.1f} | {l}.{h} | "
                      f"{tm[0, l, h]:.3f} | {cells} |")
                if back == (kind != "pronoun"):
                    w, names = of[2][0], of[2][5]
                    first.append((w[l, h], names, f"{kind}: head {l}.{h}"))
        l, h = best["pronoun"][0]
        print("\n| best head of a pronoun, from | on animal | on street |\n|:--|--:|--:|")
        for text in EXAMPLES:
            _, ends, _ = model.tokens(OPENING + text)
            w = model.weights(OPENING + text)[l, h]
            animal, street, *asked = (int(np.searchsorted(ends, (OPENING + text).index(" " + word) + len(word)))
                                      for word in ("animal", "street", "it was", text.split()[-1]))
            asked[0] -= 1
            for word, i in zip(("it", text.split()[-1]), asked):
                print(f"| {word} of \"{text.split('because ')[1]}\" | {w[i, animal]:.3f} | {w[i, street]:.3f} |")
        print("\n| left out | " + " | ".join(f"{kind}, nats lost | ±" for kind in items) + " |\n|:--|" + "--:|--:|" * len(items))
        draw = random.Random(1)
        names = [f"{a}.{b}" for a in range(layers) for b in range(heads)]

        def lost(without):
            """Returns for each kind the nats of the asked word over those of the whole model, a figure for each pair of the tested half."""
            found = {}
            for kind, pairs in kinds.items():
                for i in range(1, len(pairs), 2):
                    two = []
                    for version, (*_, whole, predicted) in enumerate(pairs[i]):
                        two.append(model.nats(whole, predicted, "--without", ",".join(without)) - items[kind][2 * i + version][4])
                    found.setdefault(kind, []).append(np.mean(two))
            return found

        def row(label, found):
            print(f"| {label} | " + " | ".join("{:+.3f} | {:.3f}".format(*interval(np.array(found[kind]))) for kind in items) + " |", flush=True)

        for kind, heads_of in best.items():
            without = [f"{a}.{b}" for a, b in heads_of]
            row(f"{kind}'s: {', '.join(without)}", lost(without))
        draws = [lost(draw.sample(names, 3)) for _ in range(DRAWS if few > 2 else 1)]
        row(f"three at random, mean of {len(draws)} draws", {kind: np.mean([d[kind] for d in draws], 0) for kind in items})
        print(f"| nothing: nats of the word | " + " | ".join("{:.3f} | {:.3f}".format(*interval(np.array(
            [np.mean([items[kind][2 * i + v][4] for v in (0, 1)]) for i in range(1, len(kinds[kind]), 2)]))) for kind in items) + " |")
    with open(maps, "w", encoding="utf-8") as f:
        json.dump([{"title": title, "names": names, "weights": [[round(float(v), 4) for v in r] for r in w]} for w, names, title in first], f)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    main()
