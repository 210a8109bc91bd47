"""A GGUF model as a folder of transformers with the same config, tensors and tokenizer."""
import json
import os
from dataclasses import dataclass

import gguf
import numpy as np

from . import ids, program
from .files import bytes_of, replaced
from .process import BAD_USAGE, FAILED, bad, limit_memory, say, shown
from .spm import SPACES_DROPPED
from .families import FAMILIES, OPT_AFTER
from .shapes import ACTIVATIONS, DTYPES, GATED, SIZES, SPACE, TOKEN, Shape, T, llama3_factors, shape_of_config

# The bytes of memory that are taken for each byte of the file, by tables of keys, and for each number, as F32 while it
# is changed.
MEMORY_FOR_A_BYTE, MEMORY_FOR_A_NUMBER = 8, 20

NEUTRAL = ("rope.scaling.factor", "rope.scaling.attn_factor", "embedding_scale", "logit_scale", "residual_scale",
           "attention.causal")  # those that change nothing where they are 1
HISTORY = ("decode.convert.", "decode.train.")  # how a file came about
# Keys that change nothing that a model computes, or that are judged elsewhere.
FREE = ("context_length", "tensor_data_layout", "vocab_size", "attention.head_count_kv", "rope.scale_linear", "rope.halves",
        "attention.sliding_window_pattern")


def rope_of(path, get, factors, head_dim):
    """Returns transformers' rope_parameters. A file has only the factors of Llama 3.1's, so its other numbers are
    tried."""
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


def rows_of_decode():
    """Yields the families with the names of their tensors, and the keys that they would have in architecture decode;
    those that have more keys with the same tensors come last."""
    for kind in ("gpt2", "opt", "gpt_neo", "llama", "gpt_neox", "falcon", "bloom", "mpt", "phi", "stablelm", "olmo",
                 "qwen3", "gemma", "gemma3_text"):
        f = FAMILIES[kind]
        yield kind, f
        if kind == "opt":
            yield kind, f._replace(tensors=OPT_AFTER, means=f.means | {"norm.placement": "after"})
        if kind == "gpt_neox":
            yield kind, f._replace(means=f.means | {"norm.placement": "before"})


def kind_of_decode(path, get, tensors):
    """Returns the family of a model of architecture decode, by its norms, positions and tensors."""
    there = {name.split(".")[-2] for name in tensors} - {"output", "rope_freqs"}
    places = ("norm.type", "norm.placement", "position.type")
    for kind, f in rows_of_decode():
        means, ffn = [f.means[key] for key in places], get("feed_forward.type")
        if means == [get(key) for key in places] and ffn.endswith("glu") == f.means["feed_forward.type"].endswith("glu") and (
                {to.split()[0] for to in f.tensors.values()} - {"output"} == there):
            has_biases = "blk.0.attn_q.bias" in tensors
            if kind == "opt" and not has_biases and "learned" in means and get("norm.placement") == "before":
                continue  # GPT-Neo's
            return kind
    bad(path, "expected norms, positions and tensors of a family that transformers has, found "
              f"{', '.join(str(get(key)) for key in places)}, {get('feed_forward.type')}, {', '.join(sorted(there))}")


def model_type_of(path, arch, get, tensors, kv):
    """Returns the row of FAMILIES for a model of this architecture; for `decode` its keys decide."""
    window = get("attention.sliding_window")
    if arch == "decode":
        name = kind_of_decode(path, get, tensors)
    else:
        name = next((name for name, f in FAMILIES.items() if f.arch == arch), None)
        if not name:
            bad(path, f"general.architecture: expected one of transformers' families, found {shown(arch)}")
    if name in ("gpt2", "gpt_bigcode"):
        name = "gpt2" if set(kv) == {get("attention.head_count")} else "gpt_bigcode"
    if name == "llama" and (window or "blk.0.attn_q.bias" in tensors and "blk.0.attn_output.bias" not in tensors):
        name = "mistral" if window and not isinstance(window, list) else "qwen2"
    return name


def own_keys(kind, get, tensors, kv):
    """Returns the part of a family's config beyond sizes, activation and rotary positions."""
    n_layers, heads, window = get("block_count"), get("attention.head_count"), get("attention.sliding_window") or 0
    windows = window if isinstance(window, list) else [window] * n_layers
    width, pattern = max(windows), get("attention.sliding_window_pattern", 6)
    pattern = pattern if isinstance(pattern, list) else [(i + 1) % (pattern or 1) for i in range(n_layers)]
    made = {"llama": {"attention_bias": "blk.0.attn_q.bias" in tensors, "mlp_bias": "blk.0.ffn_up.bias" in tensors},
            "mistral": {"sliding_window": width or None},
            "gpt_neox": {"use_parallel_residual": get("use_parallel_residual", get("norm.placement") != "before")},
            "gpt_neo": {"attention_types": [[["local" if w else "global" for w in windows], 1]],
                        "window_size": width or 256},
            "opt": {"do_layer_norm_before": get("norm.placement") != "after",
                    "word_embed_proj_dim": get("embedding_length")},
            "falcon": {"multi_query": kv[0] == 1, "new_decoder_architecture": 1 < kv[0] < heads,
                       "num_ln_in_parallel_attn": 1 if 1 < kv[0] < heads else None},
            "stablelm": {"use_qkv_bias": "blk.0.attn_q.bias" in tensors},
            "mpt": {"learned_pos_emb": False},
            "gemma3_text": {
                "layer_types": ["sliding_attention" if is_near else "full_attention" for is_near in pattern],
                "sliding_window": width or None, "query_pre_attn_scalar": round(
                    (get("attention.scale") or get("attention.key_length") ** -0.5) ** -2)},
            "qwen2": {"use_sliding_window": any(windows), "sliding_window": width or None,
                      "layer_types": ["sliding_attention" if w else "full_attention" for w in windows]}}
    return made.get("qwen2" if kind == "qwen3" else kind, {})


def plan(path, keys, tensors, expand):
    """Returns the config of the same model, its Shape, and the K/V heads of each layer here. The meaning of the config,
    read as import.py reads it, must be that of the keys; a key that means more is refused by name."""
    arch, n_vocab = keys["general.architecture"], len(tensors["token_embd.weight"].data)

    def get(key, otherwise=None):
        return keys.get(f"{arch}.{key}", otherwise)

    heads = get("attention.head_count")
    if isinstance(heads, list):
        bad(path, f"{arch}.attention.head_count: expected one number for all layers, found {heads}")
    own = get("attention.head_count_kv", heads)
    own = own if isinstance(own, list) else [own] * get("block_count")
    kv = [heads] * len(own) if expand else own
    kind = model_type_of(path, arch, get, tensors, kv)
    has_groups = kind == "falcon" or any("K" in to.split()[1] for to in FAMILIES[kind].tensors.values())
    if len(set(kv)) > 1 or (not has_groups and kv[0] not in (heads, 1 if kind == "gpt_bigcode" else heads)):
        bad(path, f"expected one number of K/V heads, {'' if has_groups else f'1 or {heads} '}as transformers has of "
                  f"{kind}, found {sorted(set(kv))}; --expand repeats them, which is the same function as MHA", BAD_USAGE)
    return config_of_keys(path, kind, get, keys, tensors, kv, n_vocab), own


def meant_by(s, arch):
    """Returns the keys of a Shape in an architecture of this name."""
    if arch != "decode" or s.gguf_arch == "decode":
        return s.keys
    stems = {to.split()[0] for to in s.family.tensors.values()}
    made = s.family.means | {key: value for key, value in s.keys.items() if key not in (
        "use_parallel_residual", "tensor_data_layout", "attention.max_alibi_bias")}
    made["norm.epsilon"] = next(made.pop(key) for key in list(made) if key.startswith("attention.layer_norm"))
    flags = {"norm.embedding": "token_embd_norm" in stems, "norm.queries_keys": "attn_q_norm" in stems,
             "norm.single": made["norm.placement"] == "parallel" and "ffn_norm" not in stems,
             "norm.added": "post_ffw_norm" in stems, "norm.no_weights": "output_norm" not in stems and "attn_output_norm"
             not in stems}
    scale = {"embedding_scale": s.n_embd ** 0.5} if "1 + w" in s.differs else {}
    return made | {key: True for key, value in flags.items() if value} | scale


def unsaid(path, s, get, keys, arch):
    """Fails, by name, on the first key that contradicts the Shape."""
    default = s.family.means | {"attention.head_count_kv": s.n_heads, "attention.key_length": s.n_embd // s.n_heads,
               "attention.value_length": get("attention.key_length", s.n_embd // s.n_heads),
               "rope.freq_base": 10000.0, "rope.dimension_count": s.head_dim, "feed_forward_length": s.n_ff,
               "use_parallel_residual": s.keys.get("use_parallel_residual"), "attention.scale": s.head_dim ** -0.5}

    def plain(value):
        return value[0] if isinstance(value, list) and len(set(value)) == 1 and len(value) == s.n_layers else value

    def same(a, b):
        return a == b or (isinstance(a, (int, float)) and isinstance(b, (int, float)) and np.isclose(a, b, rtol=1e-6))

    file = {key.removeprefix(f"{arch}."): value for key, value in keys.items()
            if key.startswith(f"{arch}.") and not key.startswith(HISTORY)}
    said = meant_by(s, arch)
    for key in sorted(file.keys() | said.keys()):
        if key in FREE:
            continue
        found, meant = (plain(keys.get(key, default.get(key))) for keys in (file, said))
        neutral = (0, "none", *[1] * (key in NEUTRAL))
        if not same(found, meant) and not (meant is None and found in neutral):
            bad(path, f"{arch}.{key}: expected {shown(meant)}, as transformers has no such model, found {shown(found)}")
    if arch == "decode" and s.is_llama:  # the rows of queries and keys are as the file has them
        s.differs = (s.differs - {"pairs"}) | (set() if get("rope.halves") else {"pairs"})


def config_of_keys(path, kind, get, keys, tensors, kv, n_vocab):
    """Returns transformers' config of a family, and the Shape that it means here."""
    from transformers import AutoConfig
    f, arch = FAMILIES[kind], keys["general.architecture"]
    default = AutoConfig.for_model(kind).to_dict()
    ids = {name: i for name in ("bos", "padding", "eos", "eot", "eom")
           if (i := keys.get(f"tokenizer.ggml.{name}_token_id", n_vocab)) < n_vocab}
    ends = [ids[name] for name in ("eos", "eot", "eom") if name in ids]
    output, n_ff = tensors.get("output.weight"), len(tensors["blk.0.ffn_up.weight"].data)
    is_tied = output is None or np.array_equal(output.data, tensors["token_embd.weight"].data)
    head_dim = get("attention.key_length", get("embedding_length") // get("attention.head_count"))
    sizes = {name: get(key) for key, name in SIZES.items()} | {
        "intermediate_size": n_ff, "num_key_value_heads": kv[0], "head_dim": head_dim}
    said = {f.sizes.get(name, name): value for name, value in sizes.items()}
    said = {name: value for name, value in said.items() if name and (name in default or name not in (
        "head_dim", "num_key_value_heads"))}
    said |= {"vocab_size": n_vocab, "tie_word_embeddings": is_tied, "bos_token_id": ids.get("bos"),
             "pad_token_id": ids.get("padding"), "architectures": [f.model],
             "eos_token_id": ends if len(ends) > 1 else (ends or [None])[0]}
    epsilon = [value for key, value in keys.items() if key.startswith(arch) and key.endswith("epsilon")]
    if isinstance(f.epsilon, str):
        said[f.epsilon] = float(f"{epsilon[0]:.7g}")  # 1e-05, as it was meant
    if f.activation:
        meant = get("feed_forward.type", f.means["feed_forward.type"])
        table = GATED if meant.endswith("glu") else ACTIVATIONS
        said[f.activation] = next((name for name, means in table.items() if means == meant), None)
    if f.means["position.type"] == "rope":
        factors = tensors["rope_freqs.weight"].data if "rope_freqs.weight" in tensors else None
        rope = rope_of(path, get, factors, head_dim)
        if kind in ("gpt_neox", "phi", "stablelm"):
            rope["partial_rotary_factor"] = get("rope.dimension_count", head_dim) / head_dim
        if kind == "gemma3_text":
            rope = {"full_attention": rope, "sliding_attention": {
                "rope_type": "default", "rope_theta": get("rope.freq_base_swa", 10000.0)}}
        said["rope_parameters"] = rope
    get_all = {**keys, f"{arch}.feed_forward_length": n_ff, f"{arch}.attention.key_length": head_dim}
    config = AutoConfig.for_model(kind, **said, **own_keys(
        kind, lambda key, otherwise=None: get_all.get(f"{arch}.{key}", otherwise), tensors, kv))
    s = shape_of_config(path, config)
    unsaid(path, s, get, keys, arch)
    return config, s


def arrays_of(path, s, kv, tensors, is_tied):
    """Returns tensors by transformers' names, and one type for all: that of the matrices, if it holds every number. K/V
    heads are repeated where the Shape has more of them; a missing bias becomes zeros."""
    left, made, kinds = dict(tensors), {}, set()
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
        made[full] = np.ascontiguousarray(s.turned(name, to, array, back=True))
        kinds |= {made[full].dtype} if array.ndim == 2 and "position_embd" not in to else set()
    if others := left.keys() - {"rope_freqs.weight"}:
        bad(path, f"tensor {min(others)}: expected none of this name, as transformers' model has none")
    common = kinds.pop() if len(kinds) == 1 else DTYPES[T.F32]
    typed = {name: array.astype(common) for name, array in made.items()}
    if all(np.array_equal(typed[name].astype(array.dtype), array) for name, array in made.items()):
        return typed, common.name
    return made, "float32"  # to compute in


def checked_table(path, keys):
    """Returns the keys of the vocabulary. Fails, by name, on lists of another form."""
    found = {key.removeprefix("tokenizer.ggml."): value for key, value in keys.items()}
    for key, kinds, what in (("tokens", (str,), "texts"), ("merges", (str,), "texts"), ("scores", (int, float), "numbers"),
                             ("token_type", (int,), "integers")):
        value = found.get(key)
        if value is not None and not (isinstance(value, list) and all(type(x) in kinds for x in value)):
            other = next((x for x in value if type(x) not in kinds), value) if isinstance(value, list) else value
            bad(path, f"tokenizer.ggml.{key}: expected a list of {what}, found {type(other).__name__} {shown(other)}")
        if key in ("scores", "token_type") and value is not None and len(value) != len(found.get("tokens") or ()):
            bad(path, f"tokenizer.ggml.{key}: expected one for each of {len(found.get('tokens') or ())} tokens, found "
                      f"{len(value)}")
    return found


def tokenizer_of(path, keys, n_ctx):
    """Returns the vocabulary in the form of the tokenizers library, and tokenizer_config.json. None: there is none."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers.tokenization_utils_base import generate_merges
    found = checked_table(path, keys)
    get, cut, vocab = found.get, ids.cuts(), {}
    model, pre, names = get("model"), get("pre", "default"), get("tokens")
    if model not in ("llama", "gpt2") or (model == "gpt2" and pre not in cut):
        say(f"{path}: no vocabulary: expected llama, or gpt2 cut as {', '.join(cut)}, found {model}, {pre}")
        return None, None
    spaced = model == "gpt2" and get("add_space_prefix", False)
    if spaced and cut[pre] is not cut["gpt-2"]:
        say(f"{path}: no vocabulary: expected no space before texts that are cut as {pre}, found add_space_prefix")
        return None, None
    for key in ("tokens", "merges" if model == "gpt2" else "scores"):
        if get(key) is None:
            bad(path, f"tokenizer.ggml.{key}: expected a list, found none")
    types = get("token_type") or [TOKEN.NORMAL] * len(names)
    while types[-1] == TOKEN.UNUSED and names[-1] == f"[PAD{len(names) - 1}]":
        names, types = names[:-1], types[:-1]
    for i, name in enumerate(names):
        vocab[name if name and name not in vocab else f"[PAD{i}]"] = i
    if model == "gpt2":
        merges = [tuple(merge.split(" ", 1)) for merge in get("merges")]
        if lone := [merge for merge in merges if len(merge) != 2]:
            bad(path, f"tokenizer.ggml.merges: expected two parts with a space between, found {shown(lone[0][0])}")
        backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True) if spaced else cut[pre]
        backend.decoder = decoders.ByteLevel()
        if "tokenizer.decode.replacements" in keys:
            if (keys["tokenizer.decode.replacements"], keys.get("tokenizer.decode.marks")) != ids.compositions():
                bad(path, "tokenizer.decode.replacements and marks: expected those of NFC, as transformers has no other "
                          "lists")
            backend.normalizer = normalizers.NFC()
    else:
        scores = {name: x for name, x, kind in zip(names, get("scores"), types) if kind == TOKEN.NORMAL}
        merges, unk = generate_merges({name: vocab[name] for name in scores}, scores), get("unknown_token_id")
        backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=True, byte_fallback=True,
                                       unk_token=None if unk is None else names[unk]))
        adds_space, scheme = get("add_space_prefix", True), keys.get("tokenizer.decode.prepend_scheme")
        drops = SPACES_DROPPED if get("remove_extra_whitespaces", False) else ()
        backend.normalizer = normalizers.Sequence(
            [normalizers.Replace(Regex(regex), content) for regex, content in drops]
            + [normalizers.Prepend(SPACE)] * (adds_space and not scheme) + [normalizers.Replace(" ", SPACE)])
        if adds_space and scheme:
            backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=scheme, split=False)
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
    # This class takes tokenizer.json as it is, in every version of transformers.
    return backend, special | {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
        "model_max_length": n_ctx, "model_input_names": ["input_ids", "attention_mask"]}


@dataclass
class Folder:
    """Returns the config and, if there is a vocabulary, the tokenizer."""
    shape: Shape
    config: dict
    arrays: dict
    tokenizer: object
    tokenizer_config: dict | None

    def tables(self):
        """Returns the contents of the JSON files by their names."""
        generation = {key: self.config[key] for key in ("bos_token_id", "eos_token_id")}
        tables = {"config.json": self.config, "generation_config.json": generation,
                  "tokenizer_config.json": self.tokenizer_config}
        return {name: table for name, table in tables.items() if table}


def of_model(path, expand):
    """Returns the folder of a GGUF file. Fails, by name, on what no family of transformers has, and on a file that
    `decode info --check` does not read: its counts are trusted only after that."""
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
    (config, s), kv = plan(path, keys, tensors, expand)
    arrays, config.dtype = arrays_of(path, s, kv, tensors, config.tie_word_embeddings)
    backend, tokenizer_config = tokenizer_of(path, keys, s.n_ctx)
    said = json.loads(config.to_json_string(use_diff=False))
    if rope := said.get("rope_parameters"):  # where transformers 4 looks
        rope, local = rope.get("full_attention", rope), rope.get("sliding_attention")
        part = rope.get("partial_rotary_factor")
        said |= {"rope_theta": rope["rope_theta"], "rope_scaling": None if rope["rope_type"] == "default" else rope}
        said |= {"rope_local_base_freq": local["rope_theta"]} if local else {}
        if part and config.model_type == "gpt_neox":
            said |= {"rotary_pct": part, "rotary_emb_base": rope["rope_theta"]}
        elif part:
            said["partial_rotary_factor"] = part
    return Folder(s, said, arrays, backend, tokenizer_config)


def write(path, out, folder):
    """Writes the whole folder, where there is none or an empty one, once AutoTokenizer has the ids that decode has of
    `path`."""
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
        # safetensors makes its files readable for nobody else; the umask should decide.
        os.chmod(weights, os.stat(os.path.join(made, "config.json")).st_mode)
        if folder.tokenizer:
            folder.tokenizer.save(os.path.join(made, "tokenizer.json"))
            compare(path, made, folder.tokenizer)


def compare(path, made, tokenizer):
    """Says for how many odd texts the tokenizer that transformers loads from the folder has the ids that decode has of
    `path`."""
    from transformers import AutoTokenizer
    tok = AutoTokenizer.from_pretrained(made, trust_remote_code=False)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    ids.compare(path, path, lambda text: tok(text, add_special_tokens=False)["input_ids"], ids.odd_texts(added),
                "AutoTokenizer")
