#!/usr/bin/env bash
# parallel.sh - Why can a decoder be trained in parallel? A checkpoint writes a text token by token, and reads the same text in one
# pass, as training does. The script compares the log-probabilities, and the processor time of both. Takes some seconds.

. "$(dirname "$0")/common.sh"
model=$models/shakespeare-llama.gguf
n=$([ $short = no ] && echo 240 || echo 20)
time_of() { # OUT COMMAND...: its least processor time of five runs, in ms
    for ((i = 0; i < 5; i++)); do
        { TIMEFORMAT=%U && time "${@:2}" >"$1"; } 2>&1
    done | sort -n | awk 'NR == 1 { print 1000 * $1 }'
}
generate() { "$decode" generate "$model" -p "ROMEO:" -n "$1" --seed 1 --temp 1 --top-k 0 --top-p 1 --format json -t 1 -q; }
score() { "$decode" score "$model" --tokens "$1" -t 1 --format csv -q; }
start=$(time_of "$dir/one.json" generate 1)
by_token=$(time_of "$dir/text.json" generate "$n")
read -r logprob ids < <(python3 -c 'import json, sys
text = json.load(open(sys.argv[1]))
print(text["logprob"], ",".join(map(str, text["tokens"])))' "$dir/text.json")
prompt=$("$decode" tokenize "$model" -p "ROMEO:" | tr ' ' ,)
in_one=$(time_of "$dir/score.csv" score "$prompt,$ids")
echo "| its tokens | log-probability of all | processor ms, without the program's start |"
echo "|:--|--:|--:|"
echo "| one after the other | $(printf %.6f "$logprob") | $(awk -v a="$by_token" -v b="$start" 'BEGIN { printf "%d", a - b }') |"
echo "| in one pass | $(column logprob "$dir/score.csv" | tail -n "$n" | awk '{ s += $1 } END { printf "%.6f", s }') | $(
    awk -v a="$in_one" -v b="$start" 'BEGIN { printf "%d", a - b }') |"
{
    echo "series,label,y"
    awk -v a="$by_token" -v b="$in_one" -v s="$start" 'BEGIN { print "ms,one after the other," a - s "\nms,in one pass," b - s }'
} >"$dir/bars.csv"
picture --panel bars "$dir/bars.csv" --title "$n tokens, the same numbers" --y "processor ms"
