#!/usr/bin/env bash
# dropout.sh TEXT - Does dropout help? The text is small enough to be learned by heart: 20,000 bytes, and as many to predict. The
# model is a llama of 2 layers of 64, 4 heads; its 800 steps of 8 windows of 64 bytes (Muon) read the text 20 times. Takes 5 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
head -c 40000 "$text" >"$dir/small.txt"
study arms "$dir/small.txt" --rates 0.00125,0.0025,0.005,0.01,0.02,0.04,0.08 --val-fraction 0.5 --arch llama --layers 2 --embd 64 --heads 4 --ctx 64 --steps "$(steps 800)" --optimizer muon \
    --arm none --arm dropout-0.1 --dropout 0.1 --arm dropout-0.3 --dropout 0.3 --arm attention-0.1 --attn-dropout 0.1
echo
echo "| arm | bits/byte of the half that was read |"
echo "|:--|--:|"
for arm in none dropout-0.1 dropout-0.3 attention-0.1; do
    for model in $(best arms $arm); do
        "$decode" eval "$model" "$dir/small.txt" --range 0:0.5 --format csv -q >"$dir/eval.csv" && column bits_per_byte "$dir/eval.csv"
    done | awk -v arm=$arm '{ s += $1 } END { printf "| %s | %.3f |\n", arm, s / NR }'
done
picture --panel rates "$dir/arms/study.csv" --title "20,000 bytes, read 20 times"
