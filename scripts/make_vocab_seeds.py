#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets tests/fuzz/fuzz_tokenizer_json.c and fuzz_vocab_files.c into
their corpora: small files of every kind that they read."""
import json
import os
import struct

JSON_FOLDER = "tests/fuzz/corpus/tokenizer_json/"
FILES_FOLDER = "tests/fuzz/corpus/vocab_files/"

MARK = "\u2581"
SPACES = r"\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + SPACES
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + SPACES)
QWEN2 = LLAMA3.replace("{1,3}", "")


def level(regex=True):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": regex}


def split(regex):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}, level(False)]}


def metaspace(scheme, cuts):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cuts}


def added(number, content, special=True, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special, **flags}


def template(name, number):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": name, "type_id": 0}},
                                                     {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}}}


def tokenizer(pre, vocab, merges, normalizer=None, post=None, tokens=(), **options):
    return {"version": "1.0", "added_tokens": list(tokens), "normalizer": normalizer, "pre_tokenizer": pre,
            "post_processor": post, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, **options,
                      "vocab": {token: i for i, token in enumerate(vocab)}, "merges": merges}}


BYTES = ["<s>", "a", "b", "\u0120", "1", "2", "\u010a", "ab", "\u0120b", "12"]
PAIRS = [["a", "b"], ["\u0120", "b"], ["1", "2"]]
STRINGS = ["a b", "\u0120 b", "1 2"]
SPECIAL = [added(0, "<s>"), added(20, " ab ", False)]
CHARS = ["<unk>", "<s>", "<0x0A>", MARK, "a", "b", "ab", MARK + "a", MARK + MARK]
PREPEND = {"type": "Sequence", "normalizers": [
    {"type": "Prepend", "prepend": MARK},
    {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "ab"}, "add_bos_token": True,
          "additional_special_tokens": ["12"], "added_tokens_decoder": {"30": added(30, "<x>")}}

jsons = {
    "gpt2": (tokenizer(level(), BYTES, PAIRS, tokens=SPECIAL),),
    "gpt2-strings": (tokenizer(split(GPT2), BYTES, STRINGS, post=template("<s>", 0), tokens=SPECIAL), CONFIG),
    "llama3": (tokenizer(split(LLAMA3), BYTES, PAIRS, ignore_merges=True), CONFIG, {"<y>": 40}),
    "qwen2": (tokenizer(split(QWEN2), BYTES, PAIRS, normalizer={"type": "NFC"}),),
    "starcoder": (tokenizer({"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, level()]}, BYTES, PAIRS),),
    "prepend": (tokenizer(None, CHARS, ["a b", MARK + " a", MARK + " " + MARK], normalizer=PREPEND,
                          tokens=[added(0, "<unk>", normalized=True)], byte_fallback=True, unk_token="<unk>"),),
    "metaspace": (tokenizer(metaspace("first", True), CHARS[:-1], ["a b"], byte_fallback=True),
                  {"bos_token": "<s>"}),
    "unmade": (tokenizer(metaspace("never", False), ["a", "b", "ab", "ba", "aba"],
                         [["ab", "a"], ["a", "b"], ["a", "ba"]]),),
}


def varint(value):
    out = b""
    value &= (1 << 64) - 1
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(name, score, kind=1):
    return field(1, field(1, name.encode()) + field(2, score) + field(3, kind))


PIECES = piece("<unk>", 0.0, 2) + piece("<s>", 0.0, 3) + piece("</s>", 0.0, 3)
SENTENCEPIECE = (PIECES + piece("<0x0A>", 0.0, 6) + piece("ab", -0.0) + piece(MARK + "a", -1.0) +
                 piece(MARK, -2.0) + piece("a", -3.0) + piece("b", -4.0) + piece("user", 0.0, 4) +
                 field(2, field(3, 2) + field(4, 10) + field(10, 1.0) + field(35, 1) + field(40, 0) +
                       field(41, 1) + field(42, 2) + field(43, -1)) +
                 field(3, field(1, b"identity") + field(2, b"") + field(3, 1) + field(4, 0)))
LLAMA2C = [(0.0, b"<unk>"), (0.0, b"\n<s>\n"), (0.0, b"\n</s>\n"), (0.0, b"<0x41>"), (-1.0, b"ab"), (-2.0, b" a"),
           (-3.0, b" "), (-4.0, b"a"), (-5.0, b"b"), (-6.0, b"\n")]
LLMC = [b"a", b"b", b" ", b"\n", b"\xc3", b"\xa9", b"ab", b" ab", b"\xc3\xa9", b"abab", b"<|endoftext|>"]
CHARACTERS = {"\n": 0, " ": 1, "a": 2, "b": 3, "\u00e9": 4, "\U0001f600": 5}


def llmc(version, eot):
    header = [20240328, version, len(LLMC), eot] + [0] * 252
    return struct.pack("<256I", *header) + b"".join(bytes([len(token)]) + token for token in LLMC)


def vocab(tokens):
    return json.dumps({token: i for i, token in enumerate(tokens)}).encode()


files = {
    "sentencepiece": (0, 12, SENTENCEPIECE),
    "sentencepiece-unigram": (0, 12, PIECES),
    "llama2c": (1, 10, struct.pack("<i", 6) + b"".join(struct.pack("<fi", s, len(t)) + t for s, t in LLAMA2C)),
    "llmc": (2, 11, llmc(2, 10)),
    "llmc-version-1": (2, 11, llmc(1, 0)),
    "merges": (3, 12, vocab(BYTES) + b"\0#version: 0.2\n" + "\n".join(STRINGS).encode() + b"\n"),
    "merges-without-version": (3, 12, vocab(BYTES) + b"\0" + "\r\n".join(STRINGS).encode()),
    "characters": (4, 7, json.dumps(CHARACTERS).encode()),
}

os.makedirs(JSON_FOLDER, exist_ok=True)
os.makedirs(FILES_FOLDER, exist_ok=True)
for name, parts in jsons.items():
    with open(JSON_FOLDER + name, "wb") as out:
        out.write(b"\0".join(json.dumps(part).encode() for part in parts))
for name, (kind, n_vocab, data) in files.items():
    with open(FILES_FOLDER + name, "wb") as out:
        out.write(bytes([kind]) + struct.pack("<H", n_vocab - 1) + data)
