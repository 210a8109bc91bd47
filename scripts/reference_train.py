#!/usr/bin/env python3
"""Loss and gradients of the golden checkpoints, in NumPy and float64, for tests/test_backprop.c.

Writes tests/data/train/NAME.txt: the batch, the loss, and for every tensor the norm of its
gradient and its dot products with two fixed vectors. Needs numpy and gguf.

usage: scripts/reference_train.py   (from the repository's top)
"""

import os

import numpy as np
from gguf import GGUFReader

NAMES = ["mha", "gqa", "mqa", "mqa-f16"]
WINDOWS, LENGTH = 3, 37


def read(name):
    reader = GGUFReader(f"tests/data/golden/{name}.gguf")
    arch = reader.fields["general.architecture"].contents()
    config = {
        key: reader.fields[f"{arch}.{field}"].contents()
        for key, field in [
            ("layers", "block_count"),
            ("d", "embedding_length"),
            ("heads", "attention.head_count"),
            ("eps", "attention.layer_norm_epsilon"),
        ]
    }
    config["eps"] = float(np.float32(config["eps"]))
    kv = reader.fields.get(f"{arch}.attention.head_count_kv")
    config["kv"] = kv.contents() if kv else config["heads"]
    tensors = {t.name: np.asarray(t.data, dtype=np.float64) for t in reader.tensors}
    # Written twice, but one matrix.
    if np.array_equal(tensors.get("output.weight"), tensors["token_embd.weight"]):
        del tensors["output.weight"]
    return config, tensors


class Model:
    """Forward keeps what backward needs; gradients gather in self.g."""

    def __init__(self, config, tensors):
        self.c, self.w = config, tensors
        self.g = {name: np.zeros_like(t) for name, t in tensors.items()}

    def affine(self, x, name):
        bias = self.w.get(name + ".bias")
        return x @ self.w[name + ".weight"].T + (0 if bias is None else bias)

    def affine_back(self, dy, x, name):
        self.g[name + ".weight"] += np.einsum("bto,bti->oi", dy, x)
        if name + ".bias" in self.w:
            self.g[name + ".bias"] += dy.sum((0, 1))
        return dy @ self.w[name + ".weight"]

    def norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + self.c["eps"])
        unit = centred * scale
        bias = self.w.get(name + ".bias")
        return unit * self.w[name + ".weight"] + (0 if bias is None else bias), (unit, scale)

    def norm_back(self, dy, kept, name):
        unit, scale = kept
        self.g[name + ".weight"] += (dy * unit).sum((0, 1))
        if name + ".bias" in self.w:
            self.g[name + ".bias"] += dy.sum((0, 1))
        du = dy * self.w[name + ".weight"]
        mean = du.mean(-1, keepdims=True)
        return scale * (du - mean - unit * (du * unit).mean(-1, keepdims=True))

    def split(self, qkv):
        c, (b, t, _) = self.c, qkv.shape
        dim = c["d"] // c["heads"]
        kv = c["kv"] * dim
        q = qkv[..., : c["d"]].reshape(b, t, c["kv"], -1, dim)
        k = qkv[..., c["d"] : c["d"] + kv].reshape(b, t, c["kv"], dim)
        v = qkv[..., c["d"] + kv :].reshape(b, t, c["kv"], dim)
        return q, k, v, dim

    def attention(self, qkv):
        q, k, v, dim = self.split(qkv)
        scores = np.einsum("btghi,bsgi->bghts", q, k) / np.sqrt(dim)
        hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
        scores = np.where(hidden, -np.inf, scores)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        out = np.einsum("bghts,bsgi->btghi", p, v)
        return out.reshape(*qkv.shape[:2], -1), p

    def attention_back(self, dout, qkv, p):
        q, k, v, dim = self.split(qkv)
        dout = dout.reshape(q.shape)
        dp = np.einsum("btghi,bsgi->bghts", dout, v)
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / np.sqrt(dim)
        parts = [
            np.einsum("bghts,bsgi->btghi", ds, k),
            np.einsum("bghts,btghi->bsgi", ds, q),
            np.einsum("bghts,btghi->bsgi", p, dout),
        ]
        return np.concatenate([x.reshape(*qkv.shape[:2], -1) for x in parts], -1)

    def gradient(self, inputs, targets):
        root = np.sqrt(2 / np.pi)
        w, kept = self.w, []
        x = w["token_embd.weight"][inputs] + w["position_embd.weight"][: inputs.shape[1]]
        for l in range(self.c["layers"]):
            n = f"blk.{l}."
            n1, k1 = self.norm(x, n + "attn_norm")
            qkv = self.affine(n1, n + "attn_qkv")
            heads, p = self.attention(qkv)
            x = x + self.affine(heads, n + "attn_output")
            n2, k2 = self.norm(x, n + "ffn_norm")
            pre = self.affine(n2, n + "ffn_up")
            tanh = np.tanh(root * (pre + 0.044715 * pre**3))
            act = 0.5 * pre * (1 + tanh)
            x = x + self.affine(act, n + "ffn_down")
            kept.append((n1, k1, qkv, heads, p, n2, k2, pre, tanh, act))
        last, k = self.norm(x, "output_norm")
        head = "output.weight" if "output.weight" in w else "token_embd.weight"
        logits = last @ w[head].T
        logits -= logits.max(-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        picked = np.take_along_axis(logits, targets[..., None], -1)
        d = np.exp(logits)
        np.put_along_axis(d, targets[..., None], np.exp(picked) - 1, -1)
        d /= targets.size
        self.g[head] += np.einsum("btv,bti->vi", d, last)
        dx = self.norm_back(d @ w[head], k, "output_norm")
        for l in reversed(range(self.c["layers"])):
            n = f"blk.{l}."
            n1, k1, qkv, heads, p, n2, k2, pre, tanh, act = kept[l]
            slope = 0.5 * (1 + tanh) + 0.5 * pre * (1 - tanh**2) * root * (
                1 + 3 * 0.044715 * pre**2
            )
            dpre = self.affine_back(dx, act, n + "ffn_down") * slope
            dx = dx + self.norm_back(self.affine_back(dpre, n2, n + "ffn_up"), k2, n + "ffn_norm")
            dheads = self.affine_back(dx, heads, n + "attn_output")
            dqkv = self.attention_back(dheads, qkv, p)
            dx = dx + self.norm_back(
                self.affine_back(dqkv, n1, n + "attn_qkv"), k1, n + "attn_norm"
            )
        np.add.at(self.g["token_embd.weight"], inputs, dx)
        self.g["position_embd.weight"][: inputs.shape[1]] += dx.sum(0)
        return -picked.mean()


def main():
    os.makedirs("tests/data/train", exist_ok=True)
    for name in NAMES:
        config, tensors = read(name)
        rng = np.random.default_rng(11)
        batch = rng.integers(0, len(tensors["token_embd.weight"]), (WINDOWS, LENGTH + 1))
        model = Model(config, tensors)
        loss = model.gradient(batch[:, :-1], batch[:, 1:])
        with open(f"tests/data/train/{name}.txt", "w", encoding="utf-8") as f:
            f.write(f"{WINDOWS} {LENGTH}\n")
            for row in batch:
                f.write(" ".join(map(str, row)) + "\n")
            f.write(f"{loss:.9f}\n")
            for tensor, g in model.g.items():
                g = g.ravel()
                i = np.arange(len(g))
                dots = np.cos(i) @ g, np.cos(0.3 * i + 1) @ g
                f.write(f"{tensor} {np.linalg.norm(g):.7e} {dots[0]:.7e} {dots[1]:.7e}\n")


main()
