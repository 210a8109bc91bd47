#!/bin/sh
# cli.sh DECODE - runs the program end to end: every command, every exit code, what goes to which
# stream. It is run from the repository's top; its last line counts what passed and failed.
#
# The checks here and in the other scripts of this folder are lines between "checks <<'EOF'"
# and EOF. A line that begins with a number runs the program:
#
#     EXIT ARGUMENTS | EXPECTED | EXPECTED ...
#
#     0 score $model -p "a,b" --format csv | position,id,text,logprob | 1,44,",",
#     2 genrate | did you mean 'generate'?
#
# ARGUMENTS are words of the shell. EXIT is the exit code. With 0, an EXPECTED without a mark must be a
# part of standard output. With another code it must be a part of standard error, which must be one line
# that begins with the program's name, and standard output must be empty. With a + behind the code (1+,
# 130+) both streams may hold anything, and an EXPECTED is a part of standard output. The marks:
#
#     2> TEXT    a part of standard error      ! TEXT    no part of standard output
#     2! TEXT    no part of standard error     = TEXT    standard output is this one line
#     N lines    standard output has so many   N bytes   the same
#     > FILE     standard output is kept       == FILE   it has the bytes of FILE
#     quiet      standard error is empty       for NAME in LIST    runs the line for each $NAME; stands last
#
# "$ COMMAND" is a shell command that must succeed. "EXIT | EXPECTED" runs nothing and looks at what a command
# before it ran. A line that begins with blanks continues the line above it. $ in EXPECTED means what it means
# in double quotes. Every line is one check.
. tests/support/checks.sh
top=$PWD

# The checks run in the script's folder, which has links to what they read.
ln -s "$PWD/tests" "$PWD/models" "$PWD/README.md" "$PWD/LICENSE" "$dir"
cd "$dir"

# --- help, version, dispatch --------------------------------------------------------------------

run
checks <<'EOF'
2+ | 0 bytes | 2> usage: decode
0 $words | generate   continue a text | quiet | for words in help --help -h "help help"
0 --version | decode  | compiler | compiled in | this machine runs | scalar | threads | quiet
2 genrate | did you mean 'generate'?
2 --hlep | did you mean '--help'?
2 $words | unknown command 'xyzzy' | for words in xyzzy "help xyzzy"
2 "" | unknown command ''
2 help --all | --all is of a command
EOF
for command in generate bench score tokenize info; do
    text="-p x"
    case $command in bench | info) text= ;; esac
    checks <<'EOF'
0 help $command | > help | usage: decode $command 
0 $command $words | == help | for words in --help -h "nosuchfile -q --help --nosuchoption"
2 $command $text | no checkpoint is named
2 $command $model -m $model $text | two checkpoints are named
$ run $command $model more $text; case $command in bench) [ $code = 3 ] ;; *) has "$err" "unexpected argument 'more'" ;; esac
EOF
done

# A long help is one screen, and its examples run as they stand, one after another. Those that would take
# seconds get fewer tokens or a smaller checkpoint.
mkdir shown
ln -s "$decode" "$top/tests" "$top/models" "$top/LICENSE" shown
head -c 6000 "$top/README.md" >shown/README.md
for command in $("$decode" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    for columns in 60 80 100; do
        COLUMNS=$columns "$decode" $command --help >"$out"
        note "help $command fits $columns columns" [ "$(grep -v '^  \./decode' "$out" | wc -L)" -le $columns ]
        [ $columns = 60 ] || note "help $command is a screen" [ "$(wc -l <"$out")" -le 40 ]
    done
    "$decode" $command --help --all >"$dir/all"
    sed -n '/^Examples:/,/^$/s/^  //p' "$dir/all" |
        sed '/ convert .*--kv-heads/s/$/ --calib self:256/
             / train .*--embd/s/$/ --ctx 64/
             /^.\/decode bench\|^.\/decode heads/s|models/[^ ]*|tests/data/shakespeare-bytes.gguf|' >"$dir/examples"
    note "help $command has examples" [ "$(grep -c '^\./decode ' "$dir/examples")" -ge 2 ]
    checks <<'EOF'
0 $command -h | Examples: | > short
0 help $command --all | $(if [ $command = help ]; then echo Commands; else echo Examples; fi):
$ [ $command = help ] || cmp -s "$out" "$dir/all"
EOF
    for option in $(grep -oE '^  (    |-., )--[a-z0-9-]+' "$dir/all" | grep -oE -- '--.*'); do
        note "help $command has $option" has "$dir/short" "$option"
    done
    is_sanitized || while read -r example; do
        (cd shown && sh -c "$example") >"$out" 2>"$err" </dev/null
        note "$example" [ $? -eq 0 ]
    done <"$dir/examples"
done

# --- options ------------------------------------------------------------------------------------

checks <<'EOF'
2 score $model -p x -t "$number" | -t: expected auto or an integer from 1 to | for number in '' 0 5x
# Each option has its range. (test_options.c tests how kinds of numbers are read.)
2 generate $model $words | ${words% *}: expected | found '${words#* }' | for words in "--seed -1"
    "--temp -1" "--top-p 1.1" "--min-p -0.1" "--repeat-penalty 0" "--samples 0" "--kv-type q3"
    "--format csv" "--truncate top"
2 generate $model --stop '' | --stop: the text is empty
0 generate $model --greedy -q -p ROMEO: -n 5 | > five | 12 bytes
0 generate $words | == five | for words in "-p ROMEO: -n 5 --greedy -m $model"
    "--prompt=ROMEO: --temp 0 $model -n 5" "--model=$model --prompt ROMEO: --top-k 1 -n 5"

# Variables of the environment choose threads and instruction set.
$ export DECODE_THREADS=0x2
2 generate $model -n 1 | DECODE_THREADS: expected auto or an integer
0 generate $model -n 1 -t 1
$ DECODE_THREADS=1
0 generate $model -n 1 -v | 2> threads: 1 (DECODE_THREADS)
0 generate $model -n 1 -v -t 2 | 2> (-t)
$ DECODE_THREADS=
0 generate $model -n 1 -v | 2> (auto)
$ DECODE_THREADS=1
$ export DECODE_ISA=nosuch
2 $words | DECODE_ISA | for words in "generate $model -n 1" --version
$ DECODE_ISA=scalar
0 generate $model -v -n 5 --greedy -p ROMEO: | 2> instruction set: scalar | == five
$ unset DECODE_ISA
EOF

# --- generate -----------------------------------------------------------------------------------

printf 'ROMEO:' >prompt
printf 'a\000b\377\303' >bytes
g="generate $model -p ROMEO: -n 100 --seed 7"
checks <<'EOF'
0 $g | > seed7 | 107 bytes | 2> prompt       6 tokens | 2> first token | 2> decoded      100 tokens
    | 2> p50 | 2> p99 | 2> seed         7 | 2> peak memory
$ [ "$(head -c 6 "$out")" = ROMEO: ]
0 $g $same | == seed7 | for same in "-t 1" "-t 3" "-t 64" "-t auto"
0 $g -q | == seed7 | quiet
0 generate $model -p ROMEO: -n 100 --seed 8
$ ! cmp -s "$out" seed7
0 generate $model -p ROMEO: -n 60 | > random
0 generate $model -p ROMEO: -n 60 --seed "$(sed -n 's/^seed  *//p' "$err")" | == random
0 generate $model -p ROMEO: -n 3 -v | 2> memory: weights | 2> KV cache | 2> by --kv-type
    | 2> threads: | 2> instruction set: | 2> sampler:

# Peak memory is the program's own, not that of a shell whose process it takes over.
$ (large=$(repeat a 99999999); exec "$decode" generate $model -n 1 2>"$err" >"$out")
$ is_sanitized || [ "$(sed -n 's/^peak memory *\([0-9]*\)\..* MiB$/\1/p' "$err")" -lt 60 ]

# A prompt may have any bytes, which are echoed as they are.
0 generate $model -f prompt -n 5 --greedy | == five
0 generate $model -f - -n 5 --greedy <prompt | == five
$ made=$(tail -c 6 five)
0 generate $model -p ROMEO: -n 5 --greedy --no-echo | = $made
$ printf '\357\273\277ROMEO:' >marked
0 generate $model -f $from -n 5 --greedy <marked | == five | for from in marked -
0 tokenize $model -p '\n' | = 92 110
0 generate $model -p ROMEO: -n 5 --greedy --stop "$stop" | == five | for stop in '\n' '\x0a'
$ printf 'ROMEO:\n' >line
0 tokenize $model -f line | = 82 79 77 69 79 58 10
2 generate $model -p x -f prompt | --prompt and --file are both given
3 generate $model -f missing | missing
0 generate $model -p '' -n 5 --greedy | > none | 6 bytes
0 generate $model -n 5 --greedy | == none
0 generate $model -f bytes -n 0
$ [ "$(od -An -tx1 "$out" | tr -d ' \n')" = 610062ffc30a ]
0 generate $model -f bytes -n 5
0 generate $model -p x -n 0 | = x
0 generate $model -n 0 | = 

# The context has 256 positions; the last token made needs none.
0 generate $model -p "$(repeat a 255)" -n 5 | 2> context full (256 tokens): stopped after 2 of 5
    | 258 bytes
2 generate $model -p "$(repeat a 257)" | the prompt has 257 tokens, the context only 256
0 generate $model -p "$(repeat a 255)bc" -n 2 --truncate left --greedy -q --no-echo | > left
0 generate $model -p "$(repeat a 252)bc" -n 2 --greedy -q --no-echo | == left
0 generate $model -p "bc$(repeat a 255)" -n 999 --truncate right --greedy --no-echo | > right
    | 2> 129 of 257 tokens are left out on the right
0 generate $model -p "bc$(repeat a 126)" -n 999 --greedy -q --no-echo | == right
0 score $model -p "$(repeat a 257)bc" --truncate left | 257 lines | 2> 3 of 259 tokens are left out
0 score $model -p "$(repeat a 257)bc" --truncate left --format json | "range": null
0 score $model -p "$(repeat a 256)" --truncate left --format csv | ,0:1 | model,file,range
0 attend $model -p "$(repeat a 257)bc" --truncate right --query 255 --layer 0 --head 0 | (token 255, a)
2 generate $model -c 257 | -c: expected at most 256
0 generate $model -p ROMEO: -c 6 -n 5 | 2> context full (6 tokens): stopped after 1 of 5

# A text ends before a stop string. (test_stream.c tests where one begins.)
0 $g --no-echo -q | > plain
$ stop=$(tail -c +31 plain | head -c 4)
0 $g --no-echo --stop "$stop" --stop 'never so' | 2> stop text found | ! $stop

# The first of several samples is the text of a run that makes one. (many.sh tests more of them.)
0 generate $model -p ROMEO: -n 40 --seed 3 | > one
0 generate $model -p ROMEO: -n 40 --seed 3 --samples 3 | > three | 2> decoded      120 tokens
$ cmp -s -n "$(size_of one)" one three
$ [ "$(grep -cx -e --- three)" -eq 2 -a "$(grep -c '^ROMEO:' three)" -ge 3 ]
# With --format json each text is an object on its own line, and its tokens are the text's.
0 generate $model -p ROMEO: -n 40 --seed 3 --format json | > one.json | 1 lines
    | {"index": 0, "prompt": "ROMEO:", "text": " | "n": 40, "finish": "length", "seed": 3, "logprob": -
$ "$decode" tokenize $model --decode "$(sed 's/.*"tokens": \[\([^]]*\).*/\1/' one.json)" >made
$ [ "ROMEO:$(cat made)" = "$(cat one)" ]
0 generate $model -p ROMEO: -n 40 --seed 3 --samples 3 --format json | 3 lines | {"index": 2, 
$ [ "$(head -1 "$out")" = "$(cat one.json)" ]
2 generate $model -p x --format json --no-echo | --no-echo: JSON has the prompt
2 generate $model -i --format json | --format and --interactive are both given

# The cache may have other types, and checkpoints other variants.
0 generate $model -p ROMEO: -n 1 -c 1 --kv-type q4_0/q5_0 --truncate right
0 generate $model -p ROMEO: -n 20 --greedy --kv-type f16
0 generate $golden/$name.gguf -p "x" -n 5 --greedy -q | for name in mha gqa mqa-f16
EOF

# --- score --------------------------------------------------------------------------------------

printf 'ROMEO: speak' >prompt
cp "$top/$model" copy.gguf
checks <<'EOF'
0 score $model -p "ROMEO: speak" --top 3 --format jsonl | > score | 12 lines | quiet
    | {"position": 0, "id": 82, "text": "R", "logprob": null, "top": [], "model": "
$ ids=$("$decode" tokenize $model -f prompt | tr ' ' ,)
0 score $model $same --top 3 --format jsonl | == score | for same in "--tokens $ids" "--tokens $ids -t 3"
0 score $model -f prompt --top 3 --format jsonl | "file": "prompt", "range": "0:1"}
$ nll=$("$decode" score $model -f prompt --format csv | awk 'NR > 2 { s -= $4; n++ } END { printf "%.9f", s / n }' FS=,)
$ [ "$nll" = "$("$decode" eval $model prompt --format csv -q | awk 'NR == 2 { printf "%.9f", $6 }' FS=,)" ]
0 score $model -p 'a b' --top 2 --format $form | for form in table md csv json
0 score $model -p "$(printf 'a\n\303')" | \xc3
0 score $model -p "a,b" --format csv | position,id,text,logprob | 1,44,",",
EOF
checks <<'EOF'
0 score $golden/gqa.gguf --tokens "$(cat $golden/gqa.tokens)" --logits first.npy
$ cmp -s -n 128 first.npy $golden/gqa.npy && [ $(size_of first.npy) = $(size_of $golden/gqa.npy) ]
0 score $model -p "$(repeat a 256)"
2 score $model -p "$(repeat a 257)" | the text has 257 tokens
2 score $model -p '' | the text is empty
2 score $model | there is nothing to score
2 score $model --tokens 1 -p x | --prompt and --tokens are both given
2 score $model --tokens 1,256 | the vocabulary has 256
EOF

# --- attend -------------------------------------------------------------------------------------

line="ROMEO: But soft, what light"
printf %s "$line" >prompt
printf %s "$line$line" >twice
checks <<'EOF'
0 attend $model -p "$line" --format csv | > attend | 33 lines | quiet
    | layer,head,variant,kv_head,entropy,distance,first,previous,self
$ ids=$("$decode" tokenize $model -f prompt | tr ' ' ,)
0 attend $model $same --format csv | == attend | for same in "-f prompt -t 1" "-f prompt -t 3"
    "--tokens $ids --layer all --head all" "-f twice --range 0.5:1"
0 attend $model -p "$line" --format $form --layer 1 --head 3,0 | for form in table md json jsonl
0 attend $model -p "$line" --format $form --query 4 | for form in table md json
0 attend $model -p "$line" --format jsonl --query 4 | "query": 4, "top": [{"position": 
0 attend $model -p "$line" --query 4 --layer 0 --head 1 | layer  head  4: (token 4, O)
0 attend $model -p x --format json | "self": 1, "induction": null
0 attend $model -p x --format csv | ! –
0 attend $model -p aab --query 2 | a[1] | ! b[
0 attend $model -p x --query 0 --format csv | top1_weight | ! top2_weight
0 attend $model -p "$line" --npy a.npy --json a.json --svg a.svg | 2> a.svg is written
$ [ "$(size_of a.npy)" -eq $((128 + 4 * 8 * 27 * 27 * 4)) ]
$ has a.npy "'shape': (4, 8, 27, 27), }"
$ has a.json '{"position": 6, "id": 32, "text": " "}'
$ [ "$(grep -c 'class="map"' a.svg)" -eq 32 ]
0 attend $model -p "$(printf 'a\001\303\n<')" --layer 0 --head 0 --svg a.svg -q
$ has a.svg '>\x01</text>' && has a.svg '>\xc3</text>' && has a.svg '>\n</text>' && has a.svg '>&lt;</text>'
EOF
checks <<'EOF'
# Standard output is no terminal here, so a map has no colours and is COLUMNS wide. (test_heatmap.c tests
# other widths.)
$ export TERM=xterm-256color COLUMNS=120 && escape=$(printf '\033')
0 attend $model -p "$line$(printf '\n\033')" --show 1.2 | ! $escape | \x1b
$ [ "$(wc -L <"$out")" -le 120 ] && unset COLUMNS
0 attend $model -p "$line" --kv-heads 2 --svg a.svg --head 1,3 --format csv | GQA-2
$ has a.svg 'class="frame"'
2 attend $model -p x --layer 4 | --layer: expected all or layers from 0 to 3
2 attend $model -p x --head 0,8 | --head: expected all or heads from 0 to 7
2 attend $model -p x --head "$list" | --head: expected all or heads | for list in '' 0,0 0, -1 a 0.1
2 attend $model -p x "--show=$head" | --show: expected L.H, a layer from 0 to 3 and a head from 0 to 7
    | for head in 4.0 0.8 1 '' a.b 0.1.2 -1.0
2 attend $model -p abc --query 3 | --query: expected 0 to 2
0 attend $model -p "the cat, the mat" --query the --layer 0 --head 0 | the: (token 2, e)
0 attend $model -p "the cat, the mat" --query the@2 --layer 0 --head 0 | the@2: (token 11, e)
0 attend $model -p "then 42 the" --query "$word" --layer 0 --head 0 | (token 
    | for word in the then 42@1 'then 42'
2 attend $model -p "the cat" --query the@2 | found 'the@2', and the text has 'the' 1 time 
2 attend $model -p "the cat" --query he | 'he' 0 times as a word
2 attend $model -p "the cat" --query "$word" | --query: expected a word of the text, found
    | for word in '' a@0
0 attend $model -p "$line" --format csv | ,strongest,score_sd,gradient,max_weight,alpha,delta,role,role_share
0 attend $model -p "ROMEO:" | score_sd  gradient | role | ! alpha
0 attend $golden/convolution.gguf --tokens "$(cat $golden/convolution.tokens)" | 5.00  offset 5 1.0
0 attend $model -p "$line" --score-scale 0.25 --format csv | 33 lines
2 attend $model -p x --score-scale $scale | --score-scale: expected a number above 0 and below
    | for scale in 0 -1 x 1e-60 inf 1e9 None
0 score $model -p "$line" | > usual
0 score $model -p "$line" --score-scale none | > unscaled
$ ! cmp -s usual unscaled
0 eval $model prompt --score-scale none --format csv | tokens,
2 attend $model -p "$(repeat a 257)" --svg b.svg | the text has 257 tokens
2 attend $model -p '' | the text is empty
2 attend $model | there is nothing to look at
2 attend $model --tokens 1 --range 0:1 | --tokens and --range are both given
2 attend $model -p x --show 0.0 $more | --show and
    | for more in "--format csv" "--query 0"
0 attend models/hello.gguf -p "hello how are you" --trace 0.0 --query how | token 1: how
0 attend $model -p "$line" --kv-heads 2 --trace 1.7 --json t.json | head 1.7 (GQA-2), token 26: t
    | shown are 8 of the 27 tokens so far, with 0. | ... of 64 | Wo + b: the parts' sum and b: 27 x 64
# --trace shows the tokens of a row that weigh most under their names, wherever they stand; the mask; and what
# follows A Wo.
0 attend models/shakespeare-mha.gguf -p "To be, or not to be, that is the question. It is" --trace 0.5
    | shown are 8 of the 21 tokens so far, with 0.9188 of the weight |    I        t       is
    |   is           0.0222   0.0623   0.0233   0.0227   0.0265   0.1958   0.3937   0.1723 |   head 7 
    | the stream with that added: 21 x 256 | norm of that, which the feed-forward layer reads: 21 x 256
0 attend models/hello.gguf -p "hello how are you" --trace 0.0 --query how --json how.json
    |   how          0.0000   0.0000     -inf     -inf |   how          0.4354   0.5646   0.0000   0.0000
$ has how.json '"rows": [[0, 0, null, null]]'
0 attend models/hello-2-heads.gguf -p "hello how are you" --trace 0.1 | each head's part of A Wo: 2 x 4 x 4
$ has t.json '{"step": "A = all heads side by side", "shape": [27, 64], "rows": [['
# With --kv-type the figures, the weights, and keys and values are those of a cache of that type.
0 attend $model -p "$line" --npy exact.npy --format csv | > exact
0 attend $model -p "$line" --npy cached.npy --format csv --kv-type f32/q4_0 | > cached
$ [ "$(head -9 exact)" = "$(head -9 cached)" ] && ! cmp -s exact cached && ! cmp -s exact.npy cached.npy
0 attend $model -p "$line" --trace 1.7 --kv-type q4_0/f32 | K = X Wk + b, cached as q4_0: 8 x 27 x 8
0 attend $model -p "$line" --html cached.html --kv-type q8_0/q4_0
$ has cached.html ', keys and values cached as q8_0/q4_0. Shown'
2 attend $model -p x --trace 0.8 | --trace: expected L.H, a layer from 0 to 3 and a head from 0 to 7
2 attend $model -p x --trace 0.0 --format csv | --trace and --format are both given
2 attend $model -p x --trace 0.0 --show 0.0 | --trace and --show are both given
2 attend $model -f prompt --json prompt | is the text itself
2 attend copy.gguf -p x --svg copy.gguf | is the checkpoint itself
$ ln -s later link
2 attend copy.gguf -p x --json link --npy later | both write
2 train LICENSE -o link --log later | both write
2 attend $model -p x $option LICENSE | $option: 'LICENSE' exists and is not
    | for option in --svg --html --json --npy
2 bench $model --svg LICENSE | --svg: 'LICENSE' exists and is not an SVG picture; expected another name
2 score $model -p x --logits LICENSE | exists and is not a NumPy array
2 $words | both write | for words in "attend copy.gguf -p x --json same --npy ./same" "train LICENSE -o same --log ./same"
2 attend $model -p x --live | --live is for --html, which is not given
2 attend $model -p x --html live.html --live $words | are both given | for words in "--layer 0" "--without 0.1"
# A live page contains the checkpoint, of 64 MiB at most. A program without the module refuses --live.
$ cp $model large.gguf && truncate -s 65M large.gguf
2 attend large.gguf -p x --html live.html --live | --live: $live
    | for live in "$("$decode" attend $model -p x --html live.html --live -q 2>"$err" &&
    echo 'expected a checkpoint of at most 64.0 MiB, found 65.0 MiB' || echo 'this program has no module')"
$ rm -f large.gguf live.html
0 attend $model -p "<b> $line" --kv-heads 2 --head 0,4 --html a.html -q | 0 bytes | quiet
$ has a.html '<!DOCTYPE html>' && has a.html '"group": 1}' && lacks a.html '<b>'

# --- tokenize -----------------------------------------------------------------------------------

0 tokenize $model -p ROMEO | = 82 79 77 69 79
0 tokenize $model -p "" | = 
0 tokenize $model -f bytes | = 97 0 98 255 195
0 tokenize $model --decode 97,0,98,255,195 | == bytes
0 tokenize $model --decode "" | 0 bytes
2 tokenize $model --decode 256 | --decode: item 1 is '256'
2 tokenize $model | there is no text
2 tokenize $model --decode 1 -p x | --prompt and --decode are both given
EOF

# --- info ---------------------------------------------------------------------------------------

contexts=$(repeat x 40 | sed 's/x/,ctx=40/g')
checks <<'EOF'
0 info $model | architecture  gpt2 | variant       MHA | total         232,832 | quiet
    | GQA-4                4     216,192            1,536              768
0 info $model --check | tensors_checked      52 | inf                  0
0 info $golden/gqa.gguf --format json | "variant": "GQA-3"
0 info $model --format jsonl --tensors --check | 1 lines | "tensors": [{"name": 
0 info $model --format csv | total,232832,931328
0 info $model --format csv --tensors | 53 lines
0 info $model --format md
$ has "$out" "| architecture |"

# --depth shows what steps cost, for a file or for a shape alone.
0 info $model --depth 0,32 --batch 1,4 --format csv | 17 lines | MQA,1,32,4,f32,
0 info --shape 12x768x12 --depth 1024 --batch 1,16 | shape                   12x768x12
    | total      124,439,808 | 1024      1  f32 | 1.12 GiB
0 info --shape 32x4096x32,arch=llama,ff=11008,vocab=32000,ctx=4096 --type f16 --kv-type f16
    --format json | "total": 6738415616 | "bytes_per_token_f16": 524288 | "fits": 
    | "memory_available_bytes": 
0 info --shape 32x4096x32,arch=llama,ff=14336,vocab=128256,ctx=8192,kv=8 | total      8,030,261,248 | GQA-8
$ [ "$("$decode" info --shape help --format csv | cut -d, -f1,2 | tr '\n' ' ')" = "shape,architecture
    gpt2,gpt2 gpt2-medium,gpt2 gpt2-large,gpt2 gpt2-xl,gpt2 gpt3,gpt2 llama-7b,llama llama-13b,llama
    llama-65b,llama llama2-70b,llama t5-large,llama t5-xxl,llama pythia-70m,gptneox
    pythia-160m,gptneox pythia-1b,gptneox tinystories-33m,decode opt-125m,decode falcon-7b,falcon
    qwen2-0.5b,qwen2 phi-2,phi2 gemma-2b,gemma " ]
0 info --shape llama2-70b | 68,976,648,192  100.0% | variant                 GQA-8
0 info --shape gpt2-xl,ctx=2048,kv=5 --depth 2048 --format csv | GQA-5,5,2048,1,f32,
0 info --shape 2x64x4,dk=8,dv=32,vocab=300 | head_dim                8 | value_dim               32 | architecture            decode
2 info --shape gpt5 | or a name that `decode info --shape help` lists
2 info --shape gpt2,arch=bert | --shape: arch: expected gpt2, llama, transformer, decode, gptneox, phi2
# A layer of two heads of 32 takes 2 x 2 x 32 x 4 bytes a token as f32. A shard of two has half of MHA's
# cache, and a copy of all of MQA's.
0 info --shape 2x64x2,vocab=300 --shape 3x64x4,vocab=300 --depth 10 --shards 2 --format csv | 6 lines
    | > shape,variant,n_kv_heads,depth,batch,kv_type,cache_bytes
    | weight_bytes,cache_over_weights,shard_weight_bytes,shard_cache_bytes,shard_kv_heads,kv_copies
    | 2x64x2,vocab=300",MHA,2,10,1,f32,10240, | 3x64x4,vocab=300",MQA,1,10,1,f32,3840,
0 info --shape 2x64x2,vocab=300 --depth 10 --shards 2 --format csv | ,5120,1,1 | ,5120,1,2 | 3 lines
0 info --shape gpt2 --shape gpt2-xl --format json | "shape": "gpt2-xl", "variant": "MQA"
2 info --shape gpt2 --shape gpt2-xl --shards 4 | gpt2-xl: --shards: expected a divisor of the 25 query heads, found 4
2 info --shape gpt2 --shape gpt2-xl --depth 2000 | gpt2: --depth
0 info $model --shards 2 --format json | "shard_kv_heads": 4, "kv_copies": 1 | "shard_kv_heads": 1, "kv_copies": 2
2 info $model --shape 2x64x4 | a checkpoint and --shape are both named
2 info --shape 2x64x4 --tensors | --tensors and --shape are both given
2 info $model --type f16 | --type
0 info --shape 2x60x4 --type q8_0 | 2> rows of 60, as those of token_embd.weight, are no multiple
2 info --shape 2x64x4,ctx=100 --depth 101 | --depth
0 info --shape gpt2$contexts,ctx=7 | n_ctx                   7
2 info $model --kv-type f16 | --kv-type is for --depth
EOF

# --- bench --------------------------------------------------------------------------------------

keys="variant,n_kv_heads,type,kv_type,threads,depth,batch,n,repeats,warmup,p10_us,p50_us,p90_us"
keys="$keys,p99_us,max_us,mean_us,us_per_token,tokens_per_s,prefill_tokens_per_s"
keys="$keys,prefill_share_of_limit,speedup,predicted_speedup,weight_bytes,kv_bytes,flops,gb_per_s,predicted_us,limit_tokens_per_s"
keys="$keys,share_of_limit,load_ms,memory_bytes,peak_rss_bytes,logits_hash,isa,cpu_share"
keys="$keys,bandwidth_gb_per_s,flops_per_s,model,shape,architecture,cpu,version,compiler,date"
keys="$keys,warning,verdict,note"
shape=2x32x4,ff=64,vocab=50,ctx=40
quick="-n 2 --repeat 2 --warmup 1"
quickest="-n 2 --repeat 1 --warmup 0 --prompt 0"
# columns_are NAMES: whether the CSV has these columns.
columns_are() { [ "$(head -n 1 "$out")" = "$1" ]; }
b="bench --shape $shape $quick"
checks <<'EOF'
0 bench $model --kv-heads all --depth 0,128,255 $quick --format csv | 13 lines | 2> decode 0
$ columns_are "$keys"
$ [ "$(cut -d , -f 1 "$out" | sort -u | tr '\n' ' ')" = "GQA-2 GQA-4 MHA MQA variant " ]
0 $b --kv-heads 4,1 --depth 39 --batch 1,5 --kv-type f32,f16 --type f32,f16 --format csv | 17 lines
0 $b --kv-heads 4,1 --format json | "n_kv_heads": 4 | "verdict": 
$ [ "$(head -c 1 "$out")" = "[" ]
$ has "$out" "\"model\": null, \"shape\": \"$shape\", \"architecture\": \"gpt2\""
$ has "$out" '"cpu_share": '
0 bench $model --kv-heads 1 $quick --format jsonl
$ has "$out" "\"model\": \"$model\", \"shape\": null"
0 $b --kv-heads 2,1 --format jsonl | "speedup": null | "predicted_speedup": null
0 $b --prompt 0 --format jsonl | "prefill_tokens_per_s": null

# A row names the threads that ran, which are no more than processors. auto follows generate's rule, which may
# take one thread.
$ usable=$(nproc)
0 $b --kv-heads 1 -t 1,256 --format csv
$ [ "$(cut -d , -f 5 "$out" | tail -n +2)" = "$(printf '1\n%s\n' "$usable" | sort -nu)" ]
0 $b --kv-heads 1 -t auto --format csv -v
$ [ $usable = 1 ] || grep -q "threads: 1, as $usable would be slower for a model so small" "$err"
$ [ "$(tail -n 1 "$out" | cut -d , -f 5)" = 1 ]
0 bench --shape 2x256x4 --kv-heads 1 -t auto $quickest --format csv
$ [ "$(tail -n 1 "$out" | cut -d , -f 5)" = $usable ]
EOF
# Two busy loops leave the benchmark a third of a processor. It says so in every form and width, both for rows
# to choose from and for rows to compare, and marks no row as the best.
if command -v taskset >/dev/null && ! is_sanitized; then
    said="got [0-9]*% of its processors"
    h_others=
    for of in 1 2; do
        taskset -c 0 sh -c 'while :; do :; done' &
        h_others="$h_others $!"
    done
    forms="jsonl table"
    for disturbed in "1 $model --text LICENSE --max-us 1e9 --calib-tokens 128 --kv-heads 8 -n 3000" \
        "2 --shape $shape --kv-heads 4,1 -n 40000"; do
        for format in $forms; do
            COLUMNS=40 taskset -c 0 "$decode" bench ${disturbed#? } -t 1 --repeat 2 --prompt 0 -q \
                --format $format --svg other.svg >"$out" 2>"$err"
            note "bench: $format says what disturbed it" [ "$(grep -c "$said" "$out")" -ge ${disturbed%% *} ]
            note "bench: $format marks no row" [ "$(grep -c '\* \|"chosen": true\|,true,' "$out")" = 0 ]
        done
        forms="csv md table"
    done
    kill $h_others
    note "bench: a warning above the table" grep -q "^WARNING: this run $said" "$out"
    sed 's/<[^>]*>/ /g' other.svg | tr -s ' \n' ' ' >said
    note "bench: the picture says it" grep -q "this run $said" said
    note "bench: the picture has its marks" has other.svg 'class="marker doubt"'
fi
# Ctrl-C in the middle of a benchmark prints the rows that are measured.
start bench "$model" --kv-heads 8,1 -t 1 -n 10000 --repeat 1000 --format csv
sleep 3
end_by INT $pid
checks <<'EOF'
130+ | MHA,8,f32
0 $b --svg p.svg -q | quiet | predicted | ! µs/token | ! weights read
$ has p.svg "</svg>"
0 $b --batch 1,2,16 --svg p.svg -v | of limit | µs/token | weights read
$ has p.svg "batch (sequences in a step, each at depth 0)"
0 $b --batch 1,2 --depth 0,30 --svg p.svg -q
$ has p.svg "latency (µs per token) against depth" && has p.svg "MQA, batch 2"
0 $b -v | 2> memory: 3 rows

# Rows that do not fit together are refused, with the options that lower them.
$ big="bench --shape 2x512x8,vocab=999,ctx=9000 --depth 4000 --batch 4 -n 1 --repeat 2 --warmup 0 --prompt 4 -t 1"
$ is_sanitized || { (ulimit -v 420000 && "$decode" $big >"$out" 2>"$err"); code=$?; }
$ is_sanitized || { [ $code = 4 ] && has "$err" "4 rows need" && has "$err" "--batch, --depth, --kv-heads, --type take less"; }

# Several checkpoints are compared as they are or as the same variants; the first is the base.
$ several="bench $golden/mha.gguf $golden/mqa-f16.gguf $quickest -q"
0 $several --format csv | 3 lines
$ [ "$(cut -d , -f 1-2 "$out" | xargs)" = "variant,n_kv_heads MHA,4 MQA,1" ]
0 $several --format jsonl | "speedup": 1,
$ has "$out" "\"model\": \"$golden/mha.gguf\"" && has "$out" "\"model\": \"$golden/mqa-f16.gguf\""
0 $several | checkpoint | mqa-f16.gguf
2 $several --kv-heads 4 | $golden/mqa-f16.gguf | --kv-heads: expected a divisor of the 3 query heads, at most 1, found 4
2 $several --text LICENSE | --text is for one checkpoint
2 $several --shape $shape | a checkpoint and --shape are both named
3 bench $golden/mha.gguf LICENSE | LICENSE

# Every window of eval begins with the begin-of-text token, as in llama.cpp's perplexity.
$ printf 'to be or not to be, that is' >bos.txt
$ number() { sed -n "s/.*\"$1\": \(-*[0-9][0-9.]*\).*/\1/p"; }
$ windows="0,84,79,308,221 0,272,325,291,308 0,12,327,328"
$ for ids in $windows; do "$decode" score $golden/llama.gguf --tokens $ids --format jsonl -q; done | number logprob >scored
0 eval $golden/llama.gguf bos.txt --ctx 4 --format jsonl -q | "tokens": 11
$ [ "$(awk '{ s -= $1 } END { printf "%.9f", s / NR }' scored)" = "$(number nll <"$out" | awk '{ printf "%.9f", $1 }')" ]
0 tokenize $golden/llama.gguf -f bos.txt --format json | [{"id": 84, "text": "t"}, {"id": 79, "text": "o"}, {"id": 308, "text": " be"}
2 tokenize $golden/llama.gguf --decode 1 --format json | --format and --decode are both given
0 score $golden/llama.gguf -p x -t1 -q
2 score $golden/llama.gguf -p x -t0 | -t: expected auto or an integer from 1 to
2 score $golden/llama.gguf -p x -q1 | unknown option '-q1'
0 info tests/data/read-only.gguf | type          q4_1 | memory_type   q8_0 | memory_bytes  290048

# bench --text: a variant loses on the last tenth of the text what eval says of the conversion that is
# calibrated on the other nine. The smallest cache within the limits is chosen, unless the machine is busy.
$ bits_of() { sed -n 's/.*"bits_per_byte": \([0-9.]*\).*/\1/p' "$1"; }
$ variants() { sed 's/.*"variant": "\([^"]*\)".*"beyond": "\([^"]*\)".*/\1 \2/' "$out" | xargs; }
$ head -c 300 LICENSE >text.txt; head -c 270 text.txt >calibrated.txt; tail -c 30 text.txt >measured.txt
$ advised="bench $model --text text.txt --kv-heads 8,2 $quickest --depth 200 --batch 2 -q"
0 $advised --format jsonl | > advised
$ [ "$(variants)" = "MHA GQA-2" ]
$ has advised '"chosen": false' && lacks advised '"chosen": true'
$ grep -q '"cache_bytes": 1249280, "bits_per_byte": [0-9.]*, "lost_bits_per_byte": 0, "lost_stderr": 0, "beyond": ""' advised
0 convert $model -o advised.gguf --kv-heads 2 --calib calibrated.txt -q
0 convert $model -o ranged.gguf --kv-heads 2 --calib text.txt --range 0:0.9 --eval ./text.txt --format json -q | > ranged
$ cmp advised.gguf ranged.gguf
2 convert $model -o none.gguf --kv-heads 2 --calib LICENSE --range 0.9:0 | --range: expected A:B
0 eval advised.gguf measured.txt --format jsonl -q
$ grep '"variant": "GQA-2"' advised | grep -q "\"bits_per_byte\": $(bits_of "$out"),"
$ grep -q "\"bits_per_byte\": $(bits_of "$out")" ranged
$ advised="$advised --calib-tokens 128"
0 $advised --format jsonl --max-loss 1 --max-cache 600KiB --max-us 1e9 --depth 100,200
$ [ "$(variants)" = "MHA cache GQA-2 MHA cache GQA-2" ]
$ is_busy() { grep -q '"warning": "\|^WARNING' "$out"; }
$ is_busy || [ "$(grep '"chosen": true' "$out" | grep -c GQA-2)" = 2 ]
0 $advised --max-cache 1MiB | lost | beyond | predicted µs | GQA-2 | the smallest cache within the limits
# The command that is printed makes the chosen row: its bytes and, with its cache, its loss.
$ cp text.txt "text's.txt"
$ advised="bench $model --text text's.txt --kv-heads 8,2 --calib-tokens 128 $quickest --type q4_0 --kv-type f32,q8_0"
$ "$decode" ${advised%text*} "text's.txt" ${advised#*.txt} -q --format jsonl >advised 2>"$err"
$ "$decode" ${advised%text*} "text's.txt" ${advised#*.txt} -q --max-cache 5kB >choice 2>"$err"
$ PATH=${decode%/*}:$PATH; eval "$(grep '^  decode convert' choice) -q" && rm "text's.txt"
$ [ "$(grep -c '^GQA-2 at depth 0, run with --kv-type q8_0' choice)" = 1 ]
$ chosen="GQA-2[^}]*\"type\": \"q4_0\", \"kv_type\": \"q8_0\""
0 eval OUT.gguf measured.txt --kv-type q8_0 --format jsonl -q
$ grep "$chosen" advised | grep -q "\"bits_per_byte\": $(bits_of "$out"),"
0 bench OUT.gguf --kv-heads 2 --kv-type q8_0 $quickest --format jsonl -q
$ w=$(number weight_bytes <"$out"); grep "$chosen" advised | grep -q "\"weight_bytes\": $w,"
0 $few --max-loss 1e-9 --max-cache 1kB | no row is within the limits; the nearest, | --max-cache by
    | for few in "bench $model --text text.txt --kv-heads 8,2 --calib-tokens 128 $quickest -q"
# A pipe gets none of the progress.
0 bench $model --kv-heads 8,2 --text text.txt --calib-tokens 128 $quickest | quiet
2 bench --shape $shape --text LICENSE | --shape
2 bench $model --max-loss 1 | --text
2 bench $model --text LICENSE --max-cache x | --max-cache: expected a number of bytes, as 8192 or 8MiB, found 'x'
$ head -c 100 LICENSE >short.txt
2 bench $model --text short.txt | --text, its first nine tenths: expected a text of at least 128 tokens
# These are refused before anything is measured.
2 bench $model --depth 256 -t 256 --kv-heads $heads | expected a divisor of the 8 query heads, at most 8
    | for heads in 3 2147483647 "2147483647 --text LICENSE"
2 bench $model --batch=$batch | --batch: expected integers from 1 to 2147483647, separated by commas
    | for batch in 0 -1 1,,2 2147483648 x
2 bench $model $list | an item is given twice | for list in "--batch 4,4" "--kv-heads 4,4"
2 bench $model --type q9 | --type: expected some of f32, f16, bf16, q8_0, q4_0
2 bench $model --kv-type f64 | --kv-type: expected K or K/V of f32, f16, q8_0, q5_0, q4_0
2 bench $model --prompt 257 | prompt of 257
EOF

# --- bad files, streams, signals ----------------------------------------------------------------

# (test_bad_input_*.c and test_faults.c test bad files, and streams that are closed or full.)
start generate $model -p ROMEO: --samples 1000000 --seed 1
await [ -s "$out" ]
end_by INT $pid
checks <<'EOF'
130+ | 2> seed         1 | 2> interrupted after
$ [ "$(tail -c 1 "$out" | od -An -c | tr -d ' ')" = '\n' ]
EOF

# --- convert --type -----------------------------------------------------------------------------

# column_of ROW NAME: the value of that column in the row before or after.
column_of() {
    awk -F, -v row=$1 -v name=$2 '
        /^checkpoint,/ { for (i = 1; i <= NF; i++) if ($i == name) column = i }
        $1 == row { print $column }' "$out"
}

checks <<'EOF'
2 quantize $model -o q --type q8_0 | convert does that: decode convert MODEL -o OUT --type TYPE
2 convert $model -o q | nothing to convert is named; expected --kv-heads G, --type TYPE, or both
2 convert $model -o q --type q6_k | --type: expected one of f32, f16, bf16, q8_0, q4_0, found 'q6_k'
2 convert $model --type q8_0 | no output is named; expected -o OUT
$ [ ! -e q ]
EOF
for type in F32 F16 BF16 Q8_0 Q4_0; do
    checks <<'EOF'
0 convert $model -o $type.gguf --type $type -t 2 --format csv
    | before,MHA, | ,$(size_of $model), | after,MHA, | ,$(size_of $type.gguf),
$ [ $type = F32 ] || [ "$(column_of after relative_error)" != 0 ]
0 info $type.gguf --check
EOF
done
checks <<'EOF'
0 convert $model -o q --type f32 --force
$ "$decode" score $model -p "To be" --format csv | cut -d , -f 1-4 >expected
$ "$decode" score q -p "To be" --format csv | cut -d , -f 1-4 | cmp -s - expected
0 convert $model -o q --type q4_0 --force --format json | "type": "q4_0" | "layers": [] | "relative_error": 0.
0 convert $model -o q --type q4_0 --force --eval README.md | relative error | bits per byte | ! score_lost
2 convert $model -o q --type q8_0 | exists; --force replaces it
2 convert Q8_0.gguf -o q --type q4_0 --force | --requantize
0 convert Q8_0.gguf -o q --type f32 --force --requantize
$ [ "$(size_of q)" -eq "$(size_of F32.gguf)" ]
0 convert $golden/gqa.gguf -o q --type q8_0 --force
    | 2> type q8_0: rows of 48, as those of token_embd.weight, are no multiple

# Heads and type changed at once give the same file as one after the other.
0 convert $model -o heads.gguf --kv-heads 2 --calib none -q
0 convert heads.gguf -o expected.gguf --type q8_0 -q
0 convert $model -o both.gguf --kv-heads 2 --calib none --type q8_0 | score_lost | relative error
$ cmp both.gguf expected.gguf
2 convert Q8_0.gguf -o new.gguf --kv-heads 2 --calib none | --requantize
0 convert Q8_0.gguf -o same-type.gguf --kv-heads 2 --calib none --requantize -q
$ [ "$(size_of same-type.gguf)" -lt "$(size_of Q8_0.gguf)" ]
EOF

# --- eval ---------------------------------------------------------------------------------------

seq 1 20 | sed 's/.*/& The quick brown fox, and Caesar./' >text
bytes=$(size_of text)
keys="model,text,range,tokens,bytes,nll,nll_stderr,perplexity,bits_per_byte,tokens_per_s"
e="eval $model text"

# row ARGS...: runs eval and puts its row into $row, from tokens on and without tokens_per_s, which is a time.
row() {
    run eval "$@" --format csv
    row=$(tail -n 1 "$out" | cut -d , -f 4-9,11-)
    return $code
}
# field N: a field of that row.
field() { echo "$row" | cut -d , -f "$1"; }

checks <<'EOF'
0 help eval --all | would be another text's.
2 eval | no checkpoint is named
2 eval $words | there is no text to predict | for words in $model "-m $model"
2 heads -m $model | there is no text to predict
2 heads $model -m $model x | two checkpoints are named
2 heads $model x more | unexpected argument 'more'
$ row $model text --ctx 20 -t 1 && columns_are $keys && is_empty "$err"
$ [ "$(field 1)" = $((bytes - 1)) -a "$(field 2)" = $((bytes - 1)) ]
$ expected=$row
EOF
# Ranges that meet share no token and leave out none: each counts all but its first token.
total=0
for range in 0:0.3333 0.3333:0.9 0.9:1; do
    row $model text --range $range
    total=$((total + $(field 2) + 1))
done
head -c $((bytes / 2)) text >half
printf ab >two
printf a >one
: >none
# swapped.gguf has the tokens A and B in each other's place.
zeros='\x00\x00\x00\x00\x00\x00\x00'
LC_ALL=C sed "s/A\x01${zeros}B\x01/B\x01${zeros}A\x01/" $model >swapped.gguf
checks <<'EOF'
$ [ $total = $bytes ]
$ row $model - --ctx 20 <text && [ "$row" = "$expected" ]
$ row $model text --ctx 20 --stride 7 && [ "$(field 3)" != "$(echo "$expected" | cut -d , -f 3)" ]
$ row $model half && expected=$row
$ row $model text --range 0:0.5 && [ "$row" = "$expected" ]
$ row $model half --against $model -t 3
$ columns_are $keys,kl_mean,kl_p99,top1_agreement,bits_per_byte_other
$ [ "$(field 7-9)" = 0,0,1 -a "$(field 6)" = "$(field 10)" -a "$(field 1-6)" = "$expected" ]
0 eval $model half --format json
$ [ "$(head -c 1 "$out")" = "[" ]
0 eval $model half --format jsonl $more | 1 lines | "bits_per_byte": 
    | for more in "--kv-type f16" "--kv-type q8_0" "--kv-heads 2"
0 eval $model half --against $model --format $form | top1_agreement | for form in table md
0 eval $model half -v --ctx 100 | 2> memory: weights
0 eval $model two --format jsonl | "nll_stderr": null

# Several checkpoints have a row each, in their order, with the figures of a run of its own. Rows before one
# that fails are shown.
$ row $model half && expected=$row
0 eval $many half --format csv -q | 3 lines | $model,half,0:1,$expected,
    | for many in "$model $model" "-m $model $model"
0 eval $model half --kv-type f32,q8_0/q4_0 --against $model --format csv | 3 lines | model,kv_type,text | $model,f32,half | $model,q8_0/q4_0,half
2 eval $model half --kv-type q8_0/ | --kv-type: expected K or K/V of
2 score $model -p a --kv-type f16,f32 | --kv-type: expected one K or K/V, found 'f16,f32'
0 eval $model half --range 0:0.5 --format jsonl | "text": "half", "range": "0:0.5", "tokens": 
3+ eval $model nosuchfile half --format csv | 2 lines | 2> nosuchfile
2 $e --range "$range" | --range: expected A:B
    | for range in '' : 0 0.5 0: :1 1:0 0.5:0.5 -0.1:1 -0:1 0:1.1 0:x 0:1: nan:1 0:inf ' 0:1' 0,1
2 $e $option 257 | $option: expected 1 to 256, the | found 257
    | for option in --ctx --stride
2 $e --ctx 5 --stride 6 | --stride: expected 1 to 5
2 eval $model one | the text has 1 token; expected at least 2
2 eval $model none | the text has 0 tokens
2 $e --range 0.0000001:0.0000002 | the text has 0 tokens
3 eval $model nosuchfile | nosuchfile
2 eval $golden/mha.gguf text --against $golden/gqa.gguf
    | the other checkpoint has a vocabulary of
3 $e --against swapped.gguf
    | swapped.gguf: another vocabulary than the checkpoint's: token 65 is expected to be 'A', found 'B'
EOF

# --- heads --------------------------------------------------------------------------------------

# A row is for each head; eval --without names heads in the same way.
keys="layer,head,delta_nll,delta_nll_stderr,delta_bits_per_byte,written"
gqa=$golden/gqa.gguf
h="heads $gqa half"
checks <<'EOF'
2 heads $model | there is no text to predict
2 $h --range 1:0 | --range: expected A:B
2 $h --ablate random | --ablate: expected one of zero, mean
2 $h --tokens 0 | --tokens: expected
2 $h --svg $gqa | --svg
2 $h --kv-type f16 | unknown option '--kv-type'
0 $h --tokens 100 --format csv | > expected | 2> nats a token and
$ columns_are $keys
$ n_rows=$(($(wc -l <expected) - 1))
0 $h --tokens 100 --curve --format csv | heads_left_out,nll,delta_nll,bits_per_byte,added
0 $h --tokens 100 --curve | left out
0 $h --tokens 100 --format csv $same | == expected | for same in "-t 3" "--svg heads.svg"
0 $h --tokens 100 --ablate mean --format csv -t 1 | > mean
0 $h --tokens 100 --ablate mean --format csv -t 3 | == mean
$ has heads.svg "<svg"
0 $h --tokens 100 --format csv -q | == expected | quiet
0 $h --tokens 100 --ablate mean --format json | "delta_nll": 
$ [ "$(grep -c '"layer"' "$out")" = "$n_rows" ]
$ row $gqa half --without 0.1,1.0 && expected=$row
$ row $gqa half --without 0.1 && [ "$row" != "$expected" ]
$ row $gqa half --without 0.1 --against $gqa && [ "$(field 7)" != 0 ]
EOF
checks <<'EOF'
2 eval $gqa half --without "$heads" | --without: expected L.H, a layer from 0 to
    | for heads in '' 0 0. .0 0.1. 0.1, ,0.1 -1.0 0.-1 99.0 0.99 0,1 x 0.1,1.x 4294967296.0
2 $words --without 9.9 | --without: expected L.H
    | for words in "score $gqa --tokens 1,2" "generate $gqa -p x"
2 eval $gqa half --without 0.1,1.1,0.1 | --without: head 0.1 is given twice
EOF

# --- train --------------------------------------------------------------------------------------

# The text has lines of numbers, and the model takes less than a second.
awk 'BEGIN { for (i = 0; i < 400; i++) print "line " i " of a text: " i * i % 97 }' >lines
small="--layers 1 --embd 16 --heads 2 --ctx 32 --seed 7"
toy="$small --batch 2 --steps 40 --eval-every 10"
further="--from toy.gguf --batch 2 --seed 1"
by_layer=$(repeat 2 40 | sed 's/2/2,/g')1
return=$(printf '\r')
checks <<'EOF'
0 train lines -o toy.gguf $toy --log toy.csv | 0 bytes | 2> step 40 of 40: loss  | 2> best of step
    | 2> 1 layer, d_model 16, 2 heads (MHA) | 2! $return
2 train lines -o toy.gguf $toy | toy.gguf' exists; --resume goes on with that run; to begin anew name another OUT
$ has toy.csv "step,loss,val_loss,val_bits_per_byte,lr,grad_norm" && has_lines toy.csv 45
$ [ -s toy.gguf.state ]
0 train lines -o scaled.gguf $small --steps 5 --batch 2 --score-scale none -q
0 score scaled.gguf -p "$line" | > usual
0 score scaled.gguf -p "$line" --score-scale none | == usual
0 info scaled.gguf | architecture  decode | score_scale   1
0 info toy.gguf | ! score_scale
0 convert scaled.gguf -o scaled2.gguf --kv-heads 1 --calib none -q
0 score scaled2.gguf -p "$line" | > usual
0 score scaled2.gguf -p "$line" --score-scale none | == usual
0 train lines -o long.gguf --layers 1 --embd 16 --heads 8 --ctx 2600 --batch 1 --steps 1 --val-fraction 0 -q
2 attend long.gguf -p "$(repeat a 2550)" --html long.html | --html: expected at most 25165824 weights
$ [ ! -e long.html ]
0 train lines -o scaled3.gguf --from toy.gguf --score-scale 0.25 --steps 1 --batch 1 --lr 1e-4 -q
0 info scaled3.gguf | score_scale   0.25
0 train lines -o scaled4.gguf --from scaled3.gguf --steps 1 --batch 1 --lr 1e-4 -q
0 info scaled4.gguf | score_scale   0.25
0 train lines -o scaled5.gguf --from scaled3.gguf --score-scale none --steps 1 --batch 1 --lr 1e-4 -q
0 info scaled5.gguf | score_scale   1
2 train lines -o x.gguf $small --score-scale 0 | --score-scale: expected a number
# Models with additive scores are trained, run and shown, and not converted. Options of dot products are refused.
0 train lines -o additive.gguf $small --kv-heads 1 --score additive --steps 5 --batch 2
0 info additive.gguf | architecture  decode | score         additive | variant       MQA
0 generate additive.gguf -p "line 1" -n 10 --greedy --kv-type q8_0
0 attend additive.gguf -p "line 1" --trace 0.1 | scores = w·tanh(q + k): 2 x 6 x 6
0 attend models/hello-2-heads.gguf -p "hello how are you" --trace 0.0 --without 0.1
    |   head 1       0.0000   0.0000   0.0000   0.0000
0 bench additive.gguf --depth 4 -n 2 --repeat 1 --format csv | 2 lines
0 train lines -o additive2.gguf --from additive.gguf --steps 1 --batch 1 --lr 1e-4 -q
0 info additive2.gguf | score         additive
0 heads additive.gguf lines --tokens 60 --format csv | 3 lines
2 eval additive.gguf lines --score-scale 2 | --score-scale: expected a checkpoint whose scores are dot products
2 train lines -o a.gguf --from additive.gguf --score-scale 2 | --score-scale: expected a checkpoint whose scores
2 train lines -o a.gguf --from additive.gguf --score dot | --score and --from are both given
2 train lines -o a.gguf $small --score additive --arch llama | --score: --arch llama has no such choice
2 train lines -o a.gguf $small --score additive --position rope | --score additive: rope positions rotate
2 train lines -o a.gguf $small --score additive --score-scale none | --score additive: they have no scale
2 bench --shape 1x16x2,arch=llama,score=additive | --shape: score additive: rope positions rotate
2 info --shape 1x16x2,score=plus | --shape: score: expected dot or additive, found 'plus'
0 train lines -o wide.gguf $small --heads 4 --kv-heads 2 --score additive --steps 1 --batch 1 -q
0 bench wide.gguf --depth 4 -n 2 --repeat 1 --format csv | 2 lines
2 convert wide.gguf -o scaled2.gguf --force --kv-heads 1 -q | whose scores are dot products
2 eval wide.gguf lines --kv-heads 1 | fewer K/V heads: expected a checkpoint whose scores are dot products
2 bench wide.gguf --kv-heads 1 | fewer K/V heads: expected a checkpoint whose scores are dot products
# Every command takes the same numbers of K/V heads: they need not divide the 4 of the file.
0 train lines -o twelve.gguf --layers 1 --embd 48 --heads 12 --kv-heads 4 --ff 16 --ctx 32 --steps 1 --batch 1 -q
0 bench twelve.gguf $quickest --format csv -q | 5 lines
0 bench twelve.gguf $quickest --kv-heads 3 --format csv -q | 2 lines
0 generate twelve.gguf -p "line 1" -n 2 -q --kv-heads 3
0 convert twelve.gguf -o three.gguf --kv-heads 3 --calib none -q
2 $command | --kv-heads: expected a divisor of the 12 query heads, at most 4, found 5
    | for command in "generate twelve.gguf -p x --kv-heads 5" "bench twelve.gguf --kv-heads 5"
    "convert twelve.gguf -o five.gguf --kv-heads 5" "eval twelve.gguf lines --kv-heads 5"
0 info toy.gguf | n_ctx         32
0 generate toy.gguf -p "line 1" -n 10 --greedy
0 train lines -o more.gguf $toy -q -t 3 | quiet
$ cmp -s toy.gguf more.gguf
# The state has the run's options: a resumed run needs none, and one that differs is named, the first of several.
0 train lines -o toy.gguf --resume --clip 1.0 | 2> going on after step 40 | 2> finished: all 40 steps were made before
0 train lines -o toy.gguf $toy --resume | 2> going on after step 40
2 train lines -o toy.gguf --resume $changed | $changed: the run to resume was begun
    | for changed in "--lr 0.1" "--optimizer muon" "--steps 39" "--batch 3" "--seed 77" "--norm rms"
    "--no-bias" "--dropout 0.5" "--ctx 8" "--kv-heads 1" "--eval-every -1"
2 train lines -o toy.gguf --resume --clip 2 --batch 3 | --batch 3: the run to resume was begun with --batch
$ cmp -s toy.gguf more.gguf
2 train README.md -o toy.gguf --resume | the text was not the same
2 train lines -o none.gguf --resume | there is no none.gguf.state
# A log, and an OUT without a state, are not replaced. What a message advises is not refused in turn.
2 train lines -o other.gguf $toy --log toy.csv | --log: 'toy.csv' exists, and only --resume goes on with a log
$ cp toy.gguf alone.gguf && cp toy.csv toy.before
2 train lines -o alone.gguf $toy | 'alone.gguf' exists; it has no OUT.state to go on from: name another OUT
2 train lines -o alone.gguf --resume | there is no alone.gguf.state to go on with; begin without --resume
0 train lines -o toy.gguf --resume --log other.csv -q | quiet
$ cmp -s toy.csv toy.before && rm alone.gguf
# A finished run goes on with more steps, once and again.
$ for end in gguf gguf.state; do cp toy.$end longer.$end; done
$ rm toy.csv
0 train lines -o longer.gguf --resume --steps 60 | 2> going on after step 40 | 2> step 60 of 60
$ [ "$(grep -c '^60,' toy.csv)" -gt 0 ] && cp toy.before toy.csv
0 train lines -o longer.gguf --resume | 2> going on after step 60
0 train lines lines -o bpe.gguf $toy --vocab 280 --kv-heads 1 --eval-every -1 --save-every 7
    | 2> (MQA), d_ff 64, context 32, vocabulary 280
# train and info count a tied output matrix, which is the embedding, once.
0 train lines -o tied.gguf --arch gpt2 $small --batch 2 --steps 2 -t 1
$ trained=$(grep -o '[0-9]* parameters' "$err" | head -1)
0 info tied.gguf
$ [ "$trained" = "$(awk '$1 == "total" { gsub(",", "", $2); print $2 }' "$out") parameters" ]
0 train lines -o deep.gguf --layers 41 --embd 8 --heads 2 --ff 8 --ctx 8 --batch 1 --steps 1 --seed 1
    --kv-heads $by_layer
0 info deep.gguf
$ [ "$(tr -d ' ' <"$out" | grep -cF "$by_layer")" -gt 0 ]
0 train lines -o further.gguf $further --teacher toy.gguf --steps 3 -v | 2> step 0 of 3: held out
0 train lines -o taught.gguf $further --teacher toy.gguf --loss teacher=1,streams=0.5 --steps 2 -t 2
    | 2> tokens to train on
0 train lines -o only.gguf $further --only attention --steps 2 -t 1
2 train lines -o x.gguf --only attention | --only | --from
2 train lines -o x.gguf $further --loss text=1 | --teacher
2 train lines -o x.gguf $further --teacher toy.gguf --loss $loss | --loss: expected text=X | found '${loss%%=*}'
    | for loss in text=-1 kl=1 streams
2 train lines -o x.gguf $further --teacher toy.gguf --loss text=0 | all weights are 0
2 train lines -o x.gguf $further --teacher deep.gguf --loss streams=1 | compared block by block
0 train lines -o given.gguf $further --steps 3 --lr 1e-4 --eval-every -1 | 2! windows held out
    | 2! bits a byte
0 train lines -o muon.gguf $toy --optimizer muon --steps 3 -v | 2> new model
0 train lines -o widened.gguf --from Q8_0.gguf --steps 1 --batch 1 --ctx 64 --seed 1 -v
    | 2> trained, and written, in F32 | 2> memory: parameters, gradient and moments | 2> on disk OUT.state
EOF

# Options choose every architecture, and kinds that only `decode` has. (test_train_arch.c trains these further.)
while IFS='|' read -r options arch norm placement position ffn; do
    checks <<'END'
0 train lines -o arch.gguf $toy --layers 2 --steps 6 $options | 2> new model: $arch, 2 layers, d_model 16
0 info arch.gguf --check
$ "$decode" info arch.gguf | tr -s ' ' >kinds && has kinds "norm $norm" && has kinds "placement $placement"
$ has kinds "position $position" && has kinds "ffn $ffn"
0 generate arch.gguf -p "line 1" -n 4 --greedy -q | line 1
$ rm arch.gguf arch.gguf.state
END
done <<EOF
--arch llama --kv-heads 1|llama|rms|before|rope|swiglu
--arch transformer --label-smoothing 0.1|decode|layer|after|sinusoidal|relu
--arch decode --norm rms --position alibi --no-bias|decode|rms|before|alibi|gelu
--no-bias|decode|layer|before|learned|gelu
--head-dim 6 --heads 3|decode|layer|before|learned|gelu
--arch llama --head-dim 12 --kv-heads 1|llama|rms|before|rope|swiglu
--placement after --position quadratic --ffn swiglu --attn-dropout 0.2|decode|layer|after|quadratic|swiglu
--position rope --ffn gelu_erf --share-layers|decode|layer|before|rope|gelu_erf
--kv-heads 2,1 --position none|decode|layer|before|none|gelu
EOF
cp lines tt.state
cp toy.gguf source.state
x="train lines -o x.gguf"
checks <<'EOF'
2 $x --arch llama --ffn relu | --ffn: --arch llama has no such choice; --arch decode has what is asked for
2 $x --arch gpt2 --no-bias | --no-bias: --arch gpt2
2 $x --arch llama --head-dim 5 | expected heads of an even size (--head-dim), found 5
2 $x --head-dim 65536 | --heads 8: expected heads of at most 8192 elements, found 65536
2 $x --arch transformer --share-layers | --share-layers: --arch transformer
2 $x --arch llama --heads 16 --embd 48 | --heads 16: rotary positions rotate pairs
2 $x --layers 2 --kv-heads 4,2,1 | --kv-heads: expected one number, or one for each layer, 2; found 3
2 $x --kv-heads 8,2x,1,1 | --kv-heads: expected an integer from 1 on, or MHA, GQA-G, MQA, found '2x'
2 $x --layers 2 --share-layers --kv-heads 4,2 | --kv-heads: all layers share one block; expected one number for all
2 $x --from toy.gguf --arch llama | --arch and --from
2 $x $words | ${words% *} | for words in "--attn-dropout 0.95" "--label-smoothing -0.1" "--vocab 255"
    "--val-fraction 1" "--lr 0"
2 train -o x.gguf | no text is named
2 train lines | no output is named
2 $x --embd 16 --heads 3 | --heads 3: expected a divisor of --embd 16
2 $x --kv-heads 3 | --kv-heads: expected a divisor of the 8 query heads, at most 8, found 3
2 train lines -o lines | the text itself
2 $x --from toy.gguf --layers 2 | --layers and --from
3 train none.txt -o x.gguf | none.txt

# An output may be neither a file that is read nor another output.
2 train tt.state -o x.gguf --log tt.state | the text itself
2 train tt.state -o x.gguf $option source.state --log source.state | the checkpoint itself
    | for option in --from --teacher
2 train tt.state $words | .state' exists; | for words in "-o tt" "-o source --from source.state"
2 train tt.state $words | is OUT.state | for words in "-o x.gguf --log x.gguf.state"
    "-o toy.gguf --resume --log toy.gguf.state"
$ cmp -s lines tt.state && cmp -s toy.gguf source.state && [ ! -e x.gguf ]
EOF

# A run that is killed after a save goes on from there, and its log has every step once. SIGHUP saves and ends a
# run, unless it is ignored, as under nohup. (test_interrupts.c and test_train.c test that a resumed run gives
# the same as one in one piece.)
long="$small --batch 4 --steps 1000 --eval-every 500"
# stop_training SIGNAL NAME FILE OPTION...: begins a training and sends the signal once FILE has something.
stop_training() {
    h_signal=$1 h_name=$2 h_file=$3
    shift 3
    start train lines -o $h_name.gguf $long --log $h_name.csv "$@"
    await [ -s $h_file ]
    end_by $h_signal $pid
}
hung_up=130
sh -c 'kill -HUP $$; exit 0' 2>/dev/null && hung_up=0
checks <<'EOF'
$ stop_training KILL killed killed.gguf.state --save-every 100
0 train lines -o killed.gguf $long --save-every 100 --resume -q --log killed.csv
$ [ "$(grep -c '^[0-9]*,[0-9]' killed.csv)" -eq 1000 ]
$ cut -d , -f 1 killed.csv | tail -n +2 | sort -nc
$ stop_training HUP hung hung.csv
$ [ $code -eq $hung_up -a -s hung.gguf.state ]
EOF

# --- convert ------------------------------------------------------------------------------------

# These are the texts for calibration and evaluation.
head -c 20000 tests/cli/cli.sh >text
head -c 250 text >calib
head -c 200 text >short-text
head -c 50 text >fifty
head -c 600 text >eval-text # two windows and a half
c="convert $model -o gqa.gguf --force --kv-heads 2"
calib="--calib calib"
checks <<'EOF'
0 $c $calib --calib-tokens 4000 --refit wo --eval eval-text -v | score_lost | bits per byte | 2> to calibrate on need less
0 info gqa.gguf | GQA-2
0 $c $calib --format json -q | quiet | "method": "fit"
# (test_convert.c tests any number of threads, test_refit.c that a refit is kept only where it is not worse.)
2 convert $model -o none.gguf --kv-heads 2 --calib $text | expected a text of at least 128 tokens
    | for text in fifty /dev/null
$ [ ! -e none.gguf ]
0 convert models/shakespeare-llama.gguf -o few.gguf --kv-heads 1 --calib text --calib-tokens 130 --refit wo

# generate --kv-heads makes the text of the file that is converted from the weights alone.
0 convert $model -o alone.gguf --kv-heads 2 --calib none -v | 2> memory: the conversion needs | 2! need less
0 generate alone.gguf -p "ROMEO:" -n 40 --greedy -q | > expected
0 generate $model -p "ROMEO:" -n 40 --greedy -q --kv-heads 2 | == expected
0 convert $model -o mean.gguf --kv-heads 1 --method mean --eval eval-text | bits per byte

# The seed that is printed makes the same random heads again.
0 convert $model -o random.gguf --kv-heads 1 --method random
$ seed=$(sed -n 's/^decode: seed //p' "$err")
0 convert $model -o random2.gguf --kv-heads 1 --method random --seed "$seed"
$ cmp -s random.gguf random2.gguf

# The CSV has a row before and a row after.
0 $c --method mean --eval eval-text --format csv | checkpoint,variant,type, | 3 lines
$ [ $(column_of after parameters) -lt $(column_of before parameters) ]
$ [ -n "$(column_of before bits_per_byte)" ] && [ -n "$(column_of after bits_per_byte)" ]
0 convert $golden/gqa.gguf -o low-rank.gguf --kv-heads 1

# A conversion is calibrated on the model's own text, unless the checkpoint has no vocabulary or --calib says
# otherwise.
0 convert $model -o own.gguf --kv-heads 2 --calib self:256 -t 1 | divergence | 2> 256 tokens that the model
0 convert $model -o own2.gguf --kv-heads 2 --calib self:256 --seed 7 -q
$ ! cmp -s own.gguf own2.gguf
0 convert $model -o own3.gguf --kv-heads 2 --refit none | divergence | 2> that the model wrote itself, seed 0
0 convert $model -o own3.gguf --kv-heads 2 --calib none --force | ! divergence
0 convert $model -o own3.gguf --kv-heads 2 --method mean --force | ! divergence
2 convert $model -o own4.gguf --kv-heads 2 --calib self:12 | from 128 on
EOF
# A converted file of every architecture gives the logits of the conversion in memory, to the bit. eval and bench
# take such heads, too, and the file runs in another type.
names='llama shared-block transformer alibi quadratic layerwise-kv'
is_sanitized && names='llama layerwise-kv'
for name in $names; do
    from=$golden/$name.gguf
    tokens=$(cat $golden/$name.tokens)
    checks <<'EOF'
0 convert $from -o to.gguf --force --kv-heads 1 --calib none -q
0 score to.gguf --tokens "$tokens" --logits first.npy -q
0 score $from --tokens "$tokens" --logits second.npy -q --kv-heads 1
$ cmp -s first.npy second.npy
0 generate $from -p "x" -n 5 --greedy -q --kv-heads 1
0 eval $from short-text -q --kv-heads 1
0 convert $from -o small.gguf --kv-heads 1 $calib --type q4_0 --force -q
0 score small.gguf --tokens "$tokens" -q
0 bench $from --kv-heads all --depth 4 -n 2 --repeat 1 -q
EOF
done

# Two files have what real checkpoints have and random ones lack (tests/convert/make_massive.py). New weights
# in the place of Q4_1, Q5_1 and Q4_K, which are only read, have no fewer bits, so that the divergence is that
# of F32, 0.246. (Written as Q4_0 it is 0.263; SmolLM2 in Q4_1, from 3 to 1 K/V heads on 65,536 tokens, has 0.764
# and perplexity 72.1, as Q4_0 0.838 and 77.6.) Heads that park on a first position whose stream is a thousand
# times as long as others still do so after fit, and not after mean.
real="--force --kv-heads 1 --calib tests/data/bpe-small.txt --calib-tokens 4096 --format csv -q"
divergences=""
for of in "massive mean" "massive fit" read-only "read-only --type f32"; do
    name=${of%% *}
    how=${of#"$name"}
    [ $name = massive ] && how="--method$how"
    checks <<'EOF'
0 convert tests/data/$name.gguf -o real.gguf $real --requantize $how
EOF
    divergences="$divergences $(column_of after divergence) $(column_of after type)"
done
checks <<'EOF'
$ echo $divergences | awk '{ exit !($3 < $1 / 10 && $5 < 0.25 && $5 < 1.01 * $7 && $5 > 0.99 * $7) }'
$ echo $divergences | awk '{ exit !($2 $4 $6 $8 == "f16f16q8_0f32") }'
0 convert tests/data/read-only.gguf -o real.gguf --force --kv-heads 1 --calib none --requantize | variant  type | MQA      q8_0
2 convert tests/data/read-only.gguf -o real.gguf --force --kv-heads 1 --calib none | is quantized (Q8_0); --requantize
EOF

# --cache-bytes chooses K/V heads for a number of bytes.
n="convert $model -o new.gguf"
checks <<'EOF'
0 convert $model -o bytes.gguf --kv-heads auto --cache-bytes 1920 $calib --refit none | 1.88 KiB
2 $n --kv-heads auto --cache-bytes 383 $calib | expected at least 384
2 $n $words | --kv-heads auto and --cache-bytes B: expected both | for words in "$calib --kv-heads auto"
    "$calib --cache-bytes 2560 --kv-heads 2" "--cache-bytes 2560 --type f16"
2 $n --cache-bytes 2560 --kv-heads auto --calib none | needs a text: expected --calib TEXT or self, found none
2 $n --kv-heads 2 --calib $words | ${words%% *} | for words in "none --range 0:1" "self --range 0:1"
    "none --calib-tokens 128" "self:256 --calib-tokens 128"

# Layers may have different K/V heads; the file names the refit.
0 convert $model -o by-layer.gguf --kv-heads 4,1,2,1 $calib --refit wo | GQA-mixed-4
    | 2> different numbers of K/V heads, which llama.cpp runs in few architectures
0 info by-layer.gguf --format json --depth 1
$ sed -n '/"kv_cache"/,/]/s/.*"variant": "\([^"]*\).*/\1/p' "$out" >variants && [ "$(xargs <variants)" = "GQA-mixed-4 GQA-mixed-2 MQA" ]
0 convert $model -o refit.gguf --force --kv-heads 2 $calib --refit $refit | for refit in none wo
$ grep -aq "decode.convert.refit.*wo" refit.gguf
2 convert $model -o refit.gguf --force --kv-heads 2 $calib --refit all | --refit: expected one of none, wo
EOF

# With as many heads as there are OUT is a copy; bad options are refused all the same. -o may name neither text,
# and a bad text is found while OUT is as it was.
cp gqa.gguf old.gguf
cp text text.kept
checks <<'EOF'
2 $n --kv-heads 4,2 | one for each layer, 4
2 $n $option x --calib text | found 'x' | for option in --kv-heads "--kv-heads auto --cache-bytes"
2 convert $model $output --kv-heads 2 | no output is named | for output in "" -o=
2 $n --kv-heads 3 | --kv-heads: expected a divisor of the 8 query heads, at most 8, found 3
0 $n --kv-heads 8 --eval eval-text --format json | "checkpoint": "after" | 2> new.gguf is a copy: the checkpoint has these K/V heads already (MHA)
$ cmp $model new.gguf && rm new.gguf
0 convert gqa.gguf -o new.gguf --kv-heads 2 | after  | 2> already (GQA-2)
$ cmp gqa.gguf new.gguf && rm new.gguf
2 generate $model -p x --kv-heads 3 | at most 8, found 3; for a cache of a size between see convert's --kv-heads auto
2 convert gqa.gguf -o new.gguf --kv-heads 4 | --kv-heads: expected a divisor of the 8 query heads, at most 2, found 4
2 convert $model -o gqa.gguf --kv-heads 2 | exists; --force
2 generate $model -p a --calib text | unknown option
3 $n --kv-heads 2 --calib no-such-file | no-such-file
2 convert $golden/alibi.gguf -o new.gguf --kv-heads 1 --group cluster | ALiBi
$ [ ! -e new.gguf ]
2 convert $model -o text --force --kv-heads 2 $option text | text of $option itself
    | for option in --calib --eval
2 score $model -f text --logits text | is the text itself
2 $c --eval one | --eval: 
3 $c --eval no-such-file | no-such-file
$ cmp -s text text.kept && cmp -s gqa.gguf old.gguf
EOF

# --- checkpoints of other formats ---------------------------------------------------------------

head -c 3000 README.md >few
t="--steps 1 --batch 1 --ctx 8 --seed 1 -q"
hf=tests/data/hf/gpt2
mkdir bare
cp $hf/model.safetensors bare
for name in llama2c.bin ckpt.pt model.pth; do echo no GGUF >bare/$name; done
cp $golden/gqa.gguf bare/gguf.bin
ln -s ../$hf "bare/two words"
checks <<'EOF'
# A command that is given such a checkpoint names the script and the command to type.
3 $words | $hf: a Hugging Face folder, and decode reads GGUF; make one with: scripts/import.py '$hf' OUT.gguf
    | for words in "generate $hf -p x" "generate -m $hf -p x" "bench $hf" "info $hf"
    "convert $hf -o x.gguf --kv-heads 1" "eval $hf few" "eval $model few --against $hf" "score $hf -p x"
    "convert $hf -o x.gguf --type f16" "tokenize $hf -p x" "attend $hf -p xy" "heads $hf few"
    "train few -o x.gguf --from $hf $t" "train few -o x.gguf --teacher $hf $t"
3 info $hf/ | with: scripts/import.py '$hf/' OUT.gguf
3 info $hf/model.safetensors | a file of a Hugging Face folder | scripts/import.py '$hf/' OUT.gguf
3 info "bare/two words" | with: scripts/import.py 'bare/two words' OUT.gguf
3 info bare/$name | bare/$name: by its name a checkpoint of another program
    | scripts/import.py 'bare/$name' OUT.gguf
    | for name in llama2c.bin ckpt.pt model.pth model.safetensors
# Other files are refused, or read, for what they are.
3 info $hf/config.json | expected "GGUF"
0 info bare/gguf.bin | GQA
2 $words | a script does that: scripts/import.py IN OUT.gguf
    | for words in "import $hf -o x.gguf" "help import" "import --help"
2 export $model x | unknown command 'export'; a script does that: scripts/export.py MODEL.gguf DIR
2 study few -o x | unknown command 'study'; a script does that: scripts/study.sh TEXT DIR
$ [ ! -e x.gguf ] && [ ! -e x ]
EOF
finish
