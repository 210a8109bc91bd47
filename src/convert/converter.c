#include "convert/converter.h"

#include "convert/calibrate.h"
#include "convert/circuits.h"
#include "convert/divergence.h"
#include "convert/groups.h"
#include "convert/memory.h"
#include "convert/refit.h"
#include "convert/tensors.h"
#include "model/config_keys.h"

enum status convert_describe(struct converter *c, const struct convert_spec *spec,
                             struct convert *out, struct err *e)
{
    const int *numbers = spec->layer_kv_heads;
    struct config f;
    TRY(config_read(spec->gguf, &f, e));
    *c = (struct converter){
        .spec = spec,
        .pool = spec->pool,
        .n_threads = pool_n_threads(spec->pool),
        .out = out,
        .config = f,
        .converted = f,
        .d = f.d_model,
        .widest = f.d_model,
        .block = {.n_heads = f.n_heads, .n_kv_heads = f.n_kv_heads, .group = 1},
        .circuits = {
            .qk = {.own = WEIGHT_Q, .cached = WEIGHT_K, .dim = f.head_dim},
            .ov = {.own = WEIGHT_O, .cached = WEIGHT_V, .dim = config_value_dim(&f)},
        }};
    TRY(config_needs_dot(
        &f, spec->measures_only ? "the likeness of heads" : "conversion to fewer K/V heads", e));
    c->converted.n_kv_heads = numbers ? 0 : spec->n_kv_heads;
    for (int l = 0; l < f.n_layers; l++) {
        const int n = numbers ? numbers[l] : spec->n_kv_heads;
        const int own = numbers ? config_kv_heads(&f, l) : f.n_kv_heads;
        const int heads = config_heads(&f, l);
        if (n < 1 || n > own || heads % (numbers ? n : config_variant_heads(&f, n, l)) != 0)
            return err_usage(e,
                             "%d K/V heads: expected a divisor of the %d query heads, and no more "
                             "than there are, %d",
                             n, heads, own);
        if (f.shared && numbers && n != numbers[0])
            return err_usage(e, "all %d layers share one block: expected one number", f.n_layers);
        if (numbers)
            c->converted.layer_kv_heads[l] = n;
        if (numbers && n > c->converted.n_kv_heads)
            c->converted.n_kv_heads = n;
        const size_t group = config_group(&c->converted, l);
        c->block.group = MAX(group, c->block.group);
    }
    if (spec->cluster && f.position == POSITION_ALIBI)
        return err_usage(e, "heads cannot change places, because each has a slope of its own "
                            "(ALiBi); expected neighbours to share");
    if (!spec->measures_only && (spec->n_tokens || spec->refit || spec->cache_bytes) &&
        spec->n_tokens < CONVERT_MIN_TOKENS)
        return err_usage(e,
                         "calibration text: expected at least %d tokens, %d windows of which one "
                         "is held out, found %zu",
                         CONVERT_MIN_TOKENS, CONVERT_HELD_OUT_EVERY, spec->n_tokens);
    c->block.n_groups = c->converted.n_kv_heads;
    for (struct convert_circuit *s = c->circuits.at; s < c->circuits.at + 2; s++) {
        s->width = c->block.n_heads * s->dim;
        c->widest = MAX(s->width, c->widest);
    }
    if (convert_refits_block(c) && (size_t)f.d_ff > c->widest)
        c->widest = f.d_ff;
    return STATUS_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

void convert_memory_take(struct converter *c)
{
    const size_t dim = MAX(c->circuits.qk.dim, c->circuits.ov.dim), d = c->d;
    const enum convert_weight end = convert_refits_block(c) ? CONVERT_WEIGHTS : WEIGHT_UP;
    convert_weights_take(c, &c->block.from, c->block.n_kv_heads, WEIGHT_UP);
    convert_weights_take(c, &c->block.to, c->block.n_groups, end);
    c->calib.key_moments = convert_doubles(c, d, d);
    c->calib.value_moments = convert_doubles(c, d, d);
    c->calib.input_mean = convert_doubles(c, d, 1);
    for (struct convert_circuit *s = c->circuits.at; s < c->circuits.at + 2; s++) {
        const size_t kv = c->block.n_kv_heads * s->dim;
        s->mean = convert_doubles(c, kv, 1);
        s->new_mean = convert_doubles(c, kv, 1);
        s->gram = convert_doubles(c, kv, kv);
        s->metric = convert_doubles(c, s->width, s->dim);
        s->root = convert_doubles(c, s->width, s->dim);
        s->white = convert_doubles(c, s->width, s->width);
        s->map_cached = convert_doubles(c, s->width, s->dim);
        s->map_own = convert_doubles(c, s->width, s->dim);
    }
    c->scratch.square = convert_doubles(c, c->widest, d);
    c->scratch.square2 = convert_doubles(c, c->widest, d);
    c->scratch.blocks = convert_doubles(c, 5 * dim, dim);
    ARENA_TAKE(c->block.order, &c->arena, c->block.n_heads);
    ARENA_TAKE(c->block.group_of, &c->arena, c->block.n_heads);
    convert_groups_take(c);
    if (c->spec->n_tokens) {
        convert_calibration_take(c);
        convert_loading_take(c);
        if (!c->spec->measures_only)
            convert_divergence_take(c);
    }
    if (c->spec->refit)
        convert_refit_take(c);
    if (c->out) {
        ARENA_TAKE(c->out->layers, &c->out->arena, c->config.n_layers);
        convert_tensors_take(c);
    }
}

static enum status work_in_memory(struct converter *c, struct model **model,
                                  enum status (*work)(struct converter *c, struct err *e),
                                  struct err *e)
{
    if (!c->model) { /* its creation also checks every tensor's shape */
        TRY(model_create(c->spec->gguf, NULL, c->spec->source, model, e));
        c->model = *model;
    }
    convert_memory_take(c);
    TRY(arena_allocate(&c->arena, "the conversion", e));
    if (c->out)
        TRY(arena_allocate(&c->out->arena, "the new tensors", e));
    convert_memory_take(c);
    if (c->spec->n_tokens)
        TRY(convert_calibration_start(c, e));
    if (c->divergence)
        TRY(convert_divergence_start(c, e));
    return work(c, e);
}

enum status convert_work(struct converter *c,
                         enum status (*work)(struct converter *c, struct err *e), struct err *e)
{
    struct model *model = NULL;
    const enum status s = work_in_memory(c, &model, work, e);
    convert_divergence_stop(c);
    probe_free(c->calib.probe);
    probe_free(c->calib.probe_converted);
    model_free(model);
    arena_free(&c->arena);
    return s;
}

/* --- a block's first steps ------------------------------------------------------------------- */

void convert_begin(struct converter *c, int block)
{
    c->block.index = block;
    c->block.end = c->config.shared ? c->config.n_layers : block + 1;
    c->block.n_heads = config_heads(&c->config, block);
    for (struct convert_circuit *s = c->circuits.at; s < c->circuits.at + 2; s++)
        s->width = c->block.n_heads * s->dim;
    c->block.n_kv_heads = config_kv_heads(&c->config, block);
    c->block.n_groups = config_kv_heads(&c->converted, block);
    c->block.group = c->block.n_heads / c->block.n_groups;
    convert_weights_take(c, &c->block.from, c->block.n_kv_heads, WEIGHT_Q);
    convert_weights_take(c, &c->block.to, c->block.n_groups, WEIGHT_Q);
    convert_read(c);
}

enum status convert_share(struct converter *c, struct convert_layer *lost, struct err *e)
{
    convert_circuits_measure(c);
    TRY(convert_group_heads(c, e));
    convert_apply(c);
    TRY(convert_store(c, WEIGHT_Q, WEIGHT_O, e));
    if (lost) {
        lost->score = convert_loss(c, &c->circuits.qk);
        lost->output = convert_loss(c, &c->circuits.ov);
    }
    return STATUS_OK;
}
