#!/bin/sh
# run_tests.sh COMMAND... - runs these command lines side by side: one more than there are processors,
# because some suites wait more than they compute. When a command ends, its messages are printed, and a
# line with its seconds, its seconds of processors, and its checks. Its own last line counts these; a command
# without such a line is one check. A failure stops nothing: at the end the commands that failed are named,
# and the script fails. The last line counts all checks: "tests: N passed, N failed". What suites draw
# depends on DECODE_TEST_SEED, by default the time; the seed is printed, so that a run can be repeated.
set -u

dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-tests-XXXXXX")
trap 'rm -rf "$dir"' EXIT
began=$(date +%s)

# Check's timeouts are for suites that hang: sanitizers and suites side by side take several times as long.
CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-5}
DECODE_TEST_SEED=${DECODE_TEST_SEED:-$began}
export CK_TIMEOUT_MULTIPLIER DECODE_TEST_SEED

# one DIR COMMAND... - runs the command and prints its lines; appends "passed failed" to DIR/counts, and
# the command to DIR/failed if it failed.
cat >"$dir/one" <<'ONE'
dir=$1
shift
out=$dir/$$.out
start=$(date +%s)
code=0
"$@" >"$out" 2>&1 || code=$?
times >"$out.times" # the times of this shell, then those of its children
worked=$(awk -F '[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4 + .5) }' "$out.times")
awk -v name="$*" -v code=$code -v took=$(($(date +%s) - start)) -v worked="$worked" -v dir="$dir" '
/^Running suite/ { next } # Check prints this; its closing line has percent, checks, failures, errors
/^[0-9]+%: Checks: / { split($0, n, /[^0-9]+/); failed = n[3] + n[4]; passed = n[2] - failed; counted = 1; next }
/^[a-z]+: [0-9]+ passed, [0-9]+ failed/ {
    passed = $2
    failed = $4
    counted = 1
    if (!sub(/^[^;]*; /, ""))
        next
}
{ print }
END {
    if (!counted)
        passed = code == 0
    if (code && !failed)
        failed = 1
    printf "  %3d s %4d s of processors %5d checks  %s\n", took, worked, passed + failed, name
    print passed + 0, failed + 0 >>(dir "/counts")
    if (code)
        print name >>(dir "/failed")
}' "$out" >"$out.said"
cat "$out.said"
rm "$out" "$out.times" "$out.said"
ONE

printf '%s\n' "$@" | xargs -P "$(($(nproc) + 1))" -I COMMAND sh -c "sh '$dir/one' '$dir' COMMAND"
if [ -e "$dir/failed" ]; then
    echo "failed:"
    sed 's/^/    /' "$dir/failed"
fi
echo "drawn with DECODE_TEST_SEED=$DECODE_TEST_SEED"
awk -v took=$(($(date +%s) - began)) '{ passed += $1; failed += $2 } END {
    printf "%d checks of %d suites in %d s%s\n", passed + failed, NR, took, failed ? "" : ": all passed"
    printf "tests: %d passed, %d failed\n", passed, failed
}' "$dir/counts"
[ ! -e "$dir/failed" ]
