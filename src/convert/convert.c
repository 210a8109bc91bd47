#include "convert/convert.h"

#include <math.h>

#include "convert/private.h"
#include "model/config_keys.h"
#include "model/kv_cache.h"
#include "model/selection.h"

/* --- opening ---------------------------------------------------------------------------------- */

/* Sets up *c for a specification, without memory. STATUS_USAGE or STATUS_BAD_FILE if the
 * specification cannot be carried out. */
static enum status describe(struct converter *c, const struct convert_spec *spec,
                            struct convert *out, struct err *e)
{
    const int *numbers = spec->layer_kv_heads;
    struct config f;
    TRY(config_read(spec->gguf, &f, e));
    *c = (struct converter){
        .spec = spec,
        .n_threads = pool_n_threads(spec->pool),
        .out = out,
        .config = f,
        .converted = f,
        .d = f.d_model,
        .widest = f.d_model,
        .block = {.n_heads = f.n_heads, .n_kv_heads = f.n_kv_heads, .group = 1},
        .circuits = {
            [QK] = {.own = WEIGHT_Q, .cached = WEIGHT_K, .dim = f.head_dim},
            [OV] = {.own = WEIGHT_O, .cached = WEIGHT_V, .dim = config_value_dim(&f)},
        }};
    TRY(config_needs_dot(&f, "fewer K/V heads", e));
    TRY(heads_check("--kv-heads", &f, numbers ? numbers : &spec->n_kv_heads,
                    numbers ? f.n_layers : 1, e));
    c->converted.n_kv_heads = numbers ? 0 : spec->n_kv_heads;
    for (int l = 0; l < f.n_layers; l++) {
        if (numbers) {
            c->converted.layer_kv_heads[l] = numbers[l];
            c->converted.n_kv_heads = MAX(numbers[l], c->converted.n_kv_heads);
        }
        const size_t group = config_group(&c->converted, l);
        c->block.group = MAX(group, c->block.group);
    }
    if (f.parts.qk_norms && spec->method > CONVERT_RANDOM)
        return err_usage(e,
                         "--method %s: expected convert's mean or first, because no map survives "
                         "the norms of this checkpoint's queries and keys",
                         convert_methods[spec->method]);
    if (f.parts.added_norms && spec->refit)
        return err_usage(e, "--refit wo: expected none for a checkpoint that norms what attention "
                            "adds, which is not linear in the output matrix");
    if (spec->cluster && f.position == POSITION_ALIBI)
        return err_usage(e, "heads cannot change places, because each has a slope of its own "
                            "(ALiBi); expected neighbours to share");
    if ((spec->n_tokens || spec->refit || spec->cache_bytes) && spec->n_tokens < CONVERT_MIN_TOKENS)
        return err_usage(e, "calibration text: expected at least %d tokens, found %zu",
                         CONVERT_MIN_TOKENS, spec->n_tokens);
    c->block.n_groups = c->converted.n_kv_heads;
    for (struct convert_circuit *s = c->circuits; s < c->circuits + CIRCUITS; s++) {
        s->width = c->block.n_heads * s->dim;
        c->widest = MAX(s->width, c->widest);
    }
    return STATUS_OK;
}

/* Counts what a described conversion needs of c->arena and c->out->arena; once these are
 * allocated, takes it. */
static void take_memory(struct converter *c)
{
    const size_t dim = MAX(c->circuits[QK].dim, c->circuits[OV].dim), d = c->d;
    c->calib.key_moments = convert_doubles(c, d, d);
    c->calib.value_moments = convert_doubles(c, d, d);
    c->calib.input_mean = convert_doubles(c, d, 1);
    for (struct convert_circuit *s = c->circuits; s < c->circuits + CIRCUITS; s++) {
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
        convert_divergence_allocate(c);
    }
    if (c->spec->refit)
        convert_refit_allocate(c);
    ARENA_TAKE(c->out->layers, &c->out->arena, c->config.n_layers);
    convert_tensors_allocate(c);
}

/* Describes a conversion and makes it ready: memory, the checkpoint as a model, the text's streams.
 * close_conversion and convert_free are due in every case. The failures of describe and
 * model_create; STATUS_NO_MEMORY; STATUS_INTERRUPTED. */
static enum status open_conversion(struct converter *c, const struct convert_spec *spec,
                                   struct convert *out, struct err *e)
{
    *c = (struct converter){.n_threads = 0};
    *out = (struct convert){.divergence = (double)NAN};
    TRY(describe(c, spec, out, e));
    out->n_layers = c->config.n_layers;
    out->config = c->converted;
    /* This also checks the shape of every tensor. */
    TRY(model_create(spec->gguf, &(struct model_options){.pool = spec->pool}, spec->source,
                     &c->model, e));
    take_memory(c);
    TRY(arena_allocate(&c->arena, "the conversion", e));
    TRY(arena_allocate(&out->arena, "the new tensors", e));
    take_memory(c);
    if (!spec->n_tokens)
        return STATUS_OK;
    TRY(convert_calibration_open(c, e));
    return convert_divergence_open(c, e);
}

static void close_conversion(struct converter *c)
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

/* --- one conversion --------------------------------------------------------------------------- */

/* Converts block by block, and, if there is text, follows it through the converted layers and
 * measures how far the predictions behind them are from the checkpoint's. */
static enum status convert_blocks(struct converter *c, struct err *e)
{
    const int n_blocks = config_blocks(&c->config), n_compared = c->divergence.n_windows;
    c->all = c->config.n_layers * (2 * (uint64_t)c->calib.n_windows + convert_refit_windows(c)) +
             n_compared;
    for (int b = 0; b < n_blocks; b++) {
        TRY(convert_windows_done(c, 0));
        convert_begin_block(c, b);
        TRY(convert_calibrate(c));
        TRY(convert_share(c, e));
        TRY(convert_refit(c, e));
        TRY(convert_advance(c, e));
    }
    if (n_compared > 0) {
        TRY(convert_compare(c, c->config.n_layers, &c->out->divergence, e));
        c->out->divergence /= n_compared;
    }
    return convert_write(c, e);
}

static enum status convert_once(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    struct converter c;
    enum status s = open_conversion(&c, spec, out, e);
    if (s == STATUS_OK)
        s = convert_blocks(&c, e);
    close_conversion(&c);
    if (s != STATUS_OK)
        convert_free(out);
    return s;
}

/* --- K/V heads by layer for so many bytes of cache ---------------------------------------------
 */

/* Chooses the K/V heads of each layer for so many bytes of cache: measures what a layer loses with
 * each number that it can have, while all other layers keep theirs, and takes the numbers whose
 * losses have the least sum. */
struct budget {
    struct config config;          /* of the checkpoint */
    struct convert_spec spec;      /* of the conversions that are measured: to `chosen` */
    int equal[CONFIG_MAX_LAYERS];  /* the largest number that fits, the same in all layers that can
                                      have so many K/V heads */
    int chosen[CONFIG_MAX_LAYERS]; /* the numbers that are measured; at the end, the best ones */
    int all;                       /* the most K/V heads of all layers together */
    int most;                      /* the most of one layer */
    double *lost; /* [n_layers, most + 1] divergence with so many; HUGE_VAL if not possible */
};

/* The most tokens on which K/V heads are measured, because each number of heads is a conversion. */
#define HEADS_TOKENS 16384

/* Returns the most K/V heads, up to `limit`, that a layer can have. */
static int most_heads(const struct config *f, int layer, int limit)
{
    int g = MIN(config_kv_heads(f, layer), limit);
    while (g > 0 && f->n_heads % g != 0)
        g--;
    return g;
}

/* Fills in everything but `chosen`. STATUS_USAGE if the bytes are too few for any choice, or enough
 * for all K/V heads that there are. */
static enum status plan_budget(struct budget *b, const struct convert_spec *spec, struct err *e)
{
    const struct config *f = &b->config;
    *b = (struct budget){.spec = *spec};
    TRY(config_read(spec->gguf, &b->config, e));
    const int n_layers = f->n_layers;
    const size_t all = config_all_kv_heads(f);
    const size_t bytes = kv_cache_bytes_per_token(f, kv_type_of(CACHE_F32)) / all;
    const size_t n = spec->cache_bytes / bytes;
    if (n < (size_t)n_layers || n >= all)
        return err_usage(e,
                         "%zu cache bytes a token: expected at least %zu, for one K/V head in each "
                         "of %d layers, and less than %zu, which MODEL has",
                         spec->cache_bytes, n_layers * bytes, n_layers, all * bytes);
    b->all = n;
    b->most = f->n_kv_heads;
    for (int limit = 1, sum = 0; sum <= b->all; limit++) {
        sum = 0;
        for (int l = 0; l < n_layers; l++) {
            b->equal[l] = b->chosen[l];
            sum += b->chosen[l] = most_heads(f, l, limit);
        }
    }
    b->spec.layer_kv_heads = b->chosen;
    b->spec.n_tokens = MIN(spec->n_tokens, HEADS_TOKENS);
    b->spec.refit = false;
    return STATUS_OK;
}

/* Measures the divergence with `chosen` K/V heads in layer l alone. If that is as many as there
 * are, *lost keeps its value. */
static enum status measure_layer(struct converter *c, int l, double *lost, struct err *e)
{
    TRY(convert_windows_done(c, 0));
    convert_begin_block(c, l);
    TRY(convert_calibrate(c));
    if (convert_keeps_heads(c))
        return STATUS_OK;
    TRY(convert_share(c, e));
    convert_load_stored(c);
    return convert_compare(c, l, lost, e);
}

/* Measures the divergence with `chosen` K/V heads in each layer, while all others keep theirs. */
static enum status measure(struct budget *b, struct err *e)
{
    struct converter c;
    struct convert out;
    const int n_layers = b->config.n_layers;
    enum status s = open_conversion(&c, &b->spec, &out, e);
    c.all = n_layers * (uint64_t)(c.calib.n_windows + c.divergence.n_windows);
    for (int l = 0; s == STATUS_OK && l < n_layers; l++) {
        s = measure_layer(&c, l, &b->lost[l * (b->most + 1) + b->chosen[l]], e);
        memcpy(c.calib.converted, c.calib.original,
               c.spec->n_tokens * c.d * sizeof *c.calib.original);
    }
    close_conversion(&c);
    convert_free(&out);
    return s;
}

/* Measures every number of K/V heads that a layer can have. */
static enum status measure_all(struct budget *b, struct err *e)
{
    const struct config *f = &b->config;
    for (int l = 0; l < f->n_layers; l++) /* a layer that keeps its heads loses nothing */
        b->lost[l * (b->most + 1) + config_kv_heads(f, l)] = 0;
    for (int number = 1; number < f->n_kv_heads; number++) {
        bool is_new = false; /* whether some layer was not measured with this number */
        for (int l = 0; l < f->n_layers; l++) {
            b->chosen[l] = most_heads(f, l, number);
            is_new |= b->chosen[l] == number && number < config_kv_heads(f, l);
        }
        if (is_new)
            TRY(measure(b, e));
    }
    return STATUS_OK;
}

/* Fills in `chosen`. STATUS_NO_MEMORY and the failures of open_conversion. */
static enum status choose_heads(struct budget *b, struct err *e)
{
    const int n_layers = b->config.n_layers, width = b->all + 1, most = b->most;
    const size_t n_lost = (size_t)n_layers * (most + 1), n_best = (size_t)(n_layers + 1) * width;
    if (b->config.shared) { /* there is one block, so all layers have the same number */
        memcpy(b->chosen, b->equal, sizeof b->chosen);
        return STATUS_OK;
    }
    /* Dynamic programming over the layers: best [n_layers + 1, width] is the least sum of losses
     * with so many layers and K/V heads together; `heads`, as large, is how many of these heads the
     * last of the layers has. Both lie behind the losses. */
    TRY_ZEROED(b->lost, n_lost + 2 * n_best, "what layers lose", e);
    double *best = b->lost + n_lost;
    int *heads = (void *)(best + n_best);
    for (size_t i = 0; i < n_lost; i++)
        b->lost[i] = HUGE_VAL;
    const enum status s = measure_all(b, e);
    for (int l = 0; l < n_layers; l++)
        for (int n = 0; n < width; n++) {
            double *least = &best[(l + 1) * width + n];
            *least = HUGE_VAL;
            const int last = MIN(most, n);
            for (int i = 1; i <= last; i++) {
                const double sum = best[l * width + n - i] + b->lost[l * (most + 1) + i];
                if (sum < *least) {
                    *least = sum;
                    heads[(l + 1) * width + n] = i;
                }
            }
        }
    for (int l = n_layers - 1, n = b->all; l >= 0; l--) {
        const int i = heads[(l + 1) * width + n];
        b->chosen[l] = i;
        n -= i;
    }
    free(b->lost);
    return s;
}

/* --- the whole -------------------------------------------------------------------------------- */

enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e)
{
    struct convert_spec one = *spec;
    struct converter c;
    struct budget budget;
    struct convert result = {.n_layers = 0};
    if (spec->cache_bytes) {
        TRY(plan_budget(&budget, spec, e));
        one.layer_kv_heads = budget.equal;
    }
    TRY(describe(&c, &one, &result, e));
    take_memory(&c);
    *bytes = c.arena.used + result.arena.used;
    if (spec->cache_bytes) /* two results are compared */
        *bytes += result.arena.used;
    if (c.arena.overflow || result.arena.overflow)
        return err_set(e, STATUS_NO_MEMORY,
                       "out of memory: the conversion needs more bytes than can be addressed");
    return STATUS_OK;
}

/* Converts to at most so many bytes: with the K/V heads that do best layer by layer, and with equal
 * numbers of them. Keeps the result that is nearer to the checkpoint's predictions. */
static enum status convert_to_budget(const struct convert_spec *spec, struct convert *out,
                                     struct err *e)
{
    struct convert_spec one = *spec;
    struct budget budget;
    struct convert chosen;
    TRY(plan_budget(&budget, spec, e));
    TRY(choose_heads(&budget, e));
    one.layer_kv_heads = budget.equal;
    TRY(convert_once(&one, out, e));
    if (memcmp(budget.equal, budget.chosen, out->n_layers * sizeof *budget.equal) == 0)
        return STATUS_OK;
    one.layer_kv_heads = budget.chosen;
    const enum status s = convert_once(&one, &chosen, e);
    const bool is_nearer = s == STATUS_OK && chosen.divergence < out->divergence;
    if (s != STATUS_OK || is_nearer)
        convert_free(out);
    else
        convert_free(&chosen);
    if (is_nearer)
        *out = chosen;
    return s;
}

enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e)
{
    *out = (struct convert){.n_layers = 0};
    return spec->cache_bytes ? convert_to_budget(spec, out, e) : convert_once(spec, out, e);
}

enum status convert_model(const struct convert *converted, const struct model_options *how,
                          struct model **out, struct err *e)
{
    unsigned char *bytes = NULL;
    struct gguf *gguf = NULL;
    size_t len = 0;
    enum status s = gguf_write_memory(converted->writer, &bytes, &len, e);
    if (s == STATUS_OK)
        s = gguf_parse(bytes, len, &gguf, e);
    if (s == STATUS_OK)
        s = model_create(gguf, how, NULL, out, e);
    gguf_free(gguf);
    free(bytes);
    return s;
}
