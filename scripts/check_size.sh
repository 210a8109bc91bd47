#!/bin/sh
# check_size.sh [ROOT] - the size of src by room, beside the most that each room may have, and the
# options of all commands, if ./decode is built. Fails above a ceiling. A ceiling is raised only by a
# commit of its own that says what for.
#
# Lexemes are what the compiler sees (names, numbers, operators, strings), so that no formatting
# changes their number; comment words are counted beside them.
set -eu

root=${1:-$(dirname "$0")/..}
cd "$root"

# room, lexemes at most
ceilings='
cli           81600
compute       39750
convert       38300
exchange      28200
engine        26600
train         22400
model         22650
formats       21200
text          17800
measure       19350
show          16000
base          15350
study          3750
'
most_lines=48090
most_files=221
most_headers=78
most_cli_lines=10870
most_options=260
most_function=76

options=0
if [ -x decode ]; then
    for command in $(./decode help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        n=$(./decode help "$command" --all | grep -cE '^ {2,6}(-[a-zA-Z], )?--[a-z]' || true)
        options=$((options + n))
    done
fi

find src -name '*.[ch]' | sort | xargs awk -v ceilings="$ceilings" -v most_lines=$most_lines \
    -v most_files=$most_files -v most_headers=$most_headers -v most_cli_lines=$most_cli_lines \
    -v options="$options" -v most_options=$most_options \
    -v most_function=$most_function '
function words(s,   parts) { return split(s, parts, /[ \t]+/) - (s ~ /^[ \t]/) - (s ~ /[ \t]$/) }
function comment(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); if (s != "") n_words[room] += words(s) }
BEGIN {
    string = "\"([^\"\\\\]|\\\\.)*\""
    character = "\047([^\047\\\\]|\\\\.)*\047"
    number = "[.]?[0-9]([eEpP][+-]|[A-Za-z0-9_.])*"
    operator = "<<=|>>=|[.][.][.]|->|[+][+]|--|<<|>>|[]<>=!+*/%&|^[-]=|&&|[|][|]"
    lexeme = "^(" string "|" character "|[A-Za-z_][A-Za-z0-9_]*|" number "|" operator "|.)"
}
FNR == 1 {
    split(FILENAME, path, "/")
    room = path[2]
    n_files[room]++
    n_headers += FILENAME ~ /h$/
    inside = began = 0
}
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
{
    n_lines[room]++
    line = $0
    while (line != "") {
        if (inside) {
            end = index(line, "*/")
            comment(end ? substr(line, 1, end + 1) : line)
            line = end ? substr(line, end + 2) : ""
            inside = !end
        } else if (match(line, /^[ \t]+/)) {
            line = substr(line, RLENGTH + 1)
        } else if (substr(line, 1, 2) == "//") {
            comment(line)
            line = ""
        } else if (substr(line, 1, 2) == "/*") {
            end = index(substr(line, 3), "*/")
            comment(end ? substr(line, 1, end + 3) : line)
            line = end ? substr(line, end + 4) : ""
            inside = !end
        } else {
            match(line, lexeme)
            n_lexemes[room]++
            line = substr(line, RLENGTH + 1)
        }
    }
}
function check(what, n, most) {
    if (n > most) {
        printf "%s: %d, expected at most %d\n", what, n, most
        failed = 1
    }
}
END {
    n_rooms = split(ceilings, rows, "\n")
    printf "%-12s %6s %8s %8s %8s %14s\n", "room", "files", "lines", "lexemes", "at most",
        "comment words"
    for (i = 1; i <= n_rooms; i++) {
        if (split(rows[i], row, /[ \t]+/) < 2)
            continue
        most[row[1]] = row[2]
        printf "%-12s %6d %8d %8d %8d %14d\n", row[1], n_files[row[1]], n_lines[row[1]],
            n_lexemes[row[1]], row[2], n_words[row[1]]
    }
    for (room in n_files) {
        files += n_files[room]; lines += n_lines[room]
        lexemes += n_lexemes[room]; all_words += n_words[room]
        check("src/" room ", lexemes", n_lexemes[room], most[room] + 0)
    }
    printf "%-12s %6d %8d %8d %8s %14d\n", "all", files, lines, lexemes, "", all_words
    printf "%d headers, %d options; %.2f comment words a lexeme\n", n_headers, options,
        all_words / lexemes
    printf "%d functions of %.1f lines on average, the longest %d (%s)\n", n_functions,
        function_lines / n_functions, longest, where
    check("files", files, most_files)
    check("headers", n_headers, most_headers)
    check("lines", lines, most_lines)
    check("lines of src/cli", n_lines["cli"], most_cli_lines)
    check("options", options, most_options)
    check("lines of the longest function", longest, most_function)
    exit failed
}'
