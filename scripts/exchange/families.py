"""The families of transformers that are read and written. Each has a row: the meaning of its configuration, the names
of its tensors, and how these differ from GGUF's. Anything that a family has beyond its row is refused by name
(shapes.py)."""
from typing import NamedTuple

# Tensors behind the base model's prefix: GGUF's name, and rows and columns as GGUF has them: V tokens, C positions,
# E width, F feed-forward, Q and K all heads of queries and of keys, A these and the values joined, H one head.
GPT2 = {"wte": "token_embd VE", "wpe": "position_embd CE", "ln_f": "output_norm E", "lm_head": "output VE",
        "h.{}.ln_1": "attn_norm E", "h.{}.ln_2": "ffn_norm E", "h.{}.attn.c_attn": "attn_qkv AE",
        "h.{}.attn.c_proj": "attn_output EQ", "h.{}.mlp.c_fc": "ffn_up FE", "h.{}.mlp.c_proj": "ffn_down EF"}
LLAMA = {"embed_tokens": "token_embd VE", "norm": "output_norm E", "lm_head": "output VE",
         "layers.{}.input_layernorm": "attn_norm E", "layers.{}.self_attn.q_proj": "attn_q QE",
         "layers.{}.self_attn.k_proj": "attn_k KE", "layers.{}.self_attn.v_proj": "attn_v KE",
         "layers.{}.self_attn.o_proj": "attn_output EQ", "layers.{}.post_attention_layernorm": "ffn_norm E",
         "layers.{}.mlp.gate_proj": "ffn_gate FE", "layers.{}.mlp.up_proj": "ffn_up FE",
         "layers.{}.mlp.down_proj": "ffn_down EF"}
NEO = {name: to for name, to in GPT2.items() if ".attn." not in name} | {
    **{f"h.{{}}.attn.attention.{x}_proj": f"attn_{x} QE" for x in "qkv"},
    "h.{}.attn.attention.out_proj": "attn_output EQ"}
NEOX = {"embed_in": "token_embd VE", "final_layer_norm": "output_norm E", "embed_out": "output VE",
        "layers.{}.input_layernorm": "attn_norm E", "layers.{}.post_attention_layernorm": "ffn_norm E",
        "layers.{}.attention.query_key_value": "attn_qkv AE", "layers.{}.attention.dense": "attn_output EQ",
        "layers.{}.mlp.dense_h_to_4h": "ffn_up FE", "layers.{}.mlp.dense_4h_to_h": "ffn_down EF"}
OPT = {"embed_tokens": "token_embd VE", "embed_positions": "position_embd CE", "final_layer_norm": "output_norm E",
       "lm_head": "output VE", "layers.{}.self_attn_layer_norm": "attn_norm E",
       **{f"layers.{{}}.self_attn.{x}_proj": f"attn_{x} QE" for x in "qkv"},
       "layers.{}.self_attn.out_proj": "attn_output EQ", "layers.{}.final_layer_norm": "ffn_norm E",
       "layers.{}.fc1": "ffn_up FE", "layers.{}.fc2": "ffn_down EF"}
OPT_AFTER = {name: to.replace("attn_norm", "attn_output_norm").replace("ffn_norm", "layer_output_norm")
             for name, to in OPT.items() if name != "final_layer_norm"}
PHI = {name: to for name, to in LLAMA.items() if "norm" not in name and "mlp" not in name and "o_proj" not in name} | {
    "final_layernorm": "output_norm E", "layers.{}.input_layernorm": "attn_norm E",
    "layers.{}.self_attn.dense": "attn_output EQ", "layers.{}.mlp.fc1": "ffn_up FE", "layers.{}.mlp.fc2": "ffn_down EF"}
BLOOM = {"word_embeddings": "token_embd VE", "word_embeddings_layernorm": "token_embd_norm E", "ln_f": "output_norm E",
         "lm_head": "output VE", "h.{}.input_layernorm": "attn_norm E", "h.{}.post_attention_layernorm": "ffn_norm E",
         "h.{}.self_attention.query_key_value": "attn_qkv AE", "h.{}.self_attention.dense": "attn_output EQ",
         "h.{}.mlp.dense_h_to_4h": "ffn_up FE", "h.{}.mlp.dense_4h_to_h": "ffn_down EF"}
FALCON = {name: to for name, to in BLOOM.items() if "post_att" not in name and "embeddings_layernorm" not in name}
MPT = {"wte": "token_embd VE", "norm_f": "output_norm E", "lm_head": "output VE", "blocks.{}.norm_1": "attn_norm E",
       "blocks.{}.norm_2": "ffn_norm E", "blocks.{}.attn.Wqkv": "attn_qkv AE",
       "blocks.{}.attn.out_proj": "attn_output EQ", "blocks.{}.ffn.up_proj": "ffn_up FE",
       "blocks.{}.ffn.down_proj": "ffn_down EF"}
OLMO = {name: to for name, to in LLAMA.items() if "norm" not in name}
QWEN3 = LLAMA | {f"layers.{{}}.self_attn.{x}_norm": f"attn_{x}_norm H" for x in "qk"}
GEMMA3 = QWEN3 | {"layers.{}.post_attention_layernorm": "post_attention_norm E",
                  "layers.{}.pre_feedforward_layernorm": "ffn_norm E",
                  "layers.{}.post_feedforward_layernorm": "post_ffw_norm E"}


class Family(NamedTuple):
    """The meaning of a config's model_type. Norms stand before a block's parts, unless `means` says otherwise."""
    arch: str  # GGUF's name; "decode" where no other says it
    model: str  # transformers' class with an output
    prefix: str  # of the base model's tensors
    tensors: dict
    means: dict  # GGUF's keys of "decode": what the name says without them
    biases: dict = {}  # parts of names that have biases, by the key of the config that says so; "": always
    differs: frozenset = frozenset()  # how rows of tensors differ from GGUF's (Shape.turned)
    activation: str = "hidden_act"
    epsilon: str | float = "rms_norm_eps"
    sizes: dict = {}  # names of a config's sizes where they are others than SIZES's
    expected: dict = {}  # values of keys that nothing else runs with
    known: str = "(?!)"  # keys that are read for this family alone, or change nothing: a regular expression
    keys: dict = {}  # GGUF's keys that are the same for all
    owns_output: bool = False  # llama.cpp expects an output matrix, be it the embedding's


def means(norm, placement, position, feed_forward):
    return {"norm.type": norm, "norm.placement": placement, "position.type": position,
            "feed_forward.type": feed_forward}


LLAMA_MEANS = means("rms", "before", "rope", "swiglu")
GPT2_MEANS = means("layer", "before", "learned", "gelu")
WINDOWS = "sliding_window|use_sliding_window|max_window_layers|layer_types"

# The families by model_type. Where several have one name in GGUF, the first is written.
FAMILIES = {
    "gpt2": Family("gpt2", "GPT2LMHeadModel", "transformer.", GPT2, GPT2_MEANS, {"": "ln_|attn|mlp"},
                   frozenset({"conv1d"}), "activation_function", "layer_norm_epsilon",
                   {"max_position_embeddings": "n_positions", "intermediate_size": "n_inner"},
                   known="reorder_and_upcast_attn"),
    "gpt_bigcode": Family("starcoder", "GPTBigCodeForCausalLM", "transformer.", GPT2, GPT2_MEANS,
                          {"": "ln_|attn|mlp"}, frozenset(), "activation_function", "layer_norm_epsilon",
                          {"max_position_embeddings": "n_positions", "intermediate_size": "n_inner"},
                          known="multi_query|.*_in_fp32"),
    "llama": Family("llama", "LlamaForCausalLM", "model.", LLAMA, LLAMA_MEANS,
                    {"attention_bias": "self_attn", "mlp_bias": "mlp"}, frozenset({"pairs"})),
    "mistral": Family("llama", "MistralForCausalLM", "model.", LLAMA, LLAMA_MEANS, {}, frozenset({"pairs"}),
                      known=WINDOWS),
    "gpt_neox": Family("gptneox", "GPTNeoXForCausalLM", "gpt_neox.", NEOX,
                       means("layer", "parallel", "rope", "gelu_erf"), {"": "norm|attention|mlp"},
                       frozenset({"by head"}), epsilon="layer_norm_eps", known="use_parallel_residual|is_decoder",
                       owns_output=True),
    "gpt_neo": Family("decode", "GPTNeoForCausalLM", "transformer.", NEO, GPT2_MEANS, {"": "ln_|out_proj|mlp"},
                      activation="activation_function", epsilon="layer_norm_epsilon",
                      known="attention_(types|layers)|window_size", keys={"attention.scale": 1.0}),
    "opt": Family("decode", "OPTForCausalLM", "model.decoder.", OPT, means("layer", "before", "learned", "relu"),
                  {"": "norm|self_attn|fc"}, frozenset({"two positions"}), "activation_function", 1e-5,
                  {"intermediate_size": "ffn_dim"}, known="do_layer_norm_before|word_embed_proj_dim|init_std|layerdrop"),
    "falcon": Family("falcon", "FalconForCausalLM", "transformer.", FALCON,
                     means("layer", "parallel", "rope", "gelu_erf"), {"": "norm|ln_f"}, activation="activation",
                     epsilon="layer_norm_epsilon",
                     sizes={"intermediate_size": "ffn_hidden_size", "num_key_value_heads": "num_kv_heads"},
                     known="num_ln_in_parallel_attn|multi_query|new_decoder_architecture|parallel_attn",
                     keys={"tensor_data_layout": "jploski"}),
    "bloom": Family("bloom", "BloomForCausalLM", "transformer.", BLOOM, means("layer", "before", "alibi", "gelu"),
                    {"": "norm|ln_f|attention|mlp"}, frozenset({"by head"}), "", "layer_norm_epsilon",
                    {"max_position_embeddings": "seq_length", "intermediate_size": ""}, known="slow_but_exact"),
    "mpt": Family("mpt", "MptForCausalLM", "transformer.", MPT, means("layer", "before", "alibi", "gelu_erf"),
                  activation="", epsilon="layer_norm_epsilon",
                  sizes={"max_position_embeddings": "max_seq_len", "intermediate_size": ""},
                  known="attn_config|learned_pos_emb|init_device|embedding_fraction|norm_type",
                  keys={"attention.max_alibi_bias": 8.0}),
    "phi": Family("phi2", "PhiForCausalLM", "model.", PHI, means("layer", "parallel", "rope", "gelu"),
                  {"": "norm|self_attn|mlp|lm_head"}, epsilon="layer_norm_eps", owns_output=True),
    "stablelm": Family("stablelm", "StableLmForCausalLM", "model.", LLAMA, means("layer", "before", "rope", "swiglu"),
                       {"": "norm", "use_qkv_bias": "[qkv]_proj"}, epsilon="layer_norm_eps", known="use_qkv_bias",
                       keys={"use_parallel_residual": False}, owns_output=True),
    "olmo": Family("olmo", "OlmoForCausalLM", "model.", OLMO, means("layer", "before", "rope", "swiglu"), {},
                   frozenset({"pairs"}), epsilon=1e-5),
    "qwen2": Family("qwen2", "Qwen2ForCausalLM", "model.", LLAMA, LLAMA_MEANS, {"": "[qkv]_proj"}, known=WINDOWS),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM", "model.", QWEN3, LLAMA_MEANS, known=WINDOWS),
    "gemma": Family("gemma", "GemmaForCausalLM", "model.", LLAMA, means("rms", "before", "rope", "geglu"), {},
                    frozenset({"1 + w"}), expected={"tie_word_embeddings": True}, known="use_bidirectional_attention"),
    "gemma3_text": Family("gemma3", "Gemma3ForCausalLM", "model.", GEMMA3, means("rms", "before", "rope", "geglu"), {},
                          frozenset({"1 + w"}), "hidden_activation", expected={"tie_word_embeddings": True},
                          known=WINDOWS + "|_?sliding_window_pattern|query_pre_attn_scalar"),
}
