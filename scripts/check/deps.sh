#!/bin/sh
# deps.sh - installs the Check library, which the tests need, unless it is there already.
set -eu

have_check() {
    pkg-config --exists check 2>/dev/null && return 0
    printf '#include <check.h>\nint main(void) { return 0; }\n' |
        ${CC:-cc} -x c - -o /dev/null -lcheck 2>/dev/null
}

if have_check; then
    echo "deps: Check is installed"
    exit 0
fi

as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo

if command -v apt-get >/dev/null; then
    $as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq check pkg-config
elif command -v dnf >/dev/null; then
    $as_root dnf install -y check-devel pkgconf-pkg-config
elif command -v apk >/dev/null; then
    $as_root apk add check-dev pkgconf
elif command -v brew >/dev/null; then
    brew install check pkg-config
else
    echo "deps: no known package manager; install the Check library (libcheck) by hand" >&2
    exit 1
fi
