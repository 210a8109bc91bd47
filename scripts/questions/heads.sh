#!/usr/bin/env bash
# heads.sh - Why several heads, and why not more? In its text each letter follows from two places at once. It trains llamas of 1
# layer of 64 with 1 to 16 heads (400 steps of 16 windows of 50 bytes, Muon), and one head and two with 16 times the steps. It
# compares them with tables of counts that know one place or two, and the place in the line, as a model can know it; and it shows what the heads look
# at. Takes 15 minutes on two cores.

. "$(dirname "$0")/common.sh"
"$here/texts.sh" pairs $([ $short = no ] || echo 2000) >"$dir/pairs.txt"
model=(--arch decode --norm rms --ffn swiglu --no-bias --layers 1 --embd 64 --ctx 50 --batch 16 --optimizer muon)
study pairs "$dir/pairs.txt" --rates 0.005,0.01,0.02,0.04,0.08 "${model[@]}" --steps "$(steps 400)" \
    $(printf -- '--arm heads-%d --heads %d --position rope\n' 1 1 2 2 4 4 8 8 16 16)
levels=()
while IFS='|' read -r context label; do
    baseline "$dir/pairs.txt" "$context" "$label"
    levels+=(--level "${label#place and }=$(counts "$dir/pairs.txt" "$context" | cut -d' ' -f2)")
done <<'ROWS'
1|bigrams
0@5-23|the place in the line alone
2@5-23|place and two back
5@5-23|place and five back
2+5@5-23|place and both, without their order
2,5@5-23|place and both, in order
ROWS
echo
echo "| heads | rate | bits/byte | and twice as many: rate | bits/byte | over these | 95% |"
echo "|--:|--:|--:|--:|--:|--:|--:|"
for heads in 1 2 4 8; do echo "| $heads | $(paired pairs heads-$heads heads-$((2 * heads))) |"; done
echo
study long "$dir/pairs.txt" "${model[@]}" --rates 0.0025,0.005,0.01,0.02 --steps "$(steps 6400)" \
    --arm heads-1-long --heads 1 --position rope --arm heads-2-long --heads 2 --position rope
echo
echo "| 6,400 steps, rate | seeds | bits/byte of each |"
echo "|:--|--:|:--|"
awk -F, 'NR > 1 { at = $1 ", " $4; if (!(at in n)) order[++k] = at; n[at]++; bits[at] = bits[at] sprintf(" %.3f", $6) }
    END { for (i = 1; i <= k; i++) printf "| %s | %d |%s |\n", order[i], n[order[i]], bits[order[i]] }' "$dir/long/study.csv" | sort

# This table shows what one head and two look at, over the last 12 lines, in every seed, at two rates. The letters that
# the next one follows from, 2 and 5 before it, are 1 and 4 before the last one that is read.
echo
echo "| variant | rate | seed | bits/byte | head | on 1 back | on 4 back |"
echo "|--:|--:|--:|--:|--:|--:|--:|"
tail -n 2 "$dir/pairs.txt" | head -c 49 >"$dir/lines"
while read -r folder arm; do
    awk -F, -v arm=$arm '$1 == arm && ($8 == "yes" || $4 == 0.02) { print $4, $5, $6, $7 }' "$dir/$folder/study.csv" |
        while read -r rate seed bits cell; do
            for ((i = 0; i < $([ $short = no ] && echo 6 || echo 1); i++)); do
                tail -n $((2 * i + 2)) "$dir/pairs.txt" | head -c 49 >"$dir/two-lines"
                "$decode" attend "$dir/$folder/$cell.gguf" -f "$dir/two-lines" --npy "$dir/weights.npy" --format csv -q >"$dir/attend.csv"
                python3 "$here/weights.py" "$dir/weights.npy" back 1,4
            done | awk -v row="| $arm | $rate | $seed | $(printf %.3f "$bits")" '
                { n[$1]++; one[$1] += $2; four[$1] += $3 }
                END { for (h = 0; ("0." h) in n; h++) printf "%s | %d | %.2f | %.2f |\n", row, h, one["0." h] / n["0." h], four["0." h] / n["0." h] }'
        done
    "$decode" attend "$(best "$folder" $arm 1)" -f "$dir/lines" --npy "$dir/$arm.npy" --format csv -q >"$dir/attend.csv"
done <<'ROWS'
pairs heads-1
long heads-1-long
pairs heads-2
long heads-2-long
ROWS
picture --panel rates "$dir/pairs/study.csv" --title "400 steps" "${levels[@]:4}" \
    --panel rates "$dir/long/study.csv" --title "6,400 steps" "${levels[@]:4}" \
    --panel maps "$dir/heads-1.npy" --title "one:" --tokens "$(cat "$dir/lines")" \
    --panel maps "$dir/heads-1-long.npy" --title "one, long:" --tokens "$(cat "$dir/lines")" \
    --panel maps "$dir/heads-2.npy" --title "two:" --tokens "$(cat "$dir/lines")"
