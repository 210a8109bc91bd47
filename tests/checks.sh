# checks.sh - what the scripts of tests/ share; they source it with $dir set to a folder of their own.
# Helpers' own variables begin with h_, so that they spare the loops'.

model=tests/data/shakespeare-bytes.gguf
out=$dir/out
err=$dir/err
passed=0
failed=0
unset DECODE_THREADS DECODE_ISA
exec </dev/null # what is piped in would be a prompt

# note NAME CONDITION...: counts one check and prints it if it fails.
note() {
    h_name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $h_name"
        sed 's/^/    stderr: /' "$err" 2>/dev/null | head -5
    fi
}

is_code() { [ "$code" -eq "$1" ]; }
has() { grep -qF -e "$2" "$1"; }
lacks() { ! grep -qF -e "$2" "$1"; }
has_lines() { [ "$(wc -l <"$1")" -eq "$2" ]; }
is_empty() { [ ! -s "$1" ]; }
is_line() { [ "$(cat "$1" && echo end)" = "$2
end" ]; }

# run ARGS...: the program with its output in $out and $err, its exit code in $code.
run() {
    "$decode" "$@" >"$out" 2>"$err"
    code=$?
}

# expect_error CODE TEXT ARGS...: that exit code, nothing on stdout, one line with TEXT on stderr.
expect_error() {
    h_code=$1 h_text=$2
    shift 2
    run "$@"
    note "exit $h_code, found $code: $*" is_code "$h_code"
    note "empty stdout: $*" is_empty "$out"
    note "one line on stderr: $*" has_lines "$err" 1
    note "message has '$h_text': $*" has "$err" "$h_text"
    note "message begins with decode: $*" has "$err" "decode: "
}

# await CONDITION...: until it holds, for twenty seconds at most.
await() {
    h_tries=0
    while ! "$@" && [ $h_tries -lt 1000 ]; do
        sleep 0.02
        h_tries=$((h_tries + 1))
    done
}

# end_by SIGNAL PID: sends it to a process of this shell; its exit code in $code.
end_by() {
    kill -"$1" "$2"
    wait "$2"
    code=$?
}
