/*
 * K/V heads or ranks of each layer for so many bytes of cache: what a layer loses with each number
 * that it can have is measured, all others as they are, and those are taken whose sum is least.
 */
#include <math.h>

#include "convert/private.h"

/* Tokens at most on which K/V heads are measured: each number of them is a conversion. */
#define HEADS_TOKENS 16384
/* Ranks are multiples of it. */
#define RANK_STEP 16
/* Times the equal rank that a layer's may be. */
#define MOST_TIMES 3

/* The most K/V heads that a layer may have, no more than it has and than `limit`. */
static int most_heads(const struct config *f, int layer, int limit)
{
    int g = MIN(config_kv_heads(f, layer), limit);
    while (g > 0 && config_heads(f, layer) % g != 0)
        g--;
    return g;
}

static enum status plan_heads(struct convert_budget *b, struct err *e)
{
    const struct config *f = &b->config;
    const int n_layers = f->n_layers;
    const size_t bytes = (f->head_dim + config_value_dim(f)) * sizeof(float);
    const size_t n = b->spec.cache_bytes / bytes, all = config_all_kv_heads(f);
    if (n < (size_t)n_layers || n >= all)
        return err_usage(e,
                         "%zu cache bytes a token: expected at least %zu, for one K/V head in each "
                         "of %d layers, and less than %zu, which MODEL has",
                         b->spec.cache_bytes, n_layers * bytes, n_layers, all * bytes);
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
    b->spec.n_tokens = MIN(b->spec.n_tokens, HEADS_TOKENS);
    return STATUS_OK;
}

static enum status plan_ranks(struct convert_budget *b, struct err *e)
{
    const struct config *f = &b->config;
    const int n_layers = f->n_layers, width = f->d_model / RANK_STEP;
    const size_t n = b->spec.cache_bytes / sizeof(float) / RANK_STEP;
    const int all = n < (size_t)n_layers * width ? (int)n : n_layers * width;
    const int equal = all / n_layers;
    if (equal < 1)
        return err_usage(e,
                         "%zu cache bytes a token: expected at least %zu, for rank %d in each of "
                         "%d layers of width %d",
                         b->spec.cache_bytes, n_layers * RANK_STEP * sizeof(float), RANK_STEP,
                         n_layers, f->d_model);
    b->most = MIN(MIN(all - (n_layers - 1), MOST_TIMES * equal), width);
    b->all = MIN(all, n_layers * b->most);
    for (int l = 0; l < n_layers; l++) {
        b->equal[l] = equal * RANK_STEP;
        b->chosen[l] = b->most * RANK_STEP;
    }
    b->spec.latent = b->chosen;
    return STATUS_OK;
}

enum status convert_budget_plan(struct convert_budget *b, const struct convert_spec *spec,
                                struct err *e)
{
    *b = (struct convert_budget){.spec = *spec};
    TRY(config_read(spec->gguf, &b->config, e));
    TRY(spec->heads_by_bytes ? plan_heads(b, e) : plan_ranks(b, e));
    b->spec.refit = CONVERT_REFIT_NONE;
    b->spec.cache_bytes = 0;
    b->spec.state = NULL;
    return STATUS_OK;
}

/* Divergences of each layer with `chosen` K/V heads, if these are fewer; or with every rank up to
 * that: a block is measured at its largest rank, whose numbers are then taken away. */
static enum status measure_losses(struct converter *c, struct err *e)
{
    const struct convert_budget *b = c->budget;
    const bool latent = convert_is_latent(c);
    const int n_layers = c->config.n_layers, n_steps = latent ? b->most : 1;
    c->all = n_layers * (uint64_t)(c->n_windows + c->n_measured * n_steps);
    for (int l = 0; l < n_layers; l++) {
        double *lost = b->lost + l * (b->most + 1);
        convert_begin(c, l);
        TRY(convert_calibrate(c));
        const bool keeps = convert_keeps_heads(c);
        if (latent) {
            convert_measure(c);
            TRY(convert_latent_fit(c, NULL, e));
        } else if (!keeps) {
            TRY(convert_share(c, NULL, e));
            convert_store_order(c);
        }
        if (!keeps)
            TRY(convert_store(c, PART_O, PART_UP, e));
        for (int i = 0; i < c->n_measured && !keeps; i++) {
            const struct convert_window win = convert_window_at(c, c->measured[i]);
            TRY(convert_distance_add(c, l + 1, win.n, win.original, NULL, e));
            for (int k = 0; k < n_steps; k++) {
                const int step = latent ? b->most - k : (int)c->n_groups;
                if (latent)
                    TRY(convert_store_latent(c, step * RANK_STEP, e));
                convert_use(c);
                convert_run_layer(c, l, &win, (struct block_taps){.at = {[TAP_OUT] = c->rows3}});
                lost[step] = i == 0 ? 0 : lost[step];
                TRY(convert_distance_add(c, l + 1, win.n, c->rows3, &lost[step], e));
                TRY(convert_windows_done(c, 1));
            }
        }
        memcpy(c->stream2, c->stream, c->spec->n_tokens * c->d * sizeof *c->stream);
    }
    return STATUS_OK;
}

/* A conversion to `chosen`, measured. */
static enum status measure(struct convert_budget *b, struct err *e)
{
    struct converter c;
    struct convert out = {.n_layers = 0};
    enum status s = convert_describe(&c, &b->spec, &out, e);
    c.budget = b;
    THEN(s, convert_work(&c, measure_losses, e));
    convert_free(&out);
    return s;
}

/* All that can be measured: every rank at once, numbers of K/V heads one by one. */
static enum status measure_all(struct convert_budget *b, struct err *e)
{
    const struct config *f = &b->config;
    if (b->spec.latent)
        return measure(b, e);
    for (int l = 0; l < f->n_layers; l++) /* as it is */
        b->lost[l * (b->most + 1) + config_kv_heads(f, l)] = 0;
    for (int number = 1; number < f->n_kv_heads; number++) {
        bool is_new = false; /* for a layer at least */
        for (int l = 0; l < f->n_layers; l++) {
            b->chosen[l] = most_heads(f, l, number);
            is_new |= b->chosen[l] == number && number < config_kv_heads(f, l);
        }
        if (is_new)
            TRY(measure(b, e));
    }
    return STATUS_OK;
}

enum status convert_budget_choose(struct convert_budget *b, struct err *e)
{
    const int n_layers = b->config.n_layers, width = b->all + 1, most = b->most;
    const size_t n_lost = (size_t)n_layers * (most + 1), n_best = (size_t)(n_layers + 1) * width;
    if (b->config.shared) { /* `equal` is all there is */
        memcpy(b->chosen, b->equal, sizeof b->chosen);
        return STATUS_OK;
    }
    /* Behind the losses the least sums [n_layers + 1, width] for so many layers and steps, and how
     * many of these the last layer has. */
    TRY_ZEROED(b->lost, n_lost + 2 * n_best, "what layers lose", e);
    double *best = b->lost + n_lost;
    int *taken = (void *)(best + n_best);
    for (size_t i = 0; i < n_lost; i++)
        b->lost[i] = HUGE_VAL;
    const enum status s = measure_all(b, e);
    for (int l = 0; l < n_layers; l++)
        for (int n = 0; n < width; n++) {
            double *least = &best[(l + 1) * width + n];
            *least = HUGE_VAL;
            for (int i = 1; i <= most && i <= n; i++) {
                const double sum = best[l * width + n - i] + b->lost[l * (most + 1) + i];
                if (sum < *least) {
                    *least = sum;
                    taken[(l + 1) * width + n] = i;
                }
            }
        }
    for (int l = n_layers - 1, n = b->all; l >= 0; l--) {
        const int i = taken[(l + 1) * width + n];
        b->chosen[l] = b->spec.latent ? i * RANK_STEP : i;
        n -= i;
    }
    free(b->lost);
    return s;
}
