"""What import.py and export.py share: the names of transformers and of GGUF for what a model has, the
cuts of byte-level tokenizers, the comparison of token ids with decode's, and errors as decode has them."""
import concurrent.futures
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
        status = {MemoryError: NO_MEMORY, ModuleNotFoundError: FAILED}.get(type(error), BAD_FILE)
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
        self.n_ctx, self.n_embd, self.n_layers, self.n_ff, self.n_heads, self.n_kv_heads, _ = keys.values()
        self.head_dim = keys["attention.key_length"] = keys["attention.key_length"] or self.n_embd // self.n_heads
        if any(type(n) is not int or not 0 < n < 1 << 24 for n in (n_vocab, *keys.values())) or (
                self.n_heads % self.n_kv_heads or (self.head_dim % 2 if is_llama else self.n_embd % self.n_heads)):
            bad(path, f"expected sizes, K/V heads that divide the heads, and even elements, found {keys}")

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


def llama3_factors(rope, head_dim):
    """What the frequencies of rotary positions are divided by, as transformers' llama3 does."""
    frequencies = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


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
