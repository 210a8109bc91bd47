#!/usr/bin/env python3
"""SentencePiece's BPE by scores, written as plainly as possible, to compare the program's with.

    reference_spm.py encode VOCAB.gguf FILE         ids of a file, space-separated
    reference_spm.py make-test-data                 writes tests/data/spm-small.*
    reference_spm.py make-chars-data GGUF MODEL     writes tests/data/spm-chars.* from a checkpoint
                                                    without byte tokens and its SentencePiece model
    reference_spm.py check LLAMA_TOKENIZE           the ids of tests/data/spm-* by llama.cpp
    reference_spm.py compare LLAMA_TOKENIZE DECODE VOCAB.gguf TEXT
                                                    those of both programs, on pieces of a text and
                                                    on random characters and bytes

Needs the package `sentencepiece`, which trains the small vocabulary. It must agree on every text that is
UTF-8, that it does not normalize, and that has no special token written out. llama.cpp decides about all
other texts.
"""
import io
import random
import re
import subprocess
import sys
import tempfile

import reference_bpe as bpe

MARK = "\u2581".encode()
MERGED = {0, 1, 4, 5}  # undefined, normal, user-defined, unused
SPECIAL = {2, 3, 4}  # unknown, control, user-defined


def characters(data):
    """Cut as the first byte of each says."""
    while data:
        length = 1 if data[0] < 0xC0 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
        yield data[:length]
        data = data[length:]


class Tokenizer:
    def __init__(self, pairs):
        tokens = [t.encode("utf-8", "surrogateescape") for t in pairs["tokenizer.ggml.tokens"]]
        types = pairs["tokenizer.ggml.token_type"]
        scores = pairs["tokenizer.ggml.scores"]
        every = list(enumerate(zip(tokens, types)))
        self.space = pairs.get("tokenizer.ggml.add_space_prefix", True)
        self.score = dict(zip(tokens, scores))
        self.ids = {token: i for i, (token, kind) in every if kind in MERGED}
        self.names = {token: i for i, (token, _) in every}
        self.specials = {token: i for i, (token, kind) in every if kind in SPECIAL}
        names = sorted(self.specials, key=len, reverse=True)
        self.split = re.compile(b"(" + b"|".join(map(re.escape, names)) + b")")

    def merge(self, text):
        symbols = list(characters(text))
        while True:
            pairs = [a + b for a, b in zip(symbols, symbols[1:])]
            known = [(-self.score[p], i) for i, p in enumerate(pairs) if p in self.ids]
            if not known:
                return symbols
            _, at = min(known)
            symbols[at : at + 2] = [pairs[at]]

    def encode(self, data):
        """None if there is no token for a byte."""
        ids = []
        for i, part in enumerate(self.split.split(data)):
            if i % 2:
                ids.append(self.specials[part])
                continue
            text = (b" " if self.space and part else b"") + part
            for symbol in self.merge(text.replace(b" ", MARK)):
                if symbol in self.ids:
                    ids.append(self.ids[symbol])
                else:
                    ids += [self.names.get(b"<0x%02X>" % byte) for byte in symbol]
        return None if None in ids else ids


# --- test data ----------------------------------------------------------------------------------

CASES = [
    "\u2581",
    "a\u2581b \u2581 c",
    "<s>the clock</s> the clock",
    "<unk> <s><s> </s>",
    "<0x41><0x0A>",
    "[PAD0] <sep>the<sep> <sep",
    "thethe the  the   the",
    " the \n the\n the",
    "x" * 70,
    "in the winter " * 9,
    "\u00e9l\u00e8ve e\u0301 \u6c34\u6c34 \u304f \u20ac",
    "\x00\x01 \x00",
]
RAW_CASES = [
    b"\xc3(",
    b"\xe2 x",
    b"\xe2\x96",
    b"the\xe2\x96\x81the",
    b"the \xe2\x96the \xf0",
    b"\xf0\x9f the",
    b"the\x96\x81the\x81",
    b"<s>\xc3<s>",
    b"\xd0\x92\xd0 \xd0\xbe\xd0",
]


def all_cases():
    cases = [case.encode("utf-8", "surrogatepass") for case in bpe.CASES + CASES + [bpe.PROSE]]
    return cases + bpe.RAW_CASES + RAW_CASES + list(bpe.random_cases(random.Random(3), 150))


def write_keys(path, **keys):
    pairs = {
        "general.architecture": bpe.pack_text("llama"),
        "llama.context_length": bpe.pack_number(4, 64),  # what llama.cpp wants of any model
        "llama.embedding_length": bpe.pack_number(4, 8),
        "llama.block_count": bpe.pack_number(4, 1),
        "llama.feed_forward_length": bpe.pack_number(4, 8),
        "llama.attention.head_count": bpe.pack_number(4, 1),
        "llama.attention.layer_norm_rms_epsilon": bpe.pack_number(6, 1e-5),
        "tokenizer.ggml.model": bpe.pack_text("llama"),
        "tokenizer.ggml.tokens": bpe.pack_array(bpe.STRING, keys.pop("tokens")),
        "tokenizer.ggml.scores": bpe.pack_array(6, keys.pop("scores")),
        "tokenizer.ggml.token_type": bpe.pack_array(5, keys.pop("token_type")),
    }
    for key, value in keys.items():
        pairs["tokenizer.ggml." + key] = bpe.pack_number(4, value)
    bpe.write_metadata(path, pairs)


def is_plain(case, tokenizer, truth):
    """Whether SentencePiece takes a text for what it is."""
    try:
        text = case.decode()
    except UnicodeDecodeError:
        return False
    marked = (" " + text).replace(" ", MARK.decode()) if text else ""
    return not tokenizer.split.search(case) and truth.normalize(text) == marked


def write_cases(name, truth):
    tokenizer = Tokenizer(bpe.read_metadata(f"tests/data/{name}.gguf"))
    with open(f"tests/data/{name}.txt", "w") as out:
        out.write(f"# Made by tests/text/reference_spm.py: text in hexadecimal, its ids in {name}.gguf.\n")
        for case in all_cases():
            ids = tokenizer.encode(case)
            if ids is None:
                continue
            if is_plain(case, tokenizer, truth) and truth.encode(case.decode()) != ids:
                sys.exit(f"{case!r} is {truth.encode(case.decode())}, but {ids} here")
            out.write(" ".join([case.hex() or "-", *map(str, ids)]) + "\n")


def make_test_data():
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(bpe.PROSE.splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=500,
        byte_fallback=True,
        character_coverage=0.99,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        num_threads=1,
        minloglevel=2,
    )
    truth = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    ids = range(truth.vocab_size())
    kinds = [(truth.is_unknown, 2), (truth.is_control, 3), (truth.is_byte, 6)]
    write_keys(
        "tests/data/spm-small.gguf",
        tokens=[truth.id_to_piece(i) for i in ids] + ["<sep>", "[PAD0]"],
        scores=[truth.get_score(i) for i in ids] + [0, 0],
        token_type=[next((t for is_a, t in kinds if is_a(i)), 1) for i in ids] + [4, 5],
        bos_token_id=1,
        eos_token_id=2,
        unknown_token_id=0,
    )
    write_cases("spm-small", truth)


def make_chars_data(path, model):
    import sentencepiece

    truth = sentencepiece.SentencePieceProcessor(model_file=model)
    prefix = "tokenizer.ggml."
    pairs = bpe.read_metadata(path)
    keys = {k[len(prefix) :]: v for k, v in pairs.items() if k.startswith(prefix) and k != prefix + "model"}
    write_keys("tests/data/spm-chars.gguf", **keys)
    write_cases("spm-chars", truth)


def llama_ids(program, vocabulary, data):
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        run = [program, "-m", vocabulary, "-f", file.name, "--ids", "--no-bos", "--log-disable"]
        out = subprocess.run(run, capture_output=True).stdout.decode()
    return re.findall(r"\d+", out)


def check(program):
    for name in ("spm-small", "spm-chars"):
        checked = 0
        for line in open(f"tests/data/{name}.txt"):
            if line.startswith("#"):
                continue
            text, *ids = line.split()
            if text == "-":
                continue
            found = llama_ids(program, f"tests/data/{name}.gguf", bytes.fromhex(text))
            if found != ids:
                sys.exit(f"{name}: {text} is {found}, expected {ids}")
            checked += 1
        print(f"{name}: {checked} texts have the same ids")


def random_character(generator):
    while True:
        kind = generator.choice(("plain", "plain", "low", "any", "space", "name"))
        if kind == "space":
            return generator.choice(" \n\t\0\x7f\x85\xa0\u2581\u3000\u200b")
        if kind == "name":
            return generator.choice(("<s>", "</s>", "<unk>", "<0x41>"))
        code = generator.randrange({"plain": 0x80, "low": 0x3000, "any": 0x110000}[kind])
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_texts(text, n):
    generator = random.Random(4)
    for _ in range(n):
        at = generator.randrange(len(text))
        yield text[at : at + generator.choice((10, 100, 5000))]
        data = "".join(random_character(generator) for _ in range(generator.choice((1, 5, 40)))).encode()
        yield data
        at = generator.randrange(len(data))
        yield data[:at] + bytes([generator.randrange(256)]) + data[at + 1 :]


def compare(program, decode, vocabulary, path):
    n = 0
    for n, text in enumerate(random_texts(open(path, "rb").read(), 300), 1):
        run = subprocess.run([decode, "tokenize", vocabulary, "-f", "-"], input=text, capture_output=True)
        ids, found = run.stdout.decode().split(), llama_ids(program, vocabulary, text)
        if ids != found:
            sys.exit(f"{text!r} is {ids}, by llama.cpp {found}; {run.stderr.decode()}")
    print(f"{n} texts have the same ids")


def main():
    args = sys.argv[1:]
    if args == ["make-test-data"]:
        make_test_data()
    elif args[:1] == ["make-chars-data"] and len(args) == 3:
        make_chars_data(*args[1:])
    elif args[:1] == ["check"] and len(args) == 2:
        check(args[1])
    elif args[:1] == ["compare"] and len(args) == 5:
        compare(*args[1:])
    elif args[:1] == ["encode"] and len(args) == 3:
        tokenizer = Tokenizer(bpe.read_metadata(args[1]))
        print(*tokenizer.encode(open(args[2], "rb").read()))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
