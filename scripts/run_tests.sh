#!/bin/sh
# run_tests.sh COMMAND... - runs each of these command lines: one more at once than there are
# processors, because some wait more than they work; each one's output in one piece, with the time
# that it took and that processors worked for it. Goes on after a failure, and at the end names what
# failed, and fails.
set -u

dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-tests-XXXXXX")
trap 'rm -rf "$dir"' EXIT

# Check's timeouts only end what hangs: sanitizers, and two suites at once, take longer.
CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-5}
export CK_TIMEOUT_MULTIPLIER

# one DIR COMMAND... - its output and its times when it is done; its name in DIR/failed if it failed.
cat >"$dir/one" <<'ONE'
dir=$1
shift
out=$dir/$$.out
start=$(date +%s)
"$@" >"$out" 2>&1 || echo "$*" >>"$dir/failed"
times >"$out.times" # of this shell, then of its children
worked=$(awk -F '[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4 + .5) }' "$out.times")
echo "$(($(date +%s) - start)) s ($worked s of processors): $*" >>"$out"
cat "$out"
ONE

printf '%s\n' "$@" | xargs -P "$(($(nproc) + 1))" -I COMMAND sh -c "sh '$dir/one' '$dir' COMMAND"
[ ! -e "$dir/failed" ] && exit
echo "failed:"
cat "$dir/failed"
exit 1
