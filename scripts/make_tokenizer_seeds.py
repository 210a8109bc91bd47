#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets of tests/fuzz that make tokens of texts into their corpora:
fuzz_tokenizer.c and fuzz_spm.c."""
import os
import struct

FOLDER = "tests/fuzz/corpus/tokenizer/"
SPM_FOLDER = "tests/fuzz/corpus/spm/"
GPT2, FILE, STARCODER, NO_TYPES, LLAMA3, QWEN2 = 0, 1, 2, 4, 8, 10
BYTES, NO_SPACE, NO_SCORES = 1, 2, 4  # of fuzz_spm
NORMAL, USER, UNUSED, BYTE, UNKNOWN, CONTROL = 0, 5, 6, 7, 8, 9


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


def array(kind, form, values):
    return struct.pack(f"<IIQ{len(values)}{form}", 9, kind, len(values), *values)


def strings(values):
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(string, values))


def spm(flags, tokens, text):
    """Tokens are names, or names, types and scores (in quarters)."""
    data = bytes([flags, len(tokens)])
    for i, token in enumerate(tokens):
        name, kind, score = token if isinstance(token, tuple) else (token, NORMAL, 40 - 4 * i)
        name = name.encode() if isinstance(name, str) else name
        data += bytes([kind, score % 256, len(name) - 1]) + name
    return data + text.encode()


def spm_file(names, types, scores, prefix=None):
    pairs = [
        ("tokenizer.ggml.model", struct.pack("<I", 8) + string(b"llama")),
        ("tokenizer.ggml.tokens", strings([name.encode() for name in names])),
        ("tokenizer.ggml.token_type", array(5, "i", types)),
        ("tokenizer.ggml.scores", array(6, "f", scores)),
    ]
    if prefix is not None:
        pairs.append(("tokenizer.ggml.add_space_prefix", struct.pack("<IB", 7, prefix)))
    return file(pairs)


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
        pairs.append(("tokenizer.ggml.token_type", array(5, "i", [1] * 258 + [*kinds])))
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
    "llama3": table(LLAMA3, [(a, b)], 0, [], b"(ab) .ab\n\n  ab 12345 'LL'rex\r\n \n x!\n"),
    "llama3-whole": table(LLAMA3, [(a, b), (128, a), (space, 128)], 1, [], b"aba ab ab  aba"),
    "qwen2": table(QWEN2, [(ord("1"), ord("2"))], 0, [], b"12 \xd9\xa1\xd9\xa2'Ve a'S"),
    "file": small_file([b"a b", b"ab c"], True),
    "file-byte-tokens": small_file([b"a b"], True, (b"<0x41>", b"<0xfg>"), (6, 6)),
    "file-same-pair": small_file([b"a b", b"a b"], True),
    "file-merge-unknown": small_file([b"a c"], True),
    "file-merge-raw": small_file([b"\x01 b"], True),
    "file-special-empty": small_file([], True, (b"", b"a"), (3, 4)),
    "file-no-types": small_file([], False),
    "file-scores": spm_file(["<unk>", "a", "\u2581a", "<0x0A>"], [2, 1, 1, 6], [0, -1, 2, 0], True),
    "file-score-nan": spm_file(["a", "b"], [1, 1], [0, float("nan")], False),
    "file-scores-few": spm_file(["a", "b"], [1, 1], [0]),
    "file-scores-twins": spm_file(["a", "a"], [1, 5], [0, 0]),
}
spm_seeds = {
    "words": spm(BYTES, ["\u2581", "t", "h", "e", "he", "\u2581t", "\u2581the", "th"], "the  the he"),
    "ties": spm(NO_SCORES, ["a", "aa", "aaa", "aab", "b"], "aaaaab"),
    "no-space": spm(NO_SPACE | BYTES, ["ab", "b\u2581", "\u2581a"], "ab ab  a"),
    "characters": spm(BYTES, ["\u00e9a", "a\u6c34", "\u6c34\U0001f600"], "\u00e9a\u6c34\U0001f600"),
    "broken": spm(BYTES, [b"a\xc3", b"\xe2\x96", b"\x81"], "a") + b"a\xc3 \xe2 \xe2\x96\x81\xf0\x9f",
    "specials": spm(
        BYTES, [("<s>", CONTROL, 0), ("<u>", UNKNOWN, 0), ("[a]", USER, 3), "a"], "a<s>a [a]<u> a"
    ),
    "lacking": spm(0, ["\u2581", "a", ("<0x62>", BYTE, 0)], "a ba\u00e9"),
    "unused": spm(BYTES, [("ab", UNUSED, 9), ("abc", NORMAL, 4)], "abcab"),
    "twins": spm(0, ["ab", "ab"], "ab"),
    "nan": spm(BYTES, [("ab", NORMAL, 255)], "ab"),
    "chain": spm(BYTES, [("a" * n, NORMAL, n) for n in range(1, 17)], "a" * 99),
}
for folder, files in ((FOLDER, seeds), (SPM_FOLDER, spm_seeds)):
    os.makedirs(folder, exist_ok=True)
    for name, data in files.items():
        with open(folder + name, "wb") as out:
            out.write(data)
