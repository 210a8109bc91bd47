/*
 * machine - how fast some threads of this machine read and multiply; all predictions stand on it.
 *
 * The bandwidth is one function of the bytes that a step reads, and never rises with them. It is
 * measured once at powers of two; a step has that of the next larger one.
 */
#pragma once

#include "base/status.h"
#include "compute/kernels.h"
#include "compute/pool.h"
#include "model/cost.h"

/* Sizes are powers of two up to 512 MiB: more than processors' caches have, so that larger ones are
 * read no slower. */
#define MACHINE_POWERS 30

/* Figures of one pool of threads; zeroed at first. */
struct machine {
    double fma_flops_per_s, dot_flops_per_s;
    double bytes_per_s[MACHINE_POWERS]; /* by the bytes' power of two; 0: not measured */
    bool wanted[MACHINE_POWERS];        /* whether it is to be measured */
    double cpu_share; /* of the threads' time that they had the processors while it was measured:
                         where it is low, the figures are those of a machine that was busy */
};

/* Asks for the limits of a step that reads so many bytes. */
void machine_want(struct machine *m, uint64_t bytes);

/* Measures what is wanted with the pool's threads (NULL: one), each limit for at most `seconds`.
 * Beside other work all are measured again, and the best of each is kept. STATUS_NO_MEMORY. */
enum status machine_measure(struct machine *m, const struct kernels *k, struct pool *pool,
                            double seconds, struct err *e);

/* The limits of a step that reads so many bytes, which were wanted and measured. */
struct roofline machine_limits(const struct machine *m, uint64_t bytes);

/* Raises the limits of a step that reads so many bytes to `to`, which such a step was seen to
 * reach, and the bandwidth of steps that read fewer to no less. */
void machine_raise(struct machine *m, uint64_t bytes, const struct roofline *to);
