# checks.sh - what tests/cli.sh and tests/world.sh share; they source it with $dir set to a folder of
# their own. Helpers' own variables begin with h_, so that they spare the loops'.

model=tests/data/shakespeare-bytes.gguf
out=$dir/out
err=$dir/err
passed=0
failed=0
unset DECODE_THREADS DECODE_ISA

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
