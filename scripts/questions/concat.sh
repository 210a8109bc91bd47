#!/usr/bin/env bash
# concat.sh - Are the results of heads put side by side, or added? The model is models/hello-2-heads.gguf: four words of four numbers,
# and two heads of two. The script prints A Wo, where A has both results side by side, beside each result times its own two rows of Wo;
# and the queries of both heads from one matrix, here the identity, beside each head's own. Takes a moment.

. "$(dirname "$0")/common.sh"
for head in 0 1; do "$decode" attend "$models/hello-2-heads.gguf" -p "hello how are you" --trace 0.$head -q >"$dir/trace-$head"; done
rows() { sed -n "/^$1/,/^[^ ]/p" "$dir/trace-${2-0}" | sed -n 's/^  //p' | sed 's/^head /head-/; s/  */ | /g'; }
echo "| of the last word | 0 | 1 | 2 | 3 |"
echo "|:--|--:|--:|--:|--:|"
echo "| X, times Wq of both heads$(rows "X = " | sed -n 's/^you//p') |"
echo "| Q of head 0, and of head 1$(rows "Q = " | sed 's/^you//')$(rows "Q = " 1 | sed 's/^you//') |"
echo "| A = both heads side by side$(rows "A = " | sed 's/^you//') |"
for head in 0 1; do echo "| head $head, times its rows of Wo$(rows "each head" | sed -n "s/^head-$head//p") |"; done
rows "each head" | awk -F ' [|] ' '{ for (i = 2; i <= NF; i++) sum[i] += $i }
    END { printf "| these two, added"; for (i = 2; i <= 5; i++) printf " | %.4f", sum[i]; print " |" }'
echo "| A Wo$(rows "A Wo" | sed 's/^you//') |"
{
    echo "series,label,y"
    rows "each head" | awk -F ' [|] ' '{ for (i = 2; i <= NF; i++) print "head " (NR - 1) "," i - 2 "," $i }'
    rows "A Wo" | awk -F ' [|] ' '{ for (i = 2; i <= NF; i++) print "A Wo," i - 2 "," $i }'
} >"$dir/bars.csv"
picture --panel bars "$dir/bars.csv" --title "each head's part of A Wo, and A Wo" --x "number of the stream" --y "added"
