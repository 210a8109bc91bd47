#include "convert/divergence.h"

#include "convert/memory.h"
#include "engine/sampler.h"

/* Logits that exist at once, of the checkpoint or changed. */
#define MAX_LOGITS (1 << 23)
/* Windows at most over which predictions are compared. */
#define MAX_WINDOWS 8

struct convert_divergence {
    struct session *session; /* of the checkpoint */
    int windows[MAX_WINDOWS], n_windows;
    size_t step;             /* every step-th token of a window predicts */
    float *logits, *changed; /* [window / step, n_vocab] */
    double *log_sums;        /* [window / step] of logits */
    struct batch_row *batch; /* [window] */
};

void convert_divergence_take(struct converter *c)
{
    struct convert_divergence counted;
    struct convert_divergence *v = arena_take(&c->arena, 1, sizeof *v);
    const size_t window = c->calib.window, vocab = c->config.n_vocab;
    const uint64_t step = ((uint64_t)window * vocab + MAX_LOGITS - 1) / MAX_LOGITS;
    const size_t rows = window / step + 1;
    c->divergence = v;
    v = v ? v : &counted;
    *v = (struct convert_divergence){.step = step,
                                     .logits = convert_floats(c, rows, vocab),
                                     .changed = convert_floats(c, rows, vocab),
                                     .log_sums = convert_doubles(c, rows, 1)};
    ARENA_TAKE(v->batch, &c->arena, window);
}

enum status convert_divergence_start(struct converter *c, struct err *e)
{
    struct convert_divergence *v = c->divergence;
    const size_t window = c->calib.window;
    const struct session_params params = {.n_ctx = window, .kernels = c->kernels};
    const int held_out = c->calib.n_windows / CONVERT_HELD_OUT_EVERY;
    const int step = (held_out + MAX_WINDOWS - 1) / MAX_WINDOWS;
    for (int i = 0; i < held_out; i += step)
        v->windows[v->n_windows++] = (i + 1) * CONVERT_HELD_OUT_EVERY - 1;
    for (size_t t = 0; t < window; t++)
        v->batch[t] = (struct batch_row){.position = t, .wants_logits = t % v->step == 0};
    return session_create(c->model, &params, c->pool, &v->session, e);
}

void convert_divergence_stop(struct converter *c)
{
    if (c->divergence)
        session_free(c->divergence->session);
}

int convert_divergence_windows(const struct converter *c)
{
    return c->divergence ? c->divergence->n_windows : 0;
}

struct convert_window convert_divergence_window(const struct converter *c, int i)
{
    return convert_window_at(c, c->divergence->windows[i]);
}

enum status convert_divergence_add(struct converter *c, int layer, size_t n, const float *stream,
                                   double *sum, struct err *e)
{
    struct convert_divergence *v = c->divergence;
    const size_t vocab = c->config.n_vocab, n_logits = (n + v->step - 1) / v->step;
    float *logits = sum ? v->changed : v->logits;
    session_rewind(v->session, 0, 0);
    TRY(session_enter(v->session, layer, stream, v->batch, n, logits, e));
    for (size_t r = 0; r < n_logits; r++) {
        double log_sum;
        TRY(logits_log_sum(logits + r * vocab, vocab, &log_sum, e));
        if (sum)
            *sum += logits_divergence(v->logits + r * vocab, v->log_sums[r], logits + r * vocab,
                                      log_sum, vocab) /
                    n_logits;
        else
            v->log_sums[r] = log_sum;
    }
    return STATUS_OK;
}
