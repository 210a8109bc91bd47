#!/bin/sh
# study.sh DECODE - decode study with the smallest models that there are: cells are those of the
# commands that it shows, twice the same bytes, interrupted and resumed, in shards. Run from the
# repository's top; the last line counts what passed and failed.
set -u

DECODE=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-study-XXXXXX")
trap 'rm -rf "$dir"' EXIT
. tests/checks.sh
unset NO_COLOR

# run ARGS...: its output in $out and $err, its exit code in $code.
run() {
    "$DECODE" "$@" >"$out" 2>"$err" </dev/null
    code=$?
}

expect_error() {
    h_code=$1 h_text=$2
    shift 2
    run study "$@"
    note "exit $h_code, found $code: study $*" is_code "$h_code"
    note "nothing is printed: study $*" [ ! -s "$out" ]
    note "one line with '$h_text': study $*" \
        [ "$(grep -cF -e "$h_text" "$err")" -eq "$(wc -l <"$err")" ]
}

lacks_files() { [ -z "$(find "$1" -name "$2")" ]; }

text=$dir/text
awk 'BEGIN { for (i = 0; i < 300; i++) print "line", i * 7919 % 1000, "of a text" }' >"$text"
small="--embd 8 --layers 1 --heads 2 --ff 8 --ctx 8 --batch 1 --steps 40 -t 1"
cells="--seeds 2 --method mean,fit --latent 4 --alpha 0,5"

# --- a whole one --------------------------------------------------------------------------------

run study "$text" -o "$dir/whole" $small $cells --teacher -v --format jsonl --plot "$dir/plot.svg"
note "a study ends well" is_code 0
# Per seed: MHA at 0 and 5%; two methods and a rank at 0, 5% and 5% taught; one from scratch.
note "a line a cell" has_lines "$dir/whole/results.jsonl" 24
note "printed are the cells, then their means" has_lines "$out" 36
note "a cell's line" has "$out" '{"cell": "s2-mqa-fit-taught-a5", "seed": 2, "kv_heads": 1, "latent": 0, "method": "fit", "taught": true, "alpha": 5, "steps": 2, "bits_per_byte": '
note "a mean's line" has "$out" '{"kv_heads": 1, "variant": "MQA", "method": "scratch", "taught": false, "alpha": 5, "seeds": 2, '
note "a latent cell's line" has "$dir/whole/results.jsonl" '{"cell": "s1-mla4-latent-a0", "seed": 1, "kv_heads": 1, "latent": 4, "method": "latent", '
note "its cache has one vector a layer" has "$dir/whole/s1-mla4-latent-a0.json" '"cache_bytes_per_token": 16,'
note "MQA's has a key of 4, and a value of 4 in a lane of 16" has "$dir/whole/s1-mqa-fit-a0.json" '"cache_bytes_per_token": 80,'
note "results have no times" lacks "$dir/whole/results.jsonl" seconds
note "a plot" has "$dir/plot.svg" "MQA, fit, taught"
note "nothing of a training is left" lacks_files "$dir/whole" '*.part.*'
note "a checkpoint a cell" [ "$(find "$dir/whole" -name '*.gguf' | wc -l)" -eq 24 ]
cp "$err" "$dir/commands"

# Each command as -v shows it, with the folder's name changed, makes the same file.
mkdir "$dir/alone"
cp "$dir/whole/calib.txt" "$dir/alone"
grep -E '^decode: (train|convert) ' "$dir/commands" |
    sed -e 's/^decode: //' -e "s|$dir/whole/|$dir/alone/|g" -e 's/[.]part[.]/./' >"$dir/lines"
note "a command a checkpoint" has_lines "$dir/lines" 24
while IFS= read -r line; do
    # shellcheck disable=SC2086 # as a shell would cut it
    "$DECODE" $line >/dev/null 2>&1
done <"$dir/lines"
for file in "$dir"/alone/*.gguf; do
    note "alone: $(basename "$file")" cmp -s "$file" "$dir/whole/$(basename "$file")"
done
one="eval $dir/whole/s1-mqa-fit-a5.gguf --text $text --range 0.9:1 --format jsonl -q"
bits=$("$DECODE" $one | sed 's/.*"bits_per_byte": \([0-9.]*\).*/\1/')
note "its bits are those of eval" has "$dir/whole/s1-mqa-fit-a5.json" "\"bits_per_byte\": $bits,"
run info "$dir/whole/s1-mqa-fit-a5.gguf"
note "it is what its name says" has "$out" "MQA"
run info "$dir/whole/s2-mla4-latent-taught-a5.gguf"
note "so is a latent one" has "$out" "MLA-4"

# Names that a shell would take apart are in quotes.
cp "$text" "$dir/it's \$1"
run study "$dir/it's \$1" -o "$dir/quoted" $small --seeds 1 --method first --alpha 0 --scratch none -v
grep '^decode: train ' "$err" | sed -e 's/^decode: //' -e "s|[^ ]*part.gguf|$dir/quoted.gguf|" >"$dir/line"
note "the command is shown" has_lines "$dir/line" 1
sh -c "\"$DECODE\" $(cat "$dir/line")" >/dev/null 2>&1
note "and a shell reads it back" cmp -s "$dir/quoted.gguf" "$dir/quoted/s1-mha-a0.gguf"

# --- again --------------------------------------------------------------------------------------

find "$dir/whole" -type f | sort | xargs cksum >"$dir/before"
run study "$text" -o "$dir/whole" $small $cells --teacher
note "nothing is made again" [ ! -s "$err" ]
find "$dir/whole" -type f | sort | xargs cksum >"$dir/after"
note "nothing is changed" cmp -s "$dir/before" "$dir/after"
note "a table of cells and one of means" has "$out" "MQA      fit, taught"

# --- interrupted, and in shards -----------------------------------------------------------------

# interrupt SIGNAL CELLS NAME: begins a study, sends the signal once so many cells are done.
interrupt() {
    "$DECODE" study "$text" -o "$dir/$3" $small $cells >"$out" 2>"$err" </dev/null &
    h_pid=$!
    while [ "$(wc -l <"$err")" -lt "$2" ] && kill -0 "$h_pid" 2>/dev/null; do
        sleep 0.01
    done
    kill -"$1" "$h_pid" 2>/dev/null
    wait "$h_pid"
    code=$?
}

run study "$text" -o "$dir/plain" $small $cells -q
note "a study without a teacher" is_code 0
for signal in INT TERM; do
    for after in 1 4 9; do
        name=$signal-$after
        interrupt $signal $after "$name"
        note "$name: 130, or all was done, found $code" [ "$code" -eq 130 -o "$code" -eq 0 ]
        note "$name: nothing is printed" [ "$code" -eq 0 -o ! -s "$out" ]
        run study "$text" -o "$dir/$name" $small $cells -q
        note "$name: the same command goes on" is_code 0
        note "$name: the same results" cmp -s "$dir/$name/results.jsonl" "$dir/plain/results.jsonl"
        note "$name: nothing of a training is left" lacks_files "$dir/$name" '*.part.*'
        note "$name: the same checkpoint" cmp -s "$dir/$name/s2-mqa-fit-a5.gguf" \
            "$dir/plain/s2-mqa-fit-a5.gguf"
    done
done

# A training that was ended after it saved.
mkdir "$dir/saved"
grep -E -- '-o|--output' "$dir/lines" | head -n 1 |
    sed "s|$dir/alone/s1-mha-a0.gguf|$dir/saved/s1-mha-a0.part.gguf|" >"$dir/line"
# shellcheck disable=SC2046
"$DECODE" $(cat "$dir/line") --save-every 7 >/dev/null 2>&1
note "a state to go on from" [ -e "$dir/saved/s1-mha-a0.part.gguf.state" ]
run study "$text" -o "$dir/saved" $small $cells -v
note "it goes on from it" has "$err" "--resume"
note "and comes to the same" cmp -s "$dir/saved/results.jsonl" "$dir/plain/results.jsonl"

for shard in 1/2 0/2; do
    run study "$text" -o "$dir/shards" $small $cells --shard $shard -q
    note "shard $shard ends well" is_code 0
done
note "two shards, one's results" cmp -s "$dir/shards/results.jsonl" "$dir/plain/results.jsonl"
for shard in 0/3 1/3 2/3; do
    "$DECODE" study "$text" -o "$dir/side" $small $cells --shard $shard -q >/dev/null 2>>"$err" &
done
wait
note "three at once, one's results" cmp -s "$dir/side/results.jsonl" "$dir/plain/results.jsonl"

# Two runs of one study, as a job that was queued twice: what one makes the other waits for.
for twin in 1 2; do
    "$DECODE" study "$text" -o "$dir/twins" $small $cells -v >/dev/null 2>"$dir/twin$twin" &
done
wait
note "twins: one's results" cmp -s "$dir/twins/results.jsonl" "$dir/plain/results.jsonl"
note "twins: every checkpoint" [ "$(cd "$dir/twins" && cat s*.gguf | cksum)" = "$(cd "$dir/plain" && cat s*.gguf | cksum)" ]
note "twins: nothing is made twice" \
    [ "$(cat "$dir/twin1" "$dir/twin2" | grep -c 'decode: train ')" -eq "$(ls "$dir"/plain/s*.gguf | grep -c -e scratch -e mha-a0 -e 'a5.gguf')" ]
note "twins: one waits, and says so" grep -q "waiting for another run in" "$dir/twin1" "$dir/twin2"

# Killed between a record and its line, or the list deleted: the next run has all again.
rm "$dir/twins/results.jsonl"
run study "$text" -o "$dir/twins" $small $cells -q
note "the list is made of the records" cmp -s "$dir/twins/results.jsonl" "$dir/plain/results.jsonl"
tail -n +3 "$dir/plain/results.jsonl" >"$dir/twins/results.jsonl"
run study "$text" -o "$dir/twins" $small $cells -q
note "lines that are missing are written" cmp -s "$dir/twins/results.jsonl" "$dir/plain/results.jsonl"
note "no times that bench could contradict" lacks "$dir/twins/s1-mha-a0.json" us_per_token

# A user's own files in the folder.
mkdir "$dir/user"
cp "$text" "$dir/user/calib.txt"
echo mine >"$dir/user/results.jsonl"
expect_error 2 "has a calib.txt that no study has made" "$dir/user/calib.txt" -o "$dir/user" $small
note "the user's text is whole" cmp -s "$text" "$dir/user/calib.txt"
rm "$dir/user/calib.txt"
expect_error 2 "has a results.jsonl that no study has made" "$text" -o "$dir/user" $small
note "the user's results are whole" [ "$(cat "$dir/user/results.jsonl")" = mine ]

# A checkpoint that something is still to be made from is made again.
cp -r "$dir/plain" "$dir/gone"
rm "$dir"/gone/s1-mqa-fit-a*.gguf "$dir/gone/s1-mqa-fit-a5.json" "$dir/gone/s1-mha-a0.gguf"
run study "$text" -o "$dir/gone" $small $cells -q
note "checkpoints that are gone are made again" is_code 0
note "to the same" cmp -s "$dir/gone/s1-mqa-fit-a5.gguf" "$dir/plain/s1-mqa-fit-a5.gguf"
note "with the same results" cmp -s "$dir/gone/results.jsonl" "$dir/plain/results.jsonl"

# A folder from before there were latent caches: records that say nothing of them.
cp -r "$dir/plain" "$dir/older"
rm "$dir"/older/s?-mla4-*
for file in "$dir"/older/*.json; do
    sed 's/ "latent": 0,//' "$file" >"$dir/record"
    cp "$dir/record" "$file"
done
run study "$text" -o "$dir/older" $small $cells -v
note "an older folder goes on" is_code 0
note "with what it lacks alone" lacks "$err" "--method fit"
note "to the same results" cmp -s "$dir/older/results.jsonl" "$dir/plain/results.jsonl"

# --- of a given checkpoint ----------------------------------------------------------------------

given="--from $dir/plain/s1-mha-a0.gguf --batch 1 --ctx 8 --steps 40 -t 1"
given_cells="--method mean,fit --latent 4 --alpha 0,5"
run study "$text" -o "$dir/given" $given $given_cells -v
note "a given checkpoint" is_code 0
note "is not trained" lacks "$err" "--steps 40"
note "is the MHA cell" cmp -s "$dir/given/s1-mha-a0.gguf" "$dir/plain/s1-mha-a0.gguf"
grep '"seed": 1,' "$dir/plain/results.jsonl" | grep -v scratch >"$dir/expected"
note "the cells that its own study has" cmp -s "$dir/given/results.jsonl" "$dir/expected"
rm "$dir/given/s1-mha-a0.gguf" "$dir/given/s1-mla4-latent-a0.json" \
    "$dir/given/s1-mla4-latent-a0.gguf"
run study "$text" -o "$dir/given" $given $given_cells -q
note "it is put there again" cmp -s "$dir/given/s1-mha-a0.gguf" "$dir/plain/s1-mha-a0.gguf"
note "for the same" cmp -s "$dir/given/results.jsonl" "$dir/expected"
expect_error 2 "of another study" "$text" -o "$dir/given" --from "$dir/plain/s2-mha-a0.gguf" \
    --batch 1 --ctx 8 --steps 40
expect_error 2 "--heads and --from" "$text" -o "$dir/x" $given --heads 2
expect_error 2 "--scratch and --from" "$text" -o "$dir/x" $given --scratch 5
expect_error 2 "expected an MHA checkpoint, found MQA" "$text" -o "$dir/x" \
    --from "$dir/plain/s1-mqa-fit-a0.gguf"
expect_error 2 "expected an MHA checkpoint, found MLA-4" "$text" -o "$dir/x" \
    --from "$dir/plain/s1-mla4-latent-a0.gguf"
expect_error 3 "magic" "$text" -o "$dir/x" --from "$text"
expect_error 2 "--plot" "$text" -o "$dir/x" $given --plot "$dir/plain/s1-mha-a0.gguf"

# --- what is refused ----------------------------------------------------------------------------

expect_error 2 "no text is named"
expect_error 2 "no folder is named" "$text"
expect_error 2 "every cell reads the text again" - -o "$dir/x"
expect_error 2 "expected a folder" "$text" -o "$text"
expect_error 3 "missing" "$dir/missing" -o "$dir/x"
expect_error 2 "expected divisors of the 2 query heads below them, found 2" "$text" -o "$dir/x" $small \
    --kv-heads 2
expect_error 2 "--method" "$text" -o "$dir/x" $small --method fitt
expect_error 2 "--method" "$text" -o "$dir/x" $small --method latent
expect_error 2 "--latent: expected integers from 1 to 8, found '9'" "$text" -o "$dir/x" $small \
    --latent 9
expect_error 2 "--latent" "$text" -o "$dir/x" $small --latent 4,4
expect_error 2 "than rope" "$text" -o "$dir/x" $small --latent 4 --arch llama
for shares in "" 1, 1,,2 -1 1,1 10001 x "1;2"; do
    expect_error 2 "--alpha" "$text" -o "$dir/x" $small --alpha "$shares"
done
for shard in "" 1 1/ /2 2/2 -1/2 0/0 0/2/3; do
    expect_error 2 "--shard" "$text" -o "$dir/x" $small --shard "$shard"
done
# Cells of one name would be one file.
expect_error 2 "no more than six digits, found '1.0000001'" "$text" -o "$dir/x" $small \
    --alpha 1,1.0000001
expect_error 2 "--scratch" "$text" -o "$dir/x" $small --scratch some
expect_error 2 "--val-fraction" "$text" -o "$dir/x" $small --val-fraction 0
expect_error 2 "--plot" "$text" -o "$dir/x" $small --plot "$text"
expect_error 2 "of another study" "$text" -o "$dir/plain" $small --batch 2
note "nothing was made of these" [ ! -e "$dir/x" ]
cp -r "$dir/plain" "$dir/bent"
echo '{"cell": 5}' >"$dir/bent/s1-mha-a5.json"
expect_error 3 's1-mha-a5.json: "cell" at byte 1' "$text" -o "$dir/bent" $small $cells
echo 'x' >"$dir/bent/study.json"
expect_error 3 "study.json" "$text" -o "$dir/bent" $small $cells

echo "study.sh: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
