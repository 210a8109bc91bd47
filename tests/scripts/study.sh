#!/bin/sh
# study.sh DECODE - runs scripts/study.sh with very small models: its cells, the commands of --print, its
# figures, what it goes on with and what it refuses. It is run from the repository's top; its last line
# counts what passed and failed.
. tests/support/checks.sh

export DECODE="$decode"
text=$dir/text small="--embd 8 --layers 1 --ff 8 --ctx 8 --batch 1 --steps 40 -t 1"
awk 'BEGIN { for (i = 0; i < 300; i++) print "line", i * 7919 % 1000, "of a text" }' >"$text"
cells="--heads 4 --kv-heads 2,1 --method mean,fit,scratch --alpha 0.1,5 --seeds 2"

# study CODE ARGS...: whether the script ends with that code; its output is in $out and $err.
study() {
    h_code=$1
    shift
    scripts/study.sh "$@" >"$out" 2>"$err"
    [ $? -eq "$h_code" ]
}
# refuses CODE WORDS ARGS...: whether the script ends with that code and prints one line with these words.
refuses() {
    h_code=$1 h_words=$2
    shift 2
    study "$h_code" "$@" && is_empty "$out" && has_lines "$err" 1 && has "$err" "study.sh: " && has "$err" "$h_words"
}
# cells_of FOLDER: prints what its cells are; files' names and rates of evaluations are left out.
cells_of() { (cd "$1" && cksum ./*-seed*.gguf && sed 's/.*"tokens"/"tokens"/; s/"tokens_per_s.*//' ./*-seed*.json); }
table_of() { cat "$1/study.md"; }
json() { sed -n "s/.*\"$1\": \([^,}]*\).*/\1/p" "$2" | head -n 1; } # KEY FILE

# --- a whole study ------------------------------------------------------------------------------

# Each seed has MHA and four conversions, each of these five also trained for two percents, and two models from
# scratch.
checks <<'EOF'
$ study 0 "$text" "$dir/whole" $small $cells
$ cmp -s "$out" "$dir/whole/study.md"
$ has_lines "$out" 19
$ [ "$(ls "$dir"/whole/*-seed?.gguf | wc -l)" -eq 34 -a "$(ls "$dir"/whole/*-seed?.json | wc -l)" -eq 34 ]
$ [ -z "$(find "$dir/whole" -name '*.part*')" ]
$ has "$err" "job 16 of 16: "
0 info "$dir/whole/mqa-fit-alpha5-seed2.gguf" | MQA
0 info "$dir/whole/gqa2-scratch-alpha5-seed1.gguf" | GQA-2

# The text is cut into its two parts by other means.
$ cut=$(($(size_of "$text") * 9 / 10))
$ head -c $cut "$text" | cmp -s - "$dir/whole/study-calib.txt"
$ tail -c +$((cut + 1)) "$text" >"$dir/held-out"
0 eval "$dir/whole/gqa2-mean-seed1.gguf" "$dir/held-out" --format jsonl | > judged
$ [ "$(json bits_per_byte "$dir/judged")" = "$(json bits_per_byte "$dir/whole/gqa2-mean-seed1.json")" ]

# The same command once more makes and changes no cell.
$ cells_of "$dir/whole" >"$dir/cells"
$ touch -r "$text" "$dir"/whole/*-seed*
$ study 0 "$text" "$dir/whole" $small $cells
$ [ -z "$(find "$dir/whole" -newer "$text" -name '*-seed*')" ]
$ cells_of "$dir/whole" | cmp -s - "$dir/cells"
EOF

# The evaluations give means, deviations, and paired differences of two seeds with their intervals (t is 12.706), which
# are those of the table when they are rounded.
awk -F ' *[|] *' '
    function near(found, x) { return found != "" && found - x < 0.0000501 && x - found < 0.0000501 }
    function distance(a, b) { return (a > b ? a - b : b - a) / sqrt(2) }
    FILENAME ~ /json$/ {
        name = FILENAME
        gsub(/.*\/|\.json/, "", name)
        match($0, /"bits_per_byte": [0-9.]+/)
        bits[name] = substr($0, RSTART + 17, RLENGTH - 17)
        next
    }
    FNR > 2 {
        name = $2 == "MHA" ? "mha" : ($2 == "MQA" ? "mqa" : "gqa2") "-" $3
        end = $4 == 0 ? "-seed" : "-alpha" $4 "-seed"
        a = bits[name end 1]; b = bits[name end 2]
        c = a - bits["mha" end 1]; d = b - bits["mha" end 2]
        right += $5 == "-" && $6 == 2 && near($7, (a + b) / 2) && near($8, distance(a, b)) && \
            ($2 == "MHA" ? $9 $10 == "" : near($9, (c + d) / 2) && near($10, 12.706 * distance(c, d) / sqrt(2)))
    }
    END { print right }' "$dir"/whole/*-seed*.json "$dir/whole/study.md" >"$dir/right"
note "each row is that of its evaluations" is_line "$dir/right" 17

# --- its commands -------------------------------------------------------------------------------

# The commands of a group run side by side, with names of a text and a folder that a shell would take apart. A tenth
# of a percent of 40 steps is one step; from scratch 5% more are 42.
checks <<'EOF'
$ cp "$text" "$dir/it's \$(touch made) \$1|"
$ study 0 "$dir/it's \$(touch made) \$1|" "$dir/a new" $small $cells --print
$ cp "$out" "$dir/plan"
$ [ "$(grep -c '^$' "$dir/plan")" -eq 1 -a "$(grep -c -- '--steps 42 ' "$dir/plan")" -eq 4 ]
$ [ "$(grep -c -- '--from .* --steps 1 .*--from .* --steps 2 ' "$dir/plan")" -eq 10 ]
$ for group in 1 2; do awk -v RS= "NR == $group" "$dir/plan" | xargs -d '\n' -n 1 -P 3 bash -c; done >"$out" 2>"$err"
$ study 0 "$dir/it's \$(touch made) \$1|" "$dir/a new" $small $cells --jobs 3
$ [ "$(table_of "$dir/a new")" = "$(table_of "$dir/whole")" ]
EOF

# --- interrupted --------------------------------------------------------------------------------

# This program stands for one that a signal ends when it converts.
printf '#!/bin/sh\n[ "$1" != convert ] || exit 130\nexec "%s" "$@"\n' "$decode" >"$dir/stopped"
chmod +x "$dir/stopped"
checks <<'EOF'
$ DECODE=$dir/stopped study 130 "$text" "$dir/half" $small $cells
$ has "$err" "study.sh: stopped; the same command goes on"
$ [ "$(ls "$dir"/half/*.gguf | wc -l)" -eq 8 ]

# A part of a cell is not taken for a cell; a training goes on from its state.
$ rm "$dir/half/mha-seed1.gguf" "$dir/half/mha-seed1.json" "$dir/half/mha-seed2.gguf" "$dir/half/mha-seed2.json"
$ echo torn | tee "$dir/half/mqa-mean-seed2.part" >"$dir/half/mha-seed1.part"
0 train "$text" -o "$dir/half/mha-seed2.part" $small --heads 4 --kv-heads 4 --seed 2 --eval-every -1 --save-every 7 -q
$ study 0 "$text" "$dir/half" $small $cells
$ cells_of "$dir/half" | cmp -s - "$dir/cells"
$ [ "$(table_of "$dir/half")" = "$(table_of "$dir/whole")" ]
EOF

# --- several numbers of heads -------------------------------------------------------------------

# Fewer heads of the same size leave room for a wider feed-forward layer. An element of this has 8 + 8 weights and a
# bias and takes 32 operations. A head has 4 x 8 weights in each of Q, K, V and output and 12 biases, 140 numbers in
# all, and takes 2 x 128 operations and 2 x 8 for each of 5 positions.
apart="--embd 8 --layers 1 --ctx 8 --batch 1 --steps 5 --seeds 1 -t 1"
ff_of() { "$decode" info "$1" --format json | sed -n 's/.*"d_ff": \([0-9]*\).*/\1/p'; }
checks <<'EOF'
$ study 0 "$text" "$dir/params" $apart --ff 32 --head-dim 4 --heads 2,1,3 --match params
$ has "$out" "over heads-2"
$ has_lines "$out" 5
$ [ "$(for h in 2 1 3; do ff_of "$dir/params/heads-$h-seed1.gguf"; done | xargs)" = "32 40 24" ]
# Heads may have other sizes, and fewer K/V heads. A key and a value less are 8 numbers with 8 weights each, and their
# biases.
$ study 0 "$text" "$dir/sized" $apart --ff 32 --heads 2x4,2x4/1,4x2,1x4 --match params
$ has "$out" "| heads-2x4/1 | train | 0 | - | 1 |"
$ [ "$(for h in 2x4 2x4-kv1 4x2 1x4; do ff_of "$dir/sized/heads-$h-seed1.gguf"; done | xargs)" = "32 36 32 40" ]
$ study 0 "$text" "$dir/flops" $apart --ff 32 --head-dim 4 --heads 2,1,3 --match flops
$ [ "$(for h in 2 1 3; do ff_of "$dir/flops/heads-$h-seed1.gguf"; done | xargs)" = "32 43 21" ]
# MQA of four heads of 2 lacks three keys and three values, each of 2 x 8 weights and 2 biases.
$ study 0 "$text" "$dir/mqa" $apart --ff=32 --heads=4 --kv-heads 1 --method mean,scratch --alpha 0 --match params
$ [ "$(ff_of "$dir/mqa/mqa-scratch-seed1.gguf") $(ff_of "$dir/mqa/mqa-mean-seed1.gguf")" = "38 32" ]
EOF

# --- arms and rates -------------------------------------------------------------------------------

# Two arms are tried at two rates, and the table has the better rate of each. Further training has rates, too.
short="--embd 8 --layers 1 --ff 8 --ctx 8 --batch 1 --steps 40 --seeds 2 -t 1"
few="$short --rates 0.001,0.02 --arm two --heads 2 --arm plain --heads 2 --score-scale none"
bits_of() { sed -n 's/.*"bits_per_byte": *\([0-9.]*\).*/\1/p' "$1"; }
lower() { awk "BEGIN { exit !($1 < $2) }"; }
checks <<'EOF'
$ study 0 "$text" "$dir/arms" $few
$ has "$out" "| two | train | 0 | 0.02 (edge) | 2 |"
$ [ "$(wc -l <"$dir/arms/study.csv") $(grep -c yes "$dir/arms/study.csv")" = "9 4" ]
$ cell=two-lr0.02-seed1
$ grep -qx "two,train,0,0.02,1,$(bits_of "$dir/arms/$cell.json"),$cell,yes" "$dir/arms/study.csv"
$ lower "$(bits_of "$dir/arms/two-lr0.02-seed1.json")" "$(bits_of "$dir/arms/two-lr0.001-seed1.json")"
# A new arm is added to the folder; an arm with other options is refused.
$ study 0 "$text" "$dir/arms" $few --arm four --heads 4
$ has_lines "$out" 5
$ refuses 2 "another study's" "$text" "$dir/arms" $few --clip 2
$ study 0 "$text" "$dir/further" $short --heads 2 --kv-heads 1 --method mean --alpha 50 --rates 1e-6,0.01
$ has "$out" "| MQA | mean | 50 | 0.01 (edge) | 2 |"
EOF

# --- signals ------------------------------------------------------------------------------------

# ended SIGNAL STATUS: whether the signal ends a study of long trainings, and all that it started.
trainings() { ps -A -o args | grep -F -e "$decode train" | grep -cF -e "$1"; }
ended() {
    scripts/study.sh "$text" "$dir/long$1" $small --heads 2,1 --steps 9999999 --jobs 2 >"$out" 2>"$err" &
    h_pid=$!
    h_tries=0
    until [ "$(trainings "$dir/long$1/")" -ge 2 ] || [ $((h_tries += 1)) -gt 300 ]; do sleep 0.1; done
    kill -s "$1" $h_pid
    wait $h_pid 2>/dev/null
    [ $? -eq "$2" ] && [ "$(trainings "$dir/long$1/")" -eq 0 ]
}
note "SIGTERM ends the jobs and the script" ended TERM 143

# --- values -------------------------------------------------------------------------------------

# No value is evaluated by the shell or read as octal.
checks <<'EOF'
$ study 0 "$text" "$dir/suffix" --layers 1 --ctx 8 --batch 1 --steps 1k --seeds 1 -t 1 --embd 010 --heads 2,1
    --match params --ff 1k
$ [ "$(for h in 2 1; do ff_of "$dir/suffix/heads-$h-seed1.gguf"; done | xargs)" = "1000 1000" ]
EOF
for option in --ctx --embd --ff --head-dim --val-fraction --steps --seeds --jobs --rates --arm; do
    note "$option is not evaluated" refuses 2 "$option: expected" "$text" "$dir/y" --match params --heads 2,1 \
        "$option" 'heads[$(touch '"$dir"'/made)]'
done
note "nothing was evaluated" [ ! -e "$dir/made" -a ! -e made ]

# --- what is refused ----------------------------------------------------------------------------

checks <<'EOF'
$ refuses 2 "another study's; expected its text and options, or a new folder; there --batch 1; here --batch 2"
    "$text" "$dir/whole" $small $cells --batch 2
$ refuses 2 "another study's" "$dir/held-out" "$dir/whole" $small $cells
$ refuses 2 "expected TEXT DIR" "$text"
$ refuses 3 "$dir/missing: expected a file" "$dir/missing" "$dir/x"
$ refuses 3 "$dir: expected a file" "$dir" "$dir/x"
$ refuses 2 "--alpha: expected percents of the steps, found '1e3'" "$text" "$dir/x" --alpha 1,1e3
$ refuses 2 "--kv-heads: expected 2|1, found '3'" "$text" "$dir/x" --heads 4 --kv-heads 3
$ refuses 2 "--method: expected mean|" "$text" "$dir/x" --method latent
$ refuses 2 "--heads: expected numbers of query heads, found '0'" "$text" "$dir/x" --heads 0
$ refuses 2 "several --heads are not converted" "$text" "$dir/x" --heads 4,2 --alpha 1
$ refuses 2 "--match: expected params|flops, found 'size'" "$text" "$dir/x" --match size
$ refuses 2 "--match: 3 heads, 3 K/V heads would need" "$text" "$dir/x" --embd 8 --ff 8 --head-dim 4
    --heads 2,3 --match params
$ refuses 2 "--seed is chosen for each cell" "$text" "$dir/x" --seed 4
$ refuses 2 "--steps: expected a value" "$text" "$dir/x" --steps
$ refuses 2 "expected an option of the study or of train, found 'b'" "$text" "$dir/x" --steps 4 b
$ DECODE=$dir/missing refuses 1 "there is no such program" "$text" "$dir/x" $small
$ [ ! -e "$dir/x" ]
# An option that train does not know is refused before the first job, wherever it stands.
$ refuses 2 "--rate: train has no such option" "$text" "$dir/x" --rate 0.1 --heads 2,1
$ refuses 2 "--hedas: train has no such option" "$text" "$dir/x" $short --arm a --heads 2 --arm b --hedas 2
$ refuses 2 "--seeds is the study's, not an arm's" "$text" "$dir/x" --arm a --heads 2 --seeds 2
$ [ ! -e "$dir/x" ]
# What train refuses is refused with its words and its exit code; the folder is then free for another study.
$ study 2 "$text" "$dir/x" --embd 7
$ has "$err" "decode: train: "
$ study 0 "$text" "$dir/x" $small --heads 2 --kv-heads '' --seeds 1 --alpha 0
$ refuses 2 "--arm: there are two of 'a'" "$text" "$dir/x" --arm a --heads 1 --arm a
$ refuses 2 "--match, --kv-heads, --method, --alpha: not of arms" "$text" "$dir/x" --match params --arm a
$ study 0 --help
$ has "$out" "--match params|flops"
EOF
finish
