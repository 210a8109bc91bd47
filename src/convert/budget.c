/*
 * Chooses the K/V heads of each layer for so many bytes of cache: measures what a layer loses with
 * each number that it can have, while all other layers keep theirs, and takes the numbers whose
 * losses have the least sum.
 */
#include "convert/private.h"

#include <math.h>

#include "model/config_keys.h"
#include "model/kv_cache.h"

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

enum status convert_budget_plan(struct convert_budget *b, const struct convert_spec *spec,
                                struct err *e)
{
    const struct config *f = &b->config;
    *b = (struct convert_budget){.spec = *spec};
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
    b->spec.refit = CONVERT_REFIT_NONE;
    return STATUS_OK;
}

/* Measures the divergence with `chosen` K/V heads in layer l alone. If that is as many as there
 * are, *lost keeps its value. */
static enum status measure_layer(struct converter *c, int l, double *lost, struct err *e)
{
    TRY(convert_begin_block(c, l));
    TRY(convert_calibrate(c));
    if (convert_keeps_heads(c))
        return STATUS_OK;
    TRY(convert_share(c, e));
    convert_load_stored(c);
    *lost = 0;
    for (int i = 0; i < c->divergence.n_windows; i++) {
        const struct convert_window win = convert_window_at(c, c->divergence.windows[i]);
        convert_run_layer(c, l, &win, (struct block_taps){.at = {[TAP_OUT] = c->scratch.rows3}});
        TRY(convert_divergence_add(c, l + 1, win.n, win.original, c->scratch.rows3, lost, e));
        TRY(convert_windows_done(c, 1));
    }
    return STATUS_OK;
}

/* Measures the divergence with `chosen` K/V heads in each layer, while all others keep theirs. */
static enum status measure(struct convert_budget *b, struct err *e)
{
    struct converter c;
    struct convert out = {.n_layers = 0};
    const int n_layers = b->config.n_layers;
    TRY(convert_open(&c, &b->spec, &out, e));
    enum status s = STATUS_OK;
    c.all = n_layers * (uint64_t)(c.calib.n_windows + c.divergence.n_windows);
    for (int l = 0; s == STATUS_OK && l < n_layers; l++) {
        s = measure_layer(&c, l, &b->lost[l * (b->most + 1) + b->chosen[l]], e);
        memcpy(c.calib.converted, c.calib.original,
               c.spec->n_tokens * c.d * sizeof *c.calib.original);
    }
    convert_close(&c);
    convert_free(&out);
    return s;
}

/* Measures every number of K/V heads that a layer can have. */
static enum status measure_all(struct convert_budget *b, struct err *e)
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

enum status convert_budget_choose(struct convert_budget *b, struct err *e)
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
