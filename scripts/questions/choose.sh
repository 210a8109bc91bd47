#!/usr/bin/env bash
# choose.sh TEXT - Which number of K/V heads should I take? It measures what fewer K/V heads of the shipped MHA checkpoint cost on the
# text's last tenth, calibrated on the rest, and how fast a step of 16 sequences is at depth 255. For 16 and for 64 sequences it shows the bytes
# that a step reads, their bandwidth, and the gain that bytes alone and bench's prediction promise. Takes 4 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
size=() && [ $short = no ] || size=(-n 2 --repeat 1 --warmup 0 --calib-tokens 1024 --kv-heads 8,1)
"$decode" bench "$models/shakespeare-mha.gguf" --text "$text" --depth $([ $short = no ] && echo 255 || echo 16) --batch 16 "${size[@]}" --format csv -q >"$dir/bench.csv"
python3 - "$dir/bench.csv" "$dir/lines.csv" <<'PYTHON'
import csv
import sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
key = next(k for k in rows[0] if k.startswith("bits_per_byte"))
first = rows[0]
with open(sys.argv[2], "w") as out:
    print("series,x,y", file=out)
    print("| variant | bits/byte | over MHA | tokens/s | over MHA |")
    print("|:--|--:|--:|--:|--:|")
    for row in rows:
        bits, rate = float(row[key]), float(row["tokens_per_s"])
        print(f"| {row['variant']} | {bits:.4f} | {bits - float(first[key]):+.4f} | {rate:,.0f} | {rate / float(first['tokens_per_s']):.2f} |")
        print(f"{row['variant']},{rate},{bits}", file=out)
PYTHON
timing=() && [ $short = no ] || timing=(-n 2 --repeat 1 --warmup 0)
"$decode" bench "$models/shakespeare-mha.gguf" --kv-heads all --depth $([ $short = no ] && echo 255 || echo 16) --batch 16,64 "${timing[@]}" --format csv -q >"$dir/bytes.csv"
python3 - "$dir/bytes.csv" <<'PYTHON'
import csv
import sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
first = {row["batch"]: row for row in rows if row["variant"] == "MHA"}


def read(row):
    """Bytes that a step reads: the weights once, the cache of each sequence."""
    return int(row["weight_bytes"]) + int(row["batch"]) * int(row["kv_bytes"])


print("\n| sequences | variant | cache, MB | bandwidth measured at that size, GB/s | over MHA | bytes alone | predicted |")
print("|--:|:--|--:|--:|--:|--:|--:|")
for row in rows:
    mha = first[row["batch"]]
    print(f"| {row['batch']} | {row['variant']} | {int(row['batch']) * int(row['kv_bytes']) / 1e6:.1f} | {float(row['bandwidth_gb_per_s']):.0f} | "
          f"{float(mha['p50_us']) / float(row['p50_us']):.2f} | {read(mha) / read(row):.2f} | {float(row['predicted_speedup']):.2f} |")
PYTHON
picture --panel lines "$dir/lines.csv" --title "16 sequences at depth 255" --x "tokens a second" --y "bits per byte"
