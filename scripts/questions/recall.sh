#!/usr/bin/env bash
# recall.sh - Does attention reach far back at no cost? Lines of its text end in the capital that they began with, 0 to 99 random
# letters ago. It measures what the answer costs over that distance, by seed, in whole lines that no window cuts; with the
# line's last 16 letters alone; and without each of the heads. The model has 2 layers of 64, 2 heads and rotary positions (400 steps of 8 windows of
# 128 bytes, Muon). Takes 5 minutes on two cores.

. "$(dirname "$0")/common.sh"
"$here/texts.sh" recall $([ $short = no ] || echo 1500) >"$dir/recall.txt"
study recall "$dir/recall.txt" --rates 0.01,0.02,0.04,0.08,0.16 --arch decode --norm rms --ffn swiglu --no-bias --layers 2 --embd 64 --heads 2 \
    --ctx 128 --batch 8 --steps "$(steps 400)" --optimizer muon --position rope --arm full
baseline "$dir/recall.txt" 1 bigrams
echo
echo "| rate | seeds that are below bigrams by 0.15 bits |"
echo "|--:|--:|"
awk -F, -v bigrams="$(counts "$dir/recall.txt" 1 | cut -d' ' -f2)" 'NR > 1 { n[$4] += $6 < bigrams - 0.15; of[$4]++ }
    END { for (rate in n) printf "| %s | %d of %d |\n", rate, n[rate], of[rate] }' "$dir/recall/study.csv" | sort -t'|' -k2 -g
echo
models=() seed=0
for model in $(best recall full); do models+=("seed $((++seed))=$model"); done
python3 "$here/recall.py" "$dir/recall.txt" $([ $short = no ] && echo 100 || echo 1) "$dir/lines.csv" --short 16 --heads "${models[@]}"

# The picture has the whole lines and the short ones of all seeds, and the heads of seed 1.
grep -E '^series|^seed [0-9],|^seed 1 ' "$dir/lines.csv" >"$dir/drawn.csv"
tail -n 300 "$dir/recall.txt" | awk 'length <= 33 && length > most { most = length; line = $0 } END { printf "%s", substr(line, 1, most - 1) }' >"$dir/asked"
"$decode" attend "$(best recall full 1)" -f "$dir/asked" --layer 0 --npy "$dir/back.npy" --format csv -q >/dev/null
picture --panel rates "$dir/recall/study.csv" --title "400 steps" --level "bigrams=$(counts "$dir/recall.txt" 1 | cut -d' ' -f2)" --panel lines "$dir/drawn.csv" --title "what the answer costs" \
    --x "letters between" --y "bits" --log x --level "one of 12: no memory=3.585" \
    --panel maps "$dir/back.npy" --title "seed 1," --tokens "$(cat "$dir/asked")"
