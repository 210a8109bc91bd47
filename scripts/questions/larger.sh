#!/usr/bin/env bash
# larger.sh - Do larger models suffer less, and why is GQA worth more there? For T5 large and T5 XXL at 512 tokens, 32 sequences,
# BF16, it computes the cache of the decoder's own tokens over the weights of the decoder, without its cross-attention and with it; and
# what each of 8 machines holds when heads are cut among them. Takes a moment.

. "$(dirname "$0")/common.sh"
"$decode" info --shape t5-large --shape t5-xxl --depth 512 --batch 32 --type bf16 --kv-type f16 --shards 8 --format csv >"$dir/info.csv"
head -n 1 "$dir/info.csv" >"$dir/columns"
python3 - "$dir/info.csv" "$dir/bars.csv" <<'PYTHON'
import csv
import sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
with open(sys.argv[2], "w") as out:
    print("series,label,y", file=out)
    print("| shape | variant | cache, MiB | cache over weights | with cross-attention's weights | cache of each of 8 machines, bytes |")
    print("|:--|:--|--:|--:|--:|--:|")
    for row in rows:
        layers, width, heads = (24, 1024, 16) if row["shape"] == "t5-large" else (24, 4096, 64)
        cross = layers * 2 * width * width * (1 + int(row["n_kv_heads"]) / heads)  # Wq, Wo; Wk, Wv of the K/V heads
        print(f"| {row['shape']} | {row['variant']} | {int(row['cache_bytes']) / 2**20:,.0f} | {float(row['cache_over_weights']):.3f} | "
              f"{int(row['cache_bytes']) / (int(row['weight_bytes']) + 2 * cross):.3f} | "
              f"{int(row['shard_cache_bytes']):,} |")
    for row in sorted(rows, key=lambda row: row["shape"], reverse=True): # the one with more variants names them
        print(f"{row['shape']},{row['variant']},{row['cache_over_weights']}", file=out)
PYTHON
picture --panel bars "$dir/bars.csv" --title "cache over weights of the decoder, 32 x 512 tokens" --y "times"
