#!/bin/sh
# world.sh DECODE - runs the program in a hostile world: little memory and time, texts through pipes, long
# names, readers that stop. (test_file.c, test_bad_input_*.c, test_faults.c and test_pool.c test other hostile
# surroundings.) It is run from the repository's top; its last line counts what passed and failed.
. tests/support/checks.sh
unset DECODE_THREADS # threads want stacks and memory, too
work=$dir/work
mkdir "$work"

# run ARGS...: runs the program under the limit of ulimit that $limit names, if it names one.
limit=
run() {
    (
        [ -z "$limit" ] || ulimit $limit
        exec "$decode" "$@"
    ) >"$out" 2>"$err"
    code=$?
}

awk 'BEGIN { for (i = 0; i < 200; i++) print "line " i " of a text: " i * i % 97 }' >"$dir/text"
toy="--layers 1 --embd 16 --heads 2 --ctx 32 --batch 2 --steps 4 --eval-every 2 --seed 7 -q"
long="--layers 1 --embd 16 --heads 2 --ctx 32 --batch 2 --steps 1000000 --seed 7 -q"
# AddressSanitizer reserves terabytes of address space, takes large stack frames and starts threads.
asan=true
(ulimit -v 400000 && "$decode" --version) >"$out" 2>&1 && asan=false

# --- limits -------------------------------------------------------------------------------------

# A stack of 64 KiB holds the program; its threads have stacks of their own. (In builds that are not optimised
# kernels have frames of 32 KiB.) A file that claims more than it has is refused as malformed, not for want of
# memory. Nothing of a file of two terabytes of zeros may be read, nor memory taken for it.
if $asan; then
    echo "skipped: small stacks and little address space: this build needs more (ASan)"
else
    awk 'BEGIN { for (i = 0; i < 40000; i++) print "line", i, "of a long text" }' >"$dir/long"
    printf 'GGUF\003\0\0\0\377\377\377\377\377\377\377\177\377\377\377\377\377\377\377\177' >"$dir/huge"
    checks <<'EOF'
$ limit="-s 64"
0 generate $model -p x -n 3 -t 2
0 info $model
0 info $golden/mixed-quadratic.gguf --format json
0 eval $model "$dir/text" --range 0:0.1 -t 2
$ limit="-s 100"
0 bench $model --kv-heads 8 -n 1 --repeat 1 --depth 0 -q
0 convert $model -o "$work/small.gguf" --kv-heads 2 --calib README.md --calib-tokens 512 -q
0 convert $model -o "$work/by-layer.gguf" --kv-heads auto --cache-bytes 512 --calib README.md --calib-tokens 256 -q
$ limit="-v 7000"
4 generate $model -p x -n 1 -c 256 -t 1 | memory
$ limit="-v 400000"
4 heads $model "$dir/long" --tokens 2000000 | fewer --tokens
# A word of 40 MB is read for 300 tokens alone.
$ repeat a 40000000 >"$dir/word"
0 convert $model -o "$work/word.gguf" --kv-heads 1 --calib "$dir/word" --calib-tokens 300 -q -t 1
$ limit="-v 200000"
0 generate $model -p x -n 3 -t 2
3 $words "$dir/huge" | $dir/huge | for words in info "generate -p x -m" "convert -o $work/q --type f16 -m"
EOF
    if truncate -s 2T "$dir/sparse" 2>/dev/null; then
        check '4 info "$dir/sparse" | cannot map'
        limit=
        check '3 info "$dir/sparse" | $dir/sparse'
    else
        echo "skipped: a sparse file of two terabytes"
    fi
fi

# The signal of the soft limit on processor time ends the run as Ctrl-C does.
limit="-S -t 1"
check "130+ train $dir/text -o $work/t.gguf $long"
limit=
note "processor time is up: train has saved" [ -s "$work/t.gguf.state" ]

# Impossible sizes are refused before memory is taken; large values that need no memory are accepted. A limit on
# the size of files fails as a full disk does (test_faults.c).
$asan || checks <<'EOF'
$ limit="-v 1000000"
2 bench $model --depth 2147483647 | 2147483647
4 bench $model --batch 2147483647 -t 1 -q | fewer or smaller --batch
2 bench $model -n 2147483647 | -n: expected an integer, 1 to
2 bench $model -n 1000000 --repeat 10000 -q -t 1 | expected at most 100000000 in all
4 bench --shape $shape -t 1 -q | out of memory
    | for shape in 500x65536x1,ff=16777216,vocab=16777216,ctx=4194304 1x1024x1,ctx=4194304,vocab=9
4 train "$dir/text" -o "$work/x.gguf" $size -t 1 -q | out of memory
    | for size in "--layers 500 --embd 16384 --heads 1 --ctx 8" "--embd 64 --heads 1 --batch 65536 --ctx 128"
2 train "$dir/text" -o "$work/x.gguf" --ctx 4000000 -t 1 -q | expected at least
$ most=2147483647
0 generate $model -p ab -n $most --top-k $most --repeat-last-n $most -t 1 -q
0 score $model -p ab --top $most -t 1 --format jsonl
0 convert $model -o "$work/most.gguf" --kv-heads 1 --calib LICENSE --calib-tokens $most -t 1 -q
$ limit="-f 20"
1 $words -t 1 -q | File too large | for words in "convert $model -o $work/x.gguf --type f16"
    "train $dir/text -o $work/x.gguf --from $model --steps 1 --batch 1 --seed 1"
$ [ -z "$(ls -A "$work" | grep -e '^x' -e '^[.]')" ]
# A cache that memory cannot hold is refused before it is taken, and a session refuses a line for which its cache
# cannot grow. The checkpoint claims a context of 4,194,304 tokens.
$ limit=
0 train "$dir/text" -o "$work/far.gguf" $toy --position rope
$ at=$(grep -abo context_length "$work/far.gguf" | head -n 1 | cut -d : -f 1)
$ printf '\0\0\100\0' | dd of="$work/far.gguf" bs=1 seek=$((at + 18)) conv=notrunc 2>/dev/null
$ limit="-v 400000"
4 generate "$work/far.gguf" -p x -n 4000000 --samples 3 -t 1 | out of memory: the cache and | a smaller --batch, -c or -n
$ { printf 'a\n'; repeat a 1000000; printf '\nb\n'; } >"$dir/lines"
$ run generate "$work/far.gguf" -i -n 3 -t 1 --seed 1 -v <"$dir/lines"
4+ | 2> KV cache 24.0 KiB that may grow to 768 MiB | 2> out of memory: a cache of twice the text and scratch memory need 312 MiB
$ limit=
# Texts that no context holds are refused; one of more than 256 MiB is not read.
$ repeat a 4194304 >"$dir/many" && truncate -s 300M "$dir/larger"
2 $words "$dir/many" | has 4194304 tokens, the context only 256 | for words in "generate $model -f" "score $model -f"
2 $words "$dir/larger" | more than the 268435456 bytes allowed
    | for words in "generate $model -f" "score $model -f" "tokenize $model -f" "eval $model"
EOF

# --- texts and names -----------------------------------------------------------------------------

# A training text may come through a pipe, as every other text. A message about a long name still has the
# reason, and control characters of a name do not reach the terminal.
deep=$(printf '%0300d/' 0 1 2 3 4 5)
odd=$dir/$(printf 'a\033[31m\nb')
checks <<'EOF'
0 train "$dir/text" -o "$work/file.gguf" $toy
$ cat "$dir/text" | "$decode" train - -o "$work/stdin.gguf" $toy
$ cmp -s "$work/file.gguf" "$work/stdin.gguf"
3 info "$deep" | cannot open: File name too long
3 info "$odd" | a?[31m?b: cannot open
# A name that is too long for OUT.state is refused before the training.
$ name=$(printf '%0255d' 0)
1 train "$dir/text" -o "$work/$name" $toy | File name too long
$ [ ! -e "$work/$name" ]
EOF

# --- streams ------------------------------------------------------------------------------------

# A run whose standard output is closed fails. Where standard streams are closed, files still get their own
# contents.
for words in "generate $model -p ab -n 2" "score $model -p ab" "tokenize $model -p ab" "info $model" help \
    --version "eval $model $dir/text --range 0:0.1" "bench $model -n 1 --repeat 1 --warmup 0 --prompt 0" \
    "convert $model -o $work/c.gguf --kv-heads 1 --method mean --force" \
    "convert $model -o $work/c.gguf --type f16 --force"; do
    checks <<'EOF'
$ "$decode" $words <&- >"$out" 2>"$err"
$ "$decode" $words >&- 2>"$err" </dev/null; [ $? = 1 ]
$ "$decode" $words 2>&- >"$out"
$ [ ! -e "$work/c.gguf" ] || "$decode" info --check "$work/c.gguf" >"$out"
EOF
done
check "3 eval $model - <&- | standard input"

# One signal ends a program that waits for a reader who has stopped reading.
mkfifo "$dir/stuck"
exec 4<>"$dir/stuck"
"$decode" score "$model" -p "$(head -c 250 "$dir/text")" --top 256 --format csv \
    >"$dir/stuck" 2>"$err" 4<&- &
sleep 1.5
end_by TERM $!
exec 4<&-
checks <<'EOF'
130+ | 2> nobody read standard output
EOF
finish
