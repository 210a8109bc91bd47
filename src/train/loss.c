/* Logits are made for head_rows rows at a time and become their own gradient in place. */
#include "train/loss.h"

#include <assert.h>

#include "train/affine.h"
#include "train/norm.h"

/* The logits of rows r, from b->norm; logits is the chunk's first row, which is row `chunk`. */
static float *make_logits(const struct backprop *b, struct rows r, int chunk, float *logits)
{
    const int d = b->config.d_model, n_vocab = b->config.n_vocab;
    float *out = logits + (size_t)(r.begin - chunk) * (size_t)n_vocab;
    const struct rows_product m = {.n_rows = rows_n(r),
                                   .n_in = d,
                                   .n_out = n_vocab,
                                   .panels = b->panels[ROLE_OUTPUT],
                                   .x = rows_at(b->norm, r, d),
                                   .y = out};
    backprop_multiply(b, &m);
    return out;
}

/* Losses of the rows r; logits become the gradient of the mean loss over all rows. */
static void lose_rows(const struct pass *p, struct rows r, float *logits, float *teacher_logits)
{
    const struct backprop *b = p->b;
    const int n_vocab = b->config.n_vocab;
    const float scale = 1.0f / (float)pass_rows(p);
    const float share = p->teacher ? p->teacher_share : 0, rest = (1 - share) * scale;
    const float smooth = rest * p->label_smoothing / (float)n_vocab;
    for (int t = r.begin; t < r.end; t++) {
        float *row = logits + (size_t)(t - r.begin) * (size_t)n_vocab;
        const int target = p->targets[t];
        const float logit = row[target];
        b->losses[t] = b->grad->softmax(row, n_vocab, scale) - logit;
        row[target] -= rest * (1 - p->label_smoothing);
        for (int i = 0; i < n_vocab && smooth > 0; i++)
            row[i] -= smooth;
        if (!teacher_logits)
            continue;
        float *taught = teacher_logits + (size_t)(t - r.begin) * (size_t)n_vocab;
        b->grad->softmax(taught, n_vocab, share * scale);
        for (int i = 0; i < n_vocab; i++)
            row[i] -= taught[i];
    }
}

static void chunk_rows(const struct pass *p, struct rows r, int chunk)
{
    struct backprop *b = p->b;
    const int d = b->config.d_model, last = 2 * b->config.n_layers;
    backprop_norm(p, last, r, rows_at(b->norm, r, d));
    float *logits = make_logits(b, r, chunk, b->logits);
    float *taught = NULL;
    if (p->teacher)
        taught = make_logits(p->teacher, r, chunk, b->teacher_logits);
    lose_rows(p, r, logits, taught);
    if (!p->gradient)
        return;
    const struct rows_product m = {.n_rows = rows_n(r),
                                   .n_in = b->config.n_vocab,
                                   .n_out = d,
                                   .panels = b->output_backward,
                                   .x = logits,
                                   .y = rows_at(b->dnorm, r, d)};
    backprop_multiply(b, &m);
    backprop_norm_backward(p, last, NULL, b->dx, r);
}

void backprop_losses(const struct pass *p, int thread)
{
    struct backprop *b = p->b;
    const int n_rows = pass_rows(p);
    assert(b->head_rows >= 1 && (!p->teacher || b->teacher_logits));
    for (int chunk = 0; chunk < n_rows; chunk += b->head_rows) {
        const int n = n_rows - chunk < b->head_rows ? n_rows - chunk : b->head_rows;
        int begin, end;
        pool_share(n, thread, b->n_threads, &begin, &end);
        begin += chunk;
        end += chunk;
        for (struct rows r = rows_first(begin, end); rows_n(r) > 0; r = rows_next(r, end))
            chunk_rows(p, r, chunk);
        pool_barrier(b->pool, thread);
        if (!p->gradient)
            continue;
        const struct param_pair output = {.weight = p->gradient->w[ROLE_OUTPUT].weight};
        const struct weight_sums sums = {.gradient = &output,
                                         .dy = b->logits,
                                         .x = b->norm + (size_t)chunk * (size_t)b->config.d_model,
                                         .n_rows = n,
                                         .n_out = b->config.n_vocab,
                                         .n_in = b->config.d_model,
                                         .add = chunk > 0};
        backprop_weight_sums(b, &sums, thread);
        pool_barrier(b->pool, thread);
    }
    if (p->gradient)
        backprop_norm_sums(p, 2 * b->config.n_layers, thread);
}
