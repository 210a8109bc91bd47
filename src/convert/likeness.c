#include "convert/likeness.h"

#include <stdlib.h>
#include <string.h>

#include "convert/calibrate.h"
#include "convert/expand.h"
#include "convert/fit.h"
#include "convert/measure.h"
#include "convert/tensors.h"

struct comparing {
    struct converter *c;
    struct head_likeness *kept; /* [n_heads, n_heads] */
};

/* A thread's share of the pairs. */
static void compare_pairs(void *arg, int thread)
{
    const struct comparing *job = arg;
    struct converter *c = job->c;
    const int n = c->n_heads, n_threads = pool_n_threads(c->spec->pool);
    int at = 0;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            const int pair[] = {i, j};
            if (at++ % n_threads != thread)
                continue;
            job->kept[i * n + j] = job->kept[j * n + i] = (struct head_likeness){
                convert_kept(c, &c->qk, pair, 2, &c->eigen[thread], &c->diverged[thread]),
                convert_kept(c, &c->ov, pair, 2, &c->eigen[thread], &c->diverged[thread])};
        }
}

/* The layers of the block in work. */
static enum status compare_block(struct converter *c, struct head_likeness *kept, struct err *e)
{
    const size_t size = (size_t)c->n_heads * (size_t)c->n_heads;
    struct comparing job = {c, kept + (size_t)c->first * size};
    convert_load(c);
    TRY(convert_calibrate(c));
    convert_measure(c);
    for (int h = 0; h < c->n_heads; h++)
        job.kept[h * c->n_heads + h] = (struct head_likeness){1, 1};
    pool_run(c->spec->pool, compare_pairs, &job);
    for (int l = c->first + 1; l < c->end; l++)
        memcpy(kept + (size_t)l * size, job.kept, size * sizeof *kept);
    if (convert_any_diverged(c))
        return convert_diverged(c, "", e);
    return STATUS_OK;
}

static void take_memory(struct converter *c)
{
    convert_work_take(c, &c->arena);
    convert_calibration_take(c, &c->arena);
}

static enum status compare_blocks(struct converter *c, struct head_likeness *kept, struct err *e)
{
    TRY(convert_calibration_start(c, e));
    c->windows_all = (uint64_t)c->config.n_layers * (uint64_t)c->calibration->n_windows;
    for (int b = 0; b < config_blocks(&c->config); b++) {
        convert_work_begin(c, b);
        TRY(compare_block(c, kept, e));
    }
    return STATUS_OK;
}

static enum status compare_heads(const struct convert_spec *spec, const struct model *model,
                                 struct head_likeness *kept, struct err *e)
{
    const struct convert_spec all_share = {
        .gguf = spec->gguf,
        .source = spec->source,
        .n_kv_heads = 1, /* the largest groups have room for pairs */
        .tokens = spec->tokens,
        .n_tokens = spec->n_tokens,
        .measures_only = true,
        .kernels = spec->kernels,
        .pool = spec->pool,
        .stop = spec->stop,
        .progress = spec->progress,
        .arg = spec->arg,
    };
    struct converter c;
    if (spec->n_tokens == 0)
        return err_set(e, STATUS_USAGE, "heads can only be compared on text");
    TRY(convert_work_describe(&c, &all_share, e));
    c.model = model;
    take_memory(&c);
    enum status s = arena_allocate(&c.arena, "the comparison of heads", e);
    if (s == STATUS_OK) {
        take_memory(&c);
        s = compare_blocks(&c, kept, e);
        convert_calibration_end(&c);
    }
    arena_free(&c.arena);
    return s;
}

/* Those of a latent cache are compared as the heads that it stands for. */
static enum status compare_expanded(const struct convert_spec *spec, struct head_likeness *kept,
                                    struct err *e)
{
    struct convert_spec expanded = *spec;
    unsigned char *bytes;
    size_t len = 0;
    struct gguf *g = NULL;
    struct model *model = NULL;
    TRY(convert_expand(spec->gguf, &bytes, &len, e));
    enum status s = gguf_parse(bytes, len, &g, e);
    if (s == STATUS_OK)
        s = model_create(g, NULL, NULL, &model, e);
    expanded.gguf = g;
    expanded.source = NULL;
    if (s == STATUS_OK)
        s = compare_heads(&expanded, model, kept, e);
    model_free(model);
    gguf_free(g);
    free(bytes);
    return s;
}

enum status convert_likeness(const struct convert_spec *spec, const struct model *model,
                             struct head_likeness *kept, struct err *e)
{
    return config_is_latent(&model->config) ? compare_expanded(spec, kept, e)
                                            : compare_heads(spec, model, kept, e);
}
