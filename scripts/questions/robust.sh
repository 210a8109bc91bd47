#!/usr/bin/env bash
# robust.sh TEXT - Are many heads more robust than few? A llama of 2 layers of 64 with 2 heads of 32 and with 32 heads of 2,
# 300 steps of 8 windows of 64 bytes, Muon; then shares of their heads are left out at random, 8 draws each.
# Takes 3 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
study heads "$text" --arch llama --layers 2 --embd 64 --ctx 64 --steps "$(steps 300)" --optimizer muon --heads 2,32
floor "$text" 1 bigrams
draws=$([ $short = no ] && echo 8 || echo 1)
for heads in 2 32; do
    seed=0
    for model in $(best heads heads-$heads); do
        seed=$((seed + 1))
        for share in 0 0.25 0.5 0.75; do
            for ((draw = 0; draw < draws; draw++)); do
                without=$(awk -v heads=$heads -v share=$share -v seed="$seed" -v draw="$draw" 'BEGIN {
                    srand(1000 * seed + draw)
                    for (left = 2 * heads * share; left > 0; left--) { # of the heads of both layers
                        do at = int(rand() * 2 * heads); while (at in out)
                        out[at]
                        printf "%s%d.%d", list++ ? "," : "", int(at / heads), at % heads
                    }
                }')
                "$decode" eval "$model" "$text" --range 0.9:0.92 ${without:+--without "$without"} -t 1 --format csv -q >"$dir/eval.csv"
                echo "$heads,$share,$(column bits_per_byte "$dir/eval.csv")"
                [ $share != 0 ] || break
            done
        done
    done
done >"$dir/removed"
awk -F, -v csv="$dir/lines.csv" '
    { at = $1 SUBSEP $2; n[at]++; sum[at] += $3; squares[at] += $3 * $3 }
    END {
        print "\n| heads a layer | of them left out | removals | bits/byte | ± |\n|--:|--:|--:|--:|--:|"
        print "series,x,y,low,high" >csv
        for (h = 2; h <= 32; h += 30)
            for (s = 0; s < 1; s += 0.25) {
                at = h SUBSEP s
                m = sum[at] / n[at]
                d = n[at] > 1 ? sqrt((squares[at] - n[at] * m * m) / (n[at] - 1)) : 0
                printf "| %d | %g | %d | %.3f | %.3f |\n", h, s, n[at], m, d
                printf "%d heads,%g,%s,%s,%s\n", h, s, m, m - d, m + d >csv
            }
    }' "$dir/removed"
picture --panel rates "$dir/heads/study.csv" --panel lines "$dir/lines.csv" --title "without heads drawn at random" \
    --x "share of the heads left out" --y "bits per byte"
