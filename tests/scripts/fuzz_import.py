#!/usr/bin/env python3
"""Runs import.py on mutated inputs: each run ends within a minute and 4 GB, with one line that can be printed. decode reads
what a run writes; a run that fails leaves nothing.

    fuzz_import.py DECODE [RUNS [SEED]]

A run is a process that forks from this one, where the libraries are loaded already; import.py limits its memory.
check_import.py makes some runs."""

import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import types

import check_families
import check_import_hostile as hostile
from import_checks import DECODE, HF, CASES, check, counts, folder, imports, load_file, process
from exchange import ids
from exchange.guard import run_guarded

MEMORY, SECONDS = 4 << 30, 60
HOSTILE = [None, True, False, 0, -1, 1, 2, 7, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 70, 1e308, 1e-60, float("nan"), float("inf"),
           -0.5, 1.5, "", "x", "llama", "\x1b[2J", "\udc80", "\0", "../../x", "a" * 5000, [], {}, [[]], {"a": {"a": {}}}, [1, 2],
           "F64", "BF16", "I8", "F8_E4M3", "gpt2", "mistral", "linear", "llama3", "yarn"]

def sources(dir):
    """Folders and files to mutate, each with a vocabulary."""
    made = []
    for name in ("gpt2", "llama", "gpt-bigcode", "llama-tied-bf16"):
        made.append((shutil.copytree(HF + name, f"{dir}/{name}"), None))
    for name in ("tokenizer.json", "tokenizer_config.json"):  # vocab.json and merges.txt are read
        os.remove(f"{dir}/gpt2/{name}")
    made.append((shutil.copytree(CASES + "unindexed-tensor-in-shard", f"{dir}/shards"), None))
    spm = hostile.llama(f"{dir}/spm", 320)
    hostile.trained(spm)
    hostile.put(f"{spm}/tokenizer_config.json", {"add_bos_token": True, "eos_token": "</s>", "added_tokens_decoder": {
        "2": {"content": "</s>", "special": True}}})
    made.append((spm, None))
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64, "rope_theta": 1e4}
    scaled = folder(f"{dir}/scaled", HF + "llama", rope_parameters=rope, model_type="mistral", sliding_window=64,
                    generation={"eos_token_id": [0, 1]})
    shutil.copy(HF + "llama/tokenizer.json", scaled)
    made.append((scaled, None))
    for name in ("bias", "no-bias"):
        nano = shutil.copytree(f"tests/data/nanogpt/{name}", f"{dir}/nano-{name}")
        hostile.put(f"{nano}/vocab.json", {chr(ord("A") + i): i for i in range(61)})
        made.append((nano, None))
    made.append((shutil.copy("tests/data/nanogpt/bias/ckpt.pt", f"{dir}/ckpt.pt"), f"{dir}/meta.pkl"))
    made.append((hostile.nano(f"{dir}/small.pt"), None))
    hostile.put(f"{dir}/meta.pkl", pickle.dumps({"stoi": {chr(ord("A") + i): i for i in range(61)}}))
    llama = load_file(HF + "llama/model.safetensors")
    numbers = b"".join(t.tobytes() for t in llama.values())
    for name, header, at, size in (
            ("zero.bin", struct.pack("<7i", 64, 160, 2, 8, 2, 400, 128), 28, 435484),
            ("one.bin", struct.pack("<Ii7iB", 0x616B3432, 1, 64, 160, 2, 8, 2, 400, 128, 0), 256, None),
            ("two.bin", struct.pack("<Ii7iBi", 0x616B3432, 2, 64, 160, 2, 8, 2, 400, 128, 0, 32), 256, 151296),
            ("llmc.bin", struct.pack("<8i", 20240326, 3, 64, 400, 2, 4, 48, 512), 1024, 338176)):
        data = (header.ljust(at, b"\0") + numbers)[:size]
        made.append((hostile.put(f"{dir}/{name}", data), HF + "llama/tokenizer.json"))
    for name in ("bloom", "falcon-groups", "gemma3-pattern", "gptneo", "gptneox", "mpt", "opt-after", "qwen2-window"):
        made.append((check_families.made(f"{dir}/{name}", name, torch=name < "g"), None))
    return made

def mutated_bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(min(len(data), rng.choice((16, 64, 512, 1 << 30))) or 1)
        match rng.randrange(7):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                data[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 255, 1 << 16, 1 << 24, 1 << 31, (1 << 32) - 1)))
            case 2:
                data[at : at + 8] = struct.pack("<Q", rng.choice((0, 1 << 31, 1 << 40, 1 << 63)))
            case 3:
                del data[at:]
            case 4:
                del data[at : at + rng.choice((1, 4, 64, 4096))]
            case 5:
                data[at:at] = rng.randbytes(rng.choice((1, 4, 64)))
            case 6:
                size = rng.choice((4, 64, 1024))
                data[at : at + size] = data[(start := rng.randrange(len(data) or 1)) : start + size]
    return bytes(data)

def mutated_table(rng, table):
    """Another value, key or order somewhere within."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = table
        while True:
            inside = list(place) if isinstance(place, dict) else range(len(place))
            if not inside:
                break
            key = rng.choice(inside)
            if isinstance(place[key], (dict, list)) and rng.random() < 0.8:
                place = place[key]
                continue
            match rng.randrange(5):
                case 0 if isinstance(place, dict):
                    del place[key]
                case 1 if isinstance(place, dict):
                    place[rng.choice([str(x) for x in HOSTILE])] = place.pop(key)
                case 2 if isinstance(place[key], (int, float)):
                    place[key] += rng.choice((-1, 1, 10**9))
                case _:
                    place[key] = rng.choice(HOSTILE)
            break
    return json.dumps(table).encode("utf-8", "surrogatepass")

def mutated(rng, path, data):
    """The bytes of another file of this kind."""
    if path.endswith(".json") and rng.random() < 0.8:
        return mutated_table(rng, json.loads(data))
    if path.endswith(".safetensors") and rng.random() < 0.6:
        n = struct.unpack("<Q", data[:8])[0]
        header = mutated_table(rng, json.loads(data[8 : 8 + n]))
        return struct.pack("<Q", len(header)) + header + data[8 + n :]
    return mutated_bytes(rng, data)

def forked(path, out, tokenizer, said):
    """The status of a run, and whether a signal ended it."""
    child = os.fork()
    if not child:
        status = 99
        try:
            fd = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            args = types.SimpleNamespace(IN=path, OUT=out, type=None, ctx=None, tokenizer=tokenizer, force=False)
            status = run_guarded(lambda: imports.main(args), path, out)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.wait4(child, 0)[1])

def fuzz(dir, runs, seed, each=lambda status, text: None):
    rng, made = random.Random(seed), sources(dir)
    few = ids.odd_texts()[:12]  # a process each
    ids.odd_texts = lambda names=(): few
    out = f"{dir}/out/x.gguf"
    os.mkdir(f"{dir}/out")
    for path, tokenizer in made:  # loads what the runs need
        args = types.SimpleNamespace(IN=path, OUT=out, type=None, ctx=None, tokenizer=tokenizer, force=False)
        said = io.StringIO()
        status = process.run(lambda: imports.main(args), path, said)
        check(f"{path}, not mutated", status == 0, said.getvalue())
    os.remove(out)
    for n in range(runs):
        path, tokenizer = rng.choice(made)
        inside = [os.path.join(path, name) for name in sorted(os.listdir(path))] if os.path.isdir(path) else [path]
        inside = [file for file in inside if not file.endswith((".npy", ".txt", "expect.json")) or "merges" in file]
        file = rng.choice(inside + [tokenizer] * (tokenizer is not None and tokenizer.startswith(dir)))
        with open(file, "rb") as whole:
            kept = whole.read()
        hostile.put(file, mutated(rng, file, kept))
        status = forked(path, out, tokenizer, f"{dir}/said")
        with open(f"{dir}/said", "rb") as text:
            text = text.read()
        what = f"fuzz {seed}, run {n}, {os.path.relpath(file, dir)}"
        lines = text.decode("utf-8", "replace").split("\n")
        check(f"{what}: status", status in (0, 1, 3, 4), f"{status}: {text[-600:]}")
        check(f"{what}: printable lines", len(lines) > 1 and not lines[-1] and all(
            line.isprintable() and line.startswith("fuzz_import.py: " if sys.argv[0].endswith("fuzz_import.py") else "check")
            for line in lines[:-1]), text[-600:])
        check(f"{what}: a line that says what", status == 0 or len(lines) > 1 and len(lines[-2]) > 30, text)
        check(f"{what}: what is left", os.listdir(f"{dir}/out") == ["x.gguf"] * (status == 0), os.listdir(f"{dir}/out"))
        if status == 0:
            done = subprocess.run([DECODE, "info", out, "--format", "json"], capture_output=True, text=True)
            check(f"{what}: decode reads it", done.returncode == 0 and not json.loads(done.stdout).get("does_not_run"), done)
        for name in os.listdir(f"{dir}/out"):
            os.remove(f"{dir}/out/{name}")
        hostile.put(file, kept)
        each(status, text)

def main():
    runs, seed = (int(text) for text in (sys.argv[2:] + ["2000", "1"][len(sys.argv) - 2 :])[:2])
    ends = {}

    def count(status, text):
        ends[status] = ends.get(status, 0) + 1
        if status:
            line = text.decode("utf-8", "replace").split("\n")[-2:][0].split(": ", 2)[-1][:60]
            messages[line] = messages.get(line, 0) + 1
    messages = {}
    with tempfile.TemporaryDirectory() as dir:
        fuzz(dir, runs, seed, count)
    if os.environ.get("FUZZ_MESSAGES"):
        for line, n in sorted(messages.items(), key=lambda pair: -pair[1]):
            print(n, line)
    print(f"fuzz-import: seed {seed}, {sum(ends.values())} runs, ended with {dict(sorted(ends.items()))}; "
          f"{counts[True]} checks passed, {counts[False]} failed")
    return counts[False] > 0

if __name__ == "__main__":
    sys.exit(main())
