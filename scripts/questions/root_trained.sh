#!/usr/bin/env bash
# root_trained.sh TEXT - What does training make of scores that are not divided by the root of d_k? It trains both, with heads of 4, 64
# and 512, without positions, with rotary ones and with ALiBi: 300 steps of Muon, 600 where the undivided do not beat bigrams in these,
# and 1,200 of AdamW. Takes 35 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
tail -c 64 "$text" >"$dir/line"
bigrams=$(counts "$text" 1 | cut -d' ' -f2)
# cells: prints the arguments of `scores`.
cells() {
    scores_of_alibi
    [ $short = no ] || return 0
    for position in none rope; do
        echo 4 $position muon 300 0.0025,0.005,0.01,0.02,0.04
        echo 64 $position muon 300 0.0025,0.005,0.01,0.02,0.04
        echo 512 $position muon 300 0.001,0.0025,0.005,0.01,0.02
    done
    echo 512 none muon 600 0.0005,0.001,0.0025,0.005,0.01
    for position in none rope alibi; do
        echo 4 $position adamw 1200 0.001,0.0025,0.005,0.01,0.02,0.04
        echo 64 $position adamw 1200 0.0005,0.001,0.0025,0.005
        echo 512 $position adamw 1200 0.00025,0.0005,0.001,0.0025,0.005
    done
}
echo "| d_k | positions | optimizer | steps | rate, divided | bits/byte | rate, undivided | bits/byte | undivided over divided | 95% |"
echo "|--:|:--|:--|--:|--:|--:|--:|--:|--:|--:|"
cells | while read -r d position optimizer steps rates; do
    scores $d $position $optimizer $steps $rates
    echo "| $d | $position | $optimizer | $steps | $(paired ../scores/$d-$position-$optimizer-$steps divided undivided) |"
done | tee "$dir/rows"
echo "| | bigrams, counts | | | | $bigrams | | | | |"
echo
echo "| seed 1, last 64 bytes | spread of the scores, divided | gradient | undivided | gradient |"
echo "|:--|--:|--:|--:|--:|"
mean() { column $1 "$dir/heads.csv" | awk -v form="$2" '{ s += $1 } END { printf form, s / NR }'; }
for at in $([ $short = no ] && echo {64,512}-{none,rope}-{muon-300,adamw-1200} || echo 4-alibi-muon-300); do
    IFS=- read -r d position optimizer steps <<<"$at"
    row="| heads of $d, positions $position, $optimizer"
    for arm in divided undivided; do
        "$decode" attend "$(best ../scores/$at $arm 1)" -f "$dir/line" --format csv -q >"$dir/heads.csv"
        row+=" | $(mean score_sd %.2f) | $(mean gradient %.3f)"
    done
    echo "$row |"
done
panels=()
for optimizer in $(cells | cut -d' ' -f3 | uniq); do
    echo "series,label,y,low,high" >"$dir/bars-$optimizer.csv"
    for position in none rope alibi; do
        awk -F' *[|] *' -v optimizer=$optimizer -v position=$position '
            $3 == position && $4 == optimizer && $5 != 600 { print $3 "," $2 "," $10 "," $10 - $11 "," $10 + $11 }' "$dir/rows"
    done >>"$dir/bars-$optimizer.csv"
    panels+=(--panel bars "$dir/bars-$optimizer.csv" --title "$optimizer" --x "d_k" --y "bits per byte, undivided over divided")
done
for at in $([ $short = no ] && echo {64,512}-rope-{muon-300,adamw-1200}); do
    IFS=- read -r d position optimizer steps <<<"$at"
    panels+=(--panel rates "$dir/../scores/$at/study.csv" --title "$optimizer, heads of $d, rotary positions" --level "bigrams=$bigrams")
done
picture "${panels[@]}"
