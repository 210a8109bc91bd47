#!/bin/sh
# typed.sh DECODE - what people type who know other programs of the kind: their options, texts that
# are piped in, readers that leave, numbers with units, files that are no text, contexts that are
# full. Run from the repository's top; the last line counts what passed and failed.
set -u

decode=$1
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-typed-XXXXXX")
trap 'rm -rf "$dir"' EXIT
. tests/checks.sh

# Tokens of a text that goes beyond the context of 256, and what it is made with.
tokens=600 all_ways='-t+1 --block+7 --draft+lookup --draft+self:q4_0+--draft-n+5'
case $decode in
*/asan/* | */tsan/*) tokens=300 all_ways='--draft+lookup' ;;
esac

# piped FILE ARGS...: the same with the file coming through a pipe.
piped() {
    h_file=$1
    shift
    cat "$h_file" | "$decode" "$@" >"$out" 2>"$err"
    code=$?
}

# same NAME: the last run succeeded, with the bytes of $dir/NAME.
same() {
    note "$1: exit 0, found $code" is_code 0
    note "$1: the same" cmp -s "$out" "$dir/$1"
}

# --- others' names ------------------------------------------------------------------------------

while IFS='|' read -r words ours; do
    expect_error 2 "$ours" $words
done <<EOF
generate m --temperature 0.7|did you mean '--temp'?
generate m --ctx-size=512|did you mean '--ctx'?
generate m --n-predict 5|did you mean '--n'?
generate m --top_k 5|did you mean '--top-k'?
generate m --max_new_tokens 5|did you mean '--n'?
eval m --file x|did you mean '--text'?
generate m -ngl 99|computes on the CPU alone
train t --batch-size 5|did you mean '--batch'?
EOF
for number in 0.8 1.0 0; do
    expect_error 2 "found '$number'; a temperature is --temp" generate "$model" -t $number
done
expect_error 2 "unexpected argument 'Once upon'; expected a text with -p" generate "$model" "Once upon"
expect_error 2 "unexpected argument 'more'" info "$model" more

# --- numbers ------------------------------------------------------------------------------------

expect_error 2 "-n: expected an integer, 0 to 2147483647" generate "$model" -n 100000000000000
expect_error 2 "-n: expected an integer, 0 to 2147483647" generate "$model" -n 3G
expect_error 2 "--cache-bytes: expected a number of bytes, as 8192 or 8KiB" \
    convert "$model" -o "$dir/x.gguf" --cache-bytes 8kb --calib tests/cli.sh
run generate "$model" -p "To be" -n 2k --seed 1 -q
cp "$out" "$dir/thousands"
run generate "$model" -p "To be" -n 2000 --seed 1 -q
same thousands
for g in mqa MQA gqa-2 mha; do
    run bench "$model" --kv-heads $g -n 1 --repeat 1 --warmup 0 --prompt 0 --format csv -q
    note "--kv-heads $g: a row" has_lines "$out" 2
done
run generate "$model" -p "To be" -n 5 --kv-heads 1 --seed 1 -q
cp "$out" "$dir/mqa"
run generate "$model" -p "To be" -n 5 --kv-heads MQA --seed 1 -q
same mqa
expect_error 2 "MHA, GQA-G, MQA" generate "$model" -p x --kv-heads few
run bench "$model" --kv-heads 1 --depth 256 -n 1 --repeat 1 --warmup 0 --prompt 0 --format csv
note "bench --depth CTX: the deepest there is" is_code 0
note "bench --depth CTX is said" has "$err" "measured at 255"
expect_error 2 "depth 257: expected 0 to 255" bench "$model" --depth 257
for words in "bench $model --plot" "attend $model -p x --svg" \
    "heads $model --text tests/cli.sh --svg" "study t -o d --plot"; do
    expect_error 2 "a name that ends in .svg" $words "$dir/x.PNG"
done
note "no picture" [ ! -e "$dir/x.PNG" ]

# --- texts on standard input --------------------------------------------------------------------

printf 'To be, or' >"$dir/text"
run generate "$model" -f "$dir/text" -n 20 --seed 1 -q
cp "$out" "$dir/continued"
run generate "$model" -n 20 --seed 1 -q <"$dir/text"
same continued
piped "$dir/text" generate "$model" -n 20 --seed 1 -q
same continued
{
    sleep 1.2
    cat "$dir/text"
} | "$decode" generate "$model" -n 20 --seed 1 >"$out" 2>"$err"
code=$?
same continued
note "a slow one is waited for, which is said" has "$err" "waiting for the text on standard input"
for command in score attend tokenize; do
    run $command "$model" -f "$dir/text"
    cp "$out" "$dir/$command"
    piped "$dir/text" $command "$model"
    same $command
done
# Nobody, and nothing, is no text; what is given goes before what is there.
run generate "$model" -n 20 --seed 1 -q
cp "$out" "$dir/alone"
piped /dev/null generate "$model" -n 20 --seed 1 -q
same alone
"$decode" generate "$model" -n 20 --seed 1 -q <&- >"$out" 2>"$err"
code=$?
same alone
piped "$dir/text" generate "$model" -p '' -n 20 --seed 1 -q
same alone
expect_error 2 "expected -p, -f or --tokens" score "$model"
expect_error 2 "expected -p, -f or --decode" tokenize "$model"
piped /dev/null score "$model"
note "an empty pipe is no text: exit 2" is_code 2
note "an empty pipe is said" has "$err" "the text is empty"
run score "$model" --tokens 1,2
cp "$out" "$dir/ids"
piped "$dir/text" score "$model" --tokens 1,2
same ids

# --- tokenize takes back what it prints ---------------------------------------------------------

for form in table json; do
    "$decode" tokenize "$model" -f "$dir/text" --format $form >"$dir/ids"
    run tokenize "$model" --decode "$(cat "$dir/ids")"
    same text
    run tokenize "$model" --decode - <"$dir/ids"
    same text
done
"$decode" tokenize "$model" -f "$dir/text" | tr ' ' '\n' >"$dir/ids"
piped "$dir/ids" tokenize "$model" --decode -
same text
printf '1 2\0 3' >"$dir/ids"
expect_error 2 "found a zero byte behind 3 others" tokenize "$model" --decode - <"$dir/ids"
expect_error 2 "--decode: item 2 is 'x'" tokenize "$model" --decode "[1, x]"

# --- what is no text ----------------------------------------------------------------------------

head -c 100000 "$model" >"$dir/binary"
for words in "generate $model -n 1 -f" "score $model -f" "tokenize $model -f" "eval $model" \
    "heads $model --text" "train -o $dir/x.gguf --layers 1" \
    "convert $model -o $dir/x.gguf --kv-heads 1 --calib" "study -o $dir/x" \
    "convert $model -o $dir/x.gguf --kv-heads 1 --method mean --eval"; do
    expect_error 2 "expected text, found" $words "$dir/binary"
done
note "nothing is made of it" [ ! -e "$dir/x.gguf" -a ! -e "$dir/x" ]
run tokenize "$model" -f - <"$dir/binary"
note "standard input takes it" is_code 0
printf '\303' >"$dir/half"
run tokenize "$model" -f "$dir/half"
note "half a character is a text" is_line "$out" 195

# --- eval MODEL TEXT, train over what is there --------------------------------------------------

head -c 2000 tests/cli.sh >"$dir/lines"
run eval "$model" --text "$dir/lines" --format csv
cut -d , -f 1-6 "$out" >"$dir/scored"
for words in "$model $dir/lines" "-m $model $dir/lines"; do
    "$decode" eval $words --format csv | cut -d , -f 1-6 >"$out"
    same scored
done
toy="--layers 1 --embd 16 --heads 2 --ctx 16 --batch 1 --steps 2 --seed 1"
run train "$dir/lines" -o "$dir/toy.gguf" $toy
note "train: 1 layer, 2 heads" has "$err" "1 layer, d_model 16, 2 heads (MHA)"
expect_error 2 "toy.gguf' exists; --resume goes on with an unfinished run, --force" \
    train "$dir/lines" -o "$dir/toy.gguf" $toy
mv "$dir/toy.gguf" "$dir/kept.gguf"
expect_error 2 "toy.gguf.state' exists" train "$dir/lines" -o "$dir/toy.gguf" $toy
run train "$dir/lines" -o "$dir/toy.gguf" $toy --force -q
note "train --force: replaced" cmp -s "$dir/toy.gguf" "$dir/kept.gguf"

# --- readers that leave -------------------------------------------------------------------------

# left ARGS...: the exit code, and what is said, when the reader has gone.
left() {
    {
        sleep 0.1
        "$decode" "$@" 2>"$err"
        echo $? >"$dir/code"
    } | :
    note "nobody reads: ended by SIGPIPE: $*" [ "$(cat "$dir/code")" = 141 ]
    note "nobody reads: not a word: $*" [ ! -s "$err" ]
}
left generate "$model" -p x -n 250 --samples 2000 --seed 1
left generate "$model" -p x -n 2 --logprobs 2
left score "$model" -p "To be"
left help
printf 'a\nb\n' >"$dir/prompts"
left generate "$model" --prompts "$dir/prompts" -n 5
run score "$model" -p "To be" --logits "$dir/read.npy"
left score "$model" -p "To be" --logits "$dir/unread.npy"
note "a file that was asked for is whole" cmp -s "$dir/read.npy" "$dir/unread.npy"

# --- a context that is full ---------------------------------------------------------------------

shift_text="generate $model -f $dir/text -n $tokens --seed 1 --shift --keep 3"
run generate "$model" -f "$dir/text" -n $tokens --seed 1
note "it ends" has "$err" "context full (256 tokens): stopped after 248 of $tokens; --shift goes on"
cp "$out" "$dir/full"
run $shift_text
cp "$out" "$dir/shifted"
note "--shift goes on" [ "$(wc -c <"$out")" -gt "$(wc -c <"$dir/full")" ]
note "--shift: as before until then" [ "$(head -c 240 "$out")" = "$(head -c 240 "$dir/full")" ]
note "--shift is counted" has "$err" "tokens fed again"
note "--shift: the prompt is what it was" has "$err" "prompt       9 tokens"
for way in $all_ways; do
    run $shift_text -q $(echo "$way" | tr + ' ')
    same shifted
done
run $shift_text -q --samples 3
cp "$out" "$dir/samples"
note "--shift: the first of several is the one alone" [ \
    "$(head -c "$(wc -c <"$dir/shifted")" "$out" | cksum)" = "$(cksum <"$dir/shifted")" ]
run $shift_text -q --samples 3 --batch 1
same samples
printf 'a\nTo be, or\nHark\n' >"$dir/prompts"
many="generate $model --prompts $dir/prompts -n $tokens --seed 1 --shift -q"
run $many --batch 1
cp "$out" "$dir/many"
note "--shift with --prompts: all are whole" [ "$(grep -c '"finish": "length"' "$out")" -eq 3 ]
run $many --batch 3 --draft lookup
same many
expect_error 2 "--keep is for --shift" generate "$model" -p x --keep 3
expect_error 2 "--keep: expected 0 to 128" generate "$model" -p x --shift --keep 129

head -c 1000 tests/cli.sh >"$dir/long"
expect_error 2 "the prompt has 1000 tokens, the context only 256: shorten the prompt, or cut it with" \
    generate "$model" -f "$dir/long" -n 10
tail -c 247 "$dir/long" >"$dir/end"
head -c 247 "$dir/long" >"$dir/beginning"
for cut in head:end tail:beginning; do
    run generate "$model" -f "$dir/${cut#*:}" -n 10 --seed 1 --no-echo -q
    cp "$out" "$dir/cut"
    run generate "$model" -f "$dir/long" -n 10 --seed 1 --no-echo --truncate "${cut%:*}"
    same cut
    note "--truncate is said" has "$err" "the prompt has 1000 tokens, the context 256: its"
done
tr '\n' ' ' <"$dir/long" >"$dir/line"
run generate "$model" --prompts "$dir/line" -n 10 --truncate head
note "--truncate with --prompts: a text" has "$out" '"finish": "length"'
note "--truncate with --prompts: what is cut" has "$out" ', "cut": 753}'
note "--truncate with --prompts: it is counted" has "$err" "prompts      1 done, 0 errors, 1 cut; 247"
run generate "$model" -p x -n 10 -c 1
note "a context of one token" has "$err" "context full (1 token): stopped after 1 of 10"
run generate "$model" -f "$dir/text" -n 10 --truncate tail
note "--truncate leaves alone what fits" lacks "$err" "cut off"

echo "typed: $passed passed, $failed failed"
[ $failed -eq 0 ]
