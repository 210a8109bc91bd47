#!/usr/bin/env bash
# padding.sh - What does padding do? It puts three pad tokens (id 0) in front of a text, and three behind it, as a batch has them whose
# rows must be of one length. A forward pass of padding.py also masks those in front, and counts positions from the text. And it runs three
# texts at once without any padding. Takes a moment.

. "$(dirname "$0")/common.sh"
model=$models/shakespeare-mha.gguf
text=396,304,44,32,270 # To be, or
scored() { # IDS: log-probability of the fifth token of the text
    "$decode" score "$model" --tokens "$1" --format csv -q >"$dir/score.csv"
    paste -d ' ' <(column id "$dir/score.csv") <(column logprob "$dir/score.csv") | awk '$1 == 270 { printf "%.4f", $2 }'
}
echo "| tokens | log p(' or') |"
echo "|:--|--:|"
echo "series,label,y" >"$dir/bars.csv"
while read -r label ids; do
    p=$(scored "$ids")
    echo "| ${label//_/ } | $p |"
    echo "log p(' or'),${label//_/ },$p" >>"$dir/bars.csv"
done <<ROWS
alone $text
pads_behind $text,0,0,0
pads_in_front 0,0,0,$text
ROWS
echo
echo "| in NumPy: pads | log p(' or') |"
echo "|:--|--:|"
python3 "$here/padding.py" "$model" $text 3 | tee "$dir/rows"
sed -n "s/^| \(in front, .*\) | \(.*\) |/log p(' or'),\"\1\",\2/p" "$dir/rows" >>"$dir/bars.csv"
echo
"$decode" attend "$model" --tokens "0,0,0,$text" --npy "$dir/weights.npy" --format csv -q >"$dir/attend.csv"
python3 "$here/weights.py" "$dir/weights.npy" keys 0:3 "$dir/first.npy" | sort -k2 -nr | head -n 1 |
    while read -r head share; do echo "pads in front: head $head gives them $share of the text's weight" | tee "$dir/head"; done
echo
printf 'ROMEO:\nThe king\nTo be, or not to be\n' >"$dir/prompts"
echo "| sequences a step | checksum of three continuations of 40 tokens |"
echo "|--:|:--|"
for batch in 1 3; do
    echo "| $batch | $("$decode" generate "$model" --prompts "$dir/prompts" --batch $batch -n 40 --seed 7 -q | cksum | cut -d' ' -f1) |"
done
picture --panel bars "$dir/bars.csv" --title "the same token after the same text" --y "log p(' or')" --panel maps "$dir/first.npy" --title "three pads in front, $(grep -o 'head [0-9.]*' "$dir/head")"
