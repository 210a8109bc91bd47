#!/bin/sh
# world.sh DECODE - the program in a hostile world: limits of the process, files that are no files
# or change while they are read, outputs in odd places, streams that fail, crowded machines. Run
# from the repository's top; the last line counts what passed, failed and could not be tried.
. tests/checks.sh
mounted=
trap '[ -z "$mounted" ] || umount "$mounted"; chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
work=$dir/work
skipped=0

# --- helpers ------------------------------------------------------------------------------------

skip() {
    skipped=$((skipped + 1))
    echo "skipped: $1"
}

# No temporary, and nothing else but these names.
holds_only() { [ "$(ls -A "$work" | tr '\n' ' ')" = "$1" ]; }

# An empty folder for outputs.
clear_work() {
    rm -rf "$work"
    mkdir "$work"
}

# run ARGS...: under the limit of ulimit that $limit has, if any, by the command in $as.
limit=
as=
run() {
    (
        [ -z "$limit" ] || ulimit $limit
        exec $as "${as_decode:-$decode}" "$@"
    ) >"$out" 2>"$err"
    code=$?
}

awk 'BEGIN { for (i = 0; i < 200; i++) print "line " i " of a text: " i * i % 97 }' >"$dir/text"
toy="--layers 1 --embd 16 --heads 2 --ctx 32 --batch 2 --steps 4 --eval-every 2 --seed 7 -q"
long="--layers 1 --embd 16 --heads 2 --ctx 32 --batch 2 --steps 1000000 --seed 7 -q"
# Every command that writes a file.
bench="bench $model --kv-heads 8 -n 1 --repeat 1 --warmup 0 --prompt 0 -t 1 -q"
cat >"$dir/writers" <<EOF
score $model -p abc --logits $work/l.npy
quantize $model -o $work/q.gguf --type q8_0 -q
convert $model -o $work/c.gguf --kv-heads 1 --method mean -q
train $dir/text -o $work/t.gguf $toy
$bench --trace $work/t.csv
$bench --plot $work/p.svg
attend $model -p abc --svg $work/a.svg -q
attend $model -p abc --npy $work/a.npy -q
EOF
# each_writer FUNCTION: FUNCTION ARGS... for each of them, in an empty folder.
each_writer() {
    while IFS= read -r h_writer <&5; do
        clear_work
        "$@" $h_writer 5<&-
    done 5<"$dir/writers"
}

# ASan reserves terabytes of address space, takes large stack frames and wants threads of its own.
asan=true
(ulimit -v 400000 && "$decode" --version) >"$out" 2>&1 && asan=false

# --- limits -------------------------------------------------------------------------------------

# A size limit fails the write; nothing is left. It is standard error's too, if that is a file. Five
# descriptors are enough; fewer are not even for the loader of the C library.
size_limit() {
    {
        (ulimit -f 0 && exec "$decode" "$@") 2>&1 >/dev/null
        echo $? >"$dir/code"
    } | cat >"$err"
    code=$(cat "$dir/code")
    : >"$out"
    check '1 | File too large'
    note "a file-size limit leaves nothing: $*" holds_only ""
}
each_writer size_limit
descriptor_limit() { limit="-n 5" check "0 $*"; }
each_writer descriptor_limit
limit=
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
0 eval $model --text "$dir/text" --range 0:0.1 -t 2
$ limit="-s 100"
0 bench $model --kv-heads 8 -n 1 --repeat 1 --depth 0 -q
0 convert $model -o "$work/small.gguf" --kv-heads 2 --calib README.md --calib-tokens 512 -q
0 convert $model -o "$work/by-layer.gguf" --cache-bytes 512 --calib README.md --calib-tokens 256 -q
0 study "$dir/text" -o "$work/study" --embd 8 --layers 1 --heads 2 --ff 8 --ctx 8 --batch 1 --steps 4
    --seeds 1 -t 1 -q
$ limit="-v 8000"
4 generate $model -p x -n 1 | memory
$ limit="-v 400000"
4 heads $model --text "$dir/long" --tokens 2000000 | fewer --tokens
$ limit="-v 200000"
0 generate $model -p x -n 3 -t 2
3 $words "$dir/huge" | $dir/huge | for words in info "generate -p x -m" "quantize -o $work/q --type f16 -m"
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

# --- special files ------------------------------------------------------------------------------

mkfifo "$dir/fifo"
clear_work
for file in "$dir" "$dir/fifo" /dev/zero /dev/null /proc/version /proc/self/mem "$dir/none"; do
    case $file in /proc/*) [ -r "$file" ] || continue ;; esac
    checks <<'EOF'
3 $words "$file" | $file | for words in info "generate -p x -m" "quantize -o $work/q --type f16"
    "convert -o $work/c --kv-heads 1" "eval --text $dir/text" "eval $model --text $dir/text --against"
    "train $dir/text -o $work/t --from" "train $dir/text -o $work/t --teacher" bench
EOF
done
for words in "generate $model -f" "tokenize $model -f" "score $model -f" "eval $model --text" \
    "convert $model -o $work/c --kv-heads 1 --calib" "convert $model -o $work/c --kv-heads 1 --eval" \
    "generate $model --kv-heads 1 --calib" "train -o $work/t $toy"; do
    checks <<'EOF'
3 $words "$dir" | Is a directory
3 $words "$dir/none" | $dir/none
EOF
done

# A training text may come through a pipe, as every other text. What waits for a pipe is ended by one
# Ctrl-C. Long names leave room for the reason, control characters do not reach the terminal.
deep=$(printf '%0300d/' 0 1 2 3 4 5)
odd=$dir/$(printf 'a\033[31m\nb')
checks <<'EOF'
$ holds_only ""
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
for words in "generate $model -f" "train -o $work/t.gguf $toy" "generate $model --kv-heads 1 --calib"; do
    start $words "$dir/fifo"
    sleep 0.3
    end_by TERM $pid
    note "waiting for a pipe: exit 130, found $code: $words" [ $code -eq 130 ]
done
cp "$model" "$dir/secret"
chmod 0 "$dir/secret"
if [ "$(id -u)" -ne 0 ]; then
    check "3 info $dir/secret | Permission denied"
elif command -v setpriv >/dev/null && chmod 755 "$dir" && cp "$decode" "$dir/decode" &&
    setpriv --reuid=65534 --clear-groups "$dir/decode" --version >"$out" 2>&1; then
    as="setpriv --reuid=65534 --clear-groups"
    as_decode=$dir/decode
    check "3 info $dir/secret | Permission denied"
    # The machine has no room for threads: fewer do.
    chmod 644 "$dir/secret"
    as="$as prlimit --nproc=1"
    $asan || check "0 generate $dir/secret -p x -n 3 -t 2"
    as= as_decode=
else
    skip "a file that may not be read: no other user at hand"
fi

# --- files that change while they are read ------------------------------------------------------

# changed HOW ARGS...: the program holds $dir/m.gguf mapped and waits for the text; then it changes.
changed() {
    h_how=$1
    shift
    clear_work
    cp "$model" "$dir/m.gguf"
    start "$@" --kv-heads 1 --calib "$dir/fifo" -q
    # Opening the pipe waits for the reader, who has the checkpoint open by then.
    exec 3>"$dir/fifo"
    $h_how
    cat "$dir/text" >&3
    exec 3>&-
    wait $pid
    code=$?
}
cut_short() { : >"$dir/m.gguf"; }
deleted() { rm "$dir/m.gguf"; }
replaced() { cp "$dir/text" "$dir/m.new" && mv "$dir/m.new" "$dir/m.gguf"; }
overwritten() {
    repeat '\377' "$(size_of "$dir/m.gguf")" |
        dd of="$dir/m.gguf" bs=64k conv=notrunc 2>/dev/null
}
# Of weights of NaN: refused or converted, but the head stays what was checked.
checks <<'EOF'
$ changed cut_short convert "$dir/m.gguf" -o "$work/c.gguf"
3 | a file was cut short
$ holds_only ""
$ changed deleted convert "$dir/m.gguf" -o "$work/c.gguf"
0
$ mv "$work/c.gguf" "$dir/whole.gguf"
$ changed replaced convert "$dir/m.gguf" -o "$work/c.gguf"
0
$ cmp -s "$work/c.gguf" "$dir/whole.gguf"
$ changed overwritten generate "$dir/m.gguf" -n 1
$ [ $code -eq 1 -o $code -eq 3 ] && has_lines "$err" 1

# --- outputs ------------------------------------------------------------------------------------

# Two outputs, or an output and an input, by other names.
$ clear_work
$ ln -s there "$work/link"
2 train "$dir/text" -o "$work/link" --log "$work/there" $toy | names, too
2 $bench --plot "$work/link" --trace "$work/./there" | names, too
$ cp $model "$work/m.gguf"
$ ln -s m.gguf "$work/soft"
2 $words | the checkpoint itself | for words in "quantize $work/soft -o $work/m.gguf --type f16"
    "convert $work/m.gguf -o $work/./soft --kv-heads 1"
    "score $work/soft -p x --logits $work/m.gguf" "bench $work/m.gguf --plot $work/soft"
$ cmp -s $model "$work/m.gguf"

# A link stays one, its target is made or replaced; permissions are kept.
$ clear_work
$ ln -s there "$work/link"
0 score $model -p abc --logits "$work/link" -q
$ [ -h "$work/link" -a -s "$work/there" ]
$ chmod 640 "$work/there"
0 score $model -p abcd --logits "$work/link" -q
$ [ -h "$work/link" -a "$(ls -l "$work/there" | cut -c 1-10)" = -rw-r----- ]
$ holds_only "link there "
$ ln -s loop "$work/loop"
1 score $model -p abc --logits "$work/loop" -q | symbolic links

# What cannot be replaced; OUT.state, too, is found out before the training.
1 score $model -p abc --logits "$file" -q | cannot replace it
    | for file in /dev/null /dev/stdout "$dir" "$dir/fifo"
1 score $model -p abc --logits /proc/nothing -q | /proc/nothing
$ clear_work
$ mkdir "$work/t.gguf.state"
1 train "$dir/text" -o "$work/t.gguf" $toy --force | t.gguf.state
$ holds_only "t.gguf.state "
$ clear_work
$ name=$(printf '%0255d' 0)
0 score $model -p abc --logits "$work/$name" -q
$ [ -s "$work/$name" ]
$ clear_work
1 train "$dir/text" -o "$work/$name" $toy | File name too long
$ holds_only ""
EOF

# A disk that is full indeed.
if [ "$(id -u)" -eq 0 ] && mkdir "$dir/small" &&
    mount -t tmpfs -o size=4k none "$dir/small" 2>/dev/null; then
    mounted=$dir/small
    full_disk() {
        check "1+ $(echo "$*" | sed "s#$work/#$dir/small/#g") | 2> No space left on device"
        note "a full disk: one line: $*" has_lines "$err" 1
        note "a full disk keeps what was there: $*" \
            [ "$(ls -A "$dir/small")" = old -a "$(cat "$dir/small/old")" = contents ]
    }
    echo contents >"$dir/small/old"
    each_writer full_disk
    umount "$mounted" && mounted=
else
    skip "a full disk: no file system may be mounted"
fi

# --- streams ------------------------------------------------------------------------------------

# The commands that cli.sh does not try, and all three streams closed.
clear_work
for words in "eval $model --text $dir/text --range 0:0.1" "$bench" \
    "convert $model -o $work/c.gguf --kv-heads 1 --method mean --force"; do
    full=/dev/full
    [ -c $full ] || full=
    checks <<'EOF'
$ "$decode" $words 2>"$err" >&-; [ $? -eq 1 ]
$ "$decode" $words <&- >&- 2>&-; [ $? -eq 1 ]
$ "$decode" $words <&- 2>&- >"$out"
$ [ -z "$full" ] || { "$decode" $words >$full 2>"$err"; [ $? -eq 1 ]; }
$ [ -z "$full" ] || "$decode" $words >"$out" 2>$full
EOF
done

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
$ "$decode" train "$dir/text" -o "$work/t.gguf" $toy <&- >&- 2>&-
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
