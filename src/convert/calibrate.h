/*
 * calibrate - a text through the checkpoint and its conversion, block by block.
 *
 * The residual streams of all windows are stored, so that each layer runs once as it was and then
 * converted, for each of its refits and at last for the layers behind it. Layers that share a block
 * run as they were each time, because where the stream was in the middle is stored for one layer
 * only.
 */
#ifndef DECODE_CONVERT_CALIBRATE_H
#define DECODE_CONVERT_CALIBRATE_H

#include "convert/ridge.h"
#include "convert/used.h"
#include "convert/work.h"
#include "engine/session.h"

struct convert_calibration {
    struct convert_used used; /* the block in work, converted */
    const struct kernels *kernels;
    const struct grad_kernels *grad;
    struct probe *probe, *probe2; /* of the checkpoint, of the conversion */
    int window;                   /* tokens */
    int n_windows;                /* the last one may have fewer */
    /* [n_tokens, d] the checkpoint's residual stream before the layer, from convert_calibrate on
     * behind it; the converted model's before it; the checkpoint's, after attention. */
    float *stream, *stream2, *middle;
    float *plain; /* [windows kept aside, window, d] behind layers of which neighbouring heads share
                     their mean; NULL unless convert_has_plain */
    float *rows, *rows2, *rows3; /* [window, widest], [window, d], the same */
    double *x;                   /* as rows */
    double *x_sum, *y_sum;       /* [widest], [d] */
    /* Of what attention adds, centred: by layer of the block. */
    double *energy;
    double *energy_sum; /* [layers, d] */
    struct convert_summing summing;
};

/* Takes c->calibration, or counts it. */
void convert_calibration_take(struct converter *c, struct arena *arena);
enum status convert_calibration_start(struct converter *c, struct err *e);
void convert_calibration_end(struct converter *c);

/* Tokens of a window. */
static inline int convert_window_tokens(const struct converter *c)
{
    const size_t n = c->spec->n_tokens;
    if (c->spec->measures_only)
        return (size_t)c->config.n_ctx < n ? c->config.n_ctx : (int)n;
    return convert_window_size(c->config.n_ctx, n);
}

/* Tokens of window w, which may be fewer in the last, and the first of them. */
static inline size_t convert_window_first(const struct convert_calibration *k, int w)
{
    return (size_t)w * (size_t)k->window;
}
int convert_window_length(const struct converter *c, int w);

/* Its first row in a buffer [n_tokens, d]. */
static inline float *convert_window(const struct converter *c, float *buffer, int w)
{
    return buffer + convert_window_first(c->calibration, w) * (size_t)c->d;
}

/* Whether a window is kept aside. */
static inline bool convert_is_judged(const struct converter *c, int w)
{
    return !c->spec->measures_only && w % CONVERT_JUDGED == CONVERT_JUDGED - 1;
}

/* A window kept aside, in the stream through plain means. */
static inline float *convert_plain_window(const struct converter *c, int w)
{
    const struct convert_calibration *k = c->calibration;
    return k->plain + (size_t)(w / CONVERT_JUDGED) * (size_t)k->window * (size_t)c->d;
}

/* So many windows are done; STATUS_INTERRUPTED if that is wanted. */
enum status convert_windows_done(struct converter *c, int n);

/* Runs `visit` for every layer of the block in work over each of these windows. Layers that share a
 * block run as they were, too, before it, from the embeddings on: then `visit` leaves k->rows2
 * alone, which the stream goes on from. STATUS_INTERRUPTED. */
enum convert_windows { CONVERT_ALL, CONVERT_FITTED, CONVERT_KEPT_ASIDE };
enum status convert_each_window(struct converter *c, enum convert_windows which, void *arg,
                                void (*visit)(void *arg, int layer, int w));

/* Of floats [n], at most a window's rows, through k->x. */
double convert_squared_distance(struct convert_calibration *k, const float *x, const float *y,
                                size_t n);

/* Where the converted layer starts from in a window: layers that share a block on the checkpoint's
 * own stream. */
const float *convert_stream(const struct converter *c, int w);

/* out [n, d] = x through a norm of the block in work, if models have one of this role. */
void convert_norm_rows(const struct converter *c, enum tensor_role role, float *out, const float *x,
                       int n);

/* Moments of the inputs of the block in work, in all layers that use it: of the text, whose way
 * through the checkpoint's layers this is, or, without a text, those that the norm before it alone
 * allows. */
enum status convert_calibrate(struct converter *c);
void convert_assume(struct converter *c);

/* Runs the converted layers; the shares of the output's energy that are lost after attention go to
 * c->lost. STATUS_INTERRUPTED; STATUS_FAILED if these are no finite numbers. */
enum status convert_advance(struct converter *c, struct err *e);

/* Runs the layers of the block in work, stored with plain means, over the windows kept aside. */
enum status convert_advance_plain(struct converter *c);

#endif
