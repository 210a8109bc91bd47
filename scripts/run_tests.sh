#!/bin/sh
# run_tests.sh DECODE SUITE... - runs every Check suite, then the command line end to end.
# Goes on after a failure, and fails at the end if anything did.
set -u

decode=$1
shift
failed=0
for suite in "$@"; do
    "$suite" || failed=1
done
sh tests/cli.sh "$decode" || failed=1
exit $failed
