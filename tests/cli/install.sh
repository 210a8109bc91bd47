#!/bin/sh
# install.sh DECODE - tests make install, the manual page, completion in bash, and the tarball of make dist. It is
# run from the repository's top; its last line counts what passed and failed.
. tests/support/checks.sh

mode=$(basename "$(dirname "$decode")")

# this_make ARGS...: runs make without the settings of a make around this script.
this_make() {
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MODE make -s "$@" >"$out" 2>"$err"
}

have() { command -v "$1" >/dev/null 2>&1; }
skip() { echo "skipped: $1 is not installed: $2"; }
files_of() { (cd "$1" && find . -type f | sort); }

# options_of COMMAND: prints the options of its help
options_of() {
    "$decode" "$1" --help --all | grep -oE '^  (    |-., )--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+$' |
        sort
}

commands=$("$decode" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
for command in $commands; do
    options_of "$command" >"$dir/options.$command"
done

# --- install, uninstall -------------------------------------------------------------------------

top=$dir/top
installed="./usr/bin/decode ./usr/share/bash-completion/completions/decode ./usr/share/man/man1/decode.1"
checks <<'EOF'
$ this_make install MODE="$mode" DESTDIR="$top" PREFIX=/usr
$ [ "$(files_of "$top" | xargs)" = "$installed" ]
$ cmp -s "$top/usr/bin/decode" "$decode"
$ cp -r "$top/usr/share" "$dir/share" && echo other >"$top/usr/bin/other"
$ this_make uninstall MODE="$mode" DESTDIR="$top" PREFIX=/usr
$ [ "$(files_of "$top")" = ./usr/bin/other ]
EOF

# --- the manual page ----------------------------------------------------------------------------

page=$dir/share/man/man1/decode.1
note "the page's title" [ "$(sed -n '1s/ "".*//p' "$page")" = '.TH DECODE 1' ]
if have man; then
    MANWIDTH=80 man -l "$page" >"$dir/page" 2>"$err"
elif have mandoc; then
    mandoc -Tutf8 "$page" >"$dir/page" 2>"$err"
else
    skip man "the manual page is not set"
fi
if [ -e "$dir/page" ]; then
    note "man has nothing to say" is_empty "$err"
    note "man shows all sections" [ "$(grep -c '^[A-Z][A-Z]*$\|^decode [a-z]*$' "$dir/page")" -eq 14 ]
    note "in 80 columns" [ "$(col -b <"$dir/page" | grep -vF ./decode | wc -L)" -le 80 ]
fi

# --- completions --------------------------------------------------------------------------------

# A line "LINE|WORD..." has what is offered after LINE, sorted.
cat >"$dir/lines" <<'END'
decode tok|tokenize
decode generate --kv-type |f16 f32 q4_0 q5_0 q8_0
decode generate --tem|--temp
decode score --mo|--model
decode help tok|tokenize
decode convert --refit n|none
decode convert --type q|q4_0 q8_0
decode train --arch l|llama
END

if have bash; then
    cat >"$dir/try.bash" <<'END'
. "$1"
line=$2
COMP_WORDS=($line)
[[ $line == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_decode
printf '%s\n' "${COMPREPLY[@]}" | sort
END
    program=$(cd "$(dirname "$decode")" && pwd)
    in_bash() { PATH=$program:$PATH bash "$dir/try.bash" "$dir/share/bash-completion/completions/decode" "$1"; }
    while IFS='|' read -r line words; do
        note "bash: $line" [ "$(in_bash "$line" | xargs)" = "$words" ]
    done <"$dir/lines"
    note "bash: --name=value, three words" [ "$(in_bash 'decode eval --kv-type = q8')" = q8_0 ]
    note "bash: files, which are its own" [ -z "$(in_bash 'decode generate --file ')" ]
    note "bash: none for numbers" [ -z "$(in_bash 'decode bench --depth ')" ]
    in_bash 'decode ' | grep -v '^--' >"$dir/found"
    echo "$commands" | sort >"$dir/expected"
    note "bash: the commands" cmp -s "$dir/found" "$dir/expected"
    for command in $commands; do
        in_bash "decode $command --" >"$dir/offered"
        grep -vx -e --help -e --model -e --quiet -e --verbose -e '-.' "$dir/offered" >"$dir/found"
        note "bash: all options of $command" cmp -s "$dir/found" "$dir/options.$command"
        [ "$command" = help ] ||
            note "bash: those of all commands, too" \
                [ "$(grep -cx -e --help -e --quiet -e --verbose "$dir/offered")" -eq 3 ]
    done
    bash -ic 'PATH=$1:$PATH; . "$2"; complete -p decode' - "$(dirname "$decode")" \
        "$dir/share/bash-completion/completions/decode" >"$out" 2>/dev/null
    note "bash: it is registered" has "$out" "-F _decode decode"
else
    skip bash "its completions are not tried"
fi

# --- the tarball --------------------------------------------------------------------------------

if have git && git rev-parse HEAD >/dev/null 2>&1; then
    version=$("$decode" --version | sed -n 's/^decode //p')
    checks <<'EOF'
$ this_make dist
$ tar -xzf "build/decode-$version.tar.gz" -C "$dir"
# The tarball has all that the program is built from.
$ this_make -C "$dir/decode-$version" -n && has "$out" build/release/decode
EOF
else
    echo "skipped: no git here: no tarball is made"
fi

finish
