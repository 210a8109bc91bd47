#!/usr/bin/env bash
# windows.sh TEXT - Is it enough to look near, and to look far in every second layer? Windows have 4, 16 and 64 tokens, in all layers
# or in the first of every two. It trains a llama of 4 layers of 64, 4 heads, on the text (300 steps of 8 windows of 128 bytes, Muon), and
# recall.sh's model on its text, and measures what answers cost over their distance. It times a step at depth with and without a window.
# Takes 25 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
small=(--arch decode --norm rms --ffn swiglu --no-bias --position rope)
widths=(4 16 64) && [ $short = no ] || widths=(4)
arms=(--arm full)
for w in "${widths[@]}"; do arms+=(--arm "$w" --window "$w" --arm "$w-second" --window "$w,0,$w,0"); done
llama=("${small[@]}" --layers 4 --embd 64 --heads 4 --ctx 128 --batch 8 --steps "$(steps 300)" --optimizer muon)

# Seed 1 decides about each arm's rate, which three seeds then have; the arm's name there has it.
study rates "$text" --seeds 1 "${llama[@]}" "${arms[@]}"
echo
at_best=()
for ((i = 0; i < ${#arms[@]}; i++)); do
    case ${arms[i - 1]} in
    --arm) rate=$(awk -F, -v arm="${arms[i]}" '$1 == arm && $8 == "yes" { print $4 }' "$dir/rates/study.csv") && at_best+=("${arms[i]}/$rate" --lr "$rate") ;;
    *) at_best+=("${arms[i]}") ;;
    esac
done
study loss "$text" --rates "" "${llama[@]}" "${at_best[@]}"
baseline "$text" 1 bigrams
echo
"$here/texts.sh" recall $([ $short = no ] || echo 1500) >"$dir/recall.txt"
study ../recall/recall "$dir/recall.txt" --rates 0.01,0.02,0.04,0.08 "${small[@]}" --layers 2 --embd 64 --heads 2 --ctx 128 --batch 8 --steps "$(steps 400)" \
    --optimizer muon $(printf '%s\n' "${arms[@]}" | sed 's/\(.*\),0,.*,0/\1,0/')
baseline "$dir/recall.txt" 1 bigrams
echo
models=()
for arm in full $(for w in "${widths[@]}"; do echo "$w $w-second"; done); do
    seed=0
    for model in $(best ../recall/recall $arm); do models+=("$arm seed $((++seed))=$model"); done
done
python3 "$here/recall.py" "$dir/recall.txt" $([ $short = no ] && echo 50 || echo 1) "$dir/lines.csv" "${models[@]}"
grep -E '^series|seed 1' "$dir/lines.csv" >"$dir/drawn.csv"
echo
echo "| GPT-2 small, Q8_0, F16 cache: window | depth | sequences | µs a step | 10% to 90% | cache bytes read |"
echo "|:--|--:|--:|--:|--:|--:|"
timing=(-n 16 --repeat 3 --prompt 0) shape=gpt2,ctx=4096 depth=3840
[ $short = no ] || { timing=(-n 2 --repeat 1 --warmup 0) shape=2x64x4,vocab=256,ctx=128 depth=64; }
for window in 0 256; do
    [ -e "$dir/bench-$window.csv" ] || "$decode" bench --shape $shape,window=$window --kv-heads $([ $short = no ] && echo 12 || echo 4) --type q8_0 \
        --kv-type f16 --depth $depth --batch 1,16 "${timing[@]}" --format csv -q >"$dir/bench-$window.csv"
    for cell in batch p50_us p10_us p90_us kv_bytes; do column $cell "$dir/bench-$window.csv" >"$dir/$cell"; done
    paste -d ' ' "$dir"/{batch,p50_us,p10_us,p90_us,kv_bytes} |
        awk -v w="$([ $window = 0 ] && echo all || echo $window)" -v d=$depth '{ printf "| %s | %d | %d | %.0f | %.0f to %.0f | %d |\n", w, d, $1, $2, $3, $4, $5 }'
done
picture --panel rates "$dir/rates/study.csv" --title "bits per byte of the text, seed 1" --panel lines "$dir/drawn.csv" --title "recall: what the answer costs, seed 1" \
    --x "letters between" --y bits --log x --level "one of 12=3.585"
