#!/usr/bin/env python3
"""import.py - a checkpoint of another program as GGUF.

IN is a folder of Hugging Face's transformers (GPT-2, GPT-BigCode, Llama, Mistral), a .bin of llama2.c or
llm.c, nanoGPT's ckpt.pt (needs torch), or a folder with nanoGPT's model_args as config.json. What a model
computes that decode does not is refused by name."""
import argparse
import math
import pickle
import re
import struct
import tempfile
from types import SimpleNamespace

from exchange import (ACTIVATIONS, BAD_USAGE, FAILED, SIZES, SPACE, STORED, TOKEN, Shape, T, as_type, bad,
                      compare_ids, cuts, gguf, json, np, odd_texts, os, read_json, read_safetensors, rope_to_gguf,
                      run, say, shutil, sync, sys)

WEIGHTS_ALONE = "--tokenizer none imports the weights alone"


# --- configurations -------------------------------------------------------------------------------

READ = {name for names in SIZES.values() for name in names} | set("""vocab_size tie_word_embeddings rms_norm_eps
    activation_function hidden_act layer_norm_epsilon multi_query attention_bias mlp_bias rope_parameters
    sliding_window""".split())
# Keys of the classes that change no logits, and keys of none that what all are made of reads.
HARMLESS = re.compile(r"_name_or_path|architectures|dtype|model_type|problem_type|return_dict|use_cache|"
                      r"transformers_version|pretraining_tp|reorder_and_upcast_attn|.*_token_id|.*label.*|"
                      r".*dropout|.*pdrop|output_.*|summary_.*|.*_in_fp32|initializer_range|chunk_size_.*")
FOREIGN = {"quantization_config", "is_causal", "attention_chunk_size", "partial_rotary_factor"}


def shape_of_config(path, c):
    """The Shape that a config of transformers says. Whatever is not its class's default, and has no
    meaning here, is refused by name."""
    if c.model_type not in ("gpt2", "gpt_bigcode", "llama", "mistral"):
        bad(path, f"model_type: expected gpt2, gpt_bigcode, llama or mistral, found {c.model_type}")
    found, default = c.to_dict(), type(c)().to_dict()
    for key in (key for key in found if key not in READ and not HARMLESS.fullmatch(key)):
        if found[key] != default.get(key, None if key in FOREIGN else found[key]):
            bad(path, f"{key}: expected {default.get(key)}, as nothing else runs here, found {found[key]}")
    is_llama = c.model_type in ("llama", "mistral")
    keys = {key: getattr(c, names[is_llama], None) for key, names in SIZES.items()}
    keys["feed_forward_length"] = keys["feed_forward_length"] or 4 * keys["embedding_length"]
    biases = [".self_attn"] * getattr(c, "attention_bias", False) + [".mlp"] * getattr(c, "mlp_bias", False)
    s = Shape(path, keys, c.vocab_size, is_llama, biases if is_llama else ["ln_", "attn", "mlp"], halves=is_llama,
              conv1d=c.model_type == "gpt2", by_head=c.model_type == "gpt_bigcode" and not c.multi_query)
    activation = c.hidden_act if is_llama else c.activation_function
    ffn = ACTIVATIONS.get(activation)
    if not ffn or (ffn == "swiglu") != is_llama:
        bad(path, f"activation: expected {'silu' if is_llama else 'gelu_new, gelu or relu'}, found {activation}")
    s.arch = "llama" if is_llama else "gpt2" if s.conv1d else "starcoder"
    s.window = c.sliding_window if c.model_type == "mistral" else None
    if is_llama:
        rope, s.factors = rope_to_gguf(path, c.rope_parameters, s.head_dim)
        s.keys |= rope | {"attention.layer_norm_rms_epsilon": float(c.rms_norm_eps)}
    elif ffn == "gelu":
        s.keys["attention.layer_norm_epsilon"] = float(c.layer_norm_epsilon)
    else:  # GGUF's gpt2 and starcoder mean GELU's tanh form
        s.arch = "decode"
        s.keys |= {"norm.epsilon": float(c.layer_norm_epsilon), "norm.type": "layer", "norm.placement": "before",
                   "position.type": "learned", "feed_forward.type": ffn}
    return s


def shape_of_nanogpt(path, args):
    """Of its model_args. Its GELU is the exact one."""
    from transformers import GPT2Config
    s = shape_of_config(path, GPT2Config(
        n_embd=args["n_embd"], n_layer=args["n_layer"], n_head=args["n_head"], n_positions=args["block_size"],
        vocab_size=args["vocab_size"], activation_function="gelu"))
    s.conv1d, s.biases = False, s.biases if args.get("bias", True) else []
    return s


# --- weights --------------------------------------------------------------------------------------


def read_folder(path):
    """As transformers does: one file, or all that is in the shards that the index names."""
    one, index, state = os.path.join(path, "model.safetensors"), "model.safetensors.index.json", {}
    if os.path.exists(one) or not os.path.exists(os.path.join(path, index)):
        return read_safetensors(one)
    for shard in sorted(set(read_json(path, index)["weight_map"].values())):
        state.update(read_safetensors(os.path.join(path, shard)))
    return state


def read_torch(path):
    """nanoGPT's checkpoint: its model_args and its tensors."""
    try:
        import torch
    except ImportError:
        bad(path, "expected torch, which made it, found none: python3 -m pip install torch", FAILED)
    c, state = torch.load(path, map_location="cpu", weights_only=True), {}
    if not {"model", "model_args"} <= set(c):
        bad(path, "expected nanoGPT's model and model_args (of transformers, the folder that save_pretrained "
                  f"makes), found {sorted(map(str, c))[:5]}")
    for name, t in c["model"].items():
        kind = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}.get(t.dtype, str(t.dtype))
        array = (t.view(torch.int16) if kind == "BF16" else t).numpy()
        state[name] = kind, array.view(STORED[kind]) if kind in STORED else array
    return c["model_args"], state


def tensors_of_state(path, s, state, is_tied):
    """By GGUF's names. A compiled or distributed model of PyTorch has its parameters behind _orig_mod.
    and module., a base model of transformers lacks its prefix."""
    found, tensors, prefix = {}, {}, "model." if s.is_llama else "transformer."
    for name, value in state.items():
        own = re.sub(r"^(module\.)+", "", name.replace("_orig_mod.", "")).removeprefix(prefix)
        if found.setdefault(own, value) is not value:
            bad(path, f"tensor {name}: expected one {own}, found two")
    embedding, output = "embed_tokens.weight" if s.is_llama else "wte.weight", "lm_head.weight"
    if is_tied and output in found:
        if np.array_equal(found.setdefault(embedding, found[output])[1], found[output][1]):
            del found[output]
        else:
            say(f"{path}: {output} is not the embedding, to which config.json ties it: it stays")
    for _, name, to, shape in s.tensors():
        if name == output and is_tied and output not in found:
            continue
        stored = shape[::-1] if s.conv1d and name.startswith("h.") else shape
        kind, array = found.pop(name, ("none", np.empty(0)))
        if kind not in STORED or array.shape != stored:
            bad(path, f"tensor {name}: expected F32, F16 or BF16 {list(stored)}, as the configuration says, "
                      f"found {kind} {list(array.shape)}")
        tensors[to] = T[kind], s.turned(name, array)
    tables = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")  # they follow from the shape
    if others := [name for name in found if not name.endswith(tables)]:
        say(f"{path}: {len(others)} tensors, such as {others[0]}, are none of the model's: passed over, as there")
    return tensors


LLAMA2C, LLMC = 0x616B3432, 20240326
ORDERS = {  # version 0 of llama2.c has tables of cosines that nothing reads; versions 1 and 2; llm.c
    0: "token_embd attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_down ffn_up output_norm tables",
    1: "attn_norm ffn_norm output_norm token_embd attn_q attn_k attn_v attn_output ffn_gate ffn_down ffn_up",
    LLMC: "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down output_norm"}


def read_bin(path, raw):
    """llama2.c's or llm.c's: a Shape, and tensors by GGUF's names."""
    from transformers import GPT2Config, LlamaConfig
    header, at = struct.unpack("<10i", bytes(raw[:40]).ljust(40, b"\0")), 28
    is_llmc, version, rows, group = header[0] == LLMC, 0, 0, 1
    if is_llmc:
        version, n_ctx, vocab, layers, heads, width, rows, at = *header[1:8], 1024
        sizes, owns_output, dtype = [heads], False, "<u2" if version == 5 else "<f4"
    else:
        if header[0] == LLAMA2C:
            version, at, header = header[1], 256, header[2:]
            group = struct.unpack("<i", bytes(raw[37:41]).ljust(4, b"\0"))[0] if version == 2 else 1
        width, ff, layers, heads, kv_heads, vocab, n_ctx = header[:7]
        sizes, dtype, owns_output = [ff, heads, kv_heads], "<f4", bytes(raw[36:37]) == b"\0" if version else vocab < 0
        vocab = abs(vocab)
    if version not in ((1, 3, 5) if is_llmc else (0, 1, 2)) or width % max(group, 1) or not all(
            0 < size < 1 << 24 for size in (*sizes, width, layers, vocab, n_ctx, group)):
        bad(path, "expected a folder of transformers, or a .bin of llama2.c (version 0, 1 or 2) or of llm.c's "
                  f"GPT-2 (1, 3 or 5), found version {version} and {header}")
    s = shape_of_config(path, GPT2Config(
        vocab_size=vocab, n_positions=n_ctx, n_embd=width, n_layer=layers, n_head=heads) if is_llmc else LlamaConfig(
        vocab_size=vocab, max_position_embeddings=n_ctx, hidden_size=width, intermediate_size=ff, rms_norm_eps=1e-5,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads))
    s.conv1d = s.halves = False
    order = [name + ".weight" for name in ORDERS[min(version, 1)].split() + ["output"] * owns_output]
    if is_llmc:
        order = ["token_embd.weight", "position_embd.weight"] + [
            f"{name}.{end}" for name in ORDERS[LLMC].split() for end in ("weight", "bias")]
    shapes, tensors = {to: shape for *_, to, shape in s.tensors()}, {}
    shapes |= {"tables.weight": (n_ctx, s.head_dim), "token_embd.weight": (max(rows, vocab), width)}

    def take(n, dtype):
        nonlocal at
        start, at = at, at + n * np.dtype(dtype).itemsize
        if at > len(raw):
            bad(path, f"expected at least {at} bytes, as version {version} and {s.keys} say, found {len(raw)}")
        return raw[start:at].view(dtype)

    for name in order:
        for full in [name] if name in shapes else [f"blk.{i}.{name}" for i in range(layers)]:
            n = math.prod(shapes[full])
            if version == 2 and len(shapes[full]) == 2:  # a factor for each group of numbers behind them
                array = take(n, np.int8).reshape(-1, group) * take(n // group, "<f4")[:, None]
            else:
                array = take(n, dtype)
            tensors[full] = T.BF16 if dtype == "<u2" else T.F32, array.reshape(shapes[full])
    if at != len(raw):
        bad(path, f"expected {at} bytes, as version {version} and {s.keys} say, found {len(raw)}")
    tensors.pop("tables.weight", None)
    tensors["token_embd.weight"] = tensors["token_embd.weight"][0], tensors["token_embd.weight"][1][:vocab]
    return s, tensors


# --- vocabularies ---------------------------------------------------------------------------------


class Vocabulary(SimpleNamespace):
    """As GGUF has it, by id. `encode`: `library`'s ids of a text; `names`: of added tokens."""
    pre = merges = scores = bos = eos = unk = pad = space = None
    add_bos, names = False, ()


def of_transformers(path, tok):
    """A tokenizer that transformers has loaded from a folder or file."""
    backend = getattr(tok, "backend_tokenizer", None)
    said = json.loads(backend.to_str()) if backend else {"model": {"type": type(tok).__name__}}
    model, steps = said["model"], json.dumps([said.get("normalizer"), said.get("pre_tokenizer")])
    unusual = [k for k in ("dropout", "continuing_subword_prefix", "end_of_word_suffix") if model.get(k)]
    if model["type"] != "BPE" or unusual or not ("ByteLevel" in steps or r"\u2581" in steps):
        bad(path, f"tokenizer: expected BPE of bytes, or with U+2581 for spaces, found {model['type']} "
                  f"{' '.join(unusual)} {steps:.200}; {WEIGHTS_ALONE}")
    v = Vocabulary(library="transformers", bos=tok.bos_token_id, eos=tok.eos_token_id, pad=tok.pad_token_id,
                   tokens={i: name for name, i in backend.get_vocab(with_added_tokens=True).items()},
                   encode=lambda text: tok(text, add_special_tokens=False)["input_ids"])
    v.types, special = dict.fromkeys(v.tokens, TOKEN.NORMAL), {t["id"]: t["special"] for t in said["added_tokens"]}
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    if "ByteLevel" in steps:
        pieces = lambda cut: [[piece for piece, _ in cut.pre_tokenize_str(text)] for text in odd_texts()]
        v.model, v.merges, theirs = "gpt2", [" ".join(m) for m in merges], pieces(backend.pre_tokenizer)
        v.pre = next((name for name, cut in cuts().items() if pieces(cut) == theirs), None)
        if not v.pre:
            bad(path, f"pre_tokenizer: expected a cut of {', '.join(cuts())}, found {steps:.300}; {WEIGHTS_ALONE}")
        if v.pre == "llama-bpe" and not model["ignore_merges"]:
            v.pre = "dbrx"  # the same cut; llama-bpe takes a piece that is a token as that token
    else:
        made, v.model, v.unk = {}, "llama", backend.token_to_id(model["unk_token"] or "")
        for left, right in merges:  # a token's score: minus the number of tokens that are made before it
            made.setdefault(left + right, -float(len(made)))
        v.scores = {i: made.get(name, -float(len(made))) for i, name in v.tokens.items()}
        v.space = backend.encode("a", add_special_tokens=False).tokens[0].startswith(SPACE)
        for i, name in v.tokens.items():
            if re.fullmatch("<0x[0-9A-F]{2}>", name):
                v.types[i] = TOKEN.BYTE
            elif len(name) > 1 and name not in made and i in v.encode(name):
                special.setdefault(i, False)  # one of SentencePiece's user-defined symbols
    for i, is_special in special.items():
        v.types[i] = TOKEN.CONTROL if is_special else TOKEN.USER_DEFINED
        if i not in v.encode(v.tokens[i]):
            v.types[i] = TOKEN.UNUSED
            say(f"{path}: no text has token {i}, {v.tokens[i]!r}: other added ones are found first; it is unused")
    if v.unk is not None:
        v.types[v.unk] = TOKEN.UNKNOWN
    v.names, plain, whole = [v.tokens[i] for i in special], v.encode("a"), tok("a")["input_ids"]
    before = next((i for i in (0, 1) if whole[i : i + len(plain)] == plain), None)
    if before is None:
        bad(path, f"tokenizer: expected at most one token before a text, found {whole} of {plain}; {WEIGHTS_ALONE}")
    v.add_bos, v.bos = before == 1, whole[0] if before else v.bos
    if before + len(plain) < len(whole):
        say(f"{path}: the tokens that the tokenizer puts behind every text are not put there")
    return v


class Plain(pickle.Unpickler):
    """Numbers, strings, and what holds them. A pickle that names a program is not run."""
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"expected numbers and strings, found {module}.{name}")


def of_characters(ids):
    """nanoGPT's single characters."""
    tokens = {i: name.replace(" ", SPACE) for name, i in ids.items()}
    return Vocabulary(model="llama", library="the table", tokens=tokens, space=False,
                      types=dict.fromkeys(tokens, TOKEN.NORMAL), scores=dict.fromkeys(tokens, 0.0),
                      encode=lambda text: [ids[c] for c in text] if set(text) <= ids.keys() else None)


def read_vocabulary(path, model_type):
    """Of a folder, None where it has none, or of a file."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast
    if os.path.isdir(path):
        there = {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"} & set(os.listdir(path))
        if there == {"vocab.json"}:
            return of_characters(read_json(path, "vocab.json"))
        return of_transformers(path, AutoTokenizer.from_pretrained(path, tokenizer_type=model_type)) if there else None
    with open(path, "rb") as file:
        if (first := file.peek(1)[:1]) == b"\x80":
            return of_characters(Plain(file).load()["stoi"])
    if first not in (b"{", b"\n"):
        bad(path, "expected tokenizer.json, tokenizer.model, nanoGPT's meta.pkl or a vocab.json of characters, "
                  "found none of these; a tokenizer.bin was made from one of them")
    if first == b"{" and "model" not in (table := read_json(path)):
        return of_characters(table)
    with tempfile.TemporaryDirectory() as folder:  # alone, and by the name that transformers looks for
        shutil.copy(path, os.path.join(folder, "tokenizer.json" if first == b"{" else "tokenizer.model"))
        return of_transformers(path, PreTrainedTokenizerFast.from_pretrained(folder))


# --- the file -------------------------------------------------------------------------------------


def add_vocabulary(path, w, v, n_vocab, ends):
    """The keys tokenizer.ggml.*. `ends` end a text by the model's configuration, and so does the
    tokenizer's own EOS, which comes first if it is one of them."""
    ends = dict.fromkeys([v.eos] * (v.eos in ends) + ends + [v.eos])
    ends = [i for i in ends if isinstance(i, int) and 0 <= i < n_vocab]
    if len(ends) > 3:
        say(f"{path}: expected at most 3 ids that end a text, which GGUF has keys for (eos, eot, eom), found "
            f"{ends}: the last are left out")
    if beyond := [i for i in v.tokens if i >= n_vocab]:
        say(f"{path}: the model has {n_vocab} tokens, its tokenizer {len(beyond)} more, such as "
            f"{v.tokens[beyond[0]]!r}: left out")
    w.add_tokenizer_model(v.model)
    w.add_token_list([v.tokens.get(i, f"[PAD{i}]") for i in range(n_vocab)])
    w.add_token_types([v.types.get(i, TOKEN.UNUSED) for i in range(n_vocab)])
    if v.scores:
        w.add_token_scores([v.scores.get(i, 0.0) for i in range(n_vocab)])
        w.add_add_space_prefix(v.space)
    else:
        w.add_tokenizer_pre(v.pre)
        w.add_token_merges(v.merges)
    ids = {"bos": v.bos, "eos": None, "unknown": v.unk, "padding": v.pad} | dict(zip(("eos", "eot", "eom"), ends))
    for name, i in ids.items():
        if i is not None and i < n_vocab:
            w.add_uint32(f"tokenizer.ggml.{name}_token_id", i)
        elif v.scores and name in ("bos", "eos"):  # where it is absent readers take 1 and 2
            w.add_uint32(f"tokenizer.ggml.{name}_token_id", 0xFFFFFFFF)
    w.add_add_bos_token(v.add_bos)


def write(path, out, s, v, tensors, wanted, ends):
    """The whole file, beside `out` until decode, where it is there, has read its vocabulary."""
    w, made = gguf.GGUFWriter(None, s.arch), f"{out}.{os.getpid()}.tmp"
    w.add_name(os.path.basename(os.path.abspath(path))[:127])
    w.add_file_type({T.F32: 0, T.F16: 1, T.BF16: 32}[wanted or tensors["token_embd.weight"][0]])
    for key, value in s.keys.items():
        {int: w.add_uint32, float: w.add_float32, str: w.add_string}[type(value)](f"{s.arch}.{key}", value)
    if v:
        add_vocabulary(path, w, v, s.n_vocab, ends)
    types = {name: wanted or kind if array.ndim == 2 and name != "position_embd.weight" else T.F32
             for name, (kind, array) in tensors.items()}
    for name, (_, array) in tensors.items():
        n_bytes = array.size * gguf.GGML_QUANT_SIZES[types[name]][1]
        w.add_tensor_info(name, array.shape, array.dtype, n_bytes, types[name])
    try:
        w.write_header_to_file(made)
        w.write_kv_data_to_file()
        w.write_ti_data_to_file()
        for name, (kind, array) in tensors.items():  # one at a time
            array = np.ascontiguousarray(as_type(array, kind, types[name]))
            if kind != types[name] == T.F16 and not np.isfinite(array).all():
                bad(path, f"tensor {name}: expected numbers that F16 holds, found others; --type bf16 or f32 has them")
            w.write_tensor_data(array)
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
    is_folder, ends = os.path.isdir(path), []
    said, beside = read_json(path, "config.json") if is_folder else {}, path if is_folder else os.path.dirname(path)
    if is_folder and not ("block_size" in said and "model_type" not in said):
        from transformers import AutoConfig
        config, generation = AutoConfig.from_pretrained(path), os.path.join(path, "generation_config.json")
        s = shape_of_config(os.path.join(path, "config.json"), config)
        said = read_json(generation) if os.path.exists(generation) else {}
        for ids in said.get("eos_token_id"), config.eos_token_id:
            ends += ids if isinstance(ids, list) else [ids]
        tensors = tensors_of_state(path, s, read_folder(path), config.tie_word_embeddings)
        if s.is_llama and s.factors is not None:
            tensors["rope_freqs.weight"] = T.F32, s.factors
        return s, tensors, ends, path
    first = b"" if is_folder else bytes(np.memmap(path, np.uint8, "r")[:9])
    if first[:4] == b"GGUF":
        bad(path, "is a GGUF file already; decode quantize changes its types", BAD_USAGE)
    if first[8:] == b"{":
        bad(path, "expected a checkpoint, found its weights alone (safetensors): name their folder")
    if is_folder or first[:4] == b"PK\3\4":
        args, state = (said, read_folder(path)) if is_folder else read_torch(path)
        s = shape_of_nanogpt(path, args)
        return s, tensors_of_state(path, s, state, True), ends, path if is_folder else os.path.join(beside, "meta.pkl")
    # Texts that llama2.c's models learn from stand between BOS, so its program ends a text there.
    s, tensors = read_bin(path, np.memmap(path, np.uint8, "r"))
    return s, tensors, [1] * s.is_llama, os.path.join(beside, "tokenizer.model")


def main(args):
    path, out, v = args.IN, args.OUT, None
    if os.path.exists(out) and (os.path.isdir(out) or open(out, "rb").read(4) != b"GGUF"):
        bad(out, "expected a new file, or a GGUF file to replace, found another one or a folder", BAD_USAGE)
    s, tensors, ends, beside = read_input(path)
    most = min(s.n_ctx, s.window or s.n_ctx)  # as far as a window reaches all is attended to, as here
    if args.ctx is not None and (args.ctx < 1 or (args.ctx > most and (s.window or not s.is_llama))):
        bad(path, f"--ctx: expected 1 to {most}, what it has learned or its window, found {args.ctx}", BAD_USAGE)
    if not args.ctx and most < s.n_ctx:
        say(f"{path}: the context is cut from {s.n_ctx} to the {most} positions of the sliding window")
    n_ctx = args.ctx or most
    s.keys |= {"context_length": n_ctx, "attention.value_length": s.head_dim}
    if kind_and_array := tensors.get("position_embd.weight"):
        tensors["position_embd.weight"] = kind_and_array[0], kind_and_array[1][:n_ctx]
    if args.tokenizer != "none" and (args.tokenizer or os.path.exists(beside)):
        v = read_vocabulary(args.tokenizer or beside, "gpt2" if s.arch == "decode" else None)
    if not v and args.tokenizer != "none":
        say(f"{path}: there is no vocabulary: tokens come without text; --tokenizer FILE names one")
    if v and os.path.isfile(path) and s.is_llama:
        v.add_bos = v.bos is not None  # llama2.c begins every text with it
    write(path, out, s, v, tensors, args.type and T[args.type.upper()], ends)
    say(f"{out}: {s.arch}, {s.n_layers} layers of {s.n_embd}, {s.n_heads} heads, {s.n_kv_heads} K/V heads, "
        f"context {n_ctx}, {s.n_vocab} tokens, {os.path.getsize(out)} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("IN")
    parser.add_argument("OUT", metavar="OUT.gguf")
    parser.add_argument("--type", choices=("f32", "f16", "bf16"), help="of matrices (decode quantize makes others)")
    parser.add_argument("--ctx", type=int, metavar="C", help="context in tokens")
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json, tokenizer.model, nanoGPT's meta.pkl, "
                        "vocab.json,\na folder; none: tokens without text")
    arguments = parser.parse_args()
    sys.exit(run(lambda: main(arguments), arguments.IN))
