#!/usr/bin/env python3
"""weights.py WEIGHTS.npy A:B [OUT.npy [last]] - of what `decode attend --npy` writes, the mean weight that the
queries from B on give to the keys from A to B, a line "LAYER.HEAD SHARE" for each head. OUT.npy gets
the map of the head with the largest share. With `last` it is the share of the last query alone. Needs NumPy.
"""

import sys

import numpy as np


def main():
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__.strip())
    weights = np.load(sys.argv[1])
    a, b = (int(part) for part in sys.argv[2].split(":"))
    queries = slice(-1, None) if len(sys.argv) == 5 else slice(b, None)
    shares = weights[:, :, queries, a:b].sum(axis=3).mean(axis=2)
    for layer, head in np.ndindex(*shares.shape):
        print(f"{layer}.{head} {shares[layer, head]:.3f}")
    if len(sys.argv) >= 4:
        layer, head = np.unravel_index(shares.argmax(), shares.shape)
        np.save(sys.argv[3], weights[layer:layer + 1, head:head + 1])


if __name__ == "__main__":
    main()
