#!/bin/sh
# same_bits.sh NAME NATIVE OTHER ISA... - OTHER, the program built in another way or for another
# machine, must give the bits of NATIVE with each of the kernels: logits, texts, quantised files.
# RUN is what starts OTHER: an emulator, or nothing.
set -eu

name=$1 native=$2 other=$3
shift 3
isas=$*

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=0
# same WHAT A B - compares two files byte for byte
same() {
    if ! cmp -s "$2" "$3"; then
        echo "$name: $1 differs from the native build"
        failed=1
    fi
}

# run ISA ARGUMENT... - the other program
run() {
    isa=$1
    shift
    DECODE_ISA=$isa ${RUN:-} "$other" "$@"
}

# score WHAT MODEL OPTION... - logits
score() {
    what=$1
    shift
    "$native" score "$@" --logits "$work/native.npy" >/dev/null
    for isa in $isas; do
        run "$isa" score "$@" --logits "$work/$isa.npy" >/dev/null
        same "$isa, $what: logits" "$work/native.npy" "$work/$isa.npy"
    done
}

# generate WHAT MODEL OPTION... - a greedy text
generate() {
    what=$1
    shift
    "$native" generate "$@" -q --greedy >"$work/native.txt"
    for isa in $isas; do
        run "$isa" generate "$@" -q --greedy >"$work/$isa.txt"
        same "$isa, $what: text" "$work/native.txt" "$work/$isa.txt"
    done
}

models=0
for model in tests/data/golden/*.gguf; do
    title=$(basename "$model" .gguf)
    tokens=$(cat "${model%.gguf}.tokens")
    for kv in f32 f16 q8_0; do
        score "$title, $kv cache" "$model" --tokens "$tokens" --kv-type $kv
    done
    score "$title, one token at a time" "$model" --tokens "$tokens" --block 1
    generate "$title" "$model" -n 20
    models=$((models + 1))
done
generate "shakespeare-bytes" tests/data/shakespeare-bytes.gguf -p "ROMEO:" -n 20
for type in bf16 q8_0 q4_0; do
    model=$work/$type.gguf
    "$native" quantize tests/data/shakespeare-bytes.gguf -o "$model" --type $type -q >/dev/null
    run "${isas%% *}" quantize tests/data/shakespeare-bytes.gguf -o "$model.other" --type $type \
        -q >/dev/null
    same "quantize to $type" "$model" "$model.other"
    score "shakespeare-bytes in $type" "$model" -p "ROMEO: What light through yonder window breaks?"
    generate "shakespeare-bytes in $type" "$model" -p "ROMEO:" -n 10
done

[ $failed -eq 0 ] &&
    echo "$name: $isas: the native bits ($models golden checkpoints, one trained)"
exit $failed
