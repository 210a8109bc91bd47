"""What other people's files and a hostile hand bring to import.py and export.py: settings of tokenizers, code, sizes,
control characters, signals, disks. Each kind by several forms; check_import.py runs CHECKS, each in a new folder."""
import collections
import io
import json
import os
import pickle
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import types
import zipfile

import numpy as np

from import_checks import (HF, check, close, export, exports, folder, ids, import_, imports, keys, load_file,
                           logits, process, read_json, script)
from exchange import files, output

CHECKS = []
LARGEST = 600 << 20  # bytes that a run on a small file may take beside what the libraries do


def checks(function):
    CHECKS.append(function)
    return function


def put(path, data):
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def llama(path, n_vocab=400, **config):
    """A folder of a Llama with so many tokens, and no vocabulary."""
    tensors, rng = load_file(HF + "llama/model.safetensors"), np.random.default_rng(1)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = rng.normal(size=(n_vocab, 64)).astype(np.float32)
    return folder(path, HF + "llama", tensors, vocab_size=n_vocab, **config)


def forked(run):
    """The status of run() in a process of its own, and how many bytes it took beside what this one has."""
    before = int(open("/proc/self/statm", encoding="ascii").read().split()[1]) * resource.getpagesize()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        status = 99
        try:
            status = run()
        finally:
            os._exit(status)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), max(0, usage.ru_maxrss * 1024 - before)


def takes_little(what, module=imports, status=3, **args):
    """Like script(), and the run takes little memory. The line that it says."""
    args = {"type": None, "ctx": None, "tokenizer": None, "force": False} | args if module is imports else {"expand": False} | args
    read, write = os.pipe()

    def run():
        return process.run(lambda: module.main(types.SimpleNamespace(**args)), args.get("IN") or args["MODEL"],
                           os.fdopen(write, "w", encoding="utf-8"))
    found, taken = forked(run)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as file:
        said = file.read()
    check(f"{what}: exit status {status}", found == status, f"{found}: {said}")
    check(f"{what}: memory", taken < LARGEST, f"{taken >> 20} MiB")
    check(f"{what}: one printable line", said.count("\n") == 1 and said[:-1].isprintable(), said)
    return said


# --- tokenizers ------------------------------------------------------------------------------------

TEXTS = ["hello world", "the cat  sat", " how are you", "  two", "Hello There World", "a ", "x==y  ", "naïve", "日本語",
         "ﬁ ½", "a▁b", "   ", "a<sep>b", "a\tb \n c", "▁", "1 22 333"]
SPM = {  # options of spm_train, and what refuses the model; None: the ids are SentencePiece's
    "as Llama's": ({}, None), "no dummy prefix": ({"add_dummy_prefix": False}, None),
    "extra spaces": ({"remove_extra_whitespaces": True}, None),
    "extra spaces, no prefix": ({"remove_extra_whitespaces": True, "add_dummy_prefix": False}, None),
    "suffix": ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix"),
    "nfkc": ({"normalization_rule_name": "nfkc"}, "normalizer"),
    "nmt_nfkc_cf": ({"normalization_rule_name": "nmt_nfkc_cf"}, "normalizer"),
    "unigram": ({"model_type": "unigram"}, "UNIGRAM"), "word": ({"model_type": "word", "vocab_size": 22}, "WORD"),
    "characters": ({"model_type": "char", "vocab_size": 60}, None),
    "no bytes": ({"byte_fallback": False, "vocab_size": 90}, None), "no ends": ({"bos_id": -1, "eos_id": -1}, None),
    "symbols": ({"user_defined_symbols": ["<sep>", "▁▁", "  "], "add_dummy_prefix": False}, None)}


def trained(dir, **options):
    """The path of a tokenizer.model."""
    from sentencepiece import SentencePieceTrainer
    words = "the cat sat on a mat hello world how are you there 1 22 333 x==y naïve привет".split()
    text = [" ".join(words[i * i % 17 + k % 2] if k % 3 else words[(i + k) % 18] for k in range(8)) for i in range(400)]
    model = io.BytesIO()
    options = {"model_type": "bpe", "vocab_size": 320, "normalization_rule_name": "identity", "byte_fallback": True,
               "remove_extra_whitespaces": False, "hard_vocab_limit": False, "minloglevel": 2} | options
    if options["model_type"] in ("char", "word"):
        del options["byte_fallback"]
    SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=model, **options)
    return put(f"{dir}/tokenizer.model", model.getvalue())


@checks
def sentencepiece_settings(dir):
    from sentencepiece import SentencePieceProcessor
    for n, (name, (options, refusal)) in enumerate(SPM.items()):
        os.mkdir(f"{dir}/{n}")
        model, out = trained(f"{dir}/{n}", **options), f"{dir}/{n}.gguf"
        theirs = SentencePieceProcessor(model)
        source = llama(f"{dir}/{n}/model", theirs.piece_size())
        import_(source, out, 3 * bool(refusal), ["expected", refusal] if refusal else (), tokenizer=model)
        shutil.copy(model, source)
        import_(source, f"{dir}/again.gguf", 3 * bool(refusal), refusal or ())
        if refusal:
            continue
        check(f"{name}: both ways", keys(out)[0] == keys(f"{dir}/again.gguf")[0])
        for text in TEXTS:
            expected = theirs.encode(text)
            if theirs.unk_id() in expected:
                continue  # decode refuses it
            check(f"{name}: ids of {text!r}", ids(out, text) == expected, f"{expected} {ids(out, text)}")
        export(out, f"{dir}/out", says="odd texts get the ids of AutoTokenizer")
        import_(f"{dir}/out", f"{dir}/again.gguf")
        check(f"{name}: out and in", all(ids(f"{dir}/again.gguf", text) == ids(out, text) for text in TEXTS[:9]
                                         if theirs.unk_id() not in theirs.encode(text)))


@checks
def settings_by_hand(dir):
    """What spm_train does not write, but files have."""
    from sentencepiece import sentencepiece_model_pb2
    source = llama(f"{dir}/model", 320)
    for n, (change, says) in enumerate((
            (lambda m: setattr(m.normalizer_spec, "escape_whitespaces", False), "escape_whitespaces"),
            (lambda m: setattr(m.normalizer_spec, "precompiled_charsmap", b"\1\2\3\4"), "normalizer"),
            (lambda m: setattr(m.denormalizer_spec, "precompiled_charsmap", b"\1\2\3\4"), "denormalizer"),
            (lambda m: setattr(m.pieces[300], "score", float("nan")), "score of piece 300"),
            (lambda m: m.ClearField("pieces"), "tokenizer.model"),
            (lambda m: setattr(m.pieces[300], "piece", m.pieces[301].piece), "does not read"))):
        m = sentencepiece_model_pb2.ModelProto()
        m.ParseFromString(open(trained(dir), "rb").read())
        change(m)
        import_(source, f"{dir}/x.gguf", 3, ["expected", says], tokenizer=put(f"{dir}/{n}.model", m.SerializeToString()))
    put(f"{source}/tokenizer.model", b"IQ== 0\nIg== 1\n")  # Llama 3's own format
    import_(source, f"{dir}/x.gguf", 3, "SentencePiece's model")
    shutil.copy(HF + "llama/tokenizer.json", source)
    import_(source, f"{dir}/x.gguf")
    trained(source)
    import_(source, f"{dir}/x.gguf", 3, ["expected the tokens of tokenizer.model", "--tokenizer FILE"])
    import_(source, f"{dir}/x.gguf", says="SentencePiece", tokenizer=f"{source}/tokenizer.model")


@checks
def added_tokens(dir):
    """Where transformers keeps what it adds to SentencePiece's pieces; what begins and ends a text."""
    source, out = llama(f"{dir}/model", 330), f"{dir}/x.gguf"
    trained(source)
    put(f"{source}/added_tokens.json", {"<tool>": 321})
    put(f"{source}/tokenizer_config.json", {
        "add_bos_token": False, "eos_token": {"content": "<|im_end|>"},
        "added_tokens_decoder": {"320": {"content": "<|im_end|>", "special": True}}})
    import_(source, out)
    found = keys(out)[0]
    check("added tokens are tokens", ids(out, "a<|im_end|>")[-1] == 320 and ids(out, "<tool>") == [321])
    check("their types", found["tokenizer.ggml.token_type"][320:323] == [3, 4, 5], found["tokenizer.ggml.token_type"][319:])
    ends = [found.get(f"tokenizer.ggml.{key}") for key in ("eos_token_id", "bos_token_id", "add_bos_token")]
    check("what begins and ends a text", ends == [2, 1, False], ends)
    put(f"{source}/added_tokens.json", {"<tool>": 5})
    import_(source, out, 3, ["added token '<tool>'", "id of its own"])


@checks
def empty_tokens(dir):
    from sentencepiece import sentencepiece_model_pb2
    source, out = llama(f"{dir}/model", 321), f"{dir}/x.gguf"
    m = sentencepiece_model_pb2.ModelProto()
    m.ParseFromString(open(trained(dir), "rb").read())
    m.pieces.add(piece="", score=-1, type=1)
    import_(source, out, says=["empty token", "320"], tokenizer=put(f"{dir}/empty.model", m.SerializeToString()))
    check("SentencePiece's empty piece", keys(out)[0]["tokenizer.ggml.token_type"][320] == 5)
    table = read_json(HF, "llama/tokenizer.json")
    table["model"]["vocab"][""] = len(table["model"]["vocab"])
    import_(HF + "llama", out, says=["empty token"], tokenizer=put(f"{dir}/tokenizer.json", table))
    letters = {chr(ord("A") + i): i for i in range(60)} | {"": 60}
    import_("tests/data/nanogpt/bias", out, says=["empty token"], tokenizer=put(f"{dir}/vocab.json", letters))
    check("letters beside it", ids(out, "ABC") == [0, 1, 2])
    for letters in ({"a": -1}, {"a": 1.5}, {"a": 1, "b": 1}, {"a": 1 << 70}, {"a": None}, {}):
        import_("tests/data/nanogpt/bias", out, 3, "expected", tokenizer=put(f"{dir}/vocab.json", letters))


@checks
def tokenizers_that_do_more(dir):
    """Steps of tokenizer.json that decode does not have are refused by name."""
    out, table = f"{dir}/x.gguf", read_json(HF, "llama/tokenizer.json")
    marked = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    for step in ({"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True},
                 {"type": "Prepend", "prepend": "_"}):
        table["normalizer"] = {"type": "Sequence", "normalizers": [step, marked]}
        table["pre_tokenizer"], table["decoder"] = None, None
        import_(HF + "llama", out, 3, step["type"], tokenizer=put(f"{dir}/tokenizer.json", table))


@checks
def no_code_is_run(dir):
    """Neither by config.json, nor by tokenizer_config.json, nor by what stands in a pickle."""
    touched, out = f"{dir}/touched", f"{dir}/x.gguf"
    code = f"open({touched!r}, 'w')\nclass C: pass\n".encode()
    for name, table, status in (("config", {"auto_map": {"AutoConfig": "code.C"}}, 0),
                                ("foreign", {"auto_map": {"AutoConfig": "code.C"}, "model_type": "mine"}, 3)):
        source = folder(f"{dir}/{name}", HF + "llama", **table)
        put(f"{source}/code.py", code)
        put(f"{source}/tokenization_code.py", code)
        shutil.copy(HF + "llama/tokenizer.json", source)
        put(f"{source}/tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["code.C", "code.C"]}, "tokenizer_class": "C"})
        import_(source, out, status, "model_type" if status else "odd texts")
    source = folder(f"{dir}/gpt2", HF + "gpt2", auto_map={"AutoConfig": "code.C"})
    put(f"{source}/code.py", code)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(HF + f"gpt2/{name}", source)
    put(f"{source}/tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["code.C", None]}})
    import_(source, out)

    class Evil:
        def __reduce__(self):
            return open, (touched, "w")
    import_("tests/data/nanogpt/bias", out, 3, "open", tokenizer=put(f"{dir}/meta.pkl", pickle.dumps({"stoi": Evil()})))
    import_(archive(f"{dir}/evil.pt", {"model": Evil(), "model_args": {}}), out, 3, "open")
    check("no code was run", not os.path.exists(touched))


# --- sizes -----------------------------------------------------------------------------------------

class Name(collections.namedtuple("Name", "module name")):
    """A class or function of PyTorch, which need not be there."""
    def __call__(self):
        pass


class Tensor(collections.namedtuple("Tensor", "key type n offset size stride")):
    def __reduce_ex__(self, _):
        return Name("torch._utils", "_rebuild_tensor_v2"), (Stored(*self[:3]), *self[3:], False, collections.OrderedDict())


class Stored(collections.namedtuple("Stored", "key type n")):
    pass


class Pickler(pickle._Pickler):
    def persistent_id(self, obj):
        return ("storage", Name("torch", obj.type), obj.key, "cpu", obj.n) if isinstance(obj, Stored) else None

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, Name):
            self.write(f"c{obj.module}\n{obj.name}\n".encode())
        else:
            super().save(obj, save_persistent_id)


def archive(path, found, storages=None, compression=zipfile.ZIP_STORED):
    """A file as torch.save writes it."""
    data = io.BytesIO()
    Pickler(data, 2).dump(found)
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("archive/data.pkl", data.getvalue())
        for key, numbers in (storages or {}).items():
            file.writestr(f"archive/data/{key}", numbers)
    return path


NANO = {"n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 4, "vocab_size": 16, "bias": False}
NANO_SHAPES = {"transformer.wte.weight": (16, 8), "transformer.wpe.weight": (4, 8), "transformer.ln_f.weight": (8,),
               **{f"transformer.h.0.{name}.weight": shape for name, shape in (
                   ("ln_1", (8,)), ("ln_2", (8,)), ("attn.c_attn", (24, 8)), ("attn.c_proj", (8, 8)),
                   ("mlp.c_fc", (32, 8)), ("mlp.c_proj", (8, 32)))}}


def nano(path, args=(), change=None, compression=zipfile.ZIP_STORED, kind="FloatStorage", itemsize=4):
    """nanoGPT's ckpt.pt; change(state, storages) makes it another one."""
    state, storages = collections.OrderedDict(), {}
    for n, (name, shape) in enumerate(NANO_SHAPES.items()):
        size = int(np.prod(shape))
        state[name] = Tensor(str(n), kind, size, 0, shape, (shape[1], 1) if len(shape) == 2 else (1,))
        storages[str(n)] = bytes(size * itemsize)
    if change:
        change(state, storages)
    return archive(path, {"model": state, "model_args": NANO | dict(args), "iter_num": 1}, storages, compression)


@checks
def torch_files(dir):
    out, wte = f"{dir}/x.gguf", "transformer.wte.weight"
    source = "tests/data/nanogpt/bias"
    import_(f"{source}/ckpt.pt", out)
    tokens = open(f"{source}/tokens.txt", encoding="utf-8").read().replace(",", " ").split()
    close("PyTorch's own file", logits(out, tokens), np.load(f"{source}/logits.npy"))
    for kind, itemsize in (("FloatStorage", 4), ("HalfStorage", 2), ("BFloat16Storage", 2), ("DoubleStorage", 8)):
        import_(nano(f"{dir}/x.pt", kind=kind, itemsize=itemsize), out)

    def numbers(state, storages):  # transposed, from place 3 on
        storages["0"] = np.arange(3 + 128, dtype="<f4").tobytes()
        state[wte] = Tensor("0", "FloatStorage", 131, 3, (16, 8), (1, 16))
    import_(nano(f"{dir}/x.pt", change=numbers), out)
    check("strides", np.array_equal(keys(out)[1]["token_embd.weight"], np.arange(3, 131, dtype="f4").reshape(8, 16).T))

    def replace(**fields):
        return lambda state, storages: state.update({wte: state[wte]._replace(**fields)})

    def share(state, storages):  # 512 layers of one storage
        for name in [name for name in state if ".h.0." in name]:
            for layer in range(512):
                state[name.replace(".0.", f".{layer}.", 1)] = state[name]._replace(key="0", size=state[name].size)
        storages["0"] = bytes(32 * 8 * 4)
    for what, says, change, args in (
            ("an expanded tensor", wte, replace(stride=(0, 0), size=(16, 8), n=1, key="2"), {}),
            ("a large one", wte, replace(size=(1 << 24, 8), stride=(0, 0)), {"vocab_size": (1 << 24) - 1}),
            ("1.2e9 numbers of 8", wte, replace(size=(150000000, 8), stride=(0, 0)), {}),
            ("beyond its storage", wte, replace(offset=1), {}), ("before it", wte, replace(offset=-1), {}),
            ("backwards", wte, replace(stride=(-8, 1)), {}), ("no numbers", wte, replace(size=("a", 8)), {}),
            ("no record", "data/99", replace(key="99"), {}), ("integers", "int64", replace(type="LongStorage", n=64, size=(8, 8)), {}),
            ("shared", "used twice", share, {"n_layer": 512}), ("layers", "n_layer", None, {"n_layer": 1 << 31}),
            ("width", "n_embd", None, {"n_embd": None}), ("a table as size", "n_embd", None, {"n_embd": {}}),
            ("missing", "no such tensor", lambda state, _: state.pop(wte), {})):
        said = takes_little(what, IN=nano(f"{dir}/x.pt", args, change), OUT=out)
        check(f"{what}: says {says}", says in said and "expected" in said, said)
    nano(f"{dir}/bomb.pt", compression=zipfile.ZIP_DEFLATED,
         change=lambda state, storages: storages.update({"0": bytes(300 << 20)}))
    check("compressed", "compressed" in takes_little("compressed", IN=f"{dir}/bomb.pt", OUT=out))
    nested = ()
    for _ in range(60):
        nested = (nested, nested)
    takes_little("nested", IN=archive(f"{dir}/x.pt", {"model": {}, "model_args": NANO | {"n_layer": [nested]}}), OUT=out)
    whole = open(f"{source}/ckpt.pt", "rb").read()
    for n in range(0, len(whole), 1499):
        takes_little(f"cut after {n}", IN=put(f"{dir}/x.pt", whole[:n]), OUT=out)


@checks
def pickles_change_nothing(dir):
    """A type of NumPy's that is rewritten, calls of all kinds, a key that takes hours to look up."""
    import ml_dtypes
    out, one = f"{dir}/x.gguf", np.zeros(2, ml_dtypes.bfloat16)
    for what, says, data in (
            ("BUILD on a storage's type", "a dict is changed", b"ctorch\nBFloat16Storage\n(K\3X\1\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb."),
            ("BUILD on a type that is named", "ml_dtypes.bfloat16", b"cml_dtypes\nbfloat16\n}b."),
            ("SHORT_BINSTRING", "SHORT_BINSTRING", b"U\1|."), ("OBJ", "OBJ", b"(cos\nsystem\no."), ("INST", "INST", b"(ios\nsystem\n."),
            ("NEWOBJ", "NEWOBJ", b"\x80\2ccollections\nOrderedDict\n)\x81."), ("EXT1", "EXT1", b"\x82\1."),
            ("a name of names", "builtins.getattr", b"\x80\4\x8c\x08builtins\x8c\x07getattr\x93."),
            ("a type that is called", "called with something else", b"ctorch\nFloatStorage\n)R."),
            ("a table of tables", "as a key", b"}K\1" + b"".join(b"\x85" for _ in range(9)) + b"K\2s."),
            ("nested keys", "as a key", b"}K\1" + b"q\1h\1\x86" * 60 + b"K\2s."),
            ("an empty stack", "expected a pickle", b"0."), ("nothing", "expected a pickle", b"."), ("no end", "expected a pickle", b"}")):
        path = f"{dir}/x.pt"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", data)
        said = takes_little(what, IN=path, OUT=out)
        check(f"{what}: says {says}", says in said, said)
        said = takes_little(what, IN="tests/data/nanogpt/bias", OUT=out, tokenizer=put(f"{dir}/meta.pkl", data if data[:1] == b"\x80" else b"\x80\2" + data))
        check(f"{what}, meta.pkl: says {says}", says in said, said)
    check("NumPy's type is as it was", one.astype("f4").tolist() == [0, 0] and np.dtype(ml_dtypes.bfloat16).itemsize == 2)


@checks
def small_files_much_memory(dir):
    out = f"{dir}/x.gguf"
    for n, data in enumerate((b"\x80\x04}r\xff\xff\xff\x3f.", b"\x80\x04]r\xff\xff\xff\x7f.", b"\x80\x05\x96\0\0\0\0\0\1\0\0a.",
                              b"\x80\x04\x8e\0\0\0\0\0\1\0\0a.", b"\x80\x04\x95\0\0\0\0\0\1\0\0}.", b"\x80\x04}p99999999999\n.")):
        takes_little(f"meta.pkl {data}", IN="tests/data/nanogpt/bias", OUT=out, tokenizer=put(f"{dir}/meta.pkl", data))
    n = 0
    for source, key, value, status in (
            ("llama", "num_labels", 10**9, 0), ("gpt2", "num_labels", 10**9, 0), ("llama", "id2label", {"5": 10**9}, 0),
            ("llama", "num_hidden_layers", 10**9, 3), ("llama", "vocab_size", 10**9, 3), ("gpt2", "n_layer", 10**9, 3),
            ("gpt2", "n_positions", 1 << 62, 3), ("llama", "head_dim", 1 << 23, 3), ("llama", "intermediate_size", 1 << 23, 3)):
        n += 1
        source = folder(f"{dir}/f{n}", HF + source, **{key: value})
        if status:
            said = takes_little(f"{key}", IN=source, OUT=out)
            check(f"{key}: named", "expected" in said and "found" in said, said)
        else:
            import_(source, out)
    for header in ({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}},
                   {"a": {"dtype": "F32", "shape": [1 << 31, 1 << 31], "data_offsets": [0, 16]}}, {"a": 5}, []):
        text = json.dumps(header).encode()
        put(f"{dir}/f1/model.safetensors", struct.pack("<Q", len(text)) + text + bytes(64))
        check("a header", f"{dir}/f1/model.safetensors" in takes_little("header", IN=f"{dir}/f1", OUT=out))
    put(f"{dir}/f1/model.safetensors", struct.pack("<Q", 1 << 40) + b"{}")
    takes_little("a long header", IN=f"{dir}/f1", OUT=out)
    for head in ((64, 160, 2, 8, 2, 1 << 30, 128), (64, 160, 1 << 30, 8, 2, 400, 128), (64, 160, 2, 8, 2, 400, 1 << 30),
                 (1 << 23, 1 << 23, 2, 8, 2, 400, 8), (64, 160, 2, 8, 2, -1 << 31, 8)):
        takes_little(f"a .bin of {head}", IN=put(f"{dir}/x.bin", struct.pack("<7i", *head) + bytes(64)), OUT=out)
    takes_little("llm.c's rows", IN=put(f"{dir}/x.bin", struct.pack("<8i", 20240326, 3, 64, 400, 2, 4, 48, -1 << 31) + bytes(1100)),
                 OUT=out)
    table = read_json(HF, "llama/tokenizer.json")
    for id, says in ((99999, "beyond the model's"), ((1 << 32) - 1, "token 'zz'"), (1 << 31, "token 'zz'"), (-1, "token 'zz'")):
        table["model"]["vocab"]["zz"] = id
        import_(HF + "llama", out, 3 * (id != 99999), says, tokenizer=put(f"{dir}/tokenizer.json", table))
    put(f"{dir}/f1/config.json", b"[" * 100000)
    takes_little("nested", IN=f"{dir}/f1", OUT=out)


@checks
def hostile_models_out(dir):
    """export.py asks decode before it looks for what counts say."""
    model = open("models/shakespeare-llama.gguf", "rb").read()

    def changed(key, value, kind):
        at = model.index(key.encode()) + len(key)
        check(f"{key}: of type {kind}", struct.unpack_from("<I", model, at)[0] == kind)
        return model[: at + 4] + value + model[at + 4 + len(value):]
    for what, data in (("block_count", changed("llama.block_count", struct.pack("<I", 1 << 31), 4)),
                       ("head_count", changed("llama.attention.head_count", struct.pack("<I", 0), 4)),
                       ("array", changed("tokenizer.ggml.tokens", struct.pack("<IQ", 8, 1 << 40), 9)),
                       ("scores", changed("tokenizer.ggml.token_type", struct.pack("<IQ", 5, 1 << 60), 9)),
                       ("count", model[:8] + struct.pack("<QQ", 1 << 40, 1 << 40) + model[24:]), ("cut", model[:9000])):
        said = takes_little(f"export, {what}", exports, MODEL=put(f"{dir}/x.gguf", data), DIR=f"{dir}/out")
        check(f"export, {what}: decode's line", "decode does not read it" in said, said)
    check("nothing is left", os.listdir(dir) == ["x.gguf"], os.listdir(dir))


@checks
def keys_that_are_wrong_out(dir):
    """export.py names the key, and what is wrong with it; a long token is no argument of a command."""
    import gguf
    source = f"{dir}/x.gguf"
    import_(HF + "gpt2", source)
    found, tensors = keys(source)
    for key, value, says in (("merges", [1, 2], "expected a list of texts, found"), ("merges", ["ab"], "two parts"),
                             ("token_type", [1] * 5, "one for each of 400 tokens"), ("token_type", ["a"] * 400, "found str"),
                             ("merges", None, "expected a list, found none")):
        w = gguf.GGUFWriter(None, "gpt2")
        add = {int: w.add_uint32, float: w.add_float32, str: w.add_string, bool: w.add_bool, list: w.add_array}
        for name, x in (found | {f"tokenizer.ggml.{key}": value}).items():
            if not name.startswith("GGUF") and name != "general.architecture" and x is not None:
                add[type(x)](name, x)
        for name, x in tensors.items():
            w.add_tensor(name, x)
        w.write_header_to_file(f"{dir}/y.gguf")
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        said = export(f"{dir}/y.gguf", f"{dir}/out", 3)
        check(f"{key}: {says}", f"tokenizer.ggml.{key}" in said and (says in said or "decode does not read it" in said), said)
    table = read_json(HF, "llama/tokenizer.json")
    table["added_tokens"].append(table["added_tokens"][0] | {"id": 399, "content": "x" * 200_000})
    put(f"{dir}/tokenizer.json", table)
    import_(HF + "llama", source, says="odd texts get the ids", tokenizer=f"{dir}/tokenizer.json")


@checks
def memory_is_limited(dir):
    """What Python cannot check meets the limit, which is gone afterwards."""
    def run(n_bytes):
        def main():
            process.limit_memory(1 << 20)
            np.ones(n_bytes, np.uint8)
        return forked(lambda: process.run(main, "x", io.StringIO()))
    check("less than the limit", run(1 << 28)[0] == 0)
    status, taken = run(8 << 30)
    check("more than the limit", status == 4 and taken < 1 << 30, f"{status} {taken}")
    limit = resource.getrlimit(resource.RLIMIT_DATA)
    import_(HF + "llama", f"{dir}/x.gguf")
    check("the limit is as before", resource.getrlimit(resource.RLIMIT_DATA) == limit)


# --- messages --------------------------------------------------------------------------------------

@checks
def messages(dir):
    out, tensors, n = f"{dir}/x.gguf", load_file(HF + "llama/model.safetensors"), 0
    norm = "model.norm.weight"
    for change, says in (
            ({norm: None}, [norm.removeprefix("model."), "[64]", "no such tensor"]),
            ({"lm_head.weight": None}, ["tensor lm_head.weight", "[400, 64]", "no such tensor"]),
            ({norm: tensors[norm][:32]}, ["tensor norm.weight", "[64]", "F32 [32]"]),
            ({norm: tensors[norm].astype(np.float64)}, ["tensor norm.weight", "F64 [64]"]),
            ({norm: np.zeros(64, np.int64)}, ["tensor norm.weight", "I64 [64]"])):
        n += 1
        made = {name: array for name, array in (tensors | change).items() if array is not None}
        import_(folder(f"{dir}/t{n}", HF + "llama", made), out, 3, [f"{dir}/t{n}/model.safetensors", "expected", "found", *says])
    whole = open(HF + "llama/model.safetensors", "rb").read()
    length = struct.unpack("<Q", whole[:8])[0]
    for kind, size in (("F8_E4M3", 1), ("F8_E5M2", 1), ("F4", 0.5), ("I8", 1)):
        header = {"model.norm.weight": {"dtype": kind, "shape": [64], "data_offsets": [0, int(64 * size)]}}
        text = json.dumps(header).encode()
        table = read_json(HF, "llama/config.json")
        os.makedirs(f"{dir}/{kind}")
        put(f"{dir}/{kind}/config.json", table)
        put(f"{dir}/{kind}/model.safetensors", struct.pack("<Q", len(text)) + text + bytes(int(64 * size)))
        import_(f"{dir}/{kind}", out, 3, [f"{dir}/{kind}/model.safetensors", "expected", "found"])
    header = json.loads(whole[8 : 8 + length])
    header["model.embed_tokens.weight"] |= {"dtype": "F8_E4M3", "shape": [1600, 64]}
    text = json.dumps(header).encode()
    put(f"{dir}/t1/model.safetensors", struct.pack("<Q", len(text)) + text + whole[8 + length :])
    import_(f"{dir}/t1", out, 3, ["model.safetensors: tensor embed_tokens.weight", "F8_E4M3 [1600, 64]"])
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4096\n"
    for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer.model", "generation_config.json"):
        source = folder(f"{dir}/lfs-{name}", HF + "llama", generation={})
        put(f"{source}/{name}", pointer)
        import_(source, out, 3, [f"{source}/{name}", "Git LFS pointer", "git lfs pull"])
    import_(put(f"{dir}/x.bin", pointer), out, 3, "Git LFS pointer")
    script(exports, 3, "Git LFS pointer", MODEL=f"{dir}/x.bin", DIR=f"{dir}/out", expand=False)
    for source, key, value, says in (
            ("llama", "num_attention_heads", 0, "1 to"), ("llama", "num_key_value_heads", 0, "1 to"), ("gpt2", "n_head", 0, "1 to"),
            ("gpt2", "n_embd", -48, "1 to"), ("llama", "hidden_size", "64", "'64'"), ("llama", "hidden_size", None, "None"),
            ("llama", "num_hidden_layers", 1.5, "1.5"), ("llama", "head_dim", 0, "or null"), ("llama", "hidden_size", [64], "list"),
            ("llama", "hidden_act", ["silu"], "silu"), ("llama", "model_type", ["llama"], "model_type")):
        n += 1
        import_(folder(f"{dir}/c{n}", HF + source, **{key: value}), out, 3, ["config.json", says, "expected", "found"])
    for window in (-1, 0, 1.5, "4096"):
        n += 1
        import_(folder(f"{dir}/w{n}", HF + "llama", model_type="mistral", sliding_window=window), out, 3,
                ["config.json", "sliding_window", "or null", str(window)])


@checks
def numbers_that_decode_reads(dir):
    out, n = f"{dir}/x.gguf", 0
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    scaled = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 64, "rope_theta": 1e4}
    for source, key in (("llama", "rms_norm_eps"), ("gpt2", "layer_norm_epsilon")):
        import_(folder(f"{dir}/{source}", HF + source, **{key: 1.0}), out, 3, ["config.json", "below 1"])
    wrong = (float("nan"), float("inf"), -float("inf"), 0, 0.0, -1e-5, 1e-60, 1e60, None, "1e-5", True)
    for value in wrong:
        for source, key in (("llama", "rms_norm_eps"), ("gpt2", "layer_norm_epsilon"), ("gpt-bigcode", "layer_norm_epsilon")):
            n += 1
            import_(folder(f"{dir}/{n}", HF + source, **{key: value}), out, 3, ["config.json", "expected", "found"])
        for table in (rope | {"rope_theta": value}, rope | {"rope_type": "linear", "factor": value},
                      *(scaled | {key: value} for key in scaled if key not in ("rope_type", "rope_theta"))):
            n += 1
            import_(folder(f"{dir}/{n}", HF + "llama", rope_parameters=table), out, 3, "config.json")
    n += 1
    import_(folder(f"{dir}/{n}", HF + "llama", rope_parameters=scaled | {"low_freq_factor": 4.0}), out, 3, "differ")
    for value in (1e-12, 1e-5, 0.9):
        n += 1
        import_(folder(f"{dir}/{n}", HF + "llama", rms_norm_eps=value), out)


ESC = "\x1b[31m\x07\u202e\u009b\udc80"  # colours, a bell, right to left, C1, no character


@checks
def nothing_controls_the_terminal(dir):
    """script() checks that every line is printable; these have more to print."""
    out, gpt2, esc = f"{dir}/x.gguf", load_file(HF + "gpt2/model.safetensors"), ESC[:-1]
    for n, (key, value) in enumerate((("model_type", ESC), ("hidden_act", ESC), ("hidden_size", ESC), (ESC, 1),
                                      ("quantization_config", {ESC: ESC}), ("rope_parameters", {"rope_type": ESC}),
                                      ("attention_chunk_size", ESC))):
        source = folder(f"{dir}/{n}", HF + "llama", **{key: value})
        if key == ESC:
            import_(source, out)
        else:
            import_(source, out, 3, "expected")
    more = folder(f"{dir}/more", HF + "gpt2", gpt2 | {esc: gpt2["transformer.wpe.weight"]})
    import_(more, out, says=["passed over", "\\x1b[31m"])
    twice = folder(f"{dir}/twice", HF + "gpt2", gpt2 | {"module." + esc: gpt2["transformer.wpe.weight"], esc: gpt2["transformer.wpe.weight"]})
    import_(twice, out, 3, "found two")
    table = read_json(HF, "llama/tokenizer.json")
    table["model"]["type"] = esc
    import_(HF + "llama", out, 3, "expected a tokenizer", tokenizer=put(f"{dir}/tokenizer.json", table))
    os.mkdir(f"{dir}/shards")
    put(f"{dir}/shards/config.json", read_json(HF, "llama/config.json"))
    for table in ({"weight_map": {esc: esc}}, {"weight_map": {esc: 5}}, {"weight_map": esc}):
        put(f"{dir}/shards/model.safetensors.index.json", table)
        import_(f"{dir}/shards", out, 3)
    put(f"{dir}/{esc}.json", b"{")
    import_(HF + "llama", out, 3, "expected JSON", tokenizer=f"{dir}/{esc}.json")
    import_(f"{dir}/{esc}", out, 3, "No such file")
    import_(archive(f"{dir}/x.pt", {esc: 1}), out, 3, "nanoGPT")
    letters = {chr(ord("A") + i): i for i in range(60)} | {esc[0]: 60, esc[1]: 99}
    import_("tests/data/nanogpt/bias", out, says="beyond the model's", tokenizer=put(f"{dir}/vocab.json", letters))
    # What libraries in Rust and C++ print themselves: nothing comes out of the whole program but its line.
    for path in (f"{dir}/tokenizer.json", put(f"{dir}/t.model", b"\n\x05\n\x03" + esc.encode())):
        done = subprocess.run([sys.executable, "scripts/import.py", HF + "llama", out, "--tokenizer", path], capture_output=True)
        lines = done.stderr.decode().splitlines()
        check(f"{path}: one line, printable", done.returncode == 3 and len(lines) == 1 and lines[0].isprintable()
              and not done.stdout, done)


# --- outputs ---------------------------------------------------------------------------------------

def listed(dir):
    return sorted(os.listdir(dir))


@checks
def signals_leave_nothing(dir):
    """Each signal in the middle of writing, of comparing, and of the library's work."""
    import_(HF + "llama", f"{dir}/x.gguf")
    before, old = listed(dir), open(f"{dir}/x.gguf", "rb").read()
    import gguf
    from exchange import ids as compared
    handlers = {number: signal.signal(number, signal.default_int_handler) for number in process.ENDING_SIGNALS}
    for number in process.ENDING_SIGNALS:  # not ignored, as a job in the background ignores SIGINT
        def struck(*_args, **_kwargs):
            os.kill(os.getpid(), number)
            raise AssertionError("a signal came and nothing happened")
        for holder, name in ((gguf.GGUFWriter, "write_kv_data_to_file"), (gguf.GGUFWriter, "close"), (output, "check"),
                             (compared, "compare"), (files, "keep_rights"), (os, "replace")):
            kept = getattr(holder, name)
            setattr(holder, name, struck)
            import_(HF + "llama", f"{dir}/x.gguf", 130, "interrupted")
            if holder is not gguf.GGUFWriter and name not in ("check", "keep_rights"):
                export(f"{dir}/x.gguf", f"{dir}/out", 130, "interrupted")
            setattr(holder, name, kept)
            check(f"{name}, {number}: nothing is left", listed(dir) == before, listed(dir))
    for number, handler in handlers.items():
        signal.signal(number, handler)
    check("the old file is as it was", open(f"{dir}/x.gguf", "rb").read() == old)
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        status = process.run(lambda: os.kill(os.getpid(), signal.SIGHUP), "x", io.StringIO())
        check("an ignored signal stays ignored", status == 0, status)
    finally:
        signal.signal(signal.SIGHUP, kept)


@checks
def outputs_keep_what_they_had(dir):
    os.makedirs(f"{dir}/there")
    import_(HF + "llama", f"{dir}/there/x.gguf")
    os.chmod(f"{dir}/there/x.gguf", 0o640)
    os.symlink("there/x.gguf", f"{dir}/link.gguf")
    os.symlink("there/new.gguf", f"{dir}/dangling.gguf")
    if os.geteuid() == 0:
        os.chown(f"{dir}/there/x.gguf", -1, 12)
    old = os.stat(f"{dir}/there/x.gguf")
    import_(HF + "llama", f"{dir}/link.gguf", ctx=9)
    new = os.stat(f"{dir}/there/x.gguf")
    check("mode and group", (old.st_mode, old.st_gid) == (new.st_mode, new.st_gid) and new.st_ino != old.st_ino)
    import_(HF + "llama", f"{dir}/dangling.gguf")
    check("links stay links", os.path.islink(f"{dir}/link.gguf") and os.path.islink(f"{dir}/dangling.gguf")
          and os.path.isfile(f"{dir}/there/new.gguf"))
    for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        kept = os.umask(mask)
        import_(HF + "llama", f"{dir}/{mask}.gguf")
        export(f"{dir}/{mask}.gguf", f"{dir}/out")
        os.umask(kept)
        check(f"umask {mask:o}", stat.S_IMODE(os.stat(f"{dir}/{mask}.gguf").st_mode) == mode)
        modes = {name: stat.S_IMODE(os.stat(f"{dir}/out/{name}").st_mode) for name in os.listdir(f"{dir}/out")}
        check(f"umask {mask:o}, exported", set(modes.values()) == {mode} and "model.safetensors" in modes, modes)
    os.mkdir(f"{dir}/empty", 0o750)
    os.symlink("empty", f"{dir}/to-empty")
    script(exports, MODEL=f"{dir}/link.gguf", DIR=f"{dir}/to-empty", expand=False)
    check("an empty folder's mode and link", stat.S_IMODE(os.stat(f"{dir}/empty").st_mode) == 0o750
          and os.path.islink(f"{dir}/to-empty") and "config.json" in os.listdir(f"{dir}/empty"))


@checks
def outputs_that_cannot_be(dir):
    import_(HF + "llama", f"{dir}/x.gguf")
    before = listed(dir)
    import_(HF + "llama", f"{dir}/none/x.gguf", 1, ["none/x.gguf", "cannot write", "folder"])
    script(exports, 1, ["none/out", "cannot write", "folder"], MODEL=f"{dir}/x.gguf", DIR=f"{dir}/none/out", expand=False)
    kept = shutil.disk_usage
    shutil.disk_usage = lambda path: types.SimpleNamespace(free=1000)
    import_(HF + "llama", f"{dir}/y.gguf", 1, ["y.gguf", "bytes", "found 1000"])
    export(f"{dir}/x.gguf", f"{dir}/out", 1, ["out", "bytes", "found 1000"])
    shutil.disk_usage = kept
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)  # the disk takes no more
    for limit in (0, 5000, 200000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        import_(HF + "llama", f"{dir}/y.gguf", 1, ["y.gguf", "cannot write its", "bytes"], tokenizer="none")
        export(f"{dir}/x.gguf", f"{dir}/out", 1, ["out", "cannot write its", "bytes"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    check("nothing is left", listed(dir) == before, listed(dir))
    if os.geteuid():
        os.chmod(f"{dir}/x.gguf", 0o400)
        import_(HF + "llama", f"{dir}/x.gguf", 1, "read-only")
    os.mkfifo(f"{dir}/fifo")
    for path in (f"{dir}/fifo", "/dev/full", dir):
        import_(HF + "llama", path, 2, "expected a new file")
    script(exports, 2, "new or empty", MODEL=f"{dir}/x.gguf", DIR=f"{dir}/fifo", expand=False)


@checks
def inputs_that_are_none(dir):
    """What would wait, or lies elsewhere."""
    out = f"{dir}/x.gguf"
    os.mkfifo(f"{dir}/fifo")
    import_(f"{dir}/fifo", out, 3, "found a FIFO")
    import_("/dev/zero", out, 3, "found a device")
    import_(HF + "llama", out, 3, "found a FIFO", tokenizer=f"{dir}/fifo")
    script(exports, 3, "found a FIFO", MODEL=f"{dir}/fifo", DIR=f"{dir}/out", expand=False)
    for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer.model",
                 "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json"):
        source = folder(f"{dir}/{name}", HF + "llama")
        shutil.copy(HF + "llama/tokenizer.json", source)
        files.remove(f"{source}/{name}")
        os.mkfifo(f"{source}/{name}")
        import_(source, out, 3, [name, "found a FIFO"])
    source = folder(f"{dir}/shards", HF + "llama")
    os.rename(f"{source}/model.safetensors", f"{dir}/elsewhere.safetensors")
    for file in ("../elsewhere.safetensors", f"{dir}/elsewhere.safetensors", "..", "", ".", "a/../../elsewhere.safetensors", 5, None):
        put(f"{source}/model.safetensors.index.json", {"weight_map": {"lm_head.weight": file}})
        import_(source, out, 3, ["weight_map", "in this folder"])
    put(f"{source}/model.safetensors.index.json", {"weight_map": {"lm_head.weight": "fifo"}})
    os.mkfifo(f"{source}/fifo")
    import_(source, out, 3, "found a FIFO")


@checks
def a_library_that_ends_the_process(dir):
    """The line is there, and nothing else is left."""
    from exchange.guard import run_guarded

    def main():
        with files.replaced(f"{dir}/x", 1, files.make_file):
            os.abort()
    read, write = os.pipe()

    def run():
        os.dup2(write, 2)
        sys.stderr = os.fdopen(2, "w")
        return run_guarded(main, f"{dir}/in", f"{dir}/x")
    status, _ = forked(run)
    os.close(write)
    with os.fdopen(read) as file:
        said = file.read()
    check("a line for SIGABRT", status == 3 and "SIGABRT" in said and said.count("\n") == 1, f"{status} {said}")
    check("nothing is left", os.listdir(dir) == [], os.listdir(dir))


@checks
def without_packages(_dir):
    for name in ("import", "export"):
        bare = [sys.executable, "-S", f"scripts/{name}.py"]
        done = subprocess.run([*bare, "--help"], capture_output=True, text=True)
        check(f"{name}.py --help", done.returncode == 0 and "usage" in done.stdout and not done.stderr, done)
        done = subprocess.run([*bare, "models/shakespeare-llama.gguf", "/tmp/none.gguf"], capture_output=True, text=True)
        check(f"{name}.py without packages", done.returncode == 1 and "pip install" in done.stderr
              and done.stderr.count("\n") == 1, done)
