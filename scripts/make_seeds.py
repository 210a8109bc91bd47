#!/usr/bin/env python3
"""make_seeds.py [FOLDER] - writes the seed corpus of the GGUF fuzz target, good files and bad.

The files are made byte by byte, so that they do not depend on the reader and writer they test.
"""

import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?",
        U64: "Q", I64: "q", F64: "d"}

# number: (elements of a block, bytes of a block)
TYPES = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 8: (32, 34),
         12: (256, 144), 14: (256, 210), 20: (32, 18), 24: (1, 1), 28: (1, 8), 30: (1, 2),
         34: (256, 54), 39: (32, 17)}
F32_T, F16_T, Q4_0_T, Q8_0_T, BF16_T = 0, 1, 2, 8, 30


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def payload(kind, value):
    return text(value) if kind == STRING else struct.pack("<" + PACK[kind], value)


def pair(key, kind, value):
    return text(key) + struct.pack("<I", kind) + payload(kind, value)


def array(key, kind, values):
    head = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return head + b"".join(payload(kind, value) for value in values)


def size_of(dims, number):
    elements, size = TYPES[number]
    count = 1
    for dim in dims:
        count *= dim
    return count // elements * size


def up(value, alignment):
    return (value + alignment - 1) // alignment * alignment


def weights(n, salt):
    """n small floats that repeat after a while: nothing is measured with them."""
    return b"".join(struct.pack("<f", ((i * 37 + salt * 11) % 64 - 32) / 256) for i in range(n))


def filler(dims, number, salt):
    size = size_of(dims, number)
    if number == F32_T:
        return weights(size // 4, salt)
    if number == F16_T:
        return bytes(b for i in range(size // 2) for b in ((i * 5 + salt) % 256, 0x20 + i % 8))
    return bytes((i * 7 + salt) % 128 for i in range(size))


def build(pairs=(), tensors=(), version=3, alignment=32, offsets=None, counts=None, tail=True):
    """tensors: (name, dims, type[, data]). offsets, counts and tail replace what would be right."""
    at, infos, data = 0, b"", b""
    for i, (name, dims, number, *given) in enumerate(tensors):
        offset = offsets[i] if offsets else at
        infos += text(name) + struct.pack("<I", len(dims))
        infos += b"".join(struct.pack("<Q", dim) for dim in dims)
        infos += struct.pack("<IQ", number, offset)
        sane = number in TYPES and size_of(dims, number) < 1 << 16
        raw = given[0] if given else filler(dims, number, i) if sane else bytes(64)
        last = i == len(tensors) - 1
        data += raw + bytes(up(len(raw), alignment) - len(raw) if tail or not last else 0)
        at = len(data)
    n_tensors, n_pairs = counts or (len(tensors), len(pairs))
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_pairs) + b"".join(pairs) + infos
    return head + bytes(up(len(head), alignment) - len(head)) + data if tensors else head


def byte_alphabet():
    """GPT-2's printable stand-ins of the 256 bytes, in the order of its vocabulary."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    return [chr(b) for b in kept] + [chr(256 + i) for i in range(len(rest))]


def checkpoint(arch="gpt2", heads=2, kv_heads=2, number=F32_T, d=8, ff=16, context=8, layers=1,
               tied=True, tokenizer=True):
    """A complete model: tiny, but all there."""
    tokens = byte_alphabet() + ["<|endoftext|>"]
    kv = d // heads * kv_heads
    pairs = [pair("general.architecture", STRING, arch), pair("general.name", STRING, "seed"),
             pair("general.file_type", U32, 1 if number == F16_T else 0),
             pair(arch + ".context_length", U32, context),
             pair(arch + ".embedding_length", U32, d),
             pair(arch + ".feed_forward_length", U32, ff),
             pair(arch + ".block_count", U32, layers),
             pair(arch + ".attention.head_count", U32, heads),
             pair(arch + ".attention.head_count_kv", U32, kv_heads),
             pair(arch + ".attention.layer_norm_epsilon", F32, 1e-5)]
    vocabulary = 16
    if tokenizer:
        vocabulary = len(tokens)
        pairs += [pair("tokenizer.ggml.model", STRING, "gpt2"),
                  pair("tokenizer.ggml.pre", STRING, "gpt-2"),
                  array("tokenizer.ggml.tokens", STRING, tokens),
                  array("tokenizer.ggml.token_type", I32, [1] * (vocabulary - 1) + [3]),
                  array("tokenizer.ggml.merges", STRING, []),
                  pair("tokenizer.ggml.bos_token_id", U32, vocabulary - 1),
                  pair("tokenizer.ggml.eos_token_id", U32, vocabulary - 1)]
    tensors = [("token_embd.weight", (d, vocabulary), number),
               ("position_embd.weight", (d, context), F32_T)]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}", dims, kind) for name, dims, kind in (
            ("attn_norm.weight", (d,), F32_T), ("attn_norm.bias", (d,), F32_T),
            ("attn_qkv.weight", (d, d + 2 * kv), number), ("attn_qkv.bias", (d + 2 * kv,), F32_T),
            ("attn_output.weight", (d, d), number), ("attn_output.bias", (d,), F32_T),
            ("ffn_norm.weight", (d,), F32_T), ("ffn_norm.bias", (d,), F32_T),
            ("ffn_up.weight", (d, ff), number), ("ffn_up.bias", (ff,), F32_T),
            ("ffn_down.weight", (ff, d), number), ("ffn_down.bias", (d,), F32_T))]
    tensors += [("output_norm.weight", (d,), F32_T), ("output_norm.bias", (d,), F32_T)]
    if not tied:
        tensors.append(("output.weight", (d, vocabulary), number))
    return build(pairs, tensors)


def other(arch, layers=1, heads=2, kv_heads=None, d=8, key=None, value=None, ff=12, context=8,
          number=F32_T, kinds=(), split=False, biases=False, shared=False, extra=(), more=(),
          latent=()):
    """A model of another architecture than GPT-2's. kinds: norm, placement, positions, feed-forward
    of `decode`; more: its other keys; extra: other tensors."""
    kv_heads = kv_heads or [heads] * layers
    key, value = key or d // heads, value or key or d // heads
    norm, placement, position, ffn = kinds or ("rms", "before", "rope", "swiglu")
    eps = "attention.layer_norm_rms_epsilon" if arch == "llama" else "norm.epsilon"
    pairs = [pair("general.architecture", STRING, arch), pair(arch + ".context_length", U32, context),
             pair(arch + ".embedding_length", U32, d), pair(arch + ".feed_forward_length", U32, ff),
             pair(arch + ".block_count", U32, layers),
             pair(arch + ".attention.head_count", U32, heads),
             array(arch + ".attention.head_count_kv", U32, kv_heads),
             pair(arch + ".attention.key_length", U32, key),
             pair(arch + ".attention.value_length", U32, value), pair(f"{arch}.{eps}", F32, 1e-5)]
    if kinds:
        names = ("norm.type", "norm.placement", "position.type", "feed_forward.type")
        pairs += [pair(f"{arch}.{name}", STRING, kind) for name, kind in zip(names, kinds)]
        pairs += [pair(arch + ".block.shared", BOOL, shared),
                  pair(arch + ".embedding_scale", F32, 2.5)]
    if latent:
        pairs.append(array(arch + ".attention.latent", I32, latent))
    pairs += [pair(f"{arch}.{name}", kind, x) for name, kind, x in more]
    before = placement == "before"
    has_bias = {"layer": biases, "rms": False}[norm]

    def norms(name):
        return [(name + ".weight", (d,), F32_T)] + [(name + ".bias", (d,), F32_T)] * has_bias

    def affine(name, columns, rows):
        return ([(name + ".weight", (columns, rows), number)] +
                [(name + ".bias", (rows,), F32_T)] * biases)

    tensors = [("token_embd.weight", (d, 16), number), *extra]
    if position == "learned":
        tensors.append(("position_embd.weight", (d, context), F32_T))
    for i, kv in enumerate(kv_heads[:1] if shared else kv_heads):
        b = f"blk.{i}."
        rows = [("q", heads * key), ("k", kv * key), ("v", kv * value)]
        tensors += norms(b + "attn_norm") if before else []
        rank = latent[i % len(latent)] if latent else 0
        if latent:
            rows = [("q", heads * key), ("kv_a", rank)]
        for part, n in rows if split else [("qkv", sum(n for _, n in rows))]:
            tensors += affine(b + "attn_" + part, d, n)
        if latent:
            tensors += [(b + "attn_k_b.weight", (key, rank, heads), F16_T),
                        (b + "attn_v_b.weight", (rank, value, heads), F32_T)]
        if position == "quadratic":
            tensors.append((b + "attn_rel.weight", (2, heads), F32_T))
        tensors += affine(b + "attn_output", heads * value, d)
        tensors += norms(b + ("ffn_norm" if before else "attn_output_norm"))
        tensors += affine(b + "ffn_gate", d, ff) if ffn == "swiglu" else []
        tensors += affine(b + "ffn_up", d, ff) + affine(b + "ffn_down", ff, d)
        tensors += norms(b + "layer_output_norm") if not before else []
    tensors += norms("output_norm") if before else []
    return build(pairs, tensors)


def values():
    """Every kind alone and in arrays."""
    some = {U8: [0, 255], I8: [-128, 127], U16: [1, 65535], I16: [-32768, 5],
            U32: [7, 2**32 - 1], I32: [-1, 2**31 - 1], F32: [0.5, float("inf")],
            BOOL: [True, False], U64: [3, 2**64 - 1], I64: [-2**63, 9], F64: [-0.25, float("nan")],
            STRING: ["", b"a\x00\xff\x1b"]}
    yield "kinds", build([pair(f"k{kind}", kind, v[0]) for kind, v in some.items()])
    yield "arrays", build([array(f"a{kind}", kind, v * 2) for kind, v in some.items()])
    yield "empty-arrays", build([array(f"e{kind}", kind, []) for kind in some])
    yield "bool-2", build([text("b") + struct.pack("<IB", BOOL, 2)])
    yield "strings", build([array("words", STRING, ["one", "", "three", "\u00e9" * 20])])
    hostile = b"\x1b[31m\"\\,|\n\r\t\xc2\x9b\xff\xe2\x82\x00"
    yield "hostile-names", build([pair(hostile, STRING, hostile),
                                  pair("general.architecture", STRING, hostile),
                                  pair("general.name", STRING, hostile)],
                                 [(hostile, (4,), F32_T)])
    yield "long-key", build([pair("k" * 300, U8, 1)])


def layouts():
    yield "nothing", build()
    yield "nothing-v2", build(version=2)
    yield "v2", build([pair("a", U32, 1)], [("t", (4,), F32_T)], version=2)
    types = [(f"t{number}", (256, 2) if elements == 256 else (elements * 2, 3), number)
             for number, (elements, _) in TYPES.items()]
    yield "types", build([], types[:9])
    yield "types-more", build([], types[9:])
    yield "dims", build([], [("d1", (3,), F32_T), ("d2", (3, 2), F16_T), ("d3", (3, 2, 2), BF16_T),
                             ("d4", (32, 1, 2, 1), Q8_0_T)])
    two = [("a", (4,), F32_T), ("b", (32,), Q4_0_T)]
    for alignment in (8, 64, 1024):
        yield f"align-{alignment}", build([pair("general.alignment", U32, alignment)], two,
                                          alignment=alignment)
    yield "unordered", build([], two + [("c", (1,), F32_T)], offsets=[64, 0, 32])
    yield "no-last-padding", build([], two, tail=False)
    yield "name-64", build([], [("n" * 64, (1,), F32_T)])


def bad():
    two = [("a", (4,), F32_T), ("b", (32,), Q4_0_T)]
    one = [pair("a", U32, 1)]
    yield "magic", b"FUGG" + build(one)[4:]
    yield "version-1", build(one, version=1)
    yield "version-swapped", build(one, version=3 << 24)
    yield "pairs-2-63", build(one, counts=(0, 2**63))
    yield "tensors-2-64", build(one, two, counts=(2**64 - 1, 1))
    yield "key-empty", build([pair("", U64, 1)])
    yield "key-twice", build([pair("a", U32, 1), pair("a", STRING, "x")])
    yield "string-2-64", build([text("s") + struct.pack("<IQ", STRING, 2**64 - 1) + b"abc"])
    yield "array-wraps", build([text("s") + struct.pack("<IIQ", ARRAY, U32, 2**62)])
    yield "array-nested", build([text("s") + struct.pack("<IIQIQ", ARRAY, ARRAY, 1, U32, 0)])
    yield "kind-13", build([text("s") + struct.pack("<IQ", 13, 0)])
    yield "align-3", build([pair("general.alignment", U32, 3)], two)
    yield "align-u64", build([pair("general.alignment", U64, 32)], two)
    yield "type-removed", build([], [("a", (32,), 4)])
    yield "dim-zero", build([], [("a", (0, 4), F32_T)])
    yield "dims-overflow", build([], [("a", (2**32, 2**32), F32_T)])
    yield "overlap", build([], two, offsets=[0, 0])
    yield "offset-past", build([], two, offsets=[0, 2**64 - 32])
    yield "tensor-twice", build([], [("a", (4,), F32_T), ("a", (4,), F32_T)])
    for name, ranks, position in (("0", [4, 0], "none"), ("9", [9, 4], "none"),
                                  ("layers", [4], "none"), ("rope", [4, 4], "rope")):
        yield "latent-" + name, other("decode", layers=2, split=True, latent=ranks,
                                      kinds=("rms", "before", position, "gelu"))
    yield "truncated", build([], two)[:-33]
    yield "truncated-inside", build([], two)[:-20]


def models():
    yield "gpt2", checkpoint(number=F16_T)
    yield "gpt2-mqa", checkpoint(kv_heads=1, tokenizer=False)
    yield "gpt2-untied", checkpoint(d=4, tied=False, tokenizer=False, layers=2, context=4)
    yield "gpt2-blocks", checkpoint(d=32, ff=32, context=1, number=F16_T, tokenizer=False)
    yield "gpt2-q8_0", checkpoint(d=32, ff=32, context=2, number=Q8_0_T, tokenizer=False)
    yield "gpt2-q4_0", checkpoint(d=32, ff=32, context=2, number=Q4_0_T, tokenizer=False)
    yield "gpt2-gqa", checkpoint(heads=4, kv_heads=2, tied=False, tokenizer=False)
    yield "gpt2-bf16", checkpoint(d=4, number=BF16_T, tokenizer=False)
    yield "starcoder", checkpoint(arch="starcoder", kv_heads=1, d=4, tokenizer=False)
    yield "llama", other("llama", kv_heads=[1], split=True)
    yield "llama-q8_0", other("llama", d=32, ff=32, kv_heads=[1], split=True, number=Q8_0_T)
    yield "llama-scaled", other(
        "llama", layers=2, heads=4, key=6, kv_heads=[2, 1], split=True, biases=True,
        extra=[("rope_freqs.weight", (2,), F16_T, struct.pack("<2e", 1, 8))],
        more=[("rope.dimension_count", U32, 4), ("rope.freq_base", F32, 5e5),
              ("rope.scaling.type", STRING, "linear"), ("rope.scaling.factor", F32, 4.0)])
    yield "transformer", other("decode", biases=True, kinds=("layer", "after", "sinusoidal", "relu"))
    yield "alibi", other("decode", heads=6, d=6, key=7, value=5, kv_heads=[3],
                         kinds=("rms", "after", "alibi", "swiglu"))
    yield "quadratic", other("decode", layers=2, kv_heads=[2, 1], number=F16_T, split=True,
                             kinds=("layer", "before", "quadratic", "gelu_erf"))
    yield "shared", other("decode", layers=3, kv_heads=[1, 1, 1], shared=True,
                          kinds=("rms", "before", "learned", "gelu"))
    yield "latent", other("decode", layers=2, heads=2, key=6, value=5, split=True, biases=True,
                          latent=[7, 3], kinds=("layer", "before", "alibi", "gelu"))
    yield "latent-shared", other("decode", layers=2, heads=4, shared=True, split=True,
                                 number=BF16_T, latent=[8, 8],
                                 kinds=("rms", "after", "quadratic", "swiglu"))
    yield "none", other("decode", number=BF16_T, biases=True,
                        kinds=("layer", "before", "none", "swiglu"))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/fuzz/corpus/gguf")
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, seeds in (("", values()), ("", layouts()), ("bad-", bad()), ("model-", models())):
        for name, data in seeds:
            (folder / f"{prefix}{name}.gguf").write_bytes(data)


if __name__ == "__main__":
    main()
