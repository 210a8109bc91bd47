#!/usr/bin/env bash
# layers.sh TEXT - Do lower layers look near and higher ones far? It measures how far the heads of each layer of the two shipped
# checkpoints look in the mean, over windows of 256 tokens of the text's last tenth. Takes 20 seconds.

. "$(dirname "$0")/common.sh"
needs_text "$@"
windows=$([ $short = no ] && echo 20 || echo 2)
tail -c $(($(wc -c <"$text") / 10)) "$text" >"$dir/held-out"
: >"$dir/distances"
for model in mha llama; do
    for ((i = 0; i < windows; i++)); do
        range=$(awk -v i=$i -v n=$windows 'BEGIN { printf "%.4f:1", i / n * 0.95 }')
        "$decode" attend "$models/shakespeare-$model.gguf" -f "$dir/held-out" --range "$range" --truncate right --format csv -q >"$dir/attend.csv"
        paste -d, <(column layer "$dir/attend.csv") <(column head "$dir/attend.csv") <(column distance "$dir/attend.csv") |
            sed "s/^/$model,$i,/" >>"$dir/distances"
    done
done
awk -F, -v csv="$dir/bars.csv" '
    {
        at = $1 SUBSEP $3
        if (!(at in n)) order[++rows] = at
        n[at]++
        sum[at] += $5
        window[at, $2] += $5
        windows[$1, $2]
        each[at, $4] += $5
        if ($4 > heads[at]) heads[at] = $4
    }
    END {
        print "| checkpoint | layer | mean distance, tokens | 95% | nearest head | farthest head |"
        print "|:--|--:|--:|--:|--:|--:|"
        print "series,label,y,low,high" >csv
        for (r = 1; r <= rows; r++) {
            split(order[r], part, SUBSEP)
            m = sum[order[r]] / n[order[r]]
            k = squares = 0
            for (w in windows) {
                split(w, of, SUBSEP)
                if (of[1] != part[1]) continue
                x = window[order[r], of[2]] / (heads[order[r]] + 1)
                squares += (x - m) ^ 2
                k++
            }
            half = 2.09 * sqrt(squares / (k - 1) / k) # Student t of 20 windows
            low = 1e9
            high = 0
            for (h = 0; h <= heads[order[r]]; h++) {
                x = each[order[r], h] / k
                if (x < low) low = x
                if (x > high) high = x
            }
            printf "| %s | %d | %.1f | %.1f | %.1f | %.1f |\n", part[1], part[2], m, half, low, high
            printf "%s,layer %d,%s,%s,%s\n", part[1], part[2], m, m - half, m + half >csv
        }
    }' "$dir/distances"
picture --panel bars "$dir/bars.csv" --title "how far back the heads of a layer look" --y "mean distance, tokens"
