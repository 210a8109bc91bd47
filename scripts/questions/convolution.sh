#!/usr/bin/env bash
# convolution.sh - Is attention a convolution? It compares heads with quadratic positions, set by hand to read one place each, with the
# convolution that has their kernel. Then it trains such heads on the text of heads.sh, where a letter follows from those 2 and 5
# before it, which are 1 and 4 back from the last one that is read, beside its model of two heads: 1 layer of 64, 400 steps of 16
# windows of 50 bytes, Muon. Takes 2 minutes on two cores.

. "$(dirname "$0")/common.sh"
echo "| set by hand: head | alpha | delta | looks | share of its weight |"
echo "|:--|--:|--:|:--|--:|"
figures() { # of attend.csv, behind PREFIX
    for field in layer head alpha delta role role_share; do column $field "$dir/attend.csv" >"$dir/$field"; done
    paste -d '|' "$dir"/{layer,head,alpha,delta,role,role_share} | awk -F '|' -v prefix="$1" \
        '{ printf "| %s%d.%d | %.2f | %.2f | %s | %.2f |\n", prefix, $1, $2, $3, $4, $5, $6 }'
}
set_tokens=6,6,11,7,5,11,2,10,12,5,11,4,14,6,15,2,4,10,10,1
"$decode" attend "$root/tests/data/golden/convolution.gguf" --tokens $set_tokens \
    --npy "$dir/set.npy" --format csv -q >"$dir/attend.csv"
figures ''
echo
python3 "$here/convolution.py" "$root/tests/data/golden/convolution.gguf" $set_tokens
echo
"$here/texts.sh" pairs $([ $short = no ] || echo 2000) >"$dir/pairs.txt"
study ../heads/pairs "$dir/pairs.txt" --arch decode --norm rms --ffn swiglu --no-bias --layers 1 --embd 64 --ctx 50 --batch 16 \
    --steps "$(steps 400)" --optimizer muon --arm quadratic --heads 2 --position quadratic --arm heads-2 --heads 2 --position rope
baseline "$dir/pairs.txt" 2+5@5-23 "place and both, without their order"
baseline "$dir/pairs.txt" 2,5@5-23 "place and both, in order"
tail -n 2 "$dir/pairs.txt" | head -c 49 >"$dir/lines"
echo
echo "| trained: seed, head | alpha | delta | looks | share of its weight |"
echo "|:--|--:|--:|:--|--:|"
seed=0
for model in $(best ../heads/pairs quadratic); do
    seed=$((seed + 1))
    "$decode" attend "$model" -f "$dir/lines" --npy "$dir/learned-$seed.npy" --format csv -q >"$dir/attend.csv"
    figures "seed $seed, "
done
picture --panel rates "$dir/../heads/pairs/study.csv" --panel maps "$dir/learned-1.npy" --title "seed 1," --tokens "$(cat "$dir/lines")"
