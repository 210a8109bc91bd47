#!/usr/bin/env python3
"""make_nanogpt.py - writes tests/data/nanogpt/{bias,no-bias}: folders with what a checkpoint of nanoGPT
has (model_args as config.json, its tensors' names and shapes, the causal mask that versions without flash
attention keep) and random weights; and logits.npy of tokens.txt, float32 [n, vocab], computed in double
precision. Needs PyTorch, safetensors and NumPy.
"""

import json
import os

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.functional import gelu, layer_norm

ARGS = dict(n_layer=2, n_head=3, n_embd=12, block_size=20, vocab_size=61, dropout=0.0)
OUT = "tests/data/nanogpt"


def weights(bias):
    width = ARGS["n_embd"]
    shapes = {"transformer.wte": [ARGS["vocab_size"], width],
              "transformer.wpe": [ARGS["block_size"], width], "transformer.ln_f": [width]}
    for i in range(ARGS["n_layer"]):
        h = f"transformer.h.{i}."
        shapes |= {h + "ln_1": [width], h + "ln_2": [width],
                   h + "attn.c_attn": [3 * width, width], h + "attn.c_proj": [width, width],
                   h + "mlp.c_fc": [4 * width, width], h + "mlp.c_proj": [width, 4 * width]}
    made = {}
    for name, shape in shapes.items():
        is_table = name.endswith(("wte", "wpe"))
        spread = 1 if is_table else 0.3 if len(shape) == 1 else 2 / shape[1] ** 0.5
        made[name + ".weight"] = torch.randn(shape) * spread + (1 if len(shape) == 1 else 0)
        if bias and not is_table:
            made[name + ".bias"] = torch.randn(shape[0]) * 0.3
    return made


def forward(w, tokens):
    w = {name: x.double() for name, x in w.items()}
    n, heads, width = len(tokens), ARGS["n_head"], ARGS["n_embd"]

    def affine(x, name):
        y = x @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    def norm(x, name):
        return layer_norm(x, [width], w[name + ".weight"], w.get(name + ".bias"), 1e-5)

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:n]
    future = torch.ones(n, n).triu(1).bool()
    for i in range(ARGS["n_layer"]):
        h = f"transformer.h.{i}."
        q, k, v = affine(norm(x, h + "ln_1"), h + "attn.c_attn").split(width, 1)
        q, k, v = (t.view(n, heads, -1).transpose(0, 1) for t in (q, k, v))
        scores = (q @ k.transpose(1, 2) / (width // heads) ** 0.5).masked_fill(future, -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, width)
        x = x + affine(mixed, h + "attn.c_proj")
        x = x + affine(gelu(affine(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def main():
    torch.manual_seed(1)
    for bias in (True, False):
        folder = os.path.join(OUT, "bias" if bias else "no-bias")
        os.makedirs(folder, exist_ok=True)
        w = weights(bias)
        tokens = torch.randint(ARGS["vocab_size"], [ARGS["block_size"]])
        logits = forward(w, tokens).numpy().astype(np.float32)
        w["lm_head.weight"] = w["transformer.wte.weight"].clone()
        mask = torch.ones(ARGS["block_size"], ARGS["block_size"]).tril()
        w["transformer.h.0.attn.bias"] = mask.view(1, 1, *mask.shape).contiguous()
        save_file(w, os.path.join(folder, "model.safetensors"))
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(ARGS | {"bias": bias}, f)
        np.save(os.path.join(folder, "logits.npy"), logits)
        with open(os.path.join(folder, "tokens.txt"), "w") as f:
            print(",".join(map(str, tokens.tolist())), file=f)


if __name__ == "__main__":
    main()
