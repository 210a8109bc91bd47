"""The checks of import.py and export.py share this: runs of both scripts in this process, folders of transformers with
other keys and tensors, and decode's results."""
import hashlib
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types

import numpy as np

sys.path.insert(0, "scripts")
from exchange import process, shapes  # noqa: E402
from exchange.ids import odd_texts  # noqa: E402,F401
imports, exports = importlib.import_module("import"), importlib.import_module("export")
from safetensors.numpy import load_file, save_file  # noqa: E402
from families_tensors import numbers  # noqa: E402

FOLDERS = tempfile.TemporaryDirectory()
DECODE, HF, CASES = sys.argv[1], shutil.copytree("tests/data/hf", FOLDERS.name + "/hf") + "/", "tests/data/hf/cases/"
GOLDEN = "tests/data/golden/llama"
# The digest of the model.safetensors that transformers wrote of GOLDEN's tensors; it is made of them again here.
LLAMA_SHA256 = "76b6cf0db804e8a410089b0495dd0571c3bf75f841a98fec81edbdd02ccea0c4"
LLAMA_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
LIMIT = 1e-5  # of a logit
counts = {True: 0, False: 0}


def check(what, holds, found=""):
    counts[bool(holds)] += 1
    if not holds:
        print(f"FAILED {what}: {found}")


def script(module, status=0, says=(), **args):
    """Runs a script's main; checks its status, that it prints these parts, and that its lines are printable."""
    said = io.StringIO()
    found = process.run(lambda: module.main(types.SimpleNamespace(**args)), args.get("IN") or args["MODEL"], said)
    said = said.getvalue()
    check(f"{args}: exit status {status}", found == status, f"{found}: {said}")
    check(f"{args}: printable lines", all(line.isprintable() for line in said.split("\n")), said)
    for part in [says] if isinstance(says, str) else says:
        check(f"{args}: says {part!r}", part in said, said)
    return said


def import_(path, out, status=0, says=(), **options):
    return script(imports, status, says, **{"IN": path, "OUT": out, "type": None, "ctx": None, "tokenizer": None, "force": False,
                                            **options})


def export(model, out, status=0, says=(), expand=False):
    shutil.rmtree(out, ignore_errors=True)
    return script(exports, status, says, MODEL=model, DIR=out, expand=expand)


def decode(*args):
    done = subprocess.run([DECODE, *args], capture_output=True, text=True)
    check(f"decode {' '.join(args)[:200]}", done.returncode == 0, done.stderr)
    return done.stdout


def logits(model, tokens, path="logits.npy"):
    path = os.path.join(os.path.dirname(model), path)
    decode("score", model, "--tokens", ",".join(map(str, tokens)), "--logits", path, "-q")
    return np.load(path)


def close(what, found, expected):
    """Compares the last rows of logits; each row is of all tokens before it."""
    found = found[-len(expected):]
    same = found.shape == expected.shape
    check(what, same and np.abs(found - expected).max() <= LIMIT * max(1, np.abs(expected).max()), same and
          np.abs(found - expected).max())


def ids(model, text):
    return [int(i) for i in decode("tokenize", model, "-p", text).split()]


def keys(path):
    reader = shapes.gguf.GGUFReader(path)
    return {f.name: f.contents() for f in reader.fields.values()}, {t.name: t.data for t in reader.tensors}


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def folder(path, source=None, tensors=None, generation=None, **config):
    """A copy of a folder without its vocabulary, with other tensors and keys."""
    os.makedirs(path)
    said = (read_json(source, "config.json") if source else {}) | config
    for name, value in {"config.json": said, "generation_config.json": generation}.items():
        if value is not None:
            with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                json.dump(value, file)
    save_file(load_file(os.path.join(source, "model.safetensors")) if tensors is None else tensors,
              os.path.join(path, "model.safetensors"))
    return path


def save_as_transformers(path, tensors, sha256):
    """model.safetensors, which has the bytes of the file that transformers wrote of these tensors."""
    save_file(tensors, path + "/model.safetensors", metadata={"format": "pt"})
    with open(path + "/model.safetensors", "rb") as file:
        check(f"{path}: the file of transformers", hashlib.sha256(file.read()).hexdigest() == sha256)


def make_llama(path):
    """The tensors and logits of tests/data/hf/llama, which are those of GOLDEN under other names: rows of
    queries and keys that are turned together lie side by side there, half a head apart here."""
    heads, tensors = {"attn_q": 8, "attn_k": 2}, {}
    for name, x in keys(GOLDEN + ".gguf")[1].items():
        *block, part, end = name.split(".")
        if part in heads:
            x = x.reshape(heads[part], -1, 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        layer = f"model.layers.{block[1]}." if block else ""
        tensors[f"{layer}{LLAMA_NAMES[part]}.{end}"] = np.ascontiguousarray(x)
    save_as_transformers(path, tensors, LLAMA_SHA256)
    shutil.copy(GOLDEN + ".npy", path + "/logits.npy")


def make_bigcode(path):
    """The tensors of tests/data/hf/gpt-bigcode, which are drawn from a seed."""
    expect = read_json(path, "expect.json")
    save_as_transformers(path, numbers(expect["tensors"], False), expect["sha256"])


make_llama(HF + "llama")
make_bigcode(HF + "gpt-bigcode")
for other, same in (("gpt-bigcode", "gpt2"), ("llama-tied-bf16", "llama")):
    shutil.copy(f"{HF}{same}/tokenizer.json", HF + other)
