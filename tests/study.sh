#!/bin/sh
# study.sh DECODE - decode study with the smallest models that there are: cells are those of the
# commands that it shows, twice the same bytes, interrupted and resumed, in shards. Run from the
# repository's top; the last line counts what passed and failed.
. tests/checks.sh

lacks_files() { [ -z "$(find "$1" -name "$2")" ]; }
# same_results NAME...: the lists of these folders are that of $dir/plain.
same_results() {
    for h_folder; do
        cmp -s "$dir/$h_folder/results.jsonl" "$dir/plain/results.jsonl" || return 1
    done
}

text=$dir/text top=$PWD
awk 'BEGIN { for (i = 0; i < 300; i++) print "line", i * 7919 % 1000, "of a text" }' >"$text"
small="--embd 8 --layers 1 --heads 2 --ff 8 --ctx 8 --batch 1 --steps 40 -t 1"
cells="--seeds 2 --method mean,fit --latent 4 --alpha 0,5"
s="study $text -o $dir"

# --- a whole one --------------------------------------------------------------------------------

# Per seed: MHA at 0 and 5%; two methods and a rank at 0, 5% and 5% taught; one from scratch. A latent
# cache has one vector a layer; MQA's has a key of 4, and a value of 4 in a lane of 16.
mkdir "$dir/alone"
checks <<'EOF'
0 $s/whole $small $cells --teacher -v --format jsonl --plot "$dir/plot.svg" | 36 lines
    | {"cell": "s2-mqa-fit-taught-a5", "seed": 2, "heads": 2, "d_ff": 8, "kv_heads": 1, "latent": 0, "method": "fit", "taught":
    | "taught": true, "alpha": 5, "steps": 2, "bits_per_byte": 
    | {"heads": 2, "d_ff": 8, "kv_heads": 1, "variant": "MQA", "method": "scratch", "taught": false, "alpha": 5, "seeds": 2, 
$ cp "$err" "$dir/commands"
$ has_lines "$dir/whole/results.jsonl" 24
$ grep -q '^{"cell": "s1-mla4-latent-a0", "seed": 1, "heads": 2, "d_ff": 8, "kv_heads": 1, "latent": 4, "method": "latent", '
    "$dir/whole/results.jsonl"
$ has "$dir/whole/s1-mla4-latent-a0.json" '"cache_bytes_per_token": 16,'
$ has "$dir/whole/s1-mqa-fit-a0.json" '"cache_bytes_per_token": 80,'
$ lacks "$dir/whole/results.jsonl" seconds
$ has "$dir/plot.svg" "MQA, fit, taught"
$ lacks_files "$dir/whole" '*.part.*'
$ [ "$(ls "$dir"/whole/*.gguf | wc -l)" -eq 24 ]

# Each command as -v shows it, with the folder's name changed, makes the same file.
$ cp "$dir/whole/calib.txt" "$dir/alone"
$ grep -E '^decode: (train|convert) ' "$dir/commands" |
    sed -e 's/^decode: //' -e "s|$dir/whole/|$dir/alone/|g" -e 's/[.]part[.]/./' >"$dir/lines"
$ has_lines "$dir/lines" 24
$ while IFS= read -r line; do "$decode" $line </dev/null >"$out" 2>&1; done <"$dir/lines"
$ cd "$dir/whole" && cksum *.gguf >"$dir/before" && cd "$dir/alone" && cksum *.gguf >"$dir/after"
$ cd "$top" && cmp -s "$dir/before" "$dir/after"
0 eval "$dir/whole/s1-mqa-fit-a5.gguf" --text "$text" --range 0.9:1 --format jsonl -q
$ has "$dir/whole/s1-mqa-fit-a5.json" "$(grep -o '"bits_per_byte": [0-9.]*' "$out"),"
0 info "$dir/whole/s1-mqa-fit-a5.gguf" | MQA
0 info "$dir/whole/s2-mla4-latent-taught-a5.gguf" | MLA-4

# Names that a shell would take apart are in quotes.
$ cp "$text" "$dir/it's \$1"
0 study "$dir/it's \$1" -o "$dir/quoted" $small --seeds 1 --method first --alpha 0 --scratch none -v
$ line=$(sed -n "/^decode: train /s|[^ ]*part.gguf|$dir/quoted.gguf|p" "$err" | sed 's/^decode: //')
$ sh -c "\"$decode\" $line" >"$out" 2>&1
$ cmp -s "$dir/quoted.gguf" "$dir/quoted/s1-mha-a0.gguf"

# How long it takes is said before; CSV has one header, and a row a cell.
$ grep -n 'of them trained' "$dir/commands" | grep -q '24 cells to make, 18 of them trained, 1788 steps in all: about'
$ [ "$(grep -n 'about' "$dir/commands" | cut -d: -f1)" -lt "$(grep -n ': train' "$dir/commands" | head -1 | cut -d: -f1)" ]
0 $s/whole $small $cells --teacher --format csv | > cell,seed,heads,d_ff,kv_heads,latent,method,taught,alpha
    | 25 lines | ! over_mha
$ [ "$(cut -d, -f2- "$out" | grep -c '^seed')" -eq 1 ]

# Again: nothing is made or changed.
$ find "$dir/whole" -type f | sort | xargs cksum >"$dir/before"
0 $s/whole $small $cells --teacher | quiet | MQA      fit        true
$ find "$dir/whole" -type f | sort | xargs cksum | cmp -s - "$dir/before"
0 $s/plain $small $cells -q
EOF

# --- interrupted, and in shards -----------------------------------------------------------------

for name in INT-1 INT-4 INT-9 TERM-1 TERM-4 TERM-9; do
    start $s/$name $small $cells
    while [ "$(wc -l <"$err")" -lt ${name#*-} ] && kill -0 $pid 2>/dev/null; do
        sleep 0.01
    done
    end_by ${name%-*} $pid 2>/dev/null
    checks <<'EOF'
$ [ $code -eq 130 -a ! -s "$out" -o $code -eq 0 ]
0 $s/$name $small $cells -q
$ same_results $name
$ lacks_files "$dir/$name" '*.part.*'
$ cmp -s "$dir/$name/s2-mqa-fit-a5.gguf" "$dir/plain/s2-mqa-fit-a5.gguf"
EOF
done

checks <<'EOF'
# A training that was ended after it saved.
$ mkdir "$dir/saved"
$ line=$(sed -n "1s|$dir/alone/s1-mha-a0.gguf|$dir/saved/s1-mha-a0.part.gguf|p" "$dir/lines")
0 $line --save-every 7
$ [ -e "$dir/saved/s1-mha-a0.part.gguf.state" ]
0 $s/saved $small $cells -v | 2> --resume
$ same_results saved

# Two shards, three at once; two runs of one study, as a job that was queued twice: what one makes the
# other waits for, and says so.
0 $s/shards $small $cells --shard $shard -q | for shard in 1/2 0/2
$ for shard in 0/3 1/3 2/3; do "$decode" $s/side $small $cells --shard $shard -q >"$out" 2>&1 & done
$ wait
$ for twin in 1 2; do "$decode" $s/twins $small $cells -v >"$out" 2>"$dir/twin$twin" & done
$ wait
$ same_results shards side twins
$ [ "$(cd "$dir/twins" && cat s*.gguf | cksum)" = "$(cd "$dir/plain" && cat s*.gguf | cksum)" ]
$ [ "$(cat "$dir/twin1" "$dir/twin2" | grep -c 'decode: train ')" -eq
    "$(ls "$dir"/plain/s*.gguf | grep -c -e scratch -e mha-a0 -e 'a5.gguf')" ]
$ grep -q "waiting for another run in" "$dir/twin1" "$dir/twin2"

# Killed between a record and its line, or the list deleted: the next run has all again.
$ rm "$dir/twins/results.jsonl"
0 $s/twins $small $cells -q
$ same_results twins
$ tail -n +3 "$dir/plain/results.jsonl" >"$dir/twins/results.jsonl"
0 $s/twins $small $cells -q
$ same_results twins
$ lacks "$dir/twins/s1-mha-a0.json" us_per_token

# A user's own files in the folder.
$ mkdir "$dir/user"
$ cp "$text" "$dir/user/calib.txt"
$ echo mine >"$dir/user/results.jsonl"
2 study "$dir/user/calib.txt" -o "$dir/user" $small | has a calib.txt that no study has made
$ cmp -s "$text" "$dir/user/calib.txt"
$ rm "$dir/user/calib.txt"
2 $s/user $small | has a results.jsonl that no study has made
$ [ "$(cat "$dir/user/results.jsonl")" = mine ]

# A checkpoint that something is still to be made from is made again.
$ cp -r "$dir/plain" "$dir/gone"
$ rm "$dir"/gone/s1-mqa-fit-a*.gguf "$dir/gone/s1-mqa-fit-a5.json" "$dir/gone/s1-mha-a0.gguf"
0 $s/gone $small $cells -q
$ cmp -s "$dir/gone/s1-mqa-fit-a5.gguf" "$dir/plain/s1-mqa-fit-a5.gguf"
$ same_results gone

# Of a given checkpoint: it is the MHA cell, and is not trained; put there again, it gives the same.
$ given="--from $dir/plain/s1-mha-a0.gguf --batch 1 --ctx 8 --steps 40 -t 1"
$ grep '"seed": 1,' "$dir/plain/results.jsonl" | grep -v scratch >"$dir/expected"
$ methods="--method mean,fit --latent 4 --alpha 0,5"
0 $s/given $given $methods -v | 2! --steps 40
$ cmp -s "$dir/given/s1-mha-a0.gguf" "$dir/plain/s1-mha-a0.gguf"
$ cmp -s "$dir/given/results.jsonl" "$dir/expected"
$ rm "$dir/given/s1-mha-a0.gguf" "$dir/given/s1-mla4-latent-a0.json" "$dir/given/s1-mla4-latent-a0.gguf"
0 $s/given $given $methods -q
$ cmp -s "$dir/given/s1-mha-a0.gguf" "$dir/plain/s1-mha-a0.gguf"
$ cmp -s "$dir/given/results.jsonl" "$dir/expected"

# Several numbers of query heads: each is trained from scratch, and nothing converted; again with
# another number; with K/V heads each is a study of those that divide it. The cell of a single number
# is another study's.
$ heads="--embd 8 --layers 1 --ff 8 --ctx 8 --batch 1 --steps 10 --seeds 2 -t 1"
0 $s/heads $heads --heads 4,1 -v --plot "$dir/heads.svg" | 2> --heads 4 --eval-every | 2! convert
    | s2-h4-mha-a0 | > cell
$ [ "$(ls "$dir"/heads/*.gguf | wc -l)" -eq 4 ]
$ has "$dir/heads.svg" ">query heads</text>"
0 info "$dir/heads/s1-h4-mha-a0.gguf" | n_heads       4
0 $s/heads $heads --heads 1,2,4 -q --format csv | 7 lines | s1-h2-mha-a0,1,2,8,2,0,mha,false,0,10,
0 $s/heads $heads --heads 4,2 --kv-heads 2,1 --method mean --alpha 0,50 --scratch 0 -q --format csv
    | s1-h4-gqa2-mean-a50,1,4,8,2, | s2-h2-mqa-mean-a0,2,2,8,1, | ! h2-gqa2 | s1-h2-mqa-scratch-a0 | 27 lines
2 $s/heads $heads --heads 4 | of another study
2 $s/heads $heads --heads 3,4 | --heads 3: expected a divisor of --embd 8, or --head-dim
2 $s/x $heads --heads 4,4 | --heads
2 $s/x $heads --heads 4,2 --kv-heads 3 | expected divisors of the 4 query heads below them, found 3
2 $s/x $heads --heads 4 --match size | --match

0 $s/muon $heads --heads 2 --kv-heads 1 --method mean --alpha 0 --optimizer muon -v | 2> --optimizer muon
0 $s/adamw $heads --heads 2 --kv-heads 1 --method mean --alpha 0 --optimizer adamw -v | 2! --optimizer

# With heads of one size fewer of them leave room for a wider feed-forward layer, whose every element is
# 8 + 8 weights and a bias: a head has 4 x 8 weights of each of Q, K, V and output, and 12 biases, 140
# in all; and takes 2 x 128 operations, and 2 x 8 for each of 5 positions, where an element takes 32.
$ apart="$heads --ff 32 --head-dim 4 --heads 2,1,3"
0 $s/params $apart --match params -q --format csv | 7 lines
    | s1-h2-mha-a0,1,2,32,2, | s1-h1-mha-a0,1,1,40,1, | s1-h3-mha-a0,1,3,24,3,
0 $s/flops $apart --match flops -q --format csv | s1-h1-mha-a0,1,1,43,1, | s1-h3-mha-a0,1,3,21,3,
2 $s/params $apart --match flops | of another study
2 $s/x $heads --heads 2,3 --head-dim 4 --match params | 3 heads (3 K/V heads) would need
# MQA of four heads of 2 is without three keys and values of 2 x 8 weights and 2 biases.
0 $s/mqa $heads --ff 32 --heads 4 --kv-heads 1 --method mean --alpha 0 --scratch 0 --match params -q --format csv
    | s1-mha-a0,1,4,32,4, | s1-mqa-scratch-a0,1,4,38,1, | s1-mqa-mean-a0,1,4,32,1,

# What is refused. Cells of one name would be one file.
2 $s/given --from "$dir/plain/s2-mha-a0.gguf" --batch 1 --ctx 8 --steps 40 | of another study
2 $s/x $given --heads 2 | --heads and --from
2 $s/x $given --scratch 5 | --scratch and --from
2 $s/x --from "$dir/plain/s1-mqa-fit-a0.gguf" | expected an MHA checkpoint, found MQA
2 $s/x --from "$dir/plain/s1-mla4-latent-a0.gguf" | expected an MHA checkpoint, found MLA-4
3 $s/x --from "$text" | magic
2 $s/x $given --plot "$dir/plain/s1-mha-a0.gguf" | --plot
2 study | no text is named
2 study "$text" | no folder is named
2 study - -o "$dir/x" | every cell reads the text again
2 study "$text" -o "$text" | expected a folder
3 study "$dir/missing" -o "$dir/x" | missing
2 $s/x $small --kv-heads 2 | expected divisors of the 2 query heads below them, found 2
2 $s/x $small --method $method | --method | for method in fitt latent
2 $s/x $small --latent 9 | --latent: expected integers from 1 to 8, separated by commas, found '9'
2 $s/x $small --latent 4,4 | --latent
2 $s/x $small --latent 4 --arch llama | than rope
2 $s/x $small --alpha "$shares" | --alpha | for shares in "" 1, 1,,2 -1 1,1 10001 x "1;2"
2 $s/x $small --shard "$shard" | --shard | for shard in "" 1 1/ /2 2/2 -1/2 0/0 0/2/3
2 $s/x $small --alpha 1,1.0000001 | no more than six digits, found '1.0000001'
2 $s/x $small --scratch some | --scratch
2 $s/x $small --teacher --alpha 0 | --teacher: no conversion is trained further
2 $s/x $heads --heads 2,4 --teacher | --teacher: no conversion is trained further
2 $s/x $small --match params --scratch none | --match: there is nothing to be made equal
2 $s/x $small --heads 1 --match flops | --match: there is nothing to be made equal
2 $s/x $small --val-fraction 0 | --val-fraction
2 $s/x $small --plot "$text" | --plot
2 $s/plain $small --batch 2 | of another study: expected ' | --batch 2, found '
$ [ ! -e "$dir/x" ]
$ cp -r "$dir/plain" "$dir/bent"
$ echo '{"cell": 5}' >"$dir/bent/s1-mha-a5.json"
3 $s/bent $small $cells | s1-mha-a5.json: expected the record
$ echo 'x' >"$dir/bent/study.json"
2 $s/bent $small $cells | of another study
EOF
finish
