#!/bin/sh
# typed.sh DECODE - what people type who know other programs of the kind: their options, texts that
# are piped in, readers that leave, numbers with units, files that are no text, contexts that are
# full. Run from the repository's top; the last line counts what passed and failed.
. tests/checks.sh

# Tokens of a text that goes beyond the context of 256, and what it is made with.
tokens=600
set -- "-t 1" "-t 2"
is_sanitized && tokens=300 && set -- "-t 2"

# piped FILE ARGS...: the same with the file coming through a pipe.
piped() {
    h_file=$1
    shift
    cat "$h_file" | "$decode" "$@" >"$out" 2>"$err"
    code=$?
}

# --- others' names, numbers ---------------------------------------------------------------------

checks <<'EOF'
2 generate m --${names%:*}=5 | did you mean '--${names#*:}'?
    | for names in temperature:temp ctx-size:ctx n-predict:n top_k:top-k max_new_tokens:n
2 train t --batch-size 5 | did you mean '--batch'?
2 generate m -s 3 | did you mean '--seed'?
2 generate $words | ; -i opens a session and takes no text: expected one with -p
    | for words in "$model -i hello" "-i hello $model"
2 generate $model "Once upon" | unexpected argument 'Once upon'; expected a text with -p

2 convert $model -o x.gguf --kv-heads auto --cache-bytes 8kb --calib README.md
    | --cache-bytes: expected a number of bytes, as 8192 or 8KiB
0 generate $model -p "To be" -n 2k --seed 1 -q | > thousands
0 generate $model -p "To be" -n 2000 --seed 1 -q | == thousands
$ least="-n 1 --repeat 1 --warmup 0 --prompt 0 --format csv"
0 bench $model --kv-heads $g $least -q | 2 lines | for g in mqa MQA gqa-2 mha
0 generate $model -p "To be" -n 5 --kv-heads 1 --seed 1 -q | > mqa
0 generate $model -p "To be" -n 5 --kv-heads MQA --seed 1 -q | == mqa
2 generate $model -p x --kv-heads few | MHA, GQA-G, MQA
0 bench $model --depth 256 --kv-heads 1 $least -q | ,255,1,1,1,0,
2 bench $model --depth 257 | depth 257: expected 0 to the context of 256
2 $words "$dir/x.PNG" | a name that ends in .svg | for words in "bench $model --svg"
    "attend $model -p x --svg" "heads $model README.md --svg"
$ [ ! -e "$dir/x.PNG" ]
EOF

# --- texts on standard input --------------------------------------------------------------------

printf 'To be, or' >"$dir/text"
checks <<'EOF'
0 generate $model -f "$dir/text" -n 20 --seed 1 -q | > continued
0 generate $model -n 20 --seed 1 -q <"$dir/text" | == continued
$ piped "$dir/text" generate $model -n 20 --seed 1 -q
0 | == continued
EOF
for command in score attend tokenize; do
    checks <<'EOF'
0 $command $model -f "$dir/text" | > given
$ piped "$dir/text" $command $model
0 | == given
EOF
done
# Nobody, and nothing, is no text; what is given goes before what is there.
checks <<'EOF'
0 generate $model -n 20 --seed 1 -q | > alone
$ piped /dev/null generate $model -n 20 --seed 1 -q
0 | == alone
0 generate $model -n 20 --seed 1 -q <&- | == alone
$ piped "$dir/text" generate $model -p '' -n 20 --seed 1 -q
0 | == alone
2 score $model | expected -p, -f or --tokens
2 tokenize $model | expected -p, -f or --decode
$ piped /dev/null score $model
2 | the text is empty
0 score $model --tokens 1,2 | > ids
$ piped "$dir/text" score $model --tokens 1,2
0 | == ids
EOF

# --- tokenize takes back what it prints ---------------------------------------------------------

checks <<'EOF'
0 tokenize $model -f "$dir/text" | > ids
0 tokenize $model --decode "$(cat "$dir/ids")" | == text
EOF
checks <<'EOF'
2 tokenize $model --decode "[1, x]" | --decode: item 2 is 'x'

# What is no text.
$ head -c 100000 $model >"$dir/binary"
2 $words "$dir/binary" | expected a text, found a checkpoint | for words in "generate $model -n 1 -f" "score $model -f"
    "tokenize $model -f" "eval $model" "heads $model" "train -o $dir/x.gguf --layers 1"
    "convert $model -o $dir/x.gguf --kv-heads 1 --calib"
    "convert $model -o $dir/x.gguf --kv-heads 1 --method mean --eval"
$ [ ! -e "$dir/x.gguf" -a ! -e "$dir/x" ]
$ printf '\303' >"$dir/half"
0 tokenize $model -f "$dir/half" | = 195

# eval MODEL TEXT; train over what is there, which only --resume does.
$ head -c 2000 tests/cli/cli.sh >"$dir/lines"
0 eval $words --format csv | > scored.$((i = i + 1)) | for words in "$model $dir/lines" "-m $model $dir/lines"
$ [ "$(cut -d , -f 4-9 "$dir"/scored.? | sort -u | wc -l)" -eq 2 ]
$ toy="--layers 1 --embd 16 --heads 2 --ctx 16 --batch 1 --steps 2 --seed 1"
0 train "$dir/lines" -o "$dir/toy.gguf" $toy | 2> 1 layer, d_model 16, 2 heads (MHA)
2 train "$dir/lines" -o "$dir/toy.gguf" $toy
    | toy.gguf' exists; --resume goes on with that run; to begin anew name another OUT
$ mv "$dir/toy.gguf" "$dir/kept.gguf"
2 train "$dir/lines" -o "$dir/toy.gguf" $toy | toy.gguf.state' exists
$ rm "$dir/toy.gguf.state"
0 train "$dir/lines" -o "$dir/toy.gguf" $toy -q
$ cmp -s "$dir/toy.gguf" "$dir/kept.gguf"

# Readers that leave.
$ left help
0 score $model -p "To be" --logits "$dir/read.npy"
$ left score $model -p "To be" --logits "$dir/unread.npy"
$ cmp -s "$dir/read.npy" "$dir/unread.npy"
EOF

# --- a context that is full ---------------------------------------------------------------------

shift_text="generate $model -f $dir/text -n $tokens --seed 1 --shift"
checks <<'EOF'
0 generate $model -f "$dir/text" -n $tokens --seed 1
    | 2> context full (256 tokens): stopped after 248 of $tokens; --shift goes on | > full
0 $shift_text | > shifted | 2> tokens fed again | 2> prompt       9 tokens
$ [ "$(size_of "$out")" -gt "$(size_of "$dir/full")" ]
$ [ "$(head -c 240 "$out")" = "$(head -c 240 "$dir/full")" ]
EOF
for way; do
    check "0 $shift_text -q $way | == shifted"
done
checks <<'EOF'
$ head -c 1000 tests/cli/cli.sh >"$dir/long"
2 generate $model -f "$dir/long" -n 10
    | the prompt has 1000 tokens, the context only 256: shorten the prompt
0 generate $model -p x -n 10 -c 1 | 2> context full (1 token): stopped after 1 of 10
EOF
finish
