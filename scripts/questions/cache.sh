#!/usr/bin/env bash
# cache.sh TEXT - What should I give up: heads, or bits? The shipped MHA checkpoint with 8, 4, 2 and 1 K/V heads (by `fit` with text,
# and by layers for a half and a quarter of the cache), and SmolLM2-135M with 3 and 1, each with every type of the cache:
# the divergence from what it is with all heads and an F32 cache, on the first half of the text's last tenth, and as in real.sh on the first 40,000
# bytes of its text; and the rate of a step. Then why keys want more bits. With WIKITEXT=FILE as real.sh. An hour on two cores; without
# a network the real checkpoint is left out. Needs NumPy.

. "$(dirname "$0")/common.sh"
needs_text "$@"
mha=$models/shakespeare-mha.gguf
types=f32,f16,q8_0,q8_0/q4_0,q4_0/q8_0,q5_0/q4_0,q4_0
range=0.9:0.95 tokens=65536 fewer=(4 2 1) by_layers=(4 2)
[ $short = no ] || types=f32,q4_0 range=0.9:0.95 tokens=256 fewer=(1) by_layers=()
real=
[ $short = yes ] || { real=$(real_checkpoint) && [ -e "$real" ] || real=; }

# made OUT FROM OPTIONS...: a conversion, if it is not there.
made() { [ -e "$1" ] || "$decode" convert "$2" -o "$1" --calib-tokens $tokens --seed 1 "${@:3}" -q >/dev/null; }
ln -sf "$mha" "$dir/mha-8.gguf"
for heads in "${fewer[@]}"; do made "$dir/mha-$heads.gguf" "$mha" --kv-heads $heads --calib "$text" --range 0:0.9; done
for heads in "${by_layers[@]}"; do made "$dir/mha-auto$heads.gguf" "$mha" --kv-heads auto --cache-bytes $((1024 * heads)) --calib "$text" --range 0:0.9; done
models_of() { for heads in 8 "${fewer[@]}" "${by_layers[@]/#/auto}"; do echo "$dir/mha-$heads.gguf"; done; }
"$decode" eval $(models_of) "$text" --range $range --against "$mha" --kv-type $types --format csv -q >"$dir/mha.csv"
if [ -n "$real" ]; then
    at=$(dirname "$real")
    [ -e "$at/all.txt" ] || cp "${WIKITEXT:?is the text that real.sh measures, as it says}" "$at/all.txt"
    head -c 40000 "$at/all.txt" >"$at/measured.txt"
    tail -c +$(($(wc -c <"$at/all.txt") / 5 + 1)) "$at/all.txt" >"$at/train.txt"
    made "$at/converted.gguf" "$real" --kv-heads 1 --calib "$at/train.txt" --refit wo
    "$decode" eval "$real" "$at/converted.gguf" "$at/measured.txt" --ctx 1024 --against "$real" --kv-type $types --format csv -q >"$dir/real.csv"
fi

# The rate of a step, of the variants with the same numbers of K/V heads in every layer.
timing=(-n 32 --repeat 5) && [ $short = no ] || timing=(-n 2 --repeat 1 --warmup 0)
[ -e "$dir/mha-bench.csv" ] || "$decode" bench "$mha" --kv-heads 8,4,2,1 --depth $([ $short = no ] && echo 255 || echo 16) --batch 1,16 \
    --kv-type $types "${timing[@]}" --format csv -q >"$dir/mha-bench.csv"
[ -z "$real" ] || [ -e "$dir/real-bench.csv" ] || "$decode" bench "$real" --kv-heads 3,1 --depth 1024 --batch 1,16 --kv-type $types -n 4 --repeat 3 \
    --format csv -q >"$dir/real-bench.csv"
for model in mha ${real:+real}; do
    python3 "$here/cache.py" table "$dir/$model.csv" "$dir/$model-bench.csv" "$dir/$model-lines.csv" \
        "$([ $model = mha ] && echo "shipped MHA, depth 255" || echo "SmolLM2-135M, depth 1,024")"
    echo
done
echo "| numbers in blocks of 32 | largest over the root mean square | error of q4_0 | rotated: largest | error of q4_0 |"
echo "|:--|--:|--:|--:|--:|"
head -c 2000 "$text" >"$dir/line"
python3 "$here/cache.py" outliers "shipped MHA" "$mha" "$dir/line"
[ -z "$real" ] || { head -c 2000 "$at/measured.txt" >"$dir/line" && python3 "$here/cache.py" outliers SmolLM2 "$real" "$dir/line"; }
panels=(--panel lines "$dir/mha-lines.csv" --title "shipped MHA")
[ -z "$real" ] || panels+=(--panel lines "$dir/real-lines.csv" --title "SmolLM2-135M")
for ((i = 0; i < ${#panels[@]}; i += 5)); do drawn+=("${panels[@]:i:5}" --x "bytes a token, of an F16 cache with all heads" --y "divergence, nats a token" --log xy); done
picture "${drawn[@]}"
