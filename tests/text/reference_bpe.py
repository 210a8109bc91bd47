#!/usr/bin/env python3
"""Byte-level BPE that is written as plainly as possible, to compare the program's with.

    reference_bpe.py encode VOCAB.gguf FILE    ids of a file, space-separated
    reference_bpe.py cut RULE FILE             lengths in bytes of the pre-tokenization's pieces;
                                               gpt2, starcoder, llama3 or qwen2; bloom and
                                               falcon by the package `tokenizers`
    reference_bpe.py learn N_TOKENS FILE       merges learned from a file: two ids a line
    reference_bpe.py make-test-data            writes tests/data/{pretokenize,bpe-small,bpe-learn}*
    reference_bpe.py make-llama3-data JSON     writes tests/data/bpe-llama3.* from a tokenizer.json
                                               with Llama 3's pattern, ids by the package `tokenizers`

Needs the package `regex`, with which GPT-2's pattern was published. Bytes that are not
well-formed UTF-8 become lone surrogates, one each, which are no letter, number or space.
"""
import json
import random
import struct
import sys
from collections import Counter

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {
    "gpt2": regex.compile(GPT2),
    "starcoder": regex.compile(GPT2),
    "llama3": regex.compile(LLAMA3),
    "qwen2": regex.compile(LLAMA3.replace("{1,3}", "")),
}
NUMBER = regex.compile(r"(\p{N})")
RULES = {"llama-bpe": "llama3", "qwen2": "qwen2"}  # by tokenizer.ggml.pre; of others GPT-2's
RULES.update(
    dict.fromkeys(("starcoder", "refact", "command-r", "codeshell", "smollm"), "starcoder")
)


def make_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    alphabet = {b: chr(b) for b in printable}
    alphabet.update({b: chr(256 + i) for i, b in enumerate(others)})
    return alphabet


ALPHABET = make_alphabet()


# --- cutting and merging ------------------------------------------------------------------------


def library_cut(rule):
    """Falcon's and BLOOM's cut as their tokenizer.json say it to the package `tokenizers`."""
    from tokenizers import Regex, pre_tokenizers as pre

    if rule == "bloom":
        pattern = Regex(r" ?[^(\s|[.,!?…。，、।۔،])]+")
        return pre.Sequence([pre.Split(pattern, "isolated"), pre.ByteLevel(False, use_regex=False)])
    return pre.Sequence([
        pre.Punctuation("contiguous"), pre.ByteLevel(False), pre.Digits(False),
        pre.Split(Regex("[0-9][0-9][0-9]"), "isolated")])


def cut(data, rule="gpt2"):
    if rule in ("bloom", "falcon"):
        bytes_of = {char: byte for byte, char in ALPHABET.items()}
        pieces = library_cut(rule).pre_tokenize_str(data.decode())
        return [bytes(bytes_of[char] for char in piece) for piece, _ in pieces]
    text = data.decode("utf-8", "surrogateescape")
    parts = NUMBER.split(text) if rule == "starcoder" else [text]
    pieces = [piece for part in parts for piece in PATTERNS[rule].findall(part)]
    return [piece.encode("utf-8", "surrogateescape") for piece in pieces]


def learn_ids(data, n_tokens):
    """Returns the merges as pairs of ids; bytes are their own ids. All pairs are counted anew for each merge."""
    words = Counter(cut(data))
    split = {word: list(word) for word in words}
    merges = []
    while 256 + len(merges) < n_tokens:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(split[word], split[word][1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            break
        for symbols in split.values():
            i = 0
            while i + 1 < len(symbols):
                if (symbols[i], symbols[i + 1]) == best:
                    symbols[i : i + 2] = [256 + len(merges)]
                i += 1
        merges.append(best)
    return merges


def merge_piece(symbols, ranks):
    """Merges all pairs of the lowest rank, from left to right, then those of the next lowest."""
    while len(symbols) > 1:
        pairs = set(zip(symbols, symbols[1:]))
        best = min(pairs, key=lambda pair: ranks.get(pair, float("inf")))
        if best not in ranks:
            break
        merged = []
        i = 0
        while i < len(symbols):
            if tuple(symbols[i : i + 2]) == best:
                merged.append(best[0] + best[1])
                i += 2
            else:
                merged.append(symbols[i])
                i += 1
        symbols = merged
    return symbols


class Tokenizer:
    def __init__(self, tokens, types, merges, pre):
        self.types = types
        self.rule = RULES.get(pre, "gpt2")
        self.ids = {}
        self.specials = {}
        for i, (token, kind) in enumerate(zip(tokens, types)):
            where = self.specials if kind in (3, 4) else self.ids if kind in (0, 1) else {}
            where.setdefault(token, i)
        self.ranks = {}
        for rank, merge in enumerate(merges):
            at = merge.index(" ", 1)
            self.ranks[merge[:at], merge[at + 1 :]] = rank
        names = sorted((name.encode() for name in self.specials), key=len, reverse=True)
        self.split = None
        if names:
            self.split = regex.compile(b"(" + b"|".join(map(regex.escape, names)) + b")")
        self.known = {}

    def encode(self, data):
        parts = self.split.split(data) if self.split else [data]
        ids = []
        for i, part in enumerate(parts):
            if i % 2:
                ids.append(self.specials[part.decode()])
                continue
            for piece in cut(part, self.rule):
                if piece not in self.known:
                    symbols = merge_piece([ALPHABET[b] for b in piece], self.ranks)
                    self.known[piece] = [self.ids[symbol] for symbol in symbols]
                ids += self.known[piece]
        return ids


# --- GGUF ---------------------------------------------------------------------------------------

FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


def read_metadata(path):
    data = open(path, "rb").read()
    at = 24

    def number(fmt):
        nonlocal at
        (value,) = struct.unpack_from("<" + fmt, data, at)
        at += struct.calcsize("<" + fmt)
        return value

    def value(kind):
        nonlocal at
        if kind == STRING:
            n = number("Q")
            at += n
            return data[at - n : at].decode("utf-8", "surrogateescape")
        if kind == ARRAY:
            element = number("I")
            return [value(element) for _ in range(number("Q"))]
        return number(FORMATS[kind])

    (n_pairs,) = struct.unpack_from("<Q", data, 16)
    pairs = {}
    for _ in range(n_pairs):
        key = value(STRING)
        pairs[key] = value(number("I"))
    return pairs


def load(path):
    pairs = read_metadata(path)
    tokens = pairs["tokenizer.ggml.tokens"]
    types = pairs.get("tokenizer.ggml.token_type", [1] * len(tokens))
    merges = pairs.get("tokenizer.ggml.merges", [])
    return Tokenizer(tokens, types, merges, pairs.get("tokenizer.ggml.pre", "gpt-2"))


def pack_string(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def pack_text(s):
    return struct.pack("<I", STRING) + pack_string(s)


def pack_number(kind, value):
    return struct.pack("<I" + FORMATS[kind], kind, value)


def pack_array(kind, values):
    pack = pack_string if kind == STRING else lambda v: struct.pack("<" + FORMATS[kind], v)
    return struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(map(pack, values))


def write_metadata(path, pairs):
    with open(path, "wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)))
        for key, value in pairs.items():
            out.write(pack_string(key) + value)


def write_vocabulary(path, tokens, types, merges, bos, pre="gpt-2"):
    pairs = {
        "general.architecture": pack_text("gpt2"),
        "tokenizer.ggml.model": pack_text("gpt2"),
        "tokenizer.ggml.pre": pack_text(pre),
        "tokenizer.ggml.tokens": pack_array(STRING, tokens),
        "tokenizer.ggml.token_type": pack_array(5, types),
        "tokenizer.ggml.merges": pack_array(STRING, merges),
        "tokenizer.ggml.bos_token_id": pack_number(4, bos),
        "tokenizer.ggml.eos_token_id": pack_number(4, bos),
    }
    write_metadata(path, pairs)


# --- test data ----------------------------------------------------------------------------------

# The small vocabulary is learned from this text.
PROSE = """\
The miller kept two clocks, and they never agreed. When the one in the kitchen struck seven, the
one in the mill would strike six, wait a little, as though it had thought better of it, and then
strike once more. "There's your hour," he'd say to the children, "and there's the change from it."
They didn't mind. They'd come for the flour sacks, which were warm, and for the cat, who'd had 12
kittens in 3 years and could not be made to look sorry about it. We'll never know what the cat
thought; we've only the miller's word, and he was a man who told the truth the way other men tell
stories, a little at a time and with the best of it kept back for the winter.

In the winter of '47 the river froze from the weir to the bridge. The wheel stood still, and so,
for the first time in anybody's memory, did both of the clocks. "I'm not surprised," the miller
said. "They're only listening." He put his ear to the ice. The children put their ears to the
ice. It was saying what ice always says, which is nothing, then a crack, then nothing again for
1,000 feet in every direction.

    for (i = 0; i < n; i++)
        if (clock[i].hour != hour)
            return -1;

Das Wasser schläft, sagte er. L'eau dort, élève-toi. Вода спит подо льдом. 水は氷の下で眠る。
"""

# The pieces or tokens of these texts are easy to get wrong.
CASES = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "  a",
    "   a  ",
    "\n",
    "\n\n",
    "a\n",
    "a\n\nb",
    "a \nb",
    "a\n b",
    "a\t\tb",
    "\t a",
    "\r\n\r\n x",
    "a\v\f b",
    "Hello world",
    "Hello, world! It's 10:45.",
    "it's we're I've I'm he'd they'll don't",
    "IT'S WE'RE I'VE I'M HE'D THEY'LL DON'T",
    "'s't're've'm'll'd",
    "''s '''s ' 's  's",
    "'r 'v 'l 're're 'rex 'lll",
    "'",
    "'l",
    "x'",
    "can\u2019t",
    "a1b22c333 4444 5",
    "3.14159 1,000,000 0x1F",
    " 1 22  333   4",
    "\u0661\u0662\u0663 \u096a\u096b \uff11\uff12",
    "\u2160\u2161 \u2170 \u3007 \u3021 x\u2162y",
    "\u00bd \u00b2\u00b3 \u2460 \u2082",
    "\U0001d7ce\U0001d7cf \U00010107",
    "a\u00a0b\u00a0\u00a0c \u00a0d",
    "\u3000\u3000\u6c34\u3000\u706b",
    "a\u0085b\u0085\u0085 c",
    "\u2028x\u2029 \u2003y\u1680z\u202f\u205f",
    "\u200bzero\u200bwidth \u180e \ufeff\u2060",
    "\x1c\x1d \x1e\x1f x",
    "\x00\x00 \x00a\x7f",
    "e\u0301 n\u0303o \u0301\u0301 a\u0308",
    "\u0e01\u0e33\u0e25\u0e31\u0e07 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd \u0645\u064e\u0631\u062d\u0628\u0627 123",
    "\U0001f600\U0001f600 \U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "\U0001f1ec\U0001f1e7 1\ufe0f\u20e3 x\U000e0067",
    "\u6c34\u706b\u571f \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3001\u3002",
    "\U00020000\U0002a6df \U00030000 \U00031350",
    "\uac00\ub098\ub2e4 \u1100\u1161",
    "\u01c5 \u02b0 \u00aa \u00ba \u1c89 \ua7cb",
    "Stra\u00dfe \u0130stanbul \ufb01n",
    "\u20ac5 \u00a33 $4 +1 <a>|b| ^_^ ~",
    "\u0378 \u0379x \ue000\U0010ffff \uffff \ufdd0",
    "snake_case camelCase kebab-case a.b.c",
    "    indented = {'k': \"v\"}  # note",
    "x = y;\n\n\n    if (z)\n\treturn;\n",
    "trailing   ",
    "\u3000 \n \u00a0 end",
    "<|endoftext|>",
    "a<|endoftext|> b <|endoftext|",
    " <|endoftext|>\n<|endoftext|><|endoftext|>",
    "<|end|> <|endof|>text|> <|endoftext<|end|>",
    "the the the thethe  The THE",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "eeee eee ee e  eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee",
    "ofthewinteroftheriveroftheiceofthemillerofthechildren",
    "-" * 40 + "=" * 17 + "\n" * 19 + " " * 33 + "x",
    "'\u017f '\u017ft '\u212a 'S'T'RE'Ve'M'lL'D",
    "(a) .b \tc\n\td (\n\n) (\r\n)\r\n\r\nx",
    "  \n  \n   x\n \u3000\n\u0085\n\u2028 y",
    "1234567 12.3456 \u0661\u0662\u0663\u0664 \u2160\u2161\u2162\u2163",
    "-x --x - x \u2013x \u00a0x \u0301x \n-x",
]
RAW_CASES = [
    b"\x80",
    b"\xff\xfe\xfd",
    b"a\x80b\xbf c",
    b" \xc3",
    b" \xc3\xa9 \xc3(\xa9",
    b"\xe2\x82",
    b"\xe2\x82 \xe2\x82\xac",
    b"\xe2\x28\xa1 \xe2\x82\x28",
    b"\xf0\x9f\x98 \xf0\x9f\x98\x80\x80",
    b"\xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf",
    b"\xc1\xbf\xe0\x9f\xbf\xf0\x8f\xbf\xbf",
    b"\xed\xa0\x80\xed\xb0\x80 \xed\x9f\xbf\xee\x80\x80",
    b"\xf4\x8f\xbf\xbf \xf4\x90\x80\x80 \xf5\x80\x80\x80",
    b"\xf8\x88\x80\x80\x80 \xfc\x84\x80\x80\x80\x80",
    b"\xc2 \xc2\xa0\xc2 \xe3\x80\x80\xe3\x80",
    b"x\xc2\x85\x85\xc2y  \x85",
    b"1\xd9\xa1\xd9 2\xe2\x85\xa0\xe2\x85",
    b"'\xc5\xbf's\xc5'\xc5s",
]


def random_cases(generator, n):
    alphabet = "ab tT'sre1 9\n\t .,-\u00e9\u0301\u6c34\u00a0\u3000\u0661\u2160\U0001f600\u200d"
    for _ in range(n):
        data = "".join(generator.choices(alphabet, k=generator.randint(1, 24))).encode()
        if generator.random() < 0.3:
            at = generator.randrange(len(data))
            data = data[:at] + bytes([generator.randrange(256)]) + data[at + 1 :]
        yield data


def library_cases():
    """What the cuts of the package look at, and characters with bytes that it takes for digits."""
    generator, alphabet = random.Random(2), " \n\t.,!?()|$+'-_ab12379²½٣Ⅷмцé水…。，、।۔،′“\u00a0\u3000\U0001f600"
    cases = ["м and мир 999", " 1234567 x²y 12½3456.½6789", "don't  stop, at 3.14159265!", "1′2′″ ٣٤٥ ⅧⅧ", "a (b) | c,d"]
    cases += ["".join(generator.choices(alphabet, k=generator.randint(1, 20))) for _ in range(90)]
    return [case.encode() for case in cases]


def learn(text, n_merges):
    words = Counter(cut(text))
    split = {word: [ALPHABET[b] for b in word] for word in words}
    merges = []
    while len(merges) < n_merges:
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(split[word], split[word][1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word in words:
            split[word] = merge_piece(split[word], {best: 0})
    return merges


def make_test_data():
    cases = [case.encode("utf-8", "surrogatepass") for case in CASES] + RAW_CASES
    cases += random_cases(random.Random(1), 120)

    with open("tests/data/pretokenize.txt", "w") as out:
        out.write("# Made by tests/text/reference_bpe.py: rule, text in hexadecimal, pieces' lengths.\n")
        for rule in PATTERNS:
            for case in cases:
                lengths = [len(piece) for piece in cut(case, rule)]
                out.write(" ".join([rule, case.hex() or "-", *map(str, lengths)]) + "\n")
        for rule in ("bloom", "falcon"):
            for case in library_cases():
                lengths = [len(piece) for piece in cut(case, rule)]
                out.write(" ".join([rule, case.hex(), *map(str, lengths)]) + "\n")

    merges = learn(PROSE.encode(), 400)
    tokens = [ALPHABET[b] for b in range(256)]
    for left, right in merges:
        if left + right not in tokens:
            tokens.append(left + right)
    types = [1] * len(tokens)
    # A control token and user-defined ones, two of which start alike; a token of a normal type
    # that looks like a control token; an unused one.
    for name, kind in [("<|endoftext|>", 3), ("<|end|>", 4), ("<|end|> <", 4), ("<|x|>", 1), ("[PAD]", 5)]:
        tokens.append(name)
        types.append(kind)
    write_vocabulary(
        "tests/data/bpe-small.gguf",
        tokens,
        types,
        [" ".join(pair) for pair in merges],
        tokens.index("<|endoftext|>"),
    )
    tokenizer = load("tests/data/bpe-small.gguf")
    with open("tests/data/bpe-small.txt", "w") as out:
        out.write("# Made by tests/text/reference_bpe.py: text in hexadecimal, its ids in bpe-small.gguf.\n")
        extra = [PROSE.encode(), b"<|x|> [PAD] <|end|> <|end|>", b"<|end|> <<|endoftext|>"]
        for case in cases + extra:
            ids = tokenizer.encode(case)
            out.write(" ".join([case.hex() or "-", *map(str, ids)]) + "\n")

    with open("tests/data/bpe-learn.txt", "w") as out:
        out.write("# Made by tests/text/reference_bpe.py: tokens wanted, text in hexadecimal, the merges' ids.\n")
        everything = b" ".join(case for case in cases if len(case) < 100)
        for wanted, text in [(300, b""), (700, PROSE.encode()), (560, everything[:4000]), *small_texts()]:
            ids = [i for pair in learn_ids(text, wanted) for i in pair]
            out.write(" ".join([str(wanted), text.hex() or "-", *map(str, ids)]) + "\n")


def small_texts():
    """Few letters give many ties, runs and tokens that are made in several places."""
    rng = random.Random(6)
    for text in (
        "ab", "aaa", "aaaaa", " a a a a a", "a" * 89, " ".join("a" * n for n in range(1, 13)),
        "baaab baaaab aab baa aaab abaaba aabaa abababab bababa babab",
        "abababababab aabbaabbaabb abbabbabb abcabcabc cbacbacba",
        "it's he's we're they've I'm you'll I'd it's he's we're they've I'm you'll I'd",
        "    four     five      six\n\n\n\t\t\t\n \n \n    four     five      six   ",
        "вода воды вода 水火水火水 水　水　 straße straßen",
        "!!!!.?.!!!!.?. --------==== ======= -------- <><><><><>",
    ):
        yield 356, text.encode()
        yield 259, text.encode()
    yield 356, b"\x80\x80\x80 \xff\xfe\xff\xfe \xc3\xc3\xa9\xc3\xa9\xc3 \xe2\x82 \xe2\x82 \xf0\x9f\x98"
    for alphabet in ("a ", "ab", "ab ", "aab    ", "abc \n", "ab'st 1,"):
        for length in (17, 60, 180, 400):
            yield 376, "".join(rng.choices(alphabet, k=length)).encode()


def make_llama3_data(path):
    import tokenizers

    model = json.load(open(path))["model"]
    special = "<|endoftext|>"
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    write_vocabulary(
        "tests/data/bpe-llama3.gguf",
        tokens,
        [3 if token == special else 1 for token in tokens],
        merges,
        tokens.index(special),
        "llama-bpe",
    )
    truth = tokenizers.Tokenizer.from_file(path)
    mine = load("tests/data/bpe-llama3.gguf")
    with open("tests/data/bpe-llama3.txt", "w") as out:
        out.write("# Made by tests/text/reference_bpe.py: text in hexadecimal, its ids in bpe-llama3.gguf.\n")
        for case in [*CASES, PROSE, *random_cases(random.Random(2), 200)]:
            case = case if isinstance(case, bytes) else case.encode()
            try:
                ids = truth.encode(case.decode(), add_special_tokens=False).ids
            except UnicodeDecodeError:
                continue
            if ids != mine.encode(case):
                sys.exit(f"{case!r} is {ids}, but {mine.encode(case)} here")
            out.write(" ".join([case.hex() or "-", *map(str, ids)]) + "\n")


def main():
    args = sys.argv[1:]
    if args == ["make-test-data"]:
        make_test_data()
    elif args[:1] == ["encode"] and len(args) == 3:
        print(*load(args[1]).encode(open(args[2], "rb").read()))
    elif args[:1] == ["learn"] and len(args) == 3:
        for pair in learn_ids(open(args[2], "rb").read(), int(args[1])):
            print(*pair)
    elif args[:1] == ["cut"] and len(args) == 3:
        print(*map(len, cut(open(args[2], "rb").read(), args[1])))
    elif args[:1] == ["make-llama3-data"] and len(args) == 2:
        make_llama3_data(args[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
