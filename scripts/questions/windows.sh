#!/usr/bin/env bash
# windows.sh TEXT - Is it enough to look near, and to look far in every second layer? Windows of 4, 16 and 64 tokens on all layers
# and on every second: bits per byte of a text, a llama of 4 layers of 64, 4 heads, 300 steps of 8 windows of 128 bytes; what the
# answers of recall's text cost over their distance, with recall's model; Muon. And what a step costs at depth with and
# without a window. Takes 25 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
small=(--arch decode --norm rms --ffn swiglu --no-bias --position rope)
widths=(4 16 64) && [ $short = no ] || widths=(4)
arms=(--arm full)
for w in "${widths[@]}"; do arms+=(--arm "$w" --window "$w" --arm "$w-second" --window "$w,0,$w,0"); done
study loss "$text" "${small[@]}" --layers 4 --embd 64 --heads 4 --ctx 128 --batch 8 --steps "$(steps 300)" --optimizer muon "${arms[@]}"
baseline "$text" 1 bigrams
echo
"$here/texts.sh" recall $([ $short = no ] || echo 1500) >"$dir/recall.txt"
study recall "$dir/recall.txt" --rates 0.01,0.02,0.04,0.08 "${small[@]}" --layers 2 --embd 64 --heads 2 --ctx 128 --batch 8 --steps "$(steps 400)" \
    --optimizer muon $(printf '%s\n' "${arms[@]}" | sed 's/\(.*\),0,.*,0/\1,0/')
baseline "$dir/recall.txt" 1 bigrams
echo
models=()
for arm in full $(for w in "${widths[@]}"; do echo "$w $w-second"; done); do
    seed=0
    for model in $(best recall $arm); do models+=("$arm seed $((++seed))=$model"); done
done
python3 "$here/recall.py" "$dir/recall.txt" $([ $short = no ] && echo 50 || echo 1) "$dir/lines.csv" "${models[@]}"
grep -E '^series|seed 1' "$dir/lines.csv" >"$dir/drawn.csv"
echo
echo "| GPT-2 small, Q8_0, F16 cache: window | depth | sequences | µs a step | cache bytes read |"
echo "|:--|--:|--:|--:|--:|"
timing=(-n 16 --repeat 5) shape=gpt2,ctx=4096 depth=3840
[ $short = no ] || { timing=(-n 2 --repeat 1 --warmup 0) shape=2x64x4,vocab=256,ctx=128 depth=64; }
for window in 0 256; do
    [ -e "$dir/bench-$window.csv" ] || "$decode" bench --shape $shape,window=$window --kv-heads $([ $short = no ] && echo 12 || echo 4) --type q8_0 \
        --kv-type f16 --depth $depth --batch 1,16 "${timing[@]}" --format csv -q >"$dir/bench-$window.csv"
    paste -d ' ' <(column batch "$dir/bench-$window.csv") <(column p50_us "$dir/bench-$window.csv") <(column kv_bytes "$dir/bench-$window.csv") |
        awk -v w="$([ $window = 0 ] && echo all || echo $window)" -v d=$depth '{ printf "| %s | %d | %d | %.0f | %d |\n", w, d, $1, $2, $3 }'
done
picture --panel rates "$dir/loss/study.csv" --title "bits per byte of the text" --panel lines "$dir/drawn.csv" --title "recall: what the answer costs, seed 1" \
    --x "letters between" --y bits --log x --level "one of 12=3.585"
