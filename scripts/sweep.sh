#!/bin/sh
# sweep.sh - many small runs as jobs, one command a line; --help tells how.
# shellcheck disable=SC2046,SC2086
set -eu

usage() {
    cat <<'END'
usage: sweep.sh train DIR TEXT [--OPTION V[,V...]]...   lists runs that train and score
       sweep.sh convert [--OPTION V[,V...]]... <JOBS    lists conversions of what JOBS train
       sweep.sh run DIR TEXT NAME                       does what a line says
       sweep.sh array JOBS                              does line $SLURM_ARRAY_TASK_ID of JOBS
       sweep.sh merge DIR                               puts all scores into DIR/results.jsonl

A line for each combination of the options' values. `train` varies the options of `decode train` that
take one value; `convert` --kv-heads, --method and --group of `decode convert` and, with --steps,
uptrains what it converted, with any other options of `decode train`.

A run's name is its settings; DIR is for the runs of one TEXT. It makes DIR/NAME.gguf and, last,
DIR/NAME.json: its score on the last tenth of TEXT, which neither training nor calibration sees.
Both appear whole or not at all. A run whose score is there does nothing; one whose training was
interrupted goes on from what was saved.

    scripts/sweep.sh train runs text.txt --layers 2,4 --embd 64 --heads 4 --seed 1,2,3 >train.jobs
    scripts/sweep.sh convert --kv-heads 2,1 --method mean,fit --steps 0,50 <train.jobs >convert.jobs

With GNU parallel, the same again for what failed or was interrupted:

    parallel -j 4 --joblog train.log --resume-failed <train.jobs
    parallel -j 4 --joblog convert.log --resume-failed <convert.jobs
    scripts/sweep.sh merge runs

As Slurm arrays, of at most MaxArraySize - 1 lines (1000 unless the cluster says otherwise):

    id=$(sbatch --parsable --array=1-$(wc -l <train.jobs) scripts/sweep.sh array train.jobs)
    sbatch --dependency=afterok:$id --array=1-$(wc -l <convert.jobs) \
        scripts/sweep.sh array convert.jobs

$DECODE is the program (./decode), $DECODE_THREADS the threads of each run, which change no result.
Paths stay as they are given: list and run the lines in the same folder.
END
}

fail() {
    code=$1
    shift
    echo "sweep.sh: $*" >&2
    exit "$code"
}

# --- listing ------------------------------------------------------------------------------------

# A line's words need no quotes, nor escapes in JSON.
plain_path() {
    case $1 in
    '' | -* | *[!A-Za-z0-9_./,=+-]*)
        fail 2 "'$1': expected a path of letters, digits and _ . / , = + - only"
        ;;
    esac
}

# settings [--OPTION V,V...]...: $list, OPTION=V,V a line; sorted, so that the order of options
# changes no name.
settings() {
    list=
    while [ $# -gt 0 ]; do
        case $1 in
        --[a-z]*) ;;
        *) fail 2 "'$1': expected --OPTION V[,V...]; see --help" ;;
        esac
        [ $# -ge 2 ] || fail 2 "$1: expected a value, or several with commas between"
        case ,$2, in
        ,--* | *,,* | *[!A-Za-z0-9.,-]*)
            fail 2 "$1 '$2': expected values of letters, digits and points, commas between"
            ;;
        esac
        list="$list${1#--}=$2
"
        shift 2
    done
    list=$(printf %s "$list" | LC_ALL=C sort)
}

# each SEPARATOR OPTION=V,V...: every line of standard input, with every combination of the values.
each() {
    if [ $# -eq 1 ]; then
        cat
        return
    fi
    separator=$1 option=${2%%=*} values=${2#*=}
    shift 2
    while IFS= read -r line; do
        for value in $(echo "$values" | tr , ' '); do
            echo "$line$separator$option=$value"
        done
    done | each , "$@"
}

list_train() {
    [ $# -ge 2 ] || fail 2 "train: expected DIR TEXT; see --help"
    dir=$1 text=$2
    shift 2
    plain_path "$0" && plain_path "$dir" && plain_path "$text"
    [ -r "$text" ] || fail 3 "$text: cannot be read"
    case " $* " in
    *' --seed '*) ;;
    *) set -- --seed 1 "$@" ;; # one of chance would be in no name
    esac
    settings "$@"
    mkdir -p "$dir"
    echo "sh $0 run $dir $text " | each '' $list
}

list_convert() {
    settings "$@"
    case $list in
    *kv-heads=*) each + $list ;;
    *) fail 2 "convert: expected --kv-heads G[,G...]" ;;
    esac
}

# --- what a line does ---------------------------------------------------------------------------

# as_options PATTERN SETTINGS: those whose whole name matches.
as_options() { echo "$2" | tr , '\n' | grep -E "^($1)=" | sed 's/^/--/; s/=/ /' || :; }

# as_json PREFIX SETTINGS: members of an object, each with a comma after it.
as_json() {
    echo "$2" | tr , '\n' | awk -F= -v prefix="$1" '
        NF == 2 {
            gsub("-", "_", $1)
            number = $2 ~ /^-?(0|[1-9][0-9]*)([.][0-9]+)?(e-?[0-9]+)?$/
            printf "\"%s%s\": %s, ", prefix, $1, number ? $2 : "\"" $2 "\""
        }'
}

# train_part OPTIONS...: $part.gguf, from where an interrupted run was saved.
train_part() {
    if [ -e "$part.gguf.state" ]; then set -- "$@" --resume; else set -- "$@" --force; fi
    "$decode" train "$text" -o "$part.gguf" --keep last -q "$@"
}

# convert_part OPTIONS...: $part.converted, calibrated on what is not held out.
convert_part() {
    [ -e "$dir/$base.gguf" ] ||
        fail 1 "$dir/$base.gguf: not there; run the line that trains it first"
    case " $* " in
    *' --method '[!f]* | *' --method first '*) ;; # take no text
    *)
        head -c $(($(wc -c <"$text") * 9 / 10)) "$text" >"$part.txt"
        set -- "$@" --calib "$part.txt"
        ;;
    esac
    "$decode" convert "$dir/$base.gguf" -o "$part.converted" --seed 1 -q "$@" >/dev/null
}

# checkpoint: $part.gguf, as the name says.
checkpoint() {
    if [ -z "$further" ]; then
        train_part $(as_options '.*' "$base")
        return
    fi
    [ -e "$part.converted" ] || convert_part $(as_options 'kv-heads|method|group' "$further")
    case ,$further, in
    *,steps=0,*) mv "$part.converted" "$part.gguf" ;;
    *,steps=*)
        train_part --from "$part.converted" $(as_options seed "$base") \
            $(as_options '.*' "$further" | grep -vE '^--(kv-heads|method|group) ')
        ;;
    *) mv "$part.converted" "$part.gguf" ;;
    esac
}

run() {
    [ $# -eq 3 ] || fail 2 "run: expected DIR TEXT NAME"
    dir=$1 text=$2 name=$3
    base=${name%%+*} further=
    [ "$base" = "$name" ] || further=${name#*+}
    part=$dir/$name.part
    if [ -e "$dir/$name.json" ]; then
        echo "sweep.sh: $name: finished before" >&2
        return
    fi
    if [ ! -e "$dir/$name.gguf" ]; then
        checkpoint
        mv "$part.gguf" "$dir/$name.gguf"
    fi
    "$decode" eval "$dir/$name.gguf" --text "$text" --range 0.9:1 --format jsonl -q >"$part.eval"
    members="\"name\": \"$name\", $(as_json '' "$base")$(as_json convert_ "$further")"
    sed "s|^{|{$members|" "$part.eval" >"$part.json"
    mv "$part.json" "$dir/$name.json"
    rm -f "$part".*
}

array() {
    [ $# -eq 1 ] || fail 2 "array: expected JOBS"
    id=${SLURM_ARRAY_TASK_ID:?is set by sbatch --array}
    line=$(sed -n "${id}p" "$1")
    [ -n "$line" ] || fail 2 "$1: has no line $id"
    exec sh -c "$line"
}

merge() {
    [ -d "${1-}" ] || fail 2 "merge: expected DIR"
    cd "$1"
    find . -name '*.json' ! -name '*.part.json' | LC_ALL=C sort | xargs cat >results.jsonl.part
    mv results.jsonl.part results.jsonl
    echo "sweep.sh: $1/results.jsonl: $(wc -l <results.jsonl) results" >&2
}

decode=${DECODE:-./decode}
command=${1:---help}
[ $# -eq 0 ] || shift
case $command in
-h | --help | help) usage ;;
train) list_train "$@" ;;
convert) list_convert "$@" ;;
run | array | merge) "$command" "$@" ;;
*) fail 2 "$command: expected train, convert, run, array or merge; see --help" ;;
esac
