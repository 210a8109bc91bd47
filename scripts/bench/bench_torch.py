#!/usr/bin/env python3
"""Training in PyTorch and in decode, side by side: tokens a second of the same GPT-2 model on the
same windows' worth of text, in turns, as a Markdown table. The machine should have nothing else to
do.

The model: 4 layers of 128 with 8 heads, feed-forward layer of 512, context 256, vocabulary 512 (what
`decode train` makes by default with --vocab 512), float32, no dropout, AdamW; a step is 8 windows of
256 tokens. PyTorch runs its fused causal attention (F.scaled_dot_product_attention), with
torch.compile as well if a compiler for it is there. Its data are random tokens: the time does not
depend on them. A cell is the median of the rounds (lowest..highest).

usage: scripts/bench/bench_torch.py TEXT [--decode PATH] [--rounds R] [--steps N] [--threads T]
Needs torch.
"""

import argparse
import datetime
import os
import re
import statistics
import subprocess
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, HIDDEN, CONTEXT, VOCABULARY, BATCH = 4, 128, 8, 512, 256, 512, 8


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


def torch_rate(model, optimizer, steps):
    """Tokens a second of `steps` steps."""
    text = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
    begin = time.perf_counter()
    for _ in range(steps):
        loss = model(text[:, :-1], text[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return steps * BATCH * CONTEXT / (time.perf_counter() - begin)


def torch_runner(compiled):
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    forward = torch.compile(model) if compiled else model
    torch_rate(forward, optimizer, 5)
    return lambda steps: torch_rate(forward, optimizer, steps)


def decode_runner(program, text, threads, folder):
    def run(steps):
        out = os.path.join(tempfile.mkdtemp(dir=folder), "out.gguf")
        command = [program, "train", text, "-o", out,
                   "--vocab", str(VOCABULARY), "--batch", str(BATCH), "--steps", str(steps),
                   "--eval-every", str(steps), "--seed", "1", "--threads", str(threads)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        return float(re.findall(r"(\d+) tokens/s", told)[-1])
    return run


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("text")
    arguments.add_argument("--decode", default="./decode")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    a = arguments.parse_args()
    torch.set_num_threads(a.threads)
    with tempfile.TemporaryDirectory() as folder:
        runners = {"decode": decode_runner(a.decode, a.text, a.threads, folder),
                   "PyTorch": torch_runner(False)}
        try:
            runners["PyTorch, compiled"] = torch_runner(True)
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
