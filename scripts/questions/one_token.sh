#!/usr/bin/env bash
# one_token.sh - What does attention compute? It follows the last of four words of three numbers each through one head, and the
# last token of a sentence through a head of the shipped checkpoint. Takes a moment.

. "$(dirname "$0")/common.sh"
prompt="To be, or not to be, that is the question. It is"
"$decode" attend "$models/hello.gguf" -p "hello how are you" --trace 0.0 --json "$dir/hello.json" -q >"$dir/hello"
"$decode" attend "$models/shakespeare-mha.gguf" -p "$prompt" --trace 0.5 -q >"$dir/real"
rows() { sed -n "/^$1/,/^[^ ]/p" "$2" | sed -n 's/^  //p'; } # STEP FILE
echo "| step | hello | how | are | you |"
echo "|:--|--:|--:|--:|--:|"
echo "series,label,y" >"$dir/bars.csv"
for step in scores weights; do
    read -r _ a b c d < <(rows $step "$dir/hello" | tail -n 1)
    echo "| $step of you | $a | $b | $c | $d |"
done
for word in hello how are you; do
    echo "weight,$word,$(case $word in hello) echo "$a" ;; how) echo "$b" ;; are) echo "$c" ;; you) echo "$d" ;; esac)" >>"$dir/bars.csv"
done
echo "| their sum of the words | $(rows "their sum" "$dir/hello" | awk '{ print $2 " | " $3 " | " $4 }') | |"
echo
echo "$(sed -n 2p "$dir/real"), of head 0.5 for the last token of \"$prompt\":"
echo
paste -d '|' <(rows weights "$dir/real" | sed -n 1p | xargs -n 1) <(rows weights "$dir/real" | sed -n 2p | xargs -n 1 | sed 1d) |
    awk -F '|' 'BEGIN { print "| token | weight |\n|:--|--:|" } { print "| " $1 " | " $2 " |" }'
picture --panel bars "$dir/bars.csv" --title "what you looks at, of hello how are you" --y weight
