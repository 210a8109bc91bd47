/*
 * machine - how fast this machine reads and multiplies, measured when it is first asked for.
 */
#ifndef DECODE_MEASURE_MACHINE_H
#define DECODE_MEASURE_MACHINE_H

#include <stdint.h>

#include "base/status.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "compute/roofline.h"

/* Borrows the kernels and the pool (NULL: one thread); the rest is zeroed at first. */
struct machine {
    const struct kernels *kernels;
    struct pool *pool;
    double fma_flops_per_s, dot_flops_per_s;
    double bytes_per_s[64]; /* by the binary logarithm of the bytes, rounded up */
};

/*
 * The limits of the pool's threads on a step that reads so many bytes: measured at the next power
 * of two, once for each, which takes a fraction of a second; from a power on that is beyond every
 * processor's caches all are the same. STATUS_NO_MEMORY.
 */
enum status machine_limits(struct machine *m, uint64_t bytes, struct roofline *out, struct err *e);

#endif
