#!/bin/sh
# check_size.sh [ROOT] - how large the tree is, beside the most that is allowed: lines of src by directory;
# options of all commands, if ./decode is built; lines of C and shell and bytes of tests/. Fails above a
# limit. A directory's limit is 5% above what it had when features were chosen; a commit of its own raises
# one and says what for. Files, headers and functions are counted without a limit.
set -eu

root=${1:-$(dirname "$0")/..}
cd "$root"

# Directory, lines at most.
limits='
args         660
cli          7400
compute      5830
convert      3020
engine       2960
formats      1910
measure      3120
model        3660
show        2700
base        2585
text         3050
train        3400
'
most_lines=39300
most_options=165
most_test_lines=21500
most_test_bytes=8000000

# The files that git tracks, or, in a tarball, those there are.
files() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files "$1"
    else
        find "$1" -type f
    fi
}

options=0
if [ -x decode ]; then
    for command in $(./decode help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        n=$(./decode help "$command" --all | grep -cE '^ {2,6}(-[a-zA-Z], )?--[a-z]' || true)
        options=$((options + n))
    done
fi
test_lines=$(files tests | grep -E '\.(c|h|sh)$' | xargs cat | wc -l)
test_bytes=$(files tests | xargs cat | wc -c)

find src -name '*.[ch]' | sort | xargs awk -v limits="$limits" -v most_lines=$most_lines \
    -v options="$options" -v most_options=$most_options \
    -v test_lines="$test_lines" -v most_test_lines=$most_test_lines \
    -v test_bytes="$test_bytes" -v most_test_bytes=$most_test_bytes '
FNR == 1 {
    split(FILENAME, path, "/")
    directory = path[2]
    n_files[directory]++
    n_headers += FILENAME ~ /h$/
    began = 0
}
{ n_lines[directory]++ }
# A function is what stands between braces in the first column.
/^[{]$/ { began = FNR }
/^[}]$/ && began {
    n = FNR - began - 1
    n_functions++
    function_lines += n
    if (n > longest) {
        longest = n
        where = FILENAME ":" began
    }
    began = 0
}
function row(what, n, most) {
    printf "%-22s %9d %9d\n", what, n, most
    if (n > most) {
        printf "check_size: %s: %d, expected at most %d\n", what, n, most >"/dev/stderr"
        failed = 1
    }
}
END {
    printf "%-22s %9s %9s\n", "", "found", "at most"
    n_limits = split(limits, rows, "\n")
    for (i = 1; i <= n_limits; i++)
        if (split(rows[i], limit, " ") == 2)
            most[limit[1]] = limit[2]
    for (directory in n_files) {
        files += n_files[directory]
        lines += n_lines[directory]
        if (!(directory in most))
            most[directory] = 0 # a new directory says here how large it may be
    }
    for (i = 1; i <= n_limits; i++)
        if (split(rows[i], limit, " ") == 2)
            row("src/" limit[1] ", lines", n_lines[limit[1]], limit[2])
    for (directory in most)
        if (most[directory] == 0)
            row("src/" directory ", lines", n_lines[directory], 0)
    row("src, lines", lines, most_lines)
    row("options", options, most_options)
    row("tests, lines", test_lines, most_test_lines)
    row("tests, bytes", test_bytes, most_test_bytes)
    printf "%d files of src, %d of them headers; %d functions of %.1f lines on average, the longest " \
        "%d (%s)\n", files, n_headers, n_functions, function_lines / n_functions, longest, where
    exit failed
}'
