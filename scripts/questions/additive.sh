#!/usr/bin/env bash
# additive.sh TEXT - Are additive scores, w·tanh(q + k), better than dot products, and what do they cost? It trains both, and dot products
# that are not divided, with heads of 4, 64 and 512 (2 layers of 64, 2 heads, 150 steps of 8 windows of 64 bytes, Muon). Positions
# are ALiBi, because additive scores cannot be rotated. It times a step at depth 960. Takes 12 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
panels=()
for d in $([ $short = no ] && echo 4 64 512 || echo 4 64); do
    study $d "$text" --arch decode --norm rms --ffn swiglu --no-bias --position alibi --layers 2 --embd 64 --heads 2 --head-dim $d \
        --ctx 64 --steps "$(steps 150)" --optimizer muon \
        --arm $d-divided --arm $d-undivided --score-scale none --arm $d-additive --score additive
    baseline "$text" 1 bigrams
    panels+=(--panel rates "$dir/$d/study.csv" --title "heads of $d" --level "bigrams=$(counts "$text" 1 | cut -d' ' -f2)")
    echo
done
echo "| scores | µs a step at depth 64 | at depth 960 | cache bytes at 960 |"
echo "|:--|--:|--:|--:|"
for score in dot additive; do
    "$decode" bench --shape 2x128x4,vocab=256,score=$score --kv-heads 4 --depth 64,960 -n $([ $short = no ] && echo 128 || echo 2) \
        --repeat $([ $short = no ] && echo 9 || echo 1) -t 1 --format csv -q >"$dir/bench.csv"
    echo "| $score | $(column p50_us "$dir/bench.csv" | xargs printf '%.0f | %.0f') | $(column kv_bytes "$dir/bench.csv" | tail -n 1) |"
done
picture "${panels[@]}"
