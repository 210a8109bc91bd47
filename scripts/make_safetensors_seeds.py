#!/usr/bin/env python3
"""Writes the seeds of the fuzz target tests/fuzz/fuzz_safetensors.c into its corpus, and the golden
file of tests/test_safetensors.c, which the library makes of tensors of all its types.

Needs safetensors 0.8 and torch. The library must take the seeds that are good and refuse those that
are bad, but for those that only ours refuses."""
import json
import os
import struct

import torch
from safetensors import SafetensorError, deserialize
from safetensors.torch import save

CORPUS = "tests/fuzz/corpus/safetensors/"
GOLDEN = "tests/data/safetensors/every-type.safetensors"

TYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "e5m2": torch.float8_e5m2,
    "e4m3": torch.float8_e4m3fn, "e8m0": torch.float8_e8m0fnu, "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz, "i16": torch.int16, "u16": torch.uint16,
    "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32, "u32": torch.uint32,
    "f32": torch.float32, "c64": torch.complex64, "f64": torch.float64, "i64": torch.int64,
    "u64": torch.uint64,
}


def golden():
    """Shapes of none to four dimensions, also empty ones; bytes that say where they are."""
    tensors = {}
    for i, (name, dtype) in enumerate(TYPES.items()):
        shapes = {name: [i % 4 + 1], "b." + name: [2, 3], "a." + name: []}
        if i % 5 == 0:
            shapes["é." + name] = [3, 0, 2]
            shapes["c." + name] = [1, 2, 1, 2]
        for key, shape in shapes.items():
            n = torch.empty(shape, dtype=dtype).nbytes
            data = torch.arange(i, i + n) % (2 if name == "bool" else 251)
            flat = data.to(torch.uint8) if n else torch.empty(0, dtype=torch.uint8)
            tensors[key] = flat.view(dtype).reshape(shape)
    return save(tensors, {"format": "pt"})


def file(header, data=b""):
    if not isinstance(header, bytes):
        header = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(header)) + header + data


def f32(begin, end, *shape):
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


good = {
    "every-type": golden(),
    "no-tensors": file("{}"),
    "metadata": file({"__metadata__": {"format": "pt", "": "\n"}, "a": f32(0, 8, 2)}, bytes(8)),
    "spaces": file(' { "a" : {"data_offsets":[0,4],"shape":[ ],"dtype":"F32"} }\n', bytes(4)),
    "any-order": file({"b": f32(8, 16, 2), "c": f32(0, 4, 1), "a": f32(4, 8)}, bytes(range(16))),
    "empty": file({"b": f32(0, 0, 0, 1 << 60), "c": f32(0, 4, 1), "a": f32(4, 4, 5, 0)}, bytes(4)),
    "half-bytes": file('{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}}', bytes(3)),
    "shards": file({f"h.{i}.{j}": f32(16 * i + 8 * j, 16 * i + 8 * j + 8, 2, 1)
                    for i in range(4) for j in range(2)}, bytes(range(64))),
}
ours = {
    "same-name": file('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                      '"\\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "dimensions": file({"a": f32(0, 4, *[1] * 9)}, bytes(4)),
}
bad = {
    "length": struct.pack("<Q", 1 << 60) + b"{}",
    "short": b"\2\0\0\0\0\0\0",
    "array": file("[]"),
    "hole": file({"a": f32(0, 4, 1), "b": f32(8, 12, 1)}, bytes(12)),
    "overlap": file({"a": f32(0, 8, 2), "b": f32(4, 12, 2)}, bytes(12)),
    "trailing": file({"a": f32(0, 4, 1)}, bytes(5)),
    "cut": file({"a": f32(0, 8, 2)}, bytes(7)),
    "backwards": file({"a": f32(4, 0, 1)}, bytes(4)),
    "overflow": file({"a": f32(0, 0, 1 << 40, 1 << 40, 0)}),
    "half-byte": file('{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}', bytes(1)),
    "fraction": file({"a": f32(0, 4, 1.0)}, bytes(4)),
    "negative": file({"a": f32(0, 4, -1, -1)}, bytes(4)),
    "type": file('{"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
    "missing": file('{"a":{"dtype":"F32","data_offsets":[0,4]}}', bytes(4)),
    "three-offsets": file('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}}', bytes(1)),
    "metadata-number": file({"__metadata__": {"step": 3}}),
    "utf8": file(b'{"\xff":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
}


def is_taken(data):
    try:
        deserialize(data)
        return True
    except SafetensorError:
        return False


def main():
    for path in CORPUS, os.path.dirname(GOLDEN):
        os.makedirs(path, exist_ok=True)
    for seeds, expected in (good, True), (ours, True), (bad, False):
        for name, data in seeds.items():
            assert is_taken(data) is expected, name
            with open(CORPUS + name, "wb") as out:
                out.write(data)
    with open(GOLDEN, "wb") as out:
        out.write(good["every-type"])


if __name__ == "__main__":
    main()
