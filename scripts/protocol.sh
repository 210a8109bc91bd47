#!/bin/sh
# protocol.sh TEXT [FOLDER] - how much uptraining a conversion needs: the GQA paper's question at toy
# scale. One MHA checkpoint of N steps; conversions to 4, 2 and 1 K/V heads by mean and by fit, each
# uptrained for 0, 1, 2, 5 and 10% of N steps (runs of their own, with their own decay; the same
# windows, warm-up and learning rate), fit also with the MHA checkpoint as the teacher. Controls: the
# MHA checkpoint uptrained as long, and GQA and MQA trained from scratch for N and 5% more steps. Bits
# per byte are over the last tenth of TEXT, which neither training nor calibration sees.
# Writes protocol.csv, protocol.md and, with matplotlib at hand, protocol.svg to FOLDER
# (build/protocol); prints the table. N is 1000, or $STEPS. Takes about ten minutes on two cores.
set -eu

text=$1
out=${2:-build/protocol}
steps=${STEPS:-1000}
mkdir -p "$out"
make -s decode

bytes=$(wc -c <"$text")
head -c $((bytes * 9 / 10)) "$text" >"$out/calib.txt"

# train OUT OPTIONS... - the setting of all runs.
train() {
    target=$1
    shift
    ./decode train "$text" -o "$target" --ctx 256 --batch 8 --seed 1 --keep last -q "$@"
    rm -f "$target.state"
}

# record METHOD GROUPS ALPHA CHECKPOINT
record() {
    bits=$(./decode eval "$4" --text "$text" --range 0.9:1 --format csv | tail -n 1 | cut -d, -f6)
    echo "$1,$2,$3,$bits" | tee -a "$out/protocol.csv" >&2
}

# further METHOD GROUPS CHECKPOINT OPTIONS... - uptrains for every alpha.
further() {
    method=$1 groups=$2 from=$3
    shift 3
    for alpha in 1 2 5 10; do
        train "$out/run.gguf" --from "$from" --steps $((steps * alpha / 100)) "$@"
        record "$method" "$groups" $alpha "$out/run.gguf"
    done
}

shape="--layers 4 --embd 128 --heads 8 --vocab 512"
echo "method,groups,alpha,bits_per_byte" >"$out/protocol.csv"
train "$out/mha.gguf" $shape --steps "$steps"
record mha 8 0 "$out/mha.gguf"
further mha 8 "$out/mha.gguf"
for groups in 4 2 1; do
    for method in mean fit; do
        ./decode convert "$out/mha.gguf" -o "$out/converted.gguf" --kv-heads $groups \
            --method $method $([ $method = fit ] && echo "--calib $out/calib.txt") --force -q \
            >/dev/null
        record $method $groups 0 "$out/converted.gguf"
        further $method $groups "$out/converted.gguf"
        [ $method = mean ] ||
            further teacher $groups "$out/converted.gguf" --teacher "$out/mha.gguf"
    done
    train "$out/run.gguf" $shape --kv-heads $groups --steps $((steps * 105 / 100))
    record scratch $groups 5 "$out/run.gguf"
done

awk -F, '
    NR > 1 { bits[$1, $2, $3] = $4 }
    function row(method, name, groups,    a) {
        printf "| %s | %s |", groups, name
        for (a = 1; a <= 5; a++)
            printf " %s |", (method, groups, alphas[a]) in bits ? \
                sprintf("%.3f", bits[method, groups, alphas[a]]) : ""
        printf "\n"
    }
    END {
        split("0 1 2 5 10", alphas, " ")
        print "| K/V heads | from | 0% | 1% | 2% | 5% | 10% |"
        print "|--:|:--|--:|--:|--:|--:|--:|"
        row("mha", "MHA, uptrained as long", 8)
        for (g = 4; g >= 1; g /= 2) {
            row("mean", "mean", g)
            row("fit", "fit", g)
            row("teacher", "fit, with the MHA as teacher", g)
            row("scratch", "from scratch, all steps and 5% more", g)
        }
    }' "$out/protocol.csv" >"$out/protocol.md"
cat "$out/protocol.md"
if python3 -c 'import matplotlib' 2>/dev/null; then
    python3 scripts/plot_protocol.py "$out/protocol.csv" "$out/protocol.svg"
else
    echo "protocol.sh: python3 has no matplotlib: no plot is drawn" >&2
fi
