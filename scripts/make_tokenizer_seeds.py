#!/usr/bin/env python3
"""Writes the seeds of the fuzz target tests/fuzz/fuzz_tokenizer.c into its corpus."""
import struct

FOLDER = "tests/fuzz/corpus/tokenizer/"
GPT2, FILE, STARCODER, NO_TYPES = 0, 1, 2, 4


def table(flags, merges, turn, specials, text):
    """Merges are pairs of indices: a byte below 128, or 128 + i for the i-th token made."""
    data = bytes([flags, len(merges)])
    data += b"".join(bytes(pair) for pair in merges)
    data += bytes([turn]) if merges else b""
    if not flags & NO_TYPES:
        data += bytes([len(specials)])
        data += b"".join(bytes([len(name) - 1]) + name for name in specials)
    return data + text


def made(i, n):
    """The byte that names the i-th of n tokens made so far."""
    return next(byte for byte in range(128, 256) if byte % n == i)


def string(s):
    return struct.pack("<Q", len(s)) + s


def file(pairs):
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    for key, value in pairs:
        data += string(key.encode()) + value
    return bytes([FILE]) + data


def strings(values):
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(string, values))


def small_file(merges, types, last=(b"<|end|>", b"[PAD]"), kinds=(3, 5)):
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    names = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    tokens = [names[b].encode() for b in range(256)] + [b"ab", b"abc", *last]
    pairs = [
        ("tokenizer.ggml.model", struct.pack("<I", 8) + string(b"gpt2")),
        ("tokenizer.ggml.tokens", strings(tokens)),
        ("tokenizer.ggml.merges", strings(merges)),
        ("tokenizer.ggml.eos_token_id", struct.pack("<II", 4, 258)),
    ]
    if types:
        values = [1] * 258 + [*kinds]
        pairs.append(
            ("tokenizer.ggml.token_type", struct.pack("<IIQ", 9, 5, len(values)))
        )
        pairs[-1] = (pairs[-1][0], pairs[-1][1] + struct.pack(f"<{len(values)}i", *values))
    return file(pairs)


a, b, space = ord("a"), ord("b"), ord(" ")
seeds = {
    "bytes": table(GPT2, [], 0, [], b"Hello, world! It's 10:45.\n\n  x"),
    "doubling": table(GPT2, [(a, a), (128, 128)], 0, [], b"a" * 75),
    "turned": table(GPT2, [(a, b), (128, a), (made(1, 2), b)], 1, [], b"abab aba babab"),
    "specials": table(GPT2, [(a, b)], 0, [b"ab", b"abc", b"bcd", b"<|end|>"], b"abcd<|end|>xab"),
    "starcoder": table(STARCODER, [(space, a), (ord("1"), ord("2"))], 0, [], b"a 12  3 \xd9\xa1"),
    "no-types": table(NO_TYPES, [(space, space)], 0, [], b"a    b\xc2\xa0\xe3\x80\x80 c  "),
    "invalid-utf8": table(GPT2, [(space, a)], 0, [b"\xff"], b"\xc3( \xe2\x82 a\xed\xa0\x80\xff\xf0"),
    "file": small_file([b"a b", b"ab c"], True),
    "file-byte-tokens": small_file([b"a b"], True, (b"<0x41>", b"<0xfg>"), (6, 6)),
    "file-same-pair": small_file([b"a b", b"a b"], True),
    "file-merge-unknown": small_file([b"a c"], True),
    "file-merge-raw": small_file([b"\x01 b"], True),
    "file-special-empty": small_file([], True, (b"", b"a"), (3, 4)),
    "file-no-types": small_file([], False),
}
for name, data in seeds.items():
    with open(FOLDER + name, "wb") as out:
        out.write(data)
