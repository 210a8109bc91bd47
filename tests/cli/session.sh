#!/bin/sh
# session.sh DECODE - runs generate -i over pipes. (test_interrupts.c and test_terminal.c interrupt sessions.)
# It is run from the repository's top; its last line counts what passed and failed.
. tests/support/checks.sh

# session LINES ARGS...: runs a session that reads these lines; printf's escapes are allowed in them.
session() {
    h_lines=$1
    shift
    printf "$h_lines" | "$decode" generate "$model" -i "$@" >"$out" 2>"$err"
    code=$?
}
g="generate $model"

{
    repeat a 17000000
    printf '\nx\n'
} >"$dir/long"
for how in "" "--kv-type q8_0" "--kv-heads 2" "--repeat-penalty 1.2 -t 2"; do
    checks <<'EOF'
0 $g -p "What is" -n 200 --seed 7 -q --no-echo $how
$ tr -d '\n' <"$out" >"$dir/alone"
$ session 'What is\n\n' -n 100 --seed 7 -q $how
$ [ "$(tr -d '\n' <"$out" | cksum)" = "$(cksum <"$dir/alone")" ]
EOF
done
checks <<'EOF'
0 $g -p "What is" -n 12 --seed 7 -q --no-echo | > alone
$ session 'What is\n' -n 12 --seed 7 -q
0 | == alone
2 $g -i -n 12 --seed 7 -q <"$dir/long" | a line has more than 16777216 bytes
0 $g -p /x -n 12 --seed 7 -q --no-echo | > alone
$ session '/x' -n 12 --seed 7 -q
0 | == alone
$ session '/x\r\n' -n 12 --seed 7 -q
0 | == alone
$ session "$(repeat a 300)\n" -n 3 -q
0 | 2> the text has 0 tokens, the context 256: no room for 300 more

$ session '' -n 3
0 | 0 lines | 2> decoded      0 tokens
3 $g -i <&- | standard input: cannot read
$ session 'a\n\n' -n 100 -c 64 --seed 1
0 | 2> shifts       
$ session "a\n$(repeat b 250)\n$(repeat c 240)\n" -n 9 --seed 1 -q
0 | 2> no room for 250 more; shorten what is added | 2! 240
$ session 'a\nb\nc\n' -n 100 -c 64 --seed 1 -q
0 | > answers
$ session 'a\nb\nc\n' -n 100 -c 64 --seed 1 --shift -q
0 | quiet | == answers
$ session 'b\n' -n 5 -p a --seed 1 -q
$ [ "$(head -c 1 "$out")" = a ]
# The cache begins with 128 positions and grows to the context. There a session's text shifts as that of a run
# without -i does.
0 $g -p a -n 300 --shift --seed 1 -q --no-echo | > alone
$ tr -d '\n' <"$dir/alone" >"$dir/joined"
$ session 'a\n\n\n' -n 100 --seed 1 -v
0 | 2> KV cache 384 KiB that may grow to 768 KiB | 2> shifts       1,
$ [ "$(tr -d '\n' <"$out" | cksum)" = "$(cksum <"$dir/joined")" ]
$ session 'a\n' -n 3 -c 100 -v
0 | 2! may grow
2 $g -i --prompts "$dir/more" | --prompts and --interactive are both given
2 $g -i --samples 3 | --samples and --interactive are both given

# The model may end a text itself. Here its end-of-text token is a line feed.
$ cp "$model" "$dir/m.gguf"
$ at=$(grep -abo tokenizer.ggml.eos_token_id $model | cut -d : -f 1)
$ printf '\012' | dd of="$dir/m.gguf" bs=1 seek=$((at + 31)) conv=notrunc 2>/dev/null
0 generate "$dir/m.gguf" -p "ROMEO: I" -n 200 --seed 3 | 2> end of text
$ printf 'ROMEO: I\n to\n' | "$decode" generate "$dir/m.gguf" -i -n 200 --seed 3 >"$out" 2>"$err"; code=$?
0 | 2 lines | 2> end of text
EOF
finish
