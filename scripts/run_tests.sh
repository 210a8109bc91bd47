#!/bin/sh
# run_tests.sh DECODE SUITE... - runs every Check suite and, unless DECODE is empty, the command line
# end to end and in a hostile world: as many at once as there are processors, each one's output in
# one piece. Goes on after a failure, and fails at the end if anything did.
set -u

decode=$1
shift
dir=$(mktemp -d "${TMPDIR:-/tmp}/decode-tests-XXXXXX")
trap 'rm -rf "$dir"' EXIT

# Check's timeouts only end what hangs: sanitizers, and two suites at once, take longer.
CK_TIMEOUT_MULTIPLIER=5
export CK_TIMEOUT_MULTIPLIER

# one DIR COMMAND... - its output and its time when it is done; a mark if it failed.
cat >"$dir/one" <<'ONE'
dir=$1
shift
out=$dir/$$.out
start=$(date +%s)
"$@" >"$out" 2>&1 || : >"$dir/failed"
echo "$(($(date +%s) - start)) s: $*" >>"$out"
cat "$out"
ONE

# The longest first, so that nothing is waited for alone.
{
    [ -z "$decode" ] || echo "sh tests/cli.sh $decode"
    [ -z "$decode" ] || echo "sh tests/world.sh $decode"
    printf '%s\n' "$@"
} | xargs -P "$(nproc)" -I COMMAND sh -c "sh '$dir/one' '$dir' COMMAND"
[ ! -e "$dir/failed" ]
