#!/bin/sh
# arch_table.sh [TEXT [STEPS]] - what each value of an architecture is worth and costs: trains the
# same budget (the toy shape, 4 layers of 128, 8 heads; STEPS steps of 8 windows of 256 bytes, 1000
# by default, seed 1) for each row, on the first nine tenths of TEXT, and prints parameters, bits
# per byte of the last tenth, training tokens/s, microseconds a decoded token at depth 128, and the
# cache bytes of a position in f32. Rows train one after the other; nothing else should run. About
# two minutes a row on two cores.
set -eu

text=${1:-corpus/shakespeare.txt}
steps=${2:-1000}
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-arch-XXXXXX")
trap 'rm -rf "$dir"' EXIT
make -s decode

# value KEY - the first number of that key in JSON.
value() { grep -o "\"$1\": *[-0-9.e+]*" | head -n 1 | sed 's/.*: *//'; }

# row LABEL OPTIONS... - trains, and measures what came of it.
row() {
    label=$1
    shift
    ./decode train "$text" -o "$dir/out.gguf" --force --layers 4 --embd 128 --heads 8 --ctx 256 --batch 8 \
        --steps "$steps" --seed 1 -q --log "$dir/log.csv" "$@"
    bits=$(./decode eval "$dir/out.gguf" "$text" --range 0.9:1 --format json -q |
        value bits_per_byte)
    ./decode bench "$dir/out.gguf" --kv-heads "$(./decode info "$dir/out.gguf" --format json |
        value n_kv_heads)" --depth 128 -n 256 --repeat 5 --prompt 0 --format json \
        >"$dir/bench.json" 2>/dev/null
    parameters=$(./decode info "$dir/out.gguf" --format csv | awk -F, '$1 == "total" { print $2 }')
    rate=$(awk -F, 'NR > 1 && $7 { print $7 }' "$dir/log.csv" | sort -n |
        awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }')
    cache=$(value kv_bytes <"$dir/bench.json")
    printf '| %s | %s | %.3f | %s | %.1f | %s |\n' "$label" "$parameters" "$bits" "$rate" \
        "$(value p50_us <"$dir/bench.json")" "$((cache / 128))"
    rm -f "$dir/out.gguf" "$dir/out.gguf.state"
}

echo "| trained as | parameters | bits/byte | trained tokens/s | µs a token | cache bytes a token |"
echo "| --- | ---: | ---: | ---: | ---: | ---: |"
row 'gpt2' --arch gpt2
row 'gpt2, 2 K/V heads' --arch gpt2 --kv-heads 2
row 'llama' --arch llama
row 'llama, 2 K/V heads' --arch llama --kv-heads 2
row 'transformer (2017)' --arch transformer
for position in sinusoidal rope alibi quadratic; do
    row "gpt2 with $position positions" --position "$position"
done
row 'gpt2 without positions' --position none
row 'gpt2 with RMS norm' --norm rms
row 'gpt2 with ReLU' --ffn relu
row 'gpt2 with SwiGLU' --ffn swiglu
row 'gpt2, one block for all layers' --share-layers
