#include "convert/private.h"

#include "engine/sampler.h"

/* The most logits of either stream that exist at once. */
#define MAX_LOGITS (1 << 23)

void convert_divergence_allocate(struct converter *c)
{
    struct convert_divergence *v = &c->divergence;
    const size_t window = c->calib.window, vocab = c->config.n_vocab;
    const uint64_t step = ((uint64_t)window * vocab + MAX_LOGITS - 1) / MAX_LOGITS;
    const size_t rows = window / step + 1;
    *v = (struct convert_divergence){.step = step,
                                     .logits = convert_floats(c, rows, vocab),
                                     .changed = convert_floats(c, rows, vocab),
                                     .log_sums = convert_doubles(c, rows, 1)};
    ARENA_TAKE(v->batch, &c->arena, window);
}

enum status convert_divergence_open(struct converter *c, struct err *e)
{
    struct convert_divergence *v = &c->divergence;
    const size_t window = c->calib.window;
    const struct session_params params = {.n_ctx = window, .kernels = c->kernels};
    const int held_out = c->calib.n_windows / CONVERT_HELD_OUT_EVERY;
    const int step = (held_out + DIVERGENCE_WINDOWS - 1) / DIVERGENCE_WINDOWS;
    for (int i = 0; i < held_out; i += step)
        v->windows[v->n_windows++] = (i + 1) * CONVERT_HELD_OUT_EVERY - 1;
    for (size_t t = 0; t < window; t++)
        v->batch[t] = (struct batch_row){.position = t, .wants_logits = t % v->step == 0};
    return session_create(c->model, &params, c->spec->pool, &v->session, e);
}

/* Computes the logits of n rows of a stream before `layer`. */
static enum status predict(const struct convert_divergence *v, int layer, size_t n,
                           const float *stream, float *logits, struct err *e)
{
    session_rewind(v->session, 0, 0);
    return session_enter(v->session, layer, stream, v->batch, n, logits, e);
}

/* Adds to *sum the mean divergence of the predictions from n rows of `changed`, before `layer`,
 * from those of `original`. */
static enum status add_divergence(const struct converter *c, int layer, size_t n,
                                  const float *original, const float *changed, double *sum,
                                  struct err *e)
{
    const struct convert_divergence *v = &c->divergence;
    const size_t vocab = c->config.n_vocab, n_logits = (n + v->step - 1) / v->step;
    TRY(predict(v, layer, n, original, v->logits, e));
    for (size_t r = 0; r < n_logits; r++)
        TRY(logits_log_sum(v->logits + r * vocab, vocab, &v->log_sums[r], e));
    TRY(predict(v, layer, n, changed, v->changed, e));
    for (size_t r = 0; r < n_logits; r++) {
        double log_sum;
        TRY(logits_log_sum(v->changed + r * vocab, vocab, &log_sum, e));
        *sum += logits_divergence(v->logits + r * vocab, v->log_sums[r], v->changed + r * vocab,
                                  log_sum, vocab) /
                n_logits;
    }
    return STATUS_OK;
}

enum status convert_compare(struct converter *c, int layer, double *sum, struct err *e)
{
    float *out = c->scratch.rows3; /* of the layer */
    const int n_layers = c->config.n_layers;
    *sum = 0;
    for (int i = 0; i < c->divergence.n_windows; i++) {
        const struct convert_window win = convert_window_at(c, c->divergence.windows[i]);
        const float *changed = layer < n_layers ? out : win.converted;
        if (layer < n_layers)
            convert_run_layer(c, layer, &win, (struct block_taps){.at = {[TAP_OUT] = out}});
        TRY(add_divergence(c, MIN(layer + 1, n_layers), win.n, win.original, changed, sum, e));
        TRY(convert_windows_done(c, 1));
    }
    return STATUS_OK;
}
