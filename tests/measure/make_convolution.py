#!/usr/bin/env python3
"""make_convolution.py [FOLDER] - writes convolution.gguf, .tokens and .npy, for tests/data/golden: a
layer of six heads that attend by quadratic positions alone, and the logits of an explicit causal
convolution without any softmax.

Queries and keys are zero, so that a head's weights are exp(-alpha (distance - delta)^2) over their sum
(Cordonnier et al. 2020, section 3). With an alpha of 50 a head takes the value delta tokens back, or the
first token's where there are fewer: four heads are taps of a convolution, at 0, 1, 2 and 5. With a small
alpha a head is a window over the tokens that there are; two heads are. Needs NumPy and gguf.
"""

import pathlib
import sys

import numpy as np
from gguf import GGUFWriter

HEADS = [(50, 0), (50, 1), (50, 2), (50, 5), (0.5, 2), (0.02, 4)]  # alpha, delta
VOCAB, D, DIM, N = 16, 12, 4, 40


def convolution(v, alpha, delta):
    """Convolves v [N, DIM] of the tokens, over the positions up to each one's own."""
    if alpha == 50:
        return v[np.maximum(np.arange(N) - delta, 0)]
    window = np.exp(-alpha * (np.arange(N) - delta) ** 2)
    sums = [np.convolve(column, window)[:N] for column in v.T]
    return np.stack(sums, axis=1) / np.convolve(np.ones(N), window)[:N, None]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/golden")
    rng = np.random.default_rng(45)
    tensors = {"token_embd": rng.normal(0, 1, (VOCAB, D)), "attn_qkv": np.zeros((3 * 24, D)),
               "attn_rel": np.array(HEADS), "attn_output": rng.normal(0, 0.2, (D, 24)),
               "attn_output_norm": np.ones(D), "ffn_up": np.zeros((1, D)), "ffn_down": np.zeros((D, 1)),
               "layer_output_norm": np.ones(D)}
    tensors["attn_qkv"][48:] = rng.normal(0, 0.3, (24, D))
    tensors = {name: x.astype(np.float32) for name, x in tensors.items()}
    tokens = rng.integers(0, VOCAB, N)

    w = GGUFWriter(folder / "convolution.gguf", "decode")
    for key, value in (("context_length", 64), ("embedding_length", D), ("feed_forward_length", 1),
                       ("block_count", 1), ("attention.head_count", 6), ("attention.key_length", DIM),
                       ("attention.value_length", DIM)):
        w.add_uint32("decode." + key, value)
    w.add_float32("decode.norm.epsilon", 1e-5)
    for key, value in (("norm.type", "rms"), ("norm.placement", "after"),
                       ("position.type", "quadratic"), ("feed_forward.type", "relu")):
        w.add_string("decode." + key, value)
    for name, x in tensors.items():
        w.add_tensor(("" if name == "token_embd" else "blk.0.") + name + ".weight", x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    (folder / "convolution.tokens").write_text(",".join(map(str, tokens)) + "\n")

    t = {name: x.astype(np.float64) for name, x in tensors.items()}
    x = t["token_embd"][tokens]
    values = np.split(x @ t["attn_qkv"][48:].T, 6, axis=1)
    heads = [convolution(v, *head) for v, head in zip(values, HEADS)]
    y = x + np.concatenate(heads, axis=1) @ t["attn_output"].T
    for _ in range(2):
        y = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)
    np.save(folder / "convolution.npy", (y @ t["token_embd"].T).astype(np.float32))


if __name__ == "__main__":
    main()
