#!/usr/bin/env python3
"""weights.py WEIGHTS.npy keys A:B|last A:B|back D,D,... [OUT.npy] - shares of attention's weights, as
`decode attend --npy` writes them: a line "LAYER.HEAD SHARE..." for each head.

    keys A:B    what the queries from B on give, on the mean, to the keys from A to B
    last A:B    what the last query gives to the keys from A to B
    back D,D    what a query gives to the key D back, of those that have all of them

OUT.npy gets the map of the head whose first share is largest. Needs NumPy.
"""

import sys

import numpy as np


def shares_of(weights, what, places):
    """Returns the shares of each head: [layers, heads, shares]."""
    n = weights.shape[-1]
    if what == "back":
        back = [int(d) for d in places.split(",")]
        queries = np.arange(max(back), n)
        return np.stack([weights[:, :, queries, queries - d].mean(axis=2) for d in back], axis=2)
    a, b = (int(place) for place in places.split(":"))
    queries = slice(b, None) if what == "keys" else slice(-1, None)
    return weights[:, :, queries, a:b].sum(axis=3).mean(axis=2)[:, :, None]


def main():
    if not 4 <= len(sys.argv) <= 5 or sys.argv[2] not in ("keys", "last", "back"):
        sys.exit(__doc__.strip())
    weights = np.load(sys.argv[1])
    shares = shares_of(weights, *sys.argv[2:4])
    for layer, head in np.ndindex(*shares.shape[:2]):
        print(f"{layer}.{head}", *(f"{share:.3f}" for share in shares[layer, head]))
    if len(sys.argv) == 5:
        layer, head = np.unravel_index(shares[:, :, 0].argmax(), shares.shape[:2])
        np.save(sys.argv[4], weights[layer:layer + 1, head:head + 1])


if __name__ == "__main__":
    main()
