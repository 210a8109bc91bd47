"""A checkpoint of another program: its shape, its tensors, the ids that end a text, and the place of its vocabulary."""
import os
from dataclasses import dataclass

from . import binaries, stores, torchfile, weights
from .files import bytes_of, read_json, regular
from .process import BAD_USAGE, bad, limit_memory
from .shapes import Shape, config_of, shape_of_config

# Bytes that are taken for each byte of the files: a matrix of int8 is four as F32, which are there twice while one
# of them is changed.
MEMORY_FOR_A_BYTE = 10
NANOGPT_SIZES = {"n_embd": "n_embd", "n_layer": "n_layer", "n_head": "n_head", "vocab_size": "vocab_size",
                 "n_positions": "block_size"}  # GPT-2's keys, and nanoGPT's


@dataclass
class Checkpoint:
    shape: Shape
    tensors: dict  # by GGUF's names
    ends: list  # ids that end a text, as far as the configuration says
    beside: str  # what may have the vocabulary


def read(path, ctx):
    """Opens a checkpoint by its first bytes, or a folder by its config.json. Fails if it is none, and names what is
    missing or does not fit; takes no more memory than the sizes of its files justify."""
    limit_memory(MEMORY_FOR_A_BYTE * bytes_of(path))
    if os.path.isdir(path):
        said = read_json(path, "config.json")
        if "block_size" in said and "model_type" not in said:
            return of_nanogpt(os.path.join(path, "config.json"), said, *stores.of_folder(path), path, ctx)
        return of_transformers(path, said, ctx)
    with open(regular(path, "a checkpoint"), "rb") as file:
        first = file.read(9)
    beside = os.path.dirname(path)
    if first[:4] == b"GGUF":
        bad(path, "is a GGUF file already; decode convert --type changes its types", BAD_USAGE)
    if first[8:] == b"{":
        bad(path, "expected a checkpoint, found its weights alone (safetensors): name their folder")
    if first[:4] == b"PK\3\4":
        args, state = torchfile.of_nanogpt(path)
        return of_nanogpt(path, args, path, state, os.path.join(beside, "meta.pkl"), ctx)
    # The texts that llama2.c's models learn from stand between BOS, so its program ends a text at BOS.
    s, tensors = binaries.read(path, ctx)
    return Checkpoint(s, tensors, [1] * s.is_llama, os.path.join(beside, "tokenizer.model"))


def of_nanogpt(path, args, source, state, beside, ctx):
    """Returns the Shape of nanoGPT's model, which is GPT-2 without transposed matrices, with GELU's exact form and, if
    asked, without biases."""
    for own in NANOGPT_SIZES.values():
        if own not in args:
            bad(path, f"{own}: expected a size of nanoGPT's, found none")
    s = shape_of_config(path, config_of(path, {"model_type": "gpt2", "activation_function": "gelu"} | {
        name: args[own] for name, own in NANOGPT_SIZES.items()}), ctx)
    s.differs, s.biases = set(), s.biases if args.get("bias", True) else []
    return Checkpoint(s, weights.of_state(source, s, state, True), [], beside)


def of_transformers(path, said, ctx):
    place, generation = os.path.join(path, "config.json"), os.path.join(path, "generation_config.json")
    config = config_of(place, said)
    s, ends = shape_of_config(place, config, ctx), []
    said = read_json(generation) if os.path.lexists(generation) else {}
    for found in said.get("eos_token_id"), config.eos_token_id:
        ends += found if isinstance(found, list) else [found]
    source, state = stores.of_folder(path)
    return Checkpoint(s, weights.of_state(source, s, state, config.tie_word_embeddings), ends, path)
