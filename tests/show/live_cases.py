"""live_cases.py DECODE MODEL FOLDER - for tests/show/live.js: texts, and what `decode attend --npy` has of
each, as the checksum of the triangles of its weights; and tokens of `decode generate`."""
import json
import subprocess
import sys
import zlib

decode, model, folder = sys.argv[1:]
line = "To be, or not to be"


def run(*words):
    return subprocess.run([decode, *words, "-q"], check=True, capture_output=True).stdout


def case(what, typed, words, **more):
    """What is asked for, and what attend has of it."""
    run("attend", model, *words, "--npy", f"{folder}/weights.npy", "--json", f"{folder}/attend.json")
    with open(f"{folder}/weights.npy", "rb") as file:
        data = file.read()
    with open(f"{folder}/attend.json", encoding="utf-8") as file:
        found = json.load(file)
    n, n_maps = len(found["tokens"]), len(found["layers"]) * len(found["heads"])
    begin = len(data) - 4 * n_maps * n * n
    crc = 0
    for row in range(n_maps * n):
        at = begin + 4 * row * n
        crc = zlib.crc32(data[at : at + 4 * (row % n + 1)], crc)
    cases.append({"what": what, "typed": typed, "tokens": n, "crc": crc, **more})
    return [token["id"] for token in found["tokens"]]


cases = [{"what": "no text", "typed": "", "says": "the text is empty"}]
words = open("LICENSE", encoding="utf-8").read()
ids = run("tokenize", model, "-p", words).decode().split()
for n in (1, 18, 18, 200):
    text = run("tokenize", model, "--decode", ",".join(ids[:n])).decode() if n > 1 else "T"
    case(f"{n} tokens", text, ["-p", text])
kept = case("a line", line, ["-p", line])
for temperature in (0.8, 0):
    made = run("generate", model, "-p", line, "-n", "10", "--seed", "7", "--temp", str(temperature), "--format", "json")
    all_ids = ",".join(map(str, kept + json.loads(made)["tokens"]))
    case(f"ten tokens at {temperature}", line, ["--tokens", all_ids], made=10, seed=7, temperature=temperature)
for kv in ("2", "1"):
    if kv in run("info", model).decode().split():
        case(f"{kv} K/V heads", line, ["-p", line, "--kv-heads", kv], kv=kv)
cases.append({"what": "too long a text", "typed": words, "says": "the context only"})
print("const CASES = " + json.dumps(cases).replace("<", "\\u003c") + ";")
