#!/usr/bin/env bash
# additive.sh TEXT - Are additive scores, w·tanh(q + k), better than dot products, and what do they cost? It trains both, and dot products
# that are not divided, with heads of 4, 64 and 512 (300 steps, Muon). Positions are ALiBi, because additive scores cannot be rotated. It
# times a step at depth 960. Takes a minute after root_trained.sh, which trains the same models, else 10 on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
panels=()
bigrams=$(counts "$text" 1 | cut -d' ' -f2)
echo "| d_k | scores | rate, divided | bits/byte | rate, these | bits/byte | over divided | 95% |"
echo "|--:|:--|--:|--:|--:|--:|--:|--:|"
while read -r d position optimizer steps rates; do
    at=../scores/$d-$position-$optimizer-$steps
    scores $d $position $optimizer $steps $rates
    for arm in undivided additive; do echo "| $d | $arm | $(paired $at divided $arm) |"; done
    panels+=(--panel rates "$dir/$at/study.csv" --title "heads of $d" --level "bigrams=$bigrams")
done < <(scores_of_alibi)
echo "| | bigrams, counts | | | | $bigrams | | |"
echo
echo "| scores | µs a step at depth 64 | at depth 960 | cache bytes at 960 |"
echo "|:--|--:|--:|--:|"
for score in dot additive; do
    "$decode" bench --shape 2x128x4,vocab=256,score=$score --kv-heads 4 --depth 64,960 -n $([ $short = no ] && echo 128 || echo 2) \
        --repeat $([ $short = no ] && echo 9 || echo 1) -t 1 --format csv -q >"$dir/bench.csv"
    echo "| $score | $(column p50_us "$dir/bench.csv" | xargs printf '%.0f | %.0f') | $(column kv_bytes "$dir/bench.csv" | tail -n 1) |"
done
picture "${panels[@]}"
