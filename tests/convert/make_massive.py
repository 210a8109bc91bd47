#!/usr/bin/env python3
"""make_massive.py [FOLDER] - writes massive.gguf and read-only.gguf for tests/data, which have what real
checkpoints have and random ones lack.

massive is a llama whose residual stream is some two thousand times as long at the first position of a
text, on which later heads then park, as in SmolLM2. Element 0 of the stream is 1 for every token, and
element 1 is a sign, drawn for each token. A head of layer 0 writes the mean of the signs so far to
element 3: its magnitude is 1 at the first position and, but for runs of one sign, less at all others.
Two neurons of layer 0 find that and write to element 2, which the keys of later layers look for.

read-only is a llama with matrices of types that decode only reads: Q4_1, Q5_1, and Q4_K, whose blocks
are drawn (gguf does not write them). Needs NumPy and gguf.
"""

import pathlib
import sys

import numpy as np
from gguf import GGUFWriter, GGMLQuantizationType
from gguf.quants import quantize

sys.path.append(str(pathlib.Path(__file__).parent.parent / "model"))
from make_golden import add_keys, tensors  # noqa: E402

MASSIVE = dict(arch="llama", kinds=("rms", "before", "rope", "swiglu"), layers=3, d=64, heads=6,
               kv=[3, 3, 3], key=16, ff=32, ctx=256, vocab=257, split=True, tied=True, types={},
               rope=(16, 10000.0, None, None))
READ_ONLY = dict(arch="llama", kinds=("rms", "before", "rope", "swiglu"), layers=2, d=256, heads=6,
                 kv=[3, 3], key=16, ff=32, ctx=256, vocab=257, split=True, tied=True,
                 types=dict(attn_q="Q4_1", attn_k="Q5_1", attn_v="Q4_K", attn_output="Q4_1",
                            ffn_up="Q4_K", ffn_gate="Q4_1", ffn_down="Q5_1", token_embd="Q8_0"),
                 rope=(16, 10000.0, None, None))


def q4_k(rng, shape):
    """Draws rows of numbers from -7.5 to 7.5 times a scale of about 1 / sqrt(columns) / 4.6."""
    n = shape[0] * shape[1] // 256
    scale = np.float16(shape[1] ** -0.5 / 4.6 / 8 * rng.uniform(0.5, 1.5, (n, 1)))
    head = np.concatenate([scale, (scale * 7.5).astype(np.float16)], axis=1).view(np.uint8)
    scales = np.tile(np.uint8([8] * 8 + [0x88] * 4), (n, 1))  # 8 of 64 in every sub-block
    numbers = rng.integers(0, 256, (n, 128), dtype=np.uint8)
    return np.concatenate([head, scales, numbers], axis=1).reshape(shape[0], -1)


def plant(x, name, rng):
    """Sets the weights that find the first position, and those that look for it."""
    layer = int(name.split(".")[1]) if name.startswith("blk") else None
    role = name.split(".")[-1]
    if role == "token_embd":
        x[:, :4] = 0
        x *= 2 / np.linalg.norm(x, axis=1, keepdims=True)
        x[:, 0] = 1
        x[:, 1] = rng.choice([-1, 1], len(x))
    if layer == 0 and role in ("attn_q", "attn_k"):
        x[:16] = 0
    if layer == 0 and role == "attn_v":
        x[0] = 0
        x[0, 1] = 1
    if role in ("attn_output", "ffn_down"):
        x *= 3 if layer else 1
        x[:4] = 0
    if layer == 0 and role == "attn_output":
        x[3, 0] = 6
    if layer == 0 and role in ("ffn_gate", "ffn_up", "ffn_down"):
        for neuron, sign in enumerate((1, -1)):
            if role == "ffn_down":
                x[2, neuron] = 60
            else:
                x[neuron] = 0
                x[neuron, 0] = -0.9 * 60 if role == "ffn_gate" else 8
                if role == "ffn_gate":
                    x[neuron, 3] = sign * 10
    if layer and role == "attn_k":
        x[:, 2] = 0
        x[14::16, 2] = 1.5  # the pair that positions turn least
    if layer and role == "attn_q":
        x[14::16, 0] = 4
    if layer and role == "attn_v":
        x[:, 2] = 0


def write(path, c, seed):
    rng = np.random.default_rng(seed)
    w = GGUFWriter(path, c["arch"])
    add_keys(w, c)
    for name, shape, kind in tensors(c):
        role = name.split(".")[-1]
        type = GGMLQuantizationType[c["types"].get(role, "F32" if kind == "norm" else "F16")]
        if type == GGMLQuantizationType.Q4_K:
            w.add_tensor(name + ".weight", q4_k(rng, shape), raw_dtype=type)
            continue
        x = np.ones(shape) if kind == "norm" else rng.normal(0, 1, shape) * shape[-1] ** -0.5
        if c is MASSIVE:
            plant(x, name, rng)
        if role == "token_embd" and c is not MASSIVE:
            x *= 3
        w.add_tensor(name + ".weight", quantize(x.astype(np.float32), type), raw_dtype=type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data")
    write(folder / "massive.gguf", MASSIVE, 1)
    write(folder / "read-only.gguf", READ_ONLY, 2)


if __name__ == "__main__":
    main()
