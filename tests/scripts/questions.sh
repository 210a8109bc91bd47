#!/bin/sh
# questions.sh DECODE - tests the scripts of scripts/questions and their page. Each script has a section, whose figures are in
# its table, NAME.txt. A quarter of the scripts, drawn by a seed, runs in its shortest form (with QUESTIONS=all every one does).
# The table that a script prints must have the columns of NAME.txt, and be the same where nothing is trained or timed. Scripts
# that need NumPy or gguf are named and left out where these are not installed. It is run from the repository's top.
. tests/support/checks.sh
if is_sanitized; then
    echo "questions: left out under sanitizers, which run such commands in other scripts"
    exit
fi
export DECODE="$decode" OUT="$dir/questions" SHORT=1
page=scripts/questions/README.md
"$decode" generate "$model" -n 250 --seed 1 --samples 90 -q </dev/null >"$dir/text"

# section NAME prints the lines of its section; table NAME prints its table, which all.sh wrote; prose NAME prints the section's
# lines behind the link to the table, without references in parentheses; heads_of prints the heads of tables on standard input.
section() { sed -n "/^## $1: /,/^## /p" "$page" | sed '$!b; /^## /d'; }
table() { sed '/./!d' "scripts/questions/$1.txt" 2>/dev/null; }
prose() { section "$1" | sed '1,/^\[Figures\]/d' | tr '\n' ' ' | sed 's/([^)]*[12][09][0-9][0-9][^)]*)//g; s/The paper: .*//'; }
heads_of() { grep -B 1 '^|:*--' | grep '^| [^-]'; }

# figures prints the numbers of three characters and more on standard input, one a line; lacking FILE prints those that are no
# number of the file, not even of a rounded one.
figures() { grep -oE '[-+]?[0-9][0-9,.]*[0-9]' | grep -E '[0-9].*[0-9].*[0-9]|[.]'; }
lacking() {
    awk '
    function plain(x) { gsub(/[,+]/, "", x); return x }
    !text { figures[++n] = plain($0); next }
    {
        while (match($0, /-?[0-9][0-9,.]*/)) {
            x = plain(substr($0, RSTART, RLENGTH))
            $0 = substr($0, RSTART + RLENGTH)
            for (i = 1; i <= n; i++) {
                digits = index(figures[i], ".") ? length(figures[i]) - index(figures[i], ".") : 0
                y = sprintf("%." digits "f", x)
                found[i] = found[i] || y == figures[i] || y == "-" figures[i]
            }
        }
    }
    END { for (i = 1; i <= n; i++) if (!found[i]) print figures[i] }' - text=1 "$1"
}

have_numpy=yes
python3 -c 'import numpy, gguf' 2>/dev/null || have_numpy=
for question in scripts/questions/*.sh; do
    name=$(basename "$question" .sh)
    case $name in all | common | texts) continue ;; esac
    note "$question is a section of the page" [ -n "$(section "$name")" ]
    table "$name" >"$dir/table"
    if [ -s "$dir/table" ]; then
        prose "$name" | figures | lacking "$dir/table" >"$dir/lacking"
        note "$page: $name: no table has $(xargs <"$dir/lacking")" is_empty "$dir/lacking"
    fi
    [ "${QUESTIONS:-}" = all ] || is_drawn 4 || continue
    case $name in root | bilinear | heads | recall | padding | convolution | roles | cache | real)
        [ "$have_numpy" ] || { echo "not run: $question: NumPy or gguf are not installed" && continue; } ;;
    esac
    "$question" "$dir/text" >"$out" 2>"$err"
    note "$question: exit 0" [ $? -eq 0 ]
    note "$question prints a table" [ -n "$(heads_of <"$out")" ]
    [ -s "$dir/table" ] || continue # the table is not there yet
    heads_of <"$out" | sed 's/over [^|]*//' | sort -u >"$dir/found" # some have a table for each size
    heads_of <"$dir/table" | sed 's/over [^|]*//' | sort -u >"$dir/shown"
    note "$question: the page has its columns" cmp -s "$dir/found" "$dir/shown"
    case $name in small_heads | mask | padding | bilinear | larger | one_token | concat)
        sed '/./!d' "$out" >"$dir/found"
        note "$question: the page has its table" cmp -s "$dir/found" "$dir/table" ;;
    esac
done
finish
