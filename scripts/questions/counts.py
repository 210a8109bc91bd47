#!/usr/bin/env python3
"""counts.py TEXT [CONTEXT...] - what a table of counts knows of a text: the floor under every model.

A CONTEXT is how many bytes back the bytes are that the next one is predicted from: 1 is the table of
bigrams, 2,5 the pair of those two and five back, in order, 2+5 the pair without its order, 0 no context.
Bytes are counted in the first nine tenths and predicted in the last one, as `decode train` and
`decode eval --range 0.9:1` have it: bits per byte, with each context's counts added to those of no
context (K of these; the best K of 1, 4, 16, 64 is taken, so that the table is at its best). By
default contexts 0, 1 and 1,2.
"""

import math
import sys
from collections import Counter


def of_context(text, context):
    """The context of each byte of the text, or None where it reaches before the beginning."""
    if context == "0":
        return [b""] * len(text)
    ordered = "+" not in context
    back = [int(n) for n in context.replace("+", ",").split(",")]
    reach = max(back)
    pairs = (bytes(text[i - n] for n in back) for i in range(reach, len(text)))
    return [None] * reach + [p if ordered else bytes(sorted(p)) for p in pairs]


def bits(text, context):
    """Bits per byte of the last tenth under the counts of the first nine."""
    cut = int(0.9 * len(text))
    contexts = of_context(text, context)
    single = Counter(text[:cut])
    seen = Counter(zip(contexts[:cut], text[:cut]))
    n_seen = Counter(contexts[:cut])
    base = {b: (single[b] + 1) / (cut + 256) for b in range(256)}
    asked = Counter(zip(contexts[cut:], text[cut:]))
    return min(-sum(n * math.log2((seen[c, b] + k * base[b]) / (n_seen[c] + k)) for (c, b), n in asked.items())
               for k in (1, 4, 16, 64)) / (len(text) - cut)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    with open(sys.argv[1], "rb") as f:
        text = f.read()
    for context in sys.argv[2:] or ("0", "1", "1,2"):
        print(f"{context} {bits(text, context):.3f}")


if __name__ == "__main__":
    main()
