#!/usr/bin/env python3
"""Import, export and attention against transformers itself: logits, greedy tokens, ids, tensors.

    check_transformers.py FOLDERS [MODEL.gguf...]

FOLDERS holds folders that transformers wrote, each with logits.npy (of expect.json's `tokens`) and
expect.json (`tokens`, `greedy_from_first_8`, `texts` with their `ids`). The MODELs (by default those
of models/) are exported and continued greedily by both. A line a check with its figure, then how
many passed; fails if one did not. Run it from the repository's top; $DECODE is the program
(./decode). Needs torch, transformers (no older than what wrote the folders), safetensors and numpy;
where they are missing, it says so and checks nothing. About two minutes on two cores.
"""
import functools
import glob
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
try:
    import numpy as np
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}. To run it: python3 -m venv V && V/bin/pip install torch transformers")
    print("transformers: 0 passed, 0 failed, 1 skipped")
    sys.exit(0)

DECODE = os.environ.get("DECODE", "./decode")
LIMIT = 2e-4  # of a logit
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


# --- the two programs -----------------------------------------------------------------------------


class Failure(Exception):
    """A check that could not be made; says why."""


def decode(*args, stdin=None):
    """Standard output of a run of the program."""
    command = [DECODE, *map(str, args)]
    run = subprocess.run(command, input=stdin, capture_output=True, text=True, encoding="utf-8")
    if run.returncode:
        raise Failure(f"{' '.join(command)}: exit {run.returncode}: {run.stderr.strip()}")
    return run.stdout


def our_logits(model, tokens, dir):
    path = os.path.join(dir, "logits.npy")
    decode("score", model, "--tokens", ",".join(map(str, tokens)), "--logits", path, "-q")
    return np.load(path)


def our_ids(model, text):
    return [int(id) for id in decode("tokenize", model, "-p", text).split()]


def our_text(model, prompt, n):
    """Greedy: ids and text of the continuation."""
    line = json.dumps({"prompt": prompt}) + "\n"
    options = ["--prompts", "-", "--prompts-format", "jsonl", "--temp", "0", "-n", n, "-q"]
    answer = json.loads(decode("generate", model, *options, stdin=line))
    return answer["tokens"], answer["text"]


class Theirs:
    """A folder as transformers loads it, computing in float32."""

    def __init__(self, folder):
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.model = load(folder, torch_dtype=torch.float32).eval()
        self.folder = folder

    @functools.cached_property
    def tokenizer(self):
        return transformers.AutoTokenizer.from_pretrained(self.folder)

    def logits(self, tokens):
        with torch.no_grad():
            return self.model(torch.tensor([tokens])).logits[0].numpy()

    def ids(self, text):
        return self.tokenizer(text)["input_ids"]

    def continued(self, ids, n):
        """Greedy, at most n ids; ends where the model's end of text is drawn."""
        out = list(ids)
        while len(out) < len(ids) + n:
            out.append(int(self.logits(out)[-1].argmax()))
            if out[-1] == self.model.generation_config.eos_token_id:
                break
        return out[len(ids) :]

    def text(self, ids):
        return self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)


# --- checks ---------------------------------------------------------------------------------------


class Checks:
    def __init__(self):
        self.passed = self.failed = 0
        self.subject = ""

    def note(self, name, good, figure=""):
        self.passed += bool(good)
        self.failed += not good
        print(f"{'ok    ' if good else 'FAILED'} {self.subject}: {name}{': ' if figure else ''}{figure}")

    def close(self, name, a, b, limit=LIMIT):
        if a.shape != b.shape:
            self.note(name, False, f"shapes {a.shape} and {b.shape}")
            return
        distance = float(np.abs(a - b).max())
        self.note(name, distance <= limit, f"{distance:.1e} of {limit:.0e}")

    def equal(self, name, found, expected):
        same = found == expected
        self.note(name, same, "" if same else f"found {found}, expected {expected}")

    def about(self, subject, check, *args):
        """Runs a group of checks; what cannot be made at all is one that failed."""
        self.subject = subject
        try:
            check(self, *args)
        except Exception as error:  # whatever a library raises
            self.note(f"{type(error).__name__}", False, str(error).strip().replace("\n", " | ")[-600:])
        sys.stdout.flush()


def greedy_of(logits, n_prompt):
    """What follows each position from the prompt's last on, when these are a text's logits."""
    return [int(i) for i in logits[n_prompt - 1 : -1].argmax(axis=1)]


def check_tensors(checks, folder, original, name, type=None):
    """The original's tensors, no more and no fewer: the same numbers, matrices rounded to `type`."""
    found = load_file(os.path.join(folder, "model.safetensors"))
    expected = load_file(os.path.join(original, "model.safetensors"))
    checks.equal(f"{name}: names", sorted(found), sorted(expected))
    differ = []
    for key in sorted(expected.keys() & found.keys()):
        dtype = expected[key].dtype
        if type and (found[key].dtype != dtype or (found[key].dim() == 2 and "wpe" not in key)):
            dtype = TYPES[type]
        if found[key].dtype != dtype or not torch.equal(found[key], expected[key].to(dtype)):
            differ.append(f"{key} {found[key].dtype}")
    n_rounded = sum(tensor.dtype == TYPES[type] for tensor in found.values()) if type else len(found)
    checks.note(f"{name}: types, shapes, numbers", not differ, f"{n_rounded} of {len(found)}")
    if differ:
        print("       " + ", ".join(differ))


def check_config(checks, folder, original):
    """What the two configurations say of the model; defaults count as said."""
    ours, theirs = (
        transformers.AutoConfig.from_pretrained(f).to_dict() for f in (folder, original)
    )
    # n_ctx is for llama.cpp's converter; where texts begin and end, the tokenizer decides.
    for key in ("transformers_version", "_name_or_path", "n_ctx", "bos_token_id", "eos_token_id"):
        ours.pop(key, None)
        theirs.pop(key, None)
    if "n_inner" in theirs:
        theirs["n_inner"] = theirs["n_inner"] or 4 * theirs["n_embd"]
    keys = sorted(ours.keys() | theirs.keys())
    differ = [f"{k} {ours.get(k)}, not {theirs.get(k)}" for k in keys if ours.get(k) != theirs.get(k)]
    checks.note("export: config.json says the same", not differ, "; ".join(differ))


def check_import(checks, folder, dir):
    expect = json.load(open(os.path.join(folder, "expect.json"), encoding="utf-8"))
    tokens, theirs = expect["tokens"], Theirs(folder)
    model = os.path.join(dir, "imported.gguf")
    decode("import", folder, "-o", model, "-q")
    logits = our_logits(model, tokens, dir)
    checks.close("import: logits, of logits.npy", logits, np.load(os.path.join(folder, "logits.npy")))
    checks.close("import: logits, of transformers", logits, theirs.logits(tokens))
    greedy = tokens[:8] + expect["greedy_from_first_8"]
    found = greedy_of(our_logits(model, greedy, dir), 8)
    checks.equal("import: greedy tokens", found, expect["greedy_from_first_8"])
    for number, text in enumerate(expect["texts"], 1):
        found = our_ids(model, text["text"])
        checks.equal(f"import: ids of text {number}", found, text["ids"])
        checks.equal(f"import: its ids now", found, theirs.ids(text["text"]))
    straight = our_logits(folder, tokens, dir)
    checks.note("straight: logits, bit for bit", straight.tobytes() == logits.tobytes())
    prompt = expect["texts"][0]["text"]
    checks.equal("straight: greedy text", our_text(folder, prompt, 20), our_text(model, prompt, 20))


def check_export(checks, folder, dir):
    expect = json.load(open(os.path.join(folder, "expect.json"), encoding="utf-8"))
    tokens = expect["tokens"]
    out = os.path.join(dir, "exported")
    decode("export", os.path.join(dir, "imported.gguf"), "-o", out, "-q")
    check_config(checks, out, folder)
    theirs = Theirs(out)
    special = (theirs.model.config.bos_token_id, theirs.model.config.eos_token_id)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    checks.equal("export: BOS, EOS", special, (tokenizer.bos_token_id, tokenizer.eos_token_id))
    logits = theirs.logits(tokens)
    checks.close("export: logits, of logits.npy", logits, np.load(os.path.join(folder, "logits.npy")))
    checks.equal(
        "export: greedy tokens",
        greedy_of(theirs.logits(tokens[:8] + expect["greedy_from_first_8"]), 8),
        expect["greedy_from_first_8"],
    )
    for number, text in enumerate(expect["texts"], 1):
        checks.equal(f"export: ids of text {number}", theirs.ids(text["text"]), text["ids"])
        checks.equal(f"export: text of ids {number}", theirs.text(text["ids"]), text["text"])
    ours, original = (
        open(os.path.join(f, "model.safetensors"), "rb").read() for f in (out, folder)
    )
    checks.note("export: model.safetensors, byte for byte", ours == original)
    if ours != original:
        check_tensors(checks, out, folder, "export")
    # And through transformers: what it saves of what it loaded comes in again.
    saved = os.path.join(dir, "saved")
    theirs.model.save_pretrained(saved)
    theirs.tokenizer.save_pretrained(saved)
    checks.close("saved by transformers, imported", our_logits(saved, tokens, dir), logits)
    prompt = expect["texts"][0]
    checks.equal("saved by transformers, ids", our_ids(saved, prompt["text"]), prompt["ids"])


def check_types(checks, folder, dir):
    tokens = json.load(open(os.path.join(folder, "expect.json"), encoding="utf-8"))["tokens"]
    for type in TYPES:
        out = os.path.join(dir, "exported-" + type)
        decode("export", os.path.join(dir, "imported.gguf"), "-o", out, "--type", type, "-q")
        check_tensors(checks, out, folder, f"--type {type}", type)
        theirs = Theirs(out).logits(tokens)
        checks.close(f"--type {type}: logits", theirs, our_logits(out, tokens, dir))


def n_kv_heads(model):
    return int(json.loads(decode("info", model, "--format", "json"))["n_kv_heads"])


def check_conversions(checks, folder, dir):
    """Fewer K/V heads, as transformers sees them: repeated, or as the class that has them."""
    tokens = json.load(open(os.path.join(folder, "expect.json"), encoding="utf-8"))["tokens"]
    imported = os.path.join(dir, "imported.gguf")
    llama = "llama" in transformers.AutoConfig.from_pretrained(folder).model_type
    for heads, options in ((2, ["--expand"]), (2, []), (1, []), (1, ["--expand"])):
        if heads > n_kv_heads(imported):
            continue
        model = imported
        if heads < n_kv_heads(imported):
            model = os.path.join(dir, f"kv{heads}.gguf")
            decode("convert", imported, "-o", model, "--kv-heads", heads, "-q", "--force")
        name = f"{heads} K/V heads{' '.join(['', *options])}"
        out = os.path.join(dir, "kv")
        if heads == 2 and not options and not llama:
            run = subprocess.run([DECODE, "export", model, "-o", out + "-refused"], capture_output=True)
            checks.note(f"{name}: refused, naming --expand", run.returncode and b"--expand" in run.stderr)
            continue
        decode("export", model, "-o", out, "--force", "-q", *options)
        theirs = Theirs(out)
        checks.close(
            f"{name}, as {type(theirs.model).__name__}: logits",
            theirs.logits(tokens),
            our_logits(model, tokens, dir),
        )


def check_attention(checks, folder, dir):
    """Of every layer and head, as transformers computes them when it is asked for them."""
    tokens = json.load(open(os.path.join(folder, "expect.json"), encoding="utf-8"))["tokens"]
    path = os.path.join(dir, "attention.npy")
    listed = ",".join(map(str, tokens))
    decode("attend", folder, "--tokens", listed, "--npy", path, "-q")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, torch_dtype=torch.float32, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        layers = model(torch.tensor([tokens]), output_attentions=True).attentions
    found, expected = np.load(path), torch.stack(layers)[:, 0].numpy()
    checks.close("attention weights", found, expected, 1e-5)
    checks.close("attention: sums", found.sum(-1), np.ones(found.shape[:3]), 1e-6)
    checks.note("attention: nothing of the future", not np.triu(found, 1).any())


def check_model(checks, model, dir):
    """A GGUF checkpoint with a vocabulary, continued greedily by both."""
    out = os.path.join(dir, "exported")
    info = json.loads(decode("info", model, "--format", "json"))
    expand = info["architecture"] == "gpt2" and 1 < info["n_kv_heads"] < info["n_heads"]
    decode("export", model, "-o", out, "-q", *(["--expand"] if expand else []))
    theirs = Theirs(out)
    print(f"       {checks.subject}: exported as {type(theirs.model).__name__}")
    # The products of blocks round what they multiply; the exported numbers are those of the blocks.
    as_f32 = os.path.join(dir, "f32.gguf")
    decode("quantize", model, "-o", as_f32, "--type", "f32", "--requantize", "-q")
    model = as_f32
    for prompt in ("ROMEO:", "The king's  12 horses\n", "Ünïcode → 𝛼"):
        ids = our_ids(model, prompt)
        checks.equal(f"ids of {prompt!r}", theirs.ids(prompt), ids)
        checks.close(f"logits of {prompt!r}", theirs.logits(ids), our_logits(model, ids, dir))
        found, text = our_text(model, prompt, 60)
        expected = theirs.continued(ids, 60)
        checks.equal(f"greedy ids after {prompt!r}", expected, found)
        checks.equal(f"greedy text after {prompt!r}", theirs.text(ids + expected), prompt + text)


def main(folders, models):
    torch.set_num_threads(min(2, torch.get_num_threads()))
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    checks = Checks()
    expects = sorted(glob.glob(os.path.join(folders, "*", "expect.json")))
    if not expects:
        sys.exit(f"check_transformers.py: {folders}: holds no folder with expect.json")
    for folder in map(os.path.dirname, expects):
        with tempfile.TemporaryDirectory() as dir:
            for check in (check_import, check_export, check_types, check_conversions, check_attention):
                checks.about(os.path.basename(folder), check, folder, dir)
    for model in models:
        with tempfile.TemporaryDirectory() as dir:
            checks.about(os.path.basename(model), check_model, model, dir)
    print(f"transformers: {checks.passed} passed, {checks.failed} failed")
    return checks.failed > 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:] or sorted(glob.glob("models/*.gguf"))))
