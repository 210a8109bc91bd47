#!/bin/sh
# many.sh DECODE - generate with many prompts and many samples, end to end: the forms of prompts, what a
# line of an answer says, lines that cannot be run; nothing made is lost. (That every text is what it is
# alone: test_schedule.c.) Run from the repository's top; the last line counts what passed and failed.
. tests/checks.sh

sampler="--temp 1.2 --repeat-penalty 1.3 --stop the --stop er"
tokens=20 many_lines=1200
is_sanitized && many_lines=400

# field NAME LINE FILE: a number's or literal's text in a line of JSON.
field() { sed -n "$2s/.*\"$1\": \([^,}]*\).*/\1/p" "$3"; }

# json_text: the bytes of standard input as the inside of a JSON string.
json_text() { sed 's/\\/\\\\/g; s/"/\\"/g' | awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }'; }

# --- forms of prompts, whatever shares their steps ------------------------------------------------

words="the king is come and what shall be his will to day my lords if not the crown of all \
that France did hold and every man in it then let him speak or be for ever still"
i=0
while [ $i -lt 40 ]; do
    printf '%s\n' "$words $words" | cut -c "$((i + 1))-$((i + (i * 37) % 150))" 2>/dev/null || echo
    i=$((i + 1))
done >"$dir/prompts"
prompts="generate $model --prompts $dir/prompts --seed 5 -q"
checks <<'EOF'
0 $prompts -n $tokens --batch 1 -t 1 $sampler | > first | 40 lines
0 $prompts -n $tokens --batch 7 -t 2 $sampler | == first
0 $prompts -n $tokens $sampler | == first
# The log-probability is the sum of the tokens', which are the records'.
$ [ "$(field seed 1 "$dir/first")" = 5 ]
$ has "$dir/first" '"finish": "stop"'
0 generate $model -p "$(sed -n 9p "$dir/prompts")" --logprobs 1 -n $tokens -q $sampler
    --seed "$(field seed 9 "$dir/first")"
$ sum=$(sed 's/.*"logprob": \([^,]*\), "top".*/\1/' "$out" | awk '{ s += $1 } END { printf "%.9f", s }')
$ [ "$sum" = "$(printf '%.9f' "$(field logprob 9 "$dir/first")")" ]
$ ids=$(sed 's/.*"position": [0-9]*, "id": \([0-9]*\).*/\1, /' "$out" | tr -d '\n')
$ has "$dir/first" "\"tokens\": [${ids%, }]"

# Ways to give them.
0 $prompts -n 9 --greedy | > nine
0 generate $model --prompts - --seed 5 -q -n 9 --greedy <"$dir/prompts" | == nine
$ sed 's/.*/{"prompt": "&", "id": "x&"}/' "$dir/prompts" | sort -u >"$dir/prompts.jsonl"
$ n=$(wc -l <"$dir/prompts.jsonl")
0 generate $model --prompts "$dir/prompts.jsonl" --seed 5 -q -n 9 --greedy | > objects | $n lines
$ [ "$(grep -c '"id": "x' "$out")" -eq $n ]
0 generate $model --prompts - --prompts-format jsonl --seed 5 -q -n 9 --greedy <"$dir/prompts.jsonl"
    | == objects
1+ generate $model --prompts "$dir/prompts.jsonl" --prompts-format lines -q -n 1
    | "prompt": "{\"prompt\"
0 generate $model --prompts /dev/null | 0 bytes
$ printf 'ab' >"$dir/one"
0 generate $model --prompts "$dir/one" -n 3 -v | 2> prompts      1 done, 0 errors; 2 tokens
    | 2> first token | 2> decoded      3 tokens | 2> seed   | 2> peak memory
0 generate $model --prompts "$dir/prompts" -n 3 -v | 2> batch: 16 sequences; --batch N changes it
    | 2> KV cache 12.0 MiB (16 sequences of 256 tokens | 2> --batch N, -c N and --kv-type f16 lower
    | 2> batch        16 sequences | 2> per step
EOF

# --- an object's own n, seed and stop -------------------------------------------------------------

cat >"$dir/own.jsonl" <<'END'
{"prompt": "ROMEO:", "n": 0}
{"prompt": "ROMEO:", "n": 300, "id": 7, "seed": 99}
{"prompt": "ROMEO:", "stop": ["\n"], "seed": 99}
{"prompt": "ROMEO:", "stop": "e", "seed": 99, "n": 50}
{"prompt": "a\nb\"c\\d\u00e9", "n": 1}
END
cat >"$dir/bad.jsonl" <<'END'
{"id": "a", "prompt": "x"}
{"id": "a", "prompt": "y"}

{"id": "b", "prompt": 5}
{"id": "c", "prompt": "z", "temp": 1}
{"id": "d", "prompt": "z"}
END
printf 'good\nab\377c\n%s\n\nlast' "$(repeat a 300)" >"$dir/bad"
checks <<'EOF'
0 generate $model --prompts "$dir/own.jsonl" --seed 1 -q -n 20 | > own
    | "text": "", "tokens": [], "n": 0, "finish": "length", "seed": 1, "logprob": 0}
    | {"index": 1, "id": 7, "prompt": "ROMEO:" | "prompt": "a\nb\"c\\dé"
$ sed -n 2p "$out" | grep -q '"n": 251, "finish": "context", "seed": 99'
$ text=$("$decode" generate $model -p ROMEO: --seed 99 -n 300 --no-echo -q | json_text)
$ sed -n 2p "$out" | grep -qF "\"text\": \"$text\""
$ text=$("$decode" generate $model -p ROMEO: --seed 99 -n 50 --no-echo -q --stop e | json_text)
$ sed -n 4p "$out" | grep -F "\"text\": \"$text\"" | grep -qF '"finish": "stop"'

# What cannot be run.
1+ generate $model --prompts "$dir/bad" --seed 5 -n 3 --greedy | 5 lines | > bad.out
    | 2> 2 of 5 prompts could not be run; their lines say why | 2> prompts      3 done, 2 errors
    | {"index": 1, "id": null, "error": "line 2: byte 2: expected UTF-8, found 0xff"}
    | aaa", "error": "line 3: the prompt has 300 tokens, the context only 256: shorten the prompt or --truncate it"}
    | {"index": 3, "id": null, "prompt": "", "text": "
    | {"index": 4, "id": null, "prompt": "last", "text": "
1+ generate $model --prompts "$dir/bad" --seed 5 -n 3 --greedy --batch $batch | == bad.out
    | for batch in 1 3
1+ generate $model --prompts "$dir/bad" -n 3 -c 100 | only 100: shorten the prompt, raise -c
1+ generate $model --prompts "$dir/bad.jsonl" -n 3 | 6 lines
    | "id": "a", "prompt": "y", "text"
    | {"index": 2, "id": null, "error": "line 3: JSON at byte 0
    | {"index": 3, "id": "b", "error": "line 4: \"prompt\" at byte
    | expected one of the keys id, prompt, n, seed, stop | {"index": 5, "id": "d", "prompt": "z", "text"
3 generate $model --prompts "$dir/missing" -n 3 | $dir/missing: cannot open
3 generate $model --prompts "$dir" -n 3 | $dir
3 generate $model --prompts - -n 3 <&- | standard input

2 generate $model --prompts "$dir/one" $other | ${other%% *} and --prompts are both given
    | for other in "--prompt x" "--file y" "--samples 2" "--logprobs 2" --no-echo
2 generate $model -p x --batch 2 | --batch is for --prompts, which is not given
2 generate $model --samples 2 --batch $n | --batch: expected auto or an integer from 1 to | for n in 0 x
2 generate $model --prompts-format jsonl | --prompts
2 generate $model --prompts "$dir/one" --prompts-format csv | expected one of auto, lines, jsonl
EOF

# --- samples --------------------------------------------------------------------------------------

# All replay, whatever the batch.
checks <<'EOF'
0 generate $model -p "What is" --seed 3 --samples 9 -n 30 --stop the --no-echo --batch 1 -q | > samples
0 generate $model -p "What is" --seed 3 --samples 9 -n 30 --stop the --no-echo -t 2 -q | == samples
0 generate $model -p "What is" --seed 3 --samples 9 -n 12 --logprobs 2 --batch 1 -q | > samples
0 generate $model -p "What is" --seed 3 --samples 9 -n 12 --logprobs 2 -t 2 -q | == samples
0 generate $model -p "What is" --samples 20 -n 30 | 2> prompt       7 tokens
EOF

# --- interrupts, closed pipes --------------------------------------------------------------------

awk -v n=$many_lines 'BEGIN { for (i = 0; i < n; i++) print "line " i " of many" }' >"$dir/lines"
check "0 generate $model --prompts $dir/lines --seed 5 -n 20 --batch 16 -q | > all | $many_lines lines"
start generate $model --prompts "$dir/lines" --seed 5 -n 20 --batch 7
await [ -s "$out" ]
end_by INT $pid
checks <<'EOF'
130+ | 2> interrupted after
$ [ -z "$(grep -vxF -f "$dir/all" "$out")" ]
$ [ -z "$(sed 's/.*"index": \([0-9]*\),.*/\1/' "$out" | sort -n -c 2>&1)" ]
EOF
# A line that never ends: the one before it comes out, and a signal is obeyed.
: >"$out"
{ echo one && exec tr '\0' a </dev/zero; } |
    "$decode" generate "$model" --prompts - --seed 5 -n 20 >"$out" 2>"$err" &
pid=$!
await [ -s "$out" ]
kill -INT $pid
await eval '! kill -0 $pid 2>/dev/null'
end_by KILL $pid 2>/dev/null
check "130+ | 2> interrupted after 1 prompt | 1 lines"
{ "$decode" generate "$model" --prompts "$dir/lines" -n 5 2>"$err"; echo $? >"$dir/code"; } | head -c 1 >"$out"
note "closed pipe: ended by SIGPIPE" [ "$(cat "$dir/code")" = 141 ]
finish
