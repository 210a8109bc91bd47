#!/usr/bin/env python3
"""hello.py [FOLDER] - writes models/hello.gguf and models/hello-2-heads.gguf: four words of a few
numbers each, with which one token's way through attention can be computed on paper.

    decode attend models/hello.gguf -p "hello how are you" --trace 0.0

Both have one layer. hello has one head of 3. hello-2-heads has two heads of 2, of the first two numbers of a
word and of the last two, and an output matrix of zeros and ones. All other matrices of attention are the
identity, there are no positions, and norms stand after the residuals (architecture decode), so that
attention reads the words' numbers as they are: Q = K = V = X. The feed-forward part is zero. Needs gguf
and NumPy.
"""

import sys

import numpy as np
from gguf import GGUFWriter, TokenType

WORDS = ["hello", " how", " are", " you"]
ONE = np.arange(1, 13).reshape(4, 3) / 10
TWO = np.array([[1, 0, 2, 1], [0, 1, 1, 2], [1, 1, 0, 1], [2, 1, 1, 0]])
# A row for each number of A, the heads' results side by side: what it adds to the stream, A Wo.
TWO_WO = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]])


def write(path, x, heads, wo):
    d = x.shape[1]
    w = GGUFWriter(path, "decode")
    for key, value in (("context_length", 8), ("embedding_length", d), ("feed_forward_length", 1),
                       ("block_count", 1), ("attention.head_count", heads)):
        w.add_uint32("decode." + key, value)
    w.add_float32("decode.norm.epsilon", 1e-5)
    for key, value in (("norm.type", "rms"), ("norm.placement", "after"),
                       ("position.type", "none"), ("feed_forward.type", "relu")):
        w.add_string("decode." + key, value)
    w.add_tokenizer_model("gpt2")
    w.add_token_list(WORDS)
    w.add_token_types([TokenType.USER_DEFINED] * len(WORDS))  # such a token is found whole, without merges
    tensors = {"token_embd": x, "blk.0.attn_qkv": np.concatenate([np.eye(d)] * 3),
               "blk.0.attn_output": wo.T, "blk.0.attn_output_norm": np.ones(d),
               "blk.0.ffn_up": np.zeros((1, d)), "blk.0.ffn_down": np.zeros((d, 1)),
               "blk.0.layer_output_norm": np.ones(d)}
    for name, values in tensors.items():
        w.add_tensor(name + ".weight", np.ascontiguousarray(values, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "models"
    write(folder + "/hello.gguf", ONE, 1, np.eye(3))
    write(folder + "/hello-2-heads.gguf", TWO, 2, TWO_WO)


if __name__ == "__main__":
    main()
