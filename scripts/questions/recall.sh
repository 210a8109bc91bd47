#!/usr/bin/env bash
# recall.sh - Does attention reach far back at no cost? A text whose lines end in the capital that they began with, 0 to
# 99 random letters ago: what the answer costs over its distance, with attention to it, with the line's last 16 letters alone,
# and without the head that reaches back. 2 layers of 64, 2 heads, rotary positions, 400 steps of 8 windows of 128 bytes,
# Muon. Takes 4 minutes on two cores.

. "$(dirname "$0")/common.sh"
"$here/texts.sh" recall $([ $short = no ] || echo 1500) >"$dir/recall.txt"
study recall "$dir/recall.txt" --arch decode --norm rms --ffn swiglu --no-bias --layers 2 --embd 64 --heads 2 \
    --ctx 128 --batch 8 --steps "$(steps 400)" --optimizer muon --arm rope --position rope
floor "$dir/recall.txt" 1 bigrams

# The head that looks back at the capital most, from the question mark, in the longest of the last lines.
model=$(best recall rope 1)
tail -n 300 "$dir/recall.txt" | awk '{ print length, $0 }' | sort -s -k1,1nr | sed '1q' | cut -d' ' -f2 | tr -d '\n' >"$dir/longest"
head -c -1 "$dir/longest" >"$dir/asked"
"$decode" attend "$model" -f "$dir/asked" --npy "$dir/weights.npy" --format csv -q >/dev/null
n=$(($(wc -c <"$dir/asked")))
echo
python3 - "$dir/weights.npy" $n <<'PYTHON'
import sys
import numpy as np
weights, n = np.load(sys.argv[1]), int(sys.argv[2])
for layer, head in np.ndindex(*weights.shape[:2]):
    row = weights[layer, head, n - 1]
    print(f"from the ? of a line of {n - 2} letters head {layer}.{head} gives the capital {row[0]:.3f}, most to place {row.argmax()}: {row.max():.3f}")
PYTHON
picture --panel rates "$dir/recall/study.csv"
