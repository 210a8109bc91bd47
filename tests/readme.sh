#!/bin/sh
# readme.sh DECODE [SHAKESPEARE] - runs the command lines in the code blocks of README.md and of every
# folder's page, and checks that they print what is shown there and that links lead somewhere. SHAKESPEARE is
# the text that the pages name. With it all commands run as they stand, which takes minutes; without it another
# text takes its place, and some commands are shortened. It is run from the repository's top; its last line
# counts what passed and failed.
#
# The commands of a page run one after the other in a folder that stands for the repository's top.
#
# A block that shows output must be what its command prints, both streams together; a line "..." stands for
# any number of lines. A comment before a block has a rule on each line:
#   <!-- readme.sh
#   not run: WHY               no command of the block is run
#   not run WORDS: WHY         commands of the block that begin with these words are not run
#   figures                    numbers may differ
#   but for REGEX              what REGEX matches may differ
#   text                       numbers may differ if another text stands for SHAKESPEARE
#   short SED                  if another text stands for it, this sed command shortens the commands
#   -->
. tests/support/checks.sh
shakespeare=${2:-}

pages="README.md src/*/README.md models/README.md scripts/*.md scripts/questions/README.md tests/README.md"

# --- what a page has ----------------------------------------------------------------------------

# commands PAGE: writes files for each command N: N.sh, N.shown, N.line with its place, and N.rules with the
# rules of its block. A block without commands counts as one command and is written as N.plain.
commands() {
    rm -rf "$dir/commands"
    mkdir "$dir/commands"
    awk -v dir="$dir/commands" '
function begin(kind) {
    name = sprintf("%s/%03d", dir, ++n)
    printf "%s", rules >(name ".rules")
    print FILENAME ":" NR >(name ".line")
    file = name kind
}
/^<!-- readme.sh/ { in_rules = 1; in_block = 0; rules = ""; next }
in_rules { in_rules = !/^-->/; if (in_rules) rules = rules $0 "\n"; next }
/^$/ { blanks++; next }
!/^    / { if (in_block) rules = ""; in_block = 0; next }
{
    $0 = substr($0, 5)
    if (/^\$ /) {
        begin(".sh")
        $0 = substr($0, 3)
        continued = 1
    } else if (!in_block) {
        begin(".plain")
    } else if (file ~ /shown$/) {
        for (; blanks > 0; blanks--)
            print "" >file
    }
    in_block = 1
    blanks = 0
    print >file
    if (file ~ /sh$/ && !/\\$/)
        file = name ".shown"
}
' "$1"
}

# rule NAME FILE: prints what follows NAME in the rules, one a line.
rule() { sed -n "s/^$1 *//p" "$2.rules"; }

# why_not COMMAND: prints why it is not run, or nothing.
why_not() {
    sed -n 's/^not run *//p' "$1.rules" | while IFS= read -r h_rule; do
        # shellcheck disable=SC2254 # a pattern
        case $(cat "$1".sh "$1".plain 2>/dev/null) in
        ${h_rule%%:*}*) echo "${h_rule#*: }" ;;
        esac
    done
}

# --- running ------------------------------------------------------------------------------------

number='[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?( (µ)?m?s\b)?' # 0.9 ms may be 1,100 µs

# masked COMMAND <TEXT: prints the text with # for what may differ. Where anything may, spaces and empty lines may
# differ as well.
masked() {
    {
        grep -qx figures "$1.rules" && printf "%s\n" "$number"
        [ -z "$shakespeare" ] && grep -qx text "$1.rules" && printf "%s\n" "$number"
        rule 'but for' "$1"
    } | sed 's/[|]/\\&/g; s/.*/s|&|#|g/' >"$dir/masks"
    [ -s "$dir/masks" ] && echo 's/[ -][ -]*/ /g; /^ *$/d' >>"$dir/masks"
    sed -E -f "$dir/masks" -e 's/ *$//; s/^ *[.][.][.]$/.../'
}

# matches FOUND SHOWN: whether they are the same; a line of ... in SHOWN stands for any lines.
matches() {
    awk '
    FNR == NR { found[++n_found] = $0; next }
    { shown[++n_shown] = $0 }
    # Whether the lines from SHOWN[s] to the next ... are those from FOUND[f].
    function same(f, s) {
        for (; s <= n_shown && shown[s] != "..."; s++)
            if (f > n_found || found[f++] != shown[s])
                return 0
        return s > n_shown ? f > n_found : 1
    }
    END {
        anywhere = 0
        f = s = 1
        while (s <= n_shown) {
            if (shown[s] == "...") {
                anywhere = 1
                if (++s > n_shown)
                    exit 0
            }
            while (!same(f, s))
                if (!anywhere || ++f > n_found)
                    exit 1
            for (; s <= n_shown && shown[s] != "..."; s++)
                f++
            anywhere = 0
        }
        exit f <= n_found
    }' "$1" "$2"
}

# run_shown COMMAND: runs it in the folder that stands for the repository's top.
run_shown() {
    h_command=$(cat "$1.sh")
    [ -n "$shakespeare" ] || h_command=$(rule short "$1" | sed -f - "$1.sh")
    (cd "$dir/work" && sh -c "$h_command") >"$out" 2>&1 </dev/null
    code=$?
    : >"$err"
    note "$(cat "$1.line"): exit 0, found $code: $h_command: $(tail -n 1 "$out")" [ $code -eq 0 ]
    [ -e "$1.shown" ] || return
    masked "$1" <"$out" >"$dir/found"
    masked "$1" <"$1.shown" >"$dir/shown"
    note "$(cat "$1.line"): prints what is shown: $h_command" \
        matches "$dir/found" "$dir/shown"
    matches "$dir/found" "$dir/shown" || diff "$dir/shown" "$dir/found" | head -20
}

if [ -n "$shakespeare" ]; then
    cp "$shakespeare" "$dir/shakespeare.txt"
else
    "$decode" generate models/shakespeare-mha.gguf -n 250 --seed 1 --samples 16 -q </dev/null \
        >"$dir/shakespeare.txt"
fi

# is_there FILE[#HEADING]: whether there is the file and, in a page, the heading, as GitHub names it.
is_there() {
    [ -e "${1%%#*}" ] || return 1
    case $1 in *'#'*) ;; *) return 0 ;; esac
    sed -n 's/^##* //p' "${1%%#*}" | tr '[:upper:] ' '[:lower:]-' | tr -cd 'a-z0-9_\n-' | grep -qxe "${1#*#}"
}

for page in $pages; do
    commands "$page"
    rm -rf "$dir/work"
    mkdir "$dir/work"
    for name in models scripts tests LICENSE; do
        ln -s "$PWD/$name" "$dir/work/$name"
    done
    ln -s "$decode" "$dir/work/decode"
    cp "$dir/shakespeare.txt" "$dir/work/shakespeare.txt"
    for line in "$dir"/commands/*.line; do
        [ -e "$line" ] || continue # a page without commands
        command=${line%.line}
        why=$(why_not "$command")
        if [ -n "$why" ]; then
            echo "not run: $(cat "$line"): $why"
        elif [ -e "$command.plain" ]; then
            note "$(cat "$line"): commands begin with \$, or a rule says why not" false
        else
            run_shown "$command"
        fi
    done
    grep -oE '\]\([^)]*\)' "$page" | grep -v :// | tr -d '])(' >"$dir/links"
    while IFS= read -r link; do
        note "$page: $link is there" is_there "$(dirname "$page")/$link"
    done <"$dir/links"
done

# --- options that they name ---------------------------------------------------------------------

for command in $("$decode" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    "$decode" "$command" --help --all
done | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u >"$dir/options"
cat $pages | tr '\n' ' ' | grep -oE '`[^`]*`' | grep -v scripts/ | grep -oE '[ `]--[a-z][a-z0-9-]*' |
    grep -oE -- '--[a-z0-9-]*' | grep -vxE -e '--(help|short|alpha|arm|jobs|rates|match|print|seeds|expand|tokenizer)' | sort -u >"$dir/named" # scripts'
note "options are named" [ "$(wc -l <"$dir/named")" -gt 40 ]
note "that there are: $(comm -13 "$dir/options" "$dir/named" | xargs)" \
    [ -z "$(comm -13 "$dir/options" "$dir/named")" ]

finish
