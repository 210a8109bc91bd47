#!/bin/sh
# draft_table.sh TEXT [FOLDER] - the tables of drafts in src/engine/README.md: tokens a second without and with
# each draft, in turns, on continuations of prompts out of the held-out last tenth of TEXT, with the
# model of make_draft_model.sh in FOLDER (build/models) and the shipped checkpoints. Figures are those
# of generate's summary: medians over the repeats, and the speed-up over no draft in the same repeat.
# Rows of two temperatures: greedy text of such models runs in circles, which lookup lives on; sampled
# text does not. Takes some ten minutes.
set -eu

text=$1
models=${2:-build/models}
repeats=7
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-drafts-XXXXXX")
trap 'rm -rf "$dir"' EXIT
make -s decode
tail -c $(($(wc -c <"$text") / 10)) "$text" >"$dir/held-out.txt"

# prompt MODEL NUMBER - 64 tokens of the held-out text, other ones for each number.
prompt() {
    ids=$(tail -c +$(($2 * $(wc -c <"$dir/held-out.txt") / (repeats + 1))) "$dir/held-out.txt" |
        head -c 1000 | ./decode tokenize "$1" -f - | cut -d ' ' -f 1-64 | tr ' ' ,)
    ./decode tokenize "$1" --decode "$ids"
}

# turn REPEAT DRAFT GENERATE-ARGUMENT... - a line of figures: repeat, draft, tokens/s, share, tokens a step.
turn() {
    repeat=$1 draft=$2
    shift 2
    [ "$draft" = none ] || set -- "$@" --draft "$draft"
    ./decode generate "$@" -n 128 --seed "$repeat" --ignore-eos --top-k 40 --top-p 0.95 \
        2>&1 >/dev/null | awk -v draft="$draft" -v repeat="$repeat" '
            $1 == "decoded" { rate = $4 }
            $1 == "drafts" { match($0, /\([0-9]+%\)/); share = substr($0, RSTART + 1, RLENGTH - 2)
                             match($0, /[0-9.]+ tokens a step/); step = substr($0, RSTART) + 0 }
            END { print repeat, draft, rate, share ? share : "-", step ? step : 1 }'
}

# rows MODEL DRAFT... - the table of a model, greedy and sampled.
rows() {
    model=$1
    shift
    for temperature in 0 0.8; do
        printf '\n%s at temperature %s\n\n' "$(basename "$model" .gguf)" "$temperature"
        for repeat in $(seq $repeats); do
            prompt "$model" "$repeat" >"$dir/prompt.txt"
            for draft in none "$@"; do
                turn "$repeat" "$draft" "$model" -f "$dir/prompt.txt" \
                    --temp "$temperature"
            done
        done | awk '
            function median(list, n,    i, k, x) {
                for (i = 2; i <= n; i++) {
                    x = list[i]
                    for (k = i - 1; k > 0 && list[k] > x; k--)
                        list[k + 1] = list[k]
                    list[k + 1] = x
                }
                return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
            }
            $2 == "none" { alone[$1] = $3 }
            !($2 in n) { order[++drafts] = $2 }
            { i = ++n[$2]; rate[$2, i] = $3; ratio[$2, i] = $3 / alone[$1]
              share[$2, i] = $4 + 0; step[$2, i] = $5 }
            function of(table, draft,    i) {
                for (i = 1; i <= n[draft]; i++)
                    list[i] = table[draft, i]
                return median(list, n[draft])
            }
            END {
                print "| draft | tokens/s | speed-up | least to most | right | tokens a step |"
                print "|:--|--:|--:|--:|--:|--:|"
                for (d = 1; d <= drafts; d++) {
                    draft = order[d]
                    rates = of(rate, draft); shares = of(share, draft); steps = of(step, draft)
                    speed = of(ratio, draft)
                    printf "| %s | %.0f | %.2fx | %.2f to %.2f | %.0f%% | %.2f |\n", draft, rates,
                        speed, list[1], list[n[draft]], shares, steps
                }
            }'
    done
}

./decode convert "$models/26m.gguf" -o "$dir/mqa.gguf" --kv-heads 1 --calib "$text" --refit all -q
rows "$models/26m.gguf" self:q4_0 self:q8_0 lookup "$dir/mqa.gguf"
rows "$models/26m-f16.gguf" self:q4_0 lookup
rows models/shakespeare-mha.gguf self:q4_0 lookup models/shakespeare-mqa.gguf
