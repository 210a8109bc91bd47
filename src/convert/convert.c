#include "convert/convert.h"

#include <math.h>

#include "convert/budget.h"
#include "convert/calibrate.h"
#include "convert/circuits.h"
#include "convert/converter.h"
#include "convert/divergence.h"
#include "convert/memory.h"
#include "convert/refit.h"
#include "convert/tensors.h"

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
    convert_memory_take(&c);
    *bytes = c.arena.used + result.arena.used;
    if (spec->cache_bytes) /* two results are compared */
        *bytes += result.arena.used;
    if (c.arena.overflow || result.arena.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the conversion needs more bytes than can be addressed");
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* The block in work, with what its layers lose before text goes through it. */
static enum status convert_block(struct converter *c, struct convert_layer *lost, struct err *e)
{
    const bool keeps = convert_keeps_heads(c);
    if (keeps)
        convert_keep(c);
    else
        TRY(convert_share(c, lost, e));
    convert_store_order(c);
    if (c->spec->refit || !keeps)
        TRY(convert_store(c, WEIGHT_O, WEIGHT_UP, e));
    return c->spec->refit ? convert_refit(c, e) : STATUS_OK;
}

/* Converts block by block, each with what the layers that use it lose, and writes the result. */
static enum status convert_blocks(struct converter *c, struct err *e)
{
    const struct convert_spec *spec = c->spec;
    const int n_layers = c->config.n_layers, n_blocks = config_blocks(&c->config);
    double sum = 0;
    c->all = n_layers * (2 * (uint64_t)c->calib.n_windows + convert_refit_windows(c));
    for (int b = 0; b < n_blocks; b++) {
        struct convert_layer lost = {
            .own = (double)NAN, .own_first = (double)NAN, .gathered = (double)NAN};
        TRY(convert_windows_done(c, 0));
        convert_begin(c, b);
        TRY(convert_calibrate(c));
        TRY(convert_block(c, &lost, e));
        for (int l = b; l < c->block.end; l++) {
            c->out->layers[l] = lost;
            c->out->layers[l].layer = l;
        }
        if (spec->n_tokens)
            TRY(convert_advance(c, e));
    }
    for (int i = 0; i < convert_divergence_windows(c); i++) {
        const struct convert_window win = convert_divergence_window(c, i);
        TRY(convert_divergence_add(c, n_layers, win.n, win.original, NULL, e));
        TRY(convert_divergence_add(c, n_layers, win.n, win.converted, &sum, e));
    }
    if (spec->n_tokens)
        c->out->divergence = sum / convert_divergence_windows(c);
    return convert_write(c, e);
}

static enum status run_once(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    struct converter c;
    *out = (struct convert){.divergence = (double)NAN};
    TRY(convert_describe(&c, spec, out, e));
    out->n_layers = c.config.n_layers;
    out->config = c.converted;
    const enum status s = convert_work(&c, convert_blocks, e);
    if (s != STATUS_OK)
        convert_free(out);
    return s;
}

/* For so many bytes with the K/V heads that do best layer by layer, and with equal numbers of them,
 * of which the result nearer to the checkpoint's predictions is kept. */
enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    struct convert_spec one = *spec;
    struct convert_budget budget;
    struct convert other = {.n_layers = 0};
    *out = other;
    if (!spec->cache_bytes)
        return run_once(spec, out, e);
    TRY(convert_budget_plan(&budget, spec, e));
    TRY(convert_budget_choose(&budget, e));
    one.layer_kv_heads = budget.equal;
    TRY(run_once(&one, out, e));
    if (memcmp(budget.equal, budget.chosen, out->n_layers * sizeof *budget.equal) == 0)
        return STATUS_OK;
    one.layer_kv_heads = budget.chosen;
    const enum status s = run_once(&one, &other, e);
    if (s == STATUS_OK && other.divergence < out->divergence) {
        const struct convert worse = *out;
        *out = other;
        other = worse;
    }
    convert_free(&other);
    if (s != STATUS_OK)
        convert_free(out);
    return s;
}
