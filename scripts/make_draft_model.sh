#!/bin/sh
# make_draft_model.sh TEXT [FOLDER] - the recipe of the model on which src/engine/README.md measures drafts: one
# of 26 million weights in F32, whose steps are bound by memory on most machines, trained on the
# first nine tenths of TEXT (Tiny Shakespeare, 1,115,394 bytes). Writes 26m.gguf, and as F16
# 26m-f16.gguf, to FOLDER (build/models). Takes about half an hour on two cores.
set -eu

text=$1
out=${2:-build/models}
mkdir -p "$out"
make -s decode

./decode train "$text" -o "$out/26m.gguf" --layers 8 --embd 512 --heads 8 --ff 2048 --vocab 1024 \
    --ctx 256 --batch 8 --steps 700 --lr 6e-4 --warmup 70 --dropout 0.1 --seed 1 \
    --eval-every 100 --save-every 50 --log "$out/26m.csv"
./decode quantize "$out/26m.gguf" -o "$out/26m-f16.gguf" --type f16 --force
