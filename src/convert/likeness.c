#include "convert/likeness.h"

#include "convert/calibrate.h"
#include "convert/circuits.h"
#include "convert/converter.h"
#include "convert/groups.h"

/* A thread's share of the pairs. What `convert_group_heads` groups by, made visible. */
static void compare_head_pairs(void *arg, int thread)
{
    const struct converter *c = arg;
    const size_t n = c->config.n_heads;
    struct head_likeness *likeness = c->arg, *out = likeness + c->block.index * n * n;
    int at = 0;
    for (size_t i = 0; i < c->block.n_heads; i++)
        for (size_t j = i; j < c->block.n_heads; j++) {
            const int pair[] = {i, j};
            if (at++ % c->n_threads != thread)
                continue;
            out[i * n + j] = out[j * n + i] =
                i == j ? (struct head_likeness){1, 1}
                       : (struct head_likeness){
                             convert_energy_kept(c, &c->circuits.qk, pair, 2, thread),
                             convert_energy_kept(c, &c->circuits.ov, pair, 2, thread)};
        }
}

static enum status compare_blocks(struct converter *c, struct err *e)
{
    struct head_likeness *likeness = c->arg;
    const size_t size = (size_t)c->config.n_heads * c->config.n_heads;
    c->all = c->config.n_layers * (uint64_t)c->calib.n_windows;
    for (int b = 0; b < config_blocks(&c->config); b++) {
        convert_begin(c, b);
        TRY(convert_calibrate(c));
        convert_circuits_measure(c);
        pool_run(c->pool, compare_head_pairs, c);
        for (int l = c->block.index + 1; l < c->block.end; l++)
            memcpy(likeness + l * size, likeness, size * sizeof *likeness);
        TRY(convert_check_eigen(c, "", e));
    }
    return STATUS_OK;
}

enum status convert_likeness(const struct convert_spec *spec, const struct model *model,
                             struct head_likeness *out, struct err *e)
{
    struct convert_spec all_share = *spec;
    all_share.n_kv_heads = 1; /* the largest groups have room for pairs */
    all_share.measures_only = true;
    struct converter c;
    if (spec->n_tokens == 0)
        return err_usage(e, "heads can only be compared on text");
    TRY(convert_describe(&c, &all_share, NULL, e));
    c.model = model;
    c.arg = out;
    return convert_work(&c, compare_blocks, e);
}
