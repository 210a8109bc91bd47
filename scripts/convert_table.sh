#!/bin/sh
# convert_table.sh [--short] [--samples] [MODEL [TEXT]] - the conversion table: every method at every
# number of K/V heads, grouped by neighbourhood and by likeness, with and without the refit;
# --short: each method as it is meant, the table of src/convert/README.md. Bits per byte, with no
# training after it, are over the held-out last tenth of TEXT; calibration sees the first nine
# tenths. --samples: both are samples of the model's own, for one whose text is not at hand. KL is
# the mean divergence from MODEL, in nats a token. Cache bytes are of f32; tokens/s are decoding at
# full context, on the threads that DECODE_THREADS or auto gives. Takes some minutes.
set -eu

short=no
samples=no
while :; do
    case ${1:-} in
    --short) short=yes ;;
    --samples) samples=yes ;;
    *) break ;;
    esac
    shift
done
model=${1:-models/shakespeare-mha.gguf}
text=${2:-corpus/shakespeare.txt}
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-table-XXXXXX")
trap 'rm -rf "$dir"' EXIT
make -s decode

# value KEY <REPORT: a number of convert's JSON, of "after" if both have it.
value() {
    grep -o "\"$1\": *[-0-9.e]*" | tail -n 1 | sed 's/.*: *//'
}

info() {
    ./decode info "$model" | awk -v key="$1" '$1 == key { print $2 }'
}

n_heads=$(info n_heads)
n_kv_heads=$(info n_kv_heads)
depth=$(($(info n_ctx) - 1))
# ALiBi's slopes keep heads in their places.
groupings="adjacent cluster"
likeness=cluster
if ! ./decode convert "$model" -o "$dir/out.gguf" --kv-heads 1 --method first --group cluster -q \
    >"$dir/report" 2>&1; then
    groupings=adjacent
    likeness=adjacent
fi

# sample N SEED - N texts of the model's own, one after the other.
sample() {
    ./decode generate "$model" --samples "$1" --seed "$2" -n $((depth - 7)) --temp 1 --top-k 0 \
        --top-p 1 -q | awk '
        $0 == "---" { printf " "; next_line = ""; next }
        { printf "%s%s", next_line, $0; next_line = "\n" }'
}

if [ $samples = yes ]; then
    sample 200 1 >"$dir/calib"
    sample 64 2 >"$dir/eval"
else
    bytes=$(wc -c <"$text")
    cut=$((bytes * 9 / 10))
    head -c "$cut" "$text" >"$dir/calib"
    tail -c +$((cut + 1)) "$text" >"$dir/eval"
fi

# tokens/s of every variant in one run, so that they take turns.
./decode bench "$model" --depth "$depth" --format csv >"$dir/bench.csv" 2>/dev/null
speed() {
    awk -F, -v heads="$1" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["n_kv_heads"] == heads { printf "%.0f", $at["tokens_per_s"] }' "$dir/bench.csv"
}

# row METHOD CALIBRATION GROUPING REFIT ARGS... - one conversion.
row() {
    method=$1
    calibration=$2
    grouping=$3
    refit=$4
    shift 4
    case $calibration in
    text) set -- "$@" --calib "$dir/calib" ;;
    none | self) set -- "$@" --calib "$calibration" ;;
    esac
    ./decode convert "$model" -o "$dir/out.gguf" --force --kv-heads "$heads" --method "$method" \
        --group "$grouping" --seed 1 --eval "$dir/eval" --format jsonl -q "$@" >"$dir/report"
    ./decode eval "$dir/out.gguf" "$dir/eval" --against "$model" --format jsonl \
        -q >"$dir/distance"
    after=$(value bits_per_byte <"$dir/report")
    cache=$(value kv_bytes_per_token_f32 <"$dir/report")
    seconds=$(value seconds <"$dir/report")
    printf '| %s | %s | %s | %s | %s | %.4f | %+.4f | %.4f | %s | %s | %.1f |\n' "$heads" \
        "$method" "$calibration" "$grouping" "$refit" "$after" \
        "$(awk -v a="$after" -v b="$before" 'BEGIN { print a - b }')" \
        "$(value kl_mean <"$dir/distance")" "$cache" "$(speed "$heads")" "$seconds"
}

# The checkpoint itself, from the report of a quick conversion.
./decode convert "$model" -o "$dir/out.gguf" --force --kv-heads 1 --method first \
    --eval "$dir/eval" --format jsonl -q | sed 's/"after".*//' >"$dir/report"
before=$(value bits_per_byte <"$dir/report")

echo "| K/V heads | method | calibration | grouping | refit | bits/byte | change | KL | cache bytes/token | tokens/s | seconds |"
echo "| ---: | --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
printf '| %s | as trained | | | | %.4f | | | %s | %s | |\n' "$n_kv_heads" "$before" \
    "$(value kv_bytes_per_token_f32 <"$dir/report")" "$(speed "$n_kv_heads")"

# Each method as it is meant.
short_rows() {
    for method in first mean random; do
        row "$method" none adjacent no
    done
    row procrustes none $likeness no
    row fit none $likeness no
    row fit self $likeness none --refit none
    row fit self $likeness wo
    row fit text $likeness none --refit none
    row fit text $likeness wo
}

# Everything that can be combined.
all_rows() {
    for grouping in $groupings; do
        [ "$heads" -eq 1 ] && [ "$grouping" = cluster ] && continue
        for method in first mean random procrustes; do
            row "$method" none "$grouping" no
            row "$method" text "$grouping" yes --refit wo
        done
        row procrustes text "$grouping" no
        row fit none "$grouping" no
        for refit in none wo; do
            row fit text "$grouping" $refit --refit $refit
        done
    done
}

heads=$((n_kv_heads - 1))
while [ "$heads" -ge 1 ]; do
    if [ $((n_heads % heads)) -eq 0 ]; then
        if [ $short = yes ]; then short_rows; else all_rows; fi
    fi
    heads=$((heads - 1))
done
