#include "convert/ranks.h"

#include <math.h>
#include <string.h>

#include "convert/distance.h"
#include "convert/latent.h"
#include "convert/measure.h"
#include "convert/tensors.h"

/* Times the equal rank that a layer's may be. */
#define MOST_TIMES 3

/* In steps of rank. */
static int all_steps(const struct convert_spec *spec)
{
    const size_t n = spec->cache_bytes / sizeof(float) / CONVERT_RANK_STEP;
    return n < CONFIG_MAX_LAYERS * (CONFIG_MAX_WIDTH / CONVERT_RANK_STEP)
               ? (int)n
               : CONFIG_MAX_LAYERS * (CONFIG_MAX_WIDTH / CONVERT_RANK_STEP);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int equal_steps(const struct convert_spec *spec, const struct config *config)
{
    return smaller(all_steps(spec) / config->n_layers, config->d_model / CONVERT_RANK_STEP);
}

/* The most that a layer may have. */
static int most_steps(const struct convert_spec *spec, const struct config *config)
{
    const int left = all_steps(spec) - (config->n_layers - 1);
    const int times = MOST_TIMES * equal_steps(spec, config);
    return smaller(smaller(left, times), config->d_model / CONVERT_RANK_STEP);
}

enum status convert_equal_ranks(const struct convert_spec *spec, const struct config *config,
                                int *ranks, struct err *e)
{
    const int steps = equal_steps(spec, config);
    if (steps < 1)
        return err_set(e, STATUS_USAGE,
                       "%zu cache bytes a token: expected at least %zu, for rank %d in each of %d "
                       "layers of width %d",
                       spec->cache_bytes,
                       (size_t)config->n_layers * CONVERT_RANK_STEP * sizeof(float),
                       CONVERT_RANK_STEP, config->n_layers, config->d_model);
    for (int l = 0; l < config->n_layers; l++)
        ranks[l] = steps * CONVERT_RANK_STEP;
    return STATUS_OK;
}

/* --- measuring ------------------------------------------------------------------------------- */

struct measuring {
    struct converter c;
    struct convert_spec spec;
    int steps;    /* of rank that are measured, a layer */
    double *lost; /* [n_layers, steps] divergences */
    int windows[CONVERT_MEASURED], n_windows;
    /* Of the dynamic programme. */
    double *best; /* [n_layers + 1, all + 1] the least sum for that many steps */
    int *chosen;  /* [n_layers + 1, all + 1] of the last layer among them */
};

static void take_memory(struct measuring *m, struct arena *arena, const struct config *config)
{
    const uint64_t n_layers = (uint64_t)config->n_layers, steps = (uint64_t)m->steps;
    const uint64_t all = n_layers * steps + 1;
    struct converter *c = &m->c;
    m->lost = arena_take(arena, n_layers * steps, sizeof *m->lost);
    m->best = arena_take(arena, (n_layers + 1) * all, sizeof *m->best);
    m->chosen = arena_take(arena, (n_layers + 1) * all, sizeof *m->chosen);
    convert_work_take(c, arena);
    convert_calibration_take(c, arena);
    convert_latent_take(c, arena);
    convert_tensors_take(c, arena);
    c->distance = convert_distance_take(c, arena);
}

/* The specification of a block at its largest rank, whose numbers are then taken away. */
static enum status describe(struct measuring *m, const struct convert_spec *spec,
                            const struct config *config, int *ranks, struct err *e)
{
    *m = (struct measuring){.spec = *spec, .steps = most_steps(spec, config)};
    for (int l = 0; l < config->n_layers; l++)
        ranks[l] = m->steps * CONVERT_RANK_STEP;
    m->spec.latent = ranks;
    m->spec.refit = CONVERT_REFIT_NONE;
    return convert_work_describe(&m->c, &m->spec, e);
}

/* Divergences of the block in work, for every rank, over one window. */
static enum status measure_window(struct measuring *m, int w, struct err *e)
{
    struct converter *c = &m->c;
    struct convert_calibration *k = c->calibration;
    const int n = convert_window_length(c, w), l = c->block;
    TRY(convert_distance_reference(c->distance, l + 1, convert_window(c, k->stream, w), n, e));
    for (int i = m->steps - 1; i >= 0; i--) {
        TRY(convert_store_latent(c, (i + 1) * CONVERT_RANK_STEP, e));
        convert_use(c, &k->used);
        probe_run(k->probe2, &k->used.block, l, convert_window(c, k->stream2, w), n,
                  &(struct block_taps){.at = {[TAP_OUT] = k->rows3}});
        TRY(convert_distance_add(c->distance, l + 1, k->rows3, n, &m->lost[l * m->steps + i], e));
        TRY(convert_windows_done(c, 1));
    }
    return STATUS_OK;
}

static enum status measure_block(struct measuring *m, int block, struct err *e)
{
    struct converter *c = &m->c;
    struct convert_calibration *k = c->calibration;
    convert_work_begin(c, block);
    convert_load(c);
    TRY(convert_calibrate(c));
    convert_measure(c);
    if (!convert_latent_fit(c))
        return convert_diverged(c, "", e);
    TRY(convert_store_out(c, e));
    for (int i = 0; i < m->n_windows; i++)
        TRY(measure_window(m, m->windows[i], e));
    memcpy(k->stream2, k->stream, c->spec->n_tokens * (size_t)c->d * sizeof *k->stream);
    return STATUS_OK;
}

static enum status measure(struct measuring *m, struct err *e)
{
    struct converter *c = &m->c;
    TRY(convert_calibration_start(c, e));
    TRY(convert_distance_start(c, c->distance, e));
    m->n_windows = convert_measured_windows(c->calibration, m->windows);
    c->windows_all = (uint64_t)c->config.n_layers *
                     (uint64_t)(c->calibration->n_windows + m->n_windows * m->steps);
    memset(m->lost, 0, (size_t)(c->config.n_layers * m->steps) * sizeof *m->lost);
    for (int b = 0; b < c->config.n_layers; b++)
        TRY(measure_block(m, b, e));
    return STATUS_OK;
}

/* --- choosing -------------------------------------------------------------------------------- */

/* best[l + 1][n] from best[l]: layer l takes 1 to `steps` of n steps. */
static void choose(const struct measuring *m, int all, int *ranks)
{
    const int n_layers = m->c.config.n_layers;
    const size_t width = (size_t)all + 1;
    for (int n = 0; n <= all; n++)
        m->best[n] = 0;
    for (int l = 0; l < n_layers; l++)
        for (int n = 0; n <= all; n++) {
            double *best = &m->best[(size_t)(l + 1) * width + (size_t)n];
            int *chosen = &m->chosen[(size_t)(l + 1) * width + (size_t)n];
            *best = HUGE_VAL;
            *chosen = 0;
            for (int i = 1; i <= m->steps && i <= n; i++) {
                const double sum =
                    m->best[(size_t)l * width + (size_t)(n - i)] + m->lost[l * m->steps + i - 1];
                if (sum < *best) {
                    *best = sum;
                    *chosen = i;
                }
            }
        }
    for (int l = n_layers - 1, n = all; l >= 0; l--) {
        const int i = m->chosen[(size_t)(l + 1) * width + (size_t)n];
        ranks[l] = i * CONVERT_RANK_STEP;
        n -= i;
    }
}

enum status convert_ranks_plan(const struct convert_spec *spec, const struct config *config,
                               size_t *bytes, struct err *e)
{
    struct measuring m;
    struct arena arena = {0};
    int ranks[CONFIG_MAX_LAYERS];
    TRY(describe(&m, spec, config, ranks, e));
    take_memory(&m, &arena, config);
    if (arena.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the choice of ranks needs more bytes than can be addressed");
    *bytes = arena.used;
    return STATUS_OK;
}

static enum status measure_and_choose(struct measuring *m, int *ranks, struct err *e)
{
    const struct config *config = &m->c.config;
    const int all = all_steps(&m->spec), most = config->n_layers * m->steps;
    TRY(measure(m, e));
    choose(m, smaller(all, most), ranks);
    return STATUS_OK;
}

enum status convert_best_ranks(const struct convert_spec *spec, const struct config *config,
                               int *ranks, struct err *e)
{
    struct measuring m;
    struct model *model;
    TRY(convert_equal_ranks(spec, config, ranks, e));
    if (config->shared)
        return STATUS_OK;
    TRY(describe(&m, spec, config, ranks, e));
    TRY(model_create(spec->gguf, NULL, spec->source, &model, e));
    m.c.model = model;
    take_memory(&m, &m.c.arena, config);
    enum status s = arena_allocate(&m.c.arena, "the choice of ranks", e);
    if (s == STATUS_OK) {
        take_memory(&m, &m.c.arena, config);
        s = measure_and_choose(&m, ranks, e);
        convert_calibration_end(&m.c);
        convert_distance_end(m.c.distance);
    }
    arena_free(&m.c.arena);
    model_free(model);
    return s;
}
