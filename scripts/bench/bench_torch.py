#!/usr/bin/env python3
"""Trains the same GPT-2 model in PyTorch and in decode, in turns, and prints tokens a second as a
Markdown table. The machine should have nothing else to do.

The model has 4 layers of 128 with 8 heads, a feed-forward layer of 512, context 256 and vocabulary 512
(what `decode train` makes by default with --vocab 512); it is trained in float32 by AdamW, without
dropout, in steps of 8 windows of 256 tokens. PyTorch runs its fused causal attention
(F.scaled_dot_product_attention), and the model once more through torch.compile where a compiler for that
is there. PyTorch's data are random tokens, on which the time does not depend. A cell is the median of the
rounds (lowest..highest).

--real STUDENT TEACHER measures a step of scripts/questions/real.sh, which leaves these checkpoints: both
have SmolLM2-135M's shape, with 1 and 3 K/V heads. A step has 2 windows of 128 tokens, its loss is of the
teacher's predictions and streams, and attention and norms are trained. PyTorch's weights are random.

usage: scripts/bench/bench_torch.py TEXT [--decode PATH] [--rounds R] [--steps N] [--threads T]
                                    [--real STUDENT TEACHER]
Needs torch.
"""

import argparse
import csv
import datetime
import os
import statistics
import subprocess
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, HIDDEN, CONTEXT, VOCABULARY, BATCH = 4, 128, 8, 512, 256, 512, 8
REAL = {"layers": 30, "width": 576, "hidden": 1536, "vocabulary": 49152}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_attention, self.norm_hidden = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        shape = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2)
                   for part in self.qkv(self.norm_attention(x)).split(WIDTH, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm_hidden(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight
        logits = self.norm(self.blocks(x)) @ self.tokens.weight.T
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


class RealBlock(nn.Module):
    """A block of SmolLM2-135M with so many K/V heads."""

    def __init__(self, kv):
        super().__init__()
        self.norm_attention = nn.Parameter(torch.ones(REAL["width"]))
        self.norm_hidden = nn.Parameter(torch.ones(REAL["width"]))

        def matrix(n, m):
            return nn.Linear(n, m, bias=False)

        d = REAL["width"]
        self.q, self.output = matrix(d, d), matrix(d, d)
        self.k, self.v = matrix(d, 64 * kv), matrix(d, 64 * kv)
        self.gate, self.up = matrix(d, REAL["hidden"]), matrix(d, REAL["hidden"])
        self.down = matrix(REAL["hidden"], d)

    @staticmethod
    def norm(x, gain):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * gain

    @staticmethod
    def turn(x):
        angle = torch.arange(x.shape[2])[:, None] / 1e5 ** (torch.arange(0, 64, 2) / 64)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def forward(self, x):
        n = self.norm(x, self.norm_attention)
        q, k, v = (y.unflatten(-1, (-1, 64)).transpose(1, 2)
                   for y in (self.q(n), self.k(n), self.v(n)))
        q, k = self.turn(q), self.turn(k)
        k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], 1) for y in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(-2))
        n = self.norm(x, self.norm_hidden)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Real(nn.Module):
    def __init__(self, kv):
        super().__init__()
        self.tokens = nn.Embedding(REAL["vocabulary"], REAL["width"])
        self.blocks = nn.ModuleList(RealBlock(kv) for _ in range(REAL["layers"]))
        self.last = nn.Parameter(torch.ones(REAL["width"]))

    def said(self, tokens):
        """Returns the logits, and the stream behind each block."""
        x, streams = self.tokens(tokens), []
        for block in self.blocks:
            x = block(x)
            streams.append(x)
        return RealBlock.norm(x, self.last) @ self.tokens.weight.T, streams


class Taught(nn.Module):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = Real(1), Real(3).requires_grad_(False)
        self.student.tokens.requires_grad_(False)
        for block in self.student.blocks:
            for part in (block.gate, block.up, block.down):
                part.requires_grad_(False)

    def forward(self, tokens, _):
        logits, xs = self.student.said(tokens)
        with torch.no_grad():
            taught, ys = self.teacher.said(tokens)
        kl = F.kl_div(logits.flatten(0, 1).log_softmax(-1), taught.flatten(0, 1).softmax(-1),
                      reduction="batchmean")
        apart = [(2 - 2 * F.cosine_similarity(x, y, -1)
                  + (x.norm(dim=-1) / y.norm(dim=-1)).log() ** 2).mean() for x, y in zip(xs, ys)]
        return kl + 10 * sum(apart) / len(apart)


def torch_rate(model, optimizer, steps, sizes):
    """Runs so many steps and returns tokens a second."""
    vocabulary, batch, context = sizes
    text = torch.randint(vocabulary, (batch, context + 1))
    trained = [p for p in model.parameters() if p.requires_grad]
    begin = time.perf_counter()
    for _ in range(steps):
        loss = model(text[:, :-1], text[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    return steps * batch * context / (time.perf_counter() - begin)


def torch_runner(model, sizes, warmup, compiled):
    torch.manual_seed(1)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=True)
    forward = torch.compile(model) if compiled else model
    torch_rate(forward, optimizer, warmup, sizes)
    return lambda steps: torch_rate(forward, optimizer, steps, sizes)


def decode_runner(program, text, options, folder):
    def run(steps):
        log = os.path.join(tempfile.mkdtemp(dir=folder), "log.csv")
        command = [program, "train", text, "-o", log.replace("log.csv", "out.gguf"), "--log", log,
                   "--steps", str(steps), "--warmup", "1", "--eval-every", "-1", "--seed", "1",
                   "--save-every", "1000000", "-q", *options]
        subprocess.run(command, check=True)
        with open(log, newline="", encoding="utf-8") as rows:
            return statistics.median(float(row["tokens_per_s"]) for row in csv.DictReader(rows))
    return run


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("text")
    arguments.add_argument("--decode", default="./decode")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments.add_argument("--real", nargs=2, metavar=("STUDENT", "TEACHER"))
    a = arguments.parse_args()
    torch.set_num_threads(a.threads)
    options = ["--vocab", str(VOCABULARY), "--batch", str(BATCH)]
    sizes, warmup, model = (VOCABULARY, BATCH, CONTEXT), 5, Model
    if a.real:
        sizes, warmup, model = (REAL["vocabulary"], 2, 128), 1, Taught
        options = ["--from", a.real[0], "--teacher", a.real[1], "--loss", "teacher=1,streams=10",
                   "--only", "attention", "--batch", "2", "--ctx", "128"]
    options += ["--threads", str(a.threads)]
    with tempfile.TemporaryDirectory() as folder:
        runners = {"decode": decode_runner(a.decode, a.text, options, folder),
                   "PyTorch": torch_runner(model(), sizes, warmup, False)}
        try:
            if not a.real:
                runners["PyTorch, compiled"] = torch_runner(model(), sizes, warmup, True)
        except Exception as e:  # torch.compile needs a C++ compiler and its own back end
            print(f"(torch.compile: {str(e).splitlines()[0]})")
        rates = {name: [] for name in runners}
        for _ in range(a.rounds):
            for name, run in runners.items():
                rates[name].append(run(a.steps))
    ours = statistics.median(rates["decode"])
    print("| program | tokens/s | decode to it |\n| :-- | --: | --: |")
    for name, found in rates.items():
        median = statistics.median(found)
        print(f"| {name} | {median:.0f} ({min(found):.0f}..{max(found):.0f}) |"
              f" {ours / median:.2f} |")
    print(f"\n{a.threads} threads; torch {torch.__version__}; {datetime.date.today()}")


if __name__ == "__main__":
    main()
