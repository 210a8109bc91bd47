#!/usr/bin/env python3
"""make_heads.py [FOLDER] - writes what `decode heads` has to find in the checkpoints of tests/data/golden:
NAME.heads has a line for each head with layer, head, delta_nll by zeros and by means, and the lengths of
what the head writes and of the stream before its layer.

It computes one window in float64 by tests/model/reference_model.py.
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, "tests/model")
from reference_model import Model, read_tokens  # noqa: E402


class Heads(Model):
    """A model that keeps what heads see; heads in `off` give `instead`, or zeros."""

    off, instead = (), None

    def attention(self, x, block, layer):
        kv_heads = self.kv_heads[layer]
        q, k, v = self.turned_qkv(x, block, layer)
        results = []
        for h in range(self.heads):
            g = h // (self.heads // kv_heads)
            bias = self.score_bias(block, h, len(x), self.windows[layer])
            scores = self.scores(q[h], k[g], block, h) + bias
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out = weights / weights.sum(-1, keepdims=True) @ v[g]
            if (layer, h) in self.off:
                out = np.zeros_like(out) + (self.instead[layer][h] if self.instead else 0)
            results.append(out)
        self.results[layer] = results
        return self.affine(np.concatenate(results, axis=1), block + "attn_output")

    def columns(self, layer, h):
        """Returns the head's columns of the output matrix, [d, value_dim]."""
        w = self.file.get(f"blk.{0 if self.shared else layer}.attn_output.weight")
        return w[:, h * self.value_dim:(h + 1) * self.value_dim]

    def nll(self, tokens, off=(), instead=None):
        self.off, self.instead, self.results = off, instead, {}
        logits = self.logits(tokens[:-1])
        top = logits.max(-1, keepdims=True)
        log_sum = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
        return (log_sum - logits[np.arange(len(logits)), tokens[1:]]).mean()


def figures(path):
    model, tokens = Heads(path), np.array(read_tokens(str(path.with_suffix(".tokens"))))
    whole = model.nll(tokens)
    results = [model.results[layer] for layer in range(model.n_layers)]
    means = [[r.mean(0) for r in heads] for heads in results]
    for layer in range(model.n_layers):
        for h in range(model.heads):
            off = {(layer, h)}
            written = np.linalg.norm(results[layer][h] @ model.columns(layer, h).T, axis=1)
            row = [model.nll(tokens, off) - whole, model.nll(tokens, off, means) - whole,
                   written.mean()]
            yield f"{layer} {h} " + " ".join(f"{x:.12g}" for x in row)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/golden")
    for path in sorted(folder.glob("*.gguf")):
        if Model(path).score_kind == "dot":  # the others have no scores of this formula
            path.with_suffix(".heads").write_text("\n".join(figures(path)) + "\n")


if __name__ == "__main__":
    sys.exit(main())
