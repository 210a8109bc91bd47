#!/bin/sh
# check_neon.sh DECODE - cross-builds for AArch64 into build/neon and runs that under emulation:
# the NEON kernels, with and without the dot product, and the scalar ones must give the bits of
# DECODE, the native program.
# Leaves out, and says so, what the compiler or the emulator is missing for.
set -eu

native=$1
cross=build/neon/decode
prefix=aarch64-linux-gnu-

if ! command -v ${prefix}gcc >/dev/null; then
    echo "check-neon: skipped: ${prefix}gcc is not installed, so nothing was built for AArch64"
    exit 0
fi

# Static, so that the emulator needs no AArch64 libraries.
${MAKE:-make} --no-print-directory MODE=release BUILD=build/neon CC=${prefix}gcc \
    AR=${prefix}ar CFLAGS= LDFLAGS=-static $cross
echo "check-neon: built $cross"

if ! command -v qemu-aarch64 >/dev/null; then
    echo "check-neon: skipped: qemu-aarch64 is not installed, so $cross was built and not run"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=0
# same WHAT A B - compares two files byte for byte
same() {
    if ! cmp -s "$2" "$3"; then
        echo "check-neon: $1 differs from the native build"
        failed=1
    fi
}

# run ISA ARGUMENT... - the cross-built program
run() {
    isa=$1
    shift
    DECODE_ISA=$isa qemu-aarch64 $cross "$@"
}

qemu-aarch64 $cross --version >"$work/version"
if ! grep -q '^used .*neon$' "$work/version"; then
    echo "check-neon: NEON is not what $cross chooses:"
    cat "$work/version"
    failed=1
fi

# score WHAT MODEL OPTION... - logits
score() {
    what=$1
    shift
    "$native" score "$@" --logits "$work/native.npy" >/dev/null
    for isa in neon neon-base scalar; do
        run $isa score "$@" --logits "$work/$isa.npy" >/dev/null
        same "$isa, $what: logits" "$work/native.npy" "$work/$isa.npy"
    done
}

# generate WHAT MODEL OPTION... - a greedy text
generate() {
    what=$1
    shift
    "$native" generate "$@" -q --greedy >"$work/native.txt"
    for isa in neon neon-base scalar; do
        run $isa generate "$@" -q --greedy >"$work/$isa.txt"
        same "$isa, $what: text" "$work/native.txt" "$work/$isa.txt"
    done
}

models=0
for model in tests/data/golden/*.gguf; do
    name=$(basename "$model" .gguf)
    tokens=$(cat "${model%.gguf}.tokens")
    for kv in f32 f16 q8_0; do
        score "$name, $kv cache" "$model" --tokens "$tokens" --kv-type $kv
    done
    score "$name, one token at a time" "$model" --tokens "$tokens" --block 1
    generate "$name" "$model" -n 20
    models=$((models + 1))
done
generate "shakespeare-bytes" tests/data/shakespeare-bytes.gguf -p "ROMEO:" -n 20
for type in bf16 q8_0 q4_0; do
    model=$work/$type.gguf
    "$native" quantize tests/data/shakespeare-bytes.gguf -o "$model" --type $type -q >/dev/null
    run neon quantize tests/data/shakespeare-bytes.gguf -o "$model.neon" --type $type -q >/dev/null
    same "quantize to $type" "$model" "$model.neon"
    score "shakespeare-bytes in $type" "$model" -p "ROMEO: What light through yonder window breaks?"
    generate "shakespeare-bytes in $type" "$model" -p "ROMEO:" -n 10
done

[ $failed -eq 0 ] && echo "check-neon: NEON and scalar under emulation give the native bits ($models golden checkpoints, one trained)"
exit $failed
