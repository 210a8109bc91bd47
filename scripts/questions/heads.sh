#!/usr/bin/env bash
# heads.sh - Why several heads, and why not more? A text where each letter follows from two places at once, and models
# of 1 to 16 heads of the same width: a llama of 1 layer of 64, 400 steps of 16 windows of 50 bytes, Muon. Beside
# them what tables of counts know from one place and from two, and what the heads look at. Takes 3 minutes on two cores.

. "$(dirname "$0")/common.sh"
"$here/texts.sh" pairs $([ $short = no ] || echo 2000) >"$dir/pairs.txt"
study pairs "$dir/pairs.txt" --arch llama --layers 1 --embd 64 --ctx 50 --batch 16 --steps "$(steps 400)" --optimizer muon \
    --heads 1,2,4,8,16
levels=()
while IFS='|' read -r context label; do
    floor "$dir/pairs.txt" "$context" "$label"
    levels+=(--level "$label=$(counts "$dir/pairs.txt" "$context" | cut -d' ' -f2)")
done <<'ROWS'
1|bigrams: the letter before
5|counts: five back alone
2|counts: two back alone
2+5|counts: both, without their order
2,5|counts: both, in order
ROWS

# What the heads of one and of two look at, over the last two lines, in every seed.
tail -n 2 "$dir/pairs.txt" | head -c 49 >"$dir/lines"
echo
echo "| heads | seed | head | looks | share of its weight | entropy, nats | largest weight |"
echo "|--:|--:|--:|:--|--:|--:|--:|"
for heads in 1 2; do
    seed=0
    for model in $(best pairs heads-$heads); do
        seed=$((seed + 1))
        "$decode" attend "$model" -f "$dir/lines" --npy "$dir/heads-$heads-seed$seed.npy" --format csv -q >"$dir/attend.csv"
        for field in head role role_share entropy max_weight; do column $field "$dir/attend.csv" >"$dir/$field"; done
        paste -d '|' "$dir"/{head,role,role_share,entropy,max_weight} | awk -F '|' -v heads=$heads -v seed=$seed '{
            sub(/^offset [0-9]*$/, "& back", $2); sub(/^offset /, "", $2)
            printf "| %d | %d | %d | %s | %.2f | %.3f | %.2f |\n", heads, seed, $1, $2, $3, $4, $5 }'
    done
done
picture --panel rates "$dir/pairs/study.csv" "${levels[@]:2}" \
    --panel maps "$dir/heads-1-seed1.npy" --title "one:" --tokens "$(cat "$dir/lines")" \
    --panel maps "$dir/heads-2-seed1.npy" --title "two:" --tokens "$(cat "$dir/lines")"
