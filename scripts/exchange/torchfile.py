"""PyTorch's files, read without PyTorch and without Python's own reader of pickles: a zip archive of a pickle, which
names tensors, and of the numbers of each storage. A pickle is a program for a small machine. The machine here makes
numbers, texts, lists, tuples and tables, and descriptions of tensors; it imports nothing and calls nothing, and a
pickle with an instruction for more is refused before its first one is done."""
import math
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
NAMES = {("collections", "OrderedDict"), ("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_parameter"),
         *(("torch", name) for name in STORAGES)}
FLOATS = {dtype: name for name, dtype in READ_TYPES.items()} | {np.dtype("<f8"): "F32"}  # read as F32
ZIP_HEADER = struct.Struct("<26xHH")  # the lengths of the name and of what is between it and the bytes


# --- pickles ---------------------------------------------------------------------------------------

class Name(NamedTuple):
    """A name of a module in a pickle. It stands for itself."""
    module: str
    name: str


class Storage(NamedTuple):
    """Numbers of one type in the archive."""
    key: str
    kind: str  # one of STORAGES
    n: int


class View(NamedTuple):
    """A tensor, as some numbers of a storage."""
    storage: Storage
    offset: int
    shape: tuple
    strides: tuple


class Refused(Exception):
    """Raised on what the machine does not do."""


# Instructions with a value of their own, and those for values that have a name.
VALUES = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
          "SHORT_BINUNICODE", "BINUNICODE8"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
PUTS, GETS = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
NEEDED = {*VALUES, *CONSTANTS, *EMPTY, *TUPLES, *PUTS, *GETS, "PROTO", "FRAME", "MARK", "TUPLE", "LIST", "DICT",
          "APPEND", "APPENDS", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID", "STOP"}


class Machine:
    """Returns the value of a pickle. A mark on the stack is the stack beneath it."""

    def __init__(self):
        self.stack, self.beneath, self.kept = [], [], {}

    def run(self, data):
        for opcode, _, _ in pickletools.genops(data):
            if opcode.name not in NEEDED:
                raise Refused(f"the instruction {opcode.name}")
        for opcode, value, _ in pickletools.genops(data):
            self.step(opcode.name, value)
        return self.stack.pop()

    def since_mark(self):
        found, self.stack = self.stack, self.beneath.pop()
        return found

    def step(self, name, value):
        stack = self.stack
        if name in VALUES:
            stack.append(value)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in EMPTY:
            stack.append(EMPTY[name]())
        elif name in TUPLES:
            stack[-TUPLES[name]:] = [tuple(stack[-TUPLES[name]:])]
        elif name in PUTS:
            self.kept[len(self.kept) if value is None else value] = stack[-1]
        elif name in GETS:
            stack.append(self.kept[value])
        elif name == "MARK":
            self.beneath.append(stack)
            self.stack = []
        elif name in ("TUPLE", "LIST", "DICT"):
            items = self.since_mark()
            self.stack.append(self.table({}, items) if name == "DICT" else items if name == "LIST" else tuple(items))
        elif name in ("APPEND", "APPENDS"):
            items = self.since_mark() if name == "APPENDS" else [stack.pop()]
            self.top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self.since_mark() if name == "SETITEMS" else [stack.pop() for _ in range(2)][::-1]
            self.table(self.top(dict), items)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            parts = value.split(" ", 1) if name == "GLOBAL" else (stack.pop(-2), stack.pop())
            if tuple(parts) not in NAMES:
                raise Refused(".".join(map(str, parts)))
            stack.append(Name(*parts))
        elif name == "REDUCE":
            args = stack.pop()
            stack.append(self.made(stack.pop(), args))
        elif name == "BUILD":  # what a table of tensors says of its modules' versions
            stack.pop()
            self.top(dict)
        elif name == "BINPERSID":
            stack.append(self.storage(stack.pop()))

    def top(self, kind):
        if type(self.stack[-1]) is not kind:
            raise Refused(f"{shown(self.stack[-1])} where a {kind.__name__} is changed")
        return self.stack[-1]

    @staticmethod
    def table(found, items):
        for key, value in zip(items[::2], items[1::2], strict=True):
            if key is not None and type(key) not in (str, int, float, bool):
                raise Refused(f"{shown(key)} as a key")
            found[key] = value
        return found

    @staticmethod
    def made(name, args):
        called = name.name if isinstance(name, Name) and type(args) is tuple else None
        if called == "OrderedDict" and not args:
            return {}
        if called == "_rebuild_tensor_v2" and len(args) >= 4:
            return View(*args[:4])
        if called == "_rebuild_parameter" and args:
            return args[0]
        raise Refused(f"{called or shown(name)} called with something else")

    @staticmethod
    def storage(said):
        if type(said) is not tuple or len(said) != 5 or said[0] != "storage" or type(said[2]) is not str or not (
                isinstance(said[1], Name) and said[1].name in STORAGES):
            raise Refused("a storage of something else")
        return Storage(said[2], said[1].name, said[4])


def loaded(path, data):
    """Returns the value of a file's pickle. Fails on one that is cut short, and on instructions that nothing here
    needs."""
    try:
        return Machine().run(data)
    except MemoryError:
        raise
    except Exception as error:
        bad(path, f"expected a pickle of numbers, strings and what holds them, found {error or type(error).__name__}")


# --- archives --------------------------------------------------------------------------------------

class Archive:
    """Returns the records of a file. Fails unless they lie in it uncompressed, so that none is larger than the file."""

    def __init__(self, path):
        self.path, self.raw = path, np.memmap(regular(path), np.uint8, "r")
        try:
            with zipfile.ZipFile(path) as file:
                infos = {info.filename.partition("/")[2]: info for info in file.infolist()}
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            bad(path, f"expected a file of PyTorch, found one that is cut short or another: {error}")
        self.places = {name: self.place(info) for name, info in infos.items()}

    def place(self, info):
        """Returns where the bytes of a record begin and end."""
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
        """Returns a tensor. Fails unless it is one, and all its numbers are in the file, each once."""
        storage, offset, shape, strides = view
        dtype = np.dtype(STORAGES[storage.kind]) if isinstance(storage, Storage) else None
        says = f"tensor {name}: expected numbers of its storage, each once, found"
        sizes = (*shape, *strides, offset, storage.n) if isinstance(storage, Storage) and isinstance(
            shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) else (None,)
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in sizes):
            bad(self.path, f"{says} none")
        numbers = self.bytes(f"data/{storage.key}")
        has, n = len(numbers) // dtype.itemsize, math.prod(shape)
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides))
        if n > has or (n and last >= has):
            bad(self.path, f"{says} {n} up to place {last} of {has}")

        def read():
            held = numbers[: has * dtype.itemsize].view(dtype)[offset:]
            steps = [stride * dtype.itemsize for stride in strides]
            found = np.lib.stride_tricks.as_strided(held, shape, steps, writeable=False)
            return found.astype(READ_TYPES[FLOATS[dtype]])

        return Stored(self.path, FLOATS.get(dtype, dtype.name), shape, read)

    def state(self, found):
        """Returns the tensors of a table by name."""
        if self.places.get("byteorder") and self.bytes("byteorder").tobytes() not in (b"little", b""):
            bad(self.path, "expected numbers in the order of little-endian machines, found another")
        return {name: self.stored(name, view) for name, view in found.items()
                if isinstance(name, str) and isinstance(view, View)}


def of_weights(path):
    """Returns the tensors of a pytorch_model.bin by name, in their own types."""
    with open(regular(path), "rb") as file:
        if file.read(2) == b"\x80\x02":
            bad(path, "expected a zip archive as PyTorch writes since 1.6, found its older form; torch.load it there and "
                      "torch.save it again")
    archive = Archive(path)
    found = loaded(path, archive.bytes("data.pkl").tobytes())
    if not isinstance(found, dict):
        bad(path, f"expected a table of tensors, found {shown(found)}")
    return archive.state(found)


def of_nanogpt(path):
    """Returns nanoGPT's model_args, and its tensors by name. Fails on files of another program."""
    archive = Archive(path)
    found = loaded(path, archive.bytes("data.pkl").tobytes())
    args, state = (found.get(key) if isinstance(found, dict) else None for key in ("model_args", "model"))
    if not isinstance(args, dict) or not isinstance(state, dict):
        names = sorted(key for key in found if isinstance(key, str))[:5] if isinstance(found, dict) else shown(found)
        bad(path, "expected nanoGPT's model and model_args (of transformers, the folder that save_pretrained "
                  f"makes), found {names}")
    return args, archive.state(state)
