"""The vocabulary of a model: tokens by id, their types and scores, GGUF's keys, and the ids that its own library has of
a text."""
import json
import os
import re
import tempfile
from dataclasses import dataclass, field
from typing import Callable

from . import ids, spm
from .files import read_json, regular
from .process import bad, say, shown
from .shapes import MOST, SPACE, TOKEN
from .torchfile import loaded

WEIGHTS_ALONE = "--tokenizer none imports the weights alone"
# A tokenizer of transformers is made of these files; it sees nothing else of a folder.
BESIDE = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
FILES = ("tokenizer.json", spm.NAME, "vocab.json", "merges.txt")
NONE = 0xFFFFFFFF  # the id that GGUF has for none
# The steps that SentencePiece's BPE in tokenizer.json may have before it merges, as decode does: spaces are marked
# (Gemma's then cuts at spaces, of which none are left), and dropped at both ends and behind another one (which
# export.py writes).
SPACES_MARKED = ({"type": "Prepend", "prepend": SPACE},
                 {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
                 {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False})
SPACES_DROPPED = tuple({"type": "Replace", "pattern": {"Regex": regex}, "content": content}
                       for regex, content in spm.SPACES_DROPPED)


@dataclass
class Vocabulary:
    """`keys` are those behind tokenizer.ggml. that do not follow from the tokens; `names` are those of added tokens,
    which are found in a text before all others."""
    tokens: dict
    types: dict
    scores: dict | None
    keys: dict
    eos: int | None
    library: str
    encode: Callable[[str], list | None]
    names: list = field(default_factory=list)
    texts: Callable[[], list] | None = None

    def odd_texts(self):
        return self.texts() if self.texts else ids.odd_texts(self.names)


def check_ids(path, table):
    """Fails unless the ids of vocab.json, or of a tokenizer.json's vocabulary, are ids that tokens may have: the
    library makes room for all below the highest."""
    model = table.get("model") if "model" in table else table
    vocab = model.get("vocab") if isinstance(model, dict) and "vocab" in model else model
    for name, i in vocab.items() if isinstance(vocab, dict) else ():
        if type(i) is int and not 0 <= i <= MOST:
            bad(path, f"token {name!r}: expected an id of 0 to {MOST}, found {i}")


def load_alone(path, files):
    """Returns the tokenizer that AutoTokenizer makes of these files of a folder, by the names it looks for. It sees no
    others, of config.json only the kind of model, and no code: names of classes outside of transformers are left out.
    Fails with the library's reason."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    options, tokenizer_class = {}, AutoTokenizer
    with tempfile.TemporaryDirectory() as folder:
        for name, file in files.items():
            to = os.path.join(folder, name)
            if name in ("vocab.json", "tokenizer.json"):
                check_ids(file, read_json(file))
            if name in ("config.json", "tokenizer_config.json"):
                table = read_json(file)
                kept = ("model_type", "tokenizer_class") if name == "config.json" else table.keys() - {"auto_map"}
                with open(to, "w", encoding="utf-8") as copy:
                    json.dump({key: table[key] for key in table if key in kept}, copy)
                if name == "config.json" and not isinstance(table.get("model_type"), str):
                    os.unlink(to)
            else:
                os.symlink(os.path.abspath(regular(file)), to)
        if not os.path.exists(os.path.join(folder, "config.json")):  # nanoGPT's, or a file alone
            if "tokenizer.json" in files:
                tokenizer_class = PreTrainedTokenizerFast
            else:
                options["tokenizer_type"] = "gpt2"
        try:
            return tokenizer_class.from_pretrained(folder, trust_remote_code=False, **options)
        except (MemoryError, ImportError):
            raise
        except Exception as error:
            bad(path, f"expected a tokenizer that transformers reads, found one of which it says: {error}; "
                      f"{WEIGHTS_ALONE}")


def steps_of(said, place):
    """Yields the steps of a tokenizer.json at one place, one after another."""
    step = said.get(place) or {}
    return [step for step in step.get("normalizers") or step.get("pretokenizers") or [step] if step]


def check_spaces(path, said):
    """Returns True if SentencePiece's BPE in tokenizer.json drops extra spaces, else None. Fails, by name, on steps
    that decode lacks."""
    drops = False
    for place in ("normalizer", "pre_tokenizer"):
        for step in steps_of(said, place):
            is_marking = step in SPACES_MARKED or (step.get("type") == "Metaspace" and step.get("replacement") == SPACE)
            drops |= step in SPACES_DROPPED
            if not is_marking and step not in SPACES_DROPPED:
                bad(path, f"{place} {step.get('type')}: expected spaces marked with U+2581 and nothing else, as decode "
                          f"does, found {json.dumps(step):.200}; {WEIGHTS_ALONE}")
    return drops or None


def cut_of(path, said, backend):
    """Returns the name in GGUF of a byte-level tokenizer's cut, and whether it puts a space before a text that begins
    with none. Fails, by name, on cuts that decode lacks, and on steps that change the text before, except NFC."""
    for step in steps_of(said, "normalizer"):
        if step["type"] != "NFC":
            bad(path, f"normalizer {step['type']}: expected none or NFC, as decode changes no other character, found "
                      f"{json.dumps(step):.200}; {WEIGHTS_ALONE}")

    def pieces(cut, before=""):
        return [[piece for piece, _ in cut.pre_tokenize_str(before * (text[:1] not in ("", " ")) + text)]
                for text in ids.odd_texts()]

    theirs = pieces(backend.pre_tokenizer)
    for name, cut in ids.cuts().items():
        for before in ("", " "):
            if pieces(cut, before) == theirs:
                return name, before == " "
    bad(path, f"tokenizer: expected the cut {', '.join(ids.cuts())}, found "
              f"{json.dumps(said.get('pre_tokenizer')):.300}; {WEIGHTS_ALONE}")


def of_transformers(path, tok):
    """Returns the vocabulary of a tokenizer that transformers has loaded. Fails unless it is BPE of bytes with a cut
    that decode has, or of characters with marked spaces."""
    backend = getattr(tok, "backend_tokenizer", None)
    said = json.loads(backend.to_str()) if backend else {"model": {"type": type(tok).__name__}}
    model, steps = said["model"], json.dumps([said.get("normalizer"), said.get("pre_tokenizer")])
    unusual = [k for k in ("dropout", "continuing_subword_prefix", "end_of_word_suffix") if model.get(k)]
    if model["type"] != "BPE" or unusual or not ("ByteLevel" in steps or r"\u2581" in steps):
        bad(path, f"tokenizer: expected BPE of bytes, or with U+2581 for spaces, found {model['type']} "
                  f"{' '.join(unusual)} {steps:.200}; {WEIGHTS_ALONE}")
    tokens = {i: name for name, i in backend.get_vocab(with_added_tokens=True).items()}
    types = dict.fromkeys(tokens, TOKEN.NORMAL)
    special = {token["id"]: token["special"] for token in said["added_tokens"]}
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]

    def encode(text):
        return tok(text, add_special_tokens=False)["input_ids"]

    if "ByteLevel" in steps:
        (pre, spaced), scores = cut_of(path, said, backend), None
        if pre == "llama-bpe" and not model["ignore_merges"]:
            pre = "dbrx"  # the same cut; llama-bpe takes a piece that is a token as that token
        keys = {"model": "gpt2", "pre": pre, "merges": [" ".join(m) for m in merges],
                "add_space_prefix": spaced or None}
        if steps_of(said, "normalizer"):
            keys["replacements"], keys["marks"] = ids.compositions()
    else:
        drops = check_spaces(path, said)
        made, unk = {}, backend.token_to_id(model["unk_token"] or "")
        for left, right in merges:  # a token's score: minus the number of tokens that are made before it
            made.setdefault(left + right, -float(len(made)))
        scores = {i: made.get(name, -float(len(made))) for i, name in tokens.items()}
        space = backend.encode("a", add_special_tokens=False).tokens[0].startswith(SPACE)
        scheme = next((step["prepend_scheme"] for step in steps_of(said, "pre_tokenizer")
                       if space and step.get("prepend_scheme") in ("first", "always")), None)
        keys = {"model": "llama", "add_space_prefix": space, "unknown_token_id": unk,
                "remove_extra_whitespaces": drops, "prepend_scheme": scheme}
        for i, name in tokens.items():
            if re.fullmatch("<0x[0-9A-F]{2}>", name):
                types[i] = TOKEN.BYTE
            elif len(name) > 1 and name not in made and i in encode(name):
                special.setdefault(i, False)  # one of SentencePiece's user-defined symbols
    for i, is_special in special.items():
        types[i] = TOKEN.CONTROL if is_special else TOKEN.USER_DEFINED
        if i not in encode(tokens[i]):
            types[i] = TOKEN.UNUSED
            say(f"{path}: no text has token {i}, {tokens[i]!r}: others are found first; it is unused")
    types |= {i: TOKEN.UNKNOWN for i in [keys.get("unknown_token_id")] if i is not None}
    plain, whole = encode("a"), tok("a")["input_ids"]
    before = next((i for i in (0, 1) if whole[i : i + len(plain)] == plain), None)
    if before is None:
        bad(path, f"tokenizer: expected one token or none before {plain}, found {whole}; {WEIGHTS_ALONE}")
    if before + len(plain) < len(whole):
        say(f"{path}: the tokens that the tokenizer puts behind every text are not put there")
    keys |= {"add_bos_token": before == 1, "bos_token_id": whole[0] if before else tok.bos_token_id,
             "padding_token_id": tok.pad_token_id}
    return Vocabulary(tokens, types, scores, keys, tok.eos_token_id, "transformers", encode,
                      [tokens[i] for i in special])


def of_letters(path, table):
    """Returns the vocabulary of nanoGPT's single characters, from a table of ids. Fails unless each has an id of its
    own."""
    if not isinstance(table, dict) or not table:
        bad(path, f"expected a table of characters and ids, found {shown(table)}")
    for name, i in table.items():
        if not isinstance(name, str) or type(i) is not int or not 0 <= i < 1 << 24:
            bad(path, f"expected a table of characters and ids, found {shown(name)} with {shown(i)}")
    tokens = {i: name.replace(" ", SPACE) for name, i in table.items()}
    if len(tokens) != len(table):
        bad(path, f"expected an id for each of {len(table)} characters, found {len(tokens)} ids")
    return Vocabulary(
        tokens, dict.fromkeys(tokens, TOKEN.NORMAL), dict.fromkeys(tokens, 0.0),
        {"model": "llama", "add_space_prefix": False}, None, "the table",
        lambda text: [table[c] for c in text] if set(text) <= table.keys() else None)


def of_sentencepiece(path, others=None):
    """Returns the vocabulary of a tokenizer.model; `others` is a tokenizer.json whose tokens must be the same."""
    m = spm.Model(path, others)
    return Vocabulary(m.tokens, m.types, m.scores, m.keys, m.eos, "SentencePiece", m.encode, m.names, m.texts)


def of_folder(path):
    """Returns the folder's vocabulary, found as transformers finds it, except that SentencePiece's own file has
    precedence over what was made of it. None: the folder has none."""
    there = {name: os.path.join(path, name) for name in (*FILES, *BESIDE) if os.path.lexists(os.path.join(path, name))}
    if not there.keys() & set(FILES):
        return None
    if spm.NAME in there and spm.is_model(there[spm.NAME]):
        return of_sentencepiece(there[spm.NAME], there.get("tokenizer.json"))
    if "tokenizer.json" in there:
        return of_transformers(path, load_alone(path, {
            name: file for name, file in there.items() if name in ("tokenizer.json", *BESIDE)}))
    if spm.NAME in there:
        bad(there[spm.NAME], f"expected SentencePiece's model, found another file; {WEIGHTS_ALONE}")
    if "merges.txt" not in there:
        return of_letters(there["vocab.json"], read_json(there["vocab.json"]))
    return of_transformers(path, load_alone(path, there))


def of_file(path):
    """Returns the vocabulary of a file, by its first bytes: tokenizer.json, SentencePiece's, nanoGPT's meta.pkl, or a
    table of letters. Files beside it in a folder of transformers count as they do there."""
    with open(regular(path), "rb") as file:
        first = file.read(1)
    if first == b"\x80":
        with open(path, "rb") as file:
            found = loaded(path, file.read())
        return of_letters(path, found.get("stoi") if isinstance(found, dict) else found)
    if first == b"{":
        found = read_json(path)
        if "model" not in found:
            return of_letters(path, found)
        beside = os.path.dirname(path) if os.path.basename(path) == "tokenizer.json" else None
        files = {name: os.path.join(beside, name) for name in BESIDE if beside is not None}
        files = {name: file for name, file in files.items() if os.path.lexists(file)} | {"tokenizer.json": path}
        return of_transformers(path, load_alone(path, files))
    if not spm.is_model(path):
        bad(path, "expected tokenizer.json, tokenizer.model, nanoGPT's meta.pkl or a vocab.json of letters, "
                  "found none of these; a tokenizer.bin was made from one of them")
    return of_sentencepiece(path)


def read(path):
    """Returns the vocabulary of a folder, None where it has none, or of a file."""
    return of_folder(path) if os.path.isdir(path) else of_file(path)


def keys_of(path, v, n, ends):
    """Returns the keys tokenizer.ggml.* of n tokens. `ends` end a text by the model's configuration, and so does the
    tokenizer's own EOS, which comes first if it is one of them."""
    ends = [i for i in ends if type(i) is int]
    ends = dict.fromkeys([v.eos] * (v.eos in ends) + ends + [v.eos])
    ends = [i for i in ends if isinstance(i, int) and 0 <= i < n]
    if len(ends) > 3:
        say(f"{path}: expected at most 3 ids that end a text, as GGUF has, found {ends}: the rest is out")
    if beyond := [name for i, name in v.tokens.items() if i >= n]:
        say(f"{path}: {len(beyond)} tokens, such as {beyond[0]!r}, are beyond the model's {n}: left out")
    if empty := [i for i, name in v.tokens.items() if not name and i < n]:
        say(f"{path}: warning: expected no empty token, found token {empty[0]} empty, {len(empty)} in all: no text has "
            "it, it is unused")
    types = v.types | dict.fromkeys(empty, TOKEN.UNUSED)
    # Where a vocabulary with scores has no BOS or EOS, readers take 1 and 2 unless a key says none.
    keys = {f"{name}_token_id": NONE for name in ("bos", "eos") if v.scores} | {
        key: x for key, x in v.keys.items() if x is not None and (not key.endswith("_id") or x < n)}
    keys |= {f"{name}_token_id": i for name, i in zip(("eos", "eot", "eom"), ends)} | {
        "tokens": [v.tokens.get(i, f"[PAD{i}]") for i in range(n)],
        "token_type": [types.get(i, TOKEN.UNUSED) for i in range(n)]}
    if v.scores:
        keys["scores"] = [v.scores.get(i, 0.0) for i in range(n)]
    own = {"replacements", "marks", "prepend_scheme"}  # GGUF has none of these: llama.cpp passes over them
    return {f"tokenizer.{'decode' if key in own else 'ggml'}.{key}": value for key, value in keys.items()}
