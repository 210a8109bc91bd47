#!/usr/bin/env bash
# recall.sh - Does attention reach far back at no cost? A text whose lines end in the capital that they began with, 0 to
# 99 random letters ago: what the answer costs over its distance, with attention to it, with the line's last 16 letters alone,
# and without each of the heads. 2 layers of 64, 2 heads, rotary positions, 400 steps of 8 windows of 128 bytes,
# Muon. Takes 4 minutes on two cores.

. "$(dirname "$0")/common.sh"
"$here/texts.sh" recall $([ $short = no ] || echo 1500) >"$dir/recall.txt"
study recall "$dir/recall.txt" --arch decode --norm rms --ffn swiglu --no-bias --layers 2 --embd 64 --heads 2 \
    --ctx 128 --batch 8 --steps "$(steps 400)" --optimizer muon --arm rope --position rope
floor "$dir/recall.txt" 1 bigrams

model_1=$(best recall rope 1)
# What the answer costs, in bits, over its distance, by seed: answers are the last letters of the text's last lines.
answers() { # SERIES MODEL LETTERS OPTIONS...: of each line, or of its last LETTERS
    tail -n "$([ $short = no ] && echo 200 || echo 3)" "$dir/recall.txt" | while read -r line; do
        printf %s "${line: -$((${#line} < $3 ? ${#line} : $3))}" >"$dir/line"
        echo "$1,$((${#line} - 2)),$("$decode" score "$2" -f "$dir/line" --format jsonl -t 1 -q "${@:4}" | sed -n '$s/.*"logprob": \([-0-9.e]*\).*/\1/p')"
    done
}
for model in $(best recall rope); do
    answers "the whole line" "$model" 200
    answers "its last 16 letters" "$model" 16
done >"$dir/answers"
for head in 0.0 0.1 1.0 1.1; do answers "seed 1 without head $head" "$model_1" 200 --without $head; done >>"$dir/answers"
awk -F, -v csv="$dir/lines.csv" '
    {
        b = 1
        while (2 * b <= $2) b *= 2
        at = $1 SUBSEP b
        n[at]++
        sum[at] -= $3 / log(2)
        squares[at] += ($3 / log(2)) ^ 2
        if (!($1 in seen)) { seen[$1]; series[++k] = $1 }
    }
    END {
        print "series,x,y,low,high" >csv
        printf "\n| bits of the answer at distance |"
        for (b = 2; b <= 64; b *= 2) printf " %s |", b " to " (b < 64 ? 2 * b - 1 : 99)
        printf "\n|:--|"
        for (b = 2; b <= 64; b *= 2) printf "--:|"
        print ""
        for (i = 1; i <= k; i++) {
            printf "| %s |", series[i]
            for (b = 2; b <= 64; b *= 2) {
                at = series[i] SUBSEP b
                if (!n[at]) { printf " |"; continue }
                m = sum[at] / n[at]
                half = n[at] > 1 ? 1.96 * sqrt((squares[at] - n[at] * m * m) / (n[at] - 1) / n[at]) : 0
                printf " %.2f |", m
                printf "%s,%d,%s,%s,%s\n", series[i], b, m, m - half, m + half >csv
            }
            print ""
        }
    }' "$dir/answers"

# Where the heads look from the question mark, in a line of some 30 letters and in the longest one.
echo
echo "| seed 1, weight of the ? on the capital, from | head 0.0 | 0.1 | 1.0 | 1.1 |"
echo "|:--|--:|--:|--:|--:|"
for letters in 30 99; do
    tail -n 300 "$dir/recall.txt" | awk -v n=$letters 'length <= n + 3 && length > most { most = length; line = $0 }
        END { printf "%s", substr(line, 1, most - 1) }' >"$dir/asked"
    "$decode" attend "$model_1" -f "$dir/asked" --npy "$dir/weights.npy" --format csv -q >/dev/null
    echo "| $(($(wc -c <"$dir/asked") - 2)) letters back | $(python3 "$here/weights.py" "$dir/weights.npy" last 0:1 | cut -d' ' -f2 | paste -sd'|' | sed 's/|/ | /g') |"
    [ $letters = 99 ] || "$decode" attend "$model_1" -f "$dir/asked" --layer 0 --npy "$dir/back.npy" --format csv -q >/dev/null
    [ $letters = 99 ] || cp "$dir/asked" "$dir/shown"
done
picture --panel lines "$dir/lines.csv" --title "what the answer costs" --x "letters between" --y "bits" --log x \
    --level "one of 12: no memory=3.585" --panel maps "$dir/back.npy" --title "seed 1," --tokens "$(cat "$dir/shown")"
