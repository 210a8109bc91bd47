#!/usr/bin/env python3
"""make_heads.py [FOLDER] - what `decode heads` has to find in the checkpoints of tests/data/golden:
NAME.heads, a line a head with layer, head, delta_nll by zeros and by means, the lengths of what the
head writes and of the stream before its layer, and then, for each head of the layer, the shares of
score and output energy kept if both had one key, or one value.

NumPy in float64 on tests/model/reference_model.py, one window. The energies are taken from the queries,
keys and values of the text themselves: a singular value decomposition of both heads' keys, each
mapped by the root of its queries' second moments, position by position.
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, "tests/model")
from reference_model import Model, read_tokens  # noqa: E402


class Heads(Model):
    """Keeps what it sees; heads in `off` give `instead` (zeros without)."""

    off, instead = (), None

    def attention(self, x, block, layer):
        kv_heads = self.kv_heads[layer]
        if self.placement == "after":
            self.streams.append(x)
        q, k, v = self.qkv(x, block, kv_heads)
        plain_q, plain_k = q, k
        if self.position == "rope":
            q, k = [self.rotate(h) for h in q], [self.rotate(h) for h in k]
        own = [h // (self.heads // kv_heads) for h in range(self.heads)]
        results = []
        for h, g in enumerate(own):
            scores = q[h] @ k[g].T / np.sqrt(self.key_dim) + self.score_bias(block, h, len(x))
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out = weights / weights.sum(-1, keepdims=True) @ v[g]
            if (layer, h) in self.off:
                out = np.zeros_like(out) + (self.instead[layer][h] if self.instead else 0)
            results.append(out)
        self.seen[layer] = dict(q=plain_q, k=[plain_k[g] for g in own], v=[v[g] for g in own],
                                results=results)
        return self.affine(np.concatenate(results, axis=1), block + "attn_output")

    def norm(self, x, name):
        if name.endswith("attn_norm"):  # none where norms stand after the residuals
            self.streams.append(x)
        return super().norm(x, name)

    def columns(self, layer, h):
        """[d, value_dim] of the output matrix."""
        w = self.file.get(f"blk.{0 if self.shared else layer}.attn_output.weight")
        return w[:, h * self.value_dim:(h + 1) * self.value_dim]

    def nll(self, tokens, off=(), instead=None):
        self.off, self.instead, self.seen, self.streams = off, instead, {}, []
        logits = self.logits(tokens[:-1])
        top = logits.max(-1, keepdims=True)
        log_sum = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
        return (log_sum - logits[np.arange(len(logits)), tokens[1:]]).mean()


def root(m):
    """r with r^T r = m."""
    values, vectors = np.linalg.eigh(m)
    return np.sqrt(np.maximum(values, 0))[:, None] * vectors.T


def kept(factors, dim):
    """Of stacked whitened factors [positions, dim] of heads: the energy of the best `dim`."""
    energy = np.linalg.svd(np.concatenate(factors, axis=1), compute_uv=False) ** 2
    return energy[:dim].sum(), energy.sum()


def score_kept(model, seen, pair):
    """`seen` of the layers that share the weights."""
    turned = model.file.keys.get("rope.dimension_count", model.key_dim)
    turned = turned if model.position == "rope" else 0
    q = [np.concatenate([s["q"][h] for s in seen]) for h in pair]
    centre = (lambda x: x) if turned else (lambda x: x - x.mean(0))
    k = [np.concatenate([centre(s["k"][h]) for s in seen]) for h in pair]
    best = whole = 0.0
    for i in range(0, turned, 2):  # complex numbers, whose queries count by their energy only
        z = [(x[:, i] + 1j * x[:, i + 1])[:, None] * np.sqrt((y[:, i:i + 2] ** 2).sum(1).mean() / 2)
             for x, y in zip(k, q)]
        a, b = kept(z, 1)
        best, whole = best + a, whole + b
    if turned < model.key_dim:
        white = [x[:, turned:] @ root(y[:, turned:].T @ y[:, turned:] / len(y)).T
                 for x, y in zip(k, q)]
        a, b = kept(white, model.key_dim - turned)
        best, whole = best + a, whole + b
    return best / whole


def output_kept(model, seen, pair, layer):
    block = f"blk.{0 if model.shared else layer}."
    biased = any(model.file.get(f"{block}attn_{part}.bias") is not None
                 for part in ("qkv", "v"))
    biased = biased and model.file.get(block + "attn_output.bias") is not None
    white = []
    for h in pair:
        v = np.concatenate([s["v"][h] for s in seen])
        o = model.columns(layer, h)
        white.append((v - v.mean(0) if biased else v) @ root(o.T @ o).T)
    best, whole = kept(white, model.value_dim)
    return best / whole


def figures(path):
    model, tokens = Heads(path), np.array(read_tokens(str(path.with_suffix(".tokens"))))
    whole = model.nll(tokens)
    seen = [model.seen[layer] for layer in range(model.n_layers)]
    streams = model.streams
    means = [[r.mean(0) for r in s["results"]] for s in seen]
    for layer in range(model.n_layers):
        stream = np.linalg.norm(streams[layer], axis=1).mean()
        for h in range(model.heads):
            off = {(layer, h)}
            written = np.linalg.norm(seen[layer]["results"][h] @ model.columns(layer, h).T, axis=1)
            row = [model.nll(tokens, off) - whole, model.nll(tokens, off, means) - whole,
                   written.mean(), stream]
            group = seen if model.shared else [seen[layer]]
            for other in range(model.heads):
                if other == h:
                    row += [1.0, 1.0]
                else:
                    row += [score_kept(model, group, (h, other)),
                            output_kept(model, group, (h, other), layer)]
            yield f"{layer} {h} " + " ".join(f"{x:.12g}" for x in row)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/golden")
    for path in sorted(folder.glob("*.gguf")):
        if Model(path).score_kind == "dot":  # others have no likeness
            path.with_suffix(".heads").write_text("\n".join(figures(path)) + "\n")


if __name__ == "__main__":
    sys.exit(main())
