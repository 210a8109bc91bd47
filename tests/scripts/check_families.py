"""The families of transformers: folders with both forms of config.json, as one file and as pytorch_model.bin, against
the logits that transformers has; out and in again; what is refused. They are of check_import_hostile's CHECKS."""
import collections
import os
import shutil

import numpy as np

from check_import_hostile import Tensor, archive, checks, llama, put, trained
from families_tensors import numbers
from import_checks import HF, check, close, decode, export, import_, keys, load_file, logits, odd_texts, read_json, save_file, shapes

FAMILIES = HF + "families/"
# GGUF's architecture of each; what no other program can say is decode's own.
ARCHITECTURES = {
    "bloom": "bloom", "falcon": "falcon", "falcon-heads": "falcon", "falcon-groups": "falcon", "gemma": "gemma",
    "gemma3": "gemma3", "gemma3-pattern": "gemma3", "gptneo": "decode", "gptneox": "gptneox", "gptneox-sequential": "gptneox",
    "gptneox-tanh": "gptneox", "mistral-window": "decode", "mpt": "mpt", "olmo": "olmo", "opt": "decode",
    "opt-after": "decode", "phi": "phi2", "qwen2": "qwen2", "qwen2-window": "decode", "qwen3": "qwen3",
    "stablelm": "stablelm"}


def arrays(name):
    return numbers(read_json(FAMILIES, name + ".json")["tensors"], "gemma" in name)


def weights_of_torch(path, tensors):
    """pytorch_model.bin as PyTorch writes it."""
    state, storages = collections.OrderedDict(), {}
    for n, (name, x) in enumerate(tensors.items()):
        strides = tuple(int(np.prod(x.shape[i + 1:])) for i in range(x.ndim))
        state[name] = Tensor(str(n), "FloatStorage", x.size, 0, x.shape, strides)
        storages[str(n)] = x.tobytes()
    archive(path, state, storages)


def made(path, name, hub=False, torch=False, **config):
    """The folder of a family, with keys of config.json set, or left out where they are None there."""
    case = read_json(FAMILIES, name + ".json")
    os.mkdir(path)
    said = case["config"] | (case["hub"] if hub else {}) | config
    put(f"{path}/config.json", {key: value for key, value in said.items() if not hub or value is not None})
    if torch:
        weights_of_torch(f"{path}/pytorch_model.bin", arrays(name))
    else:
        save_file(arrays(name), f"{path}/model.safetensors", metadata={"format": "pt"})
    return path


def same(one, other):
    one[0].pop("general.name"), other[0].pop("general.name")
    return one[0] == other[0] and one[1].keys() == other[1].keys() and all(
        np.array_equal(one[1][key], other[1][key]) for key in one[1])


@checks
def families(dir):
    for name, architecture in ARCHITECTURES.items():
        case, expected = read_json(FAMILIES, name + ".json"), np.load(f"{FAMILIES}{name}.npy")
        model = f"{dir}/{name}.gguf"
        import_(made(f"{dir}/{name}", name), model, ctx=40)
        found = keys(model)
        check(f"{name}: {architecture}", found[0]["general.architecture"] == architecture, found[0]["general.architecture"])
        close(f"{name}: logits", logits(model, case["tokens"]), expected)
        for form in ({"hub": True}, {"torch": True}):
            import_(made(f"{dir}/{name}-{form}", name, **form), f"{dir}/other.gguf", ctx=40)
            check(f"{name}: as {form}", same(found, keys(f"{dir}/other.gguf")))
            found = keys(model)
        export(model, f"{dir}/out")
        import_(f"{dir}/out", f"{dir}/other.gguf", ctx=40)
        again = keys(f"{dir}/other.gguf")
        check(f"{name}: out and in again, its tensors", all(np.allclose(found[1][key], again[1][key], atol=1e-7)
                                                            for key in found[1]), again[1].keys() ^ found[1].keys())
        close(f"{name}: out and in again", logits(f"{dir}/other.gguf", case["tokens"]), expected)


OWN = {"gptneox": {"norm.type": "layer", "norm.placement": "parallel", "position.type": "rope", "feed_forward.type": "gelu_erf",
                   "rope.halves": True},
       "phi": {"norm.type": "layer", "norm.placement": "parallel", "norm.single": True, "position.type": "rope",
               "feed_forward.type": "gelu", "rope.halves": True},
       "bloom": {"norm.type": "layer", "norm.placement": "before", "norm.embedding": True, "position.type": "alibi",
                 "feed_forward.type": "gelu"},
       "olmo": {"norm.type": "layer", "norm.placement": "before", "norm.no_weights": True, "position.type": "rope",
                "feed_forward.type": "swiglu"}}


@checks
def families_of_decode(dir):
    """The same models as decode's own architecture says them, and with fewer K/V heads, go out as their families."""
    for name, own in OWN.items():
        tokens, expected = read_json(FAMILIES, name + ".json")["tokens"], np.load(f"{FAMILIES}{name}.npy")
        import_(made(f"{dir}/{name}", name), f"{dir}/x.gguf", ctx=40)
        found, tensors = keys(f"{dir}/x.gguf")
        architecture = found["general.architecture"]
        w = shapes.gguf.GGUFWriter(None, "decode")
        add = {int: w.add_uint32, float: w.add_float32, str: w.add_string, bool: w.add_bool}
        kept = {key.removeprefix(architecture + "."): value for key, value in found.items() if key.startswith(architecture)}
        kept["norm.epsilon"] = kept.pop("attention.layer_norm_epsilon")
        kept.pop("use_parallel_residual", None)
        for key, value in (kept | own).items():
            add[type(value)](f"decode.{key}", value)
        for key, x in tensors.items():
            w.add_tensor(key, x)
        w.write_header_to_file(f"{dir}/y.gguf")
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        close(f"{name}, as decode", logits(f"{dir}/y.gguf", tokens), expected)
        export(f"{dir}/y.gguf", f"{dir}/out")
        import_(f"{dir}/out", f"{dir}/again.gguf", ctx=40)
        check(f"{name}, out as its family", keys(f"{dir}/again.gguf")[0]["general.architecture"] == architecture)
        close(f"{name}, out as its family", logits(f"{dir}/again.gguf", tokens), expected)
        decode("convert", f"{dir}/y.gguf", "-o", f"{dir}/one.gguf", "--kv-heads", "1", "--method", "mean", "--force", "-q")
        export(f"{dir}/one.gguf", f"{dir}/out", 2 * (name in ("gptneox", "bloom")), "--expand" if name in ("gptneox", "bloom") else ())
        export(f"{dir}/one.gguf", f"{dir}/out", expand=True)
        import_(f"{dir}/out", f"{dir}/again.gguf", ctx=40)
        close(f"{name}, MQA expanded", logits(f"{dir}/again.gguf", tokens), logits(f"{dir}/one.gguf", tokens))


@checks
def families_refused(dir):
    """What computes something else."""
    attention = read_json(FAMILIES, "mpt.json")["config"]["attn_config"]
    n = 0
    for name, key, value, says in (
            ("opt", "word_embed_proj_dim", 16, "word_embed_proj_dim"), ("opt", "enable_bias", False, "enable_bias"),
            ("opt", "layer_norm_elementwise_affine", False, "layer_norm_elementwise_affine"),
            ("opt", "_remove_final_layer_norm", True, "_remove_final_layer_norm"), ("opt", "activation_function", "tanh", "tanh"),
            ("falcon", "alibi", True, "alibi"), ("falcon", "bias", True, "bias"), ("falcon", "parallel_attn", False, "parallel_attn"),
            ("falcon-groups", "num_ln_in_parallel_attn", 2, "num_ln_in_parallel_attn"),
            ("falcon-groups", "num_ln_in_parallel_attn", None, "num_ln_in_parallel_attn"),
            ("bloom", "apply_residual_connection_post_layernorm", True, "apply_residual_connection_post_layernorm"),
            *(("mpt", "attn_config", attention | {key: value}, f"attn_config: {key}") for key, value in (
                ("clip_qkv", 6.0), ("alibi", False), ("alibi_bias_max", 4), ("qk_ln", True), ("softmax_scale", 0.5),
                ("prefix_lm", True))),
            ("mpt", "no_bias", False, "no_bias"), ("mpt", "logit_scale", 0.5, "logit_scale"),
            ("phi", "qk_layernorm", True, "qk_layernorm"), ("stablelm", "qk_layernorm", True, "qk_layernorm"),
            ("stablelm", "use_parallel_residual", True, "use_parallel_residual"), ("olmo", "clip_qkv", 8.0, "clip_qkv"),
            ("olmo", "attention_bias", True, "attention_bias"), ("gptneox", "attention_bias", False, "attention_bias"),
            ("gptneox", "rope_parameters", {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0}, "yarn"),
            ("gptneox", "rope_parameters", {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.2}, "even"),
            ("gemma", "use_bidirectional_attention", True, "use_bidirectional_attention"),
            ("gemma", "tie_word_embeddings", False, "tie_word_embeddings"), ("gemma", "hidden_act", "relu", "relu"),
            ("gemma3", "attn_logit_softcapping", 50.0, "attn_logit_softcapping"),
            ("gemma3", "final_logit_softcapping", 30.0, "final_logit_softcapping"),
            ("gemma3", "layer_types", ["near"] * 6, "near"), ("gemma3", "model_type", "gemma2", "gemma2"),
            ("qwen3", "attention_bias", True, "attention_bias"), ("qwen2", "model_type", "qwen2_moe", "qwen2_moe"),
            ("gptneo", "attention_layers", ["global", "near", "local"], "layer_types"),
            ("mistral-window", "model_type", "mixtral", "mixtral"), ("gptneo", "hidden_size", 25, "heads that divide")):
        n += 1
        import_(made(f"{dir}/{n}", name, **{key: value}), f"{dir}/x.gguf", 3, ["config.json", says, "expected", "found"])


@checks
def windows(dir):
    """A window as long as the context, or longer, is none; bloom's context is BLOOM's where it has none."""
    model = f"{dir}/x.gguf"
    for n, options in enumerate(({"sliding_window": 40}, {"sliding_window": None}, {"sliding_window": 4096})):
        import_(made(f"{dir}/{n}", "mistral-window", **options), model)
        found = keys(model)[0]
        check(f"{options}: a llama", found["general.architecture"] == "llama" and "llama.attention.sliding_window" not in found)
    import_(f"{dir}/1", model, ctx=90)
    check("--ctx beyond", keys(model)[0]["llama.context_length"] == 90)
    import_(made(f"{dir}/bloom", "bloom"), model, says="context is 2048")
    import_(made(f"{dir}/opt", "opt"), model, 2, "1 to 40", ctx=41)


@checks
def beside_the_weights(dir):
    source, model = made(f"{dir}/olmo", "olmo"), f"{dir}/x.gguf"
    put(f"{source}/adapter_config.json", {"peft_type": "LORA"})
    import_(source, model, says="an adapter stands beside the weights (adapter_config.json)")
    more = arrays("olmo") | {"model.layers.0.self_attn.q_proj.lora_A.weight": np.ones((2, 32), np.float32)}
    save_file(more, f"{source}/model.safetensors", metadata={"format": "pt"})
    import_(source, model, says="an adapter's tensors, such as layers.0.self_attn.q_proj.lora_A.weight, are left out")
    os.unlink(f"{source}/model.safetensors")
    import_(source, model, 3, "model.safetensors or pytorch_model.bin")
    parts = list(arrays("olmo").items())
    weights_of_torch(f"{source}/pytorch_model-1.bin", dict(parts[:5]))
    weights_of_torch(f"{source}/pytorch_model-2.bin", dict(parts[5:]))
    put(f"{source}/pytorch_model.bin.index.json", {"weight_map": {
        name: f"pytorch_model-{1 + (i >= 5)}.bin" for i, (name, _) in enumerate(parts)}})
    import_(source, model)
    close("pytorch_model.bin in parts", logits(model, read_json(FAMILIES, "olmo.json")["tokens"]), np.load(FAMILIES + "olmo.npy"))
    put(f"{source}/pytorch_model-1.bin", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.")
    import_(source, model, 3, ["pytorch_model-1.bin", "zip archive"])


@checks
def numbers_that_are_none(dir):
    model = f"{dir}/x.gguf"
    for n, (name, value) in enumerate((("model.layers.1.mlp.up_proj.weight", np.nan), ("model.embed_tokens.weight", np.inf))):
        source = made(f"{dir}/{n}", "olmo")
        tensors = arrays("olmo")
        tensors[name][1, 2] = value
        save_file(tensors, f"{source}/model.safetensors", metadata={"format": "pt"})
        import_(source, model, 3, ["expected finite numbers, found 1", "ffn_up" if n == 0 else "token_embd", "--force"])
        import_(source, model, force=True)
        import_(source, model, force=True, type="f16")
        found = keys(model)[1]["blk.1.ffn_up.weight" if n == 0 else "token_embd.weight"]
        check("it is there with --force", np.isnan(found[1, 2]) if n == 0 else np.isinf(found[1, 2]))


# --- vocabularies ------------------------------------------------------------------------------------

NAMES = ["<|endoftext|>", "<|padding|>"]


def tokenizer_of(path, cut, normalizer=None, **config):
    """A byte-level BPE with this cut, written as tokenizer.json with tokenizer_config.json."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = cut, decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(odd_texts() * 3, trainers.BpeTrainer(
        vocab_size=400, special_tokens=NAMES, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.save(f"{path}/tokenizer.json")
    put(f"{path}/tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>",
                                          "eos_token": "<|endoftext|>"} | config)


@checks
def vocabularies(dir):
    """Ids are AutoTokenizer's, whose class changes what tokenizer.json says."""
    from exchange.ids import cuts, hard_texts
    from tokenizers import normalizers
    from transformers import AutoTokenizer
    n, cut = len(odd_texts(NAMES)), cuts()
    nfc = {"tokenizer_class": "Qwen2Tokenizer"}
    for i, (name, pre, config) in enumerate((
            ("falcon", "falcon", {}), ("bloom", "bloom", {}), ("qwen2", "qwen2", nfc), ("gptneox", "gpt-2", {}),
            ("gptneox", "gpt-2", {"tokenizer_class": "GPTNeoXTokenizer"}), ("olmo", "gpt-2", {}),
            ("opt", "gpt-2", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}))):
        source, model = made(f"{dir}/{i}", name, vocab_size=400), f"{dir}/{i}.gguf"
        for tensor in ("embed_tokens", "word_embeddings", "embed_in", "embed_out", "lm_head"):
            grown(source, tensor)
        tokenizer_of(source, cut[pre], **config)
        import_(source, model, says=f"{n} of {n} odd texts get the ids of transformers")
        found = keys(model)[0]
        check(f"{name}: cut as {pre}", found["tokenizer.ggml.pre"] == pre, found["tokenizer.ggml.pre"])
        composes = "tokenizer.decode.replacements" in found
        check(f"{name}: composes", composes == ("Tokenizer" in str(config) and name != "opt"), name)
        if composes:  # lines are normalized alone
            text = "\n".join(hard_texts(4000))
            with open(f"{dir}/text", "w", encoding="utf-8") as file:
                file.write(text)
            ids = [int(i) for i in decode("tokenize", "-f", file.name, model).split()]
            check(f"{name}: NFC", ids == AutoTokenizer.from_pretrained(source)(text)["input_ids"])
        export(model, f"{dir}/out", says=f"{n} of {n} odd texts get the ids of AutoTokenizer")
    for step in (normalizers.Lowercase(), normalizers.NFKC(), normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])):
        tokenizer_of(source, cut["gpt-2"], step)
        import_(source, model, 3, ["expected none or NFC", "decode changes no other character"])


@checks
def spaces(dir):
    """tokenizer.json of SentencePiece's kind, as its class of transformers has it: before a text that begins with none,
    and before none."""
    from transformers import AutoTokenizer
    model = trained(dir)
    for name, kind, scheme in (("LlamaTokenizer", "llama", "first"), ("GemmaTokenizer", "gemma", None)):
        os.makedirs(f"{dir}/{kind}")
        os.symlink(model, f"{dir}/{kind}/tokenizer.model")
        put(f"{dir}/{kind}/config.json", {"model_type": kind})
        put(f"{dir}/{kind}/tokenizer_config.json", {"tokenizer_class": name, "bos_token": "<s>", "eos_token": "</s>",
                                                    "unk_token": "<unk>", "pad_token": "<unk>", "mask_token": None})
        tokenizer = AutoTokenizer.from_pretrained(f"{dir}/{kind}")
        source, out = llama(f"{dir}/{kind}-model", len(tokenizer), model_type=kind), f"{dir}/{kind}.gguf"
        if kind == "gemma":
            made(f"{dir}/{kind}-of", "gemma", vocab_size=len(tokenizer))
            grown(f"{dir}/{kind}-of", "embed_tokens", len(tokenizer))
            source = f"{dir}/{kind}-of"
        tokenizer.save_pretrained(f"{dir}/{kind}-saved")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(f"{dir}/{kind}-saved/{file}", source)
        said = import_(source, out, says="odd texts get the ids of transformers")
        check(f"{name}: all ids", "get others" not in said, said)
        found = keys(out)[0]
        check(f"{name}: its spaces", (found["tokenizer.ggml.add_space_prefix"], found.get("tokenizer.decode.prepend_scheme"))
              == (scheme is not None, scheme))
        said = export(out, f"{dir}/out", says="odd texts get the ids of AutoTokenizer")
        check(f"{name}: all ids, out", "get others" not in said, said)


def grown(source, part, n=400):
    """The tensors of a folder whose names have this part get n rows."""
    tensors = load_file(f"{source}/model.safetensors")
    for name, x in tensors.items():
        if part in name and "layernorm" not in name:
            tensors[name] = np.resize(x, (n, *x.shape[1:])) if x.shape[0] == 60 else x
    save_file(tensors, f"{source}/model.safetensors", metadata={"format": "pt"})

