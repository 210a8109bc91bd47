#!/bin/sh
# talk.sh DECODE - generate's sessions and saved texts: -i over pipes, and with signals. Run from the repository's top; the last line counts what passed and failed.
set -u

decode=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-talk-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
. tests/checks.sh

# say LINES ARGS...: a session that reads these lines, as printf has them.
say() {
    h_lines=$1
    shift
    printf "$h_lines" | "$decode" generate "$model" -i "$@" >"$out" 2>"$err"
    code=$?
}
# refused CODE TEXT ARGS...
refused() {
    h_code=$1 h_text=$2
    shift 2
    expect_error "$h_code" "$h_text" generate "$model" "$@"
}

# --- saved texts ----------------------------------------------------------------------------------

checks <<'EOF'
0 generate $model -p "What is" -n 40 --seed 7 -q | > $dir/whole
EOF
for how in "" "--kv-type q8_0" "--kv-heads 2" "--draft lookup" "--repeat-penalty 1.2 -t 2"; do
    checks <<'EOF'
0 generate $model -p "What is" -n 40 --seed 7 -q $how
$ tr -d '\n' <"$out" >"$dir/whole"
0 generate $model -p "What is" -n 17 --seed 7 -q $how --save-state "$dir/state"
$ tr -d '\n' <"$out" >"$dir/parts"
0 generate $model -n 23 -q $how --load-state "$dir/state"
$ tr -d '\n' <"$out" >>"$dir/parts"
$ cmp -s "$dir/whole" "$dir/parts"
EOF
done
checks <<'EOF'
0 generate $model -p "What is" -n 20 --greedy -q --save-state "$dir/state" | > $dir/begin
0 generate $model -p " now" -n 9 --greedy -q --load-state "$dir/state" | > $dir/more
0 generate $model -p "$(cat "$dir/begin") now" -n 9 --greedy -q
$ tail -c "$(wc -c <"$dir/more")" "$out" >"$dir/end"
$ cmp -s "$dir/end" "$dir/more"
0 generate $model -p x -n 400 --seed 1 --shift --save-state "$dir/shifted" -q
0 generate $model -n 400 --load-state "$dir/shifted" --shift -q
0 generate $model -p x -n 255 --seed 1 -q --save-state "$dir/full"
$ refused 2
    "the text has 256 tokens, the context 256: no room for 1 more; shorten what is added, raise" -p y
    --load-state "$dir/full"
$ refused 2 "raise -c" --load-state "$dir/full" -c 64
$ refused 2 "found F32; --kv-type changes it" --load-state "$dir/state" --kv-type f16
$ refused 2 "another model" --load-state "$dir/state" --kv-heads 1
$ refused 2 "another model" --load-state "$dir/state" --without 0.0
$ refused 3 "expected a saved text" --load-state tests/cli.sh
$ refused 3 "$dir/none" --load-state "$dir/none"
$ refused 1 "none/state" -p x --save-state "$dir/none/state"
$ shipped=$model
$ model=$dir/m.gguf
$ cp "$shipped" "$model"
$ ln -s m.gguf "$dir/link"
$ echo a text >"$dir/text"
EOF
for spared in "m.gguf:the checkpoint" "link:the checkpoint" "text:the text" "draft:the draft"; do
    cp "$shipped" "$dir/draft"
    refused 2 "--save-state: '$dir/${spared%:*}' is ${spared#*:} itself" -f "$dir/text" --draft "$dir/draft" --save-state "$dir/${spared%:*}"
done
checks <<'EOF'
$ say "a\n/save $model\n" -n 3 -q
$ has "$err" "/save: '$model' is the checkpoint itself"
$ cmp -s "$shipped" "$model"
$ model=$shipped
$ head -c 2000 "$dir/state" >"$dir/cut"
$ refused 3 "bytes, found 2000" --load-state "$dir/cut"
$ refused 2 "--samples and --load-state are both given" --load-state "$dir/state" --samples 2
$ refused 2 "--prompts and --save-state are both given" --save-state "$dir/new" --prompts "$dir/more"
$ refused 2 "--truncate and --load-state are both given" --load-state "$dir/state" --truncate head
EOF

{
    sleep 0.1
    "$decode" generate "$model" -p a -n 250 --seed 1 --save-state "$dir/unread" 2>"$err"
    echo $? >"$dir/code"
} | :
checks <<'EOF'
$ [ "$(cat "$dir/code")" = 141 ]
0 generate $model -n 2 --load-state "$dir/unread" -q
EOF

# --- sessions over pipes --------------------------------------------------------------------------

checks <<'EOF'
0 generate $model -p "What is" -n 12 --seed 7 -q --no-echo | > $dir/alone
$ say 'What is\n' -n 12 --seed 7 -q
$ is_code 0
$ cmp -s "$out" "$dir/alone"
$ say 'What is\n\n' -n 12 --seed 7 -q
$ tr -d '\n' <"$out" >"$dir/talked"
0 generate $model -p "What is" -n 24 --seed 7 -q --no-echo
$ tr -d '\n' <"$out" >"$dir/alone"
$ cmp -s "$dir/talked" "$dir/alone"
$ say 'one\\\ntwo\n' -n 12 --seed 7 -q
$ cp "$out" "$dir/talked"
EOF
run generate "$model" -p "one
two" -n 12 --seed 7 -q --no-echo
checks <<'EOF'
$ cmp -s "$out" "$dir/talked"
$ say 'one\\\n' -n 12 --seed 7 -q
$ cp "$out" "$dir/talked"
EOF
run generate "$model" -p "one
" -n 12 --seed 7 -q --no-echo
checks <<'EOF'
$ cmp -s "$out" "$dir/talked"
EOF
{
    echo 'one\'
    head -c 17000000 /dev/zero | tr '\0' a
    printf '\nx\n'
} >"$dir/lines.txt"
checks <<'EOF'
$ "$decode" generate "$model" -i -n 12 --seed 7 -q <"$dir/lines.txt" >"$dir/talked" 2>"$err"
$ has "$err" "a line has more than 16777216 bytes"
0 generate $model -p x -n 12 --seed 7 -q --no-echo | == $dir/talked
$ say '//x\n' -n 12 --seed 7 -q
$ cp "$out" "$dir/talked"
0 generate $model -p /x -n 12 --seed 7 -q --no-echo | == $dir/talked
$ say "What is\n/save $dir/talk\n\n/load $dir/talk\n\n" -n 12 --seed 7 -q
$ [ "$(sed -n 2p "$out")" = "$(sed -n 3p "$out")" ]
$ say '\n' -n 12 --load-state "$dir/talk" --seed 9 -q
$ cp "$out" "$dir/talked"
$ say '/seed 9\n\n' -n 12 --load-state "$dir/talk" -q
$ cmp -s "$out" "$dir/talked"
$ say 'a\n/temp 0\n/logprobs 2\nb\n/logprobs 0\nc\n' -n 3 --seed 1 -q
$ has_lines "$out" 5
$ grep -q '"position": 5, ' "$out"
$ say "$(head -c 300 /dev/zero | tr '\0' a)\n" -n 3 -q
$ has "$err" "the line has 300 tokens, the context only 256: shorten it"
$ say
    '/bogus\n/temp\n/temp x\n/temp -1\n/seed 1.5\n/save\n/save f\n/load f\n/help x\n/logprobs -1\n/quit\nno\n'
    -n 3
$ is_code 0
$ [ ! -s "$out" ]
EOF
for text in "unknown command '/bogus'; /help" "/temp: expected X, found ''" "found 'x'" \
    "/temp: expected a number" "/seed: expected an integer" "/save: expected FILE" \
    "there is no text yet" "/help: expected nothing behind it" "/logprobs: expected"; do
    has "$err" "$text"
done
checks <<'EOF'
$ say '/quit\n' -n 3 --save-state "$dir/unsaid"
$ has "$err" "there is no text to save in $dir/unsaid"
$ is_code 0
$ say '/help\n' -n 3
$ has "$err" "/logprobs N"
$ say 'a\nb\nc\n' -n 100 -c 64 --seed 1
$ has "$err" "context full (64 tokens): stopped after 64 of 100"
$ has "$err" "no room for 1 more"
$ say 'a\n\n' -n 100 -c 64 --seed 1
$ has "$err" "the context 64: no room for more;"
$ say 'a\nb\nc\n' -n 100 -c 64 --seed 1 --shift --draft lookup -q
$ cp "$out" "$dir/talked"
$ say 'a\nb\nc\n' -n 100 -c 64 --seed 1 --shift -q
$ say "a\n$(head -c 200 /dev/zero | tr '\0' b)\n" -n 9 --shift --seed 1 -q
$ has "$err" "no room for 200 more; shorten what is added"
$ lacks "$err" "with --shift"
$ say 'a\nb\nc\n' -n 100 -c 64 --seed 1 --shift -q
$ [ ! -s "$err" ]
$ cmp -s "$out" "$dir/talked"
$ say 'b\n' -n 5 -p a --seed 1 -q --save-state "$dir/talk"
$ [ "$(head -c 1 "$out")" = a ]
$ [ -s "$dir/talk" ]
$ refused 2 "-f - reads the lines that are those of -i" -i -f -
$ refused 2 "--prompts and --interactive are both given" -i --prompts "$dir/more"
$ refused 2 "--samples and --interactive are both given" -i --samples 3
EOF

# --- the model's own end ----------------------------------------------------------------------

# With a line feed as the end-of-text token.
checks <<'EOF'
$ cp "$model" "$dir/ends.gguf"
$ chmod u+w "$dir/ends.gguf"
$ at=$(grep -abo tokenizer.ggml.eos_token_id "$model" | cut -d : -f 1)
$ printf '\012' | dd of="$dir/ends.gguf" bs=1 seek=$((at + 31)) conv=notrunc 2>/dev/null
0 generate "$dir/ends.gguf" -p "ROMEO: I" -n 200 --seed 3 --save-state "$dir/ended" | 2> end of text
0 generate "$dir/ends.gguf" --load-state "$dir/ended" -n 200 | 0 lines
    | 2> the model has ended the text in '$dir/ended': -p adds to it
0 generate "$dir/ends.gguf" --load-state "$dir/ended" -n 20 -p " to" -q
$ [ -s "$out" ]
0 generate "$dir/ends.gguf" --load-state "$dir/ended" -n 20 --ignore-eos -q
$ [ -s "$out" ]
EOF

# --- Ctrl-C ---------------------------------------------------------------------------------------

mkfifo "$dir/lines"
: >"$out" # what stands there is not this one's
"$decode" generate "$model" -i -n 100M --shift --seed 1 <"$dir/lines" >"$out" 2>"$err" &
pid=$!
exec 3>"$dir/lines"
echo a >&3
await [ -s "$out" ]
kill -INT $pid
await has "$err" "interrupted after"
has "$err" "interrupted after"
echo /bogus >&3
await has "$err" "/bogus"
has "$err" "unknown command '/bogus'"
end_by INT $pid
is_code 130
has "$err" "peak memory"
exec 3>&-
for signal in TERM HUP; do
    # Under nohup it is ignored, by the program, too.
    if sh -c "kill -$signal \$\$" 2>/dev/null; then
        echo "skipped: SIG$signal is ignored here"
        continue
    fi
    checks <<'EOF'
$ : >"$out"
$ "$decode" generate "$model" -i -p a -n 100M --shift --seed 1 --save-state "$dir/$signal"
    <"$dir/lines" >"$out" 2>"$err" 3>&- &
$ pid=$!
$ exec 3>"$dir/lines"
$ await [ -s "$out" ]
$ end_by $signal $pid
$ exec 3>&-
$ is_code 130
$ [ -s "$dir/$signal" ]
EOF
done

echo "talk: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
