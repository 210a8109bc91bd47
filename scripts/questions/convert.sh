#!/usr/bin/env bash
# convert.sh TEXT - What do fewer K/V heads cost without training? The shipped MHA checkpoint with 4, 2 and 1 K/V heads by
# each method, on the text's last tenth; calibration reads the rest. 3 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
model=$models/shakespeare-mha.gguf
tokens=$([ $short = no ] && echo 65536 || echo 256)
fewer=$([ $short = no ] && echo 4 2 1 || echo 1)
range=$([ $short = no ] && echo 0.9:1 || echo 0.9:0.91)
bits() { # MODEL: of the held-out text
    "$decode" eval "$1" "$text" --range $range --format csv -q >"$dir/eval.csv"
    column bits_per_byte "$dir/eval.csv"
}
before=$(bits "$model")
printf 'as trained: %.4f bits/byte\n\n' "$before"
echo "| K/V heads | first | mean | random | procrustes | fit, weights alone | fit, with text |"
echo "|--:|--:|--:|--:|--:|--:|--:|"
echo "series,label,y" >"$dir/bars.csv"
for heads in $fewer; do
    row="| $heads"
    while IFS='|' read -r label method calib; do
        options=(--method "$method" --calib "$calib")
        [ "$calib" != text ] || options=(--method "$method" --calib "$text" --range 0:0.9 --calib-tokens $tokens)
        "$decode" convert "$model" -o "$dir/out.gguf" --force --kv-heads $heads --seed 1 "${options[@]}" -q >/dev/null
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
