/*
 * calibrate - whether several threads pay for a model on this machine.
 *
 * A step hands work over some dozens of times. Where that is slow (hyperthreads of a busy core,
 * virtual machines) a small model is faster on one thread; no result depends on the choice.
 */
#ifndef DECODE_ENGINE_AUTOTHREADS_H
#define DECODE_ENGINE_AUTOTHREADS_H

#include <stdbool.h>

#include "compute/pool.h"
#include "engine/session.h"

/*
 * Times steps of n_rows >= 1 rows, or somewhat fewer, of an empty session that was created with
 * `pool`, with it and without, and says whether one thread is clearly faster. A model whose step
 * takes longer than any hand-over is not timed further. The session is left empty and with `pool`;
 * its logits are lost.
 */
bool calibrate_prefers_one_thread(struct session *s, struct pool *pool, int n_rows);

#endif
