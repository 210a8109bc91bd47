# same.sh - runs two builds of the program on the same command lines and compares exit codes, output and
# files byte for byte, without times. same_bits.sh and same_results.sh source it. The variables of
# functions here begin with h_, because a shell has one set of names, and the callers' loops use others.

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
untime=$PWD/scripts/check/untime.awk
runs=0
differing=0

# same_begin NAME FIRST SECOND - NAME is what messages begin with. FIRST and SECOND are the programs; each
# may be several words, such as an emulator and its program. Each runs in a folder of its own, which has
# links to tests and models.
same_begin() {
    h_name=$1 h_first=$2 h_second=$3
    mkdir -p "$work/first" "$work/second"
    for h_folder in tests models; do
        ln -sfn "$PWD/$h_folder" "$work/first/$h_folder"
        ln -sfn "$PWD/$h_folder" "$work/second/$h_folder"
    done
}

# in_folder FOLDER PROGRAM ARGUMENT... - runs the program there; leaves its exit code, standard output and
# standard error in files beside those that it writes
in_folder() {
    cd "$work/$1"
    h_program=$2
    shift 2
    h_code=0
    # shellcheck disable=SC2086 # words
    $h_program "$@" >out 2>err </dev/null || h_code=$?
    echo $h_code >code
    for h_file in out err *.csv; do
        [ -s "$h_file" ] || continue
        awk -v memory="${MEMORY:-}" -f "$untime" "$h_file" >untimed
        mv untimed "$h_file"
    done
}

# same ARGUMENT... - runs both programs with these arguments and compares their folders; prints the files that
# differ, and the first lines of the difference
same() {
    (in_folder first "$h_first" "$@") &
    (in_folder second "$h_second" "$@")
    wait
    runs=$((runs + 1))
    if ! diff -rq --no-dereference "$work/first" "$work/second" >"$work/differ"; then
        echo "$h_name: decode $*: not the same:"
        sed "s#$work/##g; s/^/    /" "$work/differ"
        (cd "$work" && diff -raU0 --no-dereference first second | grep -a '^[-+][^-+]' |
            head -n 4 | cut -c 1-200 | sed 's/^/        /') || true
        differing=$((differing + 1))
        same_forget
    fi
}

# same_forget - removes the files that the programs wrote
same_forget() {
    find "$work/first" "$work/second" -type f -exec rm {} +
}

# same_logits MODEL OPTION... - compares logits, as a file and as the rows of score
same_logits() {
    same score "$@" --logits logits.npy -q
}

# same_types MODEL TYPE... - compares the model converted to each type, its logits and its texts
same_types() {
    h_model=$1
    shift
    for h_type in "$@"; do
        same convert "$h_model" -o quantized.gguf --type "$h_type" --force --requantize --format jsonl -q
        same score quantized.gguf --logits logits.npy -q \
            -p "ROMEO: What light through yonder window breaks?"
        same generate quantized.gguf -p "ROMEO:" -n 10 --greedy -q
    done
    same_forget
}
