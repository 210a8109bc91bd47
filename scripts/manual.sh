#!/bin/sh
# manual.sh DECODE - prints the manual page decode(1), source for man(1), of what the program's help says.
set -eu
decode=$1
export COLUMNS=72 # man(1) indents sections, which leaves as many of 80

# section TITLE COMMAND... - prints a section that shows the command's output as it is: backslashes, hyphens
# and lines that begin as a request of troff does are escaped
section() {
    printf '.SH %s\n.nf\n' "$1"
    shift
    "$@" | sed 's/\\/\\e/g; s/-/\\-/g; s/^[.'\'']/\\\&&/'
    echo .fi
}

version=$("$decode" --version | sed -n 's/^decode //p')
summary=$("$decode" help | sed -n '/^Commands:/q; 3,$p' | xargs)
printf '.TH DECODE 1 "" "decode %s" "User Commands"\n' "$version"
printf '.SH NAME\ndecode \\- %s\n' "$summary"
printf '.SH SYNOPSIS\n.B decode\n\\fIcommand\\fP [\\fIoptions\\fP]\n'
section DESCRIPTION "$decode" help
for command in $("$decode" help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    section "decode $command" "$decode" "$command" --help --all
done
