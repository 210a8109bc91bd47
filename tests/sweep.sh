#!/bin/sh
# sweep.sh DECODE - scripts/sweep.sh with the smallest runs that there are. Run from the
# repository's top; the last line counts what passed and failed.
set -u

DECODE=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
export DECODE
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-sweep-XXXXXX")
trap 'rm -rf "$dir"' EXIT
. tests/checks.sh
sweep=scripts/sweep.sh
runs=$dir/runs
text=$dir/text

# run ARGS...: the script with its output in $out and $err, its exit code in $code.
run() {
    sh $sweep "$@" >"$out" 2>"$err"
    code=$?
}

# do_lines JOBS: all its lines; in $code how many failed.
do_lines() {
    code=0
    : >"$err"
    while IFS= read -r line; do
        sh -c "$line" 2>>"$err" || code=$((code + 1))
    done <"$1"
}

files() { [ "$(find "$runs" -name "$1" | wc -l)" -eq "$2" ]; }

expect_error() {
    h_code=$1 h_text=$2
    shift 2
    run "$@" </dev/null
    note "exit $h_code, found $code: $*" is_code "$h_code"
    note "nothing is listed: $*" [ ! -s "$out" ]
    note "one line with '$h_text': $*" [ "$(grep -cF -e "$h_text" "$err")" -eq "$(wc -l <"$err")" ]
}

# --- names --------------------------------------------------------------------------------------

awk 'BEGIN { for (i = 0; i < 400; i++) print "line", i * 7919 % 1000, "of a text" }' >"$text"
shape="--embd 8 --layers 1 --heads 2 --ctx 8 --batch 1"
run train "$runs" "$text" $shape --steps 2,3 --seed 1,2
note "a line a combination" has_lines "$out" 4
note "settings are the name" [ "$(sed -n 2p "$out")" = \
    "sh $sweep run $runs $text batch=1,ctx=8,embd=8,heads=2,layers=1,seed=1,steps=3" ]
cp "$out" "$dir/train"
run train "$runs" "$text" --seed 1,2 --steps 2,3 $shape
note "in any order of options" cmp -s "$out" "$dir/train"
run train "$runs" "$text" --layers 1
note "a seed is in every name" [ "$(cat "$out")" = "sh $sweep run $runs $text layers=1,seed=1" ]
run convert --method mean,fit --kv-heads 1 --steps 0,1 <"$dir/train"
note "a line a conversion" has_lines "$out" 16
note "its name begins with what it converts" [ "$(sed -n 16p "$out")" = \
    "$(sed -n 4p "$dir/train")+kv-heads=1,method=fit,steps=1" ]
cp "$out" "$dir/convert"

# --- runs ---------------------------------------------------------------------------------------

sed -n 1p "$dir/convert" >"$dir/early"
do_lines "$dir/early"
note "nothing to convert yet" is_code 1
note "what to do first" has "$err" "steps=2.gguf: not there; run the line that trains it first"
do_lines "$dir/train"
note "trains" is_code 0
do_lines "$dir/convert"
note "converts" is_code 0
note "a checkpoint each" files '*.gguf' 20
note "a score each" files '*.json' 20
note "nothing else" files '*.part*' 0
run merge "$runs"
note "merged" has_lines "$runs/results.jsonl" 20
note "settings are members" has "$runs/results.jsonl" \
    '"steps": 3, "convert_kv_heads": 1, "convert_method": "fit", "convert_steps": 1, "tokens": '
name="batch=1,ctx=8,embd=8,heads=2,layers=1,seed=2,steps=3"
"$DECODE" train "$text" -o "$dir/same.gguf" $shape --steps 3 --seed 2 --keep last -q
note "the same as train makes" cmp -s "$dir/same.gguf" "$runs/$name.gguf"
head -c $(($(wc -c <"$text") * 9 / 10)) "$text" >"$dir/calib"
"$DECODE" convert "$runs/$name.gguf" -o "$dir/mqa.gguf" --kv-heads 1 --calib "$dir/calib" -q >"$out"
note "the same as convert makes" cmp -s "$dir/mqa.gguf" \
    "$runs/$name+kv-heads=1,method=fit,steps=0.gguf"

# --- again --------------------------------------------------------------------------------------

rm "$runs/$name.json" "$runs/$name+kv-heads=1,method=fit,steps=1".*
cat >"$dir/watched" <<END
#!/bin/sh
echo "\$*" >>"$dir/calls"
exec "$DECODE" "\$@"
END
chmod +x "$dir/watched"
cat "$dir/train" "$dir/convert" >"$dir/all"
DECODE=$dir/watched do_lines "$dir/all"
note "again" is_code 0
note "only what is missing: a score, and all of another" [ \
    "$(cut -d ' ' -f 1 "$dir/calls" | tr '\n' ' ')" = "eval convert train eval " ]
run merge "$runs"
note "whole again" has_lines "$runs/results.jsonl" 20

# As one that was interrupted leaves it: what is saved is used, and ends in the same bytes.
"$DECODE" train "$text" -o "$runs/$name.part.gguf" $shape --steps 3 --seed 2 --keep last -q
rm "$runs/$name".gguf "$runs/$name".json
: >"$dir/calls"
sed -n 4p "$dir/train" >"$dir/one"
DECODE=$dir/watched do_lines "$dir/one"
note "goes on" has "$dir/calls" "--resume"
note "to the same bytes" cmp -s "$dir/same.gguf" "$runs/$name.gguf"

# What fails leaves neither a score nor what would pass for a checkpoint.
rm "$runs/$name".*
printf '#!/bin/sh\n[ "$1" = train ] && exec "%s" "$@"\nexit 7\n' "$DECODE" >"$dir/watched"
DECODE=$dir/watched do_lines "$dir/one"
note "a failure is one" is_code 1
note "no score of a failure" [ ! -e "$runs/$name.json" ]
SLURM_ARRAY_TASK_ID=4 run array "$dir/train"
note "a line of an array" [ -e "$runs/$name.json" ]

# --- what cannot be listed ----------------------------------------------------------------------

expect_error 2 "expected DIR TEXT" train "$runs"
expect_error 2 "expected a path of letters" train "$dir/a b" "$text" --layers 1
expect_error 2 "expected --OPTION" train "$runs" "$text" layers 1
expect_error 2 "expected a value" train "$runs" "$text" --layers
expect_error 2 "commas between" train "$runs" "$text" --layers 1,,2
expect_error 2 "commas between" train "$runs" "$text" --layers '1;2'
expect_error 3 "cannot be read" train "$runs" "$dir/none" --layers 1
expect_error 2 "expected --kv-heads" convert --method fit
expect_error 2 "expected train, convert, run, array or merge" bogus
expect_error 2 "expected DIR TEXT NAME" run "$runs"
expect_error 2 "expected DIR" merge "$dir/none"
SLURM_ARRAY_TASK_ID=5 expect_error 2 "has no line 5" array "$dir/train"
run --help
note "help" has "$out" "usage: sweep.sh train"

echo "sweep: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
