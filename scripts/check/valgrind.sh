#!/bin/sh
# valgrind.sh DECODE - runs every command under valgrind's memcheck (memcheck.sh). valgrind tells the
# program what instruction sets it knows, and the program chooses kernels of these.
set -eu

decode=$1
if ! command -v valgrind >/dev/null; then
    echo "valgrind: skipped: it is not installed"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model=tests/data/golden/gqa.gguf
head -c 2000 tests/data/bpe-small.txt >"$work/text"
failed=0

# run COMMAND OPTION... - runs a command that must succeed
run() {
    if ! scripts/check/memcheck.sh "$decode" "$@" >"$work/out" 2>"$work/err"; then
        echo "valgrind: decode $*:"
        cat "$work/err"
        failed=1
    fi
}

run generate "$model" -n 4 -t 2 --seed 1
run generate "$model" -n 4 -t 2 --greedy --kv-type q8_0
printf 'a\n\nbc\nd\n' >"$work/prompts"
run generate "$model" --prompts "$work/prompts" --batch 3 -n 4 -t 2 --seed 1
run generate "$model" --samples 5 --batch 3 -n 4 -t 2 --seed 1
run score "$model" --tokens 1,2,3 --logits "$work/logits.npy" -t 2
run attend "$model" --tokens 1,2,3 --svg "$work/a.svg" --npy "$work/a.npy" --json "$work/a.json" -t 2
run attend "$model" --tokens 1,2,3 --kv-heads 1 --show 0.1 -t 2
run tokenize tests/data/bpe-small.gguf -p "Naïve text, 12 times."
run eval "$model" "$work/text" --range 0:0.1 -t 2
run convert "$model" -o "$work/q8_0.gguf" --type q8_0 -t 2
run generate "$work/q8_0.gguf" -n 4 --greedy -t 2
run convert "$model" -o "$work/mqa.gguf" --kv-heads 1 --calib self:256 --seed 1 -t 2
run info "$work/mqa.gguf" --check
run bench "$model" -n 2 --depth 8 --repeat 1 --warmup 1 -t 2
# train OPTION... - trains for three steps and saves after each
train() {
    run train "$work/text" -o "$work/new.gguf" --layers 1 --embd 32 --heads 4 --kv-heads 2 \
        --ff 32 --ctx 16 --vocab 260 --batch 2 --seed 1 -t 2 --steps 3 --save-every 1 "$@"
}
train
train --resume
[ $failed -ne 0 ] || echo "valgrind: every command: no error, no leak"
exit $failed
