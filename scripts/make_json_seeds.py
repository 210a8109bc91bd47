#!/usr/bin/env python3
"""Writes the seeds of the fuzz target tests/fuzz/fuzz_json.c into its corpus. Python's own reader,
made as strict as ours, must take those that are good and refuse those that are bad."""
import json

FOLDER = "tests/fuzz/corpus/json/"

good = {
    "prompts": '{"id": "a1", "prompt": "Once\\nupon \\u00e9", "n": 20, "seed": 18446744073709551615, '
               '"stop": ["\\n\\n", "."]}',
    "config": '{"architectures": ["GPT2LMHeadModel"], "layer_norm_epsilon": 1e-05, "n_ctx": 1024, '
              '"n_inner": null, "tie": true, "use": false, "initializer_range": 0.02}',
    "safetensors": '{"__metadata__": {"format": "pt"}, "h.0.attn.bias": {"dtype": "F32", '
                   '"shape": [1, 1, 8, 8], "data_offsets": [0, 256]}}   ',
    "tokenizer": '{"model": {"vocab": {"\\u0120t": 0, "Ġ": 1, "\\"": 2, "\\\\": 3, "\\ud83d\\ude00": 4}, '
                 '"merges": ["a b", ["\\u0120", "t"]]}}',
    "escapes": '["\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uFFFF\\uD800\\uDC00\\uDBFF\\uDFFF"]',
    "numbers": "[0, -0, 0.0e-0, 9007199254740993, 18446744073709551616, -9223372036854775808, "
               "1.7976931348623157e308, 5E-324, 1e-400]",
    "depth": "[" * 16 + "]" * 16,
    "empty": '{"": {}, " ": [], "[]": "{}"}',
    "scalar": " null\r\n\t",
}
bad = {
    "same-key": '{"a": 1, "\\u0061": 2}',
    "comma": "[1, 2,]",
    "lone-surrogate": '"\\ud83d \\ude00"',
    "nan": "[NaN, -Infinity]",
    "zeros": "[01]",
    "control": '"\t"',
    "behind": "{} {}",
    "open": '{"a": [1, {"b": "c',
    "utf8": b'"\xed\xa0\x80 \xc0\xaf \xff"',
    "bom": b"\xef\xbb\xbf{}",
}


def once(pairs):
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def refuse(name):
    raise ValueError(name)


def is_json(data):
    try:
        value = json.loads(data.decode(), object_pairs_hook=once, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()  # no surrogate alone
        return True
    except ValueError:
        return False


for seeds, expected in (good, True), (bad, False):
    for name, text in seeds.items():
        data = text if isinstance(text, bytes) else text.encode()
        assert is_json(data) is expected, name
        with open(FOLDER + name, "wb") as out:
            out.write(data)
