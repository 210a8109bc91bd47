#!/usr/bin/env python3
"""Computes losses, gradients and steps of the golden checkpoints by PyTorch in float64, for
tests/train/test_backprop.c.

tests/data/train/NAME.txt has the batch, its loss, for every tensor the norm of the loss's gradient and
its dot products with two fixed vectors, and the losses before each of some steps of AdamW with label
smoothing. NAME-taught.txt, of some, has loss and gradients of a loss that compares predictions and
streams with those of a teacher, whose weights are 1.5 times the model's.
Needs torch, numpy and gguf.

usage: tests/train/reference_train.py   (from the repository's top)
"""

import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from gguf import GGUFReader

sys.path.insert(0, "tests/model")
from reference_model import FIXED, PART_KEYS  # noqa: E402

NAMES = ["mha", "gqa", "mqa-f16", "llama", "transformer", "alibi", "quadratic",
         "shared-block", "layerwise-kv", "additive", "gptneox", "bloom", "olmo", "gemma3", "local", "alone"]
TAUGHT = ["gqa", "llama", "layerwise-kv"]
WINDOWS, LENGTH = 3, 37
# The loss of the taught, as in tests/train/test_backprop.c.
TEXT, TEACHER, STREAMS, FACTOR = 0.25, 0.75, 2, 1.5
# The settings of the steps, as in tests/train/test_backprop.c.
STEPS, WARMUP, RATE, BETA2, DECAY, CLIP, SMOOTHING = 5, 2, 0.004, 0.99, 0.1, 1.0, 0.1
FFN = {"gelu": lambda x: F.gelu(x, approximate="tanh"), "gelu_erf": F.gelu, "relu": F.relu,
       "swiglu": F.silu, "geglu": lambda x: F.gelu(x, approximate="tanh")}


def read(name):
    reader = GGUFReader(f"tests/data/golden/{name}.gguf")
    arch = reader.fields["general.architecture"].contents()
    norm, placement, position, ffn, *parts = FIXED.get(arch, (None,) * 4)

    def key(suffix, otherwise=None):
        field = reader.fields.get(f"{arch}.{suffix}")
        return otherwise if field is None else field.contents()

    eps = ["norm.epsilon", "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"]
    c = {
        "layers": key("block_count"),
        "heads": key("attention.head_count"),
        "eps": next(key(e) for e in eps if key(e)),
        "norm": key("norm.type", norm),
        "placement": key("norm.placement", placement),
        "parts": {*parts, *(part for k, part in PART_KEYS.items() if key(k))},
        "turned": key("rope.dimension_count"),
        "factor": key("rope.scaling.factor", 1.0),
        "score_scale": key("attention.scale"),
        "position": key("position.type", position),
        "ffn": key("feed_forward.type", ffn),
        "shared": key("block.shared", False),
        "scale": key("embedding_scale", 1.0),
        "base": key("rope.freq_base", 10000.0),
    }
    if "root" in c["parts"]:
        c["scale"] = key("embedding_length") ** 0.5
    window = key("attention.sliding_window", 0)
    c["windows"] = window if isinstance(window, list) else [
        0 if arch == "gemma3" and (i + 1) % 6 == 0 else window for i in range(c["layers"])]
    c["local"] = key("rope.freq_base_swa", 10000.0) if arch == "gemma3" else None
    kv = key("attention.head_count_kv", c["heads"])
    c["kv"] = kv if isinstance(kv, list) else [kv] * c["layers"]
    tensors = {t.name: np.asarray(t.data, dtype=np.float64) for t in reader.tensors}
    # The file has it twice, and it is one matrix.
    if np.array_equal(tensors.get("output.weight"), tensors["token_embd.weight"]):
        del tensors["output.weight"]
    return c, {n: torch.tensor(t, requires_grad=True) for n, t in tensors.items()}


def alibi_slopes(n):
    """Returns the slopes of Press et al. 2022; if n is no power of two, those of the authors' program."""
    if math.log2(n).is_integer():
        return [2 ** (-8 * (i + 1) / n) for i in range(n)]
    closest = 2 ** math.floor(math.log2(n))
    return alibi_slopes(closest) + alibi_slopes(2 * closest)[0::2][: n - closest]


class Model:
    def __init__(self, config, tensors):
        self.c, self.w = config, tensors

    def affine(self, x, name):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def norm(self, x, name):
        gain, eps = self.w.get(name + ".weight"), self.c["eps"]
        if self.c["norm"] == "rms":
            return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain
        return F.layer_norm(x, x.shape[-1:], gain, self.w.get(name + ".bias"), eps)

    def norm_if(self, part, x, name):
        return self.norm(x, name) if part in self.c["parts"] else x

    def embed(self, inputs):
        x = F.embedding(inputs, self.w["token_embd.weight"]) * self.c["scale"]
        t = torch.arange(inputs.shape[1], dtype=torch.float64)[:, None]
        if self.c["position"] == "learned":
            return x + self.w["position_embd.weight"][: inputs.shape[1]]
        if self.c["position"] == "sinusoidal":
            d = x.shape[-1]
            angle = t / 10000 ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
            return x + torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)
        return x

    def turn(self, x, layer):
        """Pairs as complex numbers, neighbours or halves; x is [batch, heads, positions, dim]."""
        if self.c["position"] != "rope":
            return x
        dim = self.c["turned"] or x.shape[-1]
        local = self.c["local"] if self.c["windows"][layer] else None
        t = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] / (1 if local else self.c["factor"])
        rates = (local or self.c["base"]) ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        turned, rest = x[..., :dim], x[..., dim:]
        half = "halves" in self.c["parts"]
        a, b = turned.chunk(2, -1) if half else (turned[..., 0::2], turned[..., 1::2])
        cosine, sine = (t / rates).cos(), (t / rates).sin()
        a, b = a * cosine - b * sine, a * sine + b * cosine
        turned = torch.cat([a, b], -1) if half else torch.stack([a, b], -1).flatten(-2)
        return torch.cat([turned, rest], -1)

    def score_bias(self, n, block, window):
        """[heads, n, n], minus infinity outside of the window."""
        distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
        bias = torch.zeros(self.c["heads"], n, n, dtype=torch.float64)
        if self.c["position"] == "alibi":
            slopes = torch.tensor(alibi_slopes(self.c["heads"]), dtype=torch.float64)
            bias = -slopes[:, None, None] * distance
        elif self.c["position"] == "quadratic":
            alpha, centre = self.w[block + "attn_rel.weight"].T[..., None, None]
            bias = -alpha * (distance - centre) ** 2
        return bias.masked_fill((distance < 0) | (distance >= (window or n)), -math.inf)

    def attention(self, x, block, layer):
        kv = self.c["kv"][layer]
        heads = self.c["heads"]
        w = self.w.get(block + "attn_score.weight")  # of additive scores [heads, dim]
        if block + "attn_q.weight" in self.w:
            q, k, v = (self.affine(x, f"{block}attn_{part}") for part in "qkv")
        else:
            dim = self.w[block + "attn_output.weight"].shape[1] // heads
            sizes = [heads * dim, kv * dim, kv * dim]
            q, k, v = self.affine(x, block + "attn_qkv").split(sizes, -1)
        q, k, v = (
            y.unflatten(-1, (n, -1)).transpose(1, 2) for y, n in [(q, heads), (k, kv), (v, kv)]
        )
        bias = self.score_bias(x.shape[1], block, self.c["windows"][layer])
        q = self.turn(self.norm_if("queries_keys", q, block + "attn_q_norm"), layer)
        k = self.turn(self.norm_if("queries_keys", k, block + "attn_k_norm"), layer)
        k, v = (y.repeat_interleave(heads // kv, 1) for y in (k, v))
        scores = q @ k.transpose(-1, -2) * (self.c["score_scale"] or q.shape[-1] ** -0.5)
        if w is not None:
            scores = (torch.tanh(q[..., :, None, :] + k[..., None, :, :]) * w[:, None, None]).sum(-1)
        out = (scores + bias).softmax(-1) @ v
        return self.affine(out.transpose(1, 2).flatten(-2), block + "attn_output")

    def feed_forward(self, x, block):
        activation, up = FFN[self.c["ffn"]], self.affine(x, block + "ffn_up")
        gated = self.c["ffn"] in ("swiglu", "geglu")
        hidden = activation(self.affine(x, block + "ffn_gate")) * up if gated else activation(up)
        return self.affine(hidden, block + "ffn_down")

    def block(self, x, layer):
        name = f"blk.{0 if self.c['shared'] else layer}."
        if self.c["placement"] == "after":
            x = self.norm(x + self.attention(x, name, layer), name + "attn_output_norm")
            return self.norm(x + self.feed_forward(x, name), name + "layer_output_norm")
        round_it = 0 if self.c["placement"] == "alone" else 1  # residual connections
        start, written = x, self.attention(self.norm(x, name + "attn_norm"), name, layer)
        x = round_it * x + self.norm_if("added", written, name + "post_attention_norm")
        norm = name + ("attn_norm" if "single" in self.c["parts"] else "ffn_norm")
        read = self.norm(start if self.c["placement"] == "parallel" else x, norm)
        return round_it * x + self.norm_if("added", self.feed_forward(read, name), name + "post_ffw_norm")

    def logits(self, inputs):
        x = self.norm_if("embedding", self.embed(inputs), "token_embd_norm")
        self.streams = []  # behind each block
        for layer in range(self.c["layers"]):
            x = self.block(x, layer)
            self.streams.append(x)
        if self.c["placement"] != "after":
            x = self.norm(x, "output_norm")
        output = self.w.get("output.weight", self.w["token_embd.weight"])
        return F.linear(x, output, self.w.get("output.bias"))

    def loss(self, inputs, targets, smoothing=0.0):
        logits = self.logits(inputs).flatten(0, 1)
        return F.cross_entropy(logits, targets.flatten(), label_smoothing=smoothing)

    def taught_loss(self, inputs, targets):
        teacher = Model(self.c, {n: FACTOR * t.detach() for n, t in self.w.items()})
        said, logits = teacher.logits(inputs).flatten(0, 1), self.logits(inputs).flatten(0, 1)
        kl = F.kl_div(logits.log_softmax(-1), said.softmax(-1), reduction="batchmean")
        apart = []
        for x, y in zip(self.streams, teacher.streams):
            xx, yy = ((v**2).sum(-1) + x.shape[-1] * self.c["eps"] for v in (x, y))
            cosine, longer = (x * y).sum(-1) / (xx * yy).sqrt(), (xx / yy).log() / 2
            apart.append((2 - 2 * cosine + longer**2).mean())
        streams = sum(apart) / len(apart)
        return TEXT * F.cross_entropy(logits, targets.flatten()) + TEACHER * kl + STREAMS * streams


def rate(step):
    if step < WARMUP:
        return RATE * (step + 1) / WARMUP
    done = (step + 1 - WARMUP) / (STEPS - WARMUP)
    return RATE * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


def train(model, inputs, targets):
    """Returns the losses before each step. Matrices decay; gains, biases, attn_rel and attn_score do not."""
    tables = [n for n in model.w if "attn_rel" in n or "attn_score" in n]
    decays = [t for n, t in model.w.items() if t.ndim > 1 and n not in tables]
    others = [t for n, t in model.w.items() if t.ndim == 1 or n in tables]
    groups = [{"params": decays, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], betas=(0.9, BETA2), eps=1e-8)
    losses = []
    for step in range(STEPS):
        losses.append(model.loss(inputs, targets).item())
        optimizer.zero_grad()
        model.loss(inputs, targets, SMOOTHING).backward()
        norm = math.sqrt(sum((t.grad**2).sum().item() for t in model.w.values()))
        for t in model.w.values():
            t.grad *= min(1.0, CLIP / norm)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        before = {n: t.detach().clone() for n, t in model.w.items() if "attn_rel" in n}
        optimizer.step()
        with torch.no_grad():  # centres of quadratic positions go three times as far
            for n, old in before.items():
                model.w[n][:, 1] += 2 * (model.w[n][:, 1] - old[:, 1])
    return losses


def write_gradients(f, batch, loss, tensors):
    """Returns the batch, the loss of the text, and the gradients of the tensors."""
    f.write(f"{WINDOWS} {LENGTH}\n")
    for row in batch:
        f.write(" ".join(map(str, row)) + "\n")
    f.write(f"{loss.item():.9f}\n{len(tensors)}\n")
    for tensor, weight in tensors.items():
        g = weight.grad.numpy().ravel()
        i = np.arange(len(g))
        dots = np.cos(i) @ g, np.cos(0.3 * i + 1) @ g
        f.write(f"{tensor} {np.linalg.norm(g):.7e} {dots[0]:.7e} {dots[1]:.7e}\n")
        weight.grad = None


def main():
    os.makedirs("tests/data/train", exist_ok=True)
    for name in NAMES:
        config, tensors = read(name)
        rng = np.random.default_rng(11)
        batch = rng.integers(0, len(tensors["token_embd.weight"]), (WINDOWS, LENGTH + 1))
        inputs, targets = torch.tensor(batch[:, :-1]), torch.tensor(batch[:, 1:])
        model = Model(config, tensors)
        loss = model.loss(inputs, targets)
        loss.backward()
        with open(f"tests/data/train/{name}.txt", "w", encoding="utf-8") as f:
            write_gradients(f, batch, loss, tensors)
            if name in TAUGHT:
                model.taught_loss(inputs, targets).backward()
                with open(f"tests/data/train/{name}-taught.txt", "w", encoding="utf-8") as taught:
                    write_gradients(taught, batch, loss, tensors)
            losses = train(model, inputs, targets)
            f.write(" ".join(f"{x:.9f}" for x in losses) + "\n")


main()
