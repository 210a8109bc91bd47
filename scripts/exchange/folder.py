"""A GGUF model as a folder of transformers: config, tensors and tokenizer that say the same."""
import json
import os
from dataclasses import dataclass

import gguf
import numpy as np

from . import ids, program
from .files import bytes_of, replaced
from .process import BAD_USAGE, FAILED, bad, limit_memory, say
from .spm import SPACES_DROPPED
from .shapes import ACTIVATIONS, DTYPES, MODELS, SIZES, SPACE, TOKEN, Shape, T, llama3_factors

# Bytes that are taken: for each of the file, as tables of keys, and for each number, as F32 while it is changed.
MEMORY_FOR_A_BYTE, MEMORY_FOR_A_NUMBER = 8, 20

READ = {*SIZES, *"""attention.value_length attention.layer_norm_epsilon attention.layer_norm_rms_epsilon
    norm.type norm.epsilon norm.placement position.type feed_forward.type vocab_size rope.dimension_count
    rope.freq_base rope.scaling.type rope.scaling.factor rope.scale_linear""".split()}


def rope_of(path, get, factors, head_dim):
    """transformers' rope_parameters. Of Llama 3.1's a file has only the factors: the rest is tried."""
    rope = {"rope_type": "default", "rope_theta": get("rope.freq_base", 10000.0)}
    kind = get("rope.scaling.type", "linear")
    factor = get("rope.scaling.factor") or get("rope.scale_linear") or 1
    if factors is None and kind in ("none", "linear"):
        return rope | ({"rope_type": "linear", "factor": factor} if kind == "linear" and factor != 1 else {})
    for context in (256 << i for i in range(15)) if factors is not None and factor == 1 else ():
        tried = rope | {"rope_type": "llama3", "factor": float(factors[-1]), "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0, "original_max_position_embeddings": context}
        if np.allclose(factors, llama3_factors(path, tried, head_dim), rtol=1e-5):
            return tried
    bad(path, f"rotary positions: expected none, linear or Llama 3.1's, found {kind}, factors {factors}")


def plan(path, keys, tensors, expand):
    """The config of the model that says the same, and the K/V heads of each layer here."""
    from transformers import AutoConfig
    arch, n_vocab = keys["general.architecture"], len(tensors["token_embd.weight"].data)

    def get(key, otherwise=None):
        return keys.get(f"{arch}.{key}", otherwise)

    for key, value in keys.items():
        if key.startswith(f"{arch}.") and key.removeprefix(f"{arch}.") not in READ and (
                value not in (0, 1, "none") or key.endswith("attention.scale")):
            bad(path, f"{key}: expected none, as transformers has no such model, found {value}")
    is_llama, ffn, heads = arch == "llama", get("feed_forward.type", "gelu"), get("attention.head_count")
    kinds = [get("norm.type", "layer"), get("norm.placement", "before"), get("position.type", "learned")]
    if arch not in ("llama", "gpt2", "starcoder", "decode") or kinds != ["layer", "before", "learned"] or (
            ffn not in ACTIVATIONS.values() or isinstance(heads, list)):
        bad(path, "expected a llama, or as GPT-2 layer norms before each part, learned positions, GELU or "
                  f"ReLU, as many heads in each layer, found {arch} with {kinds}, {ffn}, heads {heads}")
    kv, head_dim = get("attention.head_count_kv", heads), get("embedding_length") // heads
    kv = kv if isinstance(kv, list) else [kv] * get("block_count")
    if not expand and not (len(set(kv)) == 1 if is_llama else set(kv) in ({heads}, {1})):
        bad(path, f"expected one number of K/V heads, of a GPT-2 1 or {heads}, found {sorted(set(kv))}; "
                  "--expand repeats them, which is the same function as MHA", BAD_USAGE)
    head_dim = get("attention.key_length", head_dim)
    dims = [head_dim, get("attention.value_length", head_dim), get("rope.dimension_count", head_dim)]
    if set(dims) != {head_dim}:
        bad(path, f"heads: expected keys and values of one size, all of it turned, found {dims}")
    ids = {name: i for name in ("bos", "padding", "eos", "eot", "eom")
           if (i := keys.get(f"tokenizer.ggml.{name}_token_id", n_vocab)) < n_vocab}
    ends = [ids[name] for name in ("eos", "eot", "eom") if name in ids]
    epsilon = next(value for key, value in keys.items() if key.startswith(arch) and key.endswith("epsilon"))
    kind = "llama" if is_llama else "gpt2" if expand or set(kv) == {heads} else "gpt_bigcode"
    output, n_ff = tensors.get("output.weight"), len(tensors["blk.0.ffn_up.weight"].data)
    is_tied = output is None or np.array_equal(output.data, tensors["token_embd.weight"].data)
    said = {name: get(key) for key, name in list(SIZES.items())[:3]} | {
        "num_attention_heads": heads, "vocab_size": n_vocab, "tie_word_embeddings": is_tied,
        "bos_token_id": ids.get("bos"), "pad_token_id": ids.get("padding"),
        "architectures": [MODELS[kind][2]], "eos_token_id": ends if len(ends) > 1 else (ends or [None])[0]}
    epsilon = float(f"{epsilon:.7g}")  # 1e-05, as it was meant
    if not is_llama:
        activation = next(name for name, meant in ACTIVATIONS.items() if meant == ffn)
        return AutoConfig.for_model(
            kind, **said, n_inner=n_ff, activation_function=activation, layer_norm_epsilon=epsilon), kv
    factors = tensors["rope_freqs.weight"].data if "rope_freqs.weight" in tensors else None
    return AutoConfig.for_model(
        kind, **said, num_key_value_heads=heads if expand else kv[0], head_dim=head_dim, rms_norm_eps=epsilon,
        rope_parameters=rope_of(path, get, factors, head_dim), attention_bias="blk.0.attn_q.bias" in tensors,
        mlp_bias="blk.0.ffn_up.bias" in tensors, intermediate_size=n_ff), kv


def arrays_of(path, s, kv, tensors, is_tied):
    """By transformers' names, and the one type for all: that of the matrices, if it holds every number. K/V
    heads are repeated where the Shape has more of them; a bias that is not there is zeros."""
    left, made = dict(tensors), {}
    for full, name, to, shape in s.tensors():
        t = left.pop(to, None)
        if to == "output.weight" and is_tied:
            continue
        if t is None and not name.endswith(".bias"):
            bad(path, f"tensor {to}: missing")
        if t is None:
            array = np.zeros(shape, DTYPES[T.F32])
        elif t.tensor_type in DTYPES:
            array = t.data.view(DTYPES[t.tensor_type])
        else:
            array = gguf.quants.dequantize(t.data, t.tensor_type)
        has_kv = t is not None and any(part in to for part in (".attn_qkv.", ".attn_k.", ".attn_v."))
        copies = s.n_kv_heads // kv[int(to.split(".")[1])] if has_kv else 1
        if copies > 1:
            heads, q = array.reshape(-1, s.head_dim, *array.shape[1:]), s.n_heads if "qkv" in to else 0
            array = np.concatenate([heads[:q], heads[q:].repeat(copies, axis=0)]).reshape(shape)
        if array.shape != shape:
            bad(path, f"tensor {to}: expected {list(shape)}, as the keys say, found {list(array.shape)}")
        made[full] = np.ascontiguousarray(s.turned(name, array, back=True))
    if others := left.keys() - {"rope_freqs.weight"}:
        bad(path, f"tensor {min(others)}: expected none of this name, as transformers' model has none")
    kinds = {array.dtype for name, array in made.items() if array.ndim == 2 and "wpe" not in name}
    common = kinds.pop() if len(kinds) == 1 else DTYPES[T.F32]
    typed = {name: array.astype(common) for name, array in made.items()}
    if all(np.array_equal(typed[name].astype(array.dtype), array) for name, array in made.items()):
        return typed, common.name
    return made, "float32"  # to compute in


def tokenizer_of(path, keys, n_ctx):
    """The vocabulary as the tokenizers library has it, and tokenizer_config.json; None: there is none."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors
    from transformers.tokenization_utils_base import generate_merges
    found = {key.removeprefix("tokenizer.ggml."): value for key, value in keys.items()}
    get, cut, vocab = found.get, ids.cuts(), {}
    model, pre, names = get("model"), get("pre", "default"), get("tokens")
    if model not in ("llama", "gpt2") or (model == "gpt2" and pre not in cut):
        say(f"{path}: no vocabulary: expected llama, or gpt2 cut as {', '.join(cut)}, found {model}, {pre}")
        return None, None
    types = get("token_type") or [TOKEN.NORMAL] * len(names)
    while types[-1] == TOKEN.UNUSED and names[-1] == f"[PAD{len(names) - 1}]":
        names, types = names[:-1], types[:-1]
    for i, name in enumerate(names):
        vocab[name if name and name not in vocab else f"[PAD{i}]"] = i
    if model == "gpt2":
        merges = [tuple(merge.split(" ", 1)) for merge in get("merges")]
        backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
        backend.pre_tokenizer, backend.decoder = cut[pre], decoders.ByteLevel()
    else:
        scores = {name: x for name, x, kind in zip(names, get("scores"), types) if kind == TOKEN.NORMAL}
        merges, unk = generate_merges({name: vocab[name] for name in scores}, scores), get("unknown_token_id")
        backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=True, byte_fallback=True,
                                       unk_token=None if unk is None else names[unk]))
        adds_space = get("add_space_prefix", True)
        drops = SPACES_DROPPED if get("remove_extra_whitespaces", False) else ()
        backend.normalizer = normalizers.Sequence(
            [normalizers.Replace(Regex(regex), content) for regex, content in drops]
            + [normalizers.Prepend(SPACE)] * adds_space + [normalizers.Replace(" ", SPACE)])
        backend.decoder = decoders.Sequence([
            decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(),
            *[decoders.Strip(" ", 1, 0)] * adds_space])
    added = [i for i, kind in enumerate(types) if kind in (TOKEN.CONTROL, TOKEN.USER_DEFINED, TOKEN.UNKNOWN)]
    backend.add_tokens([
        AddedToken(names[i], normalized=False, special=types[i] != TOKEN.USER_DEFINED) for i in added])
    special = {f"{name[:3]}_token": names[i] if (i := get(f"{name}_token_id")) in added else None
               for name in ("bos", "eos", "unknown", "padding")}
    if get("add_bos_token", model == "llama") and (bos := special["bos_token"]):
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, get("bos_token_id"))])
    # The class that takes tokenizer.json as it is, in every version of transformers.
    return backend, special | {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
        "model_max_length": n_ctx, "model_input_names": ["input_ids", "attention_mask"]}


@dataclass
class Folder:
    """What is written: the config and, if it is a vocabulary's, the tokenizer."""
    shape: Shape
    config: dict
    arrays: dict
    tokenizer: object
    tokenizer_config: dict | None

    def tables(self):
        """What goes into JSON files, by their names."""
        generation = {key: self.config[key] for key in ("bos_token_id", "eos_token_id")}
        tables = {"config.json": self.config, "generation_config.json": generation,
                  "tokenizer_config.json": self.tokenizer_config}
        return {name: table for name, table in tables.items() if table}


def of_model(path, expand):
    """The folder that says what a GGUF file does. Fails, by name, on what cannot be said there, and on a file that
    `decode info --check` does not read: what its counts say is not looked for before."""
    if not program.find():
        bad(path, "expected decode beside the scripts or on PATH, which checks the file first, found none; make it",
            FAILED)
    if refusal := program.refusal(path, "--check"):
        why, status = refusal
        bad(path, f"decode does not read it: {why}", status)
    limit_memory(MEMORY_FOR_A_BYTE * bytes_of(path))
    reader = gguf.GGUFReader(path)
    n_numbers = sum(int(t.n_elements) for t in reader.tensors)
    limit_memory(MEMORY_FOR_A_BYTE * bytes_of(path) + MEMORY_FOR_A_NUMBER * n_numbers)
    keys = {field.name: field.contents() for field in reader.fields.values()}
    tensors = {t.name: t for t in reader.tensors}
    config, kv = plan(path, keys, tensors, expand)
    s = Shape(path, config)
    arrays, config.dtype = arrays_of(path, s, kv, tensors, config.tie_word_embeddings)
    backend, tokenizer_config = tokenizer_of(path, keys, s.n_ctx)
    said = json.loads(config.to_json_string(use_diff=False))
    if s.is_llama:  # where transformers 4 looks
        rope = said["rope_parameters"]
        said |= {"rope_theta": rope["rope_theta"], "rope_scaling": rope if len(rope) > 2 else None}
    return Folder(s, said, arrays, backend, tokenizer_config)


def write(path, out, folder):
    """All of it, in place of an empty folder or none, once AutoTokenizer has the ids that decode has of `path`."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file
    n_bytes = sum(array.nbytes for array in folder.arrays.values())
    with replaced(out, n_bytes, os.mkdir) as made:
        for name, table in folder.tables().items():
            with open(os.path.join(made, name), "w", encoding="utf-8") as file:
                json.dump(table, file, indent=2)
        weights = os.path.join(made, "model.safetensors")
        try:
            save_file(folder.arrays, weights, {"format": "pt"})
        except SafetensorError as error:
            bad(out, f"cannot write its {n_bytes} bytes: {error}", FAILED)
        # safetensors lets nobody else read it; the umask says who may.
        os.chmod(weights, os.stat(os.path.join(made, "config.json")).st_mode)
        if folder.tokenizer:
            folder.tokenizer.save(os.path.join(made, "tokenizer.json"))
            compare(path, made, folder.tokenizer)


def compare(path, made, tokenizer):
    """Says for how many odd texts what transformers loads from the folder has the ids that decode has of `path`."""
    from transformers import AutoTokenizer
    tok = AutoTokenizer.from_pretrained(made, trust_remote_code=False)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    ids.compare(path, path, lambda text: tok(text, add_special_tokens=False)["input_ids"], ids.odd_texts(added),
                "AutoTokenizer")
