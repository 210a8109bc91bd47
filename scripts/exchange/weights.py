"""Tensors of files, and by GGUF's names. What a file says of a tensor is compared with the config before any number of
it is read."""
import math
import os
import re
from typing import Callable, NamedTuple

import numpy as np

from .process import bad, say
from .shapes import DTYPES, T

READ_TYPES = {"F32": DTYPES[T.F32], "F16": DTYPES[T.F16], "BF16": DTYPES[T.BF16]}
TABLES = (".attn.bias", ".attention.bias", ".masked_bias", "rotary_emb.inv_freq")  # they follow from the shape


class Stored(NamedTuple):
    """A tensor of a file: its type by safetensors' name, its extents, and a function that reads it."""
    file: str
    dtype: str
    shape: tuple
    read: Callable[[], np.ndarray]


def of_state(source, s, state, is_tied):
    """A model's tensors by GGUF's names, from Stored ones by those of PyTorch; `source`, for messages, is the file that
    says which there are. A compiled or distributed model of PyTorch has its parameters behind _orig_mod. and module., a
    base model of transformers lacks its prefix, or the first part of it. Fails, with file and tensor, on one that is
    missing, twice there, or of another type or shape than the configuration says."""
    found, prefix = {}, s.family.prefix
    for name, stored in state.items():
        own = re.sub(r"^(module\.)+", "", name.replace("_orig_mod.", ""))
        for part in (prefix, prefix.partition(".")[2]):
            own = own.removeprefix(part)
        if found.setdefault(own, stored) is not stored:
            bad(stored.file, f"tensor {name}: expected one {own}, found two")
    names = {to: name for _, name, to, _ in s.tensors()}
    embedding, output = names["token_embd.weight"], names["output.weight"]
    if is_tied and output in found:
        found.setdefault(embedding, found[output])
    wanted = []
    for _, name, to, shape in s.tensors():
        if to == "output.weight" and is_tied and output not in found:
            continue
        expected = s.stored_shape(name, to, shape)
        says = f"tensor {name}: expected {', '.join(READ_TYPES)} {list(expected)}, as the configuration says, found"
        stored = found.pop(name, None)
        if not stored:
            bad(source, f"{says} no such tensor")
        if stored.dtype not in READ_TYPES or stored.shape != expected:
            bad(stored.file, f"{says} {stored.dtype} {list(stored.shape)}")
        wanted.append((name, to, stored))
    check_sizes(source, [stored for *_, stored in wanted])
    others = [name for name in found if not name.endswith(TABLES)]
    if changes := [name for name in others if ".lora_" in name]:
        say(f"{source}: an adapter's tensors, such as {changes[0]}, are left out: what it changes is to be merged first")
    if others := [name for name in others if name not in changes]:
        say(f"{source}: {len(others)} tensors, such as {others[0]}, are none of the model's: passed over")
    tensors = {to: s.turned(name, to, stored.read()) for name, to, stored in wanted}
    own = tensors.get("output.weight")
    if s.family.owns_output:
        tensors.setdefault("output.weight", tensors["token_embd.weight"])
    elif is_tied and own is not None and np.array_equal(own, tensors["token_embd.weight"]):
        del tensors["output.weight"]
    return tensors | ({} if s.factors is None else {"rope_freqs.weight": s.factors})


def check_sizes(source, stored):
    """Fails where files claim more numbers than they have bytes for, as tensors that share them do. An embedding is
    also the output, so that each may be there twice."""
    has = sum(os.path.getsize(file) for file in {one.file for one in stored})
    needs = sum(math.prod(one.shape) * READ_TYPES[one.dtype].itemsize for one in stored)
    if needs > 2 * has:
        bad(source, f"expected tensors of at most the {has} bytes that are there, each used twice, found {needs} bytes")
