#!/bin/sh
# scale_table.sh TEXT [STEPS] - what training makes of scores that are divided by the root of d_k, and of
# such that are not, as a Markdown table: held-out bits per byte of byte models with 2 layers of 2 heads,
# and attend's `gradient` on the last 64 bytes of TEXT, the mean of the heads. STEPS are 150. DECODE is the
# program, ./decode unless set.
set -eu

text=$1
steps=${2:-150}
decode=${DECODE:-./decode}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tail -c 64 "$text" >"$dir/line"

echo "| trained as | d_k | by √d_k, bits/byte | gradient | not, bits/byte | gradient |"
echo "|:--|--:|--:|--:|--:|--:|"
for recipe in "llama --optimizer muon --lr 0.02" transformer; do
    for d in 4 64 512; do
        row="| $recipe | $d"
        for scale in "" "--score-scale none"; do
            # shellcheck disable=SC2086 # options
            "$decode" train "$text" -o "$dir/m.gguf" --force --arch $recipe $scale --layers 2 --embd 64 \
                --heads 2 --head-dim "$d" --ctx 64 --steps "$steps" --eval-every -1 --seed 1 -q
            bits=$("$decode" eval "$dir/m.gguf" "$text" --range 0.9:1 --format csv | tail -n 1 | cut -d, -f6)
            gradient=$("$decode" attend "$dir/m.gguf" -f "$dir/line" --format csv |
                awk -F, 'NR > 1 { sum += $17 } END { print sum / (NR - 1) }')
            row=$(printf '%s | %.3f | %.3f' "$row" "$bits" "$gradient")
        done
        echo "$row |"
    done
done
