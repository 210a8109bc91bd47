#!/bin/sh
# draft_table.sh TEXT [FOLDER] - the tables of drafts in README.md: tokens a second without and with
# each draft, in turns, on continuations of prompts out of the held-out last tenth of TEXT, with the
# model of make_draft_model.sh in FOLDER (build/models) and the shipped checkpoints. Rows of two
# temperatures: greedy text of such models runs in circles, which lookup lives on; sampled text does
# not. Takes some ten minutes.
set -eu

text=$1
models=${2:-build/models}
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-drafts-XXXXXX")
trap 'rm -rf "$dir"' EXIT
make -s decode
tail -c $(($(wc -c <"$text") / 10)) "$text" >"$dir/held-out.txt"

# rows MODEL OPTION... - the table of a model, greedy and sampled.
rows() {
    model=$1
    shift
    for temperature in 0 0.8; do
        printf '\n%s at temperature %s\n\n' "$(basename "$model" .gguf)" "$temperature"
        ./decode bench "$model" --text "$dir/held-out.txt" --temp "$temperature" -n 128 --prompt 64 \
            --repeat 7 --format md -q "$@"
    done
}

./decode convert "$models/26m.gguf" -o "$dir/mqa.gguf" --kv-heads 1 --calib "$text" --refit all -q
rows "$models/26m.gguf" --draft self:q4_0 --draft self:q8_0 --draft self:layers=4 --draft lookup \
    --draft "$dir/mqa.gguf"
rows "$models/26m-f16.gguf" --draft self:q4_0 --draft lookup
rows models/shakespeare-mha.gguf --draft self:q4_0 --draft lookup \
    --draft models/shakespeare-mqa.gguf
