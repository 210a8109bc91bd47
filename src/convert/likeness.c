/*
 * How well heads could share, two by two: what `convert_group` groups by, made visible. A latent
 * cache is looked at as the keys and values of the heads that it stands for.
 */
#include <string.h>

#include "convert/private.h"

struct comparing {
    struct converter *c;
    struct head_likeness *kept; /* [n_heads, n_heads] */
};

/* A thread's share of the pairs. */
static void compare_pairs(void *arg, int thread)
{
    const struct comparing *job = arg;
    const struct converter *c = job->c;
    struct convert_eigen *eigen = &c->eigen[thread];
    const int n = c->n_heads, n_threads = pool_n_threads(c->spec->pool);
    int at = 0;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            const int pair[] = {i, j};
            if (at++ % n_threads != thread)
                continue;
            job->kept[i * n + j] = job->kept[j * n + i] = (struct head_likeness){
                convert_kept(&c->qk, pair, 2, eigen), convert_kept(&c->ov, pair, 2, eigen)};
        }
}

static enum status compare_blocks(struct converter *c, struct head_likeness *kept, struct err *e)
{
    const size_t n = c->n_heads, size = n * n;
    TRY(arena_allocate(&c->arena, "the comparison of heads", e));
    convert_take(c, &c->arena);
    TRY(convert_calibration_start(c, e));
    c->text.all = c->config.n_layers * (uint64_t)c->text.n_windows;
    for (int b = 0; b < config_blocks(&c->config); b++) {
        struct comparing job = {c, kept + b * size};
        convert_begin(c, b);
        TRY(convert_calibrate(c));
        convert_measure(c);
        for (size_t h = 0; h < n; h++)
            job.kept[h * n + h] = (struct head_likeness){1, 1};
        pool_run(c->spec->pool, compare_pairs, &job);
        for (int l = c->first + 1; l < c->end; l++)
            memcpy(kept + l * size, job.kept, size * sizeof *kept);
        TRY(convert_check_eigen(c, "", e));
    }
    return STATUS_OK;
}

enum status convert_likeness(const struct convert_spec *spec, const struct model *model,
                             struct head_likeness *kept, struct err *e)
{
    struct convert_spec all_share = *spec;
    all_share.n_kv_heads = 1; /* the largest groups have room for pairs */
    all_share.measures_only = true;
    struct converter c;
    if (spec->n_tokens == 0)
        return err_set(e, STATUS_USAGE, "heads can only be compared on text");
    TRY(convert_describe(&c, &all_share, e));
    c.model = model;
    convert_take(&c, &c.arena);
    const enum status s = compare_blocks(&c, kept, e);
    convert_calibration_end(&c);
    arena_free(&c.arena);
    return s;
}
