#!/bin/sh
# deps.sh [browser|wasm [check]] - installs the Check library; with `browser` a Chromium, for the tests of
# the page of attend --html; with `wasm` the compiler and the libraries of `make wasm`. `wasm check` installs
# nothing and fails where these are missing. What is there already is not installed again.
set -eu

have_check() {
    pkg-config --exists check 2>/dev/null && return 0
    printf '#include <check.h>\nint main(void) { return 0; }\n' |
        ${CC:-cc} -x c - -o /dev/null -lcheck 2>/dev/null
}

have_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

have_wasm() {
    echo 'int main(void) { return 0; }' |
        ${WASM_CC:-clang --target=wasm32-wasi --sysroot=/usr} -include stdio.h -x c - -o /dev/null 2>/dev/null
}

case ${1:-check} in
check) what=Check there=have_check packages=check dnf=check-devel apk=check-dev ;;
browser) what=Chromium there=have_browser packages=chromium dnf=chromium apk=chromium ;;
wasm) what="clang for WebAssembly" there=have_wasm packages="clang lld wasi-libc libclang-rt-14-dev-wasm32" \
    dnf="clang lld wasi-libc-static compiler-rt-wasm32" apk="clang lld wasi-sdk" ;;
*) echo "deps.sh: expected browser, wasm or nothing, found $1" >&2 && exit 2 ;;
esac
if $there >/dev/null; then
    [ "${2:-}" = check ] || echo "deps: $what is installed"
    exit 0
fi
if [ "${2:-}" = check ]; then
    echo "make wasm: expected clang for wasm32-wasi with wasi-libc and lld; make deps-wasm installs it" >&2
    exit 1
fi

as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo

if command -v apt-get >/dev/null; then
    $as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq $packages pkg-config
elif command -v dnf >/dev/null; then
    $as_root dnf install -y $dnf pkgconf-pkg-config
elif command -v apk >/dev/null; then
    $as_root apk add $apk pkgconf
elif command -v brew >/dev/null; then
    brew install $packages pkg-config
else
    echo "deps: no known package manager; install $what by hand" >&2
    exit 1
fi
