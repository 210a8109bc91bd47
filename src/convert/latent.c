/*
 * A cache of one vector a position, which all heads of the block in work take as key and as value;
 * and which ranks the layers' have, for so many bytes in all.
 *
 * c = x B of R numbers takes the place of all keys and values. What a head's queries can tell of
 * its keys, and its rows of the output matrix of its values, is a positive form on inputs; B is
 * where the sum of all these, scores and outputs each as a share of their own, is best kept: the
 * leading eigenvectors of C^T W C, with C C^T the inputs' covariance and W the sum. Keys and values
 * come back from c by least squares. (Joint principal components of keys and values, weighted as in
 * private.h.)
 */
#include <math.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/private.h"

/* What a share of the scores' energy counts, of that of the outputs' 1: an error of scores moves
 * whole patterns. (1, 3 and 8 leave 0.046, 0.040 and 0.038 nats a token on the shipped checkpoint
 * with rank 64, 0.016, 0.014 and 0.012 on another of half the width with rank 32.) */
#define SCORES_WEIGHT 8
/* Added to the covariance's diagonal, relative to its mean: it only has to make it invertible. */
#define COVARIANCE_RIDGE 1e-9
/* Of eigenvalues, relative to the largest: what is below is noise. */
#define LEAST_VALUE 1e-10

void convert_latent_take(struct converter *c, struct arena *arena)
{
    const size_t d = c->d;
    c->latent = (struct convert_latent){
        .basis = convert_doubles(arena, d, d),
        .shift = convert_doubles(arena, d, 1),
        .k_b = convert_doubles(arena, d, c->qk.width),
        .v_b = convert_doubles(arena, d, c->ov.width),
        .values = convert_doubles(arena, d, 1),
        .root = convert_doubles(arena, d, d),
        .form = convert_doubles(arena, d, d),
        .product = convert_doubles(arena, c->widest, c->widest),
        .scratch = convert_doubles(arena, linalg_eigen_scratch(d, true), 1),
    };
}

/* form += sum_h x_h^T metric_h x_h for the cached factors x [kv_heads * dim, d], as a share of the
 * circuit's energy that counts `weight`. */
static void add_form(struct converter *c, const struct convert_circuit *s, double weight)
{
    const size_t dim = s->dim, d = c->d, rows = dim * d;
    const double energy = linalg_trace(s->white, s->width);
    double *weighted = c->square; /* [dim, d] */
    for (size_t h = 0; h < c->n_heads && energy > 0; h++) {
        const double *own = c->from.at[s->cached].w + convert_kv_head(c, h) * rows;
        linalg_multiply(weighted, convert_of_head(s, s->metric, h), own, dim, dim, d);
        const double share = weight / energy;
        for (size_t i = 0; i < rows; i++)
            weighted[i] *= share;
        convert_add_outer(c, c->latent.form, own, weighted, dim, d, d);
    }
}

/* maps [d, width]: the covariance of c with the factors of all heads. */
static void set_maps(struct converter *c, const struct convert_circuit *s, double *maps)
{
    const struct convert_matrix *x = &c->from.at[s->cached];
    const size_t d = c->d, kv = x->rows;
    double *of_kv = c->latent.product; /* [d, kv] */
    convert_multiply(c, c->square, c->latent.basis, c->moments.values, d, d, d);
    convert_multiply_transposed(c, of_kv, c->square, x->w, d, d, kv);
    for (size_t r = 0; r < d; r++)
        for (size_t h = 0; h < c->n_heads; h++)
            memcpy(maps + r * s->width + h * s->dim,
                   of_kv + r * kv + convert_kv_head(c, h) * s->dim, s->dim * sizeof *maps);
}

enum status convert_latent_fit(struct converter *c, struct err *e)
{
    const struct convert_latent *l = &c->latent;
    const size_t d = c->d;
    convert_zero(l->form, d * d);
    add_form(c, &c->qk, SCORES_WEIGHT);
    add_form(c, &c->ov, 1);
    /* C with C C^T the covariance, and C^T W C, symmetric to the last bit. */
    convert_root(l->root, c->moments.values, d, COVARIANCE_RIDGE);
    convert_multiply(c, l->product, l->form, l->root, d, d, d);
    convert_zero(l->basis, d * d);
    convert_add_outer(c, l->basis, l->root, l->product, d, d, d);
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++)
            l->form[i * d + j] = (l->basis[i * d + j] + l->basis[j * d + i]) / 2;
    c->eigen[0].diverged = !linalg_eigen(l->form, d, l->values, l->basis, d, l->scratch);
    TRY(convert_check_eigen(c, "", e));
    /* Row r of the basis: C^-T times eigenvector r, so that c is white; and 0 where nothing is. */
    linalg_transpose(l->product, l->basis, d, d);
    linalg_solve_lower_transposed(l->root, d, l->product, d);
    linalg_transpose(l->basis, l->product, d, d);
    for (size_t r = 0; r < d; r++) {
        double *row = l->basis + r * d;
        if (!(l->values[r] > LEAST_VALUE * l->values[0]))
            convert_zero(row, d);
        l->shift[r] = -linalg_dot(row, c->moments.mean, d);
    }
    set_maps(c, &c->qk, l->k_b);
    set_maps(c, &c->ov, l->v_b);
    convert_keep(c); /* queries and output; there is no K and V */
    convert_add_value_means(c);
    return STATUS_OK;
}

/* Of a circuit's energy what its maps' first rows do not keep. */
static double loss(const struct convert_circuit *s, size_t n_heads, const double *maps, int rank)
{
    double kept = 0;
    for (int r = 0; r < rank; r++)
        for (size_t h = 0; h < n_heads; h++) {
            const double *x = maps + r * s->width + h * s->dim;
            const double *metric = convert_of_head(s, s->metric, h);
            for (size_t i = 0; i < s->dim; i++)
                kept += x[i] * linalg_dot(metric + i * s->dim, x, s->dim);
        }
    const double all = linalg_trace(s->white, s->width);
    return all > 0 ? fmax(1 - kept / all, 0) : 0;
}

void convert_latent_losses(const struct converter *c, int rank, struct convert_layer *lost)
{
    lost->score = loss(&c->qk, c->n_heads, c->latent.k_b, rank);
    lost->output = loss(&c->ov, c->n_heads, c->latent.v_b, rank);
}

/* --- ranks for so many bytes ------------------------------------------------------------------ */

/* Ranks are multiples of it. */
#define RANK_STEP 16
/* Times the equal rank that a layer's may be. */
#define MOST_TIMES 3

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Ranks in steps: of all layers together, of each if they are equal, and the most of one. */
struct steps {
    int all, equal, most;
};

static struct steps steps_of(const struct convert_spec *spec, const struct config *config)
{
    const size_t n = spec->cache_bytes / sizeof(float) / RANK_STEP;
    const size_t bound = CONFIG_MAX_LAYERS * (CONFIG_MAX_WIDTH / RANK_STEP);
    const int width = config->d_model / RANK_STEP;
    struct steps s = {.all = n < bound ? (int)n : (int)bound};
    s.equal = smaller(s.all / config->n_layers, width);
    s.most = smaller(smaller(s.all - (config->n_layers - 1), MOST_TIMES * s.equal), width);
    return s;
}

enum status convert_equal_ranks(const struct convert_spec *spec, const struct config *config,
                                int *ranks, struct err *e)
{
    const struct steps steps = steps_of(spec, config);
    if (steps.equal < 1)
        return err_set(e, STATUS_USAGE,
                       "%zu cache bytes a token: expected at least %zu, for rank %d in each of %d "
                       "layers of width %d",
                       spec->cache_bytes, config->n_layers * RANK_STEP * sizeof(float), RANK_STEP,
                       config->n_layers, config->d_model);
    for (int l = 0; l < config->n_layers; l++)
        ranks[l] = steps.equal * RANK_STEP;
    return STATUS_OK;
}

struct choice {
    struct converter c;
    struct convert_spec spec;
    struct steps steps;
    double *lost; /* [n_layers, most] divergences */
    int windows[CONVERT_MEASURED], n_windows;
    /* Of the dynamic programme. */
    size_t width; /* all + 1 */
    double *best; /* [n_layers + 1, width] the least sum for that many steps */
    int *chosen;  /* [n_layers + 1, width] of the last layer among them */
};

/* Measures blocks at their largest rank, whose numbers are then taken away. */
static enum status describe(struct choice *m, const struct convert_spec *spec,
                            const struct config *config, int *ranks, struct err *e)
{
    *m = (struct choice){.spec = *spec, .steps = steps_of(spec, config)};
    m->steps.all = smaller(m->steps.all, config->n_layers * m->steps.most);
    m->width = m->steps.all + 1;
    for (int l = 0; l < config->n_layers; l++)
        ranks[l] = m->steps.most * RANK_STEP;
    m->spec.latent = ranks;
    m->spec.refit = CONVERT_REFIT_NONE;
    return convert_describe(&m->c, &m->spec, e);
}

static void take_memory(struct choice *m, struct arena *arena)
{
    const uint64_t n_layers = m->c.config.n_layers;
    m->lost = convert_doubles(arena, n_layers, m->steps.most);
    m->best = convert_doubles(arena, n_layers + 1, m->width);
    m->chosen = arena_take(arena, (n_layers + 1) * m->width, sizeof *m->chosen);
    convert_take(&m->c, arena);
    convert_tensors_take(&m->c, arena);
    convert_distance_take(&m->c, arena);
}

/* Divergences of a block for every rank. */
static enum status measure_block(struct choice *m, int l, struct err *e)
{
    struct converter *c = &m->c;
    struct convert_calibration *k = &c->text;
    convert_begin(c, l);
    TRY(convert_calibrate(c));
    convert_measure(c);
    TRY(convert_latent_fit(c, e));
    TRY(convert_store(c, PART_O, PART_UP, e));
    for (int i = 0; i < m->n_windows; i++) {
        const int w = m->windows[i];
        TRY(convert_distance_add(c, l + 1, w, convert_window(c, k->stream, w), NULL, e));
        for (int step = m->steps.most; step > 0; step--) {
            TRY(convert_store_latent(c, step * RANK_STEP, e));
            convert_use(c);
            probe_run(k->probe2, &c->used.block, l, convert_stream(c, w),
                      convert_window_length(c, w),
                      &(struct block_taps){.at = {[TAP_OUT] = k->rows3}});
            TRY(convert_distance_add(c, l + 1, w, k->rows3, &m->lost[l * m->steps.most + step - 1],
                                     e));
            TRY(convert_windows_done(c, 1));
        }
    }
    memcpy(k->stream2, k->stream, c->spec->n_tokens * c->d * sizeof *k->stream);
    return STATUS_OK;
}

/* best[l + 1][n] from best[l]: layer l takes 1 to `most` of n steps. */
static void choose(const struct choice *m, int *ranks)
{
    const int n_layers = m->c.config.n_layers;
    for (size_t n = 0; n < m->width; n++)
        m->best[n] = 0;
    for (int l = 0; l < n_layers; l++)
        for (int n = 0; n <= m->steps.all; n++) {
            const double *before = m->best + l * m->width;
            double *best = &m->best[(l + 1) * m->width + n];
            int *chosen = &m->chosen[(l + 1) * m->width + n];
            *best = HUGE_VAL;
            *chosen = 0;
            for (int i = 1; i <= m->steps.most && i <= n; i++) {
                const double sum = before[n - i] + m->lost[l * m->steps.most + i - 1];
                if (sum < *best) {
                    *best = sum;
                    *chosen = i;
                }
            }
        }
    for (int l = n_layers - 1, n = m->steps.all; l >= 0; l--) {
        const int i = m->chosen[(l + 1) * m->width + n];
        ranks[l] = i * RANK_STEP;
        n -= i;
    }
}

enum status convert_ranks_plan(const struct convert_spec *spec, const struct config *config,
                               size_t *bytes, struct err *e)
{
    struct choice m;
    struct arena arena = {0};
    int ranks[CONFIG_MAX_LAYERS];
    TRY(describe(&m, spec, config, ranks, e));
    take_memory(&m, &arena);
    if (arena.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the choice of ranks needs more bytes than can be addressed");
    *bytes = arena.used;
    return STATUS_OK;
}

static enum status measure_and_choose(struct choice *m, struct model **model, int *ranks,
                                      struct err *e)
{
    struct converter *c = &m->c;
    TRY(model_create(m->spec.gguf, NULL, m->spec.source, model, e));
    c->model = *model;
    take_memory(m, &c->arena);
    TRY(arena_allocate(&c->arena, "the choice of ranks", e));
    take_memory(m, &c->arena);
    TRY(convert_calibration_start(c, e));
    TRY(convert_distance_start(c, e));
    m->n_windows = convert_measured_windows(c, m->windows);
    c->text.all = c->config.n_layers * (uint64_t)(c->text.n_windows + m->n_windows * m->steps.most);
    for (int b = 0; b < c->config.n_layers; b++)
        TRY(measure_block(m, b, e));
    choose(m, ranks);
    return STATUS_OK;
}

enum status convert_best_ranks(const struct convert_spec *spec, const struct config *config,
                               int *ranks, struct err *e)
{
    struct choice m;
    struct model *model = NULL;
    TRY(convert_equal_ranks(spec, config, ranks, e));
    if (config->shared)
        return STATUS_OK;
    TRY(describe(&m, spec, config, ranks, e));
    const enum status s = measure_and_choose(&m, &model, ranks, e);
    convert_calibration_end(&m.c);
    arena_free(&m.c.arena);
    model_free(model);
    return s;
}
