#!/bin/sh
# many.sh DECODE - runs generate with many prompts and many samples: the forms of prompts, what a line of an
# answer says, prompts that cannot be run, memory; no text that was made is lost. (test_schedule.c tests that
# each text is that of a run of its own.) It is run from the repository's top; its last line counts what passed
# and failed.
. tests/support/checks.sh

sampler="--temp 1.2 --repeat-penalty 1.3 --stop the --stop er"
tokens=20 many_lines=1200
is_sanitized && many_lines=400

# field NAME LINE FILE: prints a number or a literal of a line of JSON.
field() { sed -n "$2s/.*\"$1\": \([^,}]*\).*/\1/p" "$3"; }

# json_text: prints the bytes of standard input as the inside of a JSON string.
json_text() { sed 's/\\/\\\\/g; s/"/\\"/g' | awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }'; }

# --- forms of prompts -----------------------------------------------------------------------------

words="the king is come and what shall be his will to day my lords if not the crown of all \
that France did hold and every man in it then let him speak or be for ever still"
i=0
while [ $i -lt 40 ]; do
    printf '%s\n' "$words $words" | cut -c "$((i + 1))-$((i + 1 + (i * 37) % 150))"
    i=$((i + 1))
done >"$dir/prompts"
prompts="generate $model --prompts $dir/prompts --seed 5 -q"
checks <<'EOF'
0 $prompts -n $tokens --batch 1 -t 1 $sampler | > first | 40 lines
0 $prompts -n $tokens --batch 7 -t 2 $sampler | == first
0 $prompts -n $tokens $sampler | == first
$ [ "$(field seed 1 "$dir/first")" = 5 ]
$ has "$dir/first" '"finish": "stop"'
# Each text is that of a run with its prompt and its seed; the first one's seed is the run's.
0 generate $model -p "$(sed -n 9p "$dir/prompts")" -n $tokens -q $sampler --no-echo
    --seed "$(field seed 9 "$dir/first")"
$ text=$(json_text <"$out")
$ sed -n 9p "$dir/first" | grep -qF "\"text\": \"$text\""

# Prompts may come from a file or from standard input.
0 $prompts -n 9 --greedy | > nine
0 generate $model --prompts - --seed 5 -q -n 9 --greedy <"$dir/prompts" | == nine
# Empty lines are no prompts. With --format text each text follows its prompt.
$ sed G "$dir/prompts" >"$dir/spaced"
0 generate $model --prompts "$dir/spaced" --seed 5 -q -n 9 --greedy | == nine
0 generate $model --prompts "$dir/prompts" --seed 5 -q -n 9 --greedy --format text
$ [ "$(grep -cx -e --- "$out")" -eq 39 ]
0 generate $model -p "$(head -1 "$dir/prompts")" --seed 5 -q -n 9 --greedy | > first_text
$ head -n "$(wc -l <"$dir/first_text")" "$out" | cmp -s - "$dir/first_text"
0 generate $model --prompts /dev/null | 0 bytes
$ printf 'ab' >"$dir/one"
0 generate $model --prompts "$dir/one" -n 3 -v | 2> prompts      1 done, 0 errors; 2 tokens
    | 2> first token | 2> decoded      3 tokens | 2> seed   | 2> peak memory
0 generate $model --prompts "$dir/prompts" -n 3 -v
    | 2> KV cache 12.0 MiB, scratch | 2> other types by --kv-type lower
    | 2> batch        16 sequences | 2> per step
EOF

# --- lines that cannot be run ---------------------------------------------------------------------

printf 'good\nab\377c\n%s\n\nlast' "$(repeat a 300)" >"$dir/bad"
checks <<'EOF'
0 generate $model --prompts "$dir/one" --seed 1 -q -n 0
    | {"index": 0, "prompt": "ab", "text": "", "tokens": [], "n": 0, "finish": "length", "seed": 1, "logprob": 0}
0 generate $model --prompts "$dir/one" --seed 1 -q -n 300 | "n": 255, "finish": "context", "seed": 1
1+ generate $model --prompts "$dir/bad" --seed 5 -n 3 --greedy | 4 lines | > bad.out
    | 2> 1 of 4 prompts could not be run; the output's lines say why | 2> prompts      3 done, 1 error;
    | {"index": 1, "prompt": "ab�c", "text": " | aaa", "error": "line 3: the prompt has 300 tokens, the context only 256: shorten the prompt or --truncate it"}
    | {"index": 3, "prompt": "last", "text": "
1+ generate $model --prompts "$dir/bad" --seed 5 -n 3 --greedy --batch $batch | == bad.out
    | for batch in 1 3
1+ generate $model --prompts "$dir/bad" -n 3 -c 100 | only 100: shorten the prompt, raise -c
1+ generate $model --prompts "$dir/bad" --seed 5 -n 3 --greedy --format text -q
    | 2> line 3: the prompt has 300 tokens | good | last
3 generate $model --prompts "$dir/missing" -n 3 | $dir/missing: cannot open
3 generate $model --prompts "$dir" -n 3 | $dir
3 generate $model --prompts - -n 3 <&- | standard input

2 generate $model --prompts "$dir/one" $other | ${other%% *} and --prompts are both given
    | for other in "--prompt x" "--file y" "--samples 2"
2 generate $model -p x --batch 2 | --batch is for --prompts or --samples, none of which is given
2 generate $model --samples 2 --batch $n | --batch: expected auto or an integer from 1 to | for n in 0 x
EOF

# The prompt of samples is fed once; their texts do not depend on the batch.
checks <<'EOF'
0 generate $model -p "What is" --seed 3 --samples 9 -n 30 --stop the --batch 1 | > samples | 2> prompt       7 tokens
0 generate $model -p "What is" --seed 3 --samples 9 -n 30 --stop the -t 2 | == samples | 2> prompt       7 tokens
EOF

# --- logits that are not finite -------------------------------------------------------------------

# The embedding of token X is NaN. A prompt that has it gets a line with an error, and the others are as they
# were. Samples of such a prompt fail with nothing printed; a single text ends its line.
cp $golden/gqa.gguf "$dir/nan.gguf"
at=$("$decode" info $golden/gqa.gguf --tensors --format csv | sed -n 's/^token_embd\.weight,.*,\([0-9]*\)$/\1/p')
printf '\377\377\377\377' | dd of="$dir/nan.gguf" bs=1 seek=$((at + 88 * 4 * 48)) conv=notrunc 2>/dev/null
printf 'ab\ncd\nX\nef\n' >"$dir/four"
four="-n 3 --greedy --batch 3 --seed 1 -q"
checks <<'EOF'
0 generate $golden/gqa.gguf --prompts "$dir/four" $four
$ sed '3s/.*/an error/' "$out" >"$dir/good"
1+ generate "$dir/nan.gguf" --prompts "$dir/four" $four
    | {"index": 2, "prompt": "X", "error": "line 3:  | nan.gguf: the logit of token 0 is
$ sed '3s/.*/an error/' "$out" | cmp -s - "$dir/good"
1 generate "$dir/nan.gguf" -p aX --samples 4 -q -n 3 --seed 1 | the logit of token 0 is
1+ generate "$dir/nan.gguf" -p aX -q -n 3 --seed 1 | = aX
EOF

# --- memory ---------------------------------------------------------------------------------------

# Memory for lines, of which some cannot be run, does not grow with their number, but for the file's own bytes.
# peak_of N: prints the peak for N lines in tenths of a MiB.
peak_of() {
    awk -v n=$1 'BEGIN { for (i = 0; i < n; i++) print i % 5 ? i % 10 : "0123456789" }' >"$dir/mixed"
    run generate $golden/gqa.gguf --prompts "$dir/mixed" -n 1 -c 8 -t 1 --batch 16
    sed -n 's/^peak memory *\([0-9]*\)\.\([0-9]\).*/\1\2/p' "$err"
}
is_sanitized || note "memory is bounded" [ "$(peak_of 100000)" -lt $(($(peak_of 300) + 20)) ]

# --- interrupts, closed pipes ---------------------------------------------------------------------

awk -v n=$many_lines 'BEGIN { for (i = 0; i < n; i++) print "line " i " of many" }' >"$dir/lines"
check "0 generate $model --prompts $dir/lines --seed 5 -n 20 --batch 16 -q | > all | $many_lines lines"
start generate $model --prompts "$dir/lines" --seed 5 -n 20 --batch 7
await [ -s "$out" ]
end_by INT $pid
checks <<'EOF'
130+ | 2> of $many_lines prompts
$ [ -z "$(grep -vxF -f "$dir/all" "$out")" ]
$ [ -z "$(sed 's/.*"index": \([0-9]*\),.*/\1/' "$out" | sort -n -c 2>&1)" ]
EOF
{ "$decode" generate "$model" --prompts "$dir/lines" -n 5 2>"$err"; echo $? >"$dir/code"; } | head -c 1 >"$out"
note "closed pipe: ended by SIGPIPE" [ "$(cat "$dir/code")" = 141 ]
finish
