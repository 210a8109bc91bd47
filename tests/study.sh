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

checks <<'EOF'
0 study "$text" -o "$dir/whole" $small $cells --teacher -v --format jsonl --plot "$dir/plot.svg"
# Per seed: MHA at 0 and 5%; two methods and a rank at 0, 5% and 5% taught; one from scratch.
$ has_lines "$dir/whole/results.jsonl" 24
$ has_lines "$out" 36
$ has "$out"
    '{"cell": "s2-mqa-fit-taught-a5", "seed": 2, "kv_heads": 1, "latent": 0, "method": "fit", "taught": true, "alpha": 5, "steps": 2, "bits_per_byte": '
$ has "$out"
    '{"kv_heads": 1, "variant": "MQA", "method": "scratch", "taught": false, "alpha": 5, "seeds": 2, '
$ has "$dir/whole/results.jsonl"
    '{"cell": "s1-mla4-latent-a0", "seed": 1, "kv_heads": 1, "latent": 4, "method": "latent", '
$ has "$dir/whole/s1-mla4-latent-a0.json" '"cache_bytes_per_token": 16,'
$ has "$dir/whole/s1-mqa-fit-a0.json" '"cache_bytes_per_token": 80,'
$ lacks "$dir/whole/results.jsonl" seconds
$ has "$dir/plot.svg" "MQA, fit, taught"
$ lacks_files "$dir/whole" '*.part.*'
$ [ "$(find "$dir/whole" -name '*.gguf' | wc -l)" -eq 24 ]
$ cp "$err" "$dir/commands"

# Each command as -v shows it, with the folder's name changed, makes the same file.
$ mkdir "$dir/alone"
$ cp "$dir/whole/calib.txt" "$dir/alone"
EOF
grep -E '^decode: (train|convert) ' "$dir/commands" |
    sed -e 's/^decode: //' -e "s|$dir/whole/|$dir/alone/|g" -e 's/[.]part[.]/./' >"$dir/lines"
has_lines "$dir/lines" 24
while IFS= read -r line; do
# shellcheck disable=SC2086 # as a shell would cut it
    "$DECODE" $line >/dev/null 2>&1
done <"$dir/lines"
for file in "$dir"/alone/*.gguf; do
    checks <<'EOF'
$ cmp -s "$file" "$dir/whole/$(basename "$file")"
EOF
done
checks <<'EOF'
$ one="eval $dir/whole/s1-mqa-fit-a5.gguf --text $text --range 0.9:1 --format jsonl -q"
$ bits=$("$DECODE" $one | sed 's/.*"bits_per_byte": \([0-9.]*\).*/\1/')
$ has "$dir/whole/s1-mqa-fit-a5.json" "\"bits_per_byte\": $bits,"
0 info "$dir/whole/s1-mqa-fit-a5.gguf" | MQA
0 info "$dir/whole/s2-mla4-latent-taught-a5.gguf" | MLA-4
EOF

# Names that a shell would take apart are in quotes.
cp "$text" "$dir/it's \$1"
run study "$dir/it's \$1" -o "$dir/quoted" $small --seeds 1 --method first --alpha 0 --scratch none -v
checks <<'EOF'
$ grep '^decode: train ' "$err" | sed -e 's/^decode: //' -e "s|[^ ]*part.gguf|$dir/quoted.gguf|"
    >"$dir/line"
$ has_lines "$dir/line" 1
$ sh -c "\"$DECODE\" $(cat "$dir/line")" >/dev/null 2>&1
$ cmp -s "$dir/quoted.gguf" "$dir/quoted/s1-mha-a0.gguf"
EOF

# --- again --------------------------------------------------------------------------------------

find "$dir/whole" -type f | sort | xargs cksum >"$dir/before"
checks <<'EOF'
0 study "$text" -o "$dir/whole" $small $cells --teacher
$ [ ! -s "$err" ]
EOF
find "$dir/whole" -type f | sort | xargs cksum >"$dir/after"
checks <<'EOF'
$ cmp -s "$dir/before" "$dir/after"
$ has "$out" "MQA      fit, taught"
EOF

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

checks <<'EOF'
0 study "$text" -o "$dir/plain" $small $cells -q
EOF
for signal in INT TERM; do
    for after in 1 4 9; do
        checks <<'EOF'
$ name=$signal-$after
$ interrupt $signal $after "$name"
$ [ "$code" -eq 130 -o "$code" -eq 0 ]
$ [ "$code" -eq 0 -o ! -s "$out" ]
0 study "$text" -o "$dir/$name" $small $cells -q
$ cmp -s "$dir/$name/results.jsonl" "$dir/plain/results.jsonl"
$ lacks_files "$dir/$name" '*.part.*'
$ cmp -s "$dir/$name/s2-mqa-fit-a5.gguf" "$dir/plain/s2-mqa-fit-a5.gguf"
EOF
    done
done

# A training that was ended after it saved.
mkdir "$dir/saved"
grep -E -- '-o|--output' "$dir/lines" | head -n 1 |
    sed "s|$dir/alone/s1-mha-a0.gguf|$dir/saved/s1-mha-a0.part.gguf|" >"$dir/line"
# shellcheck disable=SC2046
checks <<'EOF'
$ "$DECODE" $(cat "$dir/line") --save-every 7 >/dev/null 2>&1
$ [ -e "$dir/saved/s1-mha-a0.part.gguf.state" ]
0 study "$text" -o "$dir/saved" $small $cells -v | 2> --resume
$ cmp -s "$dir/saved/results.jsonl" "$dir/plain/results.jsonl"

0 study "$text" -o "$dir/shards" $small $cells --shard $shard -q | for shard in 1/2 0/2
$ cmp -s "$dir/shards/results.jsonl" "$dir/plain/results.jsonl"
EOF
for shard in 0/3 1/3 2/3; do
    "$DECODE" study "$text" -o "$dir/side" $small $cells --shard $shard -q >/dev/null 2>>"$err" &
done
checks <<'EOF'
$ wait
$ cmp -s "$dir/side/results.jsonl" "$dir/plain/results.jsonl"
EOF

# Two runs of one study, as a job that was queued twice: what one makes the other waits for.
for twin in 1 2; do
    "$DECODE" study "$text" -o "$dir/twins" $small $cells -v >/dev/null 2>"$dir/twin$twin" &
done
checks <<'EOF'
$ wait
$ cmp -s "$dir/twins/results.jsonl" "$dir/plain/results.jsonl"
$ [ "$(cd "$dir/twins" && cat s*.gguf | cksum)" = "$(cd "$dir/plain" && cat s*.gguf | cksum)" ]
$ [ "$(cat "$dir/twin1" "$dir/twin2" | grep -c 'decode: train ')" -eq
    "$(ls "$dir"/plain/s*.gguf | grep -c -e scratch -e mha-a0 -e 'a5.gguf')" ]
$ grep -q "waiting for another run in" "$dir/twin1" "$dir/twin2"

# Killed between a record and its line, or the list deleted: the next run has all again.
$ rm "$dir/twins/results.jsonl"
0 study "$text" -o "$dir/twins" $small $cells -q
$ cmp -s "$dir/twins/results.jsonl" "$dir/plain/results.jsonl"
$ tail -n +3 "$dir/plain/results.jsonl" >"$dir/twins/results.jsonl"
0 study "$text" -o "$dir/twins" $small $cells -q
$ cmp -s "$dir/twins/results.jsonl" "$dir/plain/results.jsonl"
$ lacks "$dir/twins/s1-mha-a0.json" us_per_token

# A user's own files in the folder.
$ mkdir "$dir/user"
$ cp "$text" "$dir/user/calib.txt"
$ echo mine >"$dir/user/results.jsonl"
2 "$dir/user/calib.txt" -o "$dir/user" $small | has a calib.txt that no study has made
$ cmp -s "$text" "$dir/user/calib.txt"
$ rm "$dir/user/calib.txt"
2 "$text" -o "$dir/user" $small | has a results.jsonl that no study has made
$ [ "$(cat "$dir/user/results.jsonl")" = mine ]

# A checkpoint that something is still to be made from is made again.
$ cp -r "$dir/plain" "$dir/gone"
$ rm "$dir"/gone/s1-mqa-fit-a*.gguf "$dir/gone/s1-mqa-fit-a5.json" "$dir/gone/s1-mha-a0.gguf"
0 study "$text" -o "$dir/gone" $small $cells -q
$ cmp -s "$dir/gone/s1-mqa-fit-a5.gguf" "$dir/plain/s1-mqa-fit-a5.gguf"
$ cmp -s "$dir/gone/results.jsonl" "$dir/plain/results.jsonl"

# A folder from before there were latent caches: records that say nothing of them.
$ cp -r "$dir/plain" "$dir/older"
$ rm "$dir"/older/s?-mla4-*
EOF
for file in "$dir"/older/*.json; do
    sed 's/ "latent": 0,//' "$file" >"$dir/record"
    cp "$dir/record" "$file"
done
checks <<'EOF'
0 study "$text" -o "$dir/older" $small $cells -v | 2! --method fit
$ cmp -s "$dir/older/results.jsonl" "$dir/plain/results.jsonl"
EOF

# --- of a given checkpoint ----------------------------------------------------------------------

checks <<'EOF'
$ given="--from $dir/plain/s1-mha-a0.gguf --batch 1 --ctx 8 --steps 40 -t 1"
$ given_cells="--method mean,fit --latent 4 --alpha 0,5"
0 study "$text" -o "$dir/given" $given $given_cells -v | 2! --steps 40
$ cmp -s "$dir/given/s1-mha-a0.gguf" "$dir/plain/s1-mha-a0.gguf"
$ grep '"seed": 1,' "$dir/plain/results.jsonl" | grep -v scratch >"$dir/expected"
$ cmp -s "$dir/given/results.jsonl" "$dir/expected"
$ rm "$dir/given/s1-mha-a0.gguf" "$dir/given/s1-mla4-latent-a0.json" "$dir/given/s1-mla4-latent-a0.gguf"
0 study "$text" -o "$dir/given" $given $given_cells -q
$ cmp -s "$dir/given/s1-mha-a0.gguf" "$dir/plain/s1-mha-a0.gguf"
$ cmp -s "$dir/given/results.jsonl" "$dir/expected"
2 "$text" -o "$dir/given" --from "$dir/plain/s2-mha-a0.gguf" --batch 1 --ctx 8 --steps 40
    | of another study
2 "$text" -o "$dir/x" $given --heads 2 | --heads and --from
2 "$text" -o "$dir/x" $given --scratch 5 | --scratch and --from
2 "$text" -o "$dir/x" --from "$dir/plain/s1-mqa-fit-a0.gguf" | expected an MHA checkpoint, found MQA
2 "$text" -o "$dir/x" --from "$dir/plain/s1-mla4-latent-a0.gguf"
    | expected an MHA checkpoint, found MLA-4
3 "$text" -o "$dir/x" --from "$text" | magic
2 "$text" -o "$dir/x" $given --plot "$dir/plain/s1-mha-a0.gguf" | --plot
EOF

# --- what is refused ----------------------------------------------------------------------------

checks <<'EOF'
2  | no text is named
2 "$text" | no folder is named
2 - -o "$dir/x" | every cell reads the text again
2 "$text" -o "$text" | expected a folder
3 "$dir/missing" -o "$dir/x" | missing
2 "$text" -o "$dir/x" $small --kv-heads 2 | expected divisors of the 2 query heads below them, found 2
2 "$text" -o "$dir/x" $small --method fitt | --method
2 "$text" -o "$dir/x" $small --method latent | --method
2 "$text" -o "$dir/x" $small --latent 9 | --latent: expected integers from 1 to 8, found '9'
2 "$text" -o "$dir/x" $small --latent 4,4 | --latent
2 "$text" -o "$dir/x" $small --latent 4 --arch llama | than rope
2 "$text" -o "$dir/x" $small --alpha "$shares" | --alpha | for shares in "" 1, 1,,2 -1 1,1 10001 x "1;2"
2 "$text" -o "$dir/x" $small --shard "$shard" | --shard | for shard in "" 1 1/ /2 2/2 -1/2 0/0 0/2/3
# Cells of one name would be one file.
2 "$text" -o "$dir/x" $small --alpha 1,1.0000001 | no more than six digits, found '1.0000001'
2 "$text" -o "$dir/x" $small --scratch some | --scratch
2 "$text" -o "$dir/x" $small --val-fraction 0 | --val-fraction
2 "$text" -o "$dir/x" $small --plot "$text" | --plot
2 "$text" -o "$dir/plain" $small --batch 2 | of another study
$ [ ! -e "$dir/x" ]
$ cp -r "$dir/plain" "$dir/bent"
$ echo '{"cell": 5}' >"$dir/bent/s1-mha-a5.json"
3 "$text" -o "$dir/bent" $small $cells | s1-mha-a5.json: "cell" at byte 1
$ echo 'x' >"$dir/bent/study.json"
3 "$text" -o "$dir/bent" $small $cells | study.json

$ echo "study.sh: $passed passed, $failed failed"
EOF
[ "$failed" -eq 0 ]
