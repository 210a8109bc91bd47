#!/bin/sh
# coverage.sh BUILD - prints how many lines and branches of src the suites ran in a build with
# --coverage: by file, by layer, in all. Needs gcc's gcov only. BUILD/uncovered.txt lists the lines that
# did not run and the branches that were never or always taken. A line or branch that several objects
# have (inline functions, kernels) counts once, as run when one of them ran it. Branches of assertions do
# not count, because only a bug takes them; the copies of an unrolled loop's branch count as one.
set -eu

build=$1
if ! command -v "${GCOV:-gcov}" >/dev/null; then
    echo "cov: skipped: ${GCOV:-gcov} is not installed"
    exit 0
fi

find "$build/src" -name '*.gcno' | sort | xargs "${GCOV:-gcov}" -b -c -t 2>/dev/null |
    awk -F: -v OFS=: -v uncovered="$build/uncovered.txt" '
    /^ *-: *0:Source:/ { file = $4; ours = file ~ /^src\//; next }
    !ours { next }
    /^branch +[0-9]+ / {
        split($0, word, " +")
        if (is_assert)
            next
        # Loops of the kernels are unrolled: many copies of one branch.
        unrolled = file ~ /^src\/compute\/(kernels|grad|lanes)[a-z0-9_]*\.h$/
        branch = file SUBSEP line SUBSEP (unrolled ? word[2] % 2 : word[2])
        known[branch] = 1
        if (word[3] == "taken" && word[4] > 0)
            taken[branch] = 1
        next
    }
    /^(call|function|unconditional|-+$)/ { next }
    NF >= 3 {
        line = $2 + 0
        gsub(/ /, "", $1)
        if (line == 0 || $1 == "-")
            next
        at = file SUBSEP line
        seen[at] = 1
        if ($1 !~ /^[#=]/)
            ran[at] = 1
        text[at] = substr($0, index($0, $2) + length($2) + 1)
        is_assert = text[at] ~ /assert\(/
    }
    function row(name, l, lr, b, bt) {
        return sprintf("%-36s %7d %7d %6.1f%% %7d %7d %6s", name, l, l - lr, l ? 100 * lr / l : 100, b, \
            b - bt, b ? sprintf("%.1f%%", 100 * bt / b) : "-")
    }
    END {
        for (at in seen) {
            split(at, part, SUBSEP)
            split(part[1], folder, "/")
            files[part[1]] = folder[2]
            lines[part[1]]++; lines[folder[2]]++; lines["src"]++
            if (at in ran) {
                lines_run[part[1]]++; lines_run[folder[2]]++; lines_run["src"]++
            } else {
                printf "%s:%d: not run: %s\n", part[1], part[2], text[at] >uncovered
            }
        }
        for (branch in known) {
            split(branch, part, SUBSEP)
            split(part[1], folder, "/")
            at = part[1] SUBSEP part[2]
            branches[part[1]]++; branches[folder[2]]++; branches["src"]++
            if (branch in taken) {
                one[part[1]]++; one[folder[2]]++; one["src"]++
            } else if (at in ran) {
                missed[at] = missed[at] " " part[3]
            }
        }
        for (at in missed) {
            split(at, part, SUBSEP)
            printf "%s:%d: branch%s: %s\n", part[1], part[2], missed[at], text[at] >uncovered
        }
        printf "%-36s %7s %7s %7s %7s %7s %6s\n", "", "lines", "not run", "", "branch", "missed", ""
        n = split("base formats text compute model engine train convert measure show args cli", layer, " ")
        for (i = 1; i <= n; i++) {
            sort = "sort"
            for (f in files)
                if (files[f] == layer[i])
                    print row(f, lines[f], lines_run[f], branches[f], one[f]) | sort
            close(sort)
        }
        print ""
        for (i = 1; i <= n; i++)
            print row("src/" layer[i], lines[layer[i]], lines_run[layer[i]], branches[layer[i]], \
                one[layer[i]])
        print row("src", lines["src"], lines_run["src"], branches["src"], one["src"])
    }'
sort -t: -k1,1 -k2,2n -o "$build/uncovered.txt" "$build/uncovered.txt"
echo "cov: what did not run is in $build/uncovered.txt"
