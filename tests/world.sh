#!/bin/sh
# world.sh DECODE - the program in a hostile world: limits of the process, files that are no files
# or change while they are read, outputs in odd places, streams that fail, crowded machines. Run
# from the repository's top; the last line counts what passed, failed and could not be tried.
set -u

decode=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-world-XXXXXX")
mounted=
trap '[ -z "$mounted" ] || umount "$mounted"; chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
. tests/checks.sh
work=$dir/work
skipped=0

# --- helpers ------------------------------------------------------------------------------------

skip() {
    skipped=$((skipped + 1))
    echo "skipped: $1"
}

is_line() { [ "$(wc -l <"$1")" -eq 1 ]; }
# No temporary, and nothing else but these names.
holds_only() { [ "$(ls -A "$work" | tr '\n' ' ')" = "$1" ]; }

# An empty folder for outputs.
clear_work() {
    rm -rf "$work"
    mkdir "$work"
}

# expect CODE TEXT COMMAND...: its exit code; without success one line with TEXT on stderr. The
# command may set limits first, so it is not only the program's arguments.
expect() {
    h_code=$1
    h_text=$2
    shift 2
    "$@" >"$out" 2>"$err"
    code=$?
    note "exit $h_code, found $code: $*" is_code "$h_code"
    [ "$h_code" -eq 0 ] && return
    note "one line on stderr: $*" is_line "$err"
    note "message has '$h_text': $*" has "$err" "$h_text"
}

# limited OPTION VALUE ARGS...: the program under that limit of ulimit.
limited() {
    h_option=$1
    h_value=$2
    shift 2
    (ulimit "$h_option" "$h_value" && exec "$decode" "$@")
}

awk 'BEGIN { for (i = 0; i < 200; i++) print "line " i " of a text: " i * i % 97 }' >"$dir/text"
toy="--layers 1 --embd 16 --heads 2 --ctx 32 --batch 2 --steps 4 --eval-every 2 --seed 7 -q"
# Every command that writes a file; @W stands for the folder.
bench="bench $model --kv-heads 8 -n 1 --repeat 1 --warmup 0 --prompt 0 -t 1 -q"
writers="score $model -p abc --logits @W/l.npy|quantize $model -o @W/q.gguf --type q8_0 -q
convert $model -o @W/c.gguf --kv-heads 1 --method mean -q|train $dir/text -o @W/t.gguf $toy
$bench --trace @W/t.csv|$bench --plot @W/p.svg
attend $model -p abc --svg @W/a.svg -q|attend $model -p abc --npy @W/a.npy -q"
writers=$(echo "$writers" | tr '|' '\n' | sed "s#@W/#$work/#g")
# each_writer FUNCTION...: FUNCTION ARGS... for each of them, in an empty folder.
each_writer() {
    h_lines=$writers
    while [ -n "$h_lines" ]; do
        h_line=$(echo "$h_lines" | head -n 1)
        h_lines=$(echo "$h_lines" | tail -n +2)
        clear_work
        "$@" $h_line
    done
}

# ASan reserves terabytes of address space, takes large stack frames and wants threads of its own.
asan=true
(ulimit -v 400000 && "$decode" --version) >"$out" 2>&1 && asan=false

# --- limits -------------------------------------------------------------------------------------

# A size limit fails the write; nothing is left. It is standard error's too, if that is a file.
size_limited() {
    {
        limited -f 0 "$@" 2>&1 >/dev/null
        echo $? >"$dir/code"
    } | cat >&2
    return "$(cat "$dir/code")"
}
size_limit() {
    expect 1 "File too large" size_limited "$@"
    note "a file-size limit leaves nothing: $*" holds_only ""
}
each_writer size_limit

# Five descriptors are enough; fewer are not even for the loader of the C library.
descriptor_limit() {
    limited -n 5 "$@" >"$out" 2>"$err"
    code=$?
    note "five descriptors are enough: exit 0, found $code: $*" is_code 0
}
each_writer descriptor_limit
# Small stacks: 64 KiB hold the program, and its threads have their own.
if $asan; then
    skip "small stacks and little address space: this build needs more (ASan)"
else
    for words in "generate $model -p x -n 3 -t 2" "info $model" \
        "info tests/data/golden/mixed-latent.gguf --format json" \
        "eval $model --text $dir/text --range 0:0.1 -t 2"; do
        expect 0 "" limited -s 64 $words
    done
    expect 4 "memory" limited -v 8000 generate "$model" -p x -n 1
    expect 0 "" limited -v 200000 generate "$model" -p x -n 3 -t 2
    awk 'BEGIN { for (i = 0; i < 40000; i++) print "line", i, "of a long text" }' >"$dir/long"
    expect 4 "fewer --tokens" limited -v 400000 heads "$model" --text "$dir/long" --tokens 2000000
    # A file that claims what it has not: refused for what it is, not for want of memory.
    {
        printf 'GGUF\003\000\000\000\377\377\377\377\377\377\377\177'
        printf '\377\377\377\377\377\377\377\177'
    } >"$dir/huge"
    for command in info "generate -p x" "quantize -o $work/q --type f16"; do
        expect 3 "$dir/huge" limited -v 200000 ${command%% *} "$dir/huge" \
            $(echo "$command " | cut -d ' ' -f 2-)
    done
    # Sparse: two terabytes of zeros, of which nothing may be read or taken.
    if truncate -s 2T "$dir/sparse" 2>/dev/null; then
        expect 4 "cannot map" limited -v 200000 info "$dir/sparse"
        expect 3 "$dir/sparse" "$decode" info "$dir/sparse"
    else
        skip "a sparse file of two terabytes"
    fi
    expect 0 "" limited -s 64 info "$model" --latent 64 --format json
    # Kernels of builds that do not optimise have frames of 32 KiB.
    expect 0 "" limited -s 100 bench "$model" --kv-heads 8 --latent 64 -n 1 --repeat 1 --depth 0 -q
    expect 0 "" limited -s 100 convert "$model" -o "$work/small.gguf" --kv-heads 2 --calib README.md \
        --calib-tokens 512 -q
    clear_work
fi

# Processor time: the soft limit's signal ends the run as Ctrl-C does.
clear_work
long="--layers 1 --embd 16 --heads 2 --ctx 32 --batch 2 --steps 1000000 --seed 7 -q"
(ulimit -S -t 1 && exec "$decode" train "$dir/text" -o "$work/t.gguf" $long) >"$out" 2>"$err"
code=$?
note "processor time is up: exit 130, found $code" is_code 130
note "processor time is up: train has saved" [ -s "$work/t.gguf.state" ]

# --- special files ------------------------------------------------------------------------------

mkfifo "$dir/fifo"
clear_work
for file in "$dir" "$dir/fifo" /dev/zero /dev/null /proc/version /proc/self/mem "$dir/none"; do
    case $file in /proc/*) [ -r "$file" ] || continue ;; esac
    for words in "info" "generate -p x -m" "quantize -o $work/q --type f16" \
        "convert -o $work/c --kv-heads 1" "eval --text $dir/text" \
        "eval $model --text $dir/text --against" "train $dir/text -o $work/t --from" \
        "train $dir/text -o $work/t --teacher" "bench"; do
        expect 3 "$file" "$decode" $words "$file"
    done
done
for words in "generate $model -f" "tokenize $model -f" "score $model -f" "eval $model --text" \
    "convert $model -o $work/c --kv-heads 1 --calib" "convert $model -o $work/c --kv-heads 1 --eval" \
    "generate $model --kv-heads 1 --calib" "train -o $work/t $toy"; do
    expect 3 "Is a directory" "$decode" $words "$dir"
    expect 3 "$dir/none" "$decode" $words "$dir/none"
done
note "refused inputs leave nothing" holds_only ""

# A training text may come through a pipe, as every other text.
expect 0 "" "$decode" train "$dir/text" -o "$work/file.gguf" $toy
cat "$dir/text" >"$dir/fifo" &
expect 0 "" "$decode" train "$dir/fifo" -o "$work/fifo.gguf" $toy
wait $!
"$decode" train - -o "$work/stdin.gguf" $toy <"$dir/text" 2>"$err"
code=$?
note "train -: exit 0, found $code" is_code 0
for name in fifo stdin; do
    note "train from $name: the same file" cmp -s "$work/file.gguf" "$work/$name.gguf"
done

# What waits for a pipe is ended by one Ctrl-C.
for words in "generate $model -f" "train -o $work/t.gguf $toy" "generate $model --kv-heads 1 --calib"; do
    (exec "$decode" $words "$dir/fifo") >"$out" 2>"$err" &
    pid=$!
    sleep 0.3
    kill -TERM $pid
    wait $pid
    code=$?
    note "waiting for a pipe: exit 130, found $code: $words" is_code 130
done

# Names: long ones leave room for the reason, control characters do not reach the terminal.
deep=$(printf '%0300d/' 0 1 2 3 4 5)
expect 3 "cannot open: File name too long" "$decode" info "$deep"
expect 3 "cannot open: File name too long" "$decode" generate "$model" -f "$deep"
odd=$dir/$(printf 'a\033[31m\nb')
expect 3 "a?[31m?b: cannot open" "$decode" info "$odd"
if [ "$(id -u)" -ne 0 ]; then
    cp "$model" "$dir/secret"
    chmod 0 "$dir/secret"
    expect 3 "Permission denied" "$decode" info "$dir/secret"
elif command -v setpriv >/dev/null && chmod 755 "$dir" && cp "$model" "$dir/secret" &&
    chmod 600 "$dir/secret" && cp "$decode" "$dir/decode" &&
    setpriv --reuid=65534 --clear-groups "$dir/decode" --version >"$out" 2>&1; then
    expect 3 "Permission denied" setpriv --reuid=65534 --clear-groups "$dir/decode" info \
        "$dir/secret"
    # The machine has no room for threads: fewer do.
    chmod 644 "$dir/secret"
    $asan || expect 0 "" setpriv --reuid=65534 --clear-groups prlimit --nproc=1 "$dir/decode" generate \
        "$dir/secret" -p x -n 3 -t 2
else
    skip "a file that may not be read: no other user at hand"
fi

# --- files that change while they are read ------------------------------------------------------

# The program holds the checkpoint mapped and waits for the text; then the checkpoint changes.
# changed HOW CODE TEXT
changed() {
    h_how=$1
    h_code=$2
    h_text=$3
    cp "$model" "$dir/m.gguf"
    (exec "$decode" convert "$dir/m.gguf" -o "$work/c.gguf" --kv-heads 1 --calib "$dir/fifo" -q) \
        >"$out" 2>"$err" &
    pid=$!
    # Opening the pipe waits for the reader, who has the checkpoint open by then.
    exec 3>"$dir/fifo"
    $h_how
    cat "$dir/text" >&3
    exec 3>&-
    wait $pid
    code=$?
    note "$h_how: exit $h_code, found $code" is_code "$h_code"
    [ -z "$h_text" ] || note "$h_how: message has '$h_text'" has "$err" "$h_text"
}
cut_short() { : >"$dir/m.gguf"; }
deleted() { rm "$dir/m.gguf"; }
replaced() { cp "$dir/text" "$dir/m.new" && mv "$dir/m.new" "$dir/m.gguf"; }
overwritten() {
    head -c "$(wc -c <"$dir/m.gguf")" /dev/zero | tr '\0' '\377' |
        dd of="$dir/m.gguf" bs=64k conv=notrunc 2>/dev/null
}
clear_work
changed cut_short 3 "a file was cut short"
note "cut short: nothing is written" holds_only ""
clear_work
changed deleted 0 ""
mv "$work/c.gguf" "$dir/whole.gguf"
changed replaced 0 ""
note "a file that was replaced is read as it was" cmp -s "$work/c.gguf" "$dir/whole.gguf"
# Weights of NaN: refused or converted, but the head stays what was checked.
clear_work
: >"$err"
cp "$model" "$dir/m.gguf"
(exec "$decode" generate "$dir/m.gguf" --kv-heads 1 --calib "$dir/fifo" -n 1 -q) >"$out" 2>"$err" &
pid=$!
exec 3>"$dir/fifo"
overwritten
cat "$dir/text" >&3
exec 3>&-
wait $pid
code=$?
note "overwritten: a message, no crash: exit 1 or 3, found $code" [ $code -eq 1 -o $code -eq 3 ]
note "overwritten: one line" is_line "$err"

# --- outputs ------------------------------------------------------------------------------------

# Two outputs, or an output and an input, by other names.
clear_work
ln -s there "$work/link"
expect 2 "both name" "$decode" train "$dir/text" -o "$work/link" --log "$work/there" $toy
expect 2 "both name" "$decode" $bench --plot "$work/link" --trace "$work/./there"
cp "$model" "$work/m.gguf"
ln -s m.gguf "$work/soft"
for words in "quantize $work/soft -o $work/m.gguf --type f16" \
    "convert $work/m.gguf -o $work/./soft --kv-heads 1" \
    "score $work/soft -p x --logits $work/m.gguf" "bench $work/m.gguf --plot $work/soft"; do
    expect 2 "the checkpoint itself" "$decode" $words
done
note "the checkpoint is as it was" cmp -s "$model" "$work/m.gguf"

# A link stays one, its target is made or replaced; permissions are kept.
clear_work
ln -s there "$work/link"
expect 0 "" "$decode" score "$model" -p abc --logits "$work/link" -q
note "a link to nothing makes its target" [ -h "$work/link" -a -s "$work/there" ]
chmod 640 "$work/there"
expect 0 "" "$decode" score "$model" -p abcd --logits "$work/link" -q
note "the link stays" [ -h "$work/link" ]
note "permissions are kept" [ "$(ls -l "$work/there" | cut -c 1-10)" = -rw-r----- ]
note "no temporary is left" holds_only "link there "
ln -s loop "$work/loop"
expect 1 "symbolic links" "$decode" score "$model" -p abc --logits "$work/loop" -q

# What cannot be replaced; OUT.state, too, is found out before the training.
for file in /dev/null /dev/stdout "$dir" "$dir/fifo"; do
    expect 1 "cannot replace it" "$decode" score "$model" -p abc --logits "$file" -q
done
expect 1 "/proc/nothing" "$decode" score "$model" -p abc --logits /proc/nothing -q
clear_work
mkdir "$work/t.gguf.state"
expect 1 "t.gguf.state" "$decode" train "$dir/text" -o "$work/t.gguf" $toy --force
note "no OUT.state, no OUT" holds_only "t.gguf.state "
clear_work
name=$(printf '%0255d' 0)
expect 0 "" "$decode" score "$model" -p abc --logits "$work/$name" -q
note "a name as long as can be" [ -s "$work/$name" ]
clear_work
expect 1 "File name too long" "$decode" train "$dir/text" -o "$work/$name" $toy
note "too long a name for OUT.state leaves nothing" holds_only ""

# A disk that is full indeed.
if [ "$(id -u)" -eq 0 ] && mkdir "$dir/small" &&
    mount -t tmpfs -o size=4k none "$dir/small" 2>/dev/null; then
    mounted=$dir/small
    full_disk() {
        h_at=$(echo "$*" | sed "s#$work/#$dir/small/#g")
        expect 1 "No space left on device" "$decode" $h_at
        note "a full disk keeps what was there: $h_at" \
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
    "$decode" $words 2>"$err" >&-
    code=$?
    note "closed stdout: exit 1, found $code: $words" is_code 1
    "$decode" $words <&- >&- 2>&-
    code=$?
    note "all closed: exit 1, found $code: $words" is_code 1
    "$decode" $words <&- 2>&- >"$out"
    code=$?
    note "only stdout open: exit 0, found $code: $words" is_code 0
    [ -c /dev/full ] || continue
    "$decode" $words >/dev/full 2>"$err"
    code=$?
    note "full disk: exit 1, found $code: $words" is_code 1
    "$decode" $words >"$out" 2>/dev/full
    code=$?
    note "full disk on stderr: exit 0, found $code: $words" is_code 0
done
"$decode" train "$dir/text" -o "$work/t.gguf" $toy <&- >&- 2>&-
code=$?
note "train needs no stream: exit 0, found $code" is_code 0

# A reader that has stopped reading: one signal ends the program, for it waits no longer.
mkfifo "$dir/stuck"
exec 4<>"$dir/stuck"
(exec "$decode" score "$model" -p "$(head -c 250 "$dir/text")" --top 256 --format csv) \
    >"$dir/stuck" 2>"$err" 4<&- &
pid=$!
sleep 1.5
kill -TERM $pid
wait $pid
code=$?
exec 4<&-
note "nobody reads: exit 130, found $code" is_code 130
note "nobody reads is said" has "$err" "nobody read standard output"

# --- load ---------------------------------------------------------------------------------------

# Twelve at once, some with more threads than processors, some kept on one; one of them is stopped
# half of the time, like a group with half a processor.
"$decode" generate "$model" -p ROMEO: -n 100 --seed 7 -q >"$dir/expected"
pids=
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    threads=$((i % 4 * 21 + 1))
    pin=
    [ $((i % 3)) -ne 0 ] || ! command -v taskset >/dev/null || pin="taskset 1"
    (exec $pin "$decode" generate "$model" -p ROMEO: -n 100 --seed 7 -q -t $threads) \
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
    code=$?
    note "twelve at once: exit 0, found $code" is_code 0
    note "twelve at once: the same text" cmp -s "$dir/expected" "$dir/load.$i"
done

echo "world: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
