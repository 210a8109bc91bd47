#include "exchange/import_source.h"

enum status import_check_config(struct config *c, struct err *e)
{
    if (!c->head_dim && c->d_model % c->n_heads != 0)
        return err_set(e, STATUS_BAD_FILE, "%d heads: expected a divisor of the width, %d",
                       c->n_heads, c->d_model);
    config_complete(c);
    if (c->n_kv_heads > c->n_heads || c->n_heads % c->n_kv_heads != 0)
        return err_set(e, STATUS_BAD_FILE, "%d K/V heads: expected a divisor of the heads, %d",
                       c->n_kv_heads, c->n_heads);
    if (c->head_dim > CONFIG_MAX_WIDTH / c->n_heads)
        return err_set(e, STATUS_BAD_FILE, "heads of %d elements: expected at most %d for %d heads",
                       c->head_dim, CONFIG_MAX_WIDTH / c->n_heads, c->n_heads);
    if (c->position == POSITION_ROPE && c->head_dim % 2 != 0)
        return err_set(e, STATUS_BAD_FILE,
                       "heads of %d elements: expected an even number, for rotary positions",
                       c->head_dim);
    return STATUS_OK;
}
