"""PyTorch's files, read without PyTorch: a zip archive of a pickle, which names tensors, and of the numbers of each
storage. Nothing that a pickle names is run but what makes tables and describes tensors."""
import collections
import io
import math
import pickle
import pickletools
import struct
import zipfile
from typing import NamedTuple

import ml_dtypes
import numpy as np

from .files import regular
from .process import bad, shown
from .weights import READ_TYPES, Stored

STORAGES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "BFloat16Storage": ml_dtypes.bfloat16,
            "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "i1", "ByteStorage": "u1",
            "BoolStorage": "?"}
FLOATS = {dtype: name for name, dtype in READ_TYPES.items()} | {np.dtype("<f8"): "F32"}  # all are read as F32
ZIP_HEADER = struct.Struct("<26xHH")  # the lengths of the name and of what is between it and the bytes


class Plain(pickle.Unpickler):
    """Numbers, strings, and what holds them. A pickle that names a program is not run."""
    names = {}

    @classmethod
    def loaded(cls, path, data):
        """What the pickle of a file holds. Fails on code, on what is cut short, and where what is kept is numbered
        beyond the pickle's own length: C's reader makes a table of as many places."""
        try:
            for opcode, value, _ in pickletools.genops(data):
                if "PUT" in opcode.name and value is not None and int(value) > len(data):
                    raise pickle.UnpicklingError(f"place {value} in {len(data)} bytes")
            return cls(io.BytesIO(data)).load()
        except MemoryError:
            raise
        except Exception as error:
            bad(path, f"expected a pickle of numbers, strings and what holds them, found {error}")

    def find_class(self, module, name):
        if found := self.names.get((module, name)):
            return found
        raise pickle.UnpicklingError(f"{module}.{name}")


class Storage(NamedTuple):
    """Numbers of one type in the archive."""
    key: str
    dtype: np.dtype
    n: int


class View(NamedTuple):
    """A tensor: which numbers of a storage it has."""
    storage: Storage
    offset: int
    shape: tuple
    strides: tuple


def _view(storage, offset, shape, strides, *_):
    return View(storage, offset, shape, strides)


class Checkpoint(Plain):
    names = {("torch._utils", "_rebuild_tensor_v2"): _view,
             ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
             ("collections", "OrderedDict"): collections.OrderedDict,
             **{("torch", name): np.dtype(dtype) for name, dtype in STORAGES.items()}}

    def persistent_load(self, pid):
        kind, dtype, key, _, n = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or not isinstance(key, str):
            raise pickle.UnpicklingError("a storage of something else")
        return Storage(key, dtype, n)


class Archive:
    """The records of a file. Fails unless they lie in it as they are, so that none is larger than the file."""

    def __init__(self, path):
        self.path, self.raw = path, np.memmap(regular(path), np.uint8, "r")
        try:
            with zipfile.ZipFile(path) as file:
                infos = {info.filename.partition("/")[2]: info for info in file.infolist()}
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            bad(path, f"expected a file of PyTorch, found one that is cut short or another: {error}")
        self.places = {name: self.place(info) for name, info in infos.items()}

    def place(self, info):
        """Where the bytes of a record begin and end."""
        at = info.header_offset
        if not 0 <= at <= len(self.raw) - ZIP_HEADER.size or info.compress_type != zipfile.ZIP_STORED:
            bad(self.path, f"record {info.filename}: expected one as PyTorch stores it, found it compressed or outside")
        at += ZIP_HEADER.size + sum(ZIP_HEADER.unpack(self.raw[at : at + ZIP_HEADER.size].tobytes()))
        if at + info.file_size > len(self.raw):
            bad(self.path, f"record {info.filename}: expected it to end within {len(self.raw)} bytes, found "
                           f"{at + info.file_size}")
        return at, at + info.file_size

    def bytes(self, name):
        if name not in self.places:
            bad(self.path, f"expected a file of PyTorch, found no record {name}")
        start, end = self.places[name]
        return self.raw[start:end]

    def stored(self, name, view):
        """A tensor, if it is one and all its numbers are in the file, each once."""
        storage, offset, shape, strides = view
        says = f"tensor {name}: expected numbers of its storage, each once, found"
        sizes = (*shape, *strides, offset, storage.n) if isinstance(storage, Storage) and isinstance(
            shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) else (None,)
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in sizes):
            bad(self.path, f"{says} none")
        numbers = self.bytes(f"data/{storage.key}")
        has, n = len(numbers) // storage.dtype.itemsize, math.prod(shape)
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides))
        if n > has or (n and last >= has):
            bad(self.path, f"{says} {n} up to place {last} of {has}")

        def read():
            held = numbers[: has * storage.dtype.itemsize].view(storage.dtype)[offset:]
            steps = [stride * storage.dtype.itemsize for stride in strides]
            return np.lib.stride_tricks.as_strided(held, shape, steps, writeable=False).astype(READ_TYPES["F32"])

        return Stored(self.path, FLOATS.get(storage.dtype, storage.dtype.name), shape, read)


def read(path):
    """nanoGPT's model_args, and its tensors as F32 by name. Fails on files of another program, or that name code."""
    archive = Archive(path)
    found = Checkpoint.loaded(path, archive.bytes("data.pkl").tobytes())
    args, state = (found.get(key) if isinstance(found, dict) else None for key in ("model_args", "model"))
    if not isinstance(args, dict) or not isinstance(state, dict):
        names = sorted(key for key in found if isinstance(key, str))[:5] if isinstance(found, dict) else shown(found)
        bad(path, "expected nanoGPT's model and model_args (of transformers, the folder that save_pretrained "
                  f"makes), found {names}")
    if archive.places.get("byteorder") and archive.bytes("byteorder").tobytes() not in (b"little", b""):
        bad(path, "expected numbers in the order of little-endian machines, found another")
    return args, {name: archive.stored(name, view) for name, view in state.items()
                  if isinstance(name, str) and isinstance(view, View)}


