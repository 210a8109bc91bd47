#!/usr/bin/env bash
# parallel.sh - Why can a decoder be trained in parallel? A window of text in one pass, as training has it, and token by
# token, as generation has it: the same loss, to the last bit of every logit, and the times. Some seconds.

. "$(dirname "$0")/common.sh"
model=$models/shakespeare-llama.gguf
n=$([ $short = no ] && echo 250 || echo 30)
ids=$("$decode" generate "$model" -n "$n" --seed 1 --temp 0.5 -p "ROMEO:" -q >"$dir/text" && "$decode" tokenize "$model" -f "$dir/text" |
    tr ' ' '\n' | head -n "$n" | paste -sd,)
score() { # IDS BLOCK: scores them five times; the least processor time of a run, in ms, is in $dir/ms
    for ((i = 0; i < 5; i++)); do
        { TIMEFORMAT=%U && time "$decode" score "$model" --tokens "$1" --block "$2" -t 1 --logits "$dir/logits.npy" --format csv -q >"$dir/score.csv"; } 2>&1
    done | sort -n | awk 'NR == 1 { print 1000 * $1 }' >"$dir/ms"
}
score 1 1
start=$(cat "$dir/ms")
echo "| tokens a pass | loss, nats a token | checksum of all logits | processor ms |"
echo "|--:|--:|:--|--:|"
echo "series,label,y" >"$dir/bars.csv"
for block in 1 8 "$n"; do
    score "$ids" "$block"
    ms=$(awk -v start="$start" '{ print $1 - start }' "$dir/ms")
    loss=$(column logprob "$dir/score.csv" | awk '$1 != "" { s -= $1; n++ } END { printf "%.6f", s / n }')
    echo "| $block | $loss | $(cksum <"$dir/logits.npy" | cut -d' ' -f1) | $ms |"
    echo "ms,$block,$ms" >>"$dir/bars.csv"
done
picture --panel bars "$dir/bars.csv" --title "$n tokens, the same logits" --x "tokens a pass" --y "processor ms, without the program's start"
