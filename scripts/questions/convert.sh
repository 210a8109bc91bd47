#!/usr/bin/env bash
# convert.sh TEXT - What do fewer K/V heads cost without training? The shipped MHA checkpoint is converted to 4, 2 and 1 K/V heads by
# each method, calibrated on the text without its last tenth, and measured on that tenth. Takes 3 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
ln -sf "$mha" "$dir/mha.gguf"
before=$(bits "$dir/mha.gguf")
printf 'as trained: %.4f bits/byte\n\n' "$before"
echo "| K/V heads | first | mean | random | procrustes | fit, weights alone | fit, with text |"
echo "|--:|--:|--:|--:|--:|--:|--:|"
echo "series,label,y" >"$dir/bars.csv"
for heads in "${few[@]}"; do
    row="| $heads"
    while IFS='|' read -r label method calib; do
        converted "$dir/out.gguf" $calib --kv-heads $heads --method $method --seed 1
        lost=$(awk -v a="$(bits "$dir/out.gguf")" -v b="$before" 'BEGIN { printf "%+.4f", a - b }')
        row+=" | $lost"
        echo "$label,$heads,$lost" >>"$dir/bars.csv"
    done <<'ROWS'
first|first|none
mean|mean|none
random|random|none
procrustes|procrustes|none
fit weights alone|fit|none
fit with text|fit|text
ROWS
    echo "$row |"
done
picture --panel bars "$dir/bars.csv" --title "bits per byte lost" --x "K/V heads of 8" --y "bits per byte over MHA"
