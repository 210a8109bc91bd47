#!/usr/bin/env python3
"""import.py - a checkpoint of another program as GGUF.

IN is a folder of Hugging Face's transformers (GPT-2, GPT-BigCode, Llama, Mistral), a .bin of llama2.c or
llm.c, nanoGPT's ckpt.pt (needs torch), or a folder with nanoGPT's model_args as config.json. What a model
computes that decode does not is refused by name."""
import argparse
import math
import pickle
import re
import tempfile
from types import SimpleNamespace

from exchange import (ACTIVATIONS, BAD_USAGE, DTYPES, FAILED, MODELS, SPACE, TOKEN, Shape, T, bad,
                      compare_ids, cuts, gguf, json, llama3_factors, np, odd_texts, os, read_json, run, say,
                      shutil, sync, sys)

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
WEIGHTS_ALONE = "--tokenizer none imports the weights alone"


def shape_of_config(path, c):
    """The Shape that a config of transformers says. Whatever is not its class's default, and has no
    meaning here, is refused by name."""
    if c.model_type not in MODELS:
        bad(path, f"model_type: expected {', '.join(MODELS)}, found {c.model_type}")
    found, default = c.to_dict(), type(c)().to_dict()
    for key in (key for key in found if not KNOWN.fullmatch(key)):
        if found[key] != default.get(key, None if key in FOREIGN else found[key]):
            bad(path, f"{key}: expected {default.get(key)}, as nothing else runs here, found {found[key]}")
    s = Shape(path, c)
    activation = c.hidden_act if s.is_llama else c.activation_function
    ffn = ACTIVATIONS.get(activation)
    if not ffn or (ffn == "swiglu") != s.is_llama:
        bad(path, f"activation: expected {'silu' if s.is_llama else 'gelu or relu'}, found {activation}")
    s.factors, s.window, s.gguf_arch = None, getattr(c, "sliding_window", None), s.arch
    if s.is_llama:
        rope, kind = c.rope_parameters, c.rope_parameters["rope_type"]
        if kind not in ROPE_KEYS or rope.keys() - ROPE_KEYS[kind] - {"rope_type", "type", "rope_theta"}:
            bad(path, f"rope_parameters: expected {', '.join(ROPE_KEYS)}, which run here, found {rope}")
        s.keys |= {"attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
                   "rope.dimension_count": s.head_dim, "rope.freq_base": float(rope["rope_theta"])}
        if kind == "linear":
            s.keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
        s.factors = llama3_factors(rope, s.head_dim) if kind == "llama3" else None
    elif ffn == "gelu":
        s.keys["attention.layer_norm_epsilon"] = float(c.layer_norm_epsilon)
    else:  # GGUF's gpt2 and starcoder mean GELU's tanh form
        s.gguf_arch = "decode"
        s.keys |= {"norm.epsilon": float(c.layer_norm_epsilon), "norm.type": "layer",
                   "norm.placement": "before", "position.type": "learned", "feed_forward.type": ffn}
    return s


def read_folder(path):
    """As transformers does: one file, or all that is in the shards that the index names."""
    from safetensors.numpy import load_file
    index, files = os.path.join(path, "model.safetensors.index.json"), ["model.safetensors"]
    if os.path.exists(index) and not os.path.exists(os.path.join(path, *files)):
        files = sorted(set(read_json(index)["weight_map"].values()))
    return {name: array for file in files for name, array in load_file(os.path.join(path, file)).items()}


def read_torch(path):
    """nanoGPT's checkpoint: its model_args and its tensors."""
    import torch
    c = torch.load(path, map_location="cpu", weights_only=True)
    if not {"model", "model_args"} <= set(c):
        bad(path, "expected nanoGPT's model and model_args (of transformers, the folder that save_pretrained "
                  f"makes), found {sorted(map(str, c))[:5]}")
    return c["model_args"], {name: tensor.float().numpy() for name, tensor in c["model"].items()}


def tensors_of_state(path, s, state, is_tied):
    """By GGUF's names. A compiled or distributed model of PyTorch has its parameters behind _orig_mod.
    and module., a base model of transformers lacks its prefix."""
    found, tensors, prefix = {}, {}, "model." if s.is_llama else "transformer."
    for name, array in state.items():
        own = re.sub(r"^(module\.)+", "", name.replace("_orig_mod.", "")).removeprefix(prefix)
        if found.setdefault(own, array) is not array:
            bad(path, f"tensor {name}: expected one {own}, found two")
    embedding, output = "embed_tokens.weight" if s.is_llama else "wte.weight", "lm_head.weight"
    if is_tied and output in found:
        if np.array_equal(found.setdefault(embedding, found[output]), found[output]):
            del found[output]
    for _, name, to, shape in s.tensors():
        if name == output and is_tied and output not in found:
            continue
        array = found.pop(name, np.empty(0))
        stored = shape[::-1] if s.layout == "conv1d" and name.startswith("h.") else shape
        if array.dtype not in DTYPES.values() or array.shape != stored:
            bad(path, f"tensor {name}: expected F32, F16 or BF16 {list(stored)}, as the configuration says, "
                      f"found {array.dtype} {list(array.shape)}")
        tensors[to] = s.turned(name, array)
    tables = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")  # they follow from the shape
    if others := [name for name in found if not name.endswith(tables)]:
        say(f"{path}: {len(others)} tensors, such as {others[0]}, are none of the model's: passed over")
    return tensors | ({} if s.factors is None else {"rope_freqs.weight": s.factors})


LLAMA2C, LLMC = 0x616B3432, 20240326
QKVO = "attn_q attn_k attn_v attn_output"
ORDERS = {  # version 0 of llama2.c has tables of cosines that nothing reads; versions 1 and 2; llm.c
    0: f"token_embd attn_norm {QKVO} ffn_norm ffn_gate ffn_down ffn_up output_norm tables",
    1: f"attn_norm ffn_norm output_norm token_embd {QKVO} ffn_gate ffn_down ffn_up",
    LLMC: "token_embd position_embd attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down output_norm"}


def read_bin(path):
    """llama2.c's or llm.c's: a Shape, and tensors by GGUF's names."""
    from transformers import GPT2Config, LlamaConfig
    raw, rows, group, tensors = np.memmap(path, np.uint8, "r"), 0, 1, {}
    head = np.frombuffer(bytes(raw[:44]).ljust(44, b"\0"), "<i4").tolist()
    if head[0] == LLMC:
        version, n_ctx, vocab, layers, heads, width, rows, at = *head[1:8], 1024
        ff, kv_heads, versions, owns_output = 4 * width, heads, (1, 3, 5), False
    else:
        version, at, versions = (head[1], 256, (1, 2)) if head[0] == LLAMA2C else (0, 28, (0,))
        width, ff, layers, heads, kv_heads, vocab, n_ctx = head[2:9] if version else head[:7]
        owns_output, vocab = not raw[36:37].any() if version else vocab < 0, abs(vocab)
        group = int.from_bytes(bytes(raw[37:41]), "little") if version == 2 else 1
    if version not in versions or not all(0 < n < 1 << 24 for n in (width, ff, heads, kv_heads, group)):
        bad(path, "expected a folder of transformers, or a .bin of llama2.c (version 0, 1 or 2) or of "
                  f"llm.c's GPT-2 (1, 3 or 5), found version {version} and {head}")
    sizes = {"vocab_size": vocab, "max_position_embeddings": n_ctx, "hidden_size": width,
             "num_hidden_layers": layers, "num_attention_heads": heads}
    s = shape_of_config(path, GPT2Config(**sizes) if head[0] == LLMC else LlamaConfig(
        **sizes, intermediate_size=ff, num_key_value_heads=kv_heads, rms_norm_eps=1e-5))
    shapes = {to: shape for *_, to, shape in s.tensors()} | {
        "tables.weight": (n_ctx, s.head_dim), "token_embd.weight": (max(rows, vocab), width)}
    order = ORDERS[min(version, 1) if s.is_llama else LLMC].split() + ["output"] * owns_output
    names = [f"{layer}{name}.{end}" for name in order for end in ("weight", "bias")
             for layer in ("", *(f"blk.{i}." for i in range(layers)))]
    for name in (name for name in names if name in shapes):
        n, is_quantized, arrays = math.prod(shapes[name]), version == 2 and len(shapes[name]) == 2, []
        dtype = "i1" if is_quantized else DTYPES[T.BF16 if version == 5 else T.F32]
        # Behind a matrix of version 2 stands a factor for each group of its numbers.
        for dtype, n in ((dtype, n), ("<f4", n // group))[: 1 + is_quantized]:
            size = n * np.dtype(dtype).itemsize
            arrays.append(raw[at : at + size].view(dtype))
            at += size
        if at > len(raw):
            break
        array = arrays[0].reshape(-1, group) * arrays[1][:, None] if is_quantized else arrays[0]
        tensors[name] = array.reshape(shapes[name])
    if at != len(raw):
        bad(path, f"expected {at} bytes or more, as version {version} and {s.keys} say, found {len(raw)}")
    tensors.pop("tables.weight", None)
    tensors["token_embd.weight"] = tensors["token_embd.weight"][:vocab]
    return s, tensors


def of_transformers(path, tok):
    """The vocabulary of a tokenizer that transformers has loaded from a folder or file, by id, with GGUF's
    keys, the names of added tokens, and the library's ids of a text."""
    backend = getattr(tok, "backend_tokenizer", None)
    said = json.loads(backend.to_str()) if backend else {"model": {"type": type(tok).__name__}}
    model, steps = said["model"], json.dumps([said.get("normalizer"), said.get("pre_tokenizer")])
    unusual = [k for k in ("dropout", "continuing_subword_prefix", "end_of_word_suffix") if model.get(k)]
    if model["type"] != "BPE" or unusual or not ("ByteLevel" in steps or r"\u2581" in steps):
        bad(path, f"tokenizer: expected BPE of bytes, or with U+2581 for spaces, found {model['type']} "
                  f"{' '.join(unusual)} {steps:.200}; {WEIGHTS_ALONE}")
    tokens = {i: name for name, i in backend.get_vocab(with_added_tokens=True).items()}
    types = dict.fromkeys(tokens, TOKEN.NORMAL)
    special = {token["id"]: token["special"] for token in said["added_tokens"]}
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]

    def encode(text):
        return tok(text, add_special_tokens=False)["input_ids"]

    def pieces(cut):
        return [[piece for piece, _ in cut.pre_tokenize_str(text)] for text in odd_texts()]

    if "ByteLevel" in steps:
        theirs, scores = pieces(backend.pre_tokenizer), None
        pre = next((name for name, cut in cuts().items() if pieces(cut) == theirs), None)
        if not pre:
            bad(path, f"tokenizer: expected the cut {', '.join(cuts())}, found {steps:.300}; {WEIGHTS_ALONE}")
        if pre == "llama-bpe" and not model["ignore_merges"]:
            pre = "dbrx"  # the same cut; llama-bpe takes a piece that is a token as that token
        keys = {"model": "gpt2", "pre": pre, "merges": [" ".join(m) for m in merges]}
    else:
        made, unk = {}, backend.token_to_id(model["unk_token"] or "")
        for left, right in merges:  # a token's score: minus the number of tokens that are made before it
            made.setdefault(left + right, -float(len(made)))
        scores = {i: made.get(name, -float(len(made))) for i, name in tokens.items()}
        space = backend.encode("a", add_special_tokens=False).tokens[0].startswith(SPACE)
        keys = {"model": "llama", "add_space_prefix": space, "unknown_token_id": unk}
        for i, name in tokens.items():
            if re.fullmatch("<0x[0-9A-F]{2}>", name):
                types[i] = TOKEN.BYTE
            elif len(name) > 1 and name not in made and i in encode(name):
                special.setdefault(i, False)  # one of SentencePiece's user-defined symbols
    for i, is_special in special.items():
        types[i] = TOKEN.CONTROL if is_special else TOKEN.USER_DEFINED
        if i not in encode(tokens[i]):
            types[i] = TOKEN.UNUSED
            say(f"{path}: no text has token {i}, {tokens[i]!r}: others are found first; it is unused")
    types |= {i: TOKEN.UNKNOWN for i in [keys.get("unknown_token_id")] if i is not None}
    plain, whole = encode("a"), tok("a")["input_ids"]
    before = next((i for i in (0, 1) if whole[i : i + len(plain)] == plain), None)
    if before is None:
        bad(path, f"tokenizer: expected one token or none before {plain}, found {whole}; {WEIGHTS_ALONE}")
    if before + len(plain) < len(whole):
        say(f"{path}: the tokens that the tokenizer puts behind every text are not put there")
    keys |= {"add_bos_token": before == 1, "bos_token_id": whole[0] if before else tok.bos_token_id,
             "padding_token_id": tok.pad_token_id}
    return SimpleNamespace(
        tokens=tokens, types=types, scores=scores, keys=keys, eos=tok.eos_token_id, library="transformers",
        names=[tokens[i] for i in special], encode=encode)


class Plain(pickle.Unpickler):
    """Numbers, strings, and what holds them. A pickle that names a program is not run."""
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"expected numbers and strings, found {module}.{name}")


def read_vocabulary(path, kind):
    """Of a folder, None where it has none, or of a file."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    if os.path.isdir(path):
        there = {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"} & set(os.listdir(path))
        if there != {"vocab.json"}:
            return there and of_transformers(path, AutoTokenizer.from_pretrained(path, tokenizer_type=kind))
        path = os.path.join(path, "vocab.json")
    with open(path, "rb") as file:
        first = file.peek(1)[:1]
        ids = Plain(file).load()["stoi"] if first == b"\x80" else json.load(file) if first == b"{" else {}
    if ids and "model" not in ids:  # nanoGPT's single characters
        tokens = {i: name.replace(" ", SPACE) for name, i in ids.items()}
        return SimpleNamespace(
            tokens=tokens, types=dict.fromkeys(tokens, TOKEN.NORMAL), scores=dict.fromkeys(tokens, 0.0),
            keys={"model": "llama", "add_space_prefix": False}, eos=None, library="the table", names=(),
            encode=lambda text: [ids[c] for c in text] if set(text) <= ids.keys() else None)
    if first not in (b"{", b"\n"):
        bad(path, "expected tokenizer.json, tokenizer.model, nanoGPT's meta.pkl or a vocab.json of letters, "
            "found none of these; a tokenizer.bin was made from one of them")
    with tempfile.TemporaryDirectory() as folder:  # alone, and by the name that transformers looks for
        shutil.copy(path, os.path.join(folder, "tokenizer.json" if ids else "tokenizer.model"))
        return of_transformers(path, PreTrainedTokenizerFast.from_pretrained(folder))


def vocabulary_keys(path, v, n, ends):
    """The keys tokenizer.ggml.* of n tokens. `ends` end a text by the model's configuration, and so does the
    tokenizer's own EOS, which comes first if it is one of them."""
    ends = dict.fromkeys([v.eos] * (v.eos in ends) + ends + [v.eos])
    ends = [i for i in ends if isinstance(i, int) and 0 <= i < n]
    if len(ends) > 3:
        say(f"{path}: expected at most 3 ids that end a text, as GGUF has, found {ends}: the rest is out")
    if beyond := [name for i, name in v.tokens.items() if i >= n]:
        say(f"{path}: {len(beyond)} tokens, such as {beyond[0]!r}, are beyond the model's {n}: left out")
    # Where a vocabulary with scores has no BOS or EOS, readers take 1 and 2 unless a key says none.
    keys = {f"{name}_token_id": 0xFFFFFFFF for name in ("bos", "eos") if v.scores} | {
        key: x for key, x in v.keys.items() if x is not None and (not key.endswith("_id") or x < n)}
    keys |= {f"{name}_token_id": i for name, i in zip(("eos", "eot", "eom"), ends)} | {
        "tokens": [v.tokens.get(i, f"[PAD{i}]") for i in range(n)],
        "token_type": [v.types.get(i, TOKEN.UNUSED) for i in range(n)]}
    if v.scores:
        keys["scores"] = [v.scores.get(i, 0.0) for i in range(n)]
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def write(path, out, arch, keys, tensors, wanted, v):
    """The whole file, beside `out` until decode, where it is there, has read its vocabulary."""
    w, made = gguf.GGUFWriter(None, arch), f"{out}.{os.getpid()}.tmp"
    add = {int: w.add_uint32, float: w.add_float32, str: w.add_string, bool: w.add_bool, list: w.add_array}
    kinds = {dtype: kind for kind, dtype in DTYPES.items()}
    file_type = {T.F32: 0, T.F16: 1, T.BF16: 32}[wanted or kinds[tensors["token_embd.weight"].dtype]]
    for key, value in ({"general.file_type": file_type} | keys).items():
        add[type(value)](key, value)
    for name, array in tensors.items():
        kind = (wanted or kinds[array.dtype]) if array.ndim == 2 and name != "position_embd.weight" else T.F32
        with np.errstate(over="ignore"):
            typed = np.ascontiguousarray(array, DTYPES[kind])
        if kinds[array.dtype] != kind == T.F16 and not np.isfinite(typed).all():
            bad(path, f"tensor {name}: expected numbers that F16 holds, found others; --type bf16 has them")
        w.add_tensor(name, typed, raw_dtype=kind)
    try:
        w.write_header_to_file(made)
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        if v:
            compare_ids(path, made, v.encode, v.names, v.library)
        sync(made)
        os.replace(made, out)
    except OSError as error:
        bad(out, error.strerror or error, FAILED)
    finally:
        if os.path.exists(made):
            os.unlink(made)


def read_input(path):
    """A Shape, its tensors, the ids that end a text, and what has the vocabulary."""
    from transformers import AutoConfig, GPT2Config
    said, first, beside = {}, b"", os.path.dirname(path)
    if os.path.isdir(path):
        said = read_json(path, "config.json")
    else:
        with open(path, "rb") as file:
            first = file.read(9)
    if first[:4] == b"GGUF":
        bad(path, "is a GGUF file already; decode convert --type changes its types", BAD_USAGE)
    if first[8:] == b"{":
        bad(path, "expected a checkpoint, found its weights alone (safetensors): name their folder")
    if first[:4] == b"PK\3\4" or ("block_size" in said and "model_type" not in said):  # nanoGPT
        args, state = read_torch(path) if first else (said, read_folder(path))
        s = shape_of_config(path, GPT2Config(
            **{key: args[key] for key in ("n_embd", "n_layer", "n_head", "vocab_size")},
            n_positions=args["block_size"], activation_function="gelu"))
        s.layout, s.biases = None, s.biases if args.get("bias", True) else []
        beside = os.path.join(beside, "meta.pkl") if first else path
        return s, tensors_of_state(path, s, state, True), [], beside
    if not os.path.isdir(path):
        # Texts that llama2.c's models learn from stand between BOS, so its program ends a text there.
        s, tensors = read_bin(path)
        return s, tensors, [1] * s.is_llama, os.path.join(beside, "tokenizer.model")
    config, generation = AutoConfig.from_pretrained(path), os.path.join(path, "generation_config.json")
    s, ends = shape_of_config(os.path.join(path, "config.json"), config), []
    said = read_json(generation) if os.path.exists(generation) else {}
    for ids in said.get("eos_token_id"), config.eos_token_id:
        ends += ids if isinstance(ids, list) else [ids]
    return s, tensors_of_state(path, s, read_folder(path), config.tie_word_embeddings), ends, path


def main(args):
    path, out, v = args.IN, args.OUT, None
    if os.path.exists(out) and (os.path.isdir(out) or open(out, "rb").read(4) != b"GGUF"):
        bad(out, "expected a new file, or a GGUF file to replace, found another one or a folder", BAD_USAGE)
    s, tensors, ends, beside = read_input(path)
    most = min(s.n_ctx, s.window or s.n_ctx)  # as far as a window reaches all is attended to, as here
    if args.ctx is not None and (args.ctx < 1 or (args.ctx > most and (s.window or not s.is_llama))):
        bad(path, f"--ctx: expected 1 to {most}, as learned or its window, found {args.ctx}", BAD_USAGE)
    if not args.ctx and most < s.n_ctx:
        say(f"{path}: the context is cut from {s.n_ctx} to the {most} positions of the sliding window")
    s.keys |= {"context_length": args.ctx or most, "attention.value_length": s.head_dim}
    if "position_embd.weight" in tensors:
        tensors["position_embd.weight"] = tensors["position_embd.weight"][: args.ctx]
    keys = {f"{s.gguf_arch}.{key}": value for key, value in s.keys.items()} | {
        "general.name": os.path.basename(os.path.abspath(path))[:127]}
    if args.tokenizer != "none":
        if args.tokenizer or os.path.exists(beside):
            v = read_vocabulary(args.tokenizer or beside, "gpt2" if s.gguf_arch == "decode" else None)
        if not v:
            say(f"{path}: there is no vocabulary: tokens come without text; --tokenizer FILE names one")
    if v:
        keys |= vocabulary_keys(path, v, s.n_vocab, ends)
        if os.path.isfile(path) and s.is_llama:  # llama2.c begins every text with BOS
            keys["tokenizer.ggml.add_bos_token"] = v.keys.get("bos_token_id") is not None
    write(path, out, s.gguf_arch, keys, tensors, args.type and T[args.type.upper()], v)
    say(f"{out}: {s.gguf_arch}, {s.n_layers} layers of {s.n_embd}, {s.n_heads} heads, {s.n_kv_heads} K/V "
        f"heads, context {args.ctx or most}, {s.n_vocab} tokens, {os.path.getsize(out)} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("IN")
    parser.add_argument("OUT", metavar="OUT.gguf")
    parser.add_argument("--type", choices=("f32", "f16", "bf16"), help="of matrices")
    parser.add_argument("--ctx", type=int, metavar="C", help="context in tokens")
    parser.add_argument("--tokenizer", metavar="FILE",
                        help="tokenizer.json, tokenizer.model, meta.pkl, a folder; none: tokens without text")
    arguments = parser.parse_args()
    sys.exit(run(lambda: main(arguments), arguments.IN))
