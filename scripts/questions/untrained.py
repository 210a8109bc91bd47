#!/usr/bin/env python3
"""untrained.py make DK OUT.gguf | untrained.py read WEIGHTS.npy...

What the size of a head does to scores before any training. `make` writes a checkpoint of random
weights, whose queries and keys have mean 0 and variance 1: 32 heads of DK that read 64 different
tokens of 256 random numbers, without positions. `read` takes the weights that `decode attend --npy`
writes of those 64 tokens, in any orders, and prints over the last queries, which look at all 64 keys: the
variance of the scores, the mean largest weight, and the mean of 1 - sum a^2, what softmax lets
through of a gradient. Needs gguf and NumPy.
"""

import sys

import numpy as np

N, D, HEADS = 64, 256, 32


def make(d_k, path):
    from gguf import GGUFWriter, TokenType
    draw = np.random.default_rng(d_k)
    w = GGUFWriter(path, "decode")
    for key, value in (("context_length", N), ("embedding_length", D), ("feed_forward_length", 1), ("block_count", 1),
                       ("attention.head_count", HEADS), ("attention.key_length", d_k), ("attention.value_length", 1)):
        w.add_uint32("decode." + key, value)
    w.add_float32("decode.norm.epsilon", 1e-5)
    for key, value in (("norm.type", "rms"), ("norm.placement", "after"), ("position.type", "none"),
                       ("feed_forward.type", "relu")):
        w.add_string("decode." + key, value)
    w.add_tokenizer_model("gpt2")
    w.add_token_list([f"{i:02d}" for i in range(N)])
    w.add_token_types([TokenType.USER_DEFINED] * N)
    products = draw.normal(0, D ** -0.5, (2 * HEADS * d_k, D))  # a query or key of such products has variance 1
    tensors = {"token_embd": draw.normal(0, 1, (N, D)), "blk.0.attn_qkv": np.concatenate([products, np.zeros((HEADS, D))]),
               "blk.0.attn_output": np.zeros((D, HEADS)), "blk.0.attn_output_norm": np.ones(D),
               "blk.0.ffn_up": np.zeros((1, D)), "blk.0.ffn_down": np.zeros((D, 1)), "blk.0.layer_output_norm": np.ones(D)}
    for name, x in tensors.items():
        w.add_tensor(name + ".weight", x.astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def read(paths):
    last = np.concatenate([np.load(path)[0, :, -1, :] for path in paths]).astype(np.float64)
    scores = np.log(np.maximum(last, 1e-38))
    print(f"{np.mean(np.var(scores, axis=1, ddof=1)):.5f} {np.mean(last.max(axis=1)):.3f} {np.mean(1 - (last ** 2).sum(axis=1)):.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"] and len(sys.argv) == 4:
        make(int(sys.argv[2]), sys.argv[3])
    elif sys.argv[1:2] == ["read"] and len(sys.argv) > 2:
        read(sys.argv[2:])
    else:
        sys.exit(__doc__.strip())
