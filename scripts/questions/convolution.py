#!/usr/bin/env python3
"""convolution.py MODEL.gguf TOKENS - steep heads beside the convolution that they are.

Of the heads of layer 0 with quadratic positions, those with an alpha of 50: what `decode attend --trace`
($DECODE) has for their part of A Wo at each token from the fifth on, added, and y_i = sum over these heads of
K x_(i - delta), a one-dimensional convolution of the stream x, whose kernel has at place delta the head's
K = Wo Wv. A Markdown table of the last token's first numbers, and the largest difference. Needs gguf and NumPy.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGUFReader


def main():
    path, tokens = sys.argv[1:]
    tensors = {t.name: np.array(t.data, np.float64) for t in GGUFReader(path).tensors}
    alpha, centre = tensors["blk.0.attn_rel.weight"].T
    heads = [h for h in range(len(alpha)) if alpha[h] == 50]
    width = tensors["blk.0.attn_output.weight"].shape[1] // len(alpha)
    value = np.split(tensors["blk.0.attn_qkv.weight"], 3)[2]
    kernel = {}
    for h in heads:
        rows = slice(h * width, (h + 1) * width)
        kernel[int(centre[h])] = tensors["blk.0.attn_output.weight"][:, rows] @ value[rows]
    n, worst = len(tokens.split(",")), 0.0
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        for i in range(max(kernel), n):
            subprocess.run([os.environ.get("DECODE", "./decode"), "attend", path, "--tokens", tokens, "--trace", "0.0", "--query", str(i),
                            "--json", trace, "-q"], check=True, stdout=subprocess.DEVNULL)
            with open(trace, encoding="utf-8") as f:
                steps = {step["step"]: np.array(step["rows"]) for step in json.load(f)["trace"] if "rows" in step}
            x = steps["X = the stream"]
            theirs = steps["each head's part of A Wo"][heads].sum(0)
            ours = sum(k @ x[i - delta] for delta, k in kernel.items())
            worst = max(worst, abs(theirs - ours).max())
    print("| number of the stream | " + " | ".join(str(k) for k in range(6)) + " |\n|:--|" + "--:|" * 6)
    for name, y in (("heads " + ", ".join(f"0.{h}" for h in heads) + ", added", theirs),
                    ("kernel of places " + ", ".join(str(d) for d in kernel), ours)):
        print(f"| {name} | " + " | ".join(f"{v:.6f}" for v in y[:6]) + " |")
    print(f"\nlargest difference over {n - max(kernel)} tokens: {worst:.0e}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    main()
