#!/bin/sh
# fuzz_run.sh SECONDS JOBS TARGET=CORPUS... - runs every libFuzzer target for SECONDS, JOBS at a time,
# from its committed corpus and from what earlier runs found. build/fuzz-run/TARGET has these finds, the
# log, and the inputs that fail. A hang of 5 seconds, 512 MiB of memory in all and 64 MiB in one block are
# failures, too: inputs have at most 16 KiB, and their readers may take time and memory in proportion.
# Prints what each target executed; fails if one failed.
set -u

seconds=$1
jobs=$2
shift 2
base=build/fuzz-run
mkdir -p "$base"

cat >"$base/one" <<'ONE'
target=${1%%=*}
corpus=${1#*=}
dir=$2/$target
mkdir -p "$dir/corpus" "$dir/findings"
# AddressSanitizer keeps freed memory for a while. It may keep 16 MiB here, so that nearly all of the limit
# on memory is left to the program.
ASAN_OPTIONS=quarantine_size_mb=16
export ASAN_OPTIONS
build/fuzz/"$target" "$dir/corpus" "$corpus" -max_total_time="$3" -max_len=16384 -timeout=5 \
    -rss_limit_mb=512 -malloc_limit_mb=64 -artifact_prefix="$dir/findings/" \
    -print_final_stats=1 >"$dir/log" 2>&1
echo $? >"$dir/status"
ONE

for pair; do rm -f "$base/${pair%%=*}/status"; done
printf '%s\n' "$@" | xargs -P "$jobs" -I PAIR sh "$base/one" PAIR "$base" "$seconds"

failed=0
for pair; do
    target=${pair%%=*}
    dir=$base/$target
    status=$(cat "$dir/status" 2>/dev/null || echo none)
    awk -v target="$target" '
        / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1); else if ($i == "ft:") ft = $(i + 1) }
        /number_of_executed_units/ { n = $2 }
        /peak_rss_mb/ { rss = $2 }
        END { printf "%-16s %10d executions, %5d edges, %6d features, %4d MiB at most", target, n, cov, ft, rss }
    ' "$dir/log"
    if [ "$status" = 0 ]; then
        echo
    else
        failed=1
        echo ": FAILED, see $dir/log; inputs that fail:"
        ls "$dir/findings" | sed "s|^|    $dir/findings/|"
    fi
done
exit $failed
