"""What a config of transformers says of a model: sizes, GGUF's keys, the names and extents of its tensors."""
import re

import gguf
import ml_dtypes
import numpy as np

from .process import bad, shown

T, TOKEN, SPACE = gguf.GGMLQuantizationType, gguf.TokenType, "\u2581"
DTYPES = {T.F32: np.dtype("<f4"), T.F16: np.dtype("<f2"), T.BF16: np.dtype(ml_dtypes.bfloat16)}

# By a config's model_type GGUF's architecture, how transformers' matrices differ, and the class with a head.
MODELS = {"gpt2": ("gpt2", "conv1d", "GPT2LMHeadModel"), "llama": ("llama", "halves", "LlamaForCausalLM"),
          "gpt_bigcode": ("starcoder", "", "GPTBigCodeForCausalLM"), "mistral": ("llama", "halves", "")}
SIZES = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size",
         "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
         "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
         "attention.key_length": "head_dim"}  # GGUF's keys, and how configs answer for them
# Sizes as config.json has them, GPT-2's names too; those that may be null follow from others.
MOST, MOST_LAYERS = (1 << 24) - 1, 512
SIZE_LIMITS = dict.fromkeys({*SIZES.values(), "vocab_size", "sliding_window", "n_positions", "n_embd", "n_head",
                             "n_inner"}, MOST) | {"num_hidden_layers": MOST_LAYERS, "n_layer": MOST_LAYERS}
MAY_BE_NULL = {"num_key_value_heads", "head_dim", "n_inner", "sliding_window"}
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

# Keys of configs that are read here, or change no logits; keys of no class that what all are made of reads.
KNOWN = re.compile(
    r"n_(positions|embd|layer|head|inner)|(max_position|tie_word)_embeddings|(hidden|intermediate|vocab)_size"
    r"|head_dim|num_(hidden_layers|attention_heads|key_value_heads)|(attention|mlp)_bias|sliding_window"
    r"|activation_function|hidden_act|rope_parameters|rms_norm_eps|layer_norm_epsilon|multi_query|use_cache"
    r"|_name_or_path|architectures|dtype|model_type|problem_type|return_dict|transformers_version|summary_.*"
    r"|pretraining_tp|reorder_and_upcast_attn|.*_token_id|.*label.*|.*dropout|.*pdrop|output_.*|.*_in_fp32"
    r"|initializer_range|chunk_size_.*")
FOREIGN = {"quantization_config", "is_causal", "attention_chunk_size", "partial_rotary_factor"}
ROPE_KEYS = {"default": set(), "linear": {"factor"}, "llama3": {
    "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}}


class Shape:
    """What a config of transformers says of the tensors; `keys` are those of SIZES. By `layout` matrices of
    blocks are transposed there ("conv1d"), Q, K and V of a head stand together ("by head": GPT-BigCode as
    MHA), or rotary positions turn halves of a head, not neighbouring pairs ("halves"). Fails where sizes do
    not fit each other."""

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
        if not all(type(n) is int and 0 < n <= MOST for n in (c.vocab_size, *sizes)) or (
                self.n_layers > MOST_LAYERS or self.n_heads % self.n_kv_heads
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


def positive(path, name, value, below=np.inf):
    """The number, which decode reads as F32. Fails unless it is above 0 there, and less than `below`."""
    single = np.float32(0)
    if type(value) in (int, float):
        with np.errstate(over="ignore", under="ignore"):
            single = np.float32(min(value, 2.0**200))
    if not 0 < single < below:
        bad(path, f"{name}: expected a number above 0 and below {below} that F32 holds, found {shown(value)}")
    return float(value)


def config_of(path, said):
    """The config of transformers that a config.json says, whose path is for messages. Fails where its class is none
    that runs here, and, before the class makes anything of them, where sizes are none. Labels, of which a class makes
    as many as it is told, are nothing to a language model. No code beside it is run: the class is transformers' own."""
    from transformers import CONFIG_MAPPING
    kind = said.get("model_type")
    if not isinstance(kind, str) or kind not in MODELS:
        bad(path, f"model_type: expected {', '.join(MODELS)}, found {shown(kind)}")
    for name in sorted(SIZE_LIMITS.keys() & said.keys()):
        n, most = said[name], SIZE_LIMITS[name]
        if not (type(n) is int and 1 <= n <= most) and not (n is None and name in MAY_BE_NULL):
            bad(path, f"{name}: expected 1 to {most}{' or null' * (name in MAY_BE_NULL)}, found {shown(n)}")
    try:
        return CONFIG_MAPPING[kind].from_dict({key: value for key, value in said.items() if "label" not in key})
    except Exception as error:
        bad(path, f"expected a config that transformers reads, found one of which it says: {error}")


def shape_of_config(path, c):
    """The Shape that a config of transformers says. Fails, by name, on whatever is not its class's default and has no
    meaning here, and on numbers that decode would not read."""
    found, default = c.to_dict(), type(c)().to_dict()
    for key in (key for key in found if not KNOWN.fullmatch(key)):
        expected = default.get(key, None if key in FOREIGN else found[key])
        if found[key] != expected:
            bad(path, f"{key}: expected {expected}, as nothing else runs here, found {found[key]}")
    s = Shape(path, c)
    activation = c.hidden_act if s.is_llama else c.activation_function
    ffn = ACTIVATIONS.get(activation) if isinstance(activation, str) else None
    if not ffn or (ffn == "swiglu") != s.is_llama:
        bad(path, f"activation: expected {'silu' if s.is_llama else 'gelu or relu'}, found {shown(activation)}")
    s.factors, s.window, s.gguf_arch = None, getattr(c, "sliding_window", None), s.arch
    if s.is_llama:
        epsilon = positive(path, "rms_norm_eps", c.rms_norm_eps, below=1)
        s.keys |= {"attention.layer_norm_rms_epsilon": epsilon, "rope.dimension_count": s.head_dim}
        s.keys |= rope_keys(path, c.rope_parameters)
        s.factors = llama3_factors(path, c.rope_parameters, s.head_dim)
        return s
    epsilon = positive(path, "layer_norm_epsilon", c.layer_norm_epsilon, below=1)
    if ffn == "gelu":
        s.keys["attention.layer_norm_epsilon"] = epsilon
    else:  # GGUF's gpt2 and starcoder mean GELU's tanh form
        s.gguf_arch = "decode"
        s.keys |= {"norm.epsilon": epsilon, "norm.type": "layer", "norm.placement": "before",
                   "position.type": "learned", "feed_forward.type": ffn}
    return s


def rope_keys(path, rope):
    """GGUF's keys of rotary positions as they are, or linear. Fails on all others but Llama 3.1's."""
    kind = rope["rope_type"]
    if kind not in ROPE_KEYS or rope.keys() - ROPE_KEYS[kind] - {"rope_type", "type", "rope_theta"}:
        bad(path, f"rope_parameters: expected {', '.join(ROPE_KEYS)}, which run here, found {rope}")
    for name in sorted(ROPE_KEYS[kind] | {"rope_theta"}):
        positive(path, f"rope_parameters: {name}", rope.get(name))
    keys = {"rope.freq_base": float(rope["rope_theta"])}
    if kind == "linear":
        keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    return keys


def llama3_factors(path, rope, head_dim):
    """What the frequencies of rotary positions are divided by, as transformers' llama3 does; None: by nothing."""
    if rope["rope_type"] != "llama3":
        return None
    frequencies = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    if low == high:
        bad(path, f"rope_parameters: expected low_freq_factor and high_freq_factor to differ, found {low} and {high}")
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)
