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

run generate "$model" -p "What is" -n 40 --seed 7 -q
cp "$out" "$dir/whole"
for how in "" "--kv-type q8_0" "--kv-heads 2" "--draft lookup" "--repeat-penalty 1.2 -t 2"; do
    run generate "$model" -p "What is" -n 40 --seed 7 -q $how
    tr -d '\n' <"$out" >"$dir/whole"
    run generate "$model" -p "What is" -n 17 --seed 7 -q $how --save-state "$dir/state"
    note "saved: $how" is_code 0
    tr -d '\n' <"$out" >"$dir/parts"
    run generate "$model" -n 23 -q $how --load-state "$dir/state"
    note "loaded: $how" is_code 0
    tr -d '\n' <"$out" >>"$dir/parts"
    note "two runs make the text of one: $how" cmp -s "$dir/whole" "$dir/parts"
done
run generate "$model" -p "What is" -n 20 --greedy -q --save-state "$dir/state"
cp "$out" "$dir/begin"
run generate "$model" -p " now" -n 9 --greedy -q --load-state "$dir/state"
cp "$out" "$dir/more"
run generate "$model" -p "$(cat "$dir/begin") now" -n 9 --greedy -q
tail -c "$(wc -c <"$dir/more")" "$out" >"$dir/end"
note "a prompt is added" cmp -s "$dir/end" "$dir/more"
run generate "$model" -p x -n 400 --seed 1 --shift --save-state "$dir/shifted" -q
note "a shifted text is saved" is_code 0
run generate "$model" -n 400 --load-state "$dir/shifted" --shift -q
note "and goes on" is_code 0
run generate "$model" -p x -n 255 --seed 1 -q --save-state "$dir/full"
refused 2 "the text has 256 tokens, the context 256: no room for 1 more; shorten what is added, raise" -p y --load-state "$dir/full"
refused 2 "raise -c" --load-state "$dir/full" -c 64
refused 2 "found F32; --kv-type changes it" --load-state "$dir/state" --kv-type f16
refused 2 "another model" --load-state "$dir/state" --kv-heads 1
refused 2 "another model" --load-state "$dir/state" --without 0.0
refused 3 "expected a saved text" --load-state tests/cli.sh
refused 3 "$dir/none" --load-state "$dir/none"
refused 1 "none/state" -p x --save-state "$dir/none/state"
shipped=$model
model=$dir/m.gguf
cp "$shipped" "$model"
ln -s m.gguf "$dir/link"
echo a text >"$dir/text"
for spared in "m.gguf:the checkpoint" "link:the checkpoint" "text:the text" "draft:the draft"; do
    cp "$shipped" "$dir/draft"
    refused 2 "--save-state: '$dir/${spared%:*}' is ${spared#*:} itself" \
        -f "$dir/text" --draft "$dir/draft" --save-state "$dir/${spared%:*}"
done
say "a\n/save $model\n" -n 3 -q
note "session: nor is it saved over" has "$err" "/save: '$model' is the checkpoint itself"
note "what is read is as it was" cmp -s "$shipped" "$model"
model=$shipped
head -c 2000 "$dir/state" >"$dir/cut"
refused 3 "bytes, found 2000" --load-state "$dir/cut"
refused 2 "--samples and --load-state are both given" --load-state "$dir/state" --samples 2
refused 2 "--prompts and --save-state are both given" --save-state "$dir/new" --prompts "$dir/more"
refused 2 "--truncate and --load-state are both given" --load-state "$dir/state" --truncate head

{
    sleep 0.1
    "$decode" generate "$model" -p a -n 250 --seed 1 --save-state "$dir/unread" 2>"$err"
    echo $? >"$dir/code"
} | :
note "nobody reads: ended by SIGPIPE" [ "$(cat "$dir/code")" = 141 ]
run generate "$model" -n 2 --load-state "$dir/unread" -q
note "nobody reads: the text is saved" is_code 0

# --- sessions over pipes --------------------------------------------------------------------------

run generate "$model" -p "What is" -n 12 --seed 7 -q --no-echo
cp "$out" "$dir/alone"
say 'What is\n' -n 12 --seed 7 -q
note "session: exit 0 at the end of input" is_code 0
note "session: a line is a prompt" cmp -s "$out" "$dir/alone"
say 'What is\n\n' -n 12 --seed 7 -q
tr -d '\n' <"$out" >"$dir/talked"
run generate "$model" -p "What is" -n 24 --seed 7 -q --no-echo
tr -d '\n' <"$out" >"$dir/alone"
note "session: an empty line goes on" cmp -s "$dir/talked" "$dir/alone"
say 'one\\\ntwo\n' -n 12 --seed 7 -q
cp "$out" "$dir/talked"
run generate "$model" -p "one
two" -n 12 --seed 7 -q --no-echo
note "session: a line is joined" cmp -s "$out" "$dir/talked"
say 'one\\\n' -n 12 --seed 7 -q
cp "$out" "$dir/talked"
run generate "$model" -p "one
" -n 12 --seed 7 -q --no-echo
note "session: a line that was to be joined is the last" cmp -s "$out" "$dir/talked"
{
    echo 'one\'
    head -c 17000000 /dev/zero | tr '\0' a
    printf '\nx\n'
} >"$dir/lines.txt"
"$decode" generate "$model" -i -n 12 --seed 7 -q <"$dir/lines.txt" >"$dir/talked" 2>"$err"
note "session: too long a line" has "$err" "a line has more than 16777216 bytes"
run generate "$model" -p x -n 12 --seed 7 -q --no-echo
note "session: nothing is left of it" cmp -s "$out" "$dir/talked"
say '//x\n' -n 12 --seed 7 -q
cp "$out" "$dir/talked"
run generate "$model" -p /x -n 12 --seed 7 -q --no-echo
note "session: a slash" cmp -s "$out" "$dir/talked"
say "What is\n/save $dir/talk\n\n/load $dir/talk\n\n" -n 12 --seed 7 -q
note "session: what is loaded goes on as before" [ "$(sed -n 2p "$out")" = "$(sed -n 3p "$out")" ]
say '\n' -n 12 --load-state "$dir/talk" --seed 9 -q
cp "$out" "$dir/talked"
say '/seed 9\n\n' -n 12 --load-state "$dir/talk" -q
note "session: --seed and /seed begin the same numbers" cmp -s "$out" "$dir/talked"
say 'a\n/temp 0\n/logprobs 2\nb\n/logprobs 0\nc\n' -n 3 --seed 1 -q
note "session: text, records, text" has_lines "$out" 5
note "session: records have their place in the text" grep -q '"position": 5, ' "$out"
say "$(head -c 300 /dev/zero | tr '\0' a)\n" -n 3 -q
note "session: a line of too many tokens" has "$err" \
    "the line has 300 tokens, the context only 256: shorten it"
say '/bogus\n/temp\n/temp x\n/temp -1\n/seed 1.5\n/save\n/save f\n/load f\n/help x\n/logprobs -1\n/quit\nno\n' -n 3
note "session: errors do not end it" is_code 0
note "session: nothing behind /quit" [ ! -s "$out" ]
for text in "unknown command '/bogus'; /help" "/temp: expected X, found ''" "found 'x'" \
    "/temp: expected a number" "/seed: expected an integer" "/save: expected FILE" \
    "there is no text yet" "/help: expected nothing behind it" "/logprobs: expected"; do
    note "session: '$text'" has "$err" "$text"
done
say '/quit\n' -n 3 --save-state "$dir/unsaid"
note "session: with no text there is none to save" has "$err" "there is no text to save in $dir/unsaid"
note "session: which is no failure" is_code 0
say '/help\n' -n 3
note "session: /help" has "$err" "/logprobs N"
say 'a\nb\nc\n' -n 100 -c 64 --seed 1
note "session: the context is full" has "$err" "context full (64 tokens): stopped after 64 of 100"
note "session: and then there is no room" has "$err" "no room for 1 more"
say 'a\n\n' -n 100 -c 64 --seed 1
note "session: nor for a token after an empty line" has "$err" "the context 64: no room for more;"
say 'a\nb\nc\n' -n 100 -c 64 --seed 1 --shift --draft lookup -q
cp "$out" "$dir/talked"
say 'a\nb\nc\n' -n 100 -c 64 --seed 1 --shift -q
say "a\n$(head -c 200 /dev/zero | tr '\0' b)\n" -n 9 --shift --seed 1 -q
note "session: --shift has room for half of the context" has "$err" "no room for 200 more; shorten what is added"
note "session: and is not what it lacks" lacks "$err" "with --shift"
say 'a\nb\nc\n' -n 100 -c 64 --seed 1 --shift -q
note "session: --shift goes on" [ ! -s "$err" ]
note "session: with a draft the same" cmp -s "$out" "$dir/talked"
say 'b\n' -n 5 -p a --seed 1 -q --save-state "$dir/talk"
note "session: -p is answered first" [ "$(head -c 1 "$out")" = a ]
note "session: saved at the end" [ -s "$dir/talk" ]
refused 2 "-f - reads the lines that are those of -i" -i -f -
refused 2 "--prompts and --interactive are both given" -i --prompts "$dir/more"
refused 2 "--samples and --interactive are both given" -i --samples 3

# --- the model's own end ----------------------------------------------------------------------

# With a line feed as the end-of-text token.
cp "$model" "$dir/ends.gguf"
chmod u+w "$dir/ends.gguf"
at=$(grep -abo tokenizer.ggml.eos_token_id "$model" | cut -d : -f 1)
printf '\012' | dd of="$dir/ends.gguf" bs=1 seek=$((at + 31)) conv=notrunc 2>/dev/null
run generate "$dir/ends.gguf" -p "ROMEO: I" -n 200 --seed 3 --save-state "$dir/ended"
note "a text that the model ends" has "$err" "end of text"
run generate "$dir/ends.gguf" --load-state "$dir/ended" -n 200
note "is not gone on with: exit 0" is_code 0
note "is not gone on with" is_empty "$out"
note "which is said" has "$err" "the model has ended the text in '$dir/ended': -p adds to it"
run generate "$dir/ends.gguf" --load-state "$dir/ended" -n 20 -p " to" -q
note "but with more text" [ -s "$out" ]
run generate "$dir/ends.gguf" --load-state "$dir/ended" -n 20 --ignore-eos -q
note "and where ends are ignored" [ -s "$out" ]

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
note "Ctrl-C ends the answer" has "$err" "interrupted after"
echo /bogus >&3
await has "$err" "/bogus"
note "and keeps the session" has "$err" "unknown command '/bogus'"
end_by INT $pid
note "at the prompt it ends it: exit 130" is_code 130
note "with the summary" has "$err" "peak memory"
exec 3>&-
for signal in TERM HUP; do
    # Under nohup it is ignored, by the program, too.
    if sh -c "kill -$signal \$\$" 2>/dev/null; then
        echo "skipped: SIG$signal is ignored here"
        continue
    fi
    : >"$out"
    "$decode" generate "$model" -i -p a -n 100M --shift --seed 1 --save-state "$dir/$signal" \
        <"$dir/lines" >"$out" 2>"$err" 3>&- &
    pid=$!
    exec 3>"$dir/lines"
    await [ -s "$out" ]
    end_by $signal $pid
    exec 3>&-
    note "SIG$signal ends all: exit 130" is_code 130
    note "SIG$signal: the text is saved" [ -s "$dir/$signal" ]
done

echo "talk: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
