#!/usr/bin/env bash
# kinds.sh TEXT - What kinds of heads are there? It shows what each of the 32 heads of the shipped MHA checkpoint looks at, over a window
# of 256 tokens of the text's last tenth, and what is lost on 20,000 tokens of it without that head. Takes a minute.

. "$(dirname "$0")/common.sh"
needs_text "$@"
model=$models/shakespeare-mha.gguf
tokens=$([ $short = no ] && echo 20000 || echo 64)
"$decode" attend "$model" -f "$text" --range 0.9:1 --truncate right --npy "$dir/all.npy" --format csv -q >"$dir/attend.csv"
"$decode" heads "$model" "$text" --range 0.9:1 --tokens $tokens --format csv -q >"$dir/heads.csv"
echo "| head | role | share of its weight | entropy, nats | nats a token lost without it | ± |"
echo "|:--|:--|--:|--:|--:|--:|"
for field in layer head role role_share entropy; do column $field "$dir/attend.csv" >"$dir/$field"; done
for field in delta_nll delta_nll_stderr; do column $field "$dir/heads.csv" >"$dir/$field"; done
paste -d '|' "$dir"/{layer,head,role,role_share,entropy,delta_nll,delta_nll_stderr} |
    awk -F '|' '
        $3 == "content" && $6 < 3 * $7 { if (!others++ || $5 < low) low = $5; if ($5 > high) high = $5; next }
        { printf "| %d.%d | %s | %.2f | %.2f | %.4f | %.4f |\n", $1, $2, $3, $4, $5, $6, $7 }
        END { printf "| %d others | content | | %.2f to %.2f | below three times ± | |\n", others, low, high }'
"$decode" attend "$model" -p "To be, or not to be, that is the question." --layer 0 --head 5 --npy "$dir/one.npy" --format csv -q >/dev/null
"$decode" attend "$model" -p "To be, or not to be, that is the question." --layer 2 --head 0 --npy "$dir/other.npy" --format csv -q >/dev/null
picture --panel maps "$dir/one.npy" --title "head 0.5: the token before" --panel maps "$dir/other.npy" --title "head 2.0: content"
