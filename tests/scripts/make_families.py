#!/usr/bin/env python3
"""Writes tests/data/hf/families: small models of the families, as transformers computes them in float64; and the
tensors and logits of tests/data/hf/gpt-bigcode.

    tests/scripts/make_families.py      needs torch, and the packages of scripts/requirements.txt

A file each, NAME.json: config, as transformers writes it; hub, the keys that differ in files of the hub, null where
there is none; tensors, names and extents; tokens. NAME.npy has the logits of all tokens. The numbers of the tensors
are made again by families_tensors.py, so that only names and extents are kept."""
import functools
import hashlib
import json
import os
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, CONFIG_MAPPING

from families_tensors import numbers

OUT = "tests/data/hf/families"
ENDS = {"vocab_size": 60, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 40}
LLAMA = SIZES | {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40}
ROPE = {"rope_parameters": None, "rope_theta": 10000.0}
WINDOWED = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
GEMMA = LLAMA | {"head_dim": 12, "num_key_value_heads": 1}
NEO = {"hidden_size": 24, "num_layers": 3, "num_heads": 3, "max_position_embeddings": 40, "window_size": 5,
       "attention_types": [[["global", "local"], 1], [["local"], 1]]}
MPT_ATTENTION = {"attn_config": {"alibi": True, "alibi_bias_max": 8}}
# By name: model_type, values, and the keys of the hub's form.
CASES = {
    "bloom": ("bloom", {"hidden_size": 24, "n_layer": 2, "n_head": 3},
              {"hidden_size": None, "n_embed": 24, "n_head": None, "num_attention_heads": 3, "seq_length": 40}),
    "falcon": ("falcon", SIZES | {"num_kv_heads": 3}, ROPE | {"ffn_hidden_size": None, "activation": None}),
    "falcon-heads": ("falcon", SIZES | {"multi_query": False}, ROPE),
    "falcon-groups": ("falcon", SIZES | {"num_attention_heads": 6, "hidden_size": 24, "new_decoder_architecture": True,
                                         "num_ln_in_parallel_attn": 1, "num_kv_heads": 2}, ROPE),
    "gemma": ("gemma", GEMMA, ROPE | {"hidden_act": "gelu"}),
    "gemma3": ("gemma3_text", GEMMA | {"num_hidden_layers": 6, "sliding_window": 6, "query_pre_attn_scalar": 12},
               {"rope_parameters": None, "layer_types": None, "sliding_window_pattern": 6, "rope_theta": 1000000.0,
                "rope_local_base_freq": 10000.0}),
    "gemma3-pattern": ("gemma3_text", GEMMA | {"num_hidden_layers": 3, "sliding_window": 6, "query_pre_attn_scalar": 30,
                                               "layer_types": ["full_attention", "sliding_attention", "full_attention"]},
                       {}),
    "gptneo": ("gpt_neo", NEO, {"attention_layers": None}),
    "gptneox": ("gpt_neox", SIZES | {"hidden_size": 48, "intermediate_size": 96},
                ROPE | {"rope_theta": None, "rotary_pct": 0.25, "rotary_emb_base": 10000}),
    "gptneox-sequential": ("gpt_neox", SIZES | {"intermediate_size": 96, "use_parallel_residual": False,
                                                "rope_parameters": {"rope_theta": 5000.0, "partial_rotary_factor": 1.0}},
                           {"rope_parameters": None, "rotary_pct": 1.0, "rotary_emb_base": 5000}),
    "gptneox-tanh": ("gpt_neox", SIZES | {"hidden_size": 48, "intermediate_size": 96, "hidden_act": "gelu_fast",
                                          "tie_word_embeddings": True}, {}),
    "mistral-window": ("mistral", LLAMA | {"sliding_window": 6}, ROPE),
    "mpt": ("mpt", {"d_model": 24, "n_heads": 3, "n_layers": 2, "max_seq_len": 40} | MPT_ATTENTION,
            {}),
    "olmo": ("olmo", LLAMA, ROPE),
    "opt": ("opt", SIZES | {"ffn_dim": 40}, {}),
    "opt-after": ("opt", SIZES | {"ffn_dim": 40, "do_layer_norm_before": False}, {}),
    "phi": ("phi", SIZES | {"hidden_size": 48, "intermediate_size": 192}, ROPE | {"partial_rotary_factor": 0.5}),
    "qwen2": ("qwen2", LLAMA | {"tie_word_embeddings": True}, ROPE | {"layer_types": None, "sliding_window": 32768}),
    "qwen2-window": ("qwen2", LLAMA | WINDOWED, ROPE | {"layer_types": None}),
    "qwen3": ("qwen3", LLAMA | {"head_dim": 12}, ROPE | {"layer_types": None, "sliding_window": 32768}),
    "stablelm": ("stablelm", LLAMA | {"use_qkv_bias": True}, ROPE | {"partial_rotary_factor": 0.25}),
}


def computed(config, tokens, add_one=False):
    """What transformers writes as config.json, names and extents of the tensors, the digest of its file of our numbers,
    and the logits."""
    with tempfile.TemporaryDirectory() as folder:
        load = functools.partial(AutoModelForCausalLM.from_pretrained, folder)
        file = f"{folder}/model.safetensors"
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        with open(f"{folder}/config.json", encoding="utf-8") as config_file:
            said = json.load(config_file) | {"dtype": "float32"}
        shapes = {key: list(x.shape) for key, x in load_file(file).items()}
        save_file(numbers(shapes, add_one), file, metadata={"format": "pt"})
        model = load(dtype=torch.float64, attn_implementation="eager").eval()
        load(dtype=torch.float32).save_pretrained(folder)
        with open(file, "rb") as written:
            digest = hashlib.sha256(written.read()).hexdigest()
    with torch.no_grad():
        return said, shapes, digest, model(torch.tensor([tokens])).logits[0].numpy()


def write_bigcode(folder="tests/data/hf/gpt-bigcode"):
    """The folder has the keys and the vocabulary; these are its tensors and logits."""
    with open(f"{folder}/expect.json", encoding="utf-8") as file:
        expect = json.load(file)
    _, expect["tensors"], expect["sha256"], logits = computed(AutoConfig.from_pretrained(folder), expect["tokens"])
    np.save(f"{folder}/logits.npy", logits[-8:].astype(np.float32))
    with open(f"{folder}/expect.json", "w", encoding="utf-8") as file:
        json.dump(expect, file)
        file.write("\n")


def main():
    os.makedirs(OUT, exist_ok=True)
    for name, (kind, values, hub) in CASES.items():
        tokens = np.random.RandomState(7).randint(0, ENDS["vocab_size"], 17).tolist()
        said, shapes, _, logits = computed(CONFIG_MAPPING[kind](**ENDS, **values), tokens, "gemma" in kind)
        np.save(f"{OUT}/{name}.npy", logits.astype(np.float32))
        with open(f"{OUT}/{name}.json", "w", encoding="utf-8") as file:
            json.dump({"config": said, "hub": hub, "tokens": tokens, "tensors": shapes}, file)
            file.write("\n")
        print(f"{name}: logits of {logits.std():.2f}, {sum(map(np.prod, shapes.values()))} numbers")
    write_bigcode()


main()
