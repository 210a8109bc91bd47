# common.sh - what the scripts of this folder share. They source it (bash), and then have:
#   $decode   the program: $DECODE, or ./decode of this tree
#   $dir      a folder for what they make, build/questions/NAME, which is kept: what is there is not made
#             again. With SHORT=1, in seconds, the smallest form of each: build/questions/short/NAME
#   $text     the TEXT that they were given, if they need one (`needs_text`)
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

# needs_text "$@": the text is the first argument; in the short form its first 6,000 bytes.
needs_text() {
    [[ -n ${1-} && -f $1 && -r $1 ]] || { echo "$name.sh: expected a text, as shakespeare.txt" >&2 && exit 2; }
    text=$1
    [ $short = no ] || { head -c 6000 "$1" >"$dir/text" && text=$dir/text; }
}

# steps N: so many, or two in the short form.
steps() { [ $short = no ] && echo "$1" || echo 2; }

# study FOLDER TEXT [--rates R,...] OPTIONS...: scripts/study.sh in a folder of this question, on both processors: three
# seeds, and four learning rates unless --rates says others. The short form has one of each.
study() {
    local folder=$dir/$1 which=$2 rates=0.005,0.01,0.02,0.04
    shift 2
    [ "$1" != --rates ] || { rates=$2 && shift 2; }
    [ $short = no ] || rates=0.02
    "$root/scripts/study.sh" "$which" "$folder" --rates "$rates" --seeds $([ $short = no ] && echo 3 || echo 1) \
        --jobs 2 -t 1 "$@" 2>"$dir/log" || { tail -n 3 "$dir/log" >&2 && exit 1; }
}

# best FOLDER ARM [SEED]: the checkpoints of an arm's best learning rate, a line each seed, or that of one.
best() {
    awk -F, -v arm="$2" -v seed="${3-}" -v at="$dir/$1/" \
        '$1 == arm && $8 == "yes" && (seed == "" || $5 == seed) { print at $7 ".gguf" }' "$dir/$1/study.csv"
}

# floor TEXT CONTEXT LABEL: a row of study's table for a table of counts (counts.py).
counts() { python3 "$here/counts.py" "$@"; }
floor() { counts "$1" "$2" | awk -v label="$3" '{ printf "| %s | counts | | | | %.4f | | | |\n", label, $2 }'; }

# column NAME FILE: of a CSV with a header, a line each; a line's end within a cell becomes a space.
column() {
    python3 -c 'import csv, sys
for row in csv.DictReader(open(sys.argv[2], newline="", encoding="utf-8", errors="replace")):
    print(row[sys.argv[1]].replace("\n", " "))' "$1" "$2"
}

# picture PANELS...: draws $dir/NAME.svg, by figure.py.
picture() { python3 "$here/figure.py" "$dir/$name.svg" "$@"; }
