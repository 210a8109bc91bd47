#!/bin/sh
# bench_tables.sh [FOLDER] - the benchmark tables and plots of README.md: the shipped checkpoint at
# depths up to its context, and the shape of GPT-2 small (124M). Writes NAME.md (every column),
# NAME.svg and NAME.csv to FOLDER (build/bench) and prints the tables with the columns README.md
# shows. Takes about two minutes and 6 GiB; the machine should have nothing else to do.
set -eu

out=${1:-build/bench}
mkdir -p "$out"
make -s decode

# Keeps some columns of a Markdown table, by their headings; other lines pass.
columns() {
    awk -F '|' -v wanted="$1" '
        BEGIN { n = split(wanted, names, ",") }
        !/^\|/ { print; next }
        !header { header = 1
            for (i = 2; i < NF; i++) {
                name = $i
                gsub(/^ +| +$/, "", name)
                at[name] = i
            } }
        { line = "|"
          for (k = 1; k <= n; k++) line = line $at[names[k]] "|"
          print line }' "$2"
}

# tables NAME ARGS... - one benchmark in all its forms, from one run's trace to its plot.
tables() {
    name=$1
    shift
    ./decode bench "$@" --format md --plot "$out/$name.svg" --trace "$out/$name.csv" \
        >"$out/$name.md"
    columns "variant,type,KV,depth,p50 µs,p99 µs,tokens/s,speed-up,by bytes,weights read,KV read,GB/s,of limit" \
        "$out/$name.md"
    echo
}

tables shakespeare models/shakespeare-mha.gguf --kv-heads all --depth 0,128,255 -n 500 --repeat 9
tables gpt2-124m --shape 12x768x12,ff=3072,vocab=50257,ctx=4096 --kv-heads 12,4,1 \
    --depth 0,1024,3840 --kv-type f16 --type f32,f16 -n 24 --repeat 9
