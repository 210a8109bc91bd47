#!/bin/sh
# cli.sh DECODE - the program end to end: every command, every exit code, what goes to which
# stream. Run from the repository's top; the last line counts what passed and failed.
set -u

decode=$1
golden=tests/data/golden
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-cli-XXXXXX")
trap 'rm -rf "$dir"' EXIT
. tests/checks.sh

# --- helpers ------------------------------------------------------------------------------------

expect_exit() {
    h_code=$1
    shift
    run "$@"
    note "exit $h_code, found $code: $*" is_code "$h_code"
}

# expect_line TEXT ARGS...: exit 0 and exactly this line on stdout.
expect_line() {
    h_text=$1
    shift
    run "$@"
    note "exit 0, found $code: $*" is_code 0
    note "prints '$h_text': $*" is_line "$out" "$h_text"
}

# expect_same FILE ARGS...: exit 0 and the bytes of FILE on stdout.
expect_same() {
    h_file=$1
    shift
    run "$@"
    note "exit 0, found $code: $*" is_code 0
    note "same output: $*" cmp -s "$out" "$h_file"
}

repeat() { head -c "$2" /dev/zero | tr '\0' "$1"; }

# --- help, version, dispatch --------------------------------------------------------------------

run
note "no arguments: exit 2" is_code 2
note "no arguments: usage on stderr" has "$err" "usage: decode"
note "no arguments: nothing on stdout" is_empty "$out"

for words in help --help -h "help help"; do
    expect_exit 0 $words
    note "$words lists the commands" has "$out" "generate   continue a text"
    note "$words: nothing on stderr" is_empty "$err"
done
for command in generate bench score tokenize quantize info; do
    expect_exit 0 help $command
    cp "$out" "$dir/help"
    note "help $command" has "$out" "usage: decode $command "
    expect_same "$dir/help" $command --help
    expect_same "$dir/help" $command -h
    expect_same "$dir/help" $command nosuchfile -q --help --nosuchoption
    text="-p x"
    case $command in bench | quantize | info) text= ;; esac
    expect_error 2 "no checkpoint is named" $command $text
    expect_error 2 "two checkpoints are named" $command "$model" -m "$model" $text
    expect_error 2 "unexpected argument 'more'" $command "$model" more $text
done
expect_exit 0 --version
for word in "decode " compiler "compiled in" "this machine runs" scalar threads; do
    note "version says $word" has "$out" "$word"
done
note "version: nothing on stderr" is_empty "$err"
expect_error 2 "did you mean 'generate'?" genrate
expect_error 2 "did you mean '--help'?" --hlep
expect_error 2 "unknown command 'xyzzy'" xyzzy
expect_error 2 "unknown command 'xyzzy'" help xyzzy
expect_error 2 "unknown command ''" ""
expect_error 2 "--format man is of all commands; expected none named, found 'generate'" \
    help generate --format man
expect_error 2 "--format: expected one of text, man, bash, found 'csh'" help --format csh

# --- options ------------------------------------------------------------------------------------

expect_error 2 "did you mean '--temp'?" generate "$model" --tmep 1
expect_error 2 "unknown option '--xyzzy'" generate "$model" --xyzzy
expect_error 2 "unknown option '-n5'" generate "$model" -n5
expect_error 2 "-n needs a value" generate "$model" -n
expect_error 2 "--greedy takes no value" generate "$model" --greedy=1
for number in '' 1e9 0x10 ' 5' '5 ' -1 +5 NaN 99999999999999999999 1.5 5x; do
    expect_error 2 "-n: expected an integer, 0 to 2147483647" generate "$model" -n "$number"
    expect_error 2 "--seed: expected an integer, 0 to 18446744073709551615" \
        generate "$model" "--seed=$number"
    expect_error 2 "-t: expected auto or an integer from 1 to" score "$model" -p x -t "$number"
    expect_error 2 "--tokens: item" score "$model" --tokens "1,$number"
done
for number in '' nan inf -1 1e999 0x1 ' 1' 1,5; do
    expect_error 2 "--temp: expected a number, 0 or more" generate "$model" --temp "$number"
done
expect_error 2 "--top-p: expected a number, 0 to 1" generate "$model" --top-p 1.1
expect_error 2 "--min-p: expected a number, 0 to 1" generate "$model" --min-p -0.1
expect_error 2 "--repeat-penalty: expected a number, above 0" generate "$model" --repeat-penalty 0
expect_error 2 "--samples: expected an integer, 1 to" generate "$model" --samples 0
expect_error 2 "--kv-type: expected one of f32, f16, q8_0" generate "$model" --kv-type q3
expect_error 2 "--format: expected one of table, md, csv, json, jsonl" score "$model" --format xml
expect_error 2 "-t: expected auto or an integer from 1 to" score "$model" -p x -t 0
expect_error 2 "--stop: the text is empty" generate "$model" --stop ''

for count in "-n 5" "-n=5" "--n 5" "--n=5" "-n 9 -n 5"; do
    run generate "$model" --greedy -q -p ROMEO: $count
    cp "$out" "$dir/$(echo "$count" | tr -d ' =-')"
    note "$count makes 5 tokens" [ "$(wc -c <"$out")" -eq 12 ]
done
note "all spellings mean the same" cmp -s "$dir/n5" "$dir/n9n5"
cp "$dir/n5" "$dir/five"
expect_same "$dir/five" generate -p ROMEO: -n 5 --greedy -m "$model"
expect_same "$dir/five" generate -p ROMEO: -n 5 --greedy -- "$model"
expect_same "$dir/five" generate --prompt=ROMEO: --temp 0 "$model" -n 5
expect_same "$dir/five" generate --model="$model" --prompt ROMEO: --top-k 1 -n 5

# --- the environment ----------------------------------------------------------------------------

export DECODE_THREADS=0x2
expect_error 2 "DECODE_THREADS: expected auto or an integer" generate "$model" -n 1
expect_exit 0 generate "$model" -n 1 -t 1
DECODE_THREADS=1
run generate "$model" -n 1 -v
note "DECODE_THREADS sets the threads" has "$err" "threads: 1 (DECODE_THREADS)"
run generate "$model" -n 1 -v -t 2
note "-t wins over DECODE_THREADS" has "$err" "(-t)"
DECODE_THREADS=
run generate "$model" -n 1 -v
note "empty DECODE_THREADS is unset" has "$err" "(auto)"
unset DECODE_THREADS
export DECODE_ISA=nosuch
expect_error 2 "DECODE_ISA" generate "$model" -n 1
expect_error 2 "DECODE_ISA" --version
DECODE_ISA=scalar
run generate "$model" -v -n 5 --greedy -p ROMEO:
note "DECODE_ISA is obeyed" has "$err" "instruction set: scalar"
note "and gives the same text" cmp -s "$out" "$dir/five"
unset DECODE_ISA

# --- generate -----------------------------------------------------------------------------------

expect_exit 0 generate "$model" -p ROMEO: -n 100 --seed 7
cp "$out" "$dir/seed7"
note "the prompt is echoed" [ "$(head -c 6 "$out")" = ROMEO: ]
note "100 bytes, prompt and newline" [ "$(wc -c <"$out")" -eq 107 ]
for word in "prompt       6 tokens" "first token" "decoded      100 tokens" p50 p99 \
    "seed         7" "peak memory"; do
    note "summary has $word" has "$err" "$word"
done
for threads in 1 2 3 8 auto; do
    expect_same "$dir/seed7" generate "$model" -p ROMEO: -n 100 --seed 7 -t $threads
done
for block in 1 2 5 64; do
    expect_same "$dir/seed7" generate "$model" -p ROMEO: -n 100 --seed 7 --block $block
done
expect_same "$dir/seed7" generate "$model" -p ROMEO: -n 100 --seed 7 -q
note "-q: nothing on stderr" is_empty "$err"
run generate "$model" -p ROMEO: -n 100 --seed 8
note "another seed, another text" [ "$(cat "$out")" != "$(cat "$dir/seed7")" ]
run generate "$model" -p ROMEO: -n 60
cp "$out" "$dir/random"
expect_same "$dir/random" generate "$model" -p ROMEO: -n 60 \
    --seed "$(sed -n 's/^seed  *//p' "$err")"
run generate "$model" -p ROMEO: -n 3 -v
for word in "memory: weights" "KV cache" "--kv-type f16" "threads:" "instruction set:" "sampler:"; do
    note "-v says $word" has "$err" "$word"
done

# Prompts.
printf 'ROMEO:' >"$dir/prompt"
expect_same "$dir/five" generate "$model" -f "$dir/prompt" -n 5 --greedy
"$decode" generate "$model" -f - -n 5 --greedy <"$dir/prompt" >"$out" 2>"$err"
note "-f - reads standard input" cmp -s "$out" "$dir/five"
expect_line "$(tail -c 6 "$dir/five" | head -c 5)" \
    generate "$model" -p ROMEO: -n 5 --greedy --no-echo
expect_error 2 "--prompt and --file are both given" generate "$model" -p x -f "$dir/prompt"
expect_error 3 "$dir/missing" generate "$model" -f "$dir/missing"
expect_exit 0 generate "$model" -p '' -n 5 --greedy
cp "$out" "$dir/none"
note "an empty prompt prints only the continuation" [ "$(wc -c <"$out")" -eq 6 ]
expect_same "$dir/none" generate "$model" -n 5 --greedy
printf 'a\000b\377\303' >"$dir/bytes"
expect_exit 0 generate "$model" -f "$dir/bytes" -n 0
note "any bytes are echoed as they are" [ "$(od -An -tx1 "$out" | tr -d ' \n')" = 610062ffc30a ]
expect_exit 0 generate "$model" -f "$dir/bytes" -n 5
expect_line x generate "$model" -p x -n 0
expect_line '' generate "$model" -n 0

# The context: 256 positions. The last token need not be fed.
expect_exit 0 generate "$model" -p "$(repeat a 255)" -n 5
note "context full is said" has "$err" "context full (256 tokens): stopped after 2 of 5"
note "two tokens still fit" [ "$(wc -c <"$out")" -eq 258 ]
expect_exit 0 generate "$model" -p "$(repeat a 256)" -n 5
note "one token after a full prompt" has "$err" "context full (256 tokens): stopped after 1 of 5"
expect_error 2 "the prompt has 257 tokens, the context only 256" \
    generate "$model" -p "$(repeat a 257)"
expect_error 2 "the prompt has 6 tokens, the context only 5" generate "$model" -p ROMEO: -c 5
expect_error 2 "-c: expected at most 256" generate "$model" -c 257
expect_exit 0 generate "$model" -p ROMEO: -c 6 -n 5
note "-c limits the context" has "$err" "context full (6 tokens): stopped after 1 of 5"

# Stop strings, against the text without them.
run generate "$model" -p ROMEO: -n 100 --seed 7 --no-echo -q
cp "$out" "$dir/plain"
stop=$(tail -c +31 "$dir/plain" | head -c 4)
run generate "$model" -p ROMEO: -n 100 --seed 7 --no-echo --stop "$stop" --stop 'never so'
note "--stop is found across tokens" has "$err" "stop text found"
note "--stop text is not printed" lacks "$out" "$stop"
note "all before it is printed" \
    [ "$(head -c $(($(wc -c <"$out") - 1)) "$out")$stop" = \
    "$(head -c $(($(wc -c <"$out") + 3)) "$dir/plain")" ]
expect_same "$dir/plain" generate "$model" -p ROMEO: -n 100 --seed 7 --no-echo --stop "never so"

# Samples: the first is the run without them; all replay.
run generate "$model" -p ROMEO: -n 40 --seed 3
cp "$out" "$dir/one"
run generate "$model" -p ROMEO: -n 40 --seed 3 --samples 3
cp "$out" "$dir/three"
note "the first sample is the single one" cmp -s -n "$(wc -c <"$dir/one")" "$dir/one" "$dir/three"
note "samples are separated" [ "$(grep -cx -e --- "$out")" -eq 2 ]
note "each has the prompt" [ "$(grep -c '^ROMEO:' "$out")" -ge 3 ]
note "the prompt is taken once" has "$err" "prompt       6 tokens"
note "all are counted" has "$err" "decoded      120 tokens"
expect_same "$dir/three" generate "$model" -p ROMEO: -n 40 --seed 3 --samples 3 -t 3

# Drafts: the same bytes whatever guesses them; the summary says what it was worth.
h_x="$model -p ROMEO: -n 60 --seed 3"
for how in "" "--greedy --kv-type q8_0 -c 48" "--temp 1.3 --repeat-penalty 1.2 --samples 3 --stop ou" \
    "--logprobs 2"; do
    expect_exit 0 generate $h_x $how -q
    cp "$out" "$dir/plain"
    for draft in lookup "lookup --draft-n 3" "self:q4_0 --draft-n 2" "self:q8_0 -t 2" \
        "self:layers=1 --draft-n 32" "$model --draft-n 5 --batch 2 -t 2"; do
        case "$how,$draft" in *samples*) ;; *batch*) draft="$model --draft-n 5" ;; esac
        expect_same "$dir/plain" generate $h_x $how -q --draft $draft
        note "nothing on stderr with -q: $draft" is_empty "$err"
    done
done
printf 'the the the the\n\nROMEO:\n' >"$dir/prompts"
expect_exit 0 generate "$model" --prompts "$dir/prompts" --seed 3 -n 30
cp "$out" "$dir/plain"
for draft in lookup self:q8_0 "$model --draft-n 4 --batch 2"; do
    expect_same "$dir/plain" generate "$model" --prompts "$dir/prompts" --seed 3 -n 30 --draft $draft
    note "many prompts: a summary of drafts" has "$err" " drafted, "
done
expect_exit 0 generate "$model" -p ROMEO: -n 21 --seed 3 --draft "$model" --draft-n 4 -v
note "the model guesses itself" has "$err" \
    "drafts       16 drafted, 16 accepted (100%); 5.00 tokens a step; draft "
note "a step may make many" has "$err" " per step"
note "-v says what the draft takes" has "$err" "decode: draft: weights "
expect_exit 0 generate "$model" -p ROMEO: -n 21 --seed 3 --draft "$model" --draft-n 4 --logprobs 1
note "as a JSON object" has "$err" \
    '{"drafted": 16, "accepted": 16, "share": 1, "tokens_per_step": 5, "draft_seconds": '
expect_exit 0 generate "$model" -p ROMEO: -n 3 --seed 3
note "no draft, no summary of it" lacks "$err" drafts
expect_error 2 "--draft: expected a checkpoint, self:TYPE" generate $h_x --draft ""
expect_error 2 "expected one of f32, f16, bf16, q8_0, q4_0 or layers=N, found 'q5'" \
    generate $h_x --draft self:q5
expect_error 2 "layers=N: expected an integer, 1 or more, found '0'" \
    generate $h_x --draft self:layers=0
expect_error 2 "fewer layers than the checkpoint has" generate $h_x --draft self:layers=999
expect_error 2 "takes fewer bytes as f32" generate $h_x --draft self:f32
for number in 0 33 -1 x '' 1.5; do
    expect_error 2 "--draft-n: expected auto or an integer from 1 to 32" \
        generate $h_x --draft lookup "--draft-n=$number"
done
expect_error 2 "--draft-n is for --draft" generate $h_x --draft-n 3
expect_error 3 "nosuchfile" generate $h_x --draft nosuchfile
expect_error 3 'expected "GGUF"' generate $h_x --draft README.md
expect_error 2 "another vocabulary than the checkpoint's: expected" \
    generate $h_x --draft "$golden/mha.gguf"

# Log-probabilities.
expect_exit 0 generate "$model" -p ROMEO: -n 4 --greedy --logprobs 2
cp "$out" "$dir/logprobs"
note "a line a token" has_lines "$out" 4
note "with its place" has "$out" '{"sample": 0, "position": 6, "id": '
note "and alternatives" [ "$(head -1 "$out" | grep -o '"logprob"' | wc -l)" -eq 3 ]
expect_same "$dir/logprobs" generate "$model" -p ROMEO: -n 4 --greedy --logprobs 2

# The cache in half precision; golden checkpoints of other variants.
expect_exit 0 generate "$model" -p ROMEO: -n 20 --greedy --kv-type f16
for name in mha gqa mqa mqa-f16; do
    expect_exit 0 generate "$golden/$name.gguf" -p "x" -n 5 --greedy -q
done

# Shaded or not, the same text: here of tokens that are parts of characters.
h_x="$model -p x -n 60 --temp 3 --top-k 0 --top-p 1 --seed 5 --samples 3 --stop zq"
expect_exit 0 generate $h_x -q
cp "$out" "$dir/plain"
expect_exit 0 generate $h_x -q --colour always
note "generate --colour shades" has "$out" "$(printf '\033[38;5;')"
sed "s/$(printf '\033')\[[0-9;]*m//g" "$out" >"$dir/stripped"
note "generate --colour: the same text" cmp -s "$dir/stripped" "$dir/plain"
note "generate --colour: the prompt is plain" [ "$(head -c 1 "$out")" = x ]
expect_exit 0 generate $h_x --colour prob
note "generate --colour: a file is not shaded" cmp -s "$out" "$dir/plain"
note "generate --colour: and is told" has "$err" "no colours: "
NO_COLOR=1 expect_exit 0 generate $h_x --colour always
note "generate --colour: a legend" has "$err" "decode: probability 0 "
expect_error 2 "--colour and --logprobs are both given" generate "$model" -p x --colour prob --logprobs 1
expect_error 2 "--colour and --prompts are both given" generate "$model" --prompts "$dir/plain" --colour prob
expect_error 2 "--colour" generate "$model" -p x --colour red

# --- score --------------------------------------------------------------------------------------

expect_exit 0 score "$model" -p "ROMEO: speak" --top 3 --format jsonl
cp "$out" "$dir/score"
note "a row a token" has_lines "$out" 12
note "nothing predicts the first" has "$out" \
    '{"position": 0, "id": 82, "text": "R", "logprob": null, "top": []}'
note "no timing on stderr" is_empty "$err"
printf 'ROMEO: speak' >"$dir/prompt"
ids=$("$decode" tokenize "$model" -f "$dir/prompt" | tr ' ' ,)
for same in "-t 1" "-t 2" "-t 3" "-t 8" "--block 1" "--block 5" "--block 4096 -t 3"; do
    expect_same "$dir/score" score "$model" -f "$dir/prompt" --top 3 --format jsonl $same
done
expect_same "$dir/score" score "$model" --tokens "$ids" --top 3 --format jsonl
for form in table md csv json; do
    expect_exit 0 score "$model" -p 'a b' --top 2 --format $form
done
expect_exit 0 score "$model" -p "$(printf 'a\n\303')"
note "the table escapes what is not printable" has "$out" '\xc3'
expect_exit 0 score "$model" -p "a,b" --format csv
note "csv has a header" has "$out" "position,id,text,logprob"
note "csv quotes" has "$out" '1,44,",",'

for name in mha gqa mqa mqa-f16; do
    tokens=$(cat "$golden/$name.tokens")
    expect_exit 0 score "$golden/$name.gguf" --tokens "$tokens" --logits "$dir/first.npy" -t 1
    expect_exit 0 score "$golden/$name.gguf" --tokens "$tokens" --logits "$dir/second.npy" \
        -t 3 --block 1
    note "$name: the same logits" cmp -s "$dir/first.npy" "$dir/second.npy"
    note "$name: the header and size of NumPy's file" \
        [ "$(head -c 128 "$dir/first.npy" | od -c; wc -c <"$dir/first.npy")" = \
        "$(head -c 128 "$golden/$name.npy" | od -c; wc -c <"$golden/$name.npy")" ]
done
expect_exit 0 score "$model" -p "$(repeat a 256)"
expect_error 2 "the text has 257 tokens" score "$model" -p "$(repeat a 257)"
expect_error 2 "the text is empty" score "$model" -p ''
expect_error 2 "there is nothing to score" score "$model"
expect_error 2 "--prompt and --tokens are both given" score "$model" --tokens 1 -p x
expect_error 2 "the vocabulary has 256" score "$model" --tokens 1,256
expect_error 2 "--tokens: item 2" score "$model" --tokens 1,,2

cp "$model" "$dir/copy.gguf"
expect_error 2 "is the checkpoint itself" score "$dir/copy.gguf" -p x --logits "$dir/copy.gguf"
note "the checkpoint is as it was" cmp -s "$model" "$dir/copy.gguf"
run score "$model" -p abc --logits "$dir/none/out.npy"
note "logits to a missing folder: exit 1" is_code 1

# --- attend -------------------------------------------------------------------------------------

line="ROMEO: But soft, what light"
expect_exit 0 attend "$model" -p "$line" --format csv
cp "$out" "$dir/attend"
note "attend: a row a head" has_lines "$out" 33
note "attend: nothing on stderr" is_empty "$err"
note "attend: columns" has "$out" "layer,head,variant,kv_head,entropy,distance,first,previous,self"
printf %s "$line" >"$dir/prompt"
ids=$("$decode" tokenize "$model" -f "$dir/prompt" | tr ' ' ,)
for same in "-t 1" "-t 3" "--block 1" "--block 5 -t 3"; do
    expect_same "$dir/attend" attend "$model" -f "$dir/prompt" --format csv $same
done
expect_same "$dir/attend" attend "$model" --tokens "$ids" --format csv --layer all --head all
for form in table md json jsonl; do
    expect_exit 0 attend "$model" -p "$line" --format $form --layer 1 --head 3,0
    expect_exit 0 attend "$model" -p "$line" --format $form --query 4 --top 2
done
note "attend: keys as JSON" has "$out" '"query": 4, "top": [{"position": '
expect_exit 0 attend "$model" -p "$line" --query 4 --layer 0 --head 1
note "attend: the query names the column" has "$out" "layer  head  O: (token 4)"
expect_exit 0 attend "$model" -p x --format json
note "attend: one token looks at itself" has "$out" '"self": 1, "induction": null'
expect_exit 0 attend "$model" -p x --format csv
note "attend: programs get no dash for a number" lacks "$out" "–"
expect_exit 0 attend "$model" -p aab --query 2 --top 3
note "attend: which of two tokens alike" has "$out" 'a@1'
note "attend: one token alone" lacks "$out" 'b@'
expect_exit 0 attend "$model" -p x --query 0 --format csv
note "attend: no more keys than there are" has "$out" "top1_weight"
note "attend: one key" lacks "$out" "top2_weight"

expect_exit 0 attend "$model" -p "$line" --npy "$dir/a.npy" --json "$dir/a.json" --svg "$dir/a.svg"
note "attend: the array's size" [ "$(wc -c <"$dir/a.npy")" -eq $((128 + 4 * 8 * 27 * 27 * 4)) ]
note "attend: the array's shape" has "$dir/a.npy" "'shape': (4, 8, 27, 27), }"
note "attend: the tokens" has "$dir/a.json" '{"position": 6, "id": 32, "text": " "}'
note "attend: a map a head" [ "$(grep -c 'class="map"' "$dir/a.svg")" -eq 32 ]
expect_exit 0 attend "$model" -p "$(printf 'a\001\303\n<')" --layer 0 --head 0 --svg "$dir/a.svg" -q
note "attend: names that can be read" has "$dir/a.svg" '>\x01</text>'
note "attend: half a character" has "$dir/a.svg" '>\xc3</text>'
note "attend: a line feed" has "$dir/a.svg" '>\n</text>'
note "attend: markup" has "$dir/a.svg" '>&lt;</text>'

# Standard output is no terminal here: no colours, COLUMNS wide.
for width in 1 9 20 60 120; do
    TERM=xterm-256color COLORTERM=truecolor COLUMNS=$width "$decode" attend "$model" \
        -p "$line$(printf '\n\033')" --show 1.2 >"$out" 2>"$err"
    code=$?
    note "attend: drawn $width wide" is_code 0
    note "attend: no escapes" lacks "$out" "$(printf '\033')"
    [ $width -lt 60 ] || note "attend: $width columns are enough" \
        [ "$(awk '{ if (length > w) w = length } END { print w + 0 }' "$out")" -le $width ]
done
note "attend: the line of a token" has "$out" '\x1b'
expect_exit 0 attend "$model" -p "$line" --show 0.0 --log --without-first
expect_exit 0 attend "$model" -p "$line" --kv-heads 2 --svg "$dir/a.svg" --head 1,3 --format csv
note "attend: which variant" has "$out" "GQA-2"
note "attend: heads that share are framed" has "$dir/a.svg" 'class="frame"'

expect_error 2 "--layer: expected all or layers from 0 to 3" attend "$model" -p x --layer 4
expect_error 2 "--head: expected all or heads from 0 to 7" attend "$model" -p x --head 0,8
for list in '' 0,0 0, -1 a 0.1; do
    expect_error 2 "--head: expected all or heads" attend "$model" -p x --head "$list"
done
for head in 4.0 0.8 1 '' a.b 0.1.2 -1.0; do
    expect_error 2 "--show: expected L.H, a layer from 0 to 3 and a head from 0 to 7" \
        attend "$model" -p x "--show=$head"
done
expect_error 2 "--query: expected 0 to 2" attend "$model" -p abc --query 3
expect_error 2 "--top" attend "$model" -p abc --top 2
expect_error 2 "the text has 257 tokens" attend "$model" -p "$(repeat a 257)" --svg "$dir/b.svg"
expect_error 2 "the text is empty" attend "$model" -p ''
expect_error 2 "there is nothing to look at" attend "$model"
expect_error 2 "--prompt and --tokens are both given" attend "$model" --tokens 1 -p x
expect_error 2 "--show draws in place of the table" attend "$model" -p x --show 0.0 --format csv
expect_error 2 "--show draws in place of the table" attend "$model" -p x --show 0.0 --query 0
expect_error 2 "expected --svg or --show" attend "$model" -p x --log
expect_error 2 "is the text itself" attend "$model" -f "$dir/prompt" --json "$dir/prompt"
expect_error 2 "--npy and --json both name" attend "$model" -p x --npy "$dir/a.npy" --json "$dir/a.npy"
expect_error 2 "is the checkpoint itself" attend "$dir/copy.gguf" -p x --svg "$dir/copy.gguf"
run attend "$model" -p abc --svg "$dir/none/a.svg"
note "attend: a picture in a missing folder: exit 1" is_code 1

# --- tokenize -----------------------------------------------------------------------------------

expect_line "82 79 77 69 79" tokenize "$model" -p ROMEO
expect_line "[82, 79, 77, 69, 79]" tokenize "$model" -p ROMEO --format json
expect_line "" tokenize "$model" -p ""
expect_line "[]" tokenize "$model" -p "" --format json
expect_line "97 0 98 255 195" tokenize "$model" -f "$dir/bytes"
run tokenize "$model" --decode 97,0,98,255,195
note "decode gives the bytes and nothing else" cmp -s "$out" "$dir/bytes"
expect_exit 0 tokenize "$model" --decode ""
note "no ids, no bytes" is_empty "$out"
expect_error 2 "--decode: item 1 is '256'" tokenize "$model" --decode 256
expect_error 2 "there is no text" tokenize "$model"
expect_error 2 "--prompt and --decode are both given" tokenize "$model" --decode 1 -p x

# --- info ---------------------------------------------------------------------------------------

expect_exit 0 info "$model" --check
for word in "architecture  gpt2" "variant       MHA" "total         858,880" \
    "GQA-4                4     792,832            2,048            1,024" "53 tensors read, 0 with"; do
    note "info says $word" has "$out" "$word"
done
note "info: nothing on stderr" is_empty "$err"
expect_exit 0 info "$golden/gqa.gguf" --format json
note "info knows a GQA checkpoint" has "$out" '"variant": "GQA-3"'
expect_exit 0 info "$model" --format jsonl --tensors --check
note "one object on one line" has_lines "$out" 1
note "with tensors" has "$out" '"tensors": [{"name": '
expect_exit 0 info "$model" --format csv
note "csv of the parts" has "$out" "total,858880,3566592"
expect_exit 0 info "$model" --format csv --tensors
note "csv of the tensors" has_lines "$out" 54
expect_exit 0 info "$model" --format md
note "Markdown" has "$out" "| architecture |"

# What steps cost, of a file and of a shape alone.
expect_exit 0 info "$model" --depth 0,32 --batch 1,4 --bandwidth 10 --format csv
note "info: 2 depths x 2 batches x 4 variants" has_lines "$out" 17
note "info: a row" has "$out" "MQA,1,32,4,f32,"
expect_exit 0 info --shape 12x768x12 --bandwidth 50 --depth 1024 --batch 1,16
for word in "shape         12x768x12" "total      124,439,808" "28,311,552 weights; 4 d_model^2" \
    "1024      1  f32" "1.12 GiB" "cache, at 50 GB/s;"; do
    note "info --shape says $word" has "$out" "$word"
done
expect_exit 0 info --shape 32x4096x32,ff=11008,vocab=32000,ctx=4096 --arch llama --type f16 \
    --kv-type f16 --format json
for word in '"total": 6738415616' '"bytes_per_token_f16": 524288' '"fits": ' \
    '"memory_available_bytes": ' '"attention_4_d_model_squared": 2147483648'; do
    note "info --shape: JSON has $word" has "$out" "$word"
done
expect_exit 0 info --shape 2x64x4,vocab=300 --bandwidth auto --format jsonl -t 1
note "info: a bandwidth is measured" lacks "$out" '"bandwidth_gb_per_s": 0'
note "info: and reported" has "$out" '"limited_by": "'
note "info: what is measured has a range" [ "$(grep -o '"predicted_us[a-z_]*": [0-9.e+-]*' "$out" |
    head -n 3 | sed 's/.*: //' | awk '{ x[NR] = $1 } END { print (x[2] <= x[1] && x[1] <= x[3]) }')" = 1 ]
expect_exit 0 info --shape 12x768x12 --bandwidth auto --depth 0 -t 1
note "info: a measured prediction is rounded" [ "$(grep -c '^MHA .*[0-9]\.[0-9]  *[0-9.]* waits' "$out")" = 0 ]
note "info: and told as what it is" has "$out" "the least"
expect_exit 0 info --shape 12x768x12 --bandwidth 50 --depth 0
note "info: arithmetic that is not counted" has "$out" "arithmetic is not counted"
expect_exit 0 info --shape 12x768x12 --bandwidth 50 --flops 1 --depth 0 --format csv --columns predicted_us,limited_by
note "info: arithmetic that is" has "$out" "product flops"
expect_error 2 "--flops is for --bandwidth" info --shape 2x64x4 --flops 3
expect_error 2 "--flops is for a --bandwidth in GB/s" info --shape 2x64x4 --bandwidth auto --flops 3
expect_exit 0 info "$model" --depth 3,5 --columns variant,depth,cache
note "info: columns of the steps do not cut the caches" has_lines "$out" 9
expect_exit 0 info "$model" --check --columns tensor,nan
note "info: columns of --check's CSV are those of its table" has "$out" "blk.0.attn_qkv.weight"
expect_error 2 "a checkpoint and --shape are both named" info "$model" --shape 2x64x4
expect_error 2 "--tensors is for a checkpoint" info --shape 2x64x4 --tensors
expect_error 2 "no checkpoint is named" info --depth 3
expect_error 2 "--type" info "$model" --type f16
expect_error 2 "--type: expected one of" info --shape 2x64x4 --type q5_0
expect_error 2 "type q8_0: expected rows of a multiple of 32" info --shape 2x60x4 --type q8_0
expect_error 2 "--depth" info --shape 2x64x4,ctx=100 --depth 101
expect_error 2 "--batch" info --shape 2x64x4 --batch 0
expect_error 2 "--bandwidth: expected auto" info --shape 2x64x4 --bandwidth fast
expect_error 2 "--bandwidth: expected auto" info --shape 2x64x4 --bandwidth 0
expect_error 2 "-t is for --bandwidth auto" info --shape 2x64x4 --bandwidth 3 -t 2
expect_error 2 "--shape: heads" info --shape 2x64x5

# Another architecture without tensors, its name hostile: what there is is shown, and escaped.
{
    printf 'GGUF\003\000\000\000\000\000\000\000\000\000\000\000\001\000\000\000\000\000\000\000'
    printf '\024\000\000\000\000\000\000\000general.architecture\010\000\000\000'
    printf '\006\000\000\000\000\000\000\000\033other'
} >"$dir/other.gguf"
expect_exit 0 info "$dir/other.gguf"
note "another architecture" has "$out" 'architecture  \x1bother'
note "no tensors" has "$out" "there are no tensors"
expect_exit 0 info "$dir/other.gguf" --format json --tensors --check
note "JSON escapes too" has "$out" '"architecture": "\u001bother"'
for command in generate score tokenize; do
    expect_error 3 "$dir/other.gguf" $command "$dir/other.gguf" -p x
done

# One weight becomes NaN.
offset=$("$decode" info "$model" --format csv --tensors |
    sed -n 's/^blk\.0\.ffn_up\.weight,.*,\([0-9]*\)$/\1/p')
printf '\377\377\377\377' | dd of="$dir/copy.gguf" bs=1 seek="$offset" conv=notrunc 2>"$err"
expect_exit 3 info "$dir/copy.gguf" --check
note "the tensor is named" has "$err" "tensor 'blk.0.ffn_up.weight' has 1 values"
note "and shown" has "$out" "53 tensors read, 1 with values that are not finite"
run generate "$dir/copy.gguf" -p x -n 5
note "not finite logits: exit 1" is_code 1
note "with one line" has_lines "$err" 1
expect_exit 1 score "$dir/copy.gguf" -p xyz

# --- bench --------------------------------------------------------------------------------------

keys="variant,n_kv_heads,type,kv_type,threads,depth,batch,n,repeats,warmup,p10_us,p50_us,p90_us"
keys="$keys,p99_us,max_us,mean_us,us_per_token,tokens_per_s,weight_bytes,kv_bytes,flops,gb_per_s"
keys="$keys,predicted_us,speedup,predicted_speedup,limited_by,prefill_tokens_per_s,load_ms"
keys="$keys,peak_rss_bytes,logits_hash,isa,limit_tokens_per_s,share_of_limit,noisy,cpu_share"
keys="$keys,attention_flops,bandwidth_gb_per_s,flops_per_s,dot_flops_per_s,model,shape"
bench_keys="$keys,architecture,cpu,version,compiler,date"
shape=2x32x4,ff=64,vocab=50,ctx=40
quick="-n 2 --repeat 2 --warmup 1"

# bench_rows N ARGS...: exit 0 and N rows under the documented keys, in CSV.
bench_rows() {
    h_rows=$1
    shift
    run bench "$@" $quick --format csv
    note "bench: exit 0, found $code: $*" is_code 0
    note "bench: $h_rows rows: $*" has_lines "$out" $((h_rows + 1))
    note "bench: exactly the documented keys" [ "$(head -n 1 "$out")" = "$bench_keys" ]
}
bench_rows 12 "$model" --kv-heads all --depth 0,128,255
note "bench: variants" [ "$(cut -d , -f 1 "$out" | sort -u | tr '\n' ' ')" = "GQA-2 GQA-4 MHA MQA variant " ]
note "bench: the machine on stderr" has "$err" "decode 0"
bench_rows 3 --shape $shape
bench_rows 16 --shape $shape --kv-heads 4,1 --depth 0,39 --kv-type f32,f16 --type f32,f16 -t 2
bench_rows 4 "$golden/mqa-f16.gguf" --depth 0,5 --type f16,f32
bench_rows 8 --shape $shape --kv-heads 4,1 --depth 0,39 --batch 1,5
# hashes ARGS...: how many logits' hashes the rows have.
hashes() {
    "$decode" bench "$@" $quick -q --format jsonl | sed 's/.*"logits_hash": "//; s/".*//' |
        sort -u | wc -l
}
note "bench: one hash a depth for any threads" \
    [ "$(hashes "$model" --kv-heads 8,1 --depth 0,100 -t 1,2,3)" = 4 ]
note "bench: one hash a depth for any batch" \
    [ "$(hashes "$model" --kv-heads 8,1 --depth 0,100 --batch 1,2,7 --type f32)" = 4 ]
expect_exit 0 bench --shape $shape --kv-heads 4,1 $quick --format json
note "bench: JSON is an array" [ "$(head -c 1 "$out")" = "[" ]
note "bench: a key in JSON" has "$out" '"n_kv_heads": 4'
note "bench: a shape is no model" has "$out" "\"model\": null, \"shape\": \"$shape\", \"architecture\": \"gpt2\""
note "bench: noisy or not" grep -q '"noisy": \(true\|false\), "cpu_share": ' "$out"
expect_exit 0 bench "$model" --kv-heads 1 $quick --format jsonl
note "bench: a model is no shape" has "$out" "\"model\": \"$model\", \"shape\": null"
expect_exit 0 bench --shape $shape --kv-heads 2,1 $quick --format jsonl
note "bench: no MHA row, no speed-up" has "$out" '"speedup": null, "predicted_speedup": null'
expect_exit 0 bench --shape $shape --prompt 0 $quick --format jsonl
note "bench: no prefill" has "$out" '"prefill_tokens_per_s": null'
# A row says what ran: no more threads than processors; auto is generate's rule, which may take one.
usable=$(nproc)
expect_exit 0 bench --shape $shape --kv-heads 1 $quick -t 1,256 --format csv
note "bench: rows of threads that run" \
    [ "$(cut -d , -f 5 "$out" | tail -n +2 | tr '\n' ' ')" = "$(printf '1\n%s\n' "$usable" | sort -nu | tr '\n' ' ')" ]
note "bench: threads that do not are told" has "$err" "-t 256: this process has $usable processor"
expect_exit 0 bench --shape $shape --kv-heads 1 $quick --format csv -v
chosen=$usable
grep -q "threads: 1, as $usable are slower for this model here" "$err" && chosen=1
note "bench: auto threads as generate takes them" [ "$(tail -n 1 "$out" | cut -d , -f 5)" = $chosen ]
# What other work takes of the processor is told: here half of it.
if command -v taskset >/dev/null; then
    taskset -c 0 sh -c 'while :; do :; done' &
    h_other=$!
    taskset -c 0 "$decode" bench --shape $shape --kv-heads 1 -t 1 -n 20000 --repeat 1 -q --format jsonl \
        >"$out" 2>"$err"
    kill $h_other
    note "bench: a row that other work disturbed" has "$out" '"noisy": true'
fi
expect_exit 0 bench --shape $shape $quick --plot "$dir/p.svg" --trace "$dir/t.csv" -q
note "bench: quiet" is_empty "$err"
note "bench: the table's header" has "$out" "roofline: reads"
note "bench: plot" has "$dir/p.svg" "</svg>"
note "bench: trace of 3 rows x 2 x 2" has_lines "$dir/t.csv" 13
note "bench: one sequence" has "$out" "by bytes"
note "bench: no column that says 1" lacks "$out" "batch"
expect_exit 0 bench "$model" -n 1 --repeat 1 --warmup 0 --kv-heads 2
note "bench: what depth 0 hides" has "$out" "--depth 0,"
expect_exit 0 bench "$model" -n 1 --repeat 1 --warmup 0 --kv-heads 2 --depth 0,3
note "bench: nothing to say of several depths" lacks "$out" "--depth"
expect_exit 0 bench --shape $shape --batch 1,2,16 $quick --plot "$dir/p.svg" --trace "$dir/t.csv" -q
note "bench: what limits batches" has "$out" "limited by"
note "bench: batches" has "$out" "µs/token"
note "bench: plot over batches" has "$dir/p.svg" "batch (sequences in a step, each at depth 0)"
note "bench: trace of batches" has "$dir/t.csv" ",0,16,1,1,"
expect_exit 0 bench --shape $shape --batch 1,2 --depth 0,30 $quick --plot "$dir/p.svg" -q
note "bench: plot over depths" has "$dir/p.svg" "latency (µs per token) against depth"
note "bench: lines of batches" has "$dir/p.svg" "MQA, batch 2"
expect_exit 0 bench --shape $shape $quick -v
note "bench: memory plan" has "$err" "memory: 3 rows"

# --columns: by key or heading, in this order, in every form.
quick_columns() { expect_exit 0 bench --shape $shape $quick -q --columns "$@"; }
quick_columns p10_us,variant --format csv
note "bench --columns: CSV" [ "$(head -n 1 "$out")" = "p10_us,variant" ]
quick_columns variant,p10_us --format jsonl
note "bench --columns: JSON lines" has "$out" '{"variant": "MHA", "p10_us": '
quick_columns "p50 µs,variant,isa"
note "bench --columns: a table" has "$out" "p50 µs  variant  isa"
expect_error 2 "no column is called 'p50us'; did you mean p50_us" bench "$model" --columns p50us
expect_error 2 "no column is called ''" bench "$model" --columns variant,
expect_error 2 "'variant' is given twice" bench "$model" --columns variant,variant
expect_exit 0 info "$model" --columns part,weights --format csv
note "info --columns: CSV" [ "$(head -n 1 "$out")" = "part,weights" ]
expect_exit 0 info "$model" --columns biases,fits,bytes_per_token_f32 --depth 3
note "info --columns: of each table those it has" has "$out" "bytes/token f32"
note "info --columns: nothing else" lacks "$out" "architecture"
expect_exit 0 info --shape $shape --columns "40 tokens f16,KV cache of"
note "info --columns: as the heading has it" has "$out" "40 tokens f16  KV cache of"
expect_error 2 "did you mean 40 tokens f16" info --shape $shape --columns "40 token f16"
expect_error 2 "expected none with --format json" info "$model" --columns part --format json
expect_error 2 "no column is called 'kl_mean'" eval "$model" --text "$dir/text" --columns kl_mean
expect_error 2 "expected it without --query" attend "$model" -p abc --query 1 --columns head

expect_error 2 "expected a divisor of 8" bench "$model" --kv-heads 3
expect_error 2 "depth 257" bench "$model" --depth 0,257
expect_error 2 "--depth: expected integers" bench "$model" --depth 1,,2
for batch in 0 -1 1,,2 2147483648 x; do
    expect_error 2 "--batch: expected integers from 1 to 2147483647" bench "$model" --batch=$batch
done
expect_error 2 "--batch: an item is given twice" bench "$model" --batch 4,4
expect_error 4 "fewer or smaller --batch" bench "$model" --batch 1,2147483647 --depth 200
expect_error 2 "--kv-heads: an item is given twice" bench "$model" --kv-heads 4,4
expect_error 2 "--type: expected some of f32, f16, bf16, q8_0, q4_0" bench "$model" --type q9
expect_error 2 "--kv-type: expected some of f32, f16, q8_0" bench "$model" --kv-type f64
expect_error 2 "-t: expected integers" bench "$model" -t 0
expect_error 2 "prompt of 257" bench "$model" --prompt 257
expect_error 2 "--shape: expected LAYERS" bench --shape 4x128
expect_error 2 "both named" bench "$model" --shape $shape
expect_error 2 "no checkpoint is named" bench
expect_error 2 "the checkpoint itself" bench "$model" --trace "$model" $quick
expect_error 2 "both name" bench "$model" --plot x --trace x
expect_error 1 "nosuchfolder" bench --shape $shape $quick --plot "$dir/nosuchfolder/p.svg" --format csv -q
: >"$dir/empty.gguf"
expect_error 3 "empty.gguf" bench "$dir/empty.gguf"

# --- bad files ----------------------------------------------------------------------------------

: >"$dir/empty"
head -c 1000 "$model" >"$dir/short"
head -c $(($(wc -c <"$model") - 1)) "$model" >"$dir/cut"
repeat x 5000 >"$dir/junk"
mkfifo "$dir/fifo"
for command in generate score tokenize quantize info; do
    text="-p x"
    case $command in info) text= ;; quantize) text="-o $dir/never.gguf --type f16" ;; esac
    for file in "$dir/missing" "$dir/empty" "$dir" "$dir/fifo" /dev/zero "$dir/short" "$dir/cut" \
        "$dir/junk"; do
        expect_error 3 "$file" $command "$file" $text
    done
    expect_error 3 "empty" $command "" $text
done

# --- streams ------------------------------------------------------------------------------------

"$decode" generate "$model" -p x -n 5 2>"$err" >&-
note "closed stdout: exit 1" [ $? -eq 1 ]
note "closed stdout is said" has "$err" "cannot write to standard output"
"$decode" info "$model" 2>"$err" >&-
note "closed stdout: exit 1" [ $? -eq 1 ]
"$decode" generate "$model" -p x -n 5 >"$out" 2>&-
note "closed stderr: exit 0" [ $? -eq 0 ]
note "closed stderr leaves stdout pure" [ "$(wc -c <"$out")" -eq 7 ]
"$decode" generate "$model" -f - -n 5 <&- >"$out" 2>"$err"
note "closed stdin: exit 3" [ $? -eq 3 ]
note "closed stdin is said" has "$err" "standard input"
if [ -c /dev/full ]; then
    for words in "generate $model -p x -n 5" "score $model -p x" "tokenize $model -p x" \
        "info $model" "quantize $model -o $dir/full.gguf --type f16 --force" "--version" "help"; do
        "$decode" $words >/dev/full 2>"$err"
        note "full disk: exit 1: $words" [ $? -eq 1 ]
        note "full disk is said: $words" has "$err" "cannot write to standard output"
    done
fi
{ "$decode" generate "$model" -p x -n 250 --samples 100000 2>"$err"; echo $? >"$dir/code"; } |
    head -c 1 >"$out"
note "closed pipe: ended by SIGPIPE" [ "$(cat "$dir/code")" = 141 ]
note "closed pipe: not a word" is_empty "$err"

# --- signals ------------------------------------------------------------------------------------

# interrupt SIGNAL: while a long run prints; its exit code in $code.
interrupt() {
    : >"$out"
    "$decode" generate "$model" -p ROMEO: --samples 1000000 --seed 1 >"$out" 2>"$err" &
    pid=$!
    await [ -s "$out" ]
    end_by "$1" $pid
}
for signal in INT TERM; do
    interrupt $signal
    note "SIG$signal: exit 130" is_code 130
    note "SIG$signal: summary" has "$err" "seed         1"
    note "SIG$signal is said" has "$err" "interrupted after"
    note "SIG$signal: the line is ended" [ "$(tail -c 1 "$out" | od -An -c | tr -d ' ')" = '\n' ]
done

# Ctrl-C in the middle of a benchmark prints what there is.
: >"$out"
"$decode" bench "$model" --kv-heads 8,1 -n 10000 --repeat 1000 --format csv >"$out" 2>"$err" &
pid=$!
sleep 4
end_by INT $pid
note "bench interrupted: exit 130" is_code 130
note "bench interrupted: rows so far" has "$out" "MHA,8,f32"

expect_exit 0 bench "$model" --kv-heads 8,2 --method fit -n 2 --warmup 0 --repeat 1 --prompt 0 --format csv
note "bench --method: a row each" has_lines "$out" 3
expect_error 2 "--method: expected one of mean" bench "$model" --method none

# --- quantize -----------------------------------------------------------------------------------

q=$dir/q.gguf
bytes_of() { wc -c <"$1" | tr -d ' '; }
expect_error 2 "no weight type is named" quantize "$model" -o "$q"
expect_error 2 "--type: expected one of f32, f16, bf16, q8_0, q4_0, found 'q6_k'" \
    quantize "$model" -o "$q" --type q6_k
expect_error 2 "no output is named; expected -o OUT" quantize "$model" --type q8_0
expect_error 2 "-t: expected auto or an integer" quantize "$model" -o "$q" --type q8_0 -t 0
expect_error 3 "cannot open" quantize "$dir/none.gguf" -o "$q" --type q8_0
expect_error 3 "README.md: " quantize README.md -o "$q" --type q8_0
note "a refusal writes nothing" [ ! -e "$q" ]
expect_error 1 "cannot create a temporary file" quantize "$model" -o "$dir/no/such.gguf" --type q8_0
for type in F32 F16 BF16 Q8_0 Q4_0; do
    expect_exit 0 quantize "$model" -o "$q" --type $type --force -t 2 --format csv
    note "$type: the file's bytes" has "$out" \
        "file,,,$(bytes_of "$model"),$(bytes_of "$q"),,,"
    note "$type: two rows and a heading" has_lines "$out" 3
    cp "$q" "$dir/$type.gguf"
    expect_exit 0 quantize "$model" -o "$q" --type $type --force -t 1 -q
    note "$type: the same file with any threads" cmp -s "$q" "$dir/$type.gguf"
    note "$type: -q says nothing" is_empty "$err"
    expect_exit 0 info "$q" --check
done
expect_exit 0 quantize "$model" -o "$q" --type f32 --force
note "a copy is said to be one" has "$err" "no tensor changes its type"
run score "$model" -p "To be" --format csv
cp "$out" "$dir/expected"
expect_same "$dir/expected" score "$q" -p "To be" --format csv
expect_exit 0 quantize "$model" -o "$q" --type q4_0 --force -v --format jsonl
note "-v: a line for each tensor" has "$out" '"name": "blk.0.ffn_up.weight", "from": "F32", "to": "Q4_0"'
note "-v: what is kept has no error" has "$out" '"name": "position_embd.weight", "from": "F32", "to": "F32"'
expect_error 2 "exists; --force replaces it" quantize "$model" -o "$q" --type q8_0
cp "$model" "$dir/same.gguf"
ln "$dir/same.gguf" "$dir/link.gguf"
expect_error 2 "is the checkpoint itself" quantize "$dir/same.gguf" -o "$dir/link.gguf" --type f16 \
    --force
note "the checkpoint is as it was" cmp -s "$model" "$dir/same.gguf"
expect_error 2 "--requantize" quantize "$dir/Q8_0.gguf" -o "$q" --type q4_0 --force
expect_exit 0 quantize "$dir/Q8_0.gguf" -o "$q" --type f32 --force --requantize
note "back to F32: as large as at first" [ "$(bytes_of "$q")" -eq "$(bytes_of "$dir/F32.gguf")" ]
expect_exit 0 quantize "$golden/gqa.gguf" -o "$q" --type q8_0 --force
note "rows that are no blocks are said" has "$err" \
    "tensor token_embd.weight: rows of 144 are no multiple of 32; it becomes F16 instead"
note "no temporary is left" [ -z "$(ls -A "$dir" | grep '^\.decode')" ]

# --- eval ---------------------------------------------------------------------------------------

seq 1 20 | sed 's/.*/& The quick brown fox, and Caesar./' >"$dir/text"
bytes=$(wc -c <"$dir/text")
keys="tokens,bytes,nll,nll_stderr,perplexity,bits_per_byte,tokens_per_s"
more="kl_mean,kl_p99,top1_agreement,bits_per_byte_other"

# eval_csv ARGS...: exit 0, and the row without tokens_per_s, which is time, in $dir/row.
eval_csv() {
    run eval "$@" --format csv
    note "exit 0, found $code: eval $*" is_code 0
    tail -n 1 "$out" | cut -d , -f 1-6,8- >"$dir/row"
}

# field N: of that row.
field() { cut -d , -f "$1" "$dir/row"; }

expect_exit 0 help eval
note "help eval is whole" has "$out" "would be another text's."
expect_error 2 "no checkpoint is named" eval --text x
expect_error 2 "two checkpoints are named" eval "$model" -m "$model" --text x
expect_error 2 "there is no text to predict" eval "$model"
expect_error 2 "two texts are named" eval "$model" more --text x
expect_error 2 "unexpected argument 'more'" eval "$model" x more

eval_csv "$model" --text "$dir/text" --ctx 20 -t 1
note "eval: exactly the documented keys" [ "$(head -n 1 "$out")" = "$keys" ]
note "eval: nothing on stderr" is_empty "$err"
note "eval: all tokens but the first" [ "$(field 1)" = $((bytes - 1)) ]
note "eval: all bytes but the first" [ "$(field 2)" = $((bytes - 1)) ]
cp "$dir/row" "$dir/expected"
for same in "-t 2" "-t 3" "-t 5" "-t 8" "--block 1 -t 2" "--block 7" "--stride 20" \
    "--range 0:1" "--range 0.0:1e0"; do
    eval_csv "$model" --text "$dir/text" --ctx 20 $same
    note "eval: the same figures: $same" cmp -s "$dir/row" "$dir/expected"
done
run eval "$model" --text - --ctx 20 --format csv <"$dir/text"
note "eval: standard input" [ "$(tail -n 1 "$out" | cut -d , -f 1-6)" = "$(cat "$dir/expected")" ]
eval_csv "$model" --text "$dir/text" --range 0:0.1
cp "$dir/row" "$dir/fastest"
export DECODE_ISA=scalar
eval_csv "$model" --text "$dir/text" --range 0:0.1
unset DECODE_ISA
note "eval: the same figures from scalar kernels" cmp -s "$dir/row" "$dir/fastest"

eval_csv "$model" --text "$dir/text" --ctx 20 --stride 7
note "eval: more context, another figure" [ "$(field 3)" != "$(cut -d , -f 3 "$dir/expected")" ]
note "eval: as many tokens" [ "$(field 1)" = $((bytes - 1)) ]

# Ranges that meet share nothing and leave out nothing: each loses its first token.
total=0
for range in 0:0.3333 0.3333:0.9 0.9:1; do
    eval_csv "$model" --text "$dir/text" --range $range
    total=$((total + $(field 2) + 1))
done
note "eval: ranges add up" [ $total = "$bytes" ]
head -c $((bytes / 2)) "$dir/text" >"$dir/half"
eval_csv "$model" --text "$dir/half"
cp "$dir/row" "$dir/expected"
eval_csv "$model" --text "$dir/text" --range 0:0.5
note "eval: the range 0:0.5 is the first half" cmp -s "$dir/row" "$dir/expected"

eval_csv "$model" --text "$dir/half" --against "$model" -t 3
note "eval: keys with another" [ "$(head -n 1 "$out")" = "$keys,$more" ]
note "eval: no distance from itself" [ "$(field 7-9)" = 0,0,1 ]
note "eval: the other's bits are its own" [ "$(field 6)" = "$(field 10)" ]
note "eval: the same figures before" [ "$(field 1-6)" = "$(cat "$dir/expected")" ]
expect_exit 0 eval "$model" --text "$dir/half" --format json
note "eval: JSON is an array" [ "$(head -c 1 "$out")" = "[" ]
expect_exit 0 eval "$model" --text "$dir/half" --format jsonl --kv-type f16
note "eval: JSON lines" has_lines "$out" 1
expect_exit 0 eval "$model" --text "$dir/half" --format jsonl --kv-type q8_0
expect_exit 0 eval "$model" --text "$dir/half" --kv-heads 2 --method mean --format jsonl
note "eval: a key in JSON" has "$out" '"bits_per_byte": '
for form in table md; do
    expect_exit 0 eval "$model" --text "$dir/half" --against "$model" --format $form
    note "eval: $form" has "$out" "top1_agreement"
done
expect_exit 0 eval "$model" --text "$dir/half" -v --ctx 100
note "eval: the windows" has "$err" "of 100 tokens, stride 100, to score"
note "eval: the memory plan" has "$err" "memory: weights"
printf ab >"$dir/two"
expect_exit 0 eval "$model" --text "$dir/two" --format jsonl
note "eval: one token has no error" has "$out" '"nll_stderr": null'

for range in '' : 0 0.5 0: :1 1:0 0.5:0.5 -0.1:1 0:1.1 0:x 0:1: nan:1 0:inf ' 0:1' 0,1; do
    expect_error 2 "--range: expected A:B" eval "$model" --text "$dir/text" --range "$range"
done
for number in 0 -1 x '' 1e2; do
    expect_error 2 "--ctx: expected" eval "$model" --text "$dir/text" --ctx "$number"
    expect_error 2 "--stride: expected" eval "$model" --text "$dir/text" --stride "$number"
done
expect_error 2 "--ctx: expected 1 to 256, the context of the checkpoint, found 257" eval "$model" --text "$dir/text" --ctx 257
expect_error 2 "--stride: expected 1 to 256, the context of the checkpoint, found 257" eval "$model" --text "$dir/text" \
    --stride 257
expect_error 2 "--stride: expected 1 to 5" eval "$model" --text "$dir/text" --ctx 5 --stride 6
printf a >"$dir/one"
expect_error 2 "the text has 1 token; expected at least 2" eval "$model" --text "$dir/one"
: >"$dir/none"
expect_error 2 "the text has 0 tokens" eval "$model" --text "$dir/none"
expect_error 2 "the text has 0 tokens" eval "$model" --text "$dir/text" --range 0.0000001:0.0000002
expect_error 3 "nosuchfile" eval "$model" --text nosuchfile
expect_error 3 "nosuchfile" eval nosuchfile --text "$dir/text"
expect_error 3 "nosuchfile" eval "$model" --text "$dir/text" --against nosuchfile
expect_error 3 "$golden/gqa.gguf: another vocabulary than the checkpoint's: expected 300 tokens" \
    eval "$golden/mha.gguf" --text "$dir/text" --against "$golden/gqa.gguf"
# Tokens A and B change places.
zeros='\x00\x00\x00\x00\x00\x00\x00'
LC_ALL=C sed "s/A\x01${zeros}B\x01/B\x01${zeros}A\x01/" "$model" >"$dir/swapped.gguf"
expect_error 3 "swapped.gguf: another vocabulary than the checkpoint's: token 65 is expected to be 'A', found 'B'" \
    eval "$model" --text "$dir/text" --against "$dir/swapped.gguf"
expect_error 2 "swapped.gguf: another vocabulary than the checkpoint's: token 65 is expected to be 'A', found 'B'" \
    generate "$model" -p x --draft "$dir/swapped.gguf"
# This copy has had a NaN since the tests of info.
note "eval: not finite logits: exit 1" [ "$("$decode" eval "$dir/copy.gguf" --text "$dir/text" \
    >"$out" 2>"$err"; echo $?)" = 1 ]
note "eval: they are named" has "$err" "after token 0: the logit of token"
note "eval: no figures then" is_empty "$out"

: >"$err"
"$decode" eval "$model" --text tests/cli.sh --stride 1 -t 2 -v >"$out" 2>"$err" &
pid=$!
await has "$err" "windows: "
end_by INT $pid
note "eval interrupted: exit 130" is_code 130
note "eval interrupted: no figures" is_empty "$out"
note "eval interrupted: is said" has "$err" "interrupted after"

# --- heads --------------------------------------------------------------------------------------

keys="layer,head,delta_nll,delta_nll_stderr,delta_bits_per_byte,written,stream,like,like_score_kept,like_output_kept"
set -- "$golden/gqa.gguf" --text "$dir/half"
expect_exit 0 help heads
note "help heads is whole" has "$out" "goes on where it was"
expect_error 2 "no checkpoint is named" heads --text x
expect_error 2 "there is no text to predict" heads "$model"
expect_error 2 "--range: expected A:B" heads "$@" --range 1:0
expect_error 2 "--ablate: expected one of zero, mean" heads "$@" --ablate random
expect_error 2 "--tokens: expected" heads "$@" --tokens 0
expect_error 2 "--layer: expected all or layers from 0 to" heads "$@" --layer 99
expect_error 2 "the text has 1 token; expected at least 2" heads "$1" --text "$dir/one"
expect_error 2 "--svg" heads "$@" --svg "$1"
expect_error 2 "unknown option '--kv-type'" heads "$@" --kv-type f16
expect_error 3 "nosuchfile" heads "$1" --text nosuchfile

expect_exit 0 heads "$@" --tokens 100 --format csv
note "heads: exactly the documented keys" [ "$(head -n 1 "$out")" = "$keys" ]
note "heads: what costs nothing" has "$err" "heads cost nothing on this text"
n_rows=$(($(wc -l <"$out") - 1))
cp "$out" "$dir/expected"
for same in "-t 3" "--layer all" "--svg $dir/heads.svg"; do
    expect_same "$dir/expected" heads "$@" --tokens 100 --format csv $same
done
note "heads: a picture" has "$dir/heads.svg" "<svg"
expect_exit 0 heads "$@" --tokens 100 --layer 0 --format csv -q
note "heads: nothing on stderr with -q" is_empty "$err"
note "heads: the layer's rows" [ "$(sed -n 2,4p "$out")" = "$(sed -n 2,4p "$dir/expected")" ]
expect_exit 0 heads "$@" --tokens 100 --ablate mean --format json
note "heads: JSON" has "$out" '"delta_nll": '
note "heads: a row a head" [ "$(grep -c '"layer"' "$out")" = "$n_rows" ]

# Ctrl-C: the heads that are done.
: >"$err"
"$decode" heads "$model" --text tests/cli.sh --tokens 20000 -v --format csv >"$out" 2>"$err" &
pid=$!
await has "$err" "memory: weights"
end_by INT $pid
note "heads interrupted: exit 130" is_code 130
note "heads interrupted: is said" has "$err" "interrupted after"

# Without heads: the figures of the file that has no columns for them.
tokens=$(cat "$golden/gqa.tokens")
dropped=$dir/dropped.gguf
expect_exit 0 convert "$1" -o "$dropped" --drop-heads 0.1,1.0
note "drop-heads: said" has "$err" "the output columns of heads 0.1,1.0 are zero"
note "drop-heads: in the metadata" has "$dropped" "0.1,1.0"
eval_csv "$dropped" --text "$dir/half"
cp "$dir/row" "$dir/expected"
eval_csv "$@" --without 0.1,1.0
note "eval --without: the figures of the file" cmp -s "$dir/row" "$dir/expected"
eval_csv "$@" --without 0.1
note "eval --without: other heads, other figures" [ "$(cat "$dir/row")" != "$(cat "$dir/expected")" ]
run score "$dropped" --tokens "$tokens"
cp "$out" "$dir/expected"
expect_same "$dir/expected" score "$1" --tokens "$tokens" --without 1.0,0.1
run generate "$dropped" -p x -n 20 --greedy -q
cp "$out" "$dir/expected"
expect_same "$dir/expected" generate "$1" -p x -n 20 --greedy -q --without 0.1,1.0
expect_exit 0 eval "$@" --without 0.1 --against "$1" --format csv
note "eval --without: the other has all heads" [ "$(tail -n 1 "$out" | cut -d , -f 8)" != 0 ]
expect_exit 0 bench "$1" --kv-heads all --without 0.1 -n 2 --warmup 0 --repeat 1 --prompt 0 -q
for heads in '' 0 0. .0 0.1. 0.1, ,0.1 -1.0 0.-1 99.0 0.99 0,1 x 0.1,1.x \
    4294967296.0; do
    expect_error 2 "--without: expected L.H, a layer from 0 to" eval "$@" --without "$heads"
    expect_error 2 "--drop-heads: expected L.H" convert "$1" -o "$dir/new.gguf" --drop-heads "$heads"
done
expect_error 2 "--without: expected L.H" score "$1" --tokens 1,2 --without 9.9
expect_error 2 "--without: expected L.H" generate "$1" -p x --without 9.9
expect_error 2 "--without: expected L.H" bench "$1" --without 9.9
expect_error 2 "--without: head 0.1 is given twice" eval "$@" --without 0.1,1.1,0.1
expect_error 2 "expected one of them" convert "$1" -o "$dir/new.gguf" --drop-heads 0.1 --kv-heads 1
expect_error 2 "decode eval measures OUT" convert "$1" -o "$dir/new.gguf" --drop-heads 0.1 --eval "$dir/half"
expect_error 2 "share one block" convert "$golden/shared-block.gguf" -o "$dir/new.gguf" --drop-heads 0.1
expect_error 2 "exists" convert "$1" -o "$dropped" --drop-heads 0.1
note "drop-heads: nothing is written" [ ! -e "$dir/new.gguf" ]

# --- train --------------------------------------------------------------------------------------

# A text of lines, a model of seconds.
awk 'BEGIN { for (i = 0; i < 400; i++) print "line " i " of a text: " i * i % 97 }' >"$dir/lines.txt"
toy="--layers 1 --embd 16 --heads 2 --ctx 32 --batch 2 --steps 40 --eval-every 10 --seed 7"
expect_exit 0 train "$dir/lines.txt" -o "$dir/toy.gguf" $toy --log "$dir/toy.csv"
note "train: stdout is empty" is_empty "$out"
note "train: progress as lines" has "$err" "step 40 of 40: loss "
note "train: no progress line" lacks "$err" "$(printf '\r')"
note "train: what was made" has "$err" "best of step"
note "train: the log's head" has "$dir/toy.csv" "step,loss,val_loss,val_bits_per_byte,lr,grad_norm"
note "train: a row a step and an evaluation" has_lines "$dir/toy.csv" 45
note "train: OUT.state is there" [ -s "$dir/toy.gguf.state" ]
expect_exit 0 info "$dir/toy.gguf"
note "train: the checkpoint's shape" has "$out" "n_ctx         32"
expect_exit 0 generate "$dir/toy.gguf" -p "line 1" -n 10 --greedy
run train "$dir/lines.txt" -o "$dir/more.gguf" $toy -q -t 3
note "train -q: nothing on stderr" is_empty "$err"
note "train: any threads, the same file" cmp -s "$dir/toy.gguf" "$dir/more.gguf"
expect_exit 0 train "$dir/lines.txt" -o "$dir/toy.gguf" $toy --resume
note "train --resume at the end has nothing to do" has "$err" "going on after step 40"
expect_exit 0 train "$dir/lines.txt" "$dir/lines.txt" -o "$dir/bpe.gguf" $toy --vocab 280 \
    --kv-heads 1 --eval-every -1 --save-every 7
note "train --vocab: its tokens" has "$err" "(MQA), d_ff 64, context 32, vocabulary 280"
by_layer=$(repeat 2 40 | sed 's/2/2, /g')1
expect_exit 0 train "$dir/lines.txt" -o "$dir/deep.gguf" --layers 41 --embd 8 --heads 2 --ff 8 \
    --ctx 8 --batch 1 --steps 1 --seed 1 --kv-heads "$(echo "$by_layer" | tr -d ' ')"
run info "$dir/deep.gguf"
note "info: all layers of a deep one" has "$out" "$by_layer"
expect_exit 0 train "$dir/lines.txt" -o "$dir/further.gguf" --from "$dir/toy.gguf" \
    --teacher "$dir/toy.gguf" --steps 3 --batch 2 --seed 1 -v
note "train --from: measured before the first step" has "$err" "step 0 of 3: held out"
note "train --from: what was tried and chosen" has "$err" "kept aside; "
note "train --teacher: what loss is" has "$err" "the text's cross-entropy, without what the teacher adds"
expect_exit 0 train "$dir/lines.txt" -o "$dir/given.gguf" --from "$dir/toy.gguf" --steps 3 \
    --batch 2 --seed 1 --lr 1e-4 --eval-every -1
note "train --from --lr: nothing is tried" lacks "$err" "kept aside"
note "train --eval-every -1: none at all" lacks "$err" "bits a byte"
expect_exit 0 train "$dir/lines.txt" -o "$dir/dear.gguf" --from "$dir/toy.gguf" --steps 200 \
    --batch 2 --seed 1 -t 2
run train "$dir/lines.txt" -o "$dir/same.gguf" --force --from "$dir/toy.gguf" --steps 200 --batch 2 \
    --seed 1 -t 1 -q
note "train --from: any threads, the same file" cmp -s "$dir/dear.gguf" "$dir/same.gguf"
expect_exit 0 quantize "$model" -o "$dir/q8.gguf" --type q8_0
expect_exit 0 train "$dir/lines.txt" -o "$dir/further.gguf" --force --from "$dir/q8.gguf" --steps 1 \
    --batch 1 --ctx 64 --seed 1 -v
note "train --from a quantized checkpoint: a notice" has "$err" "trained, and written, in F32"
note "train -v: memory" has "$err" "memory: parameters, gradient and moments"

# Every architecture, and kinds that only `decode` has: what is written runs everywhere.
while IFS='|' read -r h_arch h_options h_plan; do
    expect_exit 0 train "$dir/lines.txt" -o "$dir/$h_arch.gguf" $toy --layers 2 --steps 6 $h_options
    note "train $h_options: the plan names it" has "$err" "new model: $h_plan"
    expect_exit 0 info "$dir/$h_arch.gguf" --check
    expect_exit 0 generate "$dir/$h_arch.gguf" -p "line 1" -n 4 --greedy -q
    note "train $h_options: continues a text" has "$out" "line 1"
    expect_exit 0 score "$dir/$h_arch.gguf" -p "line 1"
    expect_exit 0 eval "$dir/$h_arch.gguf" --text "$dir/lines.txt" --range 0.9:1
    expect_exit 0 train "$dir/lines.txt" -o "$dir/further.gguf" --force --from "$dir/$h_arch.gguf" \
        --teacher "$dir/toy.gguf" --steps 2 --batch 2 --seed 1
done <<EOF
llama|--arch llama --kv-heads 1|llama, 2 layers, d_model 16, 2 heads (MQA), d_ff 64,
transformer|--arch transformer --label-smoothing 0.1|decode (norm layer after, position sinusoidal, ffn relu), 2 layers
alibi|--arch decode --norm rms --position alibi --no-bias|decode (norm rms before, position alibi, ffn gelu, no biases), 2
mixed|--placement after --position quadratic --ffn swiglu --attn-dropout 0.2|decode (norm layer after, position quadratic, ffn swiglu), 2
shared|--position rope --ffn gelu_erf --share-layers|decode (norm layer before, position rope, ffn gelu_erf, one block for all layers), 2
layers|--kv-heads 2,1 --position none|decode (norm layer before, position none, ffn gelu), 2
EOF
h_x="$dir/lines.txt -o $dir/x.gguf"
expect_error 2 "--ffn relu: --arch llama has swiglu; --arch decode has what is asked for" \
    train $h_x --arch llama --ffn relu
expect_error 2 "--no-bias: --arch gpt2 has biases" train $h_x --arch gpt2 --no-bias
expect_error 2 "--share-layers: --arch transformer" train $h_x --arch transformer --share-layers
expect_error 2 "--heads 16: rotary positions turn pairs" train $h_x --arch llama --heads 16 --embd 48
expect_error 2 "--kv-heads: expected one number, or one for each layer, 2; found 3" \
    train $h_x --layers 2 --kv-heads 4,2,1
expect_error 2 "--kv-heads 2x: expected a divisor" train $h_x --kv-heads 8,2x,1,1
expect_error 2 "--kv-heads: layers that share" train $h_x --layers 2 --share-layers --kv-heads 4,2
expect_error 2 "--norm: expected one of layer, rms, found 'batch'" train $h_x --norm batch
expect_error 2 "--arch: expected one of gpt2, llama, transformer, decode" train $h_x --arch gpt3
expect_error 2 "--arch and --from" train $h_x --from "$dir/toy.gguf" --arch llama
expect_error 2 "--attn-dropout" train $h_x --attn-dropout 0.95
expect_error 2 "--label-smoothing" train $h_x --label-smoothing -0.1

expect_error 2 "no text is named" train -o "$dir/x.gguf"
expect_error 2 "no output is named" train "$dir/lines.txt"
expect_error 2 "--heads 3: expected a divisor of --embd 16" train "$dir/lines.txt" \
    -o "$dir/x.gguf" --embd 16 --heads 3
expect_error 2 "--kv-heads 3: expected a divisor of --heads 8" train "$dir/lines.txt" \
    -o "$dir/x.gguf" --kv-heads 3
expect_error 2 "--vocab" train "$dir/lines.txt" -o "$dir/x.gguf" --vocab 255
expect_error 2 "--val-fraction" train "$dir/lines.txt" -o "$dir/x.gguf" --val-fraction 1
expect_error 2 "--lr" train "$dir/lines.txt" -o "$dir/x.gguf" --lr 0
expect_error 2 "expected at least" train "$dir/lines.txt" -o "$dir/x.gguf" --ctx 4096
expect_error 2 "the text itself" train "$dir/lines.txt" -o "$dir/lines.txt"
expect_error 2 "the checkpoint itself" train "$dir/lines.txt" -o "$dir/toy.gguf" \
    --from "$dir/toy.gguf"
expect_error 2 "--layers and --from" train "$dir/lines.txt" -o "$dir/x.gguf" \
    --from "$dir/toy.gguf" --layers 2
expect_error 2 "with --steps 40, not 41" train "$dir/lines.txt" -o "$dir/toy.gguf" $toy \
    --steps 41 --resume
expect_error 3 "$dir/none.txt" train "$dir/none.txt" -o "$dir/x.gguf"
expect_error 3 "lines.txt" train "$dir/lines.txt" -o "$dir/x.gguf" --from "$dir/lines.txt"
expect_error 1 "no/such" train "$dir/lines.txt" -o "$dir/no/such/x.gguf"
note "train: a refused run leaves nothing" [ ! -e "$dir/x.gguf" ]

# What is written is nothing that is read; and one file is not written twice.
cp "$dir/lines.txt" "$dir/tt.state"
cp "$dir/toy.gguf" "$dir/source.state"
for h_case in "text -o $dir/x.gguf --log $dir/tt.state" "text -o $dir/tt" \
    "checkpoint -o $dir/x.gguf --from $dir/source.state --log $dir/source.state" \
    "checkpoint -o $dir/x.gguf --teacher $dir/source.state --log $dir/source.state" \
    "checkpoint -o $dir/source --from $dir/source.state" \
    "checkpoint -o $dir/source --teacher $dir/source.state"; do
    expect_error 2 "the ${h_case%% *} itself" train "$dir/tt.state" ${h_case#* }
done
expect_error 2 "both name" train "$dir/tt.state" -o "$dir/x.gguf" --log "$dir/./x.gguf"
expect_error 2 "is OUT.state" train "$dir/tt.state" -o "$dir/x.gguf" \
    --log "$dir/x.gguf.state"
expect_error 2 "is OUT.state" train "$dir/tt.state" -o "$dir/toy.gguf" \
    --log "$dir/toy.gguf.state"
note "train: the text is as it was" cmp -s "$dir/lines.txt" "$dir/tt.state"
note "train: the source is as it was" cmp -s "$dir/toy.gguf" "$dir/source.state"
expect_error 2 "--teacher-weight is for --teacher" train "$dir/lines.txt" -o "$dir/x.gguf" \
    --teacher-weight 0.3
note "train: these leave nothing either" [ ! -e "$dir/x.gguf" ]

# OUT is the finished run's own, and a finished run is no unfinished one.
cp "$dir/further.gguf" "$dir/more.gguf"
run train "$dir/lines.txt" -o "$dir/more.gguf" $toy --resume
note "train --resume: another file as OUT: exit 1" is_code 1
note "train --resume: another file as OUT is said" has "$err" "not the best checkpoint of this run"
expect_exit 0 train "$dir/lines.txt" -o "$dir/more.gguf" $toy --steps 50 --force
note "train: a finished run is not called unfinished" lacks "$err" "unfinished"

# A file-size limit fails the write; it does not kill.
mkdir "$dir/limited"
(
    ulimit -f 100
    exec "$decode" quantize "$model" -o "$dir/limited/q8.gguf" --type q8_0
) >"$out" 2>"$dir/limited.err"
code=$?
note "a file-size limit: exit 1" is_code 1
note "a file-size limit is said" has "$dir/limited.err" "File too large"
note "a file-size limit leaves nothing" [ -z "$(ls -A "$dir/limited")" ]

# Interrupted and resumed is the same as in one piece.
long="--layers 1 --embd 16 --heads 2 --ctx 32 --batch 4 --steps 3000 --eval-every 500 --seed 7"
# stop_training NAME SIGNAL: sends it to a training whose log has a row already.
stop_training() {
    "$decode" train "$dir/lines.txt" -o "$dir/$1.gguf" $long --log "$dir/$1.csv" 2>"$err" &
    h_pid=$!
    await [ -s "$dir/$1.csv" ]
    end_by "$2" $h_pid
}

stop_training parts TERM
note "train interrupted: exit 130" is_code 130
note "train interrupted is said" has "$err" "goes on from $dir/parts.gguf.state"
note "train interrupted: there is a checkpoint" [ -s "$dir/parts.gguf" ]
expect_exit 0 train "$dir/lines.txt" -o "$dir/parts.gguf" $long --resume --log "$dir/parts.csv"
expect_exit 0 train "$dir/lines.txt" -o "$dir/whole.gguf" $long
note "train resumed: the same file" cmp -s "$dir/parts.gguf" "$dir/whole.gguf"
note "train resumed: the same state" cmp -s "$dir/parts.gguf.state" "$dir/whole.gguf.state"
note "train resumed: one log" has_lines "$dir/parts.csv" 3007

# Killed after a save, the log has what the state has, and the rest is made again.
"$decode" train "$dir/lines.txt" -o "$dir/killed.gguf" $long --save-every 300 --log "$dir/killed.csv" \
    2>"$err" &
h_pid=$!
await [ -s "$dir/killed.gguf.state" ]
kill -KILL $h_pid
wait $h_pid 2>/dev/null
"$decode" train "$dir/lines.txt" -o "$dir/killed.gguf" $long --save-every 300 --resume -q \
    --log "$dir/killed.csv"
note "train killed and resumed: every step has its row" \
    [ "$(grep -c '^[0-9]*,[0-9]' "$dir/killed.csv")" -eq 3000 ]
note "train killed and resumed: the steps in order" sh -c "cut -d , -f 1 '$dir/killed.csv' | tail -n +2 | sort -nc"

stop_training hung HUP
h_code=130 # under nohup the signal is ignored, and the run ends well
sh -c 'kill -HUP $$; exit 0' && h_code=0
note "train hung up: exit $h_code" is_code $h_code
note "train hung up: is saved" [ -s "$dir/hung.gguf.state" ]

# --- convert ------------------------------------------------------------------------------------

text=$dir/text
head -c 20000 tests/cli.sh >"$text"
calib=$dir/calib # what is converted in memory takes it whole
head -c 1500 tests/cli.sh >"$calib"
head -c 200 tests/cli.sh >"$dir/short-text"
head -c 50 tests/cli.sh >"$dir/fifty"
head -c 600 tests/cli.sh >"$dir/eval-text" # two windows and a half
gqa=$dir/gqa.gguf
run convert "$model" -o "$gqa" --kv-heads 2 --calib "$calib" --calib-tokens 4000 \
    --eval "$dir/eval-text" -v
note "convert: exit 0, found $code" is_code 0
note "convert: layers" has "$out" "score_lost"
note "convert: bits per byte" has "$out" "bits per byte"
note "convert: memory plan" has "$err" "memory: the conversion takes"
run info "$gqa"
note "convert: is GQA-2" has "$out" "GQA-2"
run convert "$model" -o "$gqa" --force --kv-heads 2 --calib "$calib" \
    --format json -q
note "convert: silent with -q" is_empty "$err"
note "convert: JSON" has "$out" '"method": "fit"'
cp "$gqa" "$dir/again.gguf"
run convert "$model" -o "$gqa" --force --kv-heads 2 --calib "$calib" -q -t 3
note "convert: the same bytes with 3 threads" cmp -s "$gqa" "$dir/again.gguf"

# Few tokens: a part of them is kept aside all the same, no refit is kept that is worse there (one
# window of 256 took 2.04 nats a token to 4.40), and how far the result is from the checkpoint is
# told. Too few are refused with their number.
expect_exit 0 convert models/shakespeare-llama.gguf -o "$dir/few.gguf" --kv-heads 1 \
    --calib "$text" --calib-tokens 256 --refit none --format csv
divergence_of() { sed -n 's/^divergence,0,//p' "$out"; }
without=$(divergence_of)
expect_exit 0 convert models/shakespeare-llama.gguf -o "$dir/few.gguf" --kv-heads 1 --force \
    --calib "$text" --calib-tokens 256 --refit wo --format csv
refitted=$(divergence_of)
note "convert: a refit on few tokens does no harm" \
    awk "BEGIN { exit !($refitted > 0 && $refitted <= 1.05 * $without) }"
expect_error 2 "expected at least 128 tokens" convert "$model" -o "$dir/none.gguf" --kv-heads 2 \
    --calib "$dir/fifty"
expect_exit 0 convert "$golden/llama.gguf" -o "$dir/few.gguf" --kv-heads 1 --force \
    --calib LICENSE --calib-tokens 512 --method random --seed 1
note "convert: warns where the plain mean is nearer" has "$err" "the plain mean (--method mean"

# In memory: the text and the log-probabilities of the converted file.
run generate "$gqa" -p "ROMEO:" -n 40 --greedy -q
cp "$out" "$dir/expected"
expect_same "$dir/expected" generate "$model" -p "ROMEO:" -n 40 --greedy -q --kv-heads 2 \
    --calib "$calib"
run score "$gqa" -p "ROMEO:"
cp "$out" "$dir/expected"
expect_same "$dir/expected" score "$model" -p "ROMEO:" --kv-heads 2 --calib "$calib"
run generate "$model" -p "ROMEO:" -n 40 --greedy -q
cp "$out" "$dir/expected"
expect_same "$dir/expected" generate "$model" -p "ROMEO:" -n 40 --greedy -q --kv-heads 8

run convert "$model" -o "$dir/mean.gguf" --kv-heads 1 --method mean --eval "$dir/eval-text"
note "convert: mean warns" has "$err" "decode train TEXT --from"
run convert "$model" -o "$dir/random.gguf" --kv-heads 1 --method random
seed=$(sed -n 's/^decode: seed //p' "$err")
run convert "$model" -o "$dir/random2.gguf" --kv-heads 1 --method random --seed "$seed"
note "convert: the seed repeats it" cmp -s "$dir/random.gguf" "$dir/random2.gguf"

# Every architecture: the file gives the logits that the conversion in memory gives, to the bit, in
# eval's and bench's hands too; quantized it still runs.
h_names='llama shared-block transformer alibi quadratic layerwise-kv' h_methods='mean procrustes fit'
case $decode in
*/asan/* | */tsan/*) h_names='llama layerwise-kv' h_methods=fit ;; # each process starts slowly there
esac
for name in $h_names; do
    for method in $h_methods; do
        set -- --kv-heads 1 --method "$method"
        [ "$method" = fit ] && set -- "$@" --calib "$calib"
        from=$golden/$name.gguf
        to=$dir/$name-$method.gguf
        expect_exit 0 convert "$from" -o "$to" "$@" -q
        tokens=$(cat "$golden/$name.tokens")
        expect_exit 0 score "$to" --tokens "$tokens" --logits "$dir/first.npy" -q
        expect_exit 0 score "$from" --tokens "$tokens" --logits "$dir/second.npy" -q "$@"
        note "$name, $method: the file is what memory has" \
            cmp -s "$dir/first.npy" "$dir/second.npy"
        expect_exit 0 generate "$from" -p "x" -n 5 --greedy -q "$@"
        expect_exit 0 eval "$from" --text "$dir/short-text" -q "$@"
        expect_exit 0 quantize "$to" -o "$dir/small.gguf" --type q4_0 --force -q
        expect_exit 0 score "$dir/small.gguf" --tokens "$tokens" -q
    done
    expect_exit 0 bench "$from" --kv-heads all --method fit --depth 4 -n 2 --repeat 1 -q
done
expect_error 2 "ALiBi" convert "$golden/alibi.gguf" -o "$dir/new.gguf" --kv-heads 1 --group cluster

# Random weights, whose statistics are of low rank.
expect_exit 0 convert "$golden/gqa.gguf" -o "$dir/low-rank.gguf" --kv-heads 1

# Latent caches: the file gives what memory gives; ranks by layer, or for a number of bytes.
set -- --calib "$calib"
expect_exit 0 convert "$model" -o "$dir/latent.gguf" --latent 32 "$@" -q
expect_exit 0 score "$dir/latent.gguf" -p "ROMEO:" --logits "$dir/first.npy" -q
expect_exit 0 score "$model" -p "ROMEO:" --logits "$dir/second.npy" --latent 32 "$@" -q
note "latent: the file is what memory has" cmp -s "$dir/first.npy" "$dir/second.npy"
run info "$dir/latent.gguf"
note "latent: is MLA-32" has "$out" "MLA-32"
grep '^MLA-32 ' "$out" >"$dir/expected"
run info "$model" --latent 32
note "info --latent: as its file" [ "$(grep '^MLA-32 ' "$out")" = "$(tail -1 "$dir/expected")" ]
expect_error 2 "rotary" info "$golden/llama.gguf" --latent 4
run convert "$model" -o "$dir/latent.gguf" --force --cache-bytes 512 "$@" --format json
note "latent: exit 0, found $code" is_code 0
note "latent: JSON has the method" has "$out" '"method": "latent"'
expect_exit 0 generate "$dir/latent.gguf" -p "ROMEO:" -n 8 --greedy -q
cp "$dir/latent.gguf" "$dir/latent.kept"
expect_exit 0 convert "$model" -o "$dir/latent.gguf" --force --cache-bytes 512 "$@" -q -t 3
note "latent: the same bytes with 3 threads" cmp -s "$dir/latent.gguf" "$dir/latent.kept"

run bench "$model" --kv-heads 8,1 --latent 32,64 -n 4 --repeat 1 --format csv -q
note "bench: latent caches beside K/V heads" has "$out" "MLA-64"
expect_exit 0 bench --shape 1x16x2,vocab=9,ctx=8 --latent 4 -n 2 --repeat 1 -q
expect_error 2 "from 1 to 16" bench --shape 1x16x2,vocab=9,ctx=8 --latent 17 -n 2
expect_error 2 "rotary" bench "$golden/llama.gguf" --latent 4 -n 2

# K/V heads layer by layer, and every level of refits.
run convert "$model" -o "$dir/by-layer.gguf" --kv-heads 4,1,2,1 "$@"
note "kv-heads by layer: exit 0, found $code" is_code 0
note "kv-heads by layer: is mixed" has "$out" "GQA-mixed-4"
for refit in none wo all block; do
    expect_exit 0 convert "$model" -o "$dir/refit.gguf" --force --kv-heads 2 "$@" --refit $refit -q
    run info "$dir/refit.gguf"
    note "refit $refit: metadata say so" grep -q "decode.convert.refit.* $refit" "$out"
done
set --

new=$dir/new.gguf
expect_error 2 "needs a text" convert "$model" -o "$new" --latent 32
expect_error 2 "needs a text" convert "$model" -o "$new" --cache-bytes 512
expect_error 2 "both given" convert "$model" -o "$new" --latent 32 --kv-heads 1
# As many as there are, which is no conversion, excuses nothing.
expect_error 2 "both given" generate "$model" -p x --latent 32 --kv-heads 8
expect_error 2 "both given" convert "$model" -o "$new" --latent 32 --cache-bytes 9 --calib "$text"
expect_error 2 "from 1 to 128" convert "$model" -o "$new" --latent 129 --calib "$text"
expect_error 2 "one for each layer, 4" convert "$model" -o "$new" --latent 8,8 --calib "$text"
expect_error 2 "found 'x'" convert "$model" -o "$new" --latent x --calib "$text"
expect_error 2 "found 'x'" convert "$model" -o "$new" --cache-bytes x --calib "$text"
expect_error 2 "expected at least 256" convert "$model" -o "$new" --cache-bytes 255 --calib "$text"
expect_error 2 "rotary" convert "$golden/llama.gguf" -o "$new" --latent 8 --calib "$calib"
expect_error 2 "one for each layer, 4" convert "$model" -o "$new" --kv-heads 4,2
expect_error 2 "has these already" convert "$model" -o "$new" --kv-heads 8,8,8,8
expect_error 2 "no number of K/V heads" convert "$model" -o "$new"
expect_error 2 "no output is named" convert "$model" --kv-heads 2
expect_error 2 "divisor of the checkpoint's 8" convert "$model" -o "$new" --kv-heads 3
expect_error 2 "less than the checkpoint's 8" convert "$model" -o "$new" --kv-heads 8
expect_error 2 "less than the checkpoint's 2" convert "$gqa" -o "$new" --kv-heads 4
expect_error 2 "the checkpoint itself" convert "$gqa" -o "$gqa" --force --kv-heads 1
expect_error 2 "exists; --force" convert "$model" -o "$gqa" --kv-heads 2
expect_error 2 "--refit needs a text" convert "$model" -o "$new" --kv-heads 2 --refit wo
expect_error 2 "--calib is for --kv-heads" generate "$model" -p a --calib "$text"
expect_error 2 "there is no text" convert "$model" -o "$new" --kv-heads 2 --calib /dev/null
expect_error 3 "no-such-file" convert "$model" -o "$new" --kv-heads 2 --calib no-such-file
expect_error 1 "cannot create" convert "$model" -o "$dir/absent/new.gguf" --kv-heads 2
note "convert: nothing was written" [ ! -e "$new" ]

expect_error 2 "no output is named" convert "$model" -o "" --kv-heads 2

# -o may name neither text, and a bad text is found while OUT is as it was.
cp "$gqa" "$dir/old.gguf"
cp "$text" "$dir/text.kept"
expect_error 2 "text of --calib itself" convert "$model" -o "$text" --force --kv-heads 2 \
    --calib "$text"
expect_error 2 "text of --eval itself" convert "$model" -o "$text" --force --kv-heads 2 \
    --eval "$text"
expect_error 2 "is the text itself" score "$model" -f "$text" --logits "$text"
note "convert: the text is as it was" cmp -s "$text" "$dir/text.kept"
printf a >"$dir/one"
expect_error 2 "--eval: " convert "$model" -o "$gqa" --force --kv-heads 2 --eval "$dir/one"
expect_error 2 "--eval: " convert "$model" -o "$gqa" --force --kv-heads 2 --eval /dev/null
expect_error 3 "no-such-file" convert "$model" -o "$gqa" --force --kv-heads 2 --eval no-such-file
note "convert: a bad text leaves the target" cmp -s "$gqa" "$dir/old.gguf"

# Calibration needs enough text.
printf 'ten tokens' >"$dir/short"
expect_error 2 "expected at least 128 tokens" convert "$model" -o "$new" --kv-heads 2 \
    --calib "$dir/short"
note "convert: nothing was written" [ ! -e "$new" ]
head -c 200 "$text" >"$dir/short"
run convert "$golden/gqa.gguf" -o "$dir/short.gguf" --kv-heads 1 --calib "$dir/short" \
    --calib-tokens 130
note "convert: few tokens warn" has "$err" "tokens are too few"

run convert "$model" -o "$dir/csv.gguf" --kv-heads 2 --method mean --eval "$dir/eval-text" --format csv
note "convert: CSV has the layers" has "$out" "layer,score_lost,output_lost"
note "convert: CSV has the figures" has "$out" "figure,before,after"
note "convert: CSV has parameters" grep -q '^parameters,[0-9]*,[0-9]*$' "$out"
note "convert: CSV has bits per byte" grep -q '^bits_per_byte,[0-9.]*,[0-9.]*$' "$out"
note "convert: CSV has one empty line" [ "$(grep -c '^$' "$out")" -eq 1 ]

# Random heads elsewhere: the seed is said, and it is that of convert.
run generate "$model" -p a -n 40 --kv-heads 1 --method random
cp "$out" "$dir/expected"
seed=$(sed -n 's/^decode: seed //p' "$err")
expect_same "$dir/expected" generate "$model" -p a -n 40 --kv-heads 1 --method random \
    --seed "$seed"
run score "$model" -p abc --kv-heads 1 --method random
cp "$out" "$dir/expected"
seed=$(sed -n 's/^decode: seed //p' "$err")
run convert "$model" -o "$dir/seeded.gguf" --kv-heads 1 --method random --seed "$seed" -q
expect_same "$dir/expected" score "$dir/seeded.gguf" -p abc

expect_error 2 "--range: expected" eval "$model" --text "$text" --range -0:1

# A killed or interrupted conversion leaves the target as it was.
cp "$gqa" "$dir/old.gguf"
i=0
while [ $i -lt 25 ]; do
    cat "$text"
    i=$((i + 1))
done >"$dir/long"
for ended in INT:130 KILL:137; do
    signal=${ended%:*}
    "$decode" convert "$model" -o "$gqa" --force --kv-heads 1 --calib "$dir/long" \
        --calib-tokens 500000 >"$out" 2>"$err" &
    pid=$!
    sleep 2
    kill -$signal $pid
    wait $pid 2>/dev/null
    code=$?
    note "convert: ended by SIG$signal, found $code" is_code "${ended#*:}"
    note "convert: SIG$signal leaves the target" cmp -s "$gqa" "$dir/old.gguf"
done

# --- import, export -----------------------------------------------------------------------------

hf=tests/data/hf
g=$dir/import.gguf
expect_exit 0 import $hf/gpt2 -o "$g" --format csv
note "import: a header and a row" has_lines "$out" 2
note "import: what it was" has "$out" "GPT2LMHeadModel,gpt2,MHA,2,48,4,4,64,400,"
# Tied stays tied: the file has no output matrix of its own, and converts as the folder does.
expect_exit 0 info "$g" --tensors
note "import of a tied folder: no output matrix" lacks "$out" " output.weight"
cp "$g" "$dir/gpt2"
absolute=$(realpath "$decode")
(cd "$dir" && "$absolute" convert gpt2 -o of-file.gguf --kv-heads 1 -q >/dev/null)
expect_exit 0 convert $hf/gpt2 -o "$dir/of-folder.gguf" --kv-heads 1 -q
note "import: folder and file convert alike" cmp -s "$dir/of-folder.gguf" "$dir/of-file.gguf"
expect_exit 0 train "$0" -o "$dir/tied.gguf" --arch gpt2 --layers 1 --heads 2 --embd 16 --ff 16 \
    --ctx 16 --steps 2 --batch 1 -t 1
trained=$(grep -o '[0-9]* parameters' "$err" | head -1)
expect_exit 0 info "$dir/tied.gguf"
counted=$(awk '$1 == "total" { gsub(",", "", $2); print $2 }' "$out")
note "train's parameter count is info's" [ "$trained" = "$counted parameters" ]
expect_exit 0 import $hf/gpt2 -o "$g" --force --format json -q
note "import: JSON" has "$out" '"format": "GPT2LMHeadModel"'
note "import -q: empty stderr" is_empty "$err"
expect_error 2 "no output is named" import $hf/gpt2
expect_error 2 "exists; --force replaces it" import $hf/gpt2 -o "$g"
expect_error 2 "is a GGUF file already" import "$g" -o "$dir/reimported.gguf"
expect_error 2 "--ctx: expected at most the 64 positions" import $hf/gpt2 -o "$g" --force --ctx 65
expect_error 2 "--type" import $hf/gpt2 -o "$g" --force --type q3
expect_error 3 "config.json: there is no such file" import $hf -o "$dir/reimported.gguf"
expect_error 3 "nosuchfile" import "$dir/nosuchfile" -o "$dir/reimported.gguf"
expect_error 2 "is the checkpoint itself" import $hf/gpt2 -o $hf/gpt2 --force

# A stack of 64 KiB is enough for all (a study's report alone took 26 of them).
small_stack() { (ulimit -s 64 && exec "$decode" "$@") >"$out" 2>"$err"; }
case $decode in
*/asan/* | */tsan/* | */cov/*) ;; # their own start takes more
*)
    small_stack study "$text" -o "$dir/small-stack" --embd 8 --layers 1 --heads 2 --ff 8 --ctx 8 \
        --batch 1 --steps 4 --seeds 1 -t 1 -q
    note "study on a small stack" [ $? -eq 0 ]
    small_stack convert "$model" -o "$dir/small-stack.gguf" --cache-bytes 512 --calib "$text" \
        --calib-tokens 256 -q
    note "convert on a small stack" [ $? -eq 0 ]
    ;;
esac

# An export that fails leaves the folder as it was, and none where there was none; one that succeeds
# keeps what else was there; of two at once one is there whole.
expect_exit 0 export "$model" -o "$dir/kept-whole" -q
mkdir "$dir/kept-whole/mine"
echo mine >"$dir/kept-whole/mine/file"
echo mine >"$dir/kept-whole/README.md"
cat "$dir"/kept-whole/*.* >"$dir/kept-whole-was"
(ulimit -f 400 && exec "$decode" export "$model" -o "$dir/kept-whole" --force) >"$out" 2>"$err"
note "export, no space: fails" [ $? -ne 0 ]
cat "$dir"/kept-whole/*.* >"$dir/kept-whole-is"
note "export, no space: the folder is as it was" cmp -s "$dir/kept-whole-was" "$dir/kept-whole-is"
(ulimit -f 400 && exec "$decode" export "$model" -o "$dir/kept-whole-new") >"$out" 2>"$err"
note "export, no space: no folder is left" [ ! -e "$dir/kept-whole-new" ]
note "export, no space: nothing else is left" [ -z "$(find "$dir" -name '.decode-*')" ]
expect_exit 0 export $golden/llama.gguf -o "$dir/kept-whole" --force -q
note "export: other files stay" cmp -s "$dir/kept-whole/README.md" "$dir/kept-whole/mine/file"
note "export: is another model" grep -q LlamaForCausalLM "$dir/kept-whole/config.json"
for h_model in "$model" $golden/llama.gguf "$model" $golden/llama.gguf; do
    "$decode" export "$h_model" -o "$dir/kept-whole" --force -q >"$out" 2>"$err" &
done
wait
expect_exit 0 info "$dir/kept-whole" --check
note "export, four at once: nothing else is left" [ -z "$(find "$dir" -name '.decode-*')" ]

# No output replaces a file of the folder that a checkpoint is read from, nor the vocabulary beside
# one of llama2.c, whatever names it; --force is no leave either.
cp -r $hf/gpt2 "$dir/folder"
chmod -R u+w "$dir/folder"
cat "$dir"/folder/* >"$dir/folder-was"
ln "$dir/folder/config.json" "$dir/hard-link"
for h_case in "score -p x --logits model.safetensors" \
    "attend -p xy --npy tokenizer.json" "attend -p xy --json config.json" \
    "attend -p xy --svg vocab.json" "generate -p x -n 2 --save-state config.json" \
    "bench --depth 4 --plot config.json" "bench --depth 4 --trace merges.txt" \
    "heads --text $0 --tokens 9 --svg config.json" "score -p x --logits ../hard-link" \
    "quantize --type f16 --force -o model.safetensors" \
    "convert --kv-heads 1 --force -o model.safetensors"; do
    expect_error 2 "one of the checkpoint's own files" ${h_case%% *} "$dir/folder" \
        $(echo "${h_case#* }" | sed "s|[^ ]*\$|$dir/folder/&|")
done
expect_error 2 "one of the checkpoint's own files" train "$0" --from "$dir/folder" --steps 1 \
    -o "$dir/x.gguf" --log "$dir/folder/config.json"
expect_error 2 "one of the checkpoint's own files" train "$0" --teacher "$dir/folder" --steps 1 \
    --force -o "$dir/folder/model.safetensors"
expect_error 2 "one of the checkpoint's own files" export "$dir/folder/model.safetensors" \
    -o "$dir/folder" --force
cat "$dir"/folder/* >"$dir/folder-is"
note "the folder is as it was" cmp -s "$dir/folder-was" "$dir/folder-is"
expect_error 1 "found a directory" import $hf/gpt2 -o "$dir" --force

# A type: as import and quantize give it.
for type in f32 f16 bf16 q8_0 q4_0; do
    expect_exit 0 import $hf/llama -o "$dir/typed.gguf" --type $type --force -q
    expect_exit 0 import $hf/llama -o "$dir/plain.gguf" --force -q
    expect_exit 0 quantize "$dir/plain.gguf" -o "$dir/quantized.gguf" --type $type --force -q
    note "import --type $type: the same file" cmp -s "$dir/typed.gguf" "$dir/quantized.gguf"
done
expect_exit 0 import $hf/llama -o "$dir/plain.gguf" --ctx 9 --force --format csv
note "import --ctx" has "$out" ",9,400,"

# Vocabularies of another place, and none.
expect_exit 0 import $hf/gpt2 -o "$dir/none.gguf" --tokenizer none --force
expect_error 3 "tokenizer" tokenize "$dir/none.gguf" -p ROMEO
mkdir "$dir/bare"
cp $hf/gpt2/config.json $hf/gpt2/model.safetensors "$dir/bare"
expect_exit 0 import "$dir/bare" -o "$dir/other.gguf" --tokenizer $hf/gpt2/tokenizer.json --force
run tokenize "$g" -p "ROMEO: the king"
cp "$out" "$dir/ids"
expect_same "$dir/ids" tokenize "$dir/other.gguf" -p "ROMEO: the king"
expect_error 3 "nosuchfile" import "$dir/bare" -o "$dir/other.gguf" --tokenizer "$dir/nosuchfile" --force
cp $hf/gpt2/tokenizer.json "$dir/bare"
expect_error 2 "one of the checkpoint's own files" import "$dir/bare" -o "$dir/bare/tokenizer.json" \
    --tokenizer "$dir/bare/tokenizer.json" --force

for f in model.safetensors config.json; do
    expect_error 2 "one of the checkpoint's own files" import "$dir/bare" -o "$dir/bare/$f" --force
done
note "the folder is as it was" cmp -s "$dir/bare/model.safetensors" $hf/gpt2/model.safetensors
expect_exit 0 import "$dir/bare" -o "$dir/bare/m.gguf" -q
expect_exit 0 import "$dir/bare" -o "$dir/bare/m.gguf" -q --force

# A folder in place of a checkpoint: what the file made of it gives. Weights that are read again
# after others were made of them once had become zeros.
same_as_imported() {
    set -- $1
    s_command=$1
    shift
    run "$s_command" "$g" "$@"
    cp "$out" "$dir/expected"
    expect_same "$dir/expected" "$s_command" $hf/gpt2 "$@"
}
same_as_imported "generate -p abc -n 12 --seed 1 -q"
same_as_imported "generate -p abc -n 12 --greedy --kv-heads 2 -q"
same_as_imported "score -p abcdefg --top 2"
same_as_imported "score -p abcdefg --kv-heads 1"
same_as_imported "tokenize -p ROMEO"
expect_exit 0 eval $hf/gpt2 --text tests/checks.sh --range 0:.2 --against "$g" --format csv
note "eval of a folder: no distance to the file" has "$out" ",0,"
expect_exit 0 info $hf/gpt2 --check
note "info of a folder: its path" has "$out" "$hf/gpt2"
expect_exit 0 attend $hf/gpt2/ -p ab --svg "$dir/heads.svg"
note "a picture of a folder: its name" has "$dir/heads.svg" "What the heads of gpt2/ look at"
expect_exit 0 bench $hf/gpt2 --kv-heads all -n 2 --repeat 1 --warmup 0 --prompt 2 --format csv
note "bench of a folder: a row each" has_lines "$out" 4
expect_exit 0 quantize $hf/gpt2 -o "$dir/a.gguf" --type q8_0 --force -q
expect_exit 0 convert $hf/gpt2 -o "$dir/b.gguf" --kv-heads 2 --method mean --force -q
run convert "$g" -o "$dir/c.gguf" --kv-heads 2 --method mean --force -q
for m in b c; do
    run score "$dir/$m.gguf" -p abcdefg
    cp "$out" "$dir/$m.score"
done
note "convert of a folder: the same logits" cmp -s "$dir/b.score" "$dir/c.score"
head -c 3000 tests/checks.sh >"$dir/few"
expect_exit 0 train "$dir/few" -o "$dir/d.gguf" --from $hf/gpt2 --steps 1 --batch 1 --ctx 8 --seed 1 -q

# And out again.
x=$dir/exported
expect_exit 0 export "$g" -o "$x" --format csv
note "export: what it is" has "$out" "GPT2LMHeadModel,MHA,float32,28,"
note "export: the weights that came in" cmp -s "$x/model.safetensors" $hf/gpt2/model.safetensors
expect_error 2 "exists; --force" export "$g" -o "$x"
expect_exit 0 export "$g" -o "$x" --force -q --format json
note "export: JSON" has "$out" '"class": "GPT2LMHeadModel"'
expect_error 2 "is the checkpoint itself" export "$x" -o "$x" --force
expect_error 1 "there is a file of this name" export "$g" -o "$dir/few" --force
expect_error 2 "no output is named" export "$g"
expect_error 2 "--type" export "$g" -o "$dir/y" --type q8_0
expect_error 2 "--expand repeats" export "$dir/b.gguf" -o "$dir/y"
note "export refused: no folder" [ ! -e "$dir/y" ]
expect_exit 0 export "$dir/b.gguf" -o "$dir/y" --expand -q
run score "$dir/y" -p abcdefg
cut -c1-30 "$out" >"$dir/y.score"
note "export --expand: the ids of before" [ "$(cut -c1-12 "$dir/y.score")" = "$(cut -c1-12 "$dir/b.score")" ]
for type in f16 bf16; do
    expect_exit 0 export "$dir/a.gguf" -o "$dir/half-folder" --type $type --force --format csv
    note "export --type $type" has "$out" "GPT2LMHeadModel,MHA,"
done
expect_exit 0 export "$dir/a.gguf" -o "$dir/half-folder" --force --format csv
note "export of blocks: float32" has "$out" "GPT2LMHeadModel,MHA,float32,"

# --- latent caches ------------------------------------------------------------------------------

latent=$golden/latent.gguf tokens=$(cat "$golden/latent.tokens")
expect_exit 0 info "$latent" --depth 39 --batch 1,2
note "latent: the only variant, and a row a batch" [ "$(grep -c '^MLA-24 ' "$out")" = 3 ]
note "latent: what a token takes" has "$out" "all heads share in all layers (2 x 24)"
expect_exit 0 info "$golden/mixed-latent.gguf"
note "latent: ranks by layer" has "$out" "32, 17, 40"
run score "$latent" --tokens "$tokens" -t 1
cp "$out" "$dir/expected"
expect_same "$dir/expected" score "$latent" --tokens "$tokens" --block 1 -t 3
bench_rows 4 "$latent" --kv-heads all --depth 0,39 --batch 1,3
note "latent: bench names it" [ "$(cut -d , -f 1 "$out" | sort -u | tr '\n' ' ')" = "MLA-24 variant " ]
expect_exit 0 bench "$latent" --depth 39 -n 2 --repeat 1 --prompt 0 -t 1
note "latent: bench shows arithmetic beside bytes" has "$out" "attention Mflop"
expect_exit 0 convert "$latent" -o "$dir/latent.gguf" --drop-heads 0.1,1.0 --force
run score "$dir/latent.gguf" --tokens "$tokens"
cp "$out" "$dir/expected"
expect_same "$dir/expected" score "$latent" --tokens "$tokens" --without 0.1,1.0
expect_exit 0 heads "$latent" --text tests/checks.sh --tokens 60 --format csv
note "latent: a row a head" has_lines "$out" 13
expect_exit 0 attend "$latent" -p "to be or not to be" --format csv
note "latent: attend's row a head" has_lines "$out" 13
expect_exit 0 quantize "$latent" -o "$dir/latent.gguf" --type q8_0 --force -q
expect_exit 0 generate "$dir/latent.gguf" -p ab -n 5 --samples 3 --greedy --kv-type q8_0 -q
expect_exit 0 train "$dir/few" -o "$dir/trained.gguf" --from "$latent" --steps 1 --batch 1 --ctx 8 --seed 1 -q
expect_exit 0 eval "$dir/trained.gguf" --text "$dir/few" --against "$latent" --format csv
expect_error 2 "found a latent cache" convert "$latent" -o "$dir/no.gguf" --kv-heads 1
expect_error 2 "transformers has no model with a latent cache" export "$latent" -o "$dir/no"

echo "cli: $passed passed, $failed failed"
[ $failed -eq 0 ]
