#!/usr/bin/env python3
"""reference_model.py MODEL.gguf TOKENS [-o OUT.npy] [--against LOGITS.npy]
       [--attention OUT.npy] [--score-scale X] [--trace L.H OUT.npy] - logits and attention
       weights in float64.

This is a second implementation of every architecture that the program runs, made from the papers'
formulas and not from the program's sources: plain NumPy, all tokens in one matrix, no cache, no tables.
TOKENS are ids, comma-separated, or a file of them. -o writes the logits after each token, float32
[tokens, n_vocab]; --against prints the largest difference from the logits in a file.
--attention writes the weights of every head for four queries, at a quarter, a half, three quarters and
the end of the text, float32 [layers, heads, 4, tokens]. --score-scale multiplies scores by X in place of
the file's scale. --trace writes the steps of the last token through a head, float32, one after the other:
its query, all keys, its scores, weights and result, the results of all heads and their product with the
output matrix.

Needs NumPy and gguf (both from PyPI); gguf reads files and dequantizes tensors.
"""

import argparse
import math
import pathlib
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

# The kinds and other traits of each architecture that its files do not name.
FIXED = {
    "gpt2": ("layer", "before", "learned", "gelu"),
    "starcoder": ("layer", "before", "learned", "gelu"),
    "llama": ("rms", "before", "rope", "swiglu"),
    "gptneox": ("layer", "parallel", "rope", "gelu_erf", "halves"),
    "phi2": ("layer", "parallel", "rope", "gelu", "halves", "single"),
    "falcon": ("layer", "parallel", "rope", "gelu_erf", "halves", "single"),
    "bloom": ("layer", "before", "alibi", "gelu", "embedding"),
    "mpt": ("layer", "before", "alibi", "gelu_erf"),
    "qwen2": ("rms", "before", "rope", "swiglu", "halves"),
    "qwen3": ("rms", "before", "rope", "swiglu", "halves", "queries_keys"),
    "gemma": ("rms", "before", "rope", "geglu", "halves", "root"),
    "gemma3": ("rms", "before", "rope", "geglu", "halves", "root", "queries_keys", "added"),
    "stablelm": ("layer", "before", "rope", "swiglu", "halves"),
    "olmo": ("layer", "before", "rope", "swiglu", "no_weights"),
}
KIND_KEYS = ("norm.type", "norm.placement", "position.type", "feed_forward.type")
PART_KEYS = {"norm." + part: part for part in
             ("embedding", "single", "queries_keys", "added", "no_weights")} | {"rope.halves": "halves"}
RMS = "attention.layer_norm_rms_epsilon"
EPSILON_KEYS = {arch: RMS if FIXED[arch][0] == "rms" else "attention.layer_norm_epsilon"
                for arch in FIXED} | {"decode": "norm.epsilon"}


class Checkpoint:
    """The keys and tensors of a file; tensors are in float64, matrices [rows, columns]."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.arch = reader.fields["general.architecture"].contents()
        self.keys = {name[len(self.arch) + 1:]: field.contents()
                     for name, field in reader.fields.items() if name.startswith(self.arch + ".")}
        self.tensors = {}
        for t in reader.tensors:
            shape = [int(n) for n in reversed(t.shape)]
            self.tensors[t.name] = dequantize(t.data, t.tensor_type).astype(np.float64).reshape(shape)

    def get(self, name):
        return self.tensors.get(name)


class Model:
    def __init__(self, path):
        self.file = f = Checkpoint(path)
        key = f.keys.get
        kinds = FIXED.get(f.arch) or tuple(key(k) for k in KIND_KEYS)
        self.norm_kind, self.placement, self.position, self.ffn_kind, *parts = kinds
        self.parts = set(parts) | {part for k, part in PART_KEYS.items() if key(k)}
        self.ffn_kind = key("feed_forward.type", self.ffn_kind)
        if key("use_parallel_residual") is False:
            self.placement = "before"
        self.eps = key(EPSILON_KEYS[f.arch])
        self.n_layers, self.d = key("block_count"), key("embedding_length")
        self.heads = key("attention.head_count")
        kv = key("attention.head_count_kv", self.heads)
        self.kv_heads = kv if isinstance(kv, list) else [kv] * self.n_layers
        self.key_dim = key("attention.key_length", self.d // self.heads)
        self.value_dim = key("attention.value_length", self.key_dim)
        self.shared = key("block.shared", False)
        self.scale = key("embedding_scale", 1.0) if f.arch == "decode" else 1.0
        if "root" in self.parts:
            self.scale = math.sqrt(self.d)
        window = key("attention.sliding_window", 0)
        self.windows = window if isinstance(window, list) else [
            0 if f.arch == "gemma3" and (i + 1) % 6 == 0 else window for i in range(self.n_layers)]
        self.score_scale = key("attention.scale", 0) or 1 / math.sqrt(self.key_dim)
        self.score_kind = key("attention.score", "dot")
        self.weights = []  # [heads, n, n] of each layer of the last text
        self.traced, self.trace = None, []  # layer and head, and what they compute

    # --- parts -----------------------------------------------------------------------------------

    def affine(self, x, name):
        y = x @ self.file.get(name + ".weight").T
        bias = self.file.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, x, name):
        if self.norm_kind == "layer":
            x = x - x.mean(-1, keepdims=True)
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps)
        if "no_weights" in self.parts:
            return y
        y = y * self.file.get(name + ".weight")
        bias = self.file.get(name + ".bias")
        return y if bias is None else y + bias

    def rotate(self, x, layer):
        """x [tokens, key_dim]: pair i of the first n turned by its angle, as a complex number."""
        key = self.file.keys.get
        n = key("rope.dimension_count", self.key_dim)
        base = key("rope.freq_base", 10000.0)
        local = key("rope.freq_base_swa", 10000.0 if self.file.arch == "gemma3" else None)
        local = local if self.windows[layer] else None
        rate = (local or base) ** (-np.arange(0, n, 2) / n)
        factors = self.file.get("rope_freqs.weight")
        if factors is not None:
            rate = rate / factors
        if key("rope.scaling.type", "none") == "linear" and not local:
            rate = rate / key("rope.scaling.factor", 1.0)
        half = "halves" in self.parts
        first, second = (slice(0, n // 2), slice(n // 2, n)) if half else (slice(0, n, 2), slice(1, n, 2))
        turned = (x[:, first] + 1j * x[:, second]) * np.exp(1j * np.outer(np.arange(len(x)), rate))
        out = x.copy()
        out[:, first], out[:, second] = turned.real, turned.imag
        return out

    def score_bias(self, block, head, n, window):
        """Returns what is added to the scores of a head, [n, n]; -inf outside of its window."""
        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        bias = np.where((distance < 0) | (distance >= (window or n)), -np.inf, 0.0)
        if self.position == "alibi":
            bias = bias - alibi_slopes(self.heads)[head] * distance
        if self.position == "quadratic":
            alpha, centre = self.file.get(block + "attn_rel.weight")[head]
            bias = bias - alpha * (distance - centre) ** 2
        return bias

    def qkv(self, x, block, kv_heads):
        sizes = (self.heads * self.key_dim, kv_heads * self.key_dim, kv_heads * self.value_dim)
        if self.file.get(block + "attn_qkv.weight") is not None:
            q, k, v = np.split(self.affine(x, block + "attn_qkv"), np.cumsum(sizes)[:2], axis=1)
        else:
            q, k, v = (self.affine(x, block + "attn_" + part) for part in "qkv")
        assert (q.shape[1], k.shape[1], v.shape[1]) == sizes
        heads = (self.heads, kv_heads, kv_heads)
        return [np.split(rows, n, axis=1) for rows, n in zip((q, k, v), heads)]

    def turned_qkv(self, x, block, layer):
        """Returns queries and keys as scores take them, and values, each a list of heads."""
        q, k, v = self.qkv(x, block, self.kv_heads[layer])
        if "queries_keys" in self.parts:
            q = [self.norm(h, block + "attn_q_norm") for h in q]
            k = [self.norm(h, block + "attn_k_norm") for h in k]
        if self.position == "rope":
            q, k = [self.rotate(h, layer) for h in q], [self.rotate(h, layer) for h in k]
        return q, k, v

    def scores(self, q, k, block, head):
        w = self.file.get(block + "attn_score.weight")
        if self.score_kind == "additive":
            return np.tanh(q[:, None, :] + k[None, :, :]) @ w[head]
        return q @ k.T * self.score_scale

    def attention(self, x, block, layer):
        kv_heads = self.kv_heads[layer]
        q, k, v = self.turned_qkv(x, block, layer)
        out, self.weights = [], self.weights + [[]]
        for h in range(self.heads):
            g = h // (self.heads // kv_heads)
            scores = self.scores(q[h], k[g], block, h) + self.score_bias(block, h, len(x), self.windows[layer])
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            out.append(weights @ v[g])
            if (layer, h) == self.traced:
                self.trace = [q[h][-1], k[g].ravel(), scores[-1], weights[-1], out[-1][-1]]
            self.weights[-1].append(weights)
        heads = np.concatenate(out, axis=1)
        written = self.affine(heads, block + "attn_output")
        if self.traced and layer == self.traced[0]:
            wo = self.file.get(block + "attn_output.weight")
            parts = np.split(wo, self.heads, axis=1)  # a head's columns
            self.trace += [heads[-1], *(part @ of[-1] for part, of in zip(parts, out)), written[-1]]
        return written

    def feed_forward(self, x, block):
        up = self.affine(x, block + "ffn_up")
        if self.ffn_kind == "swiglu":
            gate = self.affine(x, block + "ffn_gate")
            hidden = gate / (1 + np.exp(-gate)) * up
        elif self.ffn_kind == "geglu":
            hidden = gelu(self.affine(x, block + "ffn_gate")) * up
        elif self.ffn_kind == "relu":
            hidden = np.maximum(up, 0)
        elif self.ffn_kind == "gelu_erf":
            hidden = up / 2 * (1 + np.vectorize(math.erf)(up / math.sqrt(2)))
        else:
            hidden = gelu(up)
        return self.affine(hidden, block + "ffn_down")

    # --- the whole -------------------------------------------------------------------------------

    def embed(self, tokens):
        x = self.file.get("token_embd.weight")[tokens] * self.scale
        if self.position == "learned":
            x = x + self.file.get("position_embd.weight")[:len(tokens)]
        if self.position == "sinusoidal":
            angle = np.outer(np.arange(len(tokens)), 10000.0 ** (-np.arange(0, self.d, 2) / self.d))
            x = x.copy()
            x[:, 0::2] += np.sin(angle)
            x[:, 1::2] += np.cos(angle)[:, :self.d // 2]
        return self.norm(x, "token_embd_norm") if "embedding" in self.parts else x

    def added(self, x, name):
        return self.norm(x, name) if "added" in self.parts else x

    def logits(self, tokens):
        x = self.embed(tokens)
        self.weights = []
        for layer in range(self.n_layers):
            block = f"blk.{0 if self.shared else layer}."
            after, parallel = self.placement == "after", self.placement == "parallel"
            start = x
            written = self.attention(x if after else self.norm(x, block + "attn_norm"), block, layer)
            round_it = 0 if self.placement == "alone" else 1  # residual connections
            x = round_it * x + self.added(written, block + "post_attention_norm")
            norm = "attn_output_norm" if after else "ffn_norm" if "single" not in self.parts else "attn_norm"
            normed = self.norm(start if parallel else x, block + norm)
            if self.traced and layer == self.traced[0]:
                self.trace += [x[-1], normed[-1]]
            x = (normed if after else round_it * x) + self.added(self.feed_forward(normed, block),
                                                      block + "post_ffw_norm")
            if after:
                x = self.norm(x, block + "layer_output_norm")
        if self.placement != "after":
            x = self.norm(x, "output_norm")
        tied = self.file.get("output.weight") is None
        bias = self.file.get("output.bias")
        return x @ self.file.get("token_embd.weight" if tied else "output.weight").T + (
            0 if bias is None else bias)


def gelu(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def alibi_slopes(n):
    """Returns a geometric sequence that ends at 2^-8. If n is no power of two, it is that of the next power
    below, followed by every other slope of twice as many."""
    if n & (n - 1) == 0:
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]
    below = 1 << (n.bit_length() - 1)
    return alibi_slopes(below) + alibi_slopes(2 * below)[0::2][:n - below]


def read_tokens(text):
    path = pathlib.Path(text)
    return [int(t) for t in (path.read_text() if path.exists() else text).split(",")]


def attention_rows(model, n):
    """Returns the weights of four queries of the last text, of n tokens: [layers, heads, 4, n]."""
    return np.array(model.weights)[:, :, [(n - 1) * k // 4 for k in (1, 2, 3, 4)]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("tokens", type=read_tokens)
    parser.add_argument("-o", metavar="OUT.npy")
    parser.add_argument("--against", metavar="LOGITS.npy")
    parser.add_argument("--attention", metavar="OUT.npy")
    parser.add_argument("--score-scale", type=float)
    parser.add_argument("--trace", nargs=2, metavar=("L.H", "OUT.npy"))
    args = parser.parse_args()
    model = Model(args.model)
    model.score_scale = args.score_scale or model.score_scale
    if args.trace:
        model.traced = tuple(map(int, args.trace[0].split(".")))
    logits = model.logits(args.tokens)
    if args.trace:
        np.save(args.trace[1], np.concatenate(model.trace).astype(np.float32))
    if args.attention:
        np.save(args.attention, attention_rows(model, len(args.tokens)).astype(np.float32))
    if args.o:
        np.save(args.o, logits.astype(np.float32))
    if args.against:
        other = np.load(args.against)
        same = (logits.argmax(-1) == other.argmax(-1)).mean()
        print(f"{args.model}: {np.abs(logits - other).max():.3g} at most, "
              f"{same:.1%} of the largest logits the same")


if __name__ == "__main__":
    sys.exit(main())
