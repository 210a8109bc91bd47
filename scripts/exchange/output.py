"""Writes a GGUF file of tensors and keys, which takes the place of the old one once decode has read it."""
import gguf
import numpy as np

from . import ids, program
from .files import make_file, replaced
from .process import bad, say
from .shapes import DTYPES, T

FILE_TYPES = {T.F32: 0, T.F16: 1, T.BF16: 32}  # general.file_type
KINDS = {dtype: kind for kind, dtype in DTYPES.items()}


def typed(path, name, array, wanted, force):
    """Returns a tensor in the type that it is written in: matrices in `wanted`, or, with None, in their own. Fails
    where F16 does not hold its numbers and, unless `force`, where some are not finite."""
    if not force and (n := array.size - int(np.isfinite(array).sum())):
        bad(path, f"tensor {name}: expected finite numbers, found {n} that are infinite or none (NaN), of {array.size}; "
                  "--force writes them all the same")
    is_matrix = array.ndim == 2 and name != "position_embd.weight"
    kind = (wanted or KINDS[array.dtype]) if is_matrix else T.F32
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(array, DTYPES[kind])
    if KINDS[array.dtype] != kind == T.F16 and not np.array_equal(np.isfinite(made), np.isfinite(array)):
        bad(path, f"tensor {name}: expected numbers that F16 holds, found others; --type bf16 has them")
    return kind, made


def write(path, out, arch, keys, tensors, wanted, vocabulary, force=False):
    """Writes the whole file. Nothing is replaced before decode, where it is installed, has read the new file and said
    how many odd texts get the ids of the vocabulary's library (None: there is no vocabulary)."""
    w = gguf.GGUFWriter(None, arch)
    add = {int: w.add_uint32, float: w.add_float32, str: w.add_string, bool: w.add_bool, list: w.add_array}
    file_type = FILE_TYPES[wanted or KINDS[tensors["token_embd.weight"].dtype]]
    for key, value in ({"general.file_type": file_type} | keys).items():
        add[type(value)](key, value)
    n_bytes = 0
    for name, array in tensors.items():
        kind, made = typed(path, name, array, wanted, force)
        w.add_tensor(name, made, raw_dtype=kind)
        n_bytes += made.nbytes
    with replaced(out, n_bytes, make_file) as made:
        w.write_header_to_file(made)
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        check(path, made, vocabulary)


def check(path, made, vocabulary):
    """Fails if decode does not read the file that was made of `path`."""
    if not program.find():
        say(f"{path}: what is made is not read again: found no decode beside the scripts or on PATH; make it")
        return
    if refusal := program.refusal(made):
        why, status = refusal
        bad(path, f"decode does not read what is made of it: {why}", status)
    if vocabulary:
        ids.compare(path, made, vocabulary.encode, vocabulary.odd_texts(), vocabulary.library)
