#include "convert/convert.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "convert/apply.h"
#include "convert/calibrate.h"
#include "convert/distance.h"
#include "convert/fit.h"
#include "convert/group.h"
#include "convert/latent.h"
#include "convert/measure.h"
#include "convert/ranks.h"
#include "convert/refit.h"
#include "convert/tensors.h"

/* --- memory ---------------------------------------------------------------------------------- */

static void take_work(struct converter *c, struct arena *arena)
{
    convert_work_take(c, arena);
    convert_group_take(c, arena);
    if (c->spec->n_tokens) {
        convert_calibration_take(c, arena);
        c->distance = convert_distance_take(c, arena);
    }
    if (convert_is_latent(c))
        convert_latent_take(c, arena);
    else if (convert_refits_block(c))
        c->rebuild = convert_rebuild_take(c, arena);
}

static void take_result(struct converter *c, struct arena *arena, struct convert *out)
{
    const uint64_t n_layers = (uint64_t)c->config.n_layers, n_heads = (uint64_t)c->config.n_heads;
    out->layers = arena_take(arena, n_layers, sizeof *out->layers);
    out->head_order = arena_take(arena, n_layers * n_heads, sizeof *out->head_order);
    convert_tensors_take(c, arena);
}

/* With room for a second result if two are compared. */
static enum status plan_once(const struct convert_spec *spec, size_t *bytes, struct err *e)
{
    struct converter c;
    struct convert out;
    struct arena arena = {0};
    TRY(convert_work_describe(&c, spec, e));
    take_work(&c, &arena);
    take_result(&c, &arena, &out);
    if (spec->cache_bytes && !c.config.shared)
        take_result(&c, &arena, &out);
    if (arena.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the conversion needs more bytes than can be addressed");
    *bytes = arena.used;
    return STATUS_OK;
}

enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e)
{
    int ranks[CONFIG_MAX_LAYERS];
    struct config config;
    struct convert_spec one = *spec;
    size_t choice;
    if (!spec->cache_bytes)
        return plan_once(spec, bytes, e);
    TRY(config_read(spec->gguf, &config, e));
    one.latent = ranks;
    TRY(convert_equal_ranks(spec, &config, ranks, e));
    TRY(plan_once(&one, bytes, e));
    if (config.shared)
        return STATUS_OK;
    TRY(convert_ranks_plan(spec, &config, &choice, e));
    *bytes = choice > *bytes ? choice : *bytes;
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

/* `to` with its heads in the new order. */
static enum status convert_heads(struct converter *c, struct convert_layer *lost, struct err *e)
{
    convert_measure(c);
    if (!convert_group(c) || !convert_map(c))
        return convert_diverged(c, "; the methods mean and first need none", e);
    convert_apply(c);
    lost->score = convert_score_loss(c);
    lost->output = convert_output_loss(c);
    convert_permute(c);
    return convert_store_qkv(c, e);
}

/* The same block with the mean of each group of neighbours, over the windows kept aside. */
static enum status convert_plainly(struct converter *c, struct err *e)
{
    const struct convert_spec *wanted = c->spec;
    struct convert_spec plain = *wanted;
    plain.method = CONVERT_MEAN;
    plain.cluster = false;
    if (!convert_keeps_heads(c)) {
        c->spec = &plain;
        const bool mapped = convert_group(c) && convert_map(c);
        convert_apply(c);
        c->spec = wanted;
        assert(mapped); /* neither solves anything */
        (void)mapped;
        TRY(convert_store_qkv(c, e));
    }
    return convert_advance_plain(c);
}

static enum status convert_to_latent(struct converter *c, struct convert_layer *lost, struct err *e)
{
    convert_measure(c);
    if (!convert_latent_fit(c))
        return convert_diverged(c, "", e);
    const int rank = config_latent(&c->converted, c->block);
    convert_latent_losses(c, rank, &lost->score, &lost->output);
    return convert_store_latent(c, rank, e);
}

/* Of the layers that use the block. */
static void note_order(const struct converter *c, int *head_order)
{
    const int n = c->config.n_heads;
    for (int l = c->first; l < c->end; l++)
        for (int h = 0; h < n; h++)
            head_order[l * n + h] = c->order[h];
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
    if (convert_has_plain(c))
        TRY(convert_plainly(c, e));
    if (convert_is_latent(c))
        TRY(convert_to_latent(c, &lost, e));
    else if (convert_keeps_heads(c))
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
    TRY(convert_advance(c, e));
    for (int l = c->first; l < c->end; l++)
        layers[l].output = c->lost[l - c->first];
    return STATUS_OK;
}

/* Of the whole, in nats a token, and of plain means. */
static enum status measure_divergence(struct converter *c, struct convert *out, struct err *e)
{
    const struct convert_calibration *k = c->calibration;
    const int n_layers = c->config.n_layers;
    int windows[CONVERT_MEASURED];
    const int n = convert_measured_windows(k, windows);
    out->divergence = out->plain_divergence = 0;
    enum status s = convert_distance_start(c, c->distance, e);
    for (int i = 0; i < n && s == STATUS_OK; i++) {
        const int w = windows[i], length = convert_window_length(c, w);
        s = convert_distance_reference(c->distance, n_layers, convert_window(c, k->stream, w),
                                       length, e);
        if (s == STATUS_OK)
            s = convert_distance_add(c->distance, n_layers, convert_window(c, k->stream2, w),
                                     length, &out->divergence, e);
        if (s == STATUS_OK && k->plain)
            s = convert_distance_add(c->distance, n_layers, convert_plain_window(c, w), length,
                                     &out->plain_divergence, e);
    }
    out->divergence /= n;
    out->plain_divergence = k->plain ? out->plain_divergence / n : out->divergence;
    convert_distance_end(c->distance);
    return s;
}

static uint64_t elements_of(const struct gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        n += g->tensors[i].n_elements;
    return n;
}

/* Elements of an output matrix that is the embedding once more. */
static uint64_t written_twice(const struct gguf *g)
{
    const struct gguf_tensor *output =
        gguf_find_tensor(g, arch_tensor_name(ROLE_OUTPUT, 0, false).text);
    return output && layout_output_tied(g) ? output->n_elements : 0;
}

static enum status convert_blocks(struct converter *c, struct convert *out, struct err *e)
{
    if (c->calibration) {
        TRY(convert_calibration_start(c, e));
        const uint64_t n = (uint64_t)c->calibration->n_windows;
        const uint64_t plain = convert_has_plain(c) ? n / CONVERT_JUDGED : 0;
        c->windows_all = (uint64_t)c->config.n_layers * (2 * n + plain + convert_refit_windows(c));
    }
    for (int b = 0; b < config_blocks(&c->config); b++) {
        if (convert_is_stopped(c->spec))
            return STATUS_INTERRUPTED;
        convert_work_begin(c, b);
        TRY(convert_block(c, out, e));
    }
    if (c->calibration)
        TRY(measure_divergence(c, out, e));
    TRY(convert_write(c, &out->writer, &out->n_params_after, e));
    out->n_params_after -= written_twice(c->spec->gguf);
    return STATUS_OK;
}

static enum status run_once(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    *out = (struct convert){.divergence = (double)NAN, .plain_divergence = (double)NAN};
    struct converter c;
    struct model *model;
    enum status s = convert_work_describe(&c, spec, e);
    if (s != STATUS_OK)
        return s;
    out->n_layers = c.config.n_layers;
    out->config = c.converted;
    out->n_params_before = elements_of(spec->gguf) - written_twice(spec->gguf);
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

/* Of two, the one whose predictions are nearer to the checkpoint's. */
static void keep_better(struct convert *out, struct convert *other)
{
    struct convert worse = *other;
    if (other->divergence < out->divergence) {
        worse = *out;
        *out = *other;
    }
    convert_free(&worse);
}

/* The ranks that do best layer by layer, and, if these are others, equal ones. */
static enum status run_best_ranks(const struct convert_spec *spec, struct convert *out,
                                  struct err *e)
{
    int equal[CONFIG_MAX_LAYERS], best[CONFIG_MAX_LAYERS];
    struct config config;
    struct convert_spec one = *spec;
    struct convert other;
    TRY(config_read(spec->gguf, &config, e));
    TRY(convert_equal_ranks(spec, &config, equal, e));
    TRY(convert_best_ranks(spec, &config, best, e));
    one.latent = equal;
    TRY(run_once(&one, out, e));
    if (memcmp(equal, best, (size_t)config.n_layers * sizeof *best) == 0)
        return STATUS_OK;
    one.latent = best;
    const enum status s = run_once(&one, &other, e);
    if (s == STATUS_OK)
        keep_better(out, &other);
    else
        convert_free(out);
    return s;
}

enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    *out = (struct convert){.n_layers = 0};
    return spec->cache_bytes ? run_best_ranks(spec, out, e) : run_once(spec, out, e);
}

void convert_free(struct convert *c)
{
    gguf_writer_free(c->writer);
    arena_free(&c->arena);
    *c = (struct convert){.n_layers = 0};
}
