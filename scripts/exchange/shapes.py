"""Reads a config of transformers: sizes, GGUF's keys, the names and extents of tensors."""
import re

import gguf
import ml_dtypes
import numpy as np

from .families import FAMILIES, OPT_AFTER
from .process import BAD_USAGE, bad, say, shown

T, TOKEN, SPACE = gguf.GGMLQuantizationType, gguf.TokenType, "\u2581"
DTYPES = {T.F32: np.dtype("<f4"), T.F16: np.dtype("<f2"), T.BF16: np.dtype(ml_dtypes.bfloat16)}

SIZES = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size",
         "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
         "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
         "attention.key_length": "head_dim"}  # GGUF's keys, and the names of configs' values
# Sizes as config.json has them, under all names; those that may be null follow from others.
MOST, MOST_LAYERS = (1 << 24) - 1, 512
MAY_BE_NULL = {"num_key_value_heads", "num_kv_heads", "head_dim", "n_inner", "intermediate_size", "ffn_hidden_size",
               "sliding_window", "word_embed_proj_dim"}
SIZE_LIMITS = dict.fromkeys(
    {*SIZES.values(), *MAY_BE_NULL, "vocab_size", "n_positions", "n_embd", "n_embed", "n_head", "n_heads", "num_heads",
     "ffn_dim", "d_model", "max_seq_len", "seq_length", "window_size", "query_pre_attn_scalar"},
    MOST) | dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), MOST_LAYERS)
ACTIVATIONS = {"gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu": "gelu_erf",
               "relu": "relu"}  # feed_forward.type by config's name
GATED = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu", "gelu_new": "geglu", "gelu_fast": "geglu"}

# Keys of configs that are read here, or change no logits, of all families; keys of no class that what all are made of
# reads.
KNOWN = re.compile(
    r"n_(positions|embd|layers?|heads?|inner)|(num_)?heads|num_layers|(max_position|tie_word)_embeddings"
    r"|(hidden|intermediate|vocab)_size|head_dim|num_(hidden_layers|attention_heads|key_value_heads|kv_heads)"
    r"|activation(_function)?|hidden_act(ivation)?|rope_parameters|rms_norm_eps|layer_norm_eps(ilon)?|use_cache"
    r"|ffn_(dim|hidden_size)|d_model|max_seq_len|seq_length|n_embed"
    r"|_name_or_path|architectures|dtype|model_type|problem_type|return_dict|transformers_version|summary_.*"
    r"|pretraining_tp|.*_token_id|.*label.*|.*dropout|.*pdrop|output_.*|initializer_range|chunk_size_.*")
FOREIGN = {"quantization_config", "is_causal", "attention_chunk_size", "partial_rotary_factor"}
ROPE_KEYS = {"default": set(), "linear": {"factor"}, "llama3": {
    "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}}
BLOOM_CONTEXT = 2048  # that BLOOM was trained with, where its configuration says none


def family_of(path, c):
    """Returns the row of FAMILIES that a config of transformers means, completed by its values. Fails, by name, on
    values that nothing here runs with."""
    f = FAMILIES[c.model_type]

    def same(name, found, expected):
        if found != expected:
            bad(path, f"{name}: expected {shown(expected)}, as nothing else runs here, found {shown(found)}")

    for name, expected in f.expected.items():
        same(name, getattr(c, name, None), expected)
    if c.model_type == "gpt_neox" and not c.use_parallel_residual:
        return f._replace(means=f.means | {"norm.placement": "before"})
    if c.model_type == "gpt_bigcode" and not c.multi_query:
        return f._replace(differs=f.differs | {"by head"})
    if c.model_type == "opt":
        same("word_embed_proj_dim", c.word_embed_proj_dim, c.hidden_size)
        if not c.do_layer_norm_before:
            return f._replace(tensors=OPT_AFTER, means=f.means | {"norm.placement": "after"})
    if c.model_type == "falcon":
        is_new = bool(c.new_decoder_architecture)
        same("parallel_attn", bool(c.parallel_attn or is_new), True)
        same("num_ln_in_parallel_attn", c.num_ln_in_parallel_attn or 1 + is_new, 1)
        return f._replace(differs=f.differs | ({"by group"} if is_new else set() if c.multi_query else {"by head"}))
    if c.model_type == "mpt":
        found, default = c.attn_config.to_dict(), type(c.attn_config)().to_dict()
        for name in sorted(found.keys() - {"attn_impl", "attn_pdrop", "attn_uses_sequence_id"}):
            if not KNOWN.fullmatch(name):
                same(f"attn_config: {name}", found[name], default.get(name, found[name]))
    if hasattr(c, "use_bidirectional_attention"):
        same("use_bidirectional_attention", bool(c.use_bidirectional_attention), False)
    return f


def windows_of(path, c):
    """Returns for each layer how many positions a query reads, its own included; 0: all. Fails on layers of another
    kind."""
    n, window = c.num_hidden_layers, getattr(c, "sliding_window", None) or 0
    kinds = {"mistral": ["sliding_attention"] * n, "gpt_neo": getattr(c, "attention_layers", None)}.get(
        c.model_type, getattr(c, "layer_types", None)) or ["full_attention"] * n
    reaches = {"global": 0, "local": getattr(c, "window_size", 0), "full_attention": 0, "sliding_attention": window}
    if not isinstance(kinds, list) or len(kinds) != n or not all(type(k) is str and k in reaches for k in kinds):
        bad(path, f"layer_types: expected {n} of {', '.join(reaches)}, found {kinds}")
    return [reaches[kind] for kind in kinds]


class Shape:
    """The shape of a model by its config in transformers; `keys` are GGUF's, `family` is a row of FAMILIES. Fails where
    sizes do not fit each other. `gguf_arch` is the family's name in GGUF, until a value shows that this name does not
    cover it."""

    def __init__(self, path, c):
        f = self.family = family_of(path, c)
        self.gguf_arch, self.n_vocab, self.differs = f.arch, c.vocab_size, set(f.differs)
        self.is_llama = f.means["position.type"] == "rope"
        self.has_learned_positions = f.means["position.type"] == "learned"
        self.biases = [part for key, part in f.biases.items() if not key or getattr(c, key, False)]
        width, heads = c.hidden_size, c.num_attention_heads
        absent = {"feed_forward_length": 4 * width,
                  "attention.head_count_kv": heads, "attention.key_length": width // heads,
                  "context_length": BLOOM_CONTEXT}
        self.keys = {key: getattr(c, f.sizes.get(name, name), 0) or absent.get(key) for key, name in SIZES.items()}
        if c.model_type == "falcon" and c.multi_query and not c.new_decoder_architecture:
            self.keys["attention.head_count_kv"] = 1
        (self.n_ctx, self.n_embd, self.n_layers, self.n_ff, self.n_heads, self.n_kv_heads,
         self.head_dim) = sizes = tuple(self.keys.values())
        if not all(type(n) is int and 0 < n <= MOST for n in (c.vocab_size, *sizes)) or (
                self.n_layers > MOST_LAYERS or self.n_heads % self.n_kv_heads
                or (self.head_dim % 2 if self.is_llama else self.head_dim * self.n_heads != self.n_embd)):
            bad(path, f"expected sizes, heads that divide the width, K/V heads the heads, found {sizes}")
        self.n_positions = self.n_ctx

    def tensors(self):
        """Yields each tensor's name in transformers with and without prefix, its name in GGUF, and its extents in
        GGUF."""
        q, k = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        extents = dict(zip("VCEFQKAH", (self.n_vocab, self.n_positions, self.n_embd, self.n_ff, q, k, q + 2 * k,
                                        self.head_dim)))
        for stem, to in self.family.tensors.items():
            to, letters = to.split()
            shape = tuple(extents[letter] for letter in letters)
            has_bias = any(re.search(part, stem) for part in self.biases)
            ends = {"weight": shape, "bias": shape[:1]} if has_bias else {"weight": shape}
            for layer in range(self.n_layers if "{}" in stem else 1):
                name, block = stem.format(layer), f"blk.{layer}." * ("{}" in stem)
                full = self.family.prefix * (to != "output") + name
                for end, extent in ends.items():
                    yield f"{full}.{end}", f"{name}.{end}", f"{block}{to}.{end}", extent

    def stored_shape(self, name, to, shape):
        """Returns the extents in transformers of a tensor whose extents in GGUF are `shape`."""
        if "conv1d" in self.differs and len(shape) == 2 and name.startswith("h."):
            return shape[::-1]
        return (shape[0] + 2, *shape[1:]) if "two positions" in self.differs and "position_embd" in to else shape

    def turned(self, name, to, array, back=False):
        """A tensor of transformers, `to` in GGUF, with rows and columns as GGUF has them; `back`: of GGUF. What differs:

        conv1d         matrices of blocks are transposed
        by head        queries, keys and values of a head stand together
        by group       the queries of a K/V head stand together, then its keys and its values
        pairs          GGUF has rotary positions turn neighbouring pairs, transformers halves of a head
        1 + w          GGUF's norms have the 1 that transformers adds
        two positions  two rows of positions come first that no token has"""
        if "conv1d" in self.differs and array.ndim == 2 and name.startswith("h."):
            return array.T
        if "two positions" in self.differs and "position_embd" in to:
            return np.concatenate([np.zeros_like(array[:2]), array]) if back else array[2:]
        if "1 + w" in self.differs and "norm" in to:
            return array.astype(np.float32) + (-1 if back else 1)
        return self.regrouped(self.paired(array, to, True), to, True) if back else self.paired(
            self.regrouped(array, to, False), to, False)

    def paired(self, array, to, back):
        """Returns rows of queries and keys with the halves of a head's turned part as neighbouring pairs, or `back`."""
        heads = {"attn_q": self.n_heads, "attn_k": self.n_kv_heads, "attn_qkv": self.n_heads + self.n_kv_heads,
                 "attn_q_norm": 1, "attn_k_norm": 1}.get(to.split(".")[-2], 0)
        if "pairs" not in self.differs or not heads:
            return array
        n = self.keys["rope.dimension_count"]
        made = array.reshape(-1, self.head_dim, *array.shape[1:]).copy()
        pair, part = (n // 2, 2) if back else (2, n // 2), made[:heads, :n]
        made[:heads, :n] = part.reshape(heads, *pair, *array.shape[1:]).swapaxes(1, 2).reshape(part.shape)
        return made.reshape(array.shape)

    def regrouped(self, array, to, back):
        """Returns rows of groups of queries, keys and values as all queries, all keys and all values, or `back`."""
        if "attn_qkv" not in to or not self.differs & {"by head", "by group"}:
            return array
        counts, rest = (self.n_heads // self.n_kv_heads, 1, 1), array.shape[1:]
        places = np.cumsum(counts)[:2]
        if back:
            parts = np.split(array, places * self.n_kv_heads * self.head_dim)
            each = [x.reshape(self.n_kv_heads, n, self.head_dim, *rest) for x, n in zip(parts, counts)]
            return np.concatenate(each, axis=1).reshape(array.shape)
        each = array.reshape(self.n_kv_heads, sum(counts), self.head_dim, *rest)
        return np.concatenate([x.reshape(-1, *rest) for x in np.split(each, places, axis=1)])


def positive(path, name, value, below=np.inf):
    """Returns the number as F32, as decode reads it. Fails unless it is above 0 then, and less than `below`."""
    single = np.float32(0)
    if type(value) in (int, float):
        with np.errstate(over="ignore", under="ignore"):
            single = np.float32(min(value, 2.0**200))
    if not 0 < single < below:
        bad(path, f"{name}: expected a number above 0 and below {below} that F32 holds, found {shown(value)}")
    return float(value)


def config_of(path, said):
    """Returns the config of transformers of a config.json, whose path is for messages. Fails where its class does not
    run here and, before the class reads them, where sizes are none. Labels, of which a class makes as many as it is
    told, mean nothing to a language model. No code beside the file is run: the class is transformers' own."""
    from transformers import CONFIG_MAPPING
    kind = said.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        bad(path, f"model_type: expected {', '.join(FAMILIES)}, found {shown(kind)}")
    for name in sorted(SIZE_LIMITS.keys() & said.keys()):
        n, most = said[name], SIZE_LIMITS[name]
        if not (type(n) is int and 1 <= n <= most) and not (n is None and name in MAY_BE_NULL):
            bad(path, f"{name}: expected 1 to {most}{' or null' * (name in MAY_BE_NULL)}, found {shown(n)}")
    try:
        return CONFIG_MAPPING[kind].from_dict({key: value for key, value in said.items() if "label" not in key})
    except Exception as error:
        bad(path, f"expected a config that transformers reads, found one of which it says: {error}")


def shape_of_config(path, c, ctx=None):
    """Returns the Shape of a config of transformers, with `ctx` positions if that is a number. Fails, by name, on
    values that are not the class's default and mean nothing here, and on numbers that decode would not read."""
    found, default = c.to_dict(), type(c)().to_dict()
    known = re.compile(f"{KNOWN.pattern}|{FAMILIES[c.model_type].known}|{'|'.join(FAMILIES[c.model_type].biases)}")
    for key in (key for key in found if not known.fullmatch(key)):
        expected = default.get(key, None if key in FOREIGN else found[key])
        if found[key] != expected:
            bad(path, f"{key}: expected {expected}, as nothing else runs here, found {found[key]}")
    s = Shape(path, c)
    s.n_ctx = s.keys["context_length"] = context_of(path, s, c, ctx)
    f, s.factors, keys = s.family, None, s.keys
    keys |= {"attention.value_length": s.head_dim} | f.keys
    means = f.means | {"feed_forward.type": ffn_of(path, c, f)}
    epsilon = f.epsilon if isinstance(f.epsilon, float) else positive(path, f.epsilon, getattr(c, f.epsilon), below=1)
    if s.is_llama:
        keys |= rope_keys(path, s, c)
    if c.model_type == "gpt_neox":
        keys["use_parallel_residual"] = means["norm.placement"] == "parallel"
    if c.model_type == "gemma3_text" and c.query_pre_attn_scalar != s.head_dim:
        keys["attention.scale"] = c.query_pre_attn_scalar ** -0.5
    windows = [w if w < s.n_ctx else 0 for w in windows_of(path, c)]
    if c.model_type == "gemma3_text":
        keys |= gemma3_windows(path, c)
    elif any(windows):  # llama.cpp reads none in these families
        s.gguf_arch = "decode"
        keys["attention.sliding_window"] = windows if len(set(windows)) > 1 else windows[0]
    if means != f.means and f.arch in ("gpt2", "starcoder"):  # to every other program the name says the tanh form
        s.gguf_arch = "decode"
    elif means != f.means:  # to llama.cpp it says that in any case
        keys["feed_forward.type"] = means["feed_forward.type"]
    if s.gguf_arch == "decode":
        keys |= {"norm.epsilon": epsilon} | means
        keys |= {"rope.halves": True} if s.is_llama and "pairs" not in s.differs else {}
        keys |= {"norm.queries_keys": True} if any("attn_q_norm" in to for to in f.tensors.values()) else {}
    else:
        keys["attention.layer_norm_" + "rms_" * (means["norm.type"] == "rms") + "epsilon"] = epsilon
    return s


def context_of(path, s, c, asked):
    """Returns how many positions the model has here: as many as are asked for; the number of learned ones is fixed."""
    limit = s.n_ctx if s.has_learned_positions else MOST
    if asked is not None and not 1 <= asked <= limit:
        bad(path, f"--ctx: expected 1 to {limit}, as many as it has, found {asked}", BAD_USAGE)
    if asked is None and c.model_type == "bloom" and not getattr(c, "seq_length", None):
        say(f"{path}: the context is {s.n_ctx}, as BLOOM was trained, as none is said; --ctx sets another")
    return asked or s.n_ctx


def ffn_of(path, c, f):
    """Returns GGUF's feed_forward.type of the activation that a config names, or that is its family's only one."""
    means = f.means["feed_forward.type"]
    if not f.activation:
        return means
    table = GATED if means.endswith("glu") else ACTIVATIONS
    found = getattr(c, f.activation)
    made = table.get(found) if isinstance(found, str) else None
    if not made or (made != means and table is GATED):
        expected = [name for name, kind in table.items() if kind == means or table is ACTIVATIONS]
        bad(path, f"activation: expected {', '.join(expected)}, found {shown(found)}")
    return made


def gemma3_windows(path, c):
    """Returns GGUF's keys of Gemma 3's windows: the size, and the layers that have it, where these are not five of
    six."""
    if not c.sliding_window:
        bad(path, f"sliding_window: expected a size, as the layers' rotary positions are told by it, found {c.sliding_window}")
    kinds = ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(c.num_hidden_layers)]
    pattern = [int(kind == "sliding_attention") for kind in c.layer_types]
    return {"attention.sliding_window": c.sliding_window} | (
        {} if c.layer_types == kinds else {"attention.sliding_window_pattern": pattern})


def rope_keys(path, s, c):
    """Returns GGUF's keys of plain or linear rotary positions, of a part of each head. Fails on all others except Llama
    3.1's, whose factors the Shape takes."""
    rope, keys = c.rope_parameters, {}
    if c.model_type == "gemma3_text":
        local, rope = rope.get("sliding_attention"), rope.get("full_attention")
        if not isinstance(rope, dict) or not isinstance(local, dict) or local.get("rope_type") != "default" or (
                rope.get("rope_type") != "default"):
            bad(path, f"rope_parameters: expected plain positions of both kinds of layers, found {c.rope_parameters}")
        keys["rope.freq_base_swa"] = positive(path, "rope_parameters: rope_theta", local.get("rope_theta"))
    kind = rope["rope_type"]
    kinds = [name for name in ROPE_KEYS if name != "llama3" or s.gguf_arch == "llama"]
    parts = {"partial_rotary_factor"} if c.model_type in ("gpt_neox", "phi", "stablelm") else set()
    if kind not in kinds or rope.keys() - ROPE_KEYS[kind] - {"rope_type", "type", "rope_theta"} - parts:
        bad(path, f"rope_parameters: expected {', '.join(kinds)}, which run here, found {rope}")
    for name in sorted(ROPE_KEYS[kind] | {"rope_theta"}):
        positive(path, f"rope_parameters: {name}", rope.get(name))
    factor = positive(path, "partial_rotary_factor", rope.get("partial_rotary_factor")) if parts else 1
    n_rot = int(s.head_dim * factor)
    if not 2 <= n_rot <= s.head_dim or n_rot % 2:
        bad(path, f"partial_rotary_factor: expected an even number of a head's {s.head_dim} elements, found {n_rot}")
    s.factors = llama3_factors(path, rope, s.head_dim)
    keys |= {"rope.dimension_count": n_rot, "rope.freq_base": float(rope["rope_theta"])}
    if kind == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    return keys


def llama3_factors(path, rope, head_dim):
    """Returns the divisors of the frequencies of rotary positions in transformers' llama3; None: there are none."""
    if rope["rope_type"] != "llama3":
        return None
    frequencies = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    if low == high:
        bad(path, f"rope_parameters: expected low_freq_factor and high_freq_factor to differ, found {low} and {high}")
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)
