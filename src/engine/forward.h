/*
 * forward - a batch of rows through the layers of a model.
 */
#pragma once

#include "engine/private.h"

/* Takes or counts (see base/mem.h) the memory of a workspace whose max_rows and max_threads are
 * set, for caches of up to `cap` positions a sequence; rope_factors as in positions_take. */
void workspace_take(struct workspace *w, struct arena *a, const struct config *c,
                    const float *rope_factors, int cap);

/* Runs n <= work.max_rows rows through the layers, which changes work.x, the residual stream
 * [n, d_model], and the cache; returns how many rows wanted logits. */
int forward_run(struct forward *f, const struct batch_row *rows, int n);
