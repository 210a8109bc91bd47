#!/usr/bin/env python3
"""import.py - writes a checkpoint of another program as GGUF. IN is a folder of Hugging Face's transformers (BLOOM,
Falcon, Gemma 1 and 3, GPT-2, GPT-BigCode, GPT-Neo, GPT-NeoX, Llama, Mistral, MPT, OLMo, OPT, Phi, Qwen 2 and 3,
StableLM), a .bin of llama2.c or llm.c, nanoGPT's ckpt.pt, or a folder with nanoGPT's model_args as config.json. A model
that computes what decode does not is refused by name."""
import argparse
import os
import sys

from exchange import files
from exchange.guard import run_guarded
from exchange.process import say


def vocabulary_of(path, found, asked):
    """Returns the vocabulary that is named, or that stands where the checkpoint keeps it. None: there is none, or none
    is wanted."""
    from exchange import vocabulary
    if asked == "none":
        return None
    made = vocabulary.read(asked or found.beside) if asked or os.path.lexists(found.beside) else None
    if not made:
        say(f"{path}: there is no vocabulary: tokens come without text; --tokenizer FILE names one")
    return made


def main(args):
    path, out = args.IN, args.OUT
    files.check_new_file(out, b"GGUF")
    from exchange import checkpoint, output, vocabulary
    found = checkpoint.read(path, args.ctx)
    s, tensors = found.shape, found.tensors
    if "position_embd.weight" in tensors:
        tensors["position_embd.weight"] = tensors["position_embd.weight"][: s.n_ctx]
    keys = {f"{s.gguf_arch}.{key}": value for key, value in s.keys.items()} | {
        "general.name": os.path.basename(os.path.abspath(path)).encode(errors="replace").decode()[:127]}
    v = vocabulary_of(path, found, args.tokenizer)
    if v:
        keys |= vocabulary.keys_of(path, v, s.n_vocab, found.ends)
        if os.path.isfile(path) and s.is_llama:  # llama2.c begins every text with BOS
            keys["tokenizer.ggml.add_bos_token"] = v.keys.get("bos_token_id") is not None
    output.write(path, out, s.gguf_arch, keys, tensors, args.type and output.T[args.type.upper()], v,
                 args.force)
    say(f"{out}: {s.gguf_arch}, {s.n_layers} layers of {s.n_embd}, {s.n_heads} heads, {s.n_kv_heads} K/V "
        f"heads, context {s.n_ctx}, {s.n_vocab} tokens, {os.path.getsize(out)} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("IN")
    parser.add_argument("OUT", metavar="OUT.gguf")
    parser.add_argument("--type", choices=("f32", "f16", "bf16"), help="of matrices")
    parser.add_argument("--ctx", type=int, metavar="C", help="context in tokens")
    parser.add_argument("--tokenizer", metavar="FILE",
                        help="tokenizer.json, tokenizer.model, meta.pkl, a folder; none: tokens without text")
    parser.add_argument("--force", action="store_true", help="weights that are infinite or none (NaN), too")
    arguments = parser.parse_args()
    sys.exit(run_guarded(lambda: main(arguments), arguments.IN, arguments.OUT))
