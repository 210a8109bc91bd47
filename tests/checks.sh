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
