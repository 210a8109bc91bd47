#!/bin/sh
# scale_table.sh [--additive] TEXT [STEPS] - what training makes of scores that are divided by the root of
# d_k, and of such that are not, as a Markdown table: held-out bits per byte of byte models with 2 layers of
# 2 heads, and attend's `gradient` on the last 64 bytes of TEXT, the mean of the heads. With --additive: of
# both and of additive scores, w·tanh(q + k), which rotary positions have not: all three with learned ones;
# the mean of three seeds and its deviation. STEPS are 150. DECODE is the program, ./decode unless set.
set -eu

additive=
[ "$1" != --additive ] || { additive=1 && shift; }
text=$1
steps=${2:-150}
decode=${DECODE:-./decode}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tail -c 64 "$text" >"$dir/line"

# bits SEED D OPTIONS...: bits per byte of a model with heads of D, which is $dir/m.gguf.
bits() {
    b_seed=$1 b_dim=$2
    shift 2
    "$decode" train "$text" -o "$dir/m.gguf" --force "$@" --layers 2 --embd 64 --heads 2 --head-dim "$b_dim" \
        --ctx 64 --steps "$steps" --eval-every -1 --seed "$b_seed" -q
    "$decode" eval "$dir/m.gguf" "$text" --range 0.9:1 --format csv | tail -n 1 | cut -d, -f9
}

if [ "$additive" ]; then
    echo "| d_k | by √d_k, bits/byte | additive | not divided |"
    echo "|--:|--:|--:|--:|"
    for d in 4 64 512; do
        row="| $d"
        for scores in "--score dot" "--score additive" "--score-scale none"; do
            # shellcheck disable=SC2086 # options
            row="$row | $(for seed in 1 2 3; do
                bits $seed "$d" --arch decode --norm rms --ffn swiglu --no-bias --optimizer muon --lr 0.02 $scores
            done | awk '{ sum += $1; squares += $1 * $1 }
                END { printf "%.3f ± %.3f", sum / NR, sqrt((squares - sum * sum / NR) / (NR - 1)) }')"
        done
        echo "$row |"
    done
    exit
fi
echo "| trained as | d_k | by √d_k, bits/byte | gradient | not, bits/byte | gradient |"
echo "|:--|--:|--:|--:|--:|--:|"
for recipe in "llama --optimizer muon --lr 0.02" transformer; do
    for d in 4 64 512; do
        row="| $recipe | $d"
        for scale in "" "--score-scale none"; do
            # shellcheck disable=SC2086 # options
            bits=$(bits 1 "$d" --arch $recipe $scale)
            gradient=$("$decode" attend "$dir/m.gguf" -f "$dir/line" --format csv |
                awk -F, 'NR > 1 { sum += $17 } END { print sum / (NR - 1) }')
            row=$(printf '%s | %.3f | %.3f' "$row" "$bits" "$gradient")
        done
        echo "$row |"
    done
done
