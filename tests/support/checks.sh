# checks.sh - what the shell scripts of tests/ share. A script sources it with the program as $1, has a folder
# of its own in $dir, and ends with `finish`. The variables of functions here begin with h_, because a shell
# has one set of names.
set -u

decode=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
script=$(basename "$0" .sh)
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-$script-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
model=tests/data/shakespeare-bytes.gguf
golden=tests/data/golden
out=$dir/out
err=$dir/err
passed=0
failed=0
unset DECODE_ISA NO_COLOR COLUMNS
# The program runs with one thread, because beside other suites a second one mostly waits for a processor.
# Checks of threads name their number.
export DECODE_THREADS=1
exec </dev/null # what is piped in would be a prompt

# is_sanitized: whether the program has sanitizers, which start slowly and need memory and threads themselves.
is_sanitized() { case $decode in */asan/* | */tsan/*) ;; *) false ;; esac }

# is_drawn N: true for one in N of its calls; DECODE_TEST_SEED decides which. Without it the time is the seed,
# which the first call prints.
h_turn=${DECODE_TEST_SEED:-}
is_drawn() {
    [ "$h_turn" ] || { h_turn=$(date +%s) && echo "DECODE_TEST_SEED=$h_turn"; }
    h_turn=$((h_turn + 1))
    [ $((h_turn % $1)) -eq 0 ]
}

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

finish() {
    echo "$script: $passed passed, $failed failed${1:-}"
    [ $failed -eq 0 ]
    exit
}

has() { grep -qF -e "$2" "$1"; }
lacks() { ! grep -qF -e "$2" "$1"; }
has_lines() { [ "$(wc -l <"$1")" -eq "$2" ]; }
is_empty() { [ ! -s "$1" ]; }
is_line() { [ "$(cat "$1" && echo end)" = "$2
end" ]; }
size_of() { wc -c <"$1" | tr -d ' '; }
repeat() { head -c "$2" /dev/zero | tr '\0' "$1"; }

# run ARGS...: runs the program; its output is in $out and $err, its exit code in $code.
run() {
    "$decode" "$@" >"$out" 2>"$err"
    code=$?
}

# checks: runs the lines of standard input (checks <<'EOF'); the head of tests/cli/cli.sh explains them.
checks() {
    h_ifs=$IFS
    IFS='
'
    set -f
    set -- $(sed -e '/^#/d' -e :a -e '$!N' -e 's/\n  */ /' -e ta -e P -e D)
    set +f
    IFS=$h_ifs
    for h_line; do
        case $h_line in
        '$ '*)
            eval "${h_line#??}"
            h_status=$?
            note "$h_line" [ $h_status -eq 0 ]
            ;;
        *' | for '*) eval "for ${h_line##* | for }; do check \"\${h_line% | for *}\"; done" ;;
        *) check "$h_line" ;;
        esac
    done </dev/null
}

# check LINE: runs the program and compares, as one line of checks says.
check() {
    h_check="$1 | "
    h_command=${h_check%% | *} h_check=${h_check#* | } h_fault=
    h_code=${h_command%% *} h_main=$out
    [ "$h_command" = "$h_code" ] || eval "run ${h_command#* }"
    [ "$code" -eq "${h_code%+}" ] || h_fault=" exit $code"
    case $h_code in
    0 | *+) ;;
    *)
        h_main=$err
        is_empty "$out" && has_lines "$err" 1 && has "$err" "decode: " ||
            h_fault="$h_fault, not one line on stderr"
        ;;
    esac
    while [ -n "$h_check" ]; do
        h_words=${h_check%% | *} h_check=${h_check#* | }
        says "$h_words" || h_fault="$h_fault, not: $h_words"
    done
    note "$1 --$h_fault" [ -z "$h_fault" ]
}

# says WORDS: whether one expectation of a line holds.
says() {
    case $1 in *'$'*) eval "set -- \"$1\"" ;; esac
    case $1 in
    '! '*) lacks "$out" "${1#??}" ;;
    '2> '*) has "$err" "${1#???}" ;;
    '2! '*) lacks "$err" "${1#???}" ;;
    '> '*) cp "$out" "$dir/${1#??}" ;;
    '== '*) cmp -s "$out" "$dir/${1#???}" ;;
    '= '*) is_line "$out" "${1#??}" ;;
    [0-9]*' lines') has_lines "$out" "${1% lines}" ;;
    [0-9]*' bytes') [ "$(size_of "$out")" -eq "${1% bytes}" ] ;;
    quiet) is_empty "$err" ;;
    *) has "$h_main" "$1" ;;
    esac
}

# await CONDITION...: waits until it holds, for twenty seconds at most.
await() {
    h_tries=0
    while ! "$@" && [ $h_tries -lt 1000 ]; do
        sleep 0.02
        h_tries=$((h_tries + 1))
    done
}

# start ARGS...: starts the program in the background; its process is $pid.
start() {
    : >"$out"
    : >"$err"
    "$decode" "$@" >"$out" 2>"$err" &
    pid=$!
}

# end_by SIGNAL PID: sends the signal to a child of this shell; the child's exit code is in $code.
end_by() {
    kill -"$1" "$2"
    wait "$2" 2>/dev/null
    code=$?
}
