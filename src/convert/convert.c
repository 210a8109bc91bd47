#include "convert/convert.h"

#include <math.h>
#include <string.h>

#include "compute/linalg.h"
#include "convert/private.h"
#include "formats/blocks.h"

const char *const convert_methods[] = {"mean", "first", "random", "procrustes", "fit", NULL};
const char *const convert_refits[] = {"none", "wo", "all", "block", NULL};

/* --- what can be done ------------------------------------------------------------------------ */

/* Of a layer that has `own`. */
static enum status check_kv_heads(const struct config *config, int g, int own, struct err *e)
{
    if (g < 1 || config->n_heads % g != 0)
        return err_set(e, STATUS_USAGE, "%d K/V heads: expected a divisor of the %d query heads", g,
                       config->n_heads);
    if (g > own)
        return err_set(e, STATUS_USAGE, "%d K/V heads: the checkpoint has only %d", g, own);
    return STATUS_OK;
}

static enum status check_latent(const struct convert_spec *spec, const struct config *config,
                                struct err *e)
{
    if (spec->n_tokens == 0)
        return err_set(e, STATUS_USAGE, "a latent cache can only be fitted to text");
    for (int l = 0; l < config->n_layers; l++) {
        TRY(config_check_rank(config, spec->latent[l], e));
        if (config->shared && spec->latent[l] != spec->latent[0])
            return err_set(e, STATUS_USAGE, "all %d layers share one block: expected one rank",
                           config->n_layers);
    }
    return STATUS_OK;
}

static enum status check_heads(const struct convert_spec *spec, const struct config *config,
                               struct err *e)
{
    TRY(check_kv_heads(config, spec->n_kv_heads, config->n_kv_heads, e));
    for (int l = 0; l < config->n_layers && spec->layer_kv_heads; l++) {
        TRY(check_kv_heads(config, spec->layer_kv_heads[l], config_kv_heads(config, l), e));
        if (config->shared && spec->layer_kv_heads[l] != spec->n_kv_heads)
            return err_set(e, STATUS_USAGE,
                           "all %d layers share one block: expected one number of K/V heads",
                           config->n_layers);
    }
    if (spec->cluster && config->position == POSITION_ALIBI)
        return err_set(e, STATUS_USAGE,
                       "heads cannot change places, because each has a slope of its own (ALiBi); "
                       "expected neighbours to share");
    if (spec->refit && spec->n_tokens == 0)
        return err_set(e, STATUS_USAGE, "weights can only be refitted on text");
    return STATUS_OK;
}

static enum status check_spec(const struct convert_spec *spec, const struct config *config,
                              struct err *e)
{
    if (config_is_latent(config) && !spec->measures_only)
        return err_set(e, STATUS_BAD_FILE,
                       "%s.attention.latent: expected none, because all heads share what such a "
                       "cache has already; found %d",
                       config->arch->name, config_latent(config, 0));
    TRY((spec->latent ? check_latent : check_heads)(spec, config, e));
    if (spec->n_tokens && !spec->measures_only && spec->n_tokens < CONVERT_MIN_TOKENS)
        return err_set(e, STATUS_USAGE,
                       "calibration text: expected at least %d tokens, %d windows of which one is "
                       "kept aside, found %zu",
                       CONVERT_MIN_TOKENS, CONVERT_JUDGED, spec->n_tokens);
    for (size_t i = 0; i < spec->n_tokens; i++)
        if (spec->tokens[i] < 0 || spec->tokens[i] >= config->n_vocab)
            return err_set(e, STATUS_USAGE, "token %zu: expected an id from 0 to %d, found %d", i,
                           config->n_vocab - 1, spec->tokens[i]);
    for (const struct gguf_tensor *t = spec->gguf->tensors, *end = t + spec->gguf->n_tensors;
         t < end; t++)
        if (!blocks_runs(t->type->type))
            return err_set(e, STATUS_BAD_FILE,
                           "tensor %.*s: expected type F32, F16, BF16, Q8_0 or Q4_0, found %s",
                           text_width(t->name), t->name.data, t->type->name);
    return STATUS_OK;
}

enum status convert_describe(struct converter *c, const struct convert_spec *spec, struct err *e)
{
    *c = (struct converter){.spec = spec,
                            .qk = {.own = PART_Q, .cached = PART_K},
                            .ov = {.own = PART_O, .cached = PART_V}};
    const struct config *f = &c->config;
    TRY(config_read(spec->gguf, &c->config, e));
    TRY(check_spec(spec, f, e));
    c->converted = *f;
    c->converted.n_kv_heads = spec->n_kv_heads;
    memset(c->converted.latent, 0, sizeof c->converted.latent);
    if (spec->latent)
        config_set_latent(&c->converted, spec->latent[0]);
    for (int l = 0; l < f->n_layers; l++)
        if (spec->latent)
            c->converted.latent[l] = spec->latent[l];
        else if (spec->layer_kv_heads)
            c->converted.layer_kv_heads[l] = spec->layer_kv_heads[l];
    c->n_heads = f->n_heads;
    c->n_kv_heads = config_is_latent(f) ? f->n_heads : f->n_kv_heads;
    c->n_groups = c->converted.n_kv_heads;
    c->qk.dim = f->head_dim;
    c->ov.dim = config_value_dim(f);
    c->d = c->widest = f->d_model;
    for (int i = 0; i < 2; i++) {
        struct convert_circuit *s = i ? &c->ov : &c->qk;
        s->width = c->n_heads * s->dim;
        c->widest = s->width > c->widest ? s->width : c->widest;
    }
    if (convert_refits_block(c) && (size_t)f->d_ff > c->widest)
        c->widest = f->d_ff;
    return STATUS_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* The sizes of the parts with so many K/V heads. */
static void set_sizes(const struct converter *c, union convert_weights *w, size_t n_kv_heads)
{
    const size_t d_ff = c->config.d_ff, k = n_kv_heads * c->qk.dim, v = n_kv_heads * c->ov.dim;
    const size_t rows[CONVERT_PARTS] = {c->qk.width, k, v, c->ov.width, d_ff, d_ff, d_ff};
    for (enum convert_part p = PART_Q; p < CONVERT_PARTS; p++) {
        w->at[p].rows = rows[p];
        w->at[p].n_bias = convert_is_turned(p) ? c->d : rows[p];
    }
}

/* The parts before `end`. */
static void take_weights(const struct converter *c, struct arena *arena, union convert_weights *w,
                         size_t n_kv_heads, enum convert_part end)
{
    set_sizes(c, w, n_kv_heads);
    for (enum convert_part p = PART_Q; p < end; p++)
        if (p != PART_GATE || ffn_is_gated(c->config.ffn)) {
            w->at[p].w = convert_doubles(arena, w->at[p].rows, c->d);
            w->at[p].bias = convert_doubles(arena, w->at[p].n_bias, 1);
        }
}

static void take_circuit(const struct converter *c, struct arena *arena, struct convert_circuit *s)
{
    const size_t kv = c->n_kv_heads * s->dim;
    s->mean = convert_doubles(arena, kv, 1);
    s->new_mean = convert_doubles(arena, kv, 1);
    s->gram = convert_doubles(arena, kv, kv);
    s->metric = convert_doubles(arena, s->width, s->dim);
    s->root = convert_doubles(arena, s->width, s->dim);
    s->white = convert_doubles(arena, s->width, s->width);
    s->in = convert_doubles(arena, s->width, s->dim);
    s->out = convert_doubles(arena, s->width, s->dim);
}

void convert_take(struct converter *c, struct arena *arena)
{
    const size_t dim = c->qk.dim > c->ov.dim ? c->qk.dim : c->ov.dim;
    const enum convert_part end = convert_refits_block(c) ? CONVERT_PARTS : PART_UP;
    int group = 1; /* heads of the largest */
    for (int l = 0; l < c->config.n_layers; l++)
        group = config_group(&c->converted, l) > group ? config_group(&c->converted, l) : group;
    take_weights(c, arena, &c->from, c->n_kv_heads, PART_UP);
    take_weights(c, arena, &c->to, c->n_groups, end);
    if (c->spec->refit)
        take_weights(c, arena, &c->kept, c->n_groups, end);
    c->moments = (struct convert_moments){.keys = convert_doubles(arena, c->widest, c->d),
                                          .values = convert_doubles(arena, c->widest, c->widest),
                                          .mean = convert_doubles(arena, c->d, 1)};
    take_circuit(c, arena, &c->qk);
    take_circuit(c, arena, &c->ov);
    c->square = convert_doubles(arena, c->widest, c->d);
    c->square2 = convert_doubles(arena, c->widest, c->d);
    c->blocks = convert_doubles(arena, CONVERT_BLOCKS * dim, dim);
    c->order = arena_take(arena, c->n_heads, sizeof *c->order);
    c->group_of = arena_take(arena, c->n_heads, sizeof *c->group_of);
    c->eigen = arena_take(arena, pool_n_threads(c->spec->pool), sizeof *c->eigen);
    for (int i = 0; i < pool_n_threads(c->spec->pool); i++) {
        const size_t n = dim * group, own = linalg_eigen_scratch(n, true), least = 2 * dim * dim;
        const struct convert_eigen eigen = {
            .matrix = convert_doubles(arena, n, n),
            .values = convert_doubles(arena, n, 1),
            .vectors = convert_doubles(arena, dim, n),
            .scratch = convert_doubles(arena, own > least ? own : least, 1),
        };
        if (c->eigen)
            c->eigen[i] = eigen;
    }
    if (c->spec->n_tokens)
        convert_calibration_take(c, arena);
    if (convert_is_latent(c))
        convert_latent_take(c, arena);
}

enum status convert_check_eigen(const struct converter *c, const char *advice, struct err *e)
{
    for (int thread = 0; thread < pool_n_threads(c->spec->pool); thread++)
        if (c->eigen[thread].diverged)
            return err_set(e, STATUS_FAILED,
                           "layer %d: the eigenvalues of its attention cannot be computed: weights "
                           "of attention or its norm are not finite or too large%s",
                           c->block, advice);
    return STATUS_OK;
}

static void take_work(struct converter *c, struct arena *arena)
{
    convert_take(c, arena);
    convert_group_take(c, arena);
    if (c->spec->n_tokens)
        convert_distance_take(c, arena);
    if (!convert_is_latent(c) && convert_refits_block(c))
        convert_rebuild_take(c, arena);
}

static void take_result(struct converter *c, struct arena *arena, struct convert *out)
{
    const size_t n_layers = c->config.n_layers;
    out->layers = arena_take(arena, n_layers, sizeof *out->layers);
    convert_tensors_take(c, arena);
}

enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e)
{
    int ranks[CONFIG_MAX_LAYERS];
    struct convert_spec one = *spec;
    struct config config;
    struct converter c;
    struct convert out;
    struct arena arena = {0};
    size_t choice = 0;
    if (spec->cache_bytes) {
        TRY(config_read(spec->gguf, &config, e));
        one.latent = ranks;
        TRY(convert_equal_ranks(spec, &config, ranks, e));
    }
    TRY(convert_describe(&c, &one, e));
    take_work(&c, &arena);
    take_result(&c, &arena, &out);
    const bool chooses = spec->cache_bytes && !c.config.shared;
    if (chooses) /* two results are compared */
        take_result(&c, &arena, &out);
    if (arena.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the conversion needs more bytes than can be addressed");
    if (chooses)
        TRY(convert_ranks_plan(spec, &config, &choice, e));
    *bytes = choice > arena.used ? choice : arena.used;
    return STATUS_OK;
}

/* --- one block ------------------------------------------------------------------------------- */

void convert_begin(struct converter *c, int block)
{
    c->block = block;
    c->first = block;
    c->end = c->config.shared ? c->config.n_layers : block + 1;
    if (!config_is_latent(&c->config))
        c->n_kv_heads = config_kv_heads(&c->config, block);
    c->n_groups = config_kv_heads(&c->converted, block);
    c->group = c->n_heads / c->n_groups;
    set_sizes(c, &c->from, c->n_kv_heads);
    set_sizes(c, &c->to, c->n_groups);
    set_sizes(c, &c->kept, c->n_groups);
    convert_load(c);
}

/* `to` with the heads that are shared by a method. */
static enum status share_heads(struct converter *c, enum convert_method method, bool cluster,
                               struct err *e)
{
    c->method = method;
    c->cluster = cluster;
    TRY(convert_group(c, e));
    TRY(convert_map(c, e));
    convert_apply(c);
    return STATUS_OK;
}

static enum status convert_heads(struct converter *c, struct convert_layer *lost, struct err *e)
{
    convert_measure(c);
    TRY(share_heads(c, c->spec->method, c->spec->cluster, e));
    lost->score = convert_loss(c, &c->qk);
    lost->output = convert_loss(c, &c->ov);
    return convert_store(c, PART_Q, PART_O, e);
}

/* The same block with the mean of each group of neighbours, over the windows kept aside. */
static enum status convert_plainly(struct converter *c, struct err *e)
{
    if (!convert_keeps_heads(c)) {
        TRY(share_heads(c, CONVERT_MEAN, false, e));
        TRY(convert_store(c, PART_Q, PART_O, e));
    }
    return convert_advance_plain(c);
}

static enum status convert_to_latent(struct converter *c, struct convert_layer *lost, struct err *e)
{
    const int rank = config_latent(&c->converted, c->block);
    convert_measure(c);
    TRY(convert_latent_fit(c, e));
    convert_latent_losses(c, rank, lost);
    return convert_store_latent(c, rank, e);
}

/* One block, and what the layers that use it lose. */
static enum status convert_block(struct converter *c, struct convert *out, struct err *e)
{
    struct convert_layer lost = {.score = 0};
    const bool text = c->spec->n_tokens;
    TRY(convert_calibrate(c));
    if (convert_has_plain(c))
        TRY(convert_plainly(c, e));
    if (convert_is_latent(c))
        TRY(convert_to_latent(c, &lost, e));
    else if (convert_keeps_heads(c))
        convert_keep(c);
    else
        TRY(convert_heads(c, &lost, e));
    convert_store_order(c);
    if (c->spec->refit || !convert_keeps_heads(c))
        TRY(convert_store(c, PART_O, PART_UP, e));
    if (c->spec->refit)
        TRY(convert_refit(c, e));
    if (text)
        TRY(convert_advance(c, e));
    for (int l = c->first; l < c->end; l++) {
        out->layers[l] =
            (struct convert_layer){lost.score, text ? c->text.lost[l - c->first] : lost.output};
    }
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Of the whole, in nats a token, and of plain means. */
static enum status measure_divergence(struct converter *c, struct convert *out, struct err *e)
{
    const int n_layers = c->config.n_layers;
    int windows[CONVERT_MEASURED];
    const int n = convert_measured_windows(c, windows);
    double changed = 0, plain = 0;
    TRY(convert_distance_start(c, e));
    for (int i = 0; i < n; i++) {
        const int w = windows[i];
        TRY(convert_distance_add(c, n_layers, w, convert_window(c, c->text.stream, w), NULL, e));
        TRY(convert_distance_add(c, n_layers, w, convert_window(c, c->text.stream2, w), &changed,
                                 e));
        if (c->text.plain)
            TRY(convert_distance_add(c, n_layers, w, convert_plain_window(c, w), &plain, e));
    }
    out->divergence = changed / n;
    out->plain_divergence = c->text.plain ? plain / n : out->divergence;
    return STATUS_OK;
}

static enum status convert_blocks(struct converter *c, struct convert *out, struct err *e)
{
    if (c->spec->n_tokens) {
        TRY(convert_calibration_start(c, e));
        const uint64_t n = c->text.n_windows;
        const uint64_t plain = convert_has_plain(c) ? n / CONVERT_JUDGED : 0;
        c->text.all = c->config.n_layers * (2 * n + plain + convert_refit_windows(c));
    }
    for (int b = 0; b < config_blocks(&c->config); b++) {
        if (convert_is_stopped(c->spec))
            return STATUS_INTERRUPTED;
        convert_begin(c, b);
        TRY(convert_block(c, out, e));
    }
    if (c->spec->n_tokens)
        TRY(measure_divergence(c, out, e));
    return convert_write(c, &out->writer, &out->n_params_after, e);
}

/* In the memory that it takes; a model's creation also checks every tensor's shape. */
static enum status convert_in(struct converter *c, struct model **model, struct convert *out,
                              struct err *e)
{
    TRY(model_create(c->spec->gguf, NULL, c->spec->source, model, e));
    c->model = *model;
    take_work(c, &c->arena);
    take_result(c, &out->arena, out);
    TRY(arena_allocate(&c->arena, "the conversion", e));
    TRY(arena_allocate(&out->arena, "the new tensors", e));
    take_work(c, &c->arena);
    take_result(c, &out->arena, out);
    return convert_blocks(c, out, e);
}

static enum status run_once(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    struct converter c;
    struct model *model = NULL;
    const struct gguf *g = spec->gguf;
    *out = (struct convert){.divergence = (double)NAN, .plain_divergence = (double)NAN};
    TRY(convert_describe(&c, spec, e));
    out->n_layers = c.config.n_layers;
    out->config = c.converted;
    const enum status s = convert_in(&c, &model, out, e);
    /* An output matrix that is the embedding once more counts once. */
    const struct gguf_tensor *output =
        gguf_find_tensor(g, arch_tensor_name(ROLE_OUTPUT, 0, false).text);
    const uint64_t twice = output && layout_output_tied(g) ? output->n_elements : 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        out->n_params_before += g->tensors[i].n_elements;
    out->n_params_before -= twice;
    out->n_params_after -= twice;
    convert_calibration_end(&c);
    model_free(model);
    arena_free(&c.arena);
    if (s != STATUS_OK)
        convert_free(out);
    return s;
}

/* The ranks that do best layer by layer, or, if they are nearer to the checkpoint's predictions,
 * equal ones. */
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
    if (memcmp(equal, best, config.n_layers * sizeof *best) == 0)
        return STATUS_OK;
    one.latent = best;
    const enum status s = run_once(&one, &other, e);
    const bool better = s == STATUS_OK && other.divergence < out->divergence;
    struct convert worse = better ? *out : other;
    if (better)
        *out = other;
    convert_free(&worse);
    if (s != STATUS_OK)
        convert_free(out);
    return s;
}

enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    *out = (struct convert){.n_layers = 0};
    return (spec->cache_bytes ? run_best_ranks : run_once)(spec, out, e);
}

void convert_free(struct convert *c)
{
    gguf_writer_free(c->writer);
    arena_free(&c->arena);
    *c = (struct convert){.n_layers = 0};
}

/* --- how alike heads are --------------------------------------------------------------------- */

/* What `convert_group` groups by, made visible. A latent cache is looked at as the keys and values
 * of the heads that it stands for. */
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
