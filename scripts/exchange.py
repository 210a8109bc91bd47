"""What import.py and export.py share: what transformers and GGUF call the parts of a model, the cuts of
byte-level tokenizers, the comparison of token ids with decode's, and errors as decode has them."""
import concurrent.futures
import json
import os
import random
import shutil
import subprocess
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="critical")
HERE = os.path.dirname(os.path.abspath(__file__))
REQUIREMENTS = f"-r {os.path.join(HERE, 'requirements.txt')}"
try:
    import gguf
    import ml_dtypes
    import numpy as np
except ImportError as error:
    sys.exit(f"{error}: python3 -m pip install {REQUIREMENTS}")

FAILED, BAD_USAGE, BAD_FILE, NO_MEMORY, INTERRUPTED = 1, 2, 3, 4, 130  # decode's exit statuses
STATUSES = {KeyboardInterrupt: INTERRUPTED, FileNotFoundError: BAD_FILE, OSError: FAILED, ImportError: FAILED,
            MemoryError: NO_MEMORY, Exception: BAD_FILE}
T, TOKEN, SPACE = gguf.GGMLQuantizationType, gguf.TokenType, "\u2581"
DTYPES = {T.F32: np.dtype("<f4"), T.F16: np.dtype("<f2"), T.BF16: np.dtype(ml_dtypes.bfloat16)}


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
    except Failure as failure:
        status, text = failure.args
    except (Exception, KeyboardInterrupt) as error:
        status = next(status for kind, status in STATUSES.items() if isinstance(error, kind))
        text = f"{path}: {type(error).__name__}: {str(error)[:400]}"
        if isinstance(error, ImportError):
            text += f"; python3 -m pip install {error.name or REQUIREMENTS}"
    say(text)
    return status


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def sync(path):
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


# By a config's model_type GGUF's architecture, how transformers' matrices differ, and the class with a head.
MODELS = {"gpt2": ("gpt2", "conv1d", "GPT2LMHeadModel"), "llama": ("llama", "halves", "LlamaForCausalLM"),
          "gpt_bigcode": ("starcoder", "", "GPTBigCodeForCausalLM"), "mistral": ("llama", "halves", "")}
SIZES = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size",
         "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
         "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
         "attention.key_length": "head_dim"}  # GGUF's keys, and how configs answer for them
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
    """What a config of transformers says of the tensors; `keys` are those of SIZES. By `layout` matrices of
    blocks are transposed there ("conv1d"), Q, K and V of a head stand together ("by head": GPT-BigCode as
    MHA), or rotary positions turn halves of a head, not neighbouring pairs ("halves")."""

    def __init__(self, path, c):
        self.arch, self.layout, _ = MODELS[c.model_type]
        self.is_llama, self.n_vocab = self.arch == "llama", c.vocab_size
        if not getattr(c, "multi_query", True):
            self.layout = "by head"
        self.biases = [".self_attn"] * getattr(c, "attention_bias", 0) + [".mlp"] * getattr(c, "mlp_bias", 0)
        if not self.is_llama:
            self.biases = ["ln_", "attn", "mlp"]
        absent = {"feed_forward_length": getattr(c, "n_inner", 0) or 4 * c.hidden_size,
                  "attention.head_count_kv": c.num_attention_heads,
                  "attention.key_length": c.hidden_size // c.num_attention_heads}
        self.keys = {key: getattr(c, name, 0) or absent.get(key) for key, name in SIZES.items()}
        (self.n_ctx, self.n_embd, self.n_layers, self.n_ff, self.n_heads, self.n_kv_heads,
         self.head_dim) = sizes = tuple(self.keys.values())
        if not all(type(n) is int and 0 < n < 1 << 24 for n in (c.vocab_size, *sizes)) or (
                self.n_layers > 512 or self.n_heads % self.n_kv_heads
                or (self.head_dim % 2 if self.is_llama else self.head_dim * self.n_heads != self.n_embd)):
            bad(path, f"expected sizes, heads that divide the width, K/V heads the heads, found {sizes}")

    def tensors(self):
        """Each tensor's name in transformers with and without prefix, that in GGUF, its extents in GGUF."""
        q, k = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        extents = dict(zip("VCEFQKA", (self.n_vocab, self.n_ctx, self.n_embd, self.n_ff, q, k, q + 2 * k)))
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[self.arch.upper()], self.n_layers)
        prefix, stems = ("model.", LLAMA) if self.is_llama else ("transformer.", GPT2)
        for stem, letters in stems.items():
            shape = tuple(extents[letter] for letter in letters)
            has_bias = any(part in stem for part in self.biases)
            ends = {"weight": shape, "bias": shape[:1]} if has_bias else {"weight": shape}
            for layer in range(self.n_layers if "{}" in stem else 1):
                name = stem.format(layer)
                full = prefix * (name != "lm_head") + name
                for end, extent in ends.items():
                    yield f"{full}.{end}", f"{name}.{end}", f"{names.get_name(full)}.{end}", extent

    def turned(self, name, array, back=False):
        """A tensor of transformers with rows and columns as GGUF has them; `back`: of GGUF."""
        if self.layout == "conv1d" and array.ndim == 2 and name.startswith("h."):
            return array.T
        if self.layout == "by head" and "c_attn" in name:
            return array.reshape(self.n_heads, 3, -1).swapaxes(0, 1).reshape(array.shape)
        if self.layout == "halves" and ("q_proj" in name or "k_proj" in name):
            pair = (self.head_dim // 2, 2) if back else (2, self.head_dim // 2)
            return array.reshape(-1, *pair, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)
        return array


def llama3_factors(rope, head_dim):
    """What the frequencies of rotary positions are divided by, as transformers' llama3 does."""
    frequencies = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def cuts():
    """How byte-level tokenizers cut a text before they merge, by tokenizer.ggml.pre."""
    from tokenizers import Regex, pre_tokenizers as pre
    gpt2 = pre.ByteLevel(add_prefix_space=False)
    starcoder = pre.Sequence([pre.Digits(individual_digits=True), gpt2])
    llama3, qwen2 = (pre.Sequence([pre.Split(Regex(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre.ByteLevel(add_prefix_space=False, use_regex=False)]) for digits in ("{1,3}", ""))
    return {"gpt-2": gpt2, "llama-bpe": llama3, "qwen2": qwen2, "starcoder": starcoder,
            "default": gpt2, "dbrx": llama3, "smollm": starcoder}  # other names of these


PIECES = """| |  |   |\n|\n\n|\r\n|\t| \n |a| a|A|The quick brown fox|I'm|I'M|don't|we'll've|'S|''|"q"|3.14|\
12345| 1 22 333 4444|٣٤|½|Ⅷ|²|naïve café|cafe\u0301|Å|ﬁ|ß|ÄÖ|привет|日本語|한국어|नमस्ते|العربية|😀|👍🏽|🇺🇸|\u00a0|\
\u2003|\u3000|\u200b|\u200d|…|—|▁|▁a|<0x41>|<s>|</s>|[INST]|a_b|x==y|/* */|foo.bar(1)|\\n|---""".split("|")


def odd_texts(names=()):
    """A few hundred texts, always the same; `names`, of added tokens, stand in many of them."""
    names, rng, texts = list(names)[:20], random.Random(1), list(PIECES)
    for name in names:
        texts += [name, "a" + name, name + "a", f"a {name} b", name + name, name + "\n", name[:-1]]
    texts += ["".join(rng.choices(PIECES + names, k=rng.randint(2, 6))) for _ in range(200)]
    return list(dict.fromkeys(texts))


def compare_ids(path, model, encode, names, library):
    """Says for how many odd texts decode's ids with `model` are not encode(text)."""
    built = os.path.join(HERE, "..", "decode")
    program = built if os.access(built, os.X_OK) else shutil.which("decode")
    if not program:
        return say(f"{path}: ids are not compared: found no decode beside the scripts or on PATH; make it")

    def ids(text):  # None where the vocabulary lacks a character
        done = subprocess.run([program, "tokenize", model, "-p", text], capture_output=True, text=True)
        if done.returncode and "has no token" not in done.stderr:
            bad(path, f"decode cannot read its vocabulary: {done.stderr}")
        return None if done.returncode else [int(i) for i in done.stdout.split()]

    texts = odd_texts(names)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(zip(texts, pool.map(ids, texts), map(encode, texts)))
    lacking = sum(ours is None and theirs is not None for _, ours, theirs in found)
    others = [row for row in found if row[1] is not None and row[1] != row[2]]
    said = f"{path}: {len(texts) - lacking - len(others)} of {len(texts)} odd texts get the ids of {library}"
    said += f"; {lacking} have characters without a token, which decode refuses" if lacking else ""
    if others:
        text, ours, theirs = min(others, key=lambda row: len(row[0]))
        said += f"; {len(others)} get others, such as {text!r}: expected {theirs}, found {ours}"
    say(said)
