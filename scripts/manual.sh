#!/bin/sh
# manual.sh DECODE - prints the manual page decode(1), source for man(1), of what the program's help says.
set -eu
decode=$1
export COLUMNS=72 # what man(1), which indents sections, leaves of 80

# section TITLE COMMAND... - the output of the command, in which troff is to find nothing of its own: no
# backslash, no hyphen that it breaks at, no line that begins as a request does
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
