#!/usr/bin/env bash
# small_heads.sh - Why are heads small? It counts the operations of a step, with the logits of 50,257 tokens and without, and the bytes of
# the cache at depth 512, for the original Transformer's width: of eight heads of 64, which is d_model / heads, and of eight of 512, each
# as wide as the model. Takes a moment.

. "$(dirname "$0")/common.sh"
"$decode" info --shape 6x512x1,dk=512 --shape 6x512x8,dk=64 --shape 6x512x8,dk=512 --depth 512 --format csv >"$dir/info.csv"
logits=$((2 * 512 * 50257)) # of a shape whose vocabulary is not said
for field in shape variant step_flops cache_bytes; do column $field "$dir/info.csv" >"$dir/$field"; done
paste -d '|' "$dir"/{shape,variant,step_flops,cache_bytes} | awk -F '|' -v csv="$dir/bars.csv" -v logits=$logits '
    BEGIN {
        print "| heads | operations of a step, millions | logits | others | cache of 512 tokens, MiB |"
        print "|:--|--:|--:|--:|--:|"
        print "series,label,y" >csv
    }
    $2 == "MHA" {
        split($1, part, /[x,=]/)
        label = part[3] " of " part[5]
        printf "| %s | %.1f | %.1f | %.1f | %d |\n", label, $3 / 1e6, logits / 1e6, ($3 - logits) / 1e6, $4 / 1048576
        printf "operations without logits in millions,%s,%s\ncache in MiB,%s,%s\n", label, ($3 - logits) / 1e6, label, $4 / 1048576 >csv
    }'
picture --panel bars "$dir/bars.csv" --title "width 512, 6 layers, depth 512"
