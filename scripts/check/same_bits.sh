#!/bin/sh
# same_bits.sh NAME NATIVE OTHER [ISA...] - OTHER, the program built in another way or for another
# machine, must give the bits of NATIVE in logits, texts and quantised files, with the kernels of each ISA
# (by default of every one that this machine runs). RUN is the emulator that starts OTHER; it may be unset.
# (same_results.sh compares two versions of the program.)
set -eu
. scripts/check/same.sh

name=$1 native=$PWD/$2 other=$PWD/$3
shift 3
# shellcheck disable=SC2046 # a list of words
[ $# -gt 0 ] || set -- $("$native" --version | sed -n 's/^this machine runs *//p')

for isa in "$@"; do
    same_begin "$name, $isa" "$native" "env DECODE_ISA=$isa ${RUN:-} $other"
    for model in tests/data/golden/*.gguf; do
        same_logits "$model" --tokens "$(cat "${model%.gguf}.tokens")"
        same generate "$model" -n 20 --greedy -q
    done
    same generate tests/data/shakespeare-bytes.gguf -p "ROMEO:" -n 20 --greedy -q
    same_types tests/data/shakespeare-bytes.gguf bf16 q8_0 q4_0
done

[ $differing -ne 0 ] || echo "$name: $*: the native bits, in $runs runs"
exit $((differing != 0))
