#!/usr/bin/env bash
# root.sh - Why divide scores by the root of d_k? Without training: its checkpoints have random weights, whose queries and keys have
# variance 1, and heads of 4, 64 and 512 that look at 64 keys. Takes 20 seconds.

. "$(dirname "$0")/common.sh"

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
    # The variance is taken from the divided scores, because the weights of undivided ones end at e^-87.
    awk -v d=$d -v v="$variance" -v row="$row" 'BEGIN { printf "| %d | %.1f%s |\n", d, d * v, row }'
done
picture --panel lines "$dir/untrained.csv" --title "untrained, 64 keys" --x "d_k" --y "gradient through softmax" --log x
