#!/usr/bin/env bash
# mask.sh - Can later tokens change earlier ones, and is the graph of attention directed? It compares the logits of a text alone and
# with more behind it, and shows which tokens each head looks at. Takes a moment.

. "$(dirname "$0")/common.sh"
first="To be, or not"
whole="$first to be, that is the question."
echo "| text | tokens | logits of the first 6 tokens |"
echo "|:--|--:|:--|"
for prompt in "$first" "$whole"; do
    "$decode" score "$models/shakespeare-mha.gguf" -p "$prompt" --logits "$dir/logits.npy" --format csv -q >"$dir/score.csv"
    # The file has six rows of 512 numbers of 4 bytes behind a header of 128.
    echo "| $prompt | $(column id "$dir/score.csv" | wc -l) | checksum $(tail -c +129 "$dir/logits.npy" | head -c 12288 | cksum | cut -d' ' -f1) |"
done
"$decode" attend "$models/shakespeare-mha.gguf" -p "$whole" --layer 0 --head 0,5 --npy "$dir/weights.npy" --format csv -q >/dev/null
picture --panel maps "$dir/weights.npy" --title "head 0.0;head 0.5"
