#!/usr/bin/env python3
"""Checks `decode import` of llama2.c's and llm.c's checkpoints with NumPy, llama2.c and transformers.

    reference_bins.py llama2c DECODE MODEL.bin      the tensors of a version 0 file, of versions 1
                                                    and 2 made of it, with NumPy
    reference_bins.py text DECODE MODEL.bin TOKENIZER.bin RUN
                                                    greedy texts of llama2.c's program
    reference_bins.py llmc DECODE                   logits of a random GPT-2 in transformers, from
                                                    files of versions 1, 3 and 5

Needs numpy and gguf; llmc: torch and transformers, too.
"""
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

TOLERANCE = 2e-4  # of logits in F32


def decode_import(decode, source, target, tokenizer="none"):
    subprocess.run([decode, "import", source, "-o", target, "--tokenizer", tokenizer, "-q"],
                   check=True, stdout=subprocess.DEVNULL)


# --- llama2.c --------------------------------------------------------------------------------

BLOCK = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate",
         "ffn_down", "ffn_up"]
NORMS = ["attn_norm", "ffn_norm", "output_norm"]
MATRICES = ["token_embd"] + [name for name in BLOCK if "norm" not in name] + ["output"]


def read_legacy(path):
    """The header's numbers, and the tensors of all layers by GGUF's names."""
    raw = open(path, "rb").read()
    dim, ff, layers, heads, kv_heads, vocab, ctx = numbers = struct.unpack("<7i", raw[:28])
    kv = dim // heads * kv_heads
    shapes = {"attn_norm": (dim,), "attn_q": (dim, dim), "attn_k": (kv, dim), "attn_v": (kv, dim),
              "attn_output": (dim, dim), "ffn_norm": (dim,), "ffn_gate": (ff, dim),
              "ffn_down": (dim, ff), "ffn_up": (ff, dim)}
    order = [("token_embd", (1, abs(vocab), dim))]
    order += [(name, (layers, *shapes[name])) for name in BLOCK]
    order += [("output_norm", (1, dim)), ("cos and sin", (2, ctx, dim // heads // 2))]
    order += [("output", (1, -vocab, dim))] if vocab < 0 else []
    floats, tensors = np.frombuffer(raw, "<f4", offset=28), {}
    for name, shape in order:
        tensors[name] = floats[:np.prod(shape)].reshape(shape)
        floats = floats[np.prod(shape):]
    assert len(floats) == 0
    del tensors["cos and sin"]
    return numbers, tensors


def quantize(tensor, group):
    rows = tensor.reshape(-1, group)
    scale = (np.abs(rows).max(axis=1) / np.float32(127)).astype("<f4")
    return np.round(rows / scale[:, None]).astype(np.int8), scale


def write_version(path, version, numbers, tensors, group):
    """As export.py does. Returns what the tensors have become."""
    became = {name: tensors[name].copy() for name in tensors}
    with open(path, "wb") as out:
        out.write(struct.pack("<Ii7iB", 0x616B3432, version, *numbers[:5], abs(numbers[5]),
                              numbers[6], numbers[5] > 0))
        out.write((struct.pack("<i", group) if version == 2 else b"").ljust(256 - out.tell(), b"\0"))
        for name in NORMS:
            out.write(tensors[name].tobytes())
        for name in MATRICES:
            for i, tensor in enumerate(tensors.get(name, [])):
                if version == 1:
                    out.write(tensor.tobytes())
                    continue
                q, scale = quantize(tensor, group)
                out.write(q.tobytes() + scale.tobytes())
                became[name][i] = (q.astype("f4") * scale[:, None]).reshape(tensor.shape)
    return became


def compare_tensors(path, tensors):
    from gguf import GGUFReader
    found = {t.name: np.array(t.data) for t in GGUFReader(path).tensors}
    n = 0
    for name, layers in tensors.items():
        for i, tensor in enumerate(layers):
            full = f"blk.{i}.{name}.weight" if name in BLOCK else f"{name}.weight"
            assert found[full].shape == tensor.shape, full
            assert found.pop(full).tobytes() == tensor.tobytes(), full
            n += 1
    if found.keys() == {"output.weight"}:  # a tied one is written twice
        assert found.pop("output.weight").tobytes() == tensors["token_embd"].tobytes()
    assert not found, found.keys()
    return n


def check_llama2c(decode, model):
    numbers, tensors = read_legacy(model)
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "model.bin"), os.path.join(folder, "model.gguf")
        decode_import(decode, model, target)
        print(f"version 0: {compare_tensors(target, tensors)} tensors with the same bytes")
        for version, group in (1, 0), (2, 64), (2, 32):
            became = write_version(source, version, numbers, tensors, group)
            os.unlink(target)
            decode_import(decode, source, target)
            groups = f", groups of {group}" if group else ""
            print(f"version {version}{groups}: {compare_tensors(target, became)} tensors with the "
                  "same bytes")


PROMPTS = ["", "Once upon a time", "Lily and Tom", "The dog", "She saw a", "One day, a big bird",
           'Tom\'s mom said: "No!"', "Ben", "Mom: no", "The end."]


def check_text(decode, model, tokenizer, run):
    n_ctx = struct.unpack("<7i", open(model, "rb").read(28))[6]
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "model.gguf")
        decode_import(decode, model, target, tokenizer)
        for prompt in PROMPTS:
            theirs = subprocess.run([run, model, "-z", tokenizer, "-t", "0", "-n", str(n_ctx), "-i",
                                     prompt], check=True, capture_output=True).stdout
            ours = subprocess.run([decode, "generate", target, "--greedy", "-n", str(n_ctx), "-p",
                                   prompt, "-q"], check=True, capture_output=True).stdout
            theirs = theirs.replace(b"<unk>", b"")  # a token without text of its own
            assert ours.rstrip(b"\n") == theirs.rstrip(b"\n"), (prompt, ours, theirs)
            print(f"{prompt!r}: the same {len(ours)} bytes")


# --- llm.c -----------------------------------------------------------------------------------

LAYERS = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]
VERSIONS = {1: ("float32", 0), 3: ("float32", 128), 5: ("bfloat16", 128)}  # type, multiple of rows


def write_llmc(path, version, model):
    """As write_model of train_gpt2.py does; transformers has its matrices transposed."""
    import torch
    kind, multiple = VERSIONS[version]
    c, weights = model.config, dict(model.transformer.named_parameters())
    rows = -(-c.vocab_size // multiple) * multiple if multiple else c.vocab_size
    padding = torch.full((rows - c.vocab_size, c.n_embd), 9.0)
    tensors = [weights["wte.weight"], padding, weights["wpe.weight"]]
    for name in LAYERS:
        for part in "weight", "bias":
            for layer in range(c.n_layer):
                tensor = weights[f"h.{layer}.{name}.{part}"]
                tensors.append(tensor.T if tensor.ndim == 2 else tensor)
    tensors += [weights["ln_f.weight"], weights["ln_f.bias"]]
    header = struct.pack("<8i", 20240326, version, c.n_positions, c.vocab_size, c.n_layer, c.n_head,
                         c.n_embd, rows if multiple else 0)
    with open(path, "wb") as out:
        out.write(header.ljust(1024, b"\0"))
        for tensor in tensors:
            stored = tensor.detach().to(getattr(torch, kind)).contiguous()
            out.write(stored.view(torch.int16 if kind == "bfloat16" else torch.int32).numpy().tobytes())


def random_model():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=301, n_positions=40, n_embd=48, n_layer=3, n_head=4,
                                       bos_token_id=0, eos_token_id=0)).eval()
    with torch.no_grad():
        for name, weights in model.transformer.named_parameters():
            weights.copy_(torch.randn_like(weights) * 0.15 + ("ln_" in name and "weight" in name))
    return model


def check_llmc(decode):
    import torch
    tokens = torch.arange(40) * 37 % 301
    with tempfile.TemporaryDirectory() as folder:
        source, target, npy = (os.path.join(folder, f"model.{end}") for end in ("bin", "gguf", "npy"))
        for version, (kind, _) in VERSIONS.items():
            model = random_model()
            write_llmc(source, version, model)
            decode_import(decode, source, target)
            # The file's rounding is no error of the import.
            model.to(getattr(torch, kind)).to(torch.float32)
            with torch.no_grad():
                expected = model(tokens[None]).logits[0].numpy()
            ids = ",".join(str(int(token)) for token in tokens)
            subprocess.run([decode, "score", target, "--tokens", ids, "--logits", npy, "-q"],
                           check=True, stdout=subprocess.DEVNULL)
            difference = np.abs(np.load(npy) - expected).max()
            print(f"version {version}, {kind}: logits up to {np.abs(expected).max():.3g} differ by at "
                  f"most {difference:.2g}")
            assert difference < TOLERANCE
            os.unlink(target)
            os.unlink(npy)


CHECKS = {"llama2c": (check_llama2c, 2), "text": (check_text, 4), "llmc": (check_llmc, 1)}


def main(args):
    check, n = CHECKS.get(args[0] if args else "", (None, 0))
    if not check or len(args) != n + 1:
        sys.exit(__doc__)
    check(*args[1:])


main(sys.argv[1:])
