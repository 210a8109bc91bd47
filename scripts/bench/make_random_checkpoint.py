#!/usr/bin/env python3
"""make_random_checkpoint.py - writes checkpoints of a given shape with random weights, for benchmarks.

    make_random_checkpoint.py SHAPE [--arch ARCH] [--gguf OUT] [--llama2c OUT]
                              [--tokenizer OUT]

SHAPE is that of `decode bench --shape` and may name the number of K/V heads:
LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C][,kv=G], by default ff 4 * D_MODEL, vocab 50257, ctx 1024,
kv HEADS. Python's standard library is enough.

--gguf writes architecture gpt2, or llama with --arch llama, all tensors in F32. llama.cpp refuses a gpt2
file without a matrix of the output or without the key tokenizer.ggml.merges, so the file has both: the
matrix is its own, though a step reads as many bytes with a tied one, and the list of merges is empty. The
tokenizer knows the 256 bytes.

--llama2c writes the .bin of karpathy/llama2.c ("legacy", version 0) with the output tied. Beside a llama
it has the same architecture and a hidden size of F. Beside a gpt2, whose feed-forward layer has two
matrices, its own has three, so its hidden size is 2/3 F, rounded to a multiple of 8: a layer has as many
weights within some 1% (without GPT-2's biases). --tokenizer writes its tokenizer.bin. Every token prints
as one byte, so that the length of an output is the number of tokens made. Token 1 would end a run: its
embedding is zero, so that greedy sampling never takes it.

The weights are normal with a deviation of 0.02, from a fixed seed. A million and three of them are drawn
and used over and over, because the time of a step does not depend on their values; the period is a prime,
which keeps rows from being alike.
"""
import argparse
import math
import random
import re
import struct
import sys
from array import array

DEVIATION = 0.02
PERIOD = 1000003
ALIGNMENT = 32
GGUF_U32, GGUF_I32, GGUF_F32, GGUF_STRING, GGUF_ARRAY = 4, 5, 6, 8, 9
GGML_F32 = 0


class Shape:
    """LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C][,kv=G]"""

    def __init__(self, text):
        head, *settings = text.split(",")
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*x[1-9]\d*", head):
            raise ValueError(f"shape: expected LAYERSxD_MODELxHEADS, found '{head}'")
        self.layers, self.d, self.heads = map(int, head.split("x"))
        values = {"ff": 4 * self.d, "vocab": 50257, "ctx": 1024, "kv": self.heads}
        for setting in settings:
            match = re.fullmatch(r"(ff|vocab|ctx|kv)=([1-9]\d*)", setting)
            if not match:
                raise ValueError("shape: expected ff=F, vocab=V, ctx=C or kv=G, found "
                                 f"'{setting}'")
            values[match[1]] = int(match[2])
        self.ff, self.vocab, self.ctx, self.kv = (values[k] for k in ("ff", "vocab", "ctx", "kv"))
        if self.d % self.heads or self.heads % self.kv:
            raise ValueError(f"shape: heads ({self.heads}) must divide d_model ({self.d}), and K/V "
                             f"heads ({self.kv}) must divide heads")
        if self.vocab < 256:
            raise ValueError("shape: vocab: expected at least 256, a token a byte, found "
                             f"{self.vocab}")
        self.kv_dim = self.d // self.heads * self.kv


class Weights:
    """Writes random weights to a file, going round a pool of them."""

    def __init__(self, out):
        draw = random.Random(1)
        pool = array("f", (draw.gauss(0, DEVIATION) for _ in range(PERIOD)))
        self.pool = memoryview(little_endian(pool).tobytes())
        self.at = 0
        self.out = out

    def write(self, count):
        left = 4 * count
        while left:
            part = self.pool[self.at:self.at + left]
            self.out.write(part)
            left -= len(part)
            self.at = (self.at + len(part)) % len(self.pool)

    def fill(self, count, value):
        self.out.write(struct.pack("<f", value) * count)


def little_endian(values):
    if sys.byteorder == "big":
        values.byteswap()
    return values


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == GGUF_STRING:
        return gguf_string(value)
    return struct.pack({GGUF_U32: "<I", GGUF_I32: "<i", GGUF_F32: "<f"}[kind], value)


def gguf_pair(key, kind, value):
    return gguf_string(key) + struct.pack("<I", kind) + gguf_value(kind, value)


def gguf_list(key, kind, values):
    return (gguf_string(key) + struct.pack("<IIQ", GGUF_ARRAY, kind, len(values)) +
            b"".join(gguf_value(kind, v) for v in values))


def byte_tokens():
    """Returns GPT-2's printable character of each byte, in the order of its vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return [chr(b) for b in shown] + [chr(256 + i) for i in range(len(hidden))]


# The keys that only one of the architectures has.
ARCHITECTURES = {
    "gpt2": {"attention.layer_norm_epsilon": (GGUF_F32, 1e-5)},
    "llama": {"attention.layer_norm_rms_epsilon": (GGUF_F32, 1e-5),
              "rope.freq_base": (GGUF_F32, 10000.0)},
}


def gguf_metadata(s, arch):
    tokens = byte_tokens() + [f"<unused{i}>" for i in range(s.vocab - 256)]
    p = arch + "."
    return [
        gguf_pair("general.architecture", GGUF_STRING, arch),
        gguf_pair("general.name", GGUF_STRING, f"random {s.layers}x{s.d}x{s.heads}"),
        gguf_pair(p + "context_length", GGUF_U32, s.ctx),
        gguf_pair(p + "embedding_length", GGUF_U32, s.d),
        gguf_pair(p + "block_count", GGUF_U32, s.layers),
        gguf_pair(p + "feed_forward_length", GGUF_U32, s.ff),
        gguf_pair(p + "attention.head_count", GGUF_U32, s.heads),
        gguf_pair(p + "attention.head_count_kv", GGUF_U32, s.kv),
        *(gguf_pair(p + key, *value) for key, value in ARCHITECTURES[arch].items()),
        gguf_pair("tokenizer.ggml.model", GGUF_STRING, "gpt2"),
        gguf_pair("tokenizer.ggml.pre", GGUF_STRING, "gpt-2"),
        gguf_list("tokenizer.ggml.tokens", GGUF_STRING, tokens),
        gguf_list("tokenizer.ggml.token_type", GGUF_I32, [1] * s.vocab),
        gguf_list("tokenizer.ggml.merges", GGUF_STRING, []),
    ]


def block_matrices(s, arch):
    """Yields (name, rows, columns) of each matrix of a block."""
    if arch == "gpt2":
        yield "attn_qkv", s.d + 2 * s.kv_dim, s.d
    else:
        yield "attn_q", s.d, s.d
        yield "attn_k", s.kv_dim, s.d
        yield "attn_v", s.kv_dim, s.d
        yield "ffn_gate", s.ff, s.d
    yield "attn_output", s.d, s.d
    yield "ffn_up", s.ff, s.d
    yield "ffn_down", s.d, s.ff


def gguf_tensors(s, arch):
    """Yields (name, (columns, rows), gain) of each tensor: norms have gain 1 and are filled with ones."""
    has_biases = arch != "llama"

    def with_bias(name, dims, gain):
        yield name + ".weight", dims, gain
        if has_biases:
            yield name + ".bias", dims[-1:], 0

    yield "token_embd.weight", (s.d, s.vocab), 0
    if has_biases:
        yield "position_embd.weight", (s.d, s.ctx), 0
    for layer in range(s.layers):
        for name, rows, columns in block_matrices(s, arch):
            yield from with_bias(f"blk.{layer}.{name}", (columns, rows), 0)
        for name in ("attn_norm", "ffn_norm"):
            yield from with_bias(f"blk.{layer}.{name}", (s.d,), 1)
    yield from with_bias("output_norm", (s.d,), 1)
    yield "output.weight", (s.d, s.vocab), 0


def padding(size):
    return -size % ALIGNMENT


def write_gguf(s, arch, path):
    metadata = gguf_metadata(s, arch)
    tensors = list(gguf_tensors(s, arch))
    infos, offset, sizes = [], 0, []
    for name, dims, _ in tensors:
        count = math.prod(dims)
        infos.append(gguf_string(name) +
                     struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, GGML_F32, offset))
        sizes.append(count)
        offset += 4 * count + padding(4 * count)
    counts = struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head = b"".join([b"GGUF", counts, *metadata, *infos])
    with open(path, "wb") as out:
        out.write(head + bytes(padding(len(head))))
        weights = Weights(out)
        for (_, _, gain), count in zip(tensors, sizes):
            if gain:
                weights.fill(count, 1)
            else:
                weights.write(count)
            out.write(bytes(padding(4 * count)))


def write_llama2c(s, arch, path):
    hidden = s.ff if arch == "llama" else max(8, round(s.ff * 2 / 3 / 8) * 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<7i", s.d, hidden, s.layers, s.heads, s.kv, s.vocab, s.ctx))
        weights = Weights(out)
        weights.write(s.d)
        weights.fill(s.d, 0)  # token 1, which would end a run
        weights.write((s.vocab - 2) * s.d)
        weights.fill(s.layers * s.d, 1)
        for rows in (s.d, s.kv_dim, s.kv_dim, s.d):  # Wq, Wk, Wv, Wo, each of all layers
            weights.write(s.layers * rows * s.d)
        weights.fill(s.layers * s.d, 1)
        weights.write(3 * s.layers * hidden * s.d)
        weights.fill(s.d, 1)
        weights.fill(s.ctx * (s.d // s.heads), 0)  # room of RoPE's tables, which llama2.c skips


def write_tokenizer(s, path):
    with open(path, "wb") as out:
        out.write(struct.pack("<i", 1))
        out.write((struct.pack("<fi", 0, 1) + b"a") * s.vocab)


def main():
    parser = argparse.ArgumentParser(description="Checkpoints with random weights, for benchmarks.")
    parser.add_argument("shape", help="LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C][,kv=G]")
    parser.add_argument("--arch", choices=("gpt2", "llama"), default="gpt2",
                        help="of the checkpoint, or beside which llama2.c's stands")
    parser.add_argument("--gguf", metavar="FILE", help="a checkpoint for decode and llama.cpp")
    parser.add_argument("--llama2c", metavar="FILE", help="a checkpoint for llama2.c")
    parser.add_argument("--tokenizer", metavar="FILE", help="llama2.c's tokenizer for it")
    args = parser.parse_args()
    if not (args.gguf or args.llama2c or args.tokenizer):
        parser.error("nothing to write; expected --gguf, --llama2c or --tokenizer")
    try:
        shape = Shape(args.shape)
    except ValueError as error:
        parser.error(str(error))
    if args.gguf:
        write_gguf(shape, args.arch, args.gguf)
    if args.llama2c:
        write_llama2c(shape, args.arch, args.llama2c)
    if args.tokenizer:
        write_tokenizer(shape, args.tokenizer)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"make_random_checkpoint.py: {error}")
