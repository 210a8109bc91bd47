#!/usr/bin/env python3
"""scripts/import.py and scripts/export.py against what transformers computed: logits, ids, tensors.

    check_import.py DECODE

The folders of tests/data/hf were written by transformers, their logits and ids beside them. (import_checks.py
makes two that are not kept: llama's tensors are tests/data/golden's, gpt-bigcode's are drawn from a seed.)
Those in tests/data/hf/cases are of kinds that once ran silently wrong; make_nanogpt.py wrote
tests/data/nanogpt. Where torch is there, what goes out is also loaded by transformers itself. A line a check that fails, and how many passed at the end."""
import contextlib
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

from import_checks import (CASES, HF, check, close, counts, decode, export, exports, folder, ids, import_, keys,
                           load_file, logits, odd_texts, read_json, script)
import check_families  # noqa: F401
import check_import_hostile
import fuzz_import

def check_folder(name, dir):
    """In, out, and in again."""
    source, model, out = HF + name, f"{dir}/{name}.gguf", f"{dir}/out/{name}"
    expect, expected = read_json(source, "expect.json"), np.load(source + "/logits.npy")
    os.mkdir(f"{dir}/out")
    import_(source, f"{dir}/f32.gguf", type="f32", tokenizer="none")
    close(f"{name}: logits", logits(f"{dir}/f32.gguf", expect["tokens"]), expected)
    import_(source, model, says=[f"{len(odd_texts(['<|endoftext|>']))} odd texts get the ids", model])
    for text in expect["texts"]:
        check(f"{name}: ids of {text['text']!r}", ids(model, text["text"]) == text["ids"], ids(model, text["text"]))
    export(model, out, says="odd texts get the ids")
    with open(f"{out}/model.safetensors", "rb") as a, open(f"{source}/model.safetensors", "rb") as b:
        check(f"{name}: model.safetensors is the original", a.read() == b.read())
    import_(out, f"{dir}/again.gguf")
    one, other = keys(model), keys(f"{dir}/again.gguf")
    check(f"{name}: imported again, the same keys", one[0] == other[0], other[0].items() ^ one[0].items()
          if len(one[0]) < 9 else [k for k in one[0] if one[0][k] != other[0].get(k)])
    check(f"{name}: imported again, the same tensors", all(np.array_equal(one[1][k], other[1][k]) for k in one[1]))
    with contextlib.suppress(ImportError):
        import torch
        from transformers import AutoModelForCausalLM
        theirs = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
        with torch.no_grad():
            close(f"{name}: logits of transformers", theirs(torch.tensor([expect["tokens"]])).logits[0].numpy(), expected)


TOKENS = [3, 17, 42, 9, 5, 60, 7, 7]


def check_cases(dir):
    out = f"{dir}/case.gguf"
    import_(CASES + "rope-scaling-beside-parameters", out)
    close("rope_scaling before rope_parameters", logits(out, TOKENS),
          np.load(CASES + "rope-scaling-beside-parameters/expect.npy"))
    yarn = {"rope_type": "yarn", "factor": 4.0}
    import_(folder(f"{dir}/yarn", CASES + "rope-scaling-beside-parameters", rope_scaling=yarn), out, 3, "yarn")

    # MistralConfig's default window is 4096 where the key is absent; null means none.
    shape = {"model_type": "mistral", "max_position_embeddings": 8192}
    mistral = folder(f"{dir}/mistral", CASES + "rope-scaling-beside-parameters", rope_scaling=None, **shape)
    import_(mistral, out)
    check("Mistral's default window", keys(out)[0]["decode.attention.sliding_window"] == 4096)
    import_(mistral, out, ctx=4096)
    check("no window beyond the context", keys(out)[0]["llama.context_length"] == 4096)
    import_(folder(f"{dir}/window", mistral, sliding_window=None), out, ctx=9000)

    import_(CASES + "unindexed-tensor-in-shard", out)
    close("shards, by the index", logits(out, TOKENS), np.load(CASES + "unindexed-tensor-in-shard/expect.npy"))

    rng, tensors = np.random.default_rng(1), load_file(HF + "llama/model.safetensors")
    wide = {name: rng.normal(size=(n_vocab, 64)).astype(np.float32) for name, n_vocab in (
        ("model.embed_tokens.weight", 401), ("lm_head.weight", 401))}
    added = folder(f"{dir}/added", HF + "llama", tensors | wide, vocab_size=401)
    for name in os.listdir(CASES + "added-token-overlap"):
        shutil.copy(CASES + "added-token-overlap/" + name, added)
    import_(added, out, says=["<|im_start|>user", f"{len(odd_texts(['<|im_end|>', '<|im_start|>', '<|im_start|>user']))} of"])
    for text, expected in {"<|im_start|>user hi": [399, 395, 275, 289, 73], "a<|im_start|>user": [65, 399, 395, 275]}.items():
        check(f"added tokens that overlap: {text}", ids(out, text) == expected, ids(out, text))

    wide = {name: rng.normal(size=(500, 64)).astype(np.float32) for name in wide}
    symbols = folder(f"{dir}/symbols", HF + "llama", tensors | wide, vocab_size=500)
    shutil.copy(CASES + "spm-user-defined/tokenizer.model", symbols)
    import_(symbols, out, says=["get others, such as", "<sep>"])
    check("user-defined symbols are tokens", ids(out, "<sep>") == [3], ids(out, "<sep>"))
    export(out, f"{dir}/symbols-out", says="odd texts get the ids of AutoTokenizer")

    ends = folder(f"{dir}/ends", HF + "llama", eos_token_id=[5, 6], generation={"eos_token_id": [7, 5]})
    shutil.copy(HF + "llama/tokenizer.json", ends)
    import_(ends, out)
    found = [keys(out)[0].get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    check("end tokens: union of both files", found == [7, 5, 6], found)
    ends = folder(f"{dir}/ends4", HF + "llama", eos_token_id=[5, 6, 8, 9])
    shutil.copy(HF + "llama/tokenizer.json", ends)
    import_(ends, out, says="at most 3 ids that end a text")

    gpt2 = load_file(HF + "gpt2/model.safetensors")
    import_(HF + "gpt2", out, tokenizer="none")
    expected = keys(out)[1]
    for prefix, strip in (("_orig_mod.", ""), ("module.", ""), ("module._orig_mod.", ""), ("", "transformer.")):
        renamed = {prefix + name.removeprefix(strip): tensor for name, tensor in gpt2.items()}
        import_(folder(f"{dir}/prefix{prefix}{strip}", HF + "gpt2", renamed), out)
        found = keys(out)[1]
        check(f"prefix {prefix!r} for {strip!r}", all(np.array_equal(found[k], expected[k]) for k in expected))


def check_bins(dir):
    """Files of llama2.c and llm.c, made of tensors whose logits are known."""
    out, expect = f"{dir}/bin.gguf", read_json(HF, "llama/expect.json")
    tensors = load_file(HF + "llama/model.safetensors")
    eps = folder(f"{dir}/eps", HF + "llama", rms_norm_eps=1e-5)  # llama2.c's
    import_(eps, out)
    known, expected = keys(out)[1], logits(out, expect["tokens"])
    block = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_down ffn_up".split()
    def of_all(name):
        return [known[f"blk.{i}.{name}.weight"] for i in range(2)]
    legacy = [known["token_embd.weight"]] + [t for name in block for t in of_all(name)]
    legacy += [known["output_norm.weight"], np.zeros((2, 128, 4), "<f4"), known["output.weight"]]
    later = of_all("attn_norm") + of_all("ffn_norm") + [known["output_norm.weight"], known["token_embd.weight"]]
    later += [t for name in block if "norm" not in name for t in of_all(name)] + [known["output.weight"]]
    sizes, path = (64, 160, 2, 8, 2), f"{dir}/model.bin"
    def write(*parts):
        with open(path, "wb") as file:
            file.write(b"".join(p if isinstance(p, bytes) else np.ascontiguousarray(p).tobytes() for p in parts))
    write(struct.pack("<7i", *sizes, -400, 128), *legacy)
    import_(path, out)
    close("llama2.c, version 0", logits(out, expect["tokens"]), expected)
    with open(path, "ab") as file:
        file.write(b"more")
    import_(path, out, 3, "expected")
    header = struct.pack("<Ii7iB", 0x616B3432, 1, *sizes, 400, 128, 0)
    write(header.ljust(256, b"\0"), *later)
    import_(path, out, tokenizer=HF + "llama/tokenizer.json")
    close("llama2.c, version 1", logits(out, expect["tokens"]), expected)
    parts, rounded = [], dict(known)
    for tensor in later:
        if tensor.ndim == 2:
            groups = tensor.reshape(-1, 32)
            scale = (np.abs(groups).max(axis=1) / 127).astype("<f4")
            parts += [np.round(groups / scale[:, None]).astype(np.int8), scale]
            name = next(n for n in known if known[n] is tensor)
            rounded[name] = (parts[-2] * scale[:, None]).reshape(tensor.shape)
        else:
            parts.append(tensor)
    write((header.replace(struct.pack("<Ii", 0x616B3432, 1), struct.pack("<Ii", 0x616B3432, 2))
           + struct.pack("<i", 32)).ljust(256, b"\0"), *parts)
    import_(path, out)
    found = keys(out)[1]
    check("llama2.c, version 2: the numbers that it stands for", all(np.array_equal(found[k], rounded[k]) for k in known))

    expect, tensors = read_json(HF, "gpt2/expect.json"), load_file(HF + "gpt2/model.safetensors")
    def weights(name):
        t = tensors[f"transformer.{name}"]
        return t.T if ".h." in f"transformer.{name}" and t.ndim == 2 else t
    parts = [weights("wpe.weight")]
    for name in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
        parts += [weights(f"h.{i}.{name}.{end}") for end in ("weight", "bias") for i in range(2)]
    parts += [weights("ln_f.weight"), weights("ln_f.bias")]
    expected = np.load(HF + "gpt2/logits.npy")
    for version, rows in ((1, 0), (3, 512), (5, 512)):
        embedding = np.concatenate([weights("wte.weight"), np.full((max(rows - 400, 0), 48), 9, "<f4")])
        stored = [embedding, *parts]
        if version == 5:  # every number cut to BF16, in both
            stored = [(np.ascontiguousarray(t).view("<u4") >> 16).astype("<u2") for t in stored]
            cut = {n: (t.view("<u4") & 0xFFFF0000).view("<f4") for n, t in tensors.items()}
            import_(folder(f"{dir}/bf16", HF + "gpt2", cut), out)
            expected = logits(out, expect["tokens"])
        write(struct.pack("<8i", 20240326, version, 64, 400, 2, 4, 48, rows).ljust(1024, b"\0"), *stored)
        import_(path, out, type="f32")
        close(f"llm.c, version {version}", logits(out, expect["tokens"]), expected)
    write(b"\1\2\3\4" * 20)
    import_(path, out, 3, "expected a folder of transformers, or a .bin")


def check_nanogpt(dir):
    for name in ("bias", "no-bias"):
        source, out = f"tests/data/nanogpt/{name}", f"{dir}/nano.gguf"
        import_(source, out, says="no vocabulary")
        tokens = open(source + "/tokens.txt", encoding="utf-8").read().replace(",", " ").split()
        close(f"nanoGPT, {name}", logits(out, tokens), np.load(source + "/logits.npy"))
        export(out, f"{dir}/nano-out")
        import_(f"{dir}/nano-out", f"{dir}/nano-again.gguf")
        close(f"nanoGPT, {name}, as GPT-2", logits(f"{dir}/nano-again.gguf", tokens), np.load(source + "/logits.npy"))
    letters = {chr(ord("A") + i): i for i in range(60)} | {" ": 60}
    for path, dump in ((f"{dir}/meta.pkl", pickle.dumps({"stoi": letters})), (f"{dir}/vocab.json", json.dumps(letters).encode())):
        with open(path, "wb") as file:
            file.write(dump)
        import_(source, out, tokenizer=path)
        check(f"{path}: characters", ids(out, "A BC") == [0, 60, 1, 2], ids(out, "A BC"))
    with open(f"{dir}/meta.pkl", "wb") as file:
        file.write(pickle.dumps({"stoi": os.getcwd}))
    import_(source, out, 3, ["meta.pkl", "expected a pickle of numbers"], tokenizer=f"{dir}/meta.pkl")


def check_refusals(dir):
    out, n, gpt2 = f"{dir}/no.gguf", 0, load_file(HF + "gpt2/model.safetensors")
    for source, key, value, says in (
            ("gpt2", "scale_attn_by_inverse_layer_idx", True, "scale_attn_by_inverse_layer_idx"),
            ("gpt2", "scale_attn_weights", False, "scale_attn_weights"), ("gpt2", "add_cross_attention", True, "cross"),
            ("gpt2", "activation_function", "tanh", "tanh"), ("llama", "hidden_act", "gelu", "gelu"),
            ("llama", "quantization_config", {"quant_method": "gptq"}, "quantization_config"),
            ("llama", "model_type", "qwen2", "q_proj.bias"), ("llama", "num_hidden_layers", 3, "layers.2."),
            ("llama", "rope_scaling", {"rope_type": "dynamic", "factor": 2.0}, "dynamic"),
            ("llama", "partial_rotary_factor", 0.5, "partial_rotary_factor"), ("gpt2", "n_embd", 52, "wte.weight")):
        n += 1
        import_(folder(f"{dir}/no{n}", HF + source, **{key: value}), out, 3, [says, "expected", "found"])
    import_(folder(f"{dir}/twice", HF + "gpt2", gpt2 | {"wte.weight": gpt2["transformer.wte.weight"]}), out, 3, "two")
    large = {name: tensor * 1e6 for name, tensor in gpt2.items()}
    import_(folder(f"{dir}/large", HF + "gpt2", large), out, 3, "F16", type="f16")
    import_(folder(f"{dir}/more", HF + "gpt2", gpt2 | {"other": gpt2["transformer.wpe.weight"]}), out, says="passed over")
    import_(out, f"{dir}/x.gguf", 2, "GGUF file already")
    import_(HF + "gpt2", out, 2, "64", ctx=65)
    import_(HF + "gpt2", HF + "gpt2", 2, "a folder")
    import_(f"{dir}/more", f"{dir}/more/model.safetensors", 2, "a GGUF file to replace")
    import_(HF + "none", out, 3, "No such file")
    import_(HF + "gpt2/model.safetensors", out, 3, "name their folder")
    with open(f"{dir}/more/model.safetensors", "r+b") as file:
        file.truncate(1000)
    import_(f"{dir}/more", out, 3, f"{dir}/more")
    import_(HF + "gpt2", f"{dir}/ctx.gguf", ctx=9)
    check("--ctx cuts learned positions", keys(f"{dir}/ctx.gguf")[1]["position_embd.weight"].shape == (9, 48))
    check("nothing is left beside", not [name for name in os.listdir(dir) if name.endswith(".tmp")])
    made = subprocess.run([sys.executable, "scripts/import.py", "--type", "q9", "a", "b"], capture_output=True)
    check("import.py --type q9: usage", made.returncode == 2)


def check_exports(dir):
    tokens, gqa, f32 = list(range(40)), "models/shakespeare-gqa2.gguf", f"{dir}/f32.gguf"
    export(gqa, f"{dir}/out", 2, "--expand")
    for name, expand in (("gqa2", True), ("mqa", False), ("llama", False)):
        decode("convert", f"models/shakespeare-{name}.gguf", "-o", f32, "--type", "f32", "--force", "--requantize", "-q")
        export(f32, f"{dir}/out", expand=expand)
        import_(f"{dir}/out", f"{dir}/again.gguf")
        close(f"{name}, out and in", logits(f"{dir}/again.gguf", tokens), logits(f32, tokens))
    script(exports, 2, "new or empty", MODEL=f32, DIR=f"{dir}/out", expand=False)
    rope = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 0.5, "high_freq_factor": 8.0,
            "original_max_position_embeddings": 128, "rope_theta": 10000.0}
    import_(folder(f"{dir}/llama3", HF + "llama", rope_parameters=rope), f32)
    expected = [1, 4.351556, 32, 32]  # transformers' frequencies without scaling over those with it
    check("Llama 3.1's factors", np.allclose(keys(f32)[1]["rope_freqs.weight"], expected, rtol=1e-6))
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}
    import_(folder(f"{dir}/llama3-again", HF + "llama", rope_parameters=rope), f32)
    export(f32, f"{dir}/out")
    check("Llama 3.1's factors, out", read_json(dir, "out/config.json")["rope_parameters"] == rope)
    with open(f"{dir}/cut.gguf", "wb") as cut, open(gqa, "rb") as whole:
        cut.write(whole.read(3000))
    export(f"{dir}/cut.gguf", f"{dir}/out", 3, "cut.gguf")


def main():
    for name in ("gpt2", "gpt-bigcode", "llama", "llama-tied-bf16"):
        with tempfile.TemporaryDirectory() as dir:
            check_folder(name, dir)
    for some in (check_cases, check_bins, check_nanogpt, check_refusals, check_exports, *check_import_hostile.CHECKS):
        with tempfile.TemporaryDirectory() as dir:
            some(dir)
    with tempfile.TemporaryDirectory() as dir:  # few: fuzz_import.py makes more
        fuzz_import.fuzz(dir, 40, int(os.environ.get("DECODE_TEST_SEED", time.time())))
    print(f"check-import: {counts[True]} passed, {counts[False]} failed")
    return counts[False] > 0


sys.exit(main())
