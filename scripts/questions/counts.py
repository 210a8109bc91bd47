#!/usr/bin/env python3
"""counts.py TEXT [CONTEXT...] - what a table of counts knows of a text: a baseline for models of it.

A CONTEXT is how many bytes back the bytes are that the next one is predicted from: 1 is the table of
bigrams, 2,5 the pair of those two and five back, in order, 2+5 the pair without its order, 0 no
context. CONTEXT@A-B knows the place in the line, too, as a model can: each place has a table of its
own, but the places A to B (from 0) share one. Bytes are counted in the first nine tenths and predicted
in the last one, as `decode train` and `decode eval --range 0.9:1` have it: bits per byte, with each
context's counts added to those of its place alone (K of these; of 1, 4, 16, 64, 256, 4096 the best K of
each place is taken, so that the table is at its best). By default contexts 0, 1 and 1,2.
"""

import math
import sys
from collections import Counter, defaultdict


def of_context(text, context):
    """Returns the context of each byte of the text, or None where it reaches before the beginning."""
    if context == "0":
        return [b""] * len(text)
    ordered = "+" not in context
    back = [int(n) for n in context.replace("+", ",").split(",")]
    reach = max(back)
    pairs = (bytes(text[i - n] for n in back) for i in range(reach, len(text)))
    return [None] * reach + [p if ordered else bytes(sorted(p)) for p in pairs]


def of_place(text, alike):
    """Returns the place of each byte in its line, those from A to B as A; all are 0 where no place is asked."""
    if not alike:
        return [0] * len(text)
    first, last = (int(n) for n in alike.split("-"))
    places, place = [], 0
    for byte in text:
        places.append(first if first <= place <= last else place)
        place = 0 if byte == ord("\n") else place + 1
    return places


def bits(text, context):
    """Returns bits per byte of the last tenth under the counts of the first nine."""
    cut = int(0.9 * len(text))
    context, _, alike = context.partition("@")
    places = of_place(text, alike)
    contexts = list(zip(places, of_context(text, context)))
    single, n_single = Counter(zip(places[:cut], text[:cut])), Counter(places[:cut])
    seen, n_seen = Counter(zip(contexts[:cut], text[:cut])), Counter(contexts[:cut])
    asked = defaultdict(Counter)
    for c, b in zip(contexts[cut:], text[cut:]):
        asked[c[0]][c, b] += 1
    total = 0
    for place, of in asked.items():
        base = {b: (single[place, b] + 1) / (n_single[place] + 256) for b in range(256)}
        total += min(-sum(n * math.log2((seen[c, b] + k * base[b]) / (n_seen[c] + k)) for (c, b), n in of.items())
                     for k in (1, 4, 16, 64, 256, 4096))
    return total / (len(text) - cut)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    with open(sys.argv[1], "rb") as f:
        text = f.read()
    for context in sys.argv[2:] or ("0", "1", "1,2"):
        print(f"{context} {bits(text, context):.3f}")


if __name__ == "__main__":
    main()
