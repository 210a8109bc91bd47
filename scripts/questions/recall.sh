#!/usr/bin/env bash
# recall.sh - Does attention reach far back at no cost? A text whose lines end in the capital that they began with, 0 to
# 99 random letters ago: what the answer costs over its distance, with attention to it, with the line's last 16 letters alone,
# and without the head that reaches back. 2 layers of 64, 2 heads, rotary positions, 400 steps of 8 windows of 128 bytes,
# Muon. Takes 4 minutes on two cores.

. "$(dirname "$0")/common.sh"
"$here/texts.sh" recall $([ $short = no ] || echo 1500) >"$dir/recall.txt"
study recall "$dir/recall.txt" --arch decode --norm rms --ffn swiglu --no-bias --layers 2 --embd 64 --heads 2 \
    --ctx 128 --batch 8 --steps "$(steps 400)" --optimizer muon --arm rope --position rope
floor "$dir/recall.txt" 1 bigrams

# The head that looks back at the capital most, from the question mark, in the longest of the last lines.
model_1=$(best recall rope 1)
tail -n 300 "$dir/recall.txt" | awk '{ print length, $0 }' | sort -s -k1,1nr | sed '1q' | cut -d' ' -f2 | tr -d '\n' >"$dir/longest"
head -c -1 "$dir/longest" >"$dir/asked"
"$decode" attend "$model_1" -f "$dir/asked" --npy "$dir/weights.npy" --format csv -q >/dev/null
n=$(wc -c <"$dir/asked")
echo
echo "| seed 1, head | weight of the ? on the capital, $((n - 2)) letters back |"
echo "|:--|--:|"
python3 "$here/weights.py" "$dir/weights.npy" last 0:1 "$dir/back.npy" >"$dir/heads"
awk '{ printf "| %s | %s |\n", $1, $2 }' "$dir/heads"
# What the answer costs, in bits, over its distance, by seed: answers are the last letters of the text's last lines.
answers() { # SERIES MODEL LETTERS OPTIONS...: of each line, or of its last LETTERS
    tail -n "$([ $short = no ] && echo 200 || echo 3)" "$dir/recall.txt" | while read -r line; do
        printf %s "${line: -$((${#line} < $3 ? ${#line} : $3))}" >"$dir/line"
        echo "$1,$((${#line} - 2)),$("$decode" score "$2" -f "$dir/line" --format csv -t 1 -q "${@:4}" | tail -n 1 | sed 's/.*,//')"
    done
}
head=$(sort -k2 -nr "$dir/heads" | sed '1q' | cut -d' ' -f1)
for model in $(best recall rope); do
    answers "the whole line" "$model" 200
    answers "its last 16 letters" "$model" 16
done >"$dir/answers"
answers "without head $head (seed 1)" "$model_1" 200 --without "$head" >>"$dir/answers"
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
        for (b = 1; b <= 64; b *= 2) printf " %d to %d |", b, 2 * b - 1
        printf "\n|:--|"
        for (b = 1; b <= 64; b *= 2) printf "--:|"
        print ""
        for (i = 1; i <= k; i++) {
            printf "| %s |", series[i]
            for (b = 1; b <= 64; b *= 2) {
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
picture --panel lines "$dir/lines.csv" --title "what the answer costs" --x "letters between" --y "bits" --log x \
    --level "one of 12: no memory=3.585" --panel maps "$dir/back.npy" --title "seed 1,"
