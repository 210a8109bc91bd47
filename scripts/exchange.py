"""What import.py and export.py share: the names of transformers and of GGUF for what a model has, the
cuts of byte-level tokenizers, the comparison of token ids with decode's, and errors as decode has them."""
import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical")
HERE = os.path.dirname(os.path.abspath(__file__))
ADVICE = f"python3 -m pip install -r {os.path.join(HERE, 'requirements.txt')}"
try:
    import gguf
    import numpy as np
    import safetensors
except ImportError as error:
    sys.exit(f"{error}: {ADVICE}")

FAILED, BAD_USAGE, BAD_FILE, NO_MEMORY, INTERRUPTED = 1, 2, 3, 4, 130  # decode's exit statuses
T, TOKEN, SPACE = gguf.GGMLQuantizationType, gguf.TokenType, "\u2581"


class Failure(Exception):
    """Ends the script with a status and a line: file, what, expected, found, what to do."""


def bad(path, text, status=BAD_FILE):
    raise Failure(status, f"{path}: {text}")


def say(text):
    print(f"{os.path.basename(sys.argv[0])}: {' '.join(str(text).split())}", file=sys.stderr)


def run(main, path):
    """The exit status of main(). Libraries check the input, so what they raise is about `path`."""
    try:
        main()
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except Failure as failure:
        status, text = failure.args
    except OSError as error:
        status = BAD_FILE if isinstance(error, FileNotFoundError) else FAILED
        text = f"{error.filename or path}: {error.strerror or error}"
    except Exception as error:
        status = NO_MEMORY if isinstance(error, MemoryError) else FAILED if isinstance(error, ImportError) else BAD_FILE
        text = f"{path}: {type(error).__name__}: {str(error)[:400]}{'; ' + ADVICE if status == FAILED else ''}"
    say(text)
    return status


# --- models ---------------------------------------------------------------------------------------

# A size by GGUF's key, and its names in the configs of GPT-2 and of Llama.
SIZES = {"context_length": ("n_positions", "max_position_embeddings"),
         "embedding_length": ("n_embd", "hidden_size"), "block_count": ("n_layer", "num_hidden_layers"),
         "feed_forward_length": ("n_inner", "intermediate_size"),
         "attention.head_count": ("n_head", "num_attention_heads"),
         "attention.head_count_kv": ("num_key_value_heads", "num_key_value_heads"),
         "attention.key_length": ("head_dim", "head_dim")}
# Tensors behind the base model's prefix, with rows and columns as GGUF has them: V tokens, C positions,
# E width, F feed-forward, Q and K all heads of queries and of keys, A these and the values joined.
GPT2 = {"wte": "VE", "wpe": "CE", "ln_f": "E", "lm_head": "VE", "h.{}.ln_1": "E", "h.{}.ln_2": "E",
        "h.{}.attn.c_attn": "AE", "h.{}.attn.c_proj": "EQ", "h.{}.mlp.c_fc": "FE", "h.{}.mlp.c_proj": "EF"}
LLAMA = {"embed_tokens": "VE", "norm": "E", "lm_head": "VE", "layers.{}.input_layernorm": "E",
         "layers.{}.self_attn.q_proj": "QE", "layers.{}.self_attn.k_proj": "KE",
         "layers.{}.self_attn.v_proj": "KE", "layers.{}.self_attn.o_proj": "EQ",
         "layers.{}.post_attention_layernorm": "E", "layers.{}.mlp.gate_proj": "FE",
         "layers.{}.mlp.up_proj": "FE", "layers.{}.mlp.down_proj": "EF"}
ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu": "gelu_erf",
               "relu": "relu", "silu": "swiglu", "swish": "swiglu"}  # feed_forward.type by config's name


class Shape:
    """A model: `keys` are those of SIZES, `biases` the parts of names that have them. In transformers
    matrices of blocks may be transposed (`conv1d`: GPT-2), Q, K and V of a head stand together (`by_head`:
    GPT-BigCode as MHA), or rotary positions turn halves of a head where GGUF has neighbouring pairs
    (`halves`: Llama)."""

    def __init__(self, path, keys, n_vocab, is_llama, biases=(), conv1d=False, by_head=False, halves=False):
        self.keys, self.n_vocab, self.is_llama, self.biases = keys, n_vocab, is_llama, biases
        self.conv1d, self.by_head, self.halves = conv1d, by_head, halves
        keys["attention.head_count_kv"] = keys["attention.head_count_kv"] or keys["attention.head_count"]
        self.n_ctx, self.n_embd, self.n_layers, self.n_ff, self.n_heads, self.n_kv_heads, head_dim = keys.values()
        for key, n in (("vocab_size", n_vocab), *keys.items()):
            most = 512 if key == "block_count" else 1 << 24
            if not (key == "attention.key_length" and n is None) and not (type(n) is int and 0 < n <= most):
                bad(path, f"{key}: expected an integer from 1 to {most}, found {n}")
        self.head_dim = keys["attention.key_length"] = head_dim or self.n_embd // self.n_heads
        if self.n_heads % self.n_kv_heads or (self.head_dim % 2 if is_llama else self.n_embd % self.n_heads):
            bad(path, f"expected K/V heads that divide the heads, and even elements of each, found {keys}")

    def tensors(self):
        """Each tensor's name in transformers with and without prefix, that in GGUF, its extents in GGUF."""
        q, k = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        extents = {"V": self.n_vocab, "C": self.n_ctx, "E": self.n_embd, "F": self.n_ff, "Q": q, "K": k,
                   "A": q + 2 * k}
        names = gguf.get_tensor_name_map(
            gguf.MODEL_ARCH.LLAMA if self.is_llama else gguf.MODEL_ARCH.STARCODER, self.n_layers)
        prefix, stems = ("model.", LLAMA) if self.is_llama else ("transformer.", GPT2)
        places = [(stem, stem) for stem in stems if "{}" not in stem] + [
            (stem, stem.format(layer)) for layer in range(self.n_layers) for stem in stems if "{}" in stem]
        for stem, name in places:
            shape, full = tuple(extents[letter] for letter in stems[stem]), prefix * (name != "lm_head") + name
            for end in ("weight", "bias") if any(part in stem for part in self.biases) else ("weight",):
                yield f"{full}.{end}", f"{name}.{end}", f"{names.get_name(full)}.{end}", (
                    shape if end == "weight" else shape[:1])

    def turned(self, name, array, back=False):
        """A tensor of transformers with rows and columns as GGUF has them; `back`: of GGUF."""
        if self.conv1d and array.ndim == 2 and name.startswith("h."):
            return array.T
        if self.halves and ("q_proj" in name or "k_proj" in name):
            n, p, q = len(array) // self.head_dim, 2, self.head_dim // 2
        elif self.by_head and "c_attn" in name:
            n, p, q = 1, self.n_heads, 3
        else:
            return array
        p, q = (q, p) if back else (p, q)
        return array.reshape(n, p, q, -1).swapaxes(1, 2).reshape(array.shape)


def as_type(array, kind, wanted):
    """Rows of F32, F16 or BF16 (as uint16) in another of these types."""
    if kind == wanted:
        return array
    if kind == T.BF16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):
        made = gguf.quants.quantize(np.ascontiguousarray(array, np.float32), wanted)
    return made.view(np.uint16) if wanted == T.BF16 else made


# --- rotary positions -----------------------------------------------------------------------------

ROPE_KEYS = {"default": set(), "linear": {"factor"}, "llama3": {
    "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}}


def llama3_factors(rope, head_dim):
    """What the frequencies of rotary positions are divided by, as transformers' llama3 does."""
    frequencies = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def rope_to_gguf(path, rope, head_dim):
    """GGUF's keys for transformers' rope_parameters, and the tensor rope_freqs.weight; None."""
    kind = rope["rope_type"]
    if kind not in ROPE_KEYS or rope.keys() - ROPE_KEYS[kind] - {"rope_type", "type", "rope_theta"}:
        bad(path, f"rope_parameters: expected {', '.join(ROPE_KEYS)}, which run here, found {rope}")
    keys = {"rope.dimension_count": head_dim, "rope.freq_base": float(rope["rope_theta"])}
    if kind == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    return keys, llama3_factors(rope, head_dim) if kind == "llama3" else None


def rope_of_gguf(path, get, factors, head_dim):
    """The other way. A file has only the factors of Llama 3.1: of what they were made is found by trying."""
    rope = {"rope_type": "default", "rope_theta": get("rope.freq_base", 10000.0)}
    kind, factor = get("rope.scaling.type", "linear"), get("rope.scaling.factor") or get("rope.scale_linear") or 1.0
    if kind == "linear" and factor != 1:
        rope |= {"rope_type": "linear", "factor": factor}
    for context in (256 << i for i in range(15)) if factors is not None and rope["rope_type"] == "default" else ():
        tried = rope | {"rope_type": "llama3", "factor": float(factors[-1]), "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0, "original_max_position_embeddings": context}
        if np.allclose(factors, llama3_factors(tried, head_dim), rtol=1e-5):
            return tried
    if kind not in ("none", "linear") or factors is not None:
        bad(path, f"rotary positions: expected none, linear or Llama 3.1's scaling, found {kind}, factors {factors}")
    return rope


# --- files ----------------------------------------------------------------------------------------

NAMES = {T.F32: "float32", T.F16: "float16", T.BF16: "bfloat16"}  # of types in transformers
STORED = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # types that are read, by safetensors' names


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def write_json(value, *path):
    with open(os.path.join(*path), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)


def sync(path):
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def read_safetensors(path):
    """By name a type's name and an array, which is not read yet. The library checks the header."""
    with safetensors.safe_open(path, "np"), open(path, "rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(start - 8))
    raw, found = np.memmap(path, np.uint8, "r"), {}
    header.pop("__metadata__", None)
    for name, t in header.items():
        array = raw[start + t["data_offsets"][0] : start + t["data_offsets"][1]]
        known = t["dtype"] in STORED
        found[name] = t["dtype"], array.view(STORED[t["dtype"]]).reshape(t["shape"]) if known else array
    return found


def write_safetensors(path, tensors):
    """Types and arrays in one type, that of the matrices, if it holds every number of the rest; its name."""
    kinds = {kind for name, (kind, array) in tensors.items() if array.ndim == 2 and "wpe" not in name}
    common = kinds.pop() if len(kinds) == 1 else T.F32
    typed = {name: (common, as_type(array, kind, common)) for name, (kind, array) in tensors.items()}
    if all(np.array_equal(as_type(typed[name][1], common, kind), array) for name, (kind, array) in tensors.items()):
        tensors = typed
    else:
        common = T.F32  # to compute in
    specs = {name: safetensors.TensorSpec(dtype=NAMES[kind], shape=array.shape, data_ptr=array.ctypes.data,
                                          data_len=array.nbytes) for name, (kind, array) in tensors.items()}
    safetensors.serialize_file(specs, path, {"format": "pt"})
    return NAMES[common]


# --- tokenizers -----------------------------------------------------------------------------------


def cuts():
    """How byte-level tokenizers cut a text before they merge, by tokenizer.ggml.pre."""
    from tokenizers import Regex, pre_tokenizers as pre

    def llama3(digits):
        regex = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + digits +
                 r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        return pre.Sequence([pre.Split(Regex(regex), "isolated"),
                             pre.ByteLevel(add_prefix_space=False, use_regex=False)])

    gpt2 = pre.ByteLevel(add_prefix_space=False)
    starcoder = pre.Sequence([pre.Digits(individual_digits=True), gpt2])
    return {"gpt-2": gpt2, "llama-bpe": llama3("{1,3}"), "qwen2": llama3(""), "starcoder": starcoder,
            "default": gpt2, "dbrx": llama3("{1,3}"), "smollm": starcoder}  # other names of these


PIECES = ("| |  |   |\n|\n\n|\r\n|\t| \n |a| a|A|The quick brown fox|I'm|I'M|don't|we'll've|'S|''|\"q\"|3.14|12345|"
          " 1 22 333 4444|٣٤|½|Ⅷ|²|naïve café|cafe\u0301|Å|ﬁ|ß|ÄÖ|привет|日本語|한국어|नमस्ते|العربية|😀|👍🏽|🇺🇸|"
          "\u00a0|\u2003|\u3000|\u200b|\u200d|…|—|▁|▁a|<0x41>|<s>|</s>|[INST]|a_b|x==y|/* */|foo.bar(1)|\\n|---").split("|")


def odd_texts(names=()):
    """A few hundred texts, always the same; `names`, of added tokens, stand in many of them."""
    names, rng, texts = list(names)[:20], random.Random(1), list(PIECES)
    for name in names:
        texts += [name, "a" + name, name + "a", f"a {name} b", name + name, name + "\n", name[:-1]]
    texts += ["".join(rng.choices(PIECES + names, k=rng.randint(2, 6))) for _ in range(200)]
    return list(dict.fromkeys(texts))


def decode_program():
    """./decode beside the scripts, or on PATH; None."""
    built = os.path.join(HERE, "..", "decode")
    return built if os.access(built, os.X_OK) else shutil.which("decode")


def compare_ids(path, model, encode, names, library):
    """Says for how many odd texts decode's ids with `model` are not encode(text)."""
    def ids(text):  # None where the vocabulary lacks a character
        done = subprocess.run([decode_program(), "tokenize", model, "-p", text], capture_output=True)
        lacks = done.returncode == BAD_USAGE and b"has no token" in done.stderr
        if done.returncode and not lacks:
            bad(path, f"decode cannot read its vocabulary: {done.stderr.decode(errors='replace')}")
        return None if lacks else [int(i) for i in done.stdout.split()]

    if not decode_program():
        return say(f"{path}: token ids are not compared: found no decode beside the scripts or on PATH; make it")
    texts = odd_texts(names)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        ours, theirs = list(pool.map(ids, texts)), [encode(text) for text in texts]
    lacking = sum(a is None and b is not None for a, b in zip(ours, theirs))
    other = [i for i, a in enumerate(ours) if a is not None and a != theirs[i]]
    say(f"{path}: {len(texts) - lacking - len(other)} of {len(texts)} odd texts get the ids of {library}")
    if lacking:
        say(f"{path}: {lacking} have characters without a token: decode refuses such texts, {library} "
            "drops the characters or writes <unk>")
    if other:
        i = min(other, key=lambda i: len(texts[i]))
        say(f"{path}: {len(other)} get others, such as {texts[i]!r}: expected {theirs[i]}, found {ours[i]}")
