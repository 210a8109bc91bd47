#!/bin/sh
# typed.sh DECODE - runs lines that people type who know other programs of this kind: those programs' options,
# texts piped in, files that are no text, full contexts. (test_options.c tests numbers with units.)
# It is run from the repository's top; its last line counts what passed and failed.
. tests/support/checks.sh

# --- others' names ------------------------------------------------------------------------------

checks <<'EOF'
2 generate m --${names%:*}=5 | did you mean '--${names#*:}'?
    | for names in temperature:temp ctx-size:ctx n-predict:n top_k:top-k max_new_tokens:n
2 generate $words | ; -i opens a session and takes no text: expected one with -p
    | for words in "$model -i hello" "-i hello $model"
2 generate $model "Once upon" | unexpected argument 'Once upon'; expected a text with -p
0 bench $model --depth 256 --kv-heads MQA -n 1 --repeat 1 --warmup 0 --prompt 0 --format csv -q | ,255,1,1,1,0,
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
$ cat "$dir/text" | "$decode" generate $model -n 20 --seed 1 -q | cmp -s - "$dir/continued"
EOF
for command in score attend tokenize; do
    checks <<'EOF'
0 $command $model -f "$dir/text" | > given
0 $command $model <"$dir/text" | == given
EOF
done
# Standard input that is closed or empty is no text; a text or tokens that are given have precedence over it.
checks <<'EOF'
0 generate $model -n 20 --seed 1 -q | > alone
$ : | "$decode" generate $model -n 20 --seed 1 -q | cmp -s - "$dir/alone"
0 generate $model -n 20 --seed 1 -q <&- | == alone
0 generate $model -p '' -n 20 --seed 1 -q <"$dir/text" | == alone
0 score $model --tokens 1,2 <"$dir/text" | 3 lines

# A checkpoint is no text.
$ head -c 100000 $model >"$dir/binary"
2 $words "$dir/binary" | expected a text, found a checkpoint | for words in "generate $model -n 1 -f" "score $model -f"
    "tokenize $model -f" "eval $model" "heads $model" "train -o $dir/x.gguf --layers 1"
    "convert $model -o $dir/x.gguf --kv-heads 1 --calib"
    "convert $model -o $dir/x.gguf --kv-heads 1 --method mean --eval"
$ [ ! -e "$dir/x.gguf" -a ! -e "$dir/x" ]

EOF

# --- a context that is full ---------------------------------------------------------------------

# (test_schedule.c tests what is made behind it, with any number of threads and any batch.)
checks <<'EOF'
0 generate $model -f "$dir/text" -n 300 --seed 1
    | 2> context full (256 tokens): stopped after 248 of 300; --shift goes on
0 generate $model -f "$dir/text" -n 300 --seed 1 --shift | 2> tokens fed again | 2> prompt       9 tokens
EOF
finish
