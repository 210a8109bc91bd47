#!/usr/bin/env python3
"""export.py - a GGUF checkpoint as a folder of Hugging Face's transformers.

AutoModelForCausalLM.from_pretrained(DIR) has the logits of MODEL, AutoTokenizer its ids. A Llama becomes
LlamaForCausalLM, a GPT-2 GPT2LMHeadModel, or GPTBigCodeForCausalLM where it has one K/V head. Matrices
keep F32, F16 or BF16; blocks (q8_0, q4_0, ...) become F32. What cannot be said there is refused."""
import argparse

from exchange import (ACTIVATIONS, BAD_USAGE, SIZES, SPACE, TOKEN, Shape, T, bad, compare_ids, cuts, gguf, json, np,
                      os, rope_of_gguf, run, say, shutil, sync, sys, write_json, write_safetensors)

READ = {*SIZES, *"""vocab_size attention.value_length attention.layer_norm_epsilon rope.dimension_count norm.type
    attention.layer_norm_rms_epsilon norm.epsilon norm.placement position.type feed_forward.type rope.freq_base
    rope.scaling.type rope.scaling.factor rope.scale_linear""".split()}


def plan(path, keys, tensors, expand):
    """The Shape and the config of the model that says the same, and the K/V heads of each layer here."""
    from transformers import GPT2Config, GPTBigCodeConfig, LlamaConfig
    arch = keys["general.architecture"]
    get = lambda key, otherwise=None: keys.get(f"{arch}.{key}", otherwise)
    for key in (key for key in keys if key.startswith(f"{arch}.") and key.removeprefix(f"{arch}.") not in READ):
        if keys[key] not in (0, 1, "none") or key.endswith("attention.scale"):
            bad(path, f"{key}: expected none, as transformers has no such model, found {keys[key]}")
    is_llama, ffn = arch == "llama", get("feed_forward.type", "gelu")
    kinds = [get(key, usual) for key, usual in (
        ("norm.type", "layer"), ("norm.placement", "before"), ("position.type", "learned"))]
    sizes = {key: get(key) for key in SIZES}
    heads, kv = sizes["attention.head_count"], get("attention.head_count_kv") or sizes["attention.head_count"]
    if arch not in ("llama", "gpt2", "starcoder", "decode") or kinds != ["layer", "before", "learned"] or (
            ffn not in ACTIVATIONS.values() or isinstance(heads, list)):
        bad(path, "expected a llama, or layer norms before each part, learned positions and GELU or ReLU, as GPT-2, "
                  f"and as many heads in each layer, found {arch} with {kinds}, {ffn}, heads {heads}")
    kv = kv if isinstance(kv, list) else [kv] * sizes["block_count"]
    is_mha, is_mqa = set(kv) == {heads}, set(kv) == {1}
    if not expand and not (len(set(kv)) == 1 if is_llama else is_mha or is_mqa):
        bad(path, f"expected one number of K/V heads, of a GPT-2 1 or {heads}, found {sorted(set(kv))}; --expand "
                  "repeats them, which is the same function as MHA", BAD_USAGE)
    sizes["attention.head_count_kv"] = heads if expand else kv[0]
    sizes["feed_forward_length"] = len(tensors["blk.0.ffn_up.weight"].data)
    is_gpt2 = not is_llama and (expand or (is_mha and arch != "starcoder"))
    biases = [stem for stem, part in ((".self_attn", ".attn_"), (".mlp", ".ffn_"))
              if any(part in name and name.endswith(".bias") for name in tensors)]
    s = Shape(path, sizes, len(tensors["token_embd.weight"].data), is_llama, biases if is_llama else [
        "ln_", "attn", "mlp"], conv1d=is_gpt2, by_head=not is_gpt2 and is_mha, halves=is_llama)
    dims = get("attention.value_length", s.head_dim), get("rope.dimension_count", s.head_dim)
    if dims != (s.head_dim, s.head_dim) or (not is_llama and s.head_dim * heads != s.n_embd):
        bad(path, f"heads: expected keys and values of one size, all of it turned, found {s.head_dim} and {dims}")
    ids = {name: i for name in ("bos", "padding", "eos", "eot", "eom")
           if (i := keys.get(f"tokenizer.ggml.{name}_token_id", s.n_vocab)) < s.n_vocab}
    ends = [ids[name] for name in ("eos", "eot", "eom") if name in ids]
    output, embedding = tensors.get("output.weight"), tensors["token_embd.weight"]
    epsilon = get("attention.layer_norm_rms_epsilon") or get("attention.layer_norm_epsilon") or get("norm.epsilon")
    said = {names[is_llama]: sizes[key] for key, names in SIZES.items()} | {
        "vocab_size": s.n_vocab, "bos_token_id": ids.get("bos"), "pad_token_id": ids.get("padding"),
        "eos_token_id": ends if len(ends) > 1 else ends[0] if ends else None,
        "tie_word_embeddings": output is None or np.array_equal(output.data, embedding.data),
        "rms_norm_eps" if is_llama else "layer_norm_epsilon": float(f"{epsilon:.7g}")}  # 1e-05, as it was meant
    if is_llama:
        factors = tensors["rope_freqs.weight"].data if "rope_freqs.weight" in tensors else None
        rope = rope_of_gguf(path, get, factors, s.head_dim)
        return s, kv, LlamaConfig(**said, attention_bias=".self_attn" in biases, mlp_bias=".mlp" in biases,
                                  rope_parameters=rope, architectures=["LlamaForCausalLM"])
    del said["num_key_value_heads"], said["head_dim"]
    said["activation_function"] = next(name for name, kind in ACTIVATIONS.items() if kind == ffn)
    if is_gpt2:
        return s, kv, GPT2Config(**said, architectures=["GPT2LMHeadModel"])
    return s, kv, GPTBigCodeConfig(**said, multi_query=not is_mha, architectures=["GPTBigCodeForCausalLM"])


def arrays_of(path, s, kv, tensors, is_tied):
    """By transformers' names the type and array of each tensor. K/V heads are repeated where the Shape
    has more of them; a bias that is not there is zeros."""
    left, made = dict(tensors), {}
    for full, name, to, shape in s.tensors():
        t = left.pop(to, None)
        if to == "output.weight" and is_tied:
            continue
        if t is None and not name.endswith(".bias"):
            bad(path, f"tensor {to}: missing")
        kind, array = (T.F32, np.zeros(shape, "<f4")) if t is None else (t.tensor_type, t.data)
        if kind == T.BF16:
            array = array.view(np.uint16)
        elif kind not in (T.F32, T.F16):
            kind, array = T.F32, gguf.quants.dequantize(array, kind)
        has_kv = t is not None and any(part in to for part in (".attn_qkv.", ".attn_k.", ".attn_v."))
        copies = s.n_kv_heads // kv[int(to.split(".")[1])] if has_kv else 1
        if copies > 1:
            heads = array.reshape(-1, s.head_dim, *array.shape[1:])
            q = s.n_heads if "qkv" in to else 0
            array = np.concatenate([heads[:q], heads[q:].repeat(copies, axis=0)]).reshape(-1, *array.shape[1:])
        if array.shape != shape:
            bad(path, f"tensor {to}: expected {list(shape)}, as the keys say, found {list(array.shape)}")
        made[full] = kind, np.ascontiguousarray(s.turned(name, array, back=True))
    if others := left.keys() - {"rope_freqs.weight"}:
        bad(path, f"tensor {min(others)}: expected none of this name, as transformers' model has none")
    return made


def tokenizer_of(path, keys):
    """The vocabulary as the tokenizers library has it, and tokenizer_config.json; None: there is none."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
    from transformers.tokenization_utils_base import generate_merges
    get = lambda key, otherwise=None: keys.get(f"tokenizer.ggml.{key}", otherwise)
    model, pre, names, cut, vocab = get("model"), get("pre", "default"), get("tokens"), cuts(), {}
    if model not in ("llama", "gpt2") or (model == "gpt2" and pre not in cut):
        say(f"{path}: no vocabulary: expected llama, or gpt2 with the cut {', '.join(cut)}, found {model}, {pre}")
        return None
    types = get("token_type") or [TOKEN.NORMAL] * len(names)
    while types[-1] == TOKEN.UNUSED and names[-1] == f"[PAD{len(names) - 1}]":
        names, types = names[:-1], types[:-1]
    for i, name in enumerate(names):
        vocab[name if name and name not in vocab else f"[PAD{i}]"] = i
    if model == "gpt2":
        backend = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(merge.split(" ", 1)) for merge in get("merges")],
                                       ignore_merges=pre == "llama-bpe"))
        backend.pre_tokenizer, backend.decoder = cut[pre], decoders.ByteLevel()
    else:
        scores = {name: score for name, score, kind in zip(names, get("scores"), types) if kind == TOKEN.NORMAL}
        unk, adds_space = get("unknown_token_id"), get("add_space_prefix", True)
        backend = Tokenizer(models.BPE(
            vocab=vocab, merges=generate_merges({name: vocab[name] for name in scores}, scores), fuse_unk=True,
            byte_fallback=True, unk_token=None if unk is None else names[unk]))
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE)] * adds_space + [normalizers.Replace(" ", SPACE)])
        backend.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
                                             *[decoders.Strip(" ", 1, 0)] * adds_space])
    added = [i for i, kind in enumerate(types) if kind in (TOKEN.CONTROL, TOKEN.USER_DEFINED, TOKEN.UNKNOWN)]
    backend.add_tokens([AddedToken(names[i], normalized=False, special=types[i] != TOKEN.USER_DEFINED) for i in added])
    special = {f"{key}_token": names[i] if (i := get(f"{name}_token_id")) in added else None for key, name in (
        ("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))}
    if get("add_bos_token", model == "llama") and (bos := special["bos_token"]):
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, get("bos_token_id"))])
    # The class that takes tokenizer.json as it is, in every version of transformers.
    return backend, special | {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
                               "model_input_names": ["input_ids", "attention_mask"]}


def main(args):
    path, out = args.MODEL, args.DIR
    if os.path.exists(out) and (not os.path.isdir(out) or os.listdir(out)):
        bad(out, "expected a folder that is new or empty, found another; name another one", BAD_USAGE)
    reader, made = gguf.GGUFReader(path), f"{os.path.abspath(out)}.{os.getpid()}.tmp"
    keys, tensors = {f.name: f.contents() for f in reader.fields.values()}, {t.name: t for t in reader.tensors}
    s, kv, config = plan(path, keys, tensors, args.expand)
    arrays = arrays_of(path, s, kv, tensors, config.tie_word_embeddings)
    try:
        os.makedirs(made)
        config.dtype = write_safetensors(os.path.join(made, "model.safetensors"), arrays)
        said = json.loads(config.to_json_string(use_diff=False))
        if s.is_llama:  # where transformers 4 looks
            rope = said["rope_parameters"]
            said |= {"rope_theta": rope["rope_theta"], "rope_scaling": rope if len(rope) > 2 else None}
        write_json(said, made, "config.json")
        write_json({key: said[key] for key in ("bos_token_id", "eos_token_id")}, made, "generation_config.json")
        if found := tokenizer_of(path, keys):
            from transformers import AutoTokenizer
            found[0].save(os.path.join(made, "tokenizer.json"))
            write_json(found[1] | {"model_max_length": s.n_ctx}, made, "tokenizer_config.json")
            tok = AutoTokenizer.from_pretrained(made)
            added = [token.content for token in found[0].get_added_tokens_decoder().values()]
            compare_ids(path, path, lambda text: tok(text, add_special_tokens=False)["input_ids"], added,
                        "AutoTokenizer")
        for name in os.listdir(made):
            sync(os.path.join(made, name))
        os.replace(made, out)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    say(f"{out}: {config.architectures[0]}, {s.n_heads} heads, {s.n_kv_heads} K/V heads, {said['dtype']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("MODEL", help="a GGUF file")
    parser.add_argument("DIR", help="a folder that is new or empty")
    parser.add_argument("--expand", action="store_true", help="repeat K/V heads until there are as many as heads")
    arguments = parser.parse_args()
    sys.exit(run(lambda: main(arguments), arguments.MODEL))
