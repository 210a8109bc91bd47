#!/bin/sh
# world.sh DECODE - the program in a hostile world: little memory and time, texts that are no files,
# readers that stop, crowded machines. (Checkpoints that are no files or change while they are read,
# outputs in odd places, limits on files and descriptors, closed streams: test_bad_input_*.c; calls that
# fail: test_faults.c.) Run from the repository's top; the last line counts what passed, failed and could
# not be tried.
. tests/checks.sh
work=$dir/work
skipped=0

# --- helpers ------------------------------------------------------------------------------------

skip() {
    skipped=$((skipped + 1))
    echo "skipped: $1"
}

# An empty folder for outputs.
clear_work() {
    rm -rf "$work"
    mkdir "$work"
}

# run ARGS...: under the limit of ulimit that $limit has, if any.
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
clear_work
# ASan reserves terabytes of address space, takes large stack frames and wants threads of its own.
asan=true
(ulimit -v 400000 && "$decode" --version) >"$out" 2>&1 && asan=false

# --- limits -------------------------------------------------------------------------------------

# Small stacks: 64 KiB hold the program, and its threads have their own. (Kernels of builds that do not
# optimise have frames of 32 KiB.) A file that claims what it has not is refused for what it is, not for
# want of memory; of two terabytes of zeros nothing may be read or taken.
if $asan; then
    skip "small stacks and little address space: this build needs more (ASan)"
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
$ limit="-v 8000"
4 generate $model -p x -n 1 | memory
$ limit="-v 400000"
4 heads $model "$dir/long" --tokens 2000000 | fewer --tokens
$ limit="-v 200000"
0 generate $model -p x -n 3 -t 2
3 $words "$dir/huge" | $dir/huge | for words in info "generate -p x -m" "convert -o $work/q --type f16 -m"
EOF
    if truncate -s 2T "$dir/sparse" 2>/dev/null; then
        check '4 info "$dir/sparse" | cannot map'
        limit=
        check '3 info "$dir/sparse" | $dir/sparse'
    else
        skip "a sparse file of two terabytes"
    fi
fi

# Processor time: the soft limit's signal ends the run as Ctrl-C does.
clear_work
limit="-S -t 1"
check "130+ train $dir/text -o $work/t.gguf $long"
limit=
note "processor time is up: train has saved" [ -s "$work/t.gguf.state" ]

# --- texts that are no files ---------------------------------------------------------------------

mkfifo "$dir/fifo"
for words in "generate $model -f" "tokenize $model -f" "score $model -f" "eval $model" \
    "convert $model -o $work/c --kv-heads 1 --calib" "convert $model -o $work/c --kv-heads 1 --eval" \
    "train -o $work/t $toy"; do
    checks <<'EOF'
3 $words "$dir" | Is a directory
3 $words "$dir/none" | $dir/none
EOF
done
clear_work

# A training text may come through a pipe, as every other text. Long names leave room
# for the reason, control characters do not reach the terminal.
deep=$(printf '%0300d/' 0 1 2 3 4 5)
odd=$dir/$(printf 'a\033[31m\nb')
checks <<'EOF'
0 train "$dir/text" -o "$work/file.gguf" $toy
$ cat "$dir/text" >"$dir/fifo" &
0 train "$dir/fifo" -o "$work/fifo.gguf" $toy
$ wait $!
0 train - -o "$work/stdin.gguf" $toy <"$dir/text"
$ cmp -s "$work/file.gguf" "$work/fifo.gguf"
$ cmp -s "$work/file.gguf" "$work/stdin.gguf"
3 info "$deep" | cannot open: File name too long
3 generate $model -f "$deep" | cannot open: File name too long
3 info "$odd" | a?[31m?b: cannot open
EOF
# OUT.state, too, is found out before the training.
clear_work
mkdir "$work/t.gguf.state"
name=$(printf '%0255d' 0)
checks <<'EOF'
2 train "$dir/text" -o "$work/t.gguf" $toy | t.gguf.state' exists
1 train "$dir/text" -o "$work/$name" $toy | File name too long
$ [ "$(ls -A "$work")" = t.gguf.state ]
EOF

# --- streams ------------------------------------------------------------------------------------

# A reader that has stopped reading: one signal ends the program, for it waits no longer.
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

# --- load ---------------------------------------------------------------------------------------

# Twelve at once, some with more threads than processors, some kept on one; one of them is stopped
# half of the time, like a group with half a processor.
"$decode" generate "$model" -p ROMEO: -n 100 --seed 7 -q >"$dir/expected"
pids=
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    pin=
    [ $((i % 3)) -ne 0 ] || ! command -v taskset >/dev/null || pin="taskset 1"
    (exec $pin "$decode" generate "$model" -p ROMEO: -n 100 --seed 7 -q -t $((i % 4 * 21 + 1))) \
        >"$dir/load.$i" 2>"$err" &
    pids="$pids $!"
    last=$!
done
for i in 1 2 3 4 5; do
    kill -STOP "$last" 2>/dev/null
    sleep 0.05
    kill -CONT "$last" 2>/dev/null
    sleep 0.05
done
i=0
for pid in $pids; do
    i=$((i + 1))
    wait "$pid"
    note "twelve at once: exit 0, found $?" [ $? -eq 0 ]
    note "twelve at once: the same text" cmp -s "$dir/expected" "$dir/load.$i"
done
finish ", $skipped skipped"
