#include "convert/convert.h"

#include "convert/apply.h"
#include "convert/calibrate.h"
#include "convert/fit.h"
#include "convert/group.h"
#include "convert/measure.h"
#include "convert/refit.h"
#include "convert/tensors.h"

/* --- memory ---------------------------------------------------------------------------------- */

static void take_work(struct converter *c, struct arena *arena)
{
    convert_work_take(c, arena);
    convert_group_take(c, arena);
    if (c->spec->n_tokens)
        convert_calibration_take(c, arena);
    if (convert_refits_block(c))
        c->rebuild = convert_rebuild_take(c, arena);
}

static void take_result(struct converter *c, struct arena *arena, struct convert *out)
{
    const uint64_t n_layers = (uint64_t)c->config.n_layers, n_heads = (uint64_t)c->config.n_heads;
    out->layers = arena_take(arena, n_layers, sizeof *out->layers);
    out->head_order = arena_take(arena, n_layers * n_heads, sizeof *out->head_order);
    convert_tensors_take(c, arena);
}

enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e)
{
    struct converter c;
    struct convert out;
    struct arena arena = {0};
    TRY(convert_work_describe(&c, spec, e));
    take_work(&c, &arena);
    take_result(&c, &arena, &out);
    if (arena.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the conversion needs more bytes than can be addressed");
    *bytes = arena.used;
    return STATUS_OK;
}

static enum status take_memory(struct converter *c, struct convert *out, struct err *e)
{
    take_work(c, &c->arena);
    take_result(c, &out->arena, out);
    enum status s = arena_allocate(&c->arena, "the conversion", e);
    if (s == STATUS_OK)
        s = arena_allocate(&out->arena, "the new tensors", e);
    if (s != STATUS_OK)
        return s;
    take_work(c, &c->arena);
    take_result(c, &out->arena, out);
    return STATUS_OK;
}

/* --- the conversion -------------------------------------------------------------------------- */

static enum status not_computed(int layer, struct err *e)
{
    return err_set(
        e, STATUS_FAILED,
        "layer %d: the eigenvalues of its attention cannot be computed: weights of attention "
        "or its norm are not finite or too large; the methods mean and first need none",
        layer);
}

/* `to` with its heads in the new order. */
static enum status convert_heads(struct converter *c, struct convert_layer *lost, struct err *e)
{
    convert_measure(c);
    if (!convert_group(c) || !convert_map(c))
        return not_computed(c->block, e);
    convert_apply(c);
    lost->score = convert_score_loss(c);
    lost->output = convert_output_loss(c);
    convert_permute(c);
    return convert_store_qkv(c, e);
}

/* Of the layers that use the block. */
static void note_order(const struct converter *c, int *head_order)
{
    const int n = c->config.n_heads;
    for (int l = c->first; l < c->end; l++)
        for (int h = 0; h < n; h++)
            head_order[l * n + h] = convert_keeps_heads(c) ? h : c->order[h];
}

/* One block, and what the layers that use it lose. */
static enum status convert_block(struct converter *c, struct convert *out, struct err *e)
{
    struct convert_layer lost = {.score = 0}, *layers = out->layers;
    convert_load(c);
    if (c->calibration)
        TRY(convert_calibrate(c));
    else
        convert_assume(c);
    if (convert_keeps_heads(c))
        convert_keep(c);
    else
        TRY(convert_heads(c, &lost, e));
    note_order(c, out->head_order);
    for (int l = c->first; l < c->end; l++)
        layers[l] = lost;
    if (c->spec->refit || !convert_keeps_heads(c))
        TRY(convert_store_out(c, e));
    if (c->spec->refit)
        TRY(convert_refit(c, c->rebuild, e));
    if (!c->calibration)
        return STATUS_OK;
    TRY(convert_advance(c));
    for (int l = c->first; l < c->end; l++)
        layers[l].output = c->lost[l - c->first];
    return STATUS_OK;
}

static enum status convert_blocks(struct converter *c, struct convert *out, struct err *e)
{
    if (c->calibration) {
        TRY(convert_calibration_start(c, e));
        c->windows_all = (uint64_t)c->config.n_layers *
                         (2 * (uint64_t)c->calibration->n_windows + convert_refit_windows(c));
    }
    for (int b = 0; b < config_blocks(&c->config); b++) {
        if (convert_is_stopped(c->spec))
            return STATUS_INTERRUPTED;
        convert_work_begin(c, b);
        TRY(convert_block(c, out, e));
    }
    return convert_write(c, &out->writer, &out->n_params_after, e);
}

static uint64_t elements_of(const struct gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        n += g->tensors[i].n_elements;
    return n;
}

enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    *out = (struct convert){.n_layers = 0};
    struct converter c;
    struct model *model;
    enum status s = convert_work_describe(&c, spec, e);
    if (s != STATUS_OK)
        return s;
    out->n_layers = c.config.n_layers;
    out->n_params_before = elements_of(spec->gguf);
    /* Also checks every tensor's shape. */
    s = model_create(spec->gguf, NULL, spec->source, &model, e);
    c.model = model;
    if (s == STATUS_OK)
        s = take_memory(&c, out, e);
    if (s == STATUS_OK)
        s = convert_blocks(&c, out, e);
    convert_calibration_end(&c);
    model_free(model);
    arena_free(&c.arena);
    if (s != STATUS_OK)
        convert_free(out);
    return s;
}

void convert_free(struct convert *c)
{
    gguf_writer_free(c->writer);
    arena_free(&c->arena);
    *c = (struct convert){.n_layers = 0};
}
