#!/usr/bin/env bash
# pruning.sh TEXT - Which heads can go? It orders the heads of the shipped MHA checkpoint by what each costs alone, and leaves out the
# first 1, 2, 4 ... of them together, on 20,000 tokens of the text's last tenth. Takes a minute.

. "$(dirname "$0")/common.sh"
needs_text "$@"
tokens=$([ $short = no ] && echo 20000 || echo 256)
"$decode" heads "$models/shakespeare-mha.gguf" "$text" --range 0.9:1 --tokens $tokens --curve --format csv -q >"$dir/curve.csv"
for field in heads_left_out delta_nll bits_per_byte; do column $field "$dir/curve.csv" >"$dir/$field"; done
paste -d ' ' "$dir"/{heads_left_out,delta_nll,bits_per_byte} | awk -v csv="$dir/lines.csv" '
    BEGIN {
        print "| heads left out | nats a token lost | bits/byte |"
        print "|--:|--:|--:|"
        print "series,x,y" >csv
    }
    {
        printf "| %d | %.4f | %.4f |\n", $1, $2, $3
        printf "loss,%s,%s\n", $1, $2 >csv
    }'
picture --panel lines "$dir/lines.csv" --title "without the heads that cost least" --x "heads left out of 32" --y "nats a token lost"
