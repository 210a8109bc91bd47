#include "convert/distance.h"

#include "engine/sampler.h"

/* Logits that exist at once, of the checkpoint or changed. */
#define MAX_LOGITS ((uint64_t)1 << 23)

int convert_measured_windows(const struct convert_calibration *k, int windows[CONVERT_MEASURED])
{
    const int judged = k->n_windows / CONVERT_JUDGED;
    const int step = (judged + CONVERT_MEASURED - 1) / CONVERT_MEASURED;
    int n = 0;
    for (int i = 0; i < judged; i += step)
        windows[n++] = (i + 1) * CONVERT_JUDGED - 1;
    return n;
}

struct convert_distance *convert_distance_take(const struct converter *c, struct arena *arena)
{
    const uint64_t window = (uint64_t)convert_window_tokens(c), vocab = (uint64_t)c->config.n_vocab;
    const uint64_t step = (window * vocab + MAX_LOGITS - 1) / MAX_LOGITS;
    const uint64_t rows = window / step;
    struct convert_distance x = {
        .window = (int)window, .step = (int)step, .n_vocab = c->config.n_vocab};
    struct convert_distance *out = arena_take(arena, 1, sizeof *out);
    x.logits = arena_take(arena, rows + 1, vocab * sizeof(float));
    x.changed = arena_take(arena, rows + 1, vocab * sizeof(float));
    x.log_sums = arena_take(arena, rows + 1, sizeof(double));
    x.rows = arena_take(arena, window, sizeof *x.rows);
    if (out)
        *out = x;
    return out;
}

enum status convert_distance_start(const struct converter *c, struct convert_distance *x,
                                   struct err *e)
{
    const struct session_params params = {.n_ctx = x->window, .kernels = c->calibration->kernels};
    for (int t = 0; t < x->window; t++)
        x->rows[t] = (struct batch_row){.position = t, .wants_logits = t % x->step == 0};
    return session_create(c->model, &params, c->spec->pool, &x->session, e);
}

void convert_distance_end(struct convert_distance *x)
{
    session_free(x->session);
    x->session = NULL;
}

static enum status predict(struct convert_distance *x, int layer, const float *stream, int n,
                           float *logits, struct err *e)
{
    session_rewind(x->session, 0, 0);
    return session_enter(x->session, layer, stream, x->rows, n, logits, e);
}

/* Predictions of a window of n tokens. */
static int n_predicted(const struct convert_distance *x, int n)
{
    return (n + x->step - 1) / x->step;
}

enum status convert_distance_reference(struct convert_distance *x, int layer, const float *stream,
                                       int n, struct err *e)
{
    const size_t vocab = (size_t)x->n_vocab;
    TRY(predict(x, layer, stream, n, x->logits, e));
    for (int r = 0; r < n_predicted(x, n); r++)
        TRY(logits_log_sum(x->logits + (size_t)r * vocab, (int)vocab, &x->log_sums[r], e));
    return STATUS_OK;
}

enum status convert_distance_add(struct convert_distance *x, int layer, const float *stream, int n,
                                 double *sum, struct err *e)
{
    const size_t vocab = (size_t)x->n_vocab;
    const int rows = n_predicted(x, n);
    TRY(predict(x, layer, stream, n, x->changed, e));
    for (int r = 0; r < rows; r++) {
        const float *changed = x->changed + (size_t)r * vocab;
        double log_sum;
        TRY(logits_log_sum(changed, (int)vocab, &log_sum, e));
        *sum += logits_divergence(x->logits + (size_t)r * vocab, x->log_sums[r], changed, log_sum,
                                  (int)vocab) /
                rows;
    }
    return STATUS_OK;
}
