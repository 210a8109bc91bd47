#!/usr/bin/env python3
"""make_golden.py [FOLDER [NAME...]] - writes small random checkpoints, all or those named, with the logits
and attention weights that tests/model/reference_model.py computes of them, for tests/data/golden.

mha, gqa and mqa-f16 have GPT-2's block and a vocabulary of bytes. transformer, shared-block, layerwise-kv,
alibi, quadratic and alone have the same vocabulary and one kind each that GPT-2 lacks. additive has scores
w.tanh(q + k). mixed-* mix what architectures differ in: sizes are odd, keys and values have different
widths, and no two files have the same kinds. gptneox to local are families of checkpoints, each with odd
numbers. (llama is not made here: it and its logits are those of tests/data/hf/llama, by transformers.)

reference_model.py was compared with others' logits of larger checkpoints: with transformers', of all
families, it agrees to 8e-6; with those that came with checkpoints of these names, except mixed-* and
additive, to 2e-6. Needs NumPy and gguf.
"""

import pathlib
import sys

import numpy as np
from gguf import GGUFWriter, GGMLQuantizationType
from gguf.quants import quantize

from reference_model import EPSILON_KEYS, FIXED, Model, attention_rows

N_VOCAB = 61

# Kinds (those of reference_model), sizes, K/V heads by layer, and what else is in the file. twice: the file
# has an output matrix, which is the embedding. spread: the deviation of all weights.
GPT2 = dict(arch="gpt2", kinds=("layer", "before", "learned", "gelu"), split=False, tied=False,
            spread=0.15, biases=("attn_norm", "attn_qkv", "attn_output", "ffn_norm", "ffn_up", "ffn_down",
                    "output_norm"))
# Of architecture decode.
OWN = dict(arch="decode", layers=2, d=24, heads=6, kv=[3, 3], ff=40, ctx=80, tokens=40, vocab=256,
           split=False, tied=True, biases=GPT2["biases"])
FAMILY = dict(layers=2, d=24, ff=40, ctx=64, tokens=40, split=True, tied=True)
F16 = dict.fromkeys(("token_embd", "attn_qkv", "attn_output", "ffn_up", "ffn_down", "output"), "F16")
CHECKPOINTS = {
    # It has all that only a llama may have: a part of each head is turned, positions are scaled and have
    # factors, and there are biases and K/V heads by layer.
    "mixed-llama": dict(
        arch="llama", kinds=("rms", "before", "rope", "swiglu"), layers=3, d=33, heads=6,
        kv=[2, 6, 1], key=10, value=10, ff=38, ctx=48, tokens=40, split=True, tied=False,
        biases=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"),
        rope=(6, 50000.0, 4.0, [1.0, 2.5, 8.0])),
    # It has more positions than a chunk of the cache, and 6 heads.
    "mixed-alibi": dict(
        arch="decode", kinds=("rms", "after", "alibi", "swiglu"), layers=2, d=35, heads=6,
        kv=[3, 3], key=7, value=5, ff=40, ctx=300, tokens=280, split=False, tied=True,
        biases=("attn_qkv", "ffn_up"), scale=2.5),
    "mixed-quadratic": dict(
        arch="decode", kinds=("layer", "after", "quadratic", "relu"), layers=3, d=24, heads=4,
        kv=[4, 1, 2], key=9, value=4, ff=50, ctx=48, tokens=40, split=True, tied=False,
        biases=("attn_output_norm", "layer_output_norm", "attn_k", "ffn_up", "attn_output"),
        types={"attn_q": "F16", "attn_k": "BF16", "ffn_up": "BF16", "token_embd": "F16"}),
    "mixed-sinusoidal": dict(
        arch="decode", kinds=("layer", "before", "sinusoidal", "gelu_erf"), layers=3, d=27, heads=5,
        kv=[1, 1, 1], key=6, value=11, ff=31, ctx=48, tokens=40, split=True, tied=False,
        biases=(), shared=True, scale=0.5),
    "mixed-none": dict(
        arch="decode", kinds=("rms", "before", "none", "gelu"), layers=2, d=20, heads=3,
        kv=[3, 1], key=16, value=32, ff=64, ctx=48, tokens=40, split=False, tied=True,
        biases=("attn_qkv", "ffn_down"), types={"ffn_down": "F16", "attn_output": "F16"}),
    # Scores are w.tanh(q + k), and K/V heads are shared.
    "additive": dict(
        arch="decode", kinds=("layer", "before", "learned", "gelu"), score="additive", layers=2, d=24,
        heads=4, kv=[2, 1], key=20, value=10, ff=30, ctx=48, tokens=40, split=True, tied=True,
        biases=("attn_norm", "attn_q", "attn_k", "attn_output", "ffn_norm", "ffn_up", "ffn_down",
                "output_norm"), seed=24),
    "mha": dict(GPT2, layers=2, d=32, heads=4, kv=[4, 4], ff=64, ctx=64, tokens=40, vocab=300,
                twice=True, seed=20),
    "gqa": dict(GPT2, layers=3, d=48, heads=6, kv=[3, 3, 3], ff=72, ctx=48, tokens=48, vocab=257, seed=21),
    "mqa-f16": dict(GPT2, layers=2, d=96, heads=3, kv=[1, 1], ff=64, ctx=64, tokens=33, vocab=288,
                    tied=True, types=F16, seed=23),
    "transformer": dict(OWN, kinds=("layer", "after", "sinusoidal", "relu"), kv=[2, 2], scale=24 ** 0.5,
                        biases=("attn_qkv", "attn_output", "attn_output_norm", "ffn_up", "ffn_down",
                                "layer_output_norm"), seed=24),
    "shared-block": dict(OWN, kinds=("rms", "before", "rope", "swiglu"), layers=3, kv=[2, 2, 2],
                         shared=True, biases=(), rope=(None, 10000.0, None, None), seed=25),
    "layerwise-kv": dict(OWN, kinds=("layer", "before", "learned", "gelu_erf"), layers=3, kv=[6, 2, 1],
                         seed=26),
    "alibi": dict(OWN, kinds=("layer", "before", "alibi", "gelu"), seed=27),
    # These are families. The last one has windows that are longer than a chunk of the cache, and shorter ones.
    "gptneox": dict(FAMILY, arch="gptneox", heads=3, kv=[3, 3], d=30, split=False, tied=False,
                    biases=GPT2["biases"], rope=(4, 500.0, None, None), seed=30),
    "phi2": dict(FAMILY, arch="phi2", heads=2, kv=[2, 1], tied=False, rope=(6, 1e4, None, None),
                 biases=(*GPT2["biases"], "attn_q", "attn_k", "attn_v", "output"), seed=31),
    "bloom": dict(FAMILY, arch="bloom", heads=3, kv=[3, 3], d=27, split=False,
                  biases=(*GPT2["biases"], "token_embd_norm"), seed=32),
    "olmo": dict(FAMILY, arch="olmo", heads=4, kv=[2, 2], biases=(), seed=33),
    "gemma3": dict(FAMILY, arch="gemma3", layers=6, d=16, heads=3, kv=[1] * 6, key=8, value=8, ff=20,
                   biases=(), rope=(None, 1e6, 2.0, None), window=7, seed=34),
    "local": dict(FAMILY, arch="decode", kinds=("layer", "parallel", "rope", "geglu"), layers=3,
                  heads=3, kv=[1, 3, 1], d=21, ctx=320, tokens=310, window=[261, 0, 5], score_scale=1.0,
                  parts=("norm.embedding", "norm.queries_keys", "norm.added", "rope.halves"),
                  key=6, value=5, rope=(4, 900.0, None, None), biases=("attn_q", "attn_k", "output"),
                  seed=35),
    "quadratic": dict(OWN, kinds=("layer", "before", "quadratic", "gelu"), seed=28),
    "alone": dict(OWN, kinds=("rms", "alone", "rope", "swiglu"), heads=3, kv=[3, 1], ctx=48, biases=(),
                  rope=(None, 10000.0, None, None), seed=36),
}


def kinds_of(c):
    """Returns the kinds of a checkpoint and its other traits, in reference_model's words."""
    kinds = c["kinds"] if "kinds" in c else FIXED[c["arch"]]
    return kinds[:4], {*kinds[4:], *(part.split(".")[1] for part in c.get("parts", ()))}


def tensors(c):
    """Yields (name, shape, kind of numbers) in the order of a file, without norms that have no weights."""
    for name, shape, kind in all_tensors(c):
        if kind != "norm" or "no_weights" not in kinds_of(c)[1]:
            yield name, shape, kind


def all_tensors(c):
    kinds, parts = kinds_of(c)
    norm_first = kinds[1] != "after"
    yield "token_embd", (c.get("vocab", N_VOCAB), c["d"]), "embedding"
    if "embedding" in parts:
        yield "token_embd_norm", (c["d"],), "norm"
    if kinds[2] == "learned":
        yield "position_embd", (c["ctx"], c["d"]), "matrix"
    if "rope" in c and c["rope"][3]:
        yield "rope_freqs", c["rope"][3], "given"
    for layer in range(1 if c.get("shared") else c["layers"]):
        block = f"blk.{layer}."
        heads, kv = c["heads"], c["kv"][layer]
        key = c.get("key", c["d"] // heads)
        value = c.get("value", key)
        rows = heads * key, kv * key, kv * value
        if norm_first:
            yield block + "attn_norm", (c["d"],), "norm"
        if "queries_keys" in parts:
            yield block + "attn_q_norm", (key,), "norm"
            yield block + "attn_k_norm", (key,), "norm"
        if c["split"]:
            for part, n in zip("qkv", rows):
                yield block + "attn_" + part, (n, c["d"]), "matrix"
        else:
            yield block + "attn_qkv", (sum(rows), c["d"]), "matrix"
        if kinds[2] == "quadratic":
            yield block + "attn_rel", (heads, 2), "rel"
        if "score" in c:
            yield block + "attn_score", (heads, key), "score"
        yield block + "attn_output", (c["d"], heads * value), "matrix"
        if "added" in parts:
            yield block + "post_attention_norm", (c["d"],), "norm"
        if "single" not in parts:
            yield block + ("ffn_norm" if norm_first else "attn_output_norm"), (c["d"],), "norm"
        if kinds[3] in ("swiglu", "geglu"):
            yield block + "ffn_gate", (c["ff"], c["d"]), "matrix"
        yield block + "ffn_up", (c["ff"], c["d"]), "matrix"
        yield block + "ffn_down", (c["d"], c["ff"]), "matrix"
        if "added" in parts:
            yield block + "post_ffw_norm", (c["d"],), "norm"
        if not norm_first:
            yield block + "layer_output_norm", (c["d"],), "norm"
    if norm_first:
        yield "output_norm", (c["d"],), "norm"
    if not c["tied"]:
        yield "output", (c.get("vocab", N_VOCAB), c["d"]), "matrix"


def numbers(rng, shape, kind, spread):
    if kind == "given":
        return np.array(shape)
    if kind == "rel":  # from heads that see all alike to heads that look at one place
        return np.stack([10.0 ** rng.uniform(-4, 0, shape[0]), rng.uniform(0, 8, shape[0])], axis=1)
    if kind == "score":
        return rng.normal(0, 1, shape)
    if kind == "norm":
        return rng.normal(1, 0.2, shape)
    return rng.normal(0, 1, shape) * (spread or (0.6 if kind == "embedding" else shape[-1] ** -0.5))


def add_keys(w, c):
    p = c["arch"] + "."
    for key, value in (("context_length", c["ctx"]), ("embedding_length", c["d"]),
                       ("feed_forward_length", c["ff"]), ("block_count", c["layers"]),
                       ("attention.head_count", c["heads"]), ("attention.key_length", c.get("key")),
                       ("attention.value_length", c.get("value"))):
        if value:
            w.add_uint32(p + key, value)
    if len(set(c["kv"])) > 1:
        w.add_array(p + "attention.head_count_kv", c["kv"])
    else:
        w.add_uint32(p + "attention.head_count_kv", c["kv"][0])
    w.add_float32(p + EPSILON_KEYS[c["arch"]], 1e-5)
    if c["arch"] == "decode":
        for key, kind in zip(("norm.type", "norm.placement", "position.type", "feed_forward.type"),
                             c["kinds"]):
            w.add_string(p + key, kind)
        if "score" in c:
            w.add_string(p + "attention.score", c["score"])
        w.add_bool(p + "block.shared", c.get("shared", False))
        w.add_float32(p + "embedding_scale", c.get("scale", 1.0))
        for part in c.get("parts", ()):
            w.add_bool(p + part, True)
    if c["arch"] == "gptneox":
        w.add_bool(p + "use_parallel_residual", True)
    if "score_scale" in c:
        w.add_float32(p + "attention.scale", c["score_scale"])
    if "window" in c:
        add = w.add_array if isinstance(c["window"], list) else w.add_uint32
        add(p + "attention.sliding_window", c["window"])
    if "vocab" in c:
        add_tokenizer(w, c["vocab"])
    if "rope" in c:
        n, base, factor, _ = c["rope"]
        if n:
            w.add_uint32(p + "rope.dimension_count", n)
        w.add_float32(p + "rope.freq_base", base)
        if factor:
            w.add_string(p + "rope.scaling.type", "linear")
            w.add_float32(p + "rope.scaling.factor", factor)


def add_tokenizer(w, n):
    """Adds the bytes, a token of two that a merge makes, and tokens that nothing makes."""
    plain = [b for b in range(256) if 33 <= b <= 126 or b >= 161 and b != 173]
    others = [b for b in range(256) if b not in plain]
    letters = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    names = [letters[b] for b in range(256)] + ["\u0120t"] + [f"<|x{i}|>" for i in range(n - 257)]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(names[:n])
    w.add_token_types([1] * n)
    if n > 256:
        w.add_token_merges(["\u0120 t"])
    w.add_bos_token_id(10)
    w.add_eos_token_id(10)


def write(path, c, seed):
    rng = np.random.default_rng(seed)
    w = GGUFWriter(path, c["arch"])
    add_keys(w, c)
    for name, shape, kind in tensors(c):
        role = name.split(".")[-1]
        x = numbers(rng, shape, kind, c.get("spread")).astype(np.float32)
        if role == "token_embd":
            embedding = x
        if role == "output" and c.get("twice"):
            x = embedding
        type = GGMLQuantizationType[c.get("types", {}).get(role, "F32")]
        w.add_tensor(name + ".weight", quantize(x, type), raw_dtype=type)
        if role in c["biases"]:
            bias = rng.normal(0, 0.2, x.shape[0]).astype(np.float32)
            w.add_tensor(name + ".bias", bias)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/golden")
    for seed, (name, c) in enumerate(CHECKPOINTS.items()):
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        seed = c.get("seed", seed)
        write(folder / f"{name}.gguf", c, seed)
        n_vocab = c.get("vocab", N_VOCAB)
        tokens = np.random.default_rng(100 + seed).integers(0, n_vocab, c["tokens"]).tolist()
        (folder / f"{name}.tokens").write_text(",".join(map(str, tokens)) + "\n")
        model = Model(folder / f"{name}.gguf")
        logits = model.logits(tokens)
        np.save(folder / f"{name}.npy", logits.astype(np.float32))
        attention = attention_rows(model, len(tokens)).astype(np.float32)
        np.save(folder / f"{name}.attention.npy", attention)
        print(f"{name}: logits of standard deviation {logits.std():.2f}, "
              f"{(folder / f'{name}.gguf').stat().st_size} bytes")


if __name__ == "__main__":
    main()
