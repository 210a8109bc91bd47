#!/usr/bin/env python3
"""make_hello.py [OUT] - writes models/hello.gguf: four words of three numbers each, with which one
token's way through attention can be computed on paper.

    decode attend models/hello.gguf -p "hello how are you" --trace 0.0

One layer with one head of 3. The matrices of queries, keys, values and the output are the identity,
there are no positions, and norms stand after the residuals (architecture decode), so that attention
reads the words' numbers as they are: Q = K = V = X. The feed-forward part is zero. Needs gguf and
NumPy.
"""

import sys

import numpy as np
from gguf import GGUFWriter, TokenType

WORDS = ["hello", " how", " are", " you"]
X = np.arange(1, 13).reshape(4, 3) / 10


def main():
    w = GGUFWriter(sys.argv[1] if len(sys.argv) > 1 else "models/hello.gguf", "decode")
    for key, value in (("context_length", 8), ("embedding_length", 3), ("feed_forward_length", 1),
                       ("block_count", 1), ("attention.head_count", 1)):
        w.add_uint32("decode." + key, value)
    w.add_float32("decode.norm.epsilon", 1e-5)
    for key, value in (("norm.type", "rms"), ("norm.placement", "after"),
                       ("position.type", "none"), ("feed_forward.type", "relu")):
        w.add_string("decode." + key, value)
    w.add_tokenizer_model("gpt2")
    w.add_token_list(WORDS)
    w.add_token_types([TokenType.USER_DEFINED] * len(WORDS))  # found whole, without merges
    tensors = {"token_embd": X, "blk.0.attn_qkv": np.concatenate([np.eye(3)] * 3),
               "blk.0.attn_output": np.eye(3), "blk.0.attn_output_norm": np.ones(3),
               "blk.0.ffn_up": np.zeros((1, 3)), "blk.0.ffn_down": np.zeros((3, 1)),
               "blk.0.layer_output_norm": np.ones(3)}
    for name, x in tensors.items():
        w.add_tensor(name + ".weight", x.astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
