#!/bin/sh
# neon.sh DECODE - cross-builds for AArch64 into build/neon and runs that under emulation: the NEON
# kernels, with and without the dot product, and the scalar ones must give the bits of DECODE, the native
# program. Where the compiler or the emulator is missing, says so and does what is possible without it.
set -eu

native=$1
cross=build/neon/decode
prefix=aarch64-linux-gnu-

if ! command -v ${prefix}gcc >/dev/null; then
    echo "check-neon: skipped: ${prefix}gcc is not installed, so nothing was built for AArch64"
    exit 0
fi

# Static, so that the emulator needs no AArch64 libraries.
${MAKE:-make} --no-print-directory MODE=release BUILD=build/neon CC=${prefix}gcc \
    AR=${prefix}ar CFLAGS= LDFLAGS=-static $cross
echo "check-neon: built $cross"

if ! command -v qemu-aarch64 >/dev/null; then
    echo "check-neon: skipped: qemu-aarch64 is not installed, so $cross was built and not run"
    exit 0
fi

if ! qemu-aarch64 $cross --version | grep -q '^used .*neon$'; then
    echo "check-neon: NEON is not what $cross chooses:"
    qemu-aarch64 $cross --version
    exit 1
fi
RUN=qemu-aarch64 scripts/check/same_bits.sh check-neon "$native" $cross neon scalar
