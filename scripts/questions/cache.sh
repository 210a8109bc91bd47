#!/usr/bin/env bash
# cache.sh TEXT - What should I give up: heads, or bits? The shipped MHA checkpoint with 8, 4, 2 and 1 K/V heads: by `fit` with text,
# by layers for a half and a quarter of the cache, and the shipped checkpoints that were trained on with 2 and 1; and SmolLM2-135M with 3 and
# 1. Each with every type of the cache: the divergence from what it is with all heads and an F32 cache, on the first half of the
# text's last tenth, and as in real.sh on the first 40,000 bytes of its text, whose hour of training is taken from real.txt; and
# the rate of a step. Then the error of 4 bits of keys and of values, rotated and not. With WIKITEXT=FILE as real.sh. An hour on two cores; without
# a network the real checkpoint is left out. Needs NumPy.

. "$(dirname "$0")/common.sh"
needs_text "$@"
types=f32,f16,q8_0,q8_0/q4_0,q4_0/q8_0,q5_0/q4_0,q4_0 by_layers=(4 2) range=0.9:0.95 rounds="1 2 3"
[ $short = no ] || types=f32,q4_0 by_layers=() range=0.9:0.91 rounds=1
real=
[ $short = yes ] || { real=$(real_checkpoint) && [ -e "$real" ] || real=; }

# A file's name says what it has: NAME-8, so many heads; NAME-auto4, so many in the mean of its layers; NAME-up2, trained on.
made() { [ -e "$1" ] || converted "$1" text --seed 1 "${@:2}"; }
ln -sf "$mha" "$dir/mha-8.gguf"
of=(8 "${few[@]}" "${by_layers[@]/#/auto}" up2 up1)
for heads in "${few[@]}"; do made "$dir/mha-$heads.gguf" --kv-heads $heads; done
for heads in "${by_layers[@]}"; do made "$dir/mha-auto$heads.gguf" --kv-heads auto --cache-bytes $((1024 * heads)); done
for up in 2=gqa2 1=mqa; do
    [ -e "$dir/mha-up${up%=*}.gguf" ] || "$decode" convert "$models/shakespeare-${up#*=}.gguf" -o "$dir/mha-up${up%=*}.gguf" --type f16 --requantize -q >/dev/null
done
if [ -n "$real" ]; then
    at=$(dirname "$real")
    [ -e "$at/all.txt" ] || cp "${WIKITEXT:?is the text that real.sh measures, as it says}" "$at/all.txt"
    head -c 40000 "$at/all.txt" >"$at/measured.txt"
    tail -c +$(($(wc -c <"$at/all.txt") / 5 + 1)) "$at/all.txt" >"$at/train.txt"
    [ -e "$at/converted.gguf" ] ||
        "$decode" convert "$real" -o "$at/converted.gguf" --kv-heads 1 --calib "$at/train.txt" --calib-tokens 65536 --refit wo --seed 1 -q >/dev/null
    ln -sf "$real" "$dir/real-3.gguf"
    ln -sf "$at/converted.gguf" "$dir/real-1.gguf"
    awk -F' *[|] *' 'BEGIN { print "model,kv_type,perplexity,kl_mean" } $2 ~ /^[0-9]+$/ { last = $3 "," $6 } END { print "real-up1.gguf,f16," last }' \
        "$here/real.txt" >"$dir/real-up1.csv"
fi

# compared NAME ORIGINAL TEXT OPTIONS...: the table of the models NAME-*, evaluated with every type of the cache, and timed.
compared() {
    local evaluated=() to
    for heads in "${of[@]}"; do
        to=$dir/$1-$heads.csv
        [ -e "$to" ] || { "$decode" eval "$dir/$1-$heads.gguf" "$3" --against "$2" --kv-type $types "${@:4}" --format csv -q >"$to.part" && mv "$to.part" "$to"; }
        evaluated+=("$to")
    done
    [ -e "$dir/$1-bench.csv" ] || {
        for round in $rounds; do
            "$decode" bench $(printf "$dir/$1-%s.gguf\n" "${of[@]}" | grep -v -- -up) --batch 1,16 --kv-type $types --prompt 0 "${timing[@]}" --format csv -q
        done >"$dir/$1-bench.part"
        mv "$dir/$1-bench.part" "$dir/$1-bench.csv"
    }
    python3 "$here/cache.py" table "$dir/$1-bench.csv" "$dir/$1-lines.csv" "$title" "${evaluated[@]}"
    panels+=(--panel lines "$dir/$1-lines.csv" --title "${title%%,*}" --x "bytes a token, of an F16 cache with all heads" --y "divergence, nats a token" --log xy)
    echo
}
panels=() title="shipped MHA, depth 255" timing=(--depth 255 -n 32 --repeat 5)
[ $short = no ] || timing=(--depth 16 -n 2 --repeat 1 --warmup 0)
compared mha "$mha" "$text" --range $range
of=(3 1 up1) title="SmolLM2-135M, depth 1,024" timing=(--depth 1024 -n 4 --repeat 3)
[ -z "$real" ] || compared real "$real" "$at/measured.txt" --ctx 1024
echo "| numbers in blocks of 32 | largest over the root mean square | error of q4_0 | rotated: largest | error of q4_0 |"
echo "|:--|--:|--:|--:|--:|"
head -c 2000 "$text" >"$dir/line"
python3 "$here/cache.py" outliers "shipped MHA" "$mha" "$dir/line"
[ -z "$real" ] || { head -c 2000 "$at/measured.txt" >"$dir/line" && python3 "$here/cache.py" outliers SmolLM2 "$real" "$dir/line"; }
picture "${panels[@]}"
