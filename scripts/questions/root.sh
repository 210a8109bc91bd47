#!/usr/bin/env bash
# root.sh TEXT - Why divide scores by the root of d_k? First without training: a checkpoint of random weights, whose
# queries and keys have variance 1. Then trained with and without it, heads of 4, 64 and 512: a llama of 2 layers of 64,
# 2 heads, 150 steps of 8 windows of 64 bytes, Muon. Takes 10 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"

echo "| untrained, d_k | variance of q·k | largest weight | gradient | divided: largest weight | gradient |"
echo "|--:|--:|--:|--:|--:|--:|"
echo "series,x,y" >"$dir/untrained.csv"
for d in 4 64 512; do
    python3 "$here/untrained.py" make $d "$dir/untrained.gguf"
    row=
    for scale in none "$(awk -v d=$d 'BEGIN { printf "%.9g", 1 / sqrt(d) }')"; do
        for ((i = 0; i < 64; i += $([ $short = no ] && echo 4 || echo 32))); do # each time another token is the last
            "$decode" attend "$dir/untrained.gguf" --tokens "$(seq -s, $i 63),$(seq -s, 0 63)" --truncate right \
                --score-scale "$scale" --npy "$dir/weights-$i.npy" --format csv -q >/dev/null
        done
        read -r variance largest gradient < <(python3 "$here/untrained.py" read "$dir"/weights-*.npy)
        row+=" | $largest | $gradient"
        echo "$([ "$scale" = none ] && echo not divided || echo divided),$d,$gradient" >>"$dir/untrained.csv"
    done
    # Of the divided scores, as weights of the others end at e^-87.
    awk -v d=$d -v v="$variance" -v row="$row" 'BEGIN { printf "| %d | %.1f%s |\n", d, d * v, row }'
done

rates=--rates=0.002,0.005,0.01,0.02,0.04
[ $short = no ] || rates=--rates=0.01,0.02
model=(--arch llama --layers 2 --embd 64 --heads 2 --ctx 64 --steps "$(steps 150)" --optimizer muon)
tail -c 64 "$text" >"$dir/line"
panels=()
for d in 4 64 512; do
    echo
    study "$d" "$text" "$rates" "${model[@]}" --head-dim $d --arm "$d-divided" --arm "$d-undivided" --score-scale none
    floor "$text" 1 bigrams
    panels+=(--panel rates "$dir/$d/study.csv" --title "heads of $d, trained" --level "bigrams=$(counts "$text" 1 | cut -d' ' -f2)")
    echo
    for arm in divided undivided; do
        "$decode" attend "$(best $d $d-$arm 1)" -f "$dir/line" --format csv -q >"$dir/heads.csv"
        echo "- $arm, heads of $d, seed 1, on the last 64 bytes: gradient $(column gradient "$dir/heads.csv" | awk '{ s += $1 } END { printf "%.3f", s / NR }'), score_sd $(
            column score_sd "$dir/heads.csv" | awk '{ s += $1 } END { printf "%.2f", s / NR }')"
    done
done
picture --panel lines "$dir/untrained.csv" --title "untrained, 64 keys" --x "d_k" --y "gradient through softmax" --log x "${panels[@]}"
