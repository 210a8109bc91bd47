/*
 * export_plan - which of transformers' models says the same as a checkpoint.
 */
#ifndef DECODE_EXCHANGE_EXPORT_PLAN_H
#define DECODE_EXCHANGE_EXPORT_PLAN_H

#include <stdbool.h>

#include "base/status.h"
#include "exchange/hf_config.h"
#include "gguf/gguf.h"

struct export_plan {
    const struct gguf *gguf;
    struct config from; /* the checkpoint's */
    struct config to;   /* the shape of what is written */
    struct hf_config hf;
};

/*
 * `expand`: K/V heads are repeated until there are as many as heads. STATUS_BAD_FILE for what does
 * not run here; STATUS_USAGE, naming why, for what transformers has no model for, and that expand
 * is missing.
 */
enum status export_plan_make(const struct gguf *g, bool expand, struct export_plan *out,
                             struct err *e);

#endif
