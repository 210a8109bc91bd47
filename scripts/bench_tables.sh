#!/bin/sh
# bench_tables.sh [OUTPUT_FOLDER] - the benchmark tables and plots of README.md: the shipped
# checkpoint at depths up to its context, and the shape of GPT-2 small (124M). Takes a few minutes
# and 3 GiB; the machine should have nothing else to do.
set -eu

out=${1:-build/bench}
mkdir -p "$out"
make -s decode

./decode bench models/shakespeare-mha.gguf --kv-heads all --depth 0,64,128,192,255 -n 500 \
    --repeat 9 --format md --plot "$out/shakespeare.svg" >"$out/shakespeare.md"
./decode bench --shape 12x768x12,ff=3072,vocab=50257,ctx=4096 --kv-heads 12,4,1 \
    --depth 0,1024,2048,3072,3840 --kv-type f16 --type f32,f16 -n 24 --repeat 5 \
    --format md --plot "$out/gpt2-124m.svg" >"$out/gpt2-124m.md"
cat "$out/shakespeare.md" "$out/gpt2-124m.md"
