/*
 * import_source - what the reader of another format tells of a checkpoint: its config, and where
 * the rows of each tensor are.
 *
 * A reader's struct has this as its first member. It borrows the bytes of its files.
 */
#ifndef DECODE_EXCHANGE_IMPORT_SOURCE_H
#define DECODE_EXCHANGE_IMPORT_SOURCE_H

#include <stdbool.h>

#include "base/status.h"
#include "exchange/view.h"
#include "model/layout.h"

struct import_source {
    struct config config; /* complete; the importer may lower n_ctx before it asks for tensors */
    /*
     * What a tensor of layout_at(&config, ...) is made of: parts and cols, whose rows are the
     * spec's (fewer of the position embedding than there are, if n_ctx was lowered). *found is
     * false, and *out left alone, if the checkpoint has none; the importer knows which it needs.
     * STATUS_BAD_FILE names the tensor, what was expected and found.
     */
    enum status (*tensor)(const struct import_source *s, const struct tensor_spec *spec,
                          struct view *out, bool *found, struct err *e);
};

/*
 * Completes a config whose sizes are each within the bounds of model/config.h, and checks that they
 * fit one another: STATUS_BAD_FILE names them. To be called before anything is made of it.
 */
enum status import_check_config(struct config *c, struct err *e);

#endif
