#!/bin/sh
# many.sh DECODE - generate with many prompts and many samples, end to end: every text is what it is
# alone, whatever shares its steps; what cannot be run is a line with an error; nothing made is lost.
# Run from the repository's top; the last line counts what passed and failed.
set -u

decode=$1
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-many-XXXXXX")
trap 'rm -rf "$dir"' EXIT
. tests/checks.sh

# Tokens of each text, what they are made with, how many lines a long run has: less where a sanitizer
# makes each of them slow.
tokens=40 batches='1 2 7 16' all_threads='1 2 3' first_sampler='--greedy --kv-type f16'
sample_batches='2 7 16 auto' many_lines=1200
case $decode in
*/asan/* | */tsan/*)
    tokens=20 batches='2 16' all_threads=2 first_sampler= sample_batches='7 auto' many_lines=400
    ;;
esac

lines() { wc -l <"$1"; }

# field NAME LINE FILE: a number's or literal's text in a line of JSON.
field() { sed -n "$2s/.*\"$1\": \([^,}]*\).*/\1/p" "$3"; }

# json_text FILE: the file's bytes as the inside of a JSON string.
json_text() { sed 's/\\/\\\\/g; s/"/\\"/g' "$1" | awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }'; }

# --- every text is what it is alone --------------------------------------------------------------

words="the king is come and what shall be his will to day my lords if not the crown of all \
that France did hold and every man in it then let him speak or be for ever still"
i=0
while [ $i -lt 40 ]; do
    printf '%s\n' "$words $words" | cut -c "$((i + 1))-$((i + (i * 37) % 150))" 2>/dev/null || echo
    i=$((i + 1))
done >"$dir/prompts"
note "40 prompts" [ "$(lines "$dir/prompts")" -eq 40 ]

# alone SAMPLER...: each prompt by itself with its seed, against the lines in $dir/first.
alone() {
    m_line=1
    m_bad=
    while IFS= read -r prompt; do
        seed=$(field seed $m_line "$dir/first")
        "$decode" generate "$model" -p "$prompt" --seed "$seed" --no-echo -q -n $tokens "$@" \
            >"$dir/text" || m_bad="$m_bad $m_line"
        m_text=$(json_text "$dir/text")
        sed -n "${m_line}p" "$dir/first" >"$dir/line"
        has "$dir/line" "\"text\": \"$m_text\", \"tokens\"" || m_bad="$m_bad $m_line"
        m_line=$((m_line + 1))
    done <"$dir/prompts"
    note "each is what it is alone ($*): not lines$m_bad" [ -z "$m_bad" ]
}

for sampler in "$first_sampler" "--temp 1.2 --repeat-penalty 1.3 --stop the --stop er"; do
    [ -n "$sampler" ] || continue
    run generate "$model" --prompts "$dir/prompts" --seed 5 -q -n $tokens --batch 1 -t 1 $sampler
    note "exit 0: $sampler" is_code 0
    note "a line a prompt: $sampler" [ "$(lines "$out")" -eq 40 ]
    cp "$out" "$dir/first"
    alone $sampler
    for batch in $batches; do
        for threads in $all_threads; do
            run generate "$model" --prompts "$dir/prompts" --seed 5 -q -n $tokens --batch $batch \
                -t $threads $sampler
            note "the same with --batch $batch -t $threads $sampler" cmp -s "$out" "$dir/first"
        done
    done
    run generate "$model" --prompts "$dir/prompts" --seed 5 -q -n $tokens --batch 5 --block 3 $sampler
    note "the same with --block 3 $sampler" cmp -s "$out" "$dir/first"
done
note "the first prompt has the seed itself" [ "$(field seed 1 "$dir/first")" = 5 ]
note "some end with a stop string" has "$dir/first" '"finish": "stop"'

# The log-probability is the sum of the tokens'.
"$decode" generate "$model" -p "$(sed -n 9p "$dir/prompts")" --logprobs 1 -n $tokens -q --temp 1.2 \
    --repeat-penalty 1.3 --stop the --stop er --seed "$(field seed 9 "$dir/first")" >"$dir/records"
sum=$(sed 's/.*"logprob": \([^,]*\), "top".*/\1/' "$dir/records" |
    awk '{ s += $1 } END { printf "%.9f", s }')
note "logprob is the sum of the tokens'" [ "$sum" = "$(printf '%.9f' "$(field logprob 9 "$dir/first")")" ]
note "tokens are the records' ids" has "$dir/first" \
    "\"tokens\": [$(sed 's/.*"position": [0-9]*, "id": \([0-9]*\).*/\1/' "$dir/records" |
        awk 'NR > 1 { printf ", " } { printf "%s", $1 }')]"

# Ways to give them.
run generate "$model" --prompts "$dir/prompts" --seed 5 -q -n 9 --greedy
cp "$out" "$dir/nine"
"$decode" generate "$model" --prompts - --seed 5 -q -n 9 --greedy <"$dir/prompts" >"$out" 2>"$err"
note "from standard input" cmp -s "$out" "$dir/nine"
{ head -3 "$dir/prompts"; sleep 0.3; tail -n +4 "$dir/prompts"; } |
    "$decode" generate "$model" --prompts - --seed 5 -q -n 9 --greedy >"$out" 2>"$err"
note "from a slow pipe" cmp -s "$out" "$dir/nine"
sed 's/$/\r/' "$dir/prompts" | "$decode" generate "$model" --prompts - --seed 5 -q -n 9 --greedy \
    >"$out" 2>"$err"
note "with carriage returns" cmp -s "$out" "$dir/nine"
sed 's/.*/{"prompt": "&", "id": "x&"}/' "$dir/prompts" | sort -u >"$dir/prompts.jsonl"
run generate "$model" --prompts "$dir/prompts.jsonl" --seed 5 -q -n 9 --greedy
note "as objects: exit 0" is_code 0
note "as objects: a line each" [ "$(lines "$out")" -eq "$(lines "$dir/prompts.jsonl")" ]
note "the id comes back" [ "$(grep -c '"id": "x' "$out")" -eq "$(lines "$dir/prompts.jsonl")" ]
cp "$out" "$dir/objects"
"$decode" generate "$model" --prompts - --prompts-format jsonl --seed 5 -q -n 9 --greedy \
    <"$dir/prompts.jsonl" >"$out" 2>"$err"
note "--prompts-format jsonl" cmp -s "$out" "$dir/objects"
run generate "$model" --prompts "$dir/prompts.jsonl" --prompts-format lines -q -n 1
note "--prompts-format lines" has "$out" '"prompt": "{\"prompt\"'
run generate "$model" --prompts /dev/null
note "no prompts: exit 0" is_code 0
note "no prompts: no lines" [ ! -s "$out" ]
printf 'ab' >"$dir/one"
run generate "$model" --prompts "$dir/one" -n 3 -v
for word in "prompts      1 done, 0 errors; 2 tokens" "first token" "decoded      3 tokens" \
    "seed  " "peak memory"; do
    note "summary has $word" has "$err" "$word"
done
run generate "$model" --prompts "$dir/prompts" -n 3 -v
for word in "batch: 16 sequences; --batch N changes it" "KV cache 16.0 MiB (16 sequences of 256 tokens" \
    "--batch N, -c N and --kv-type f16 lower" "batch        16 sequences" "per step"; do
    note "-v has $word" has "$err" "$word"
done

# --- an object's own n, seed and stop -------------------------------------------------------------

cat >"$dir/own.jsonl" <<'END'
{"prompt": "ROMEO:", "n": 0}
{"prompt": "ROMEO:", "n": 300, "id": 7, "seed": 99}
{"prompt": "ROMEO:", "stop": ["\n"], "seed": 99}
{"prompt": "ROMEO:", "stop": "ma", "seed": 99, "n": 50}
{"prompt": "a\nb\"c\\d\u00e9", "n": 1}
END
run generate "$model" --prompts "$dir/own.jsonl" --seed 1 -q -n 20
note "own values: exit 0" is_code 0
note "n 0 makes none" has "$out" '"text": "", "tokens": [], "n": 0, "finish": "length", "seed": 1, "logprob": 0}'
note "n too large ends with the context" [ "$(sed -n 2p "$out" | grep -c '"n": 251, "finish": "context", "seed": 99')" -eq 1 ]
note "a number is an id" has "$out" '{"index": 1, "id": 7, "prompt": "ROMEO:"'
"$decode" generate "$model" -p ROMEO: --seed 99 -n 300 --no-echo -q >"$dir/text"
sed -n 2p "$out" >"$dir/line"
note "own seed" has "$dir/line" "\"text\": \"$(json_text "$dir/text")\""
"$decode" generate "$model" -p ROMEO: --seed 99 -n 50 --no-echo -q --stop ma >"$dir/text"
sed -n 4p "$out" >"$dir/line"
note "own stop" has "$dir/line" "\"text\": \"$(json_text "$dir/text")\""
note "own stop is why" has "$dir/line" '"finish": "stop"'
note "text comes back escaped" has "$out" '"prompt": "a\nb\"c\\dé"'

# --- what cannot be run ---------------------------------------------------------------------------

{
    printf 'good\nab\377c\n'
    head -c 300 /dev/zero | tr '\0' a
    printf '\n\nlast'
} >"$dir/bad"
run generate "$model" --prompts "$dir/bad" --seed 5 -n 3 --greedy
note "bad lines: exit 1" is_code 1
note "bad lines: all are there" [ "$(lines "$out")" -eq 5 ]
note "bad lines are counted" has "$err" "2 of 5 prompts could not be run; their lines say why"
note "bad lines: the summary, too" has "$err" "prompts      3 done, 2 errors"
note "not UTF-8" has "$out" '{"index": 1, "id": null, "error": "line 2: byte 2: expected UTF-8, found 0xff"}'
note "too long" has "$out" 'aaa", "error": "line 3: the prompt has 300 tokens, the context only 256: shorten the prompt, or cut it with --truncate"}'
note "an empty line starts from nothing" has "$out" '{"index": 3, "id": null, "prompt": "", "text": "'
note "the last line needs no newline" has "$out" '{"index": 4, "id": null, "prompt": "last", "text": "'
cp "$out" "$dir/bad.out"
for batch in 1 3; do
    run generate "$model" --prompts "$dir/bad" --seed 5 -n 3 --greedy --batch $batch
    note "bad lines, --batch $batch" cmp -s "$out" "$dir/bad.out"
done
run generate "$model" --prompts "$dir/bad" -n 3 -c 100
note "a shorter context can be raised" has "$out" 'the context only 100: shorten the prompt or raise -c'
cat >"$dir/bad.jsonl" <<'END'
{"id": "a", "prompt": "x"}
{"id": "a", "prompt": "y"}

{"id": "b", "prompt": 5}
{"id": "c", "prompt": "z", "temp": 1}
{"id": "d", "prompt": "z"}
END
run generate "$model" --prompts "$dir/bad.jsonl" -n 3
note "bad objects: exit 1" is_code 1
note "bad objects: all are there" [ "$(lines "$out")" -eq 6 ]
note "an id again" has "$out" '"id": "a", "prompt": "y", "text"'
note "an empty line" has "$out" '{"index": 2, "id": null, "error": "line 3: JSON at byte 0'
note "a wrong type" has "$out" '{"index": 3, "id": "b", "error": "line 4: \"prompt\" at byte'
note "an unknown key" has "$out" 'expected one of the keys id, prompt, n, seed, stop'
note "the last one runs" has "$out" '{"index": 5, "id": "d", "prompt": "z", "text"'
printf '{"prompt": "x", "id": 12345678901234567890123, "n": null, "seed": null}\n' |
    "$decode" generate "$model" --prompts - --prompts-format jsonl -n 1 >"$out" 2>"$err"
note "a large id comes back as it is" has "$out" '{"index": 0, "id": 12345678901234567890123, "prompt": "x", "text"'
"$decode" generate "$model" --prompts - --prompts-format jsonl -n 1 >"$out" 2>"$err" <<'END'
{"prompt": "x", "id": null, "stop": null}
END
note "a null id is none" has "$out" '{"index": 0, "id": null, "prompt": "x", "text"'
run generate "$model" --prompts "$dir/missing" -n 3
note "no file: exit 3" is_code 3
note "no file is named" has "$err" "$dir/missing: cannot open"
run generate "$model" --prompts "$dir" -n 3
note "a folder: exit 3" is_code 3
"$decode" generate "$model" --prompts - -n 3 <&- >"$out" 2>"$err"
note "closed standard input: exit 3" [ $? -eq 3 ]

expect_error 2 "--prompt and --prompts are both given" generate "$model" --prompts "$dir/one" -p x
expect_error 2 "--file and --prompts are both given" generate "$model" --prompts "$dir/one" -f "$dir/one"
expect_error 2 "--samples and --prompts are both given" generate "$model" --prompts "$dir/one" --samples 2
expect_error 2 "--logprobs and --prompts are both given" generate "$model" --prompts "$dir/one" --logprobs 2
expect_error 2 "--no-echo and --prompts are both given" generate "$model" --prompts "$dir/one" --no-echo
expect_error 2 "--batch is for many sequences" generate "$model" -p x --batch 2
expect_error 2 "--batch: expected auto or an integer from 1 to" generate "$model" --samples 2 --batch 0
expect_error 2 "--batch: expected auto or an integer from 1 to" generate "$model" --samples 2 --batch x
expect_error 2 "--prompts" generate "$model" --prompts-format jsonl
expect_error 2 "expected one of auto, lines, jsonl" generate "$model" --prompts "$dir/one" \
    --prompts-format csv

# --- samples --------------------------------------------------------------------------------------

# Each sample alone is what --samples of one would have made last; the first is the run without.
for options in "-n 30" "-n 30 --stop the --no-echo" "-n 12 --logprobs 2" "-n 0" "-n 300 -c 40"; do
    run generate "$model" -p "What is" --seed 3 --samples 20 --batch 1 -q $options
    cp "$out" "$dir/samples"
    note "samples: exit 0: $options" is_code 0
    for batch in $sample_batches; do
        run generate "$model" -p "What is" --seed 3 --samples 20 --batch $batch -t 2 -q $options
        note "samples, --batch $batch $options" cmp -s "$out" "$dir/samples"
    done
done
run generate "$model" -p "$(head -c 256 /dev/zero | tr '\0' a)" --seed 3 --samples 5 -q
cp "$out" "$dir/samples"
run generate "$model" -p "$(head -c 256 /dev/zero | tr '\0' a)" --seed 3 --samples 5 -q --batch 1
note "samples of a full context" cmp -s "$out" "$dir/samples"
run generate "$model" -p "What is" --samples 20 -n 30
note "the prompt is taken once" has "$err" "prompt       7 tokens"

# --- interrupts, full disks, closed pipes ---------------------------------------------------------

i=0
while [ $i -lt $many_lines ]; do
    echo "line $i of many"
    i=$((i + 1))
done >"$dir/lines"
run generate "$model" --prompts "$dir/lines" --seed 5 -n 20 --batch 16 -q
cp "$out" "$dir/all"
note "$many_lines lines" [ "$(lines "$out")" -eq $many_lines ]
for signal in INT TERM; do
    : >"$out"
    "$decode" generate "$model" --prompts "$dir/lines" --seed 5 -n 20 --batch 7 >"$out" 2>"$err" &
    pid=$!
    await [ -s "$out" ]
    end_by $signal $pid
    note "SIG$signal: exit 130" is_code 130
    note "SIG$signal: summary" has "$err" "interrupted after"
    grep -vxF -f "$dir/all" "$out" >"$dir/other"
    note "SIG$signal: only whole lines" [ ! -s "$dir/other" ]
    note "SIG$signal: in order" [ "$(sed 's/.*"index": \([0-9]*\),.*/\1/' "$out" | sort -n -c 2>&1)" = "" ]
done
# A line that never ends: the one before it comes out, and a signal is obeyed.
: >"$out"
{ echo one && exec tr '\0' a </dev/zero; } |
    "$decode" generate "$model" --prompts - --seed 5 -n 20 >"$out" 2>"$err" &
pid=$!
await [ -s "$out" ]
kill -INT $pid
await eval '! kill -0 $pid 2>/dev/null'
kill -KILL $pid 2>/dev/null
wait $pid
code=$?
note "endless line: exit 130" is_code 130
note "endless line: summary" has "$err" "interrupted after 1 prompt"
note "endless line: the one before" [ "$(lines "$out")" -eq 1 ]
if [ -c /dev/full ]; then
    "$decode" generate "$model" --prompts "$dir/lines" -n 5 >/dev/full 2>"$err"
    note "full disk: exit 1" [ $? -eq 1 ]
    note "full disk is said" has "$err" "cannot write to standard output"
fi
{ "$decode" generate "$model" --prompts "$dir/lines" -n 5 2>"$err"; echo $? >"$dir/code"; } | head -c 1 >"$out"
note "closed pipe: ended by SIGPIPE" [ "$(cat "$dir/code")" = 141 ]
(
    ulimit -f 4
    "$decode" generate "$model" --prompts "$dir/lines" --seed 5 -n 20 -q >"$dir/cut" 2>"$err"
)
note "file size limit: exit 1" [ $? -eq 1 ]
size=$(wc -c <"$dir/cut")
head -c "$size" "$dir/all" >"$dir/start"
note "what is out stays" cmp -s "$dir/cut" "$dir/start"

echo "many: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
