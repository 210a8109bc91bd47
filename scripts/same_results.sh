#!/bin/sh
# same_results.sh OLD NEW [FOLDER...] - compares the programs of before and after a change that must change
# no result, on some 3,300 command lines: exit codes, texts, figures, messages and files must be the same
# byte for byte, without times. Both run the checkpoints of tests/, models/ and the FOLDERs, with 1 and 2
# threads, in plain C and with the best instruction set; each goes on with a training that the other saved.
# Of a line that differs the first lines of the difference are printed, and of each section how many runs
# there were and how many differ. It takes two minutes on 2 processors. With MEMORY=own the plans of memory
# that -v prints may differ. Where a command or an option has a new name, OLD is a script that translates
# the lines.
set -eu
[ $# -ge 2 ] || {
    echo "usage: scripts/same_results.sh OLD NEW [FOLDER...]   (run from the repository's top)" >&2
    exit 2
}
. scripts/check/same.sh

old=$(realpath "$1") new_program=$(realpath "$2")
shift 2
same_begin same-results "$old" "$new_program"
text=tests/data/bpe-small.txt

# A FOLDER may have copies of the golden files; these are not run twice.
set -- "$@" tests/data
checkpoints=$(ls tests/data/golden/*.gguf models/*.gguf)
for folder in "$@"; do
    for file in "$folder"/*.gguf; do
        [ -e "$file" ] && ! cmp -s "$file" "tests/data/golden/${file##*/}" &&
            checkpoints="$checkpoints $(realpath "$file")"
    done
done
work_models="" refused=""
for model in $checkpoints; do
    if "$old" score "$model" --tokens 1,2 -q >/dev/null 2>&1; then
        work_models="$work_models $model"
    else
        refused="$refused $model"
    fi
done
small="tests/data/golden/mha.gguf tests/data/golden/gqa.gguf"

# section NAME COMMAND... - runs the command and prints a row of the summary
section() {
    h_section=$1 h_runs=$runs h_differing=$differing
    shift
    "$@"
    same_forget
    printf '%-34s %5d runs  %3d differ\n' "$h_section" $((runs - h_runs)) \
        $((differing - h_differing))
}

# --- whatever the instruction set ------------------------------------------------------------------

# options COMMAND - prints the options that both programs' helps have, without four whose output is full of
# times
options() {
    for h_program in "$old" "$new_program"; do
        "$h_program" help "$1" --all | grep -oE '^ +(-., )?--[a-z0-9-]+' |
            grep -oE -- '--[a-z0-9-]+$' | sort -u
    done | sort | uniq -d | grep -vE -- '--(plot|svg|log|verbose)'
}

helps() {
    same --version
    same --help
    for command in help generate bench convert train eval score tokenize info; do
        same help "$command"
        same "$command" --help
    done
}

# bad_lines - gives every option no value, an empty one, and values that few options take; and runs other lines
# that are refused.
bad_lines() {
    model=tests/data/golden/mha.gguf
    while read -r line; do
        # shellcheck disable=SC2086 # words
        same $line
        for option in $(options "${line%% *}"); do
            for value in "$option" "$option=" "$option=-7x" "$option=18446744073709551616"; do
                # shellcheck disable=SC2086 # words
                same $line "$value"
                same_forget
            done
        done
    done <<LINES
generate $model -n 2 --seed 1 -q
score $model --tokens 1,2 -q
eval $model $text --range 0:0.01 -q
bench $model -n 1 --repeat 1 --warmup 0 --prompt 0 --kv-heads 1 --format csv -q
convert $model -o out.gguf --kv-heads 2 --method mean -q
convert $model -o out.gguf --type f16 -q
train $text -o out.gguf --layers 1 --embd 8 --heads 2 --ff 8 --ctx 8 --batch 1 --steps 1 --seed 1 -q
tokenize $model -p abc
info $model
LINES
    while read -r line; do
        # shellcheck disable=SC2086 # words
        same $line
    done <<LINES

nonsense
genrate $model
help nonsense
generate
generate $model $model
generate missing.gguf
generate tests
generate $text
generate $model -f missing.txt
generate $model -f tests
generate $model -p a -f $text
generate $model --tmep 1
generate $model -n
generate $model -n x
generate $model -f $text
generate $model -c 100000
generate $model --kv-heads 3
generate $model --kv-heads 8
convert $model -o out.gguf --kv-heads 2 --method nonsense
convert $model -o out.gguf --calib $text
generate tests/data/golden/mqa-f16.gguf --kv-heads 1 -q --seed 1
score $model
score $model --tokens 1,99999
score $model --tokens 1,,2
score $model --tokens 1,2 -p abc
score $model --tokens 1,2 --logits tests/no/such/out.npy
score $model --tokens 1,2 --logits $model
eval $model
eval $model missing.txt
eval $model $text --range 1:0
eval $model $text --range 0:2
eval $model $text --stride 1000
eval $model $text --against tests/data/golden/mqa-f16.gguf
bench
bench $model --shape 1x8x2
bench --shape 1x8x3
bench --shape 0x8x2
bench --shape 1x8x2,nonsense=3
bench --shape 1x8x2 --kv-heads 3 -n 1
bench --shape 1x8x2,ctx=4 --depth 5 -n 1
bench $model --type nonsense
bench $model --svg tests/no/such/out.svg
convert $model -o out.gguf
convert $model --kv-heads 2
convert $model -o $model --kv-heads 2
convert $model -o $model --kv-heads 2 --force
convert $model -o tests/no/such/out.gguf --kv-heads 2
convert $model -o out.gguf --kv-heads 2 --refit wo
convert $model -o out.gguf --kv-heads 2 --method mean --group cluster --refit none
convert $model -o out.gguf
convert $model -o out.gguf --type nonsense
convert $model -o $model --type f16
convert tests/data/bpe-small.gguf -o out.gguf --type f16
train
train $text
train missing.txt -o out.gguf
train $text -o tests/no/such/out.gguf
train $text -o out.gguf --heads 3
train $text -o out.gguf --kv-heads 3
train $text -o out.gguf --resume
train $text -o out.gguf --from $model --layers 2
train $text -o out.gguf --teacher $model
train $text -o out.gguf --log out.gguf
train $text -o out.gguf --from missing.gguf
tokenize $model
tokenize $model --decode 1,2 -p abc
tokenize $model --decode 99999
info
info $model --tensors --check
LINES
}

# broken_files - compares the readers' messages on the inputs of the fuzz targets, which are broken in many
# ways.
broken_files() {
    for file in tests/fuzz/corpus/gguf/*; do
        same info "$file" --check --tensors
        same score "$file" --tokens 1,2
    done
}

refusals() {
    for model in $refused; do
        same generate "$model" -n 2 --seed 1 -q
        same score "$model" --tokens 1,2
        same eval "$model" $text
        same convert "$model" -o out.gguf --kv-heads 1
        same convert "$model" -o out.gguf --type q8_0
        same bench "$model" -n 1
        same train $text -o out.gguf --from "$model"
    done
}

infos() {
    for model in $checkpoints; do
        same info "$model" -v
        for format in md csv json jsonl; do
            same info "$model" --format $format
            same info "$model" --format $format --tensors
            same info "$model" --format $format --check
        done
    done
}

tokens() {
    for model in $checkpoints; do
        same tokenize "$model" -f $text
        same tokenize "$model" -f tests/data/pretokenize.txt
        same tokenize "$model" -p "Naïve: 12 times.  " -v
        same tokenize "$model" --decode 1,2,3,40,255,7
    done
}

# --- on every instruction set ------------------------------------------------------------------------

texts() {
    for model in $work_models; do
        same generate "$model" -n 30 --greedy -q
        same generate "$model" -p ab -n 30 --seed 1 -v
        same generate "$model" -n 20 --seed 2 --temp 1.5 --top-k 0 --min-p 0.01 -q --kv-type f16
        same generate "$model" -n 20 --seed 3 --top-p 0.5 --repeat-penalty 1.3 -q --kv-type q8_0
        same generate "$model" -n 10 --seed 4 --samples 3 --no-echo -q
        same generate "$model" -n 10 --seed 5 --samples 2 --stop e -q
    done
}

logits() {
    for model in $work_models; do
        ids=$(cat "${model%.gguf}.tokens" 2>/dev/null || echo 65,66,67,68,10,70,90,100,32,33,97,98)
        same_logits "$model" --tokens "$ids"
        for format in table md csv json jsonl; do
            same score "$model" --tokens "$ids" --top 3 --format $format -v
        done
    done
}

variants() {
    for model in $small; do
        same generate "$model" -n 10 --kv-heads 1 --seed 1 -q
        same score "$model" --tokens 1,2,3 --kv-heads 1 --logits l.npy
        same eval "$model" $text --range 0:0.02 --kv-heads 1
    done
}

types() {
    for model in $small tests/data/shakespeare-bytes.gguf; do
        same_types "$model" f32 f16 bf16 q8_0 q4_0
    done
    for format in table md csv json jsonl; do
        same convert tests/data/golden/gqa.gguf -o q.gguf --type q4_0 --force \
            --format $format
    done
}

evals() {
    for model in $small; do
        same eval "$model" $text --range 0.2:0.22 --against "$model" -v
        for format in md csv json jsonl; do
            same eval "$model" $text --range 0:0.02 --format $format
            same eval "$model" $text --range 0:0.02 --ctx 20 --stride 7 --format $format
        done
        same eval "$model" $text --range 0:0.02 --kv-type q8_0
    done
    same eval models/shakespeare-gqa2.gguf $text --range 0:0.01 \
        --against models/shakespeare-mha.gguf --format json
}

benches() {
    few="-n 2 --repeat 1 --warmup 0 --prompt 3"
    for of in "$1" "--shape 2x64x4,ff=96,vocab=300,ctx=32"; do
        # shellcheck disable=SC2086 # words
        same bench $of $few --depth 0,7 --type f32,f16,bf16,q8_0,q4_0 --kv-type f32,f16,q8_0 \
            --format json -q
        for format in jsonl csv md; do
            # shellcheck disable=SC2086 # words
            same bench $of $few --format $format -q
        done
    done
    # shellcheck disable=SC2086 # words
    same bench "$1" $few --kv-heads 2,1 --format json -q
}

conversions() {
    calibrated="--calib $text --calib-tokens 300 --seed 1"
    for method in mean first random procrustes fit; do
        for group in adjacent cluster; do
            same convert "$1" -o out.gguf --force --kv-heads 2 --method $method --group $group \
                --seed 1 -v
            # shellcheck disable=SC2086 # words
            same convert "$1" -o out.gguf --force --kv-heads 1 --method $method --group $group \
                $calibrated --format json -q
        done
        # shellcheck disable=SC2086 # words
        same convert "$1" -o out.gguf --force --kv-heads 1 --method $method --refit wo $calibrated \
            --format csv -q
    done
    # shellcheck disable=SC2086 # words
    same convert "$1" -o out.gguf --force --kv-heads 2 --refit none $calibrated --format md \
        --eval tests/data/train/mha.txt
    # read-only has types that are only read, and massive the activations that real checkpoints have.
    for of in shakespeare-bytes read-only massive; do
        # shellcheck disable=SC2086 # words
        same convert tests/data/$of.gguf -o out.gguf --force --kv-heads 1 --requantize $calibrated
    done
}

# The options of a small new model.
new="$text --layers 2 --embd 16 --heads 4 --ff 24 --ctx 16 --batch 3 --seed 1 --save-every 3
--eval-every 3 --val-fraction 0.02"

trainings() {
    short="--steps 6 --log log.csv -v"
    # shellcheck disable=SC2086 # words
    {
        same train $new -o new.gguf $short
        same train $new -o bpe.gguf $short --vocab 300 --kv-heads 2 --dropout 0.1 --eval-every -1
        same train $new -o mqa.gguf $short --kv-heads 1 --clip 0.1 --weight-decay 0.5 --val-fraction 0
        same train $text -o from.gguf --from new.gguf --teacher new.gguf --batch 2 --seed 1 $short
        same train tests/data/train/mha.txt $text -o golden.gguf --batch 2 --seed 1 --ctx 32 \
            --from tests/data/golden/gqa.gguf --dropout 0.2 --val-fraction 0.02 $short
    }
}

# interrupted - interrupts a training of OLD, and both programs go on from there; then one of NEW.
interrupted() {
    long="--steps 400 -q"
    # shellcheck disable=SC2086 # words
    same train $new -o whole.gguf $long
    for folder in first second; do
        program=$old other=second code=0
        [ $folder = first ] || program=$new_program other=first
        # shellcheck disable=SC2086 # words
        (cd "$work/$folder" && timeout -s INT 0.2 "$program" train $new -o part.gguf $long) || code=$?
        [ $code -eq 124 ] || echo "same-results: the training was not interrupted: exit $code"
        cp "$work/$folder"/part.gguf* "$work/$other"
        # shellcheck disable=SC2086 # words
        same train $new -o part.gguf $long --resume
        for end in gguf gguf.state; do
            cmp "$work/first/part.$end" "$work/first/whole.$end" || differing=$((differing + 1))
        done
        rm -f "$work"/*/part.gguf*
    done
}

printf 'checkpoints: %d run, %d refused by OLD\n' "$(echo $work_models | wc -w)" \
    "$(echo $refused | wc -w)"
export DECODE_THREADS=1
section "help" helps
section "bad command lines" bad_lines
section "broken files" broken_files
section "refused checkpoints" refusals
section "info" infos
section "tokenize" tokens
best=$("$old" --version | sed -n 's/^this machine runs.* //p')
for DECODE_ISA in scalar "$best"; do
    for DECODE_THREADS in 1 2; do
        export DECODE_ISA DECODE_THREADS
        echo "$DECODE_ISA, -t $DECODE_THREADS:"
        section "generate" texts
        section "score" logits
        section "variants in memory" variants
        section "convert --type" types
        section "eval" evals
        section "bench" benches tests/data/golden/mha.gguf
        section "convert" conversions tests/data/golden/mha.gguf
        section "train" trainings
        section "train --resume" interrupted
    done
done
printf '%-34s %5d runs  %3d differ\n' "in all" $runs $differing
exit $((differing != 0))
