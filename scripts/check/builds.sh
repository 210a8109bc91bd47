#!/bin/sh
# builds.sh DECODE [BUILD...|all] - builds the program in other ways, into build/check-BUILD, and
# compares the bits that each gives with those of DECODE (same_bits.sh). By default it makes 32-bit and
# musl, the two that differ most from DECODE, without optimisation, because that compiles fast and gives
# the same bits. A build whose compiler or library is missing is named and left out. (`make
# test-everywhere` compares the bits of clang's build.)
#
#   32-bit     -m32                          musl      static, with musl's C library
#   clang-O0   clang's, unoptimised          gcc-O0    gcc's, unoptimised
#   clang-O3   clang's, optimised            gcc-Os    for size
#   native     -O3 -march=native             clang-native   the same with clang
#   lto        -O3 -flto                     hardened  -O2 -D_FORTIFY_SOURCE=3, stack protector
#   arm        32-bit Arm without vector kernels, under emulation
set -eu

native=$1
shift
[ $# -gt 0 ] || set -- 32-bit musl
[ "$1" != all ] || set -- 32-bit musl clang-O0 gcc-O0 clang-O3 gcc-Os native clang-native lto \
    hardened arm

failed=0

# can_link COMPILER... - whether this compiler makes programs on this machine
can_link() {
    printf '#include <asm/errno.h>\nint main(void) { return 0; }\n' |
        "$@" -x c - -o /dev/null 2>/dev/null
}

# build NAME COMPILER CFLAGS [LDFLAGS [MODE [AR]]]
build() {
    ${MAKE:-make} --no-print-directory MODE="${5:-release}" BUILD="build/check-$1" CC="$2" \
        AR="${6:-ar}" CFLAGS="$3" LDFLAGS="${4:-}" "build/check-$1/decode"
}

# compare NAME [ISA]
compare() {
    # shellcheck disable=SC2086 # one word or none
    scripts/check/same_bits.sh "check-builds: $1" "$native" "build/check-$1/decode" ${2:-} || failed=1
}

# refuse_large PROGRAM - checks that a 32-bit program refuses an input and a model that are larger than its
# address space, and that it notices an existing output of that size
refuse_large() {
    work=$(mktemp -d)
    truncate -s 5G "$work/large.gguf"
    code=0
    "$1" info "$work/large.gguf" 2>"$work/error" || code=$?
    if [ $code -ne 4 ] || ! grep -q 'do not fit into the address space' "$work/error"; then
        echo "check-builds: 32-bit: a file of 5 GiB: exit $code: $(cat "$work/error")"
        failed=1
    fi
    # lstat fails where the type of a size has too few bits; a failure must not pass for an absent file.
    code=0
    "$1" convert tests/data/shakespeare-bytes.gguf -o "$work/large.gguf" --type q8_0 \
        >/dev/null 2>"$work/error" || code=$?
    if [ $code -ne 2 ] || ! grep -q -e '--force replaces it' "$work/error"; then
        echo "check-builds: 32-bit: an output of 5 GiB exists: exit $code: $(cat "$work/error")"
        failed=1
    fi
    code=0
    "$1" bench --shape 48x8192x64,ff=65536 -n 1 2>"$work/error" >/dev/null || code=$?
    if [ $code -ne 4 ] || ! grep -q 'out of memory' "$work/error"; then
        echo "check-builds: 32-bit: a model of 100 GiB: exit $code: $(cat "$work/error")"
        failed=1
    fi
    rm -r "$work"
}

for name in "$@"; do
    case $name in
    32-bit) set -- gcc -m32 -idirafter /usr/include/x86_64-linux-gnu ;;
    musl) set -- musl-gcc -static ;;
    lto) set -- gcc -flto ;;
    arm) set -- arm-linux-gnueabihf-gcc ;;
    clang*) set -- clang ;;
    gcc-O0 | gcc-Os | native | hardened) set -- gcc ;;
    *)
        echo "check-builds: $name is no build; see scripts/check/builds.sh"
        exit 2
        ;;
    esac
    # musl needs no check: can_link looks for asm/, which musl lacks and only a 32-bit build needs.
    if [ "$name" = musl ] && command -v musl-gcc >/dev/null; then
        :
    elif ! can_link "$@"; then
        echo "check-builds: $name: skipped: '$*' builds no programs here"
        continue
    fi
    case $name in
    32-bit) build "$name" gcc -O0 "" 32 ;;
    musl) build "$name" musl-gcc -O0 -static ;;
    clang-O0) build "$name" clang -O0 ;;
    gcc-O0) build "$name" gcc -O0 ;;
    clang-O3) build "$name" clang "" ;;
    gcc-Os) build "$name" gcc -Os ;;
    native) build "$name" gcc -march=native ;;
    clang-native) build "$name" clang -march=native ;;
    lto) build "$name" gcc -flto -flto "" gcc-ar ;;
    hardened)
        build "$name" gcc "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong"
        ;;
    arm) build "$name" arm-linux-gnueabihf-gcc -O2 -static release arm-linux-gnueabihf-ar ;;
    esac
    if [ "$name" = arm ]; then
        command -v qemu-arm >/dev/null || continue
        RUN=qemu-arm compare arm scalar
    else
        compare "$name"
        [ "$name" != 32-bit ] || refuse_large build/check-32-bit/decode
    fi
done
exit $failed
