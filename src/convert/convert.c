#include "convert/convert.h"

#include <math.h>

#include "convert/private.h"

const char *const convert_methods[] = {"mean", "first", "random", "procrustes", "fit", NULL};
const char *const convert_refits[] = {"none", "wo", "all", "block", NULL};

enum status convert_describe(struct converter *c, const struct convert_spec *spec,
                             struct convert *out, struct err *e)
{
    const int *numbers = spec->layer_kv_heads;
    struct config f;
    TRY(config_read(spec->gguf, &f, e));
    *c = (struct converter){.spec = spec,
                            .pool = spec->pool,
                            .n_threads = pool_n_threads(spec->pool),
                            .out = out,
                            .config = f,
                            .converted = f,
                            .d = f.d_model,
                            .widest = f.d_model,
                            .n_heads = f.n_heads,
                            .n_kv_heads = f.n_kv_heads,
                            .group = 1,
                            .qk = {.own = PART_Q, .cached = PART_K, .dim = f.head_dim},
                            .ov = {.own = PART_O, .cached = PART_V, .dim = config_value_dim(&f)}};
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
        c->group = MAX(group, c->group);
    }
    if (spec->cluster && f.position == POSITION_ALIBI)
        return err_usage(e, "heads cannot change places, because each has a slope of its own "
                            "(ALiBi); expected neighbours to share");
    if (!spec->measures_only && (spec->n_tokens || spec->refit || spec->cache_bytes) &&
        spec->n_tokens < CONVERT_MIN_TOKENS)
        return err_usage(e,
                         "calibration text: expected at least %d tokens, %d windows of which one "
                         "is kept aside, found %zu",
                         CONVERT_MIN_TOKENS, CONVERT_JUDGED, spec->n_tokens);
    c->n_groups = c->converted.n_kv_heads;
    for (struct convert_circuit *s = c->circuits; s < c->circuits + 2; s++) {
        s->width = c->n_heads * s->dim;
        c->widest = MAX(s->width, c->widest);
    }
    if (convert_refits_block(c) && (size_t)f.d_ff > c->widest)
        c->widest = f.d_ff;
    return STATUS_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* The sizes of the parts with so many K/V heads; the memory of those before `end`. */
static void take_weights(struct converter *c, union convert_weights *w, size_t n_kv_heads,
                         enum convert_part end)
{
    const size_t d_ff = c->config.d_ff, k = n_kv_heads * c->qk.dim, v = n_kv_heads * c->ov.dim;
    const size_t rows[CONVERT_PARTS] = {c->qk.width, k, v, c->ov.width, d_ff, d_ff, d_ff};
    for (enum convert_part p = PART_Q; p < CONVERT_PARTS; p++) {
        struct convert_matrix *m = &w->at[p];
        m->rows = rows[p];
        m->n_bias = convert_is_turned(p) ? c->d : rows[p];
        if (p < end && (p != PART_GATE || ffn_is_gated(c->config.ffn))) {
            m->w = convert_doubles(c, m->rows, c->d);
            m->bias = convert_doubles(c, m->n_bias, 1);
        }
    }
}

static void take_all(struct converter *c)
{
    const size_t dim = MAX(c->qk.dim, c->ov.dim), d = c->d;
    const enum convert_part end = convert_refits_block(c) ? CONVERT_PARTS : PART_UP;
    take_weights(c, &c->from, c->n_kv_heads, PART_UP);
    take_weights(c, &c->to, c->n_groups, end);
    if (c->spec->refit)
        take_weights(c, &c->kept, c->n_groups, end);
    if (convert_refits_block(c))
        take_weights(c, &c->shared, c->n_groups, PART_UP);
    c->key_moments = convert_doubles(c, c->widest, d);
    c->value_moments = convert_doubles(c, c->widest, c->widest);
    c->input_mean = convert_doubles(c, d, 1);
    for (struct convert_circuit *s = c->circuits; s < c->circuits + 2; s++) {
        const size_t kv = c->n_kv_heads * s->dim;
        s->mean = convert_doubles(c, kv, 1);
        s->new_mean = convert_doubles(c, kv, 1);
        s->gram = convert_doubles(c, kv, kv);
        s->metric = convert_doubles(c, s->width, s->dim);
        s->root = convert_doubles(c, s->width, s->dim);
        s->white = convert_doubles(c, s->width, s->width);
        s->in = convert_doubles(c, s->width, s->dim);
        s->out = convert_doubles(c, s->width, s->dim);
    }
    c->square = convert_doubles(c, c->widest, d);
    c->square2 = convert_doubles(c, c->widest, d);
    c->blocks = convert_doubles(c, 5 * dim, dim);
    ARENA_TAKE(c->order, &c->arena, c->n_heads);
    ARENA_TAKE(c->group_of, &c->arena, c->n_heads);
    ARENA_TAKE(c->eigen, &c->arena, c->n_threads);
    for (int i = 0; i < c->n_threads; i++) {
        const size_t n = dim * c->group, own = linalg_eigen_scratch(n, true), least = 2 * dim * dim;
        const struct convert_eigen eigen = {.matrix = convert_doubles(c, n, n),
                                            .values = convert_doubles(c, n, 1),
                                            .vectors = convert_doubles(c, dim, n),
                                            .scratch = convert_doubles(c, MAX(own, least), 1)};
        if (c->eigen)
            c->eigen[i] = eigen;
    }
    if (c->spec->n_tokens)
        convert_calibration_take(c);
    convert_group_take(c);
    if (convert_refits_block(c))
        convert_rebuild_take(c);
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
    take_all(c);
    TRY(arena_allocate(&c->arena, "the conversion", e));
    if (c->out)
        TRY(arena_allocate(&c->out->arena, "the new tensors", e));
    take_all(c);
    if (c->spec->n_tokens)
        TRY(convert_calibration_start(c, e));
    return work(c, e);
}

enum status convert_work(struct converter *c,
                         enum status (*work)(struct converter *c, struct err *e), struct err *e)
{
    struct model *model = NULL;
    const enum status s = work_in_memory(c, &model, work, e);
    probe_free(c->probe);
    probe_free(c->probe2);
    session_free(c->session);
    model_free(model);
    arena_free(&c->arena);
    return s;
}

enum status convert_check_eigen(const struct converter *c, const char *advice, struct err *e)
{
    for (int thread = 0; thread < c->n_threads; thread++)
        if (c->eigen[thread].diverged)
            return err_failed(e,
                              "layer %d: the eigenvalues of its attention cannot be computed: "
                              "weights of attention or its norm are not finite or too large%s",
                              c->block, advice);
    return STATUS_OK;
}

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
    take_all(&c);
    *bytes = c.arena.used + result.arena.used;
    if (spec->cache_bytes) /* two results are compared */
        *bytes += result.arena.used;
    if (c.arena.overflow || result.arena.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the conversion needs more bytes than can be addressed");
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

void convert_begin(struct converter *c, int block)
{
    c->block = block;
    c->end = c->config.shared ? c->config.n_layers : block + 1;
    c->n_heads = config_heads(&c->config, block);
    for (struct convert_circuit *s = c->circuits; s < c->circuits + 2; s++)
        s->width = c->n_heads * s->dim;
    c->n_kv_heads = config_kv_heads(&c->config, block);
    c->n_groups = config_kv_heads(&c->converted, block);
    c->group = c->n_heads / c->n_groups;
    take_weights(c, &c->from, c->n_kv_heads, PART_Q);
    take_weights(c, &c->to, c->n_groups, PART_Q);
    convert_load(c);
}

enum status convert_share(struct converter *c, struct convert_layer *lost, struct err *e)
{
    convert_measure(c);
    TRY(convert_group(c, e));
    convert_apply(c);
    TRY(convert_store(c, PART_Q, PART_O, e));
    if (lost) {
        lost->score = convert_loss(c, &c->qk);
        lost->output = convert_loss(c, &c->ov);
    }
    return STATUS_OK;
}

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
        TRY(convert_store(c, PART_O, PART_UP, e));
    return c->spec->refit ? convert_refit(c, e) : STATUS_OK;
}

/* Converts block by block, each with what the layers that use it lose, and writes the result. */
static enum status convert_blocks(struct converter *c, struct err *e)
{
    const struct convert_spec *spec = c->spec;
    const int n_layers = c->config.n_layers, n_blocks = config_blocks(&c->config);
    double sum = 0;
    c->all = n_layers * (2 * (uint64_t)c->n_windows + convert_refit_windows(c));
    for (int b = 0; b < n_blocks; b++) {
        struct convert_layer lost = {
            .own = (double)NAN, .own_first = (double)NAN, .gathered = (double)NAN};
        TRY(convert_windows_done(c, 0));
        convert_begin(c, b);
        TRY(convert_calibrate(c));
        TRY(convert_block(c, &lost, e));
        for (int l = b; l < c->end; l++) {
            c->out->layers[l] = lost;
            c->out->layers[l].layer = l;
        }
        if (spec->n_tokens)
            TRY(convert_advance(c, e));
    }
    for (int i = 0; i < c->n_measured; i++) {
        const struct convert_window win = convert_window_at(c, c->measured[i]);
        TRY(convert_distance_add(c, n_layers, win.n, win.original, NULL, e));
        TRY(convert_distance_add(c, n_layers, win.n, win.converted, &sum, e));
    }
    if (spec->n_tokens)
        c->out->divergence = sum / c->n_measured;
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

void convert_free(struct convert *c)
{
    gguf_writer_free(c->writer);
    arena_free(&c->arena);
    *c = (struct convert){.n_layers = 0};
}

/* --- how alike heads are --------------------------------------------------------------------- */

/* A thread's share of the pairs. What `convert_group` groups by, made visible. */
static void compare_head_pairs(void *arg, int thread)
{
    const struct converter *c = arg;
    struct convert_eigen *eigen = &c->eigen[thread];
    const size_t n = c->config.n_heads;
    struct head_likeness *kept = c->likeness + c->block * n * n;
    int at = 0;
    for (size_t i = 0; i < c->n_heads; i++)
        for (size_t j = i; j < c->n_heads; j++) {
            const int pair[] = {i, j};
            if (at++ % c->n_threads != thread)
                continue;
            kept[i * n + j] = kept[j * n + i] =
                i == j ? (struct head_likeness){1, 1}
                       : (struct head_likeness){convert_kept(&c->qk, pair, 2, eigen),
                                                convert_kept(&c->ov, pair, 2, eigen)};
        }
}

static enum status compare_blocks(struct converter *c, struct err *e)
{
    const size_t size = (size_t)c->config.n_heads * c->config.n_heads;
    c->all = c->config.n_layers * (uint64_t)c->n_windows;
    for (int b = 0; b < config_blocks(&c->config); b++) {
        convert_begin(c, b);
        TRY(convert_calibrate(c));
        convert_measure(c);
        pool_run(c->pool, compare_head_pairs, c);
        for (int l = c->block + 1; l < c->end; l++)
            memcpy(c->likeness + l * size, c->likeness, size * sizeof *c->likeness);
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
        return err_usage(e, "heads can only be compared on text");
    TRY(convert_describe(&c, &all_share, NULL, e));
    c.model = model;
    c.likeness = kept;
    return convert_work(&c, compare_blocks, e);
}
