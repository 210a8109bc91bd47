/*
 * ranks - which ranks the layers' latent caches have, for so many bytes in all.
 */
#ifndef DECODE_CONVERT_RANKS_H
#define DECODE_CONVERT_RANKS_H

#include "convert/spec.h"

/* Ranks are multiples of it. */
#define CONVERT_RANK_STEP 16

/* The same rank in every layer, [n_layers], the largest for which a token takes at most
 * spec->cache_bytes of F32. STATUS_USAGE if there is none. */
enum status convert_equal_ranks(const struct convert_spec *spec, const struct config *config,
                                int *ranks, struct err *e);

/*
 * The ranks [n_layers] whose sum of divergences is least: of each layer alone, all others as they
 * are, from the checkpoint's predictions on some calibration windows. Dynamic programming over the
 * sum of ranks; none is more than three times the equal one. Where layers share one block that.
 * The failures of convert_run.
 */
enum status convert_best_ranks(const struct convert_spec *spec, const struct config *config,
                               int *ranks, struct err *e);

/* Bytes that convert_best_ranks takes. */
enum status convert_ranks_plan(const struct convert_spec *spec, const struct config *config,
                               size_t *bytes, struct err *e);

#endif
