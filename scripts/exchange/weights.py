"""Tensors as files have them, and by GGUF's names. What a file says of one is compared with what the config says
before a number of it is read."""
import math
import os
import re
from typing import Callable, NamedTuple

import numpy as np

from .files import read_json, regular
from .process import bad, say, shown
from .shapes import DTYPES, T

READ_TYPES = {"F32": DTYPES[T.F32], "F16": DTYPES[T.F16], "BF16": DTYPES[T.BF16]}
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


class Stored(NamedTuple):
    """A tensor of a file: the type by the name that safetensors has for it, the extents, and what reads it."""
    file: str
    dtype: str
    shape: tuple
    read: Callable[[], np.ndarray]


def of_folder(path):
    """The file that says which tensors a folder has, and these by name, as transformers takes them: one file, or all
    that is in the shards that the index names. Fails where one is no safetensors file, or not in the folder."""
    from safetensors import safe_open
    one, index, found = os.path.join(path, WEIGHTS), os.path.join(path, INDEX), {}
    has_index = os.path.exists(index) and not os.path.exists(one)
    for file in shards(index) if has_index else [WEIGHTS]:
        file = regular(os.path.join(path, file), "a safetensors file")
        try:
            stored = safe_open(file, "np")
            for name in stored.keys():
                tensor = stored.get_slice(name)
                found[name] = Stored(file, tensor.get_dtype(), tuple(tensor.get_shape()),
                                     lambda stored=stored, name=name: stored.get_tensor(name))
        except Exception as error:  # SafetensorError, and what Rust raises of names that are no text
            bad(file, f"expected a safetensors file of {os.path.getsize(file)} bytes, found one that is cut short or "
                      f"another: {error}")
    return index if has_index else one, found


def shards(index):
    """The files that an index names. Fails unless each is a name in its folder."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table:
        bad(index, f"weight_map: expected a table of tensors and files, found {shown(table)}")
    for tensor, file in table.items():
        if not isinstance(file, str) or file in ("", ".", "..") or os.path.basename(file) != file or "\0" in file:
            bad(index, f"weight_map: tensor {tensor}: expected the name of a file in this folder, found {shown(file)}")
    return sorted(set(table.values()))


def of_state(source, s, state, is_tied):
    """A model's tensors by GGUF's names, from Stored ones by those of PyTorch; `source`, for messages, is the file that
    says which there are. A compiled or distributed model of PyTorch has its parameters behind _orig_mod. and module., a
    base model of transformers lacks its prefix. Fails, with file and tensor, on one that is missing, twice there, or
    of another type or shape than the configuration says."""
    found, prefix = {}, "model." if s.is_llama else "transformer."
    for name, stored in state.items():
        own = re.sub(r"^(module\.)+", "", name.replace("_orig_mod.", "")).removeprefix(prefix)
        if found.setdefault(own, stored) is not stored:
            bad(stored.file, f"tensor {name}: expected one {own}, found two")
    embedding, output = "embed_tokens.weight" if s.is_llama else "wte.weight", "lm_head.weight"
    if is_tied and output in found:
        found.setdefault(embedding, found[output])
    wanted = []
    for _, name, to, shape in s.tensors():
        if name == output and is_tied and output not in found:
            continue
        expected = shape[::-1] if s.layout == "conv1d" and name.startswith("h.") else shape
        says = f"tensor {name}: expected {', '.join(READ_TYPES)} {list(expected)}, as the configuration says, found"
        stored = found.pop(name, None)
        if not stored:
            bad(source, f"{says} no such tensor")
        if stored.dtype not in READ_TYPES or stored.shape != expected:
            bad(stored.file, f"{says} {stored.dtype} {list(stored.shape)}")
        wanted.append((name, to, stored))
    check_sizes(source, [stored for *_, stored in wanted])
    tables = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")  # they follow from the shape
    if others := [name for name in found if not name.endswith(tables)]:
        say(f"{source}: {len(others)} tensors, such as {others[0]}, are none of the model's: passed over")
    tensors = {to: s.turned(name, stored.read()) for name, to, stored in wanted}
    own = tensors.get("output.weight") if is_tied else None
    if own is not None and np.array_equal(own, tensors["token_embd.weight"]):
        del tensors["output.weight"]
    return tensors | ({} if s.factors is None else {"rope_freqs.weight": s.factors})


def check_sizes(source, stored):
    """Fails where files say more numbers than they have bytes for, as tensors that share them do. An embedding is
    the output too, so that each may be there twice."""
    has = sum(os.path.getsize(file) for file in {one.file for one in stored})
    needs = sum(math.prod(one.shape) * READ_TYPES[one.dtype].itemsize for one in stored)
    if needs > 2 * has:
        bad(source, f"expected tensors of at most the {has} bytes that are there, each used twice, found {needs} bytes")
