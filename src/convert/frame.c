#include "convert/private.h"

#include <math.h>

#include "model/config_keys.h"
#include "model/selection.h"

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
    TRY(config_needs_dot(&f, "fewer K/V heads", e));
    TRY(heads_check("--kv-heads", &f, numbers ? numbers : &spec->n_kv_heads,
                    numbers ? f.n_layers : 1, e));
    c->converted.n_kv_heads = numbers ? 0 : spec->n_kv_heads;
    for (int l = 0; l < f.n_layers; l++) {
        const int n = numbers ? numbers[l] : spec->n_kv_heads;
        if (numbers)
            c->converted.layer_kv_heads[l] = n;
        if (numbers && n > c->converted.n_kv_heads)
            c->converted.n_kv_heads = n;
        const size_t group = config_group(&c->converted, l);
        c->block.group = MAX(group, c->block.group);
    }
    const bool plain = spec->method == CONVERT_MEAN || spec->method == CONVERT_FIRST ||
                       spec->method == CONVERT_RANDOM;
    if (f.parts.qk_norms && !plain)
        return err_usage(
            e,
            "--method %s: expected convert's mean or first for a checkpoint that norms "
            "each head's query and key, which no map of them survives",
            convert_methods[spec->method]);
    if (f.parts.added_norms && spec->refit)
        return err_usage(e, "--refit wo: expected none for a checkpoint that norms what attention "
                            "adds, which is not linear in the output matrix");
    if (spec->cluster && f.position == POSITION_ALIBI)
        return err_usage(e, "heads cannot change places, because each has a slope of its own "
                            "(ALiBi); expected neighbours to share");
    if ((spec->n_tokens || spec->refit || spec->cache_bytes) && spec->n_tokens < CONVERT_MIN_TOKENS)
        return err_usage(e,
                         "calibration text: expected at least %d tokens, %d windows of which one "
                         "is held out, found %zu",
                         CONVERT_MIN_TOKENS, CONVERT_HELD_OUT_EVERY, spec->n_tokens);
    c->block.n_groups = c->converted.n_kv_heads;
    for (struct convert_circuit *s = c->circuits.at; s < c->circuits.at + 2; s++) {
        s->width = c->block.n_heads * s->dim;
        c->widest = MAX(s->width, c->widest);
    }
    return STATUS_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

void convert_allocate(struct converter *c)
{
    const size_t dim = MAX(c->circuits.qk.dim, c->circuits.ov.dim), d = c->d;
    convert_weights_size(c, &c->block.from, c->block.n_kv_heads);
    convert_weights_size(c, &c->block.to, c->block.n_groups);
    convert_weights_allocate(c, &c->block.from);
    convert_weights_allocate(c, &c->block.to);
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
    convert_groups_allocate(c);
    if (c->spec->n_tokens) {
        convert_calibration_allocate(c);
        convert_loading_allocate(c);
        convert_divergence_allocate(c);
    }
    if (c->spec->refit)
        convert_refit_allocate(c);
    ARENA_TAKE(c->out->layers, &c->out->arena, c->config.n_layers);
    convert_tensors_allocate(c);
}

/* Loads the checkpoint as a model, gets the memory, and starts the text's streams. */
static enum status open_described(struct converter *c, struct err *e)
{
    /* This also checks the shape of every tensor. */
    TRY(model_create(c->spec->gguf, &(struct model_options){.pool = c->spec->pool}, c->spec->source,
                     &c->model, e));
    convert_allocate(c);
    TRY(arena_allocate(&c->arena, "the conversion", e));
    TRY(arena_allocate(&c->out->arena, "the new tensors", e));
    convert_allocate(c);
    if (!c->spec->n_tokens)
        return STATUS_OK;
    TRY(convert_calibration_open(c, e));
    return convert_divergence_open(c, e);
}

enum status convert_open(struct converter *c, const struct convert_spec *spec, struct convert *out,
                         struct err *e)
{
    *out = (struct convert){.divergence = (double)NAN};
    TRY(convert_describe(c, spec, out, e));
    out->n_layers = c->config.n_layers;
    out->config = c->converted;
    const enum status s = open_described(c, e);
    if (s == STATUS_OK)
        return s;
    convert_close(c);
    convert_free(out);
    return s;
}

void convert_close(struct converter *c)
{
    session_free(c->divergence.session);
    probe_free(c->calib.probe);
    probe_free(c->calib.probe_converted);
    model_free(c->model);
    arena_free(&c->arena);
}

void convert_free(struct convert *c)
{
    gguf_writer_free(c->writer);
    arena_free(&c->arena);
    *c = (struct convert){.n_layers = 0};
}

/* --- a block's first steps ------------------------------------------------------------------- */

enum status convert_begin_block(struct converter *c, int block)
{
    TRY(convert_windows_done(c, 0));
    c->block.index = block;
    c->block.end = c->config.shared ? c->config.n_layers : block + 1;
    c->block.n_kv_heads = config_kv_heads(&c->config, block);
    c->block.n_groups = config_kv_heads(&c->converted, block);
    c->block.group = c->block.n_heads / c->block.n_groups;
    convert_weights_size(c, &c->block.from, c->block.n_kv_heads);
    convert_weights_size(c, &c->block.to, c->block.n_groups);
    convert_read(c);
    return STATUS_OK;
}

enum status convert_share(struct converter *c, struct err *e)
{
    struct convert_layer lost = {.score = 0};
    if (convert_keeps_heads(c)) {
        convert_keep(c);
    } else {
        convert_circuits_measure(c);
        TRY(convert_group_heads(c, e));
        convert_apply(c);
        lost.score = convert_loss(c, &c->circuits.qk);
        lost.output = convert_loss(c, &c->circuits.ov);
        TRY(convert_store(c, WEIGHT_Q, CONVERT_WEIGHTS, e));
    }
    convert_store_order(c);
    for (lost.layer = c->block.index; lost.layer < c->block.end; lost.layer++)
        c->out->layers[lost.layer] = lost;
    return STATUS_OK;
}
