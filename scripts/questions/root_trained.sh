#!/usr/bin/env bash
# root_trained.sh TEXT - What does training make of scores that are not divided by the root of d_k? It trains both, with heads of 4, 64
# and 512, without positions, with rotary ones and with ALiBi (2 layers of 64, 2 heads, 300 steps of 8 windows of 64 bytes,
# Muon). Takes 20 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
tail -c 64 "$text" >"$dir/line"
panels=()
sizes=("4 none" "4 rope" "4 alibi" "64 none" "64 rope" "64 alibi" "512 none" "512 rope")
# compare D POSITION RATES: prints a row of the table, and adds a panel to the picture.
compare() {
    local at=$1-$2-muon
    study $at "$text" --rates "$3" --arch decode --norm rms --ffn swiglu --no-bias --layers 2 --embd 64 --heads 2 --ctx 64 --steps "$(steps 300)" \
        --head-dim $1 --position $2 --optimizer muon --arm divided --arm undivided --score-scale none >"$dir/$at.md"
    echo "| $1 | $2 | $(paired $at divided undivided) |"
    panels+=(--panel rates "$dir/$at/study.csv" --title "heads of $1, positions: $2" --level "bigrams=$bigrams")
}
bigrams=$(counts "$text" 1 | cut -d' ' -f2)
echo "| d_k | positions | rate, divided | bits/byte | rate, undivided | bits/byte | undivided over divided | 95% |"
echo "|--:|:--|--:|--:|--:|--:|--:|--:|"
[ $short = no ] || sizes=("4 none")
for at in "${sizes[@]}"; do
    read -r d position <<<"$at"
    compare $d $position $([ $d = 512 ] && echo 0.001,0.0025,0.005,0.01,0.02 || echo 0.0025,0.005,0.01,0.02,0.04)
done
echo "| | bigrams, counts | | $bigrams | | | | |"
echo
echo "| seed 1, last 64 bytes | spread of the scores, divided | gradient | undivided | gradient |"
echo "|:--|--:|--:|--:|--:|"
mean() { column $1 "$dir/heads.csv" | awk -v form="$2" '{ s += $1 } END { printf form, s / NR }'; }
for at in $([ $short = no ] && echo 64-none 512-none 64-rope 512-rope || echo 4-none); do
    row="| heads of ${at/-/, positions }"
    for arm in divided undivided; do
        "$decode" attend "$(best $at-muon $arm 1)" -f "$dir/line" --format csv -q >"$dir/heads.csv"
        row+=" | $(mean score_sd %.2f) | $(mean gradient %.3f)"
    done
    echo "$row |"
done
picture "${panels[@]}"
