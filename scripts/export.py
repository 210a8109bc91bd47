#!/usr/bin/env python3
"""export.py - a GGUF checkpoint as a folder of Hugging Face's transformers.

AutoModelForCausalLM.from_pretrained(DIR) has the logits of MODEL, AutoTokenizer its ids. A model becomes one
of its own family; a GPT-2 with one K/V head GPTBigCodeForCausalLM, what its own family cannot say, such as a
llama with windows, one that can. Matrices keep F32, F16 or BF16; blocks (q8_0, q4_0, ...) become F32. What
cannot be said there is refused."""
import argparse
import sys

from exchange import files
from exchange.guard import run_guarded
from exchange.process import say


def main(args):
    path, out = args.MODEL, args.DIR
    files.check_new_folder(out)
    files.regular(path, "a GGUF file")
    from exchange import folder
    made = folder.of_model(path, args.expand)
    folder.write(path, out, made)
    s, config = made.shape, made.config
    say(f"{out}: {config['architectures'][0]}, {s.n_heads} heads, {s.n_kv_heads} K/V heads, {config['dtype']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("MODEL", help="a GGUF file")
    parser.add_argument("DIR", help="a folder that is new or empty")
    parser.add_argument("--expand", action="store_true", help="repeat K/V heads, one for each head")
    arguments = parser.parse_args()
    sys.exit(run_guarded(lambda: main(arguments), arguments.MODEL, arguments.DIR))
