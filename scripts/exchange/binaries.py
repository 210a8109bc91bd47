"""Files of llama2.c and llm.c: a header of integers, then the numbers in the order of the version."""
import math

import numpy as np

from .files import regular
from .process import bad
from .shapes import DTYPES, T, config_of, shape_of_config

LLAMA2C, LLMC = 0x616B3432, 20240326  # their magic numbers; version 0 of llama2.c has none
QKVO = "attn_q attn_k attn_v attn_output"
ORDERS = {  # version 0 of llama2.c has tables of cosines that nothing reads; versions 1 and 2; llm.c
    0: f"token_embd attn_norm {QKVO} ffn_norm ffn_gate ffn_down ffn_up output_norm tables",
    1: f"attn_norm ffn_norm output_norm token_embd {QKVO} ffn_gate ffn_down ffn_up",
    LLMC: "token_embd position_embd attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down output_norm"}
HEADER = 44  # bytes that say the sizes


def read(path, ctx):
    """Returns a Shape, and tensors by GGUF's names. Fails unless the header is of a known version, and the file has as
    many bytes as its sizes imply."""
    raw, rows, group, tensors = np.fromfile(regular(path), np.uint8, HEADER), 0, 1, {}
    head = np.frombuffer(raw.tobytes().ljust(HEADER, b"\0"), "<i4").tolist()
    if head[0] == LLMC:
        version, n_ctx, vocab, layers, heads, width, rows, at = *head[1:8], 1024
        ff, kv_heads, versions, owns_output = 4 * width, heads, (1, 3, 5), False
    else:
        version, at, versions = (head[1], 256, (1, 2)) if head[0] == LLAMA2C else (0, 28, (0,))
        width, ff, layers, heads, kv_heads, vocab, n_ctx = head[2:9] if version else head[:7]
        owns_output, vocab = not raw[36:37].any() if version else vocab < 0, abs(vocab)
        group = int.from_bytes(raw[37:41].tobytes(), "little") if version == 2 else 1
    if version not in versions or not all(0 < n < 1 << 24 for n in (width, ff, heads, kv_heads, group)):
        bad(path, "expected a folder of transformers, or a .bin of llama2.c (version 0, 1 or 2) or of "
                  f"llm.c's GPT-2 (1, 3 or 5), found version {version} and {head}")
    sizes = {"model_type": "gpt2", "vocab_size": vocab, "n_positions": n_ctx, "n_embd": width, "n_layer": layers,
             "n_head": heads}
    if head[0] != LLMC:
        sizes = {"model_type": "llama", "vocab_size": vocab, "max_position_embeddings": n_ctx, "hidden_size": width,
                 "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": ff,
                 "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-5}
    s = shape_of_config(path, config_of(path, sizes), ctx)
    shapes = {to: shape for *_, to, shape in s.tensors()} | {
        "tables.weight": (n_ctx, s.head_dim), "token_embd.weight": (max(rows, vocab), width)}
    order = ORDERS[min(version, 1) if s.is_llama else LLMC].split() + ["output"] * owns_output
    names = [f"{layer}{name}.{end}" for name in order for end in ("weight", "bias")
             for layer in ("", *(f"blk.{i}." for i in range(layers)))]
    raw = np.memmap(path, np.uint8, "r")
    for name in (name for name in names if name in shapes):
        n, is_quantized, arrays = math.prod(shapes[name]), version == 2 and len(shapes[name]) == 2, []
        if is_quantized and n % group:
            bad(path, f"tensor {name}: expected groups that divide its {n} numbers, found groups of {group}")
        dtype = "i1" if is_quantized else DTYPES[T.BF16 if version == 5 else T.F32]
        # In version 2 a factor for each group of numbers stands behind a matrix.
        parts = [(dtype, n), ("<f4", n // group)][: 1 + is_quantized]
        if at + sum(count * np.dtype(dtype).itemsize for dtype, count in parts) > len(raw):
            bad(path, f"tensor {name}: expected {parts[0][1]} numbers at byte {at}, as version {version} and "
                      f"{s.keys} say, found {len(raw)} bytes in all")
        for dtype, count in parts:
            size = count * np.dtype(dtype).itemsize
            arrays.append(raw[at : at + size].view(dtype))
            at += size
        array = arrays[0].reshape(-1, group) * arrays[1][:, None] if is_quantized else arrays[0]
        tensors[name] = array.reshape(shapes[name])
    if at != len(raw):
        bad(path, f"expected {at} bytes, as version {version} and {s.keys} say, found {len(raw)}")
    tensors.pop("tables.weight", None)
    tensors["token_embd.weight"] = tensors["token_embd.weight"][:vocab]
    return s, tensors
