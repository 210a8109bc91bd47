#!/usr/bin/env bash
# prefill.sh - Does prefill gain from fewer K/V heads, too? It times GPT-2 small with 12 K/V heads and with one: a prompt of 512 tokens
# at once, and a step of 16 sequences at depth 1024. Takes a minute on two cores.

. "$(dirname "$0")/common.sh"
shape=gpt2,ctx=2048 n=() depth=1024 prompt=512
[ $short = no ] || { shape=2x64x4,vocab=256 n=(-n 2 --repeat 1) && depth=64 prompt=16; }
heads=$([ $short = no ] && echo 12,1 || echo 4,1)
"$decode" bench --shape $shape --kv-heads $heads --type q8_0 --prompt $prompt --depth $depth --batch 16 "${n[@]}" --format csv -q >"$dir/bench.csv"
python3 - "$dir/bench.csv" "$dir/bars.csv" <<'PYTHON'
import csv
import sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
first = rows[0]
with open(sys.argv[2], "w") as out:
    print("series,label,y", file=out)
    print("| variant | prefill, tokens/s | over MHA | decoding, tokens/s | over MHA |")
    print("|:--|--:|--:|--:|--:|")
    for row in rows:
        figures = [float(row[key]) for key in ("prefill_tokens_per_s", "tokens_per_s")]
        over = [x / float(first[key]) for x, key in zip(figures, ("prefill_tokens_per_s", "tokens_per_s"))]
        print(f"| {row['variant']} | {figures[0]:,.0f} | {over[0]:.2f} | {figures[1]:,.0f} | {over[1]:.2f} |")
        print(f"prefill,{row['variant']},{over[0]}\ndecoding,{row['variant']},{over[1]}", file=out)
PYTHON
picture --panel bars "$dir/bars.csv" --title "rate over that of MHA" --y "times"
