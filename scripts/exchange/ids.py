"""Cuts of byte-level tokenizers before they merge, and comparisons of token ids with decode's."""
import concurrent.futures
import functools
import os
import random

from . import program
from .process import bad, say


def cuts():
    """Returns the cuts of byte-level tokenizers by tokenizer.ggml.pre."""
    from tokenizers import Regex, pre_tokenizers as pre
    gpt2 = pre.ByteLevel(add_prefix_space=False)
    starcoder = pre.Sequence([pre.Digits(individual_digits=True), gpt2])
    llama3, qwen2 = (pre.Sequence([pre.Split(Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre.ByteLevel(add_prefix_space=False, use_regex=False)]) for digits in ("{1,3}", ""))
    bloom = pre.Sequence([pre.Split(Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+"), "isolated"),
                          pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    falcon = pre.Sequence([pre.Punctuation("contiguous"), gpt2, pre.Digits(individual_digits=False),
                           pre.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    return {"gpt-2": gpt2, "llama-bpe": llama3, "qwen2": qwen2, "starcoder": starcoder, "bloom": bloom, "falcon": falcon,
            **dict.fromkeys(("default", "phi-2", "mpt", "olmo"), gpt2), "dbrx": llama3, "smollm": starcoder,
            "stablelm2": qwen2}  # other names of these


TOP, BOTTOM = "\u0345", "\u0334"  # marks of the highest combining class and of the lowest


def compositions():
    """Unicode's Normalization Form C, as the package tokenizers has it: tokenizer.decode.replacements, a list of
    texts, each before what takes its place (characters become what they consist of, pairs one character; syllables of
    Hangul consist of nothing else that matters, because no mark goes between their parts), and tokenizer.decode.marks,
    the characters of each combining class, lowest first."""
    from tokenizers import normalizers
    composed, decomposed = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    made, marks = {}, []

    def compare(left, right):  # by class: marks are put in that order
        return (decomposed(left + right) != left + right) - (decomposed(right + left) != right + left)

    for char in (chr(code) for code in range(0x80, 0x110000) if not 0xD800 <= code < 0xE000):
        if decomposed(around := TOP + char + BOTTOM) == around:
            continue
        if (parts := decomposed(char)) == char:
            marks.append(char)
            continue
        if not "\uac00" <= char <= "\ud7a3":
            made[char] = parts
        if composed(char) == char:
            made[composed(parts[:-1]) + parts[-1]] = char
    classes = []
    for mark in sorted(marks, key=functools.cmp_to_key(compare)):
        if not classes or compare(classes[-1][-1], mark):
            classes.append("")
        classes[-1] += mark
    return [text for char in sorted(made) for text in (char, made[char])], classes


def hard_texts(n):
    """Returns n texts of characters that Normalization Form C composes, decomposes and puts in order, always the
    same."""
    rng, (texts, classes) = random.Random(2), compositions()
    pools = texts[::2] + texts[1::2], "".join(classes), classes, "aeouAEOUsSkK \u0f40\u1100\u1161\u11a8\uac00\U0001d157"
    return ["".join(rng.choice(rng.choice(rng.choice(pools))) for _ in range(rng.randint(2, 9))) for _ in range(n)]


PIECES = """| |  |   |\n|\n\n|\r\n|\t| \n |a| a|A|The quick brown fox|I'm|I'M|don't|we'll've|'S|''|"q"|3.14|\
12345| 1 22 333 4444|٣٤|½|Ⅷ|²|naïve café|cafe\u0301|Å|a\u0302\u0323|\u1112\u1161\u11ab|\u212b|ﬁ|ß|ÄÖ|привет|日本語|한국어|नमस्ते|العربية|😀|👍🏽|🇺🇸|\u00a0|\
\u2003|\u3000|\u200b|\u200d|…|—|▁|▁a|<0x41>|<s>|</s>|[INST]|a_b|x==y|/* */|foo.bar(1)|(a),b!|…x|。水|м1|\\n|---""".split("|")
SOME = 20  # names of added tokens that stand in the texts


def odd_texts(names=()):
    """Returns a few hundred texts, always the same; `names`, of added tokens, stand in many of them."""
    names, rng, texts = [name for name in names if name][:SOME], random.Random(1), list(PIECES)
    for name in names:
        texts += [name, "a" + name, name + "a", f"a {name} b", name + name, name + "\n", name[:-1]]
    texts += ["".join(rng.choices(PIECES + names, k=rng.randint(2, 6))) for _ in range(200)]
    return list(dict.fromkeys(text for text in texts if "\0" not in text))


def compare(path, model, encode, texts, library):
    """Says for how many texts decode's ids with `model` are not encode(text), the library's ids, which are None where a
    character has no token. Fails if decode cannot read the vocabulary."""
    if not program.find():
        return say(f"{path}: ids are not compared: found no decode beside the scripts or on PATH; make it")

    def ids(text):  # None where the vocabulary lacks a character
        done = program.ask("tokenize", "-f", "-", "--", model, text=text)
        if done.returncode and "has no token" not in done.stderr:
            bad(path, f"decode cannot read its vocabulary: {program.last_line(done)}")
        return None if done.returncode else [int(i) for i in done.stdout.split()]

    with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        found = list(zip(texts, pool.map(ids, texts), map(encode, texts)))
    lacking = sum(ours is None and theirs is not None for _, ours, theirs in found)
    others = [row for row in found if row[1] is not None and row[1] != row[2]]
    said = f"{path}: {len(texts) - lacking - len(others)} of {len(texts)} odd texts get the ids of {library}"
    said += f"; {lacking} have characters without a token, which decode refuses" if lacking else ""
    if others:
        text, ours, theirs = min(others, key=lambda row: len(row[0]))
        said += f"; {len(others)} get others, such as {text!r}: expected {theirs}, found {ours}"
    say(said)
