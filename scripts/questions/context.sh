#!/usr/bin/env bash
# context.sh TEXT - What do the shipped checkpoints make of more context? It measures bits per byte of the same text, where each
# token is predicted from the last 3/4 C to C tokens. Takes 40 seconds.

. "$(dirname "$0")/common.sh"
needs_text "$@"
range=$([ $short = no ] && echo 0.9:1 || echo 0.9:0.91)
echo "| context | MHA, bits/byte | llama, bits/byte |"
echo "|--:|--:|--:|"
echo "series,x,y" >"$dir/lines.csv"
for ctx in 4 16 64 256; do
    row="| $ctx"
    for model in mha llama; do
        "$decode" eval "$models/shakespeare-$model.gguf" "$text" --range $range --ctx $ctx --stride $((ctx / 4)) --format csv -q >"$dir/eval.csv"
        bits=$(column bits_per_byte "$dir/eval.csv")
        row+=$(printf ' | %.3f' "$bits")
        echo "$model,$ctx,$bits" >>"$dir/lines.csv"
    done
    echo "$row |"
done
picture --panel lines "$dir/lines.csv" --title "bits per byte over context" --x "tokens of context" --y "bits per byte" --log x
