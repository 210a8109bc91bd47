#include "convert/convert.h"

#include "convert/private.h"

enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e)
{
    struct convert_spec one = *spec;
    struct converter c;
    struct convert_budget budget;
    struct convert result = {.n_layers = 0};
    if (spec->cache_bytes) {
        TRY(convert_budget_plan(&budget, spec, e));
        one.layer_kv_heads = budget.equal;
    }
    TRY(convert_describe(&c, &one, &result, e));
    convert_allocate(&c);
    *bytes = c.arena.used + result.arena.used;
    if (spec->cache_bytes) /* two results are compared */
        *bytes += result.arena.used;
    if (c.arena.overflow || result.arena.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the conversion needs more bytes than can be addressed");
    return STATUS_OK;
}

/* --- one conversion --------------------------------------------------------------------------- */

/* Converts block by block, and, if there is text, follows it through the converted layers. */
static enum status convert_blocks(struct converter *c, struct err *e)
{
    const int n_blocks = config_blocks(&c->config);
    c->all = c->config.n_layers * (2 * (uint64_t)c->calib.n_windows + convert_refit_windows(c));
    for (int b = 0; b < n_blocks; b++) {
        TRY(convert_begin_block(c, b));
        TRY(convert_calibrate(c));
        TRY(convert_share(c, e));
        TRY(convert_refit(c, e));
        TRY(convert_advance(c, e));
    }
    return STATUS_OK;
}

/* How far the converted model's predictions are from the checkpoint's, behind all layers. */
static enum status compare_predictions(struct converter *c, struct err *e)
{
    const int n = c->divergence.n_windows;
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const struct convert_window win = convert_window_at(c, c->divergence.windows[i]);
        TRY(convert_divergence_add(c, c->config.n_layers, win.n, win.original, win.converted, &sum,
                                   e));
    }
    if (n > 0)
        c->out->divergence = sum / n;
    return STATUS_OK;
}

static enum status convert_once(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    struct converter c;
    TRY(convert_open(&c, spec, out, e));
    enum status s = convert_blocks(&c, e);
    if (s == STATUS_OK)
        s = compare_predictions(&c, e);
    if (s == STATUS_OK)
        s = convert_write(&c, e);
    convert_close(&c);
    if (s != STATUS_OK)
        convert_free(out);
    return s;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* Converts to at most so many bytes: with the K/V heads that do best layer by layer, and with equal
 * numbers of them. Keeps the result that is nearer to the checkpoint's predictions. */
static enum status convert_to_budget(const struct convert_spec *spec, struct convert *out,
                                     struct err *e)
{
    struct convert_spec one = *spec;
    struct convert_budget budget;
    struct convert chosen;
    TRY(convert_budget_plan(&budget, spec, e));
    TRY(convert_budget_choose(&budget, e));
    one.layer_kv_heads = budget.equal;
    TRY(convert_once(&one, out, e));
    if (memcmp(budget.equal, budget.chosen, out->n_layers * sizeof *budget.equal) == 0)
        return STATUS_OK;
    one.layer_kv_heads = budget.chosen;
    const enum status s = convert_once(&one, &chosen, e);
    const bool is_nearer = s == STATUS_OK && chosen.divergence < out->divergence;
    if (s != STATUS_OK || is_nearer)
        convert_free(out);
    else
        convert_free(&chosen);
    if (is_nearer)
        *out = chosen;
    return s;
}

enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    *out = (struct convert){.n_layers = 0};
    return spec->cache_bytes ? convert_to_budget(spec, out, e) : convert_once(spec, out, e);
}

enum status convert_model(const struct convert *converted, const struct model_options *how,
                          struct model **out, struct err *e)
{
    unsigned char *bytes = NULL;
    struct gguf *gguf = NULL;
    size_t len = 0;
    enum status s = gguf_write_memory(converted->writer, &bytes, &len, e);
    if (s == STATUS_OK)
        s = gguf_parse(bytes, len, &gguf, e);
    if (s == STATUS_OK)
        s = model_create(gguf, how, NULL, out, e);
    gguf_free(gguf);
    free(bytes);
    return s;
}
