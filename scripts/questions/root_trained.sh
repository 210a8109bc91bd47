#!/usr/bin/env bash
# root_trained.sh TEXT - What does training make of scores that are not divided by the root of d_k? With it and without, heads of
# 4, 64 and 512: a llama of 2 layers of 64, 2 heads, 150 steps of 8 windows of 64 bytes, Muon, at five rates. Takes 10 minutes
# on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
sizes=(4 64 512)
[ $short = no ] || sizes=(4 64)
model=(--arch llama --layers 2 --embd 64 --heads 2 --ctx 64 --steps "$(steps 150)" --optimizer muon)
tail -c 64 "$text" >"$dir/line"
panels=()
for d in "${sizes[@]}"; do
    study "$d" "$text" --rates 0.002,0.005,0.01,0.02,0.04 "${model[@]}" --head-dim $d --arm "$d-divided" --arm "$d-undivided" --score-scale none
    baseline "$text" 1 bigrams
    panels+=(--panel rates "$dir/$d/study.csv" --title "heads of $d, trained" --level "bigrams=$(counts "$text" 1 | cut -d' ' -f2)")
    echo
    for arm in divided undivided; do
        "$decode" attend "$(best $d $d-$arm 1)" -f "$dir/line" --format csv -q >"$dir/heads.csv"
        echo "- $arm, heads of $d, seed 1, on the last 64 bytes: gradient $(column gradient "$dir/heads.csv" | awk '{ s += $1 } END { printf "%.3f", s / NR }'), score_sd $(
            column score_sd "$dir/heads.csv" | awk '{ s += $1 } END { printf "%.2f", s / NR }')"
    done
done
picture "${panels[@]}"
