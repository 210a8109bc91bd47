"""SentencePiece's own file, tokenizer.model: its pieces, and its settings, which decide ids as much. transformers reads
the pieces alone; the reference for the settings is SentencePiece itself."""
import math
import os

from . import ids
from .files import read_json, regular
from .process import bad, say, shown
from .shapes import SPACE, TOKEN

NAME = "tokenizer.model"
WEIGHTS_ALONE = "--tokenizer none imports the weights alone"
UNUSED = 5  # a type of pieces, which GGUF took over
# remove_extra_whitespaces as regular expressions, and what takes the place of what they find.
SPACES_DROPPED = (("^ +|[ \u2581]+$", ""), (" {2,}", " "))
MOST_PIECES = 1 << 24


def is_model(path):
    """Returns whether a file is one of SentencePiece's, which begins with its first piece. (Llama 3's tokenizer.model
    is text.)"""
    with open(regular(path, "SentencePiece's model"), "rb") as file:
        return file.read(1) == b"\n"


def parsed(path):
    """Returns the message of Protocol Buffers that a file holds. Fails where it holds none, or no pieces."""
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    try:
        with open(path, "rb") as file:
            model.ParseFromString(file.read())
    except DecodeError as error:
        bad(path, f"expected SentencePiece's model, found a file that is cut short or another: {error}")
    if not 0 < len(model.pieces) < MOST_PIECES:
        bad(path, f"expected SentencePiece's model of 1 to {MOST_PIECES - 1} pieces, found {len(model.pieces)}")
    return model


def check_settings(path, model):
    """Fails, by SentencePiece's names, on settings that change ids or texts and that decode lacks. The settings that
    are not looked at are for training alone."""
    trained, norm, back = model.trainer_spec, model.normalizer_spec, model.denormalizer_spec
    kinds = type(trained).ModelType
    kind = kinds.Name(trained.model_type)
    for name, found, expected, why in (
            ("model_type", kind, kind if kind in ("BPE", "CHAR") else "BPE or CHAR", "as decode merges characters"),
            ("treat_whitespace_as_suffix", trained.treat_whitespace_as_suffix, False, "as a space begins a word"),
            ("escape_whitespaces", norm.escape_whitespaces, True, "as spaces are U+2581 in pieces"),
            ("normalizer", charsmap(norm), "identity", "as decode changes no character"),
            ("denormalizer", charsmap(back), "identity", "as decode changes no character")):
        if found != expected:
            bad(path, f"{name}: expected {expected}, {why}, found {found}; {WEIGHTS_ALONE}")


def charsmap(norm):
    """Returns the name of the mapping of characters; identity where it maps none, whatever its name is."""
    return f"{norm.name or 'one without a name'}, a table of characters" if norm.precompiled_charsmap else "identity"


class Model:
    """A vocabulary: `tokens`, `types` and `scores` by id, `keys` of GGUF, `names` of what is found before all others,
    and SentencePiece's `encode`. What transformers keeps beside the file (added tokens, which of them begin and end a
    text) counts, however the file was named. Fails where a setting is none of decode's, or where `others`, a
    tokenizer.json, has other tokens."""

    def __init__(self, path, others=None):
        self.path, model = path, parsed(path)
        check_settings(path, model)
        self.tokens = {i: piece.piece for i, piece in enumerate(model.pieces)}
        self.types = {i: TOKEN(piece.type) for i, piece in enumerate(model.pieces)}
        self.scores = {i: float(piece.score) for i, piece in enumerate(model.pieces)}
        for i, score in self.scores.items():
            if not math.isfinite(score):
                bad(path, f"score of piece {i}, {self.tokens[i]!r}: expected a finite number, found {score}")
        self.processor = processor(path, model)
        folder = os.path.dirname(path)
        config = beside(folder, "tokenizer_config.json")
        fast = self.same_tokens(others) if others else {}
        self.add_tokens(folder, config, fast)
        unknown = [i for i, kind in self.types.items() if kind == TOKEN.UNKNOWN]
        bos, self.eos, padding = (self.id_of(name, config, own) for name, own in (
            ("bos", self.processor.bos_id()), ("eos", self.processor.eos_id()), ("pad", self.processor.pad_id())))
        adds_bos = config.get("add_bos_token", begins_with_token(fast))
        self.keys = {"model": "llama", "add_space_prefix": bool(model.normalizer_spec.add_dummy_prefix),
                     "remove_extra_whitespaces": bool(model.normalizer_spec.remove_extra_whitespaces) or None,
                     "unknown_token_id": unknown[0] if unknown else None, "bos_token_id": bos,
                     "add_bos_token": bool(adds_bos) and bos is not None, "padding_token_id": padding}
        if config.get("add_eos_token"):
            say(f"{path}: the tokens that the tokenizer puts behind every text are not put there")
        self.check_symbols()
        self.specials = {self.tokens[i] for i, kind in self.types.items() if self.tokens[i] and (
            kind in (TOKEN.CONTROL, TOKEN.UNKNOWN) or i >= len(model.pieces))}
        self.names = [self.tokens[i] for i, kind in self.types.items() if kind == TOKEN.USER_DEFINED]

    def check_symbols(self):
        """Marks user-defined symbols, which are found in the text before spaces become U+2581. One that SentencePiece
        never finds, such as one with a space in its name, is unused."""
        for i in range(self.processor.piece_size()):
            name = self.tokens[i].replace(SPACE, " ")
            if self.types[i] != TOKEN.USER_DEFINED:
                continue
            if i in self.processor.encode(name) or i in self.processor.encode("a" + name):
                self.tokens[i] = name
            else:
                say(f"{self.path}: no text has token {i}, {self.tokens[i]!r}, says SentencePiece: it is unused")
                self.tokens[i], self.types[i] = f"[PAD{i}]", TOKEN.UNUSED

    def same_tokens(self, path):
        """Returns the table of a tokenizer.json, which must have the same tokens."""
        table = read_json(path)
        model = table.get("model")
        vocab = model.get("vocab") if isinstance(model, dict) else None
        for i, piece in self.tokens.items():
            if not isinstance(vocab, dict) or vocab.get(piece) != i:
                bad(path, f"expected the tokens of {NAME} beside it, found token {i}, {piece!r}, to be another; "
                          "--tokenizer FILE names the one that counts")
        return table

    def add_tokens(self, folder, config, fast):
        """Returns the tokens that transformers finds in a text before SentencePiece sees it, from every place where its
        versions have written them."""
        entries = [(i, token) for i, token in table_of(config, "added_tokens_decoder").items()]
        entries += [(i, {"content": name}) for name, i in beside(folder, "added_tokens.json").items()]
        entries += [(token.get("id"), token) for token in fast.get("added_tokens") or () if isinstance(token, dict)]
        n_pieces = len(self.tokens)
        for i, token in entries:
            name = token.get("content") if isinstance(token, dict) else None
            i = int(i) if isinstance(i, (int, str)) and str(i).isdecimal() and len(str(i)) < 9 else -1
            if not isinstance(name, str) or i < 0 or (i < n_pieces and self.tokens[i] != name):
                bad(self.path, f"added token {shown(name)}: expected an id of its own, found {i}, which is "
                               f"{self.tokens.get(i)!r} there")
            if self.types.get(i) not in (TOKEN.CONTROL, TOKEN.UNKNOWN):
                self.types[i] = TOKEN.CONTROL if token.get("special") else TOKEN.USER_DEFINED
            self.tokens[i] = name
            self.scores.setdefault(i, 0.0)

    def id_of(self, name, config, own):
        """Returns the id of the token that begins, ends or fills a text: transformers' one, or `own`, the file's. None:
        there is none."""
        said = config.get(f"{name}_token")
        said = said.get("content") if isinstance(said, dict) else said
        found = next((i for i, token in self.tokens.items() if token == said), None) if said else None
        return found if found is not None else own if own >= 0 else None

    def encode(self, text):
        return self.processor.encode(text)

    def texts(self):
        """Returns odd texts without the tokens of transformers alone, which are text to SentencePiece."""
        return [text for text in ids.odd_texts(self.names) if not any(name in text for name in self.specials)]


def processor(path, model):
    """Returns SentencePiece with the model. It refuses an empty piece, which matches nothing, so that gets a name that
    no text has, and is unused."""
    from sentencepiece import SentencePieceProcessor
    for i, piece in enumerate(model.pieces):
        if not piece.piece:
            piece.piece, piece.type = f"\ufdd0{i}", UNUSED
    try:
        return SentencePieceProcessor(model_proto=model.SerializeToString())
    except (RuntimeError, ValueError, OSError) as error:
        bad(path, f"expected SentencePiece's model, found one that it does not read: {error}")


def beside(folder, name):
    """Returns a table that stands beside the file; empty where there is none."""
    path = os.path.join(folder, name)
    return read_json(path) if os.path.lexists(path) else {}


def table_of(config, key):
    found = config.get(key)
    return found if isinstance(found, dict) else {}


def begins_with_token(fast):
    """Returns whether a tokenizer.json puts a token before every text; Llama's tokenizer does where there is none."""
    if not fast:
        return True
    steps = fast.get("post_processor") or {}
    for step in steps.get("processors") or [steps]:
        single = step.get("single") if isinstance(step, dict) else None
        if isinstance(single, list) and single and isinstance(single[0], dict):
            return "SpecialToken" in single[0]
    return False
