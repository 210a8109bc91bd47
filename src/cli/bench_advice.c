#include "cli/bench_advice.h"

#include "base/figures.h"
#include "cli/checkpoints.h"
#include "cli/input.h"
#include "cli/job.h"
#include "cli/memory.h"
#include "cli/terminal.h"
#include "cli/threads.h"
#include "measure/eval.h"

/* The share of the text that is for calibration; the rest is measured. */
#define CALIBRATED 0.9

enum status advice_prepare(struct bench_run *r, struct err *e)
{
    struct job *j = r->job;
    const struct bench_options *o = r->o;
    const size_t len = j->text.len * CALIBRATED;
    if (o->max_cache && !parse_bytes(o->max_cache, &r->max_cache_bytes))
        return err_usage(e, "--max-cache: expected a number of bytes, as 8192 or 8MiB, found '%s'",
                         o->max_cache);
    job_warn_vocabulary(&o->common, j->path, j->checkpoint.tokenizer);
    TRY(err_in(e,
               calibration_of_text(&o->common, j->checkpoint.tokenizer, &r->subjects[0].config,
                                   text_span(j->text.data, len), o->common.file,
                                   o->calib_tokens ? o->calib_tokens : CALIBRATION_TOKENS,
                                   &r->calibration, e),
               "--text, its first nine tenths"));
    j->text = text_span(j->text.data + len, j->text.len - len);
    TRY(err_in(e, job_tokenize(j, e), "--text"));
    return err_in(e, eval_check_length(j->n_tokens, e), "--text, its last tenth");
}

/* A variant of the checkpoint, whose model is closed again, and what each token costs it: nll. */
static enum status measure_variant(struct bench_run *r, int n_kv_heads, double *nll,
                                   struct eval_result *out, struct err *e)
{
    struct job *j = r->job;
    struct variant_request q = job_variant(j);
    char number[16];
    chars_printf(number, "%d", n_kv_heads);
    q.callbacks = job_callbacks(j, "windows");
    enum status s =
        variant_load(&q, &r->o->common, number, &r->calibration, &j->checkpoint.model, e);
    if (s == STATUS_OK) {
        struct eval_spec spec = job_eval_spec(j, &j->checkpoint);
        spec.nll = nll;
        spec.callbacks = job_callbacks(j, "tokens");
        s = eval_run(&spec, out, e);
    }
    model_free(j->checkpoint.model);
    j->checkpoint.model = NULL;
    return s;
}

/* What the variants lose, [variants], with its standard error: that of neighbours' differences. */
static enum status measure_losses(struct bench_run *r, double *nll, struct bench_advice *losses,
                                  struct err *e)
{
    const struct int_list *variants = &r->spec.axes[BENCH_VARIANTS];
    const int own_kv_heads = r->subjects[0].config.n_kv_heads;
    const size_t n_scored = r->job->n_tokens - 1;
    double *whole = nll, *own = nll + n_scored;
    struct eval_result before, after;
    TRY(measure_variant(r, own_kv_heads, whole, &before, e));
    for (int i = 0; i < variants->n; i++) {
        losses[i] = (struct bench_advice){.bits_per_byte = before.bits_per_byte};
        if (variants->items[i] == own_kv_heads)
            continue;
        TRY(measure_variant(r, variants->items[i], own, &after, e));
        for (size_t t = 0; t < n_scored; t++)
            own[t] -= whole[t];
        losses[i].bits_per_byte = after.bits_per_byte;
        losses[i].lost = after.bits_per_byte - before.bits_per_byte;
        losses[i].lost_error = eval_mean_error(own, n_scored, after.nll - before.nll) *
                               after.tokens / log(2) / after.bytes;
    }
    return STATUS_OK;
}

/* The limits that the row exceeds. */
static void compare_with_limits(const struct bench_run *r, const struct bench_row *row,
                                struct bench_advice *a)
{
    const struct bench_options *o = r->o;
    const struct {
        bool exceeded;
        const char *name;
    } limits[] = {
        {o->max_loss > 0 && !(a->lost <= o->max_loss), "loss"},
        {o->max_us > 0 && row->p50_us > o->max_us, "time"},
        {o->max_cache && row->plan.allocated_bytes > r->max_cache_bytes, "cache"},
    };
    for (int i = 0; i < LENGTH(limits); i++)
        if (limits[i].exceeded)
            chars_append(a->beyond, "%s%s", a->beyond[0] ? ", " : "", limits[i].name);
}

/* Whether x is at y's depth and batch and the better choice: its cache is smaller, or as small and
 * its steps are shorter. */
static bool is_better(const struct bench_row *x, const struct bench_row *y)
{
    const uint64_t x_bytes = x->plan.allocated_bytes, y_bytes = y->plan.allocated_bytes;
    return x->plan.depth == y->plan.depth && x->plan.batch == y->plan.batch &&
           (x_bytes < y_bytes || (x_bytes == y_bytes && x->p50_us < y->p50_us));
}

enum status advice_measure(struct bench_run *r, struct err *e)
{
    struct job *j = r->job;
    const struct bench_row *rows = r->bench.rows;
    const int n_rows = r->bench.n_rows;
    struct bench_advice losses[LIST_MAX];
    double *nll;
    TRY_ZEROED(nll, 2 * j->n_tokens, "what each token costs", e);
    j->kernels = r->spec.kernels;
    j->n_threads = r->spec.axes[BENCH_THREADS].items[0];
    enum status s = job_start_threads(j, e);
    if (s == STATUS_OK)
        s = measure_losses(r, nll, losses, e);
    free(nll);
    TRY(s);
    TRY_ZEROED(r->advice, n_rows, "the advice", e);
    for (int i = 0; i < n_rows; i++) {
        r->advice[i] = losses[rows[i].at[BENCH_VARIANTS]];
        compare_with_limits(r, &rows[i], &r->advice[i]);
    }
    for (int i = 0; i < n_rows; i++) {
        struct bench_advice *a = &r->advice[i];
        a->chosen = advice_is_limited(r->o) && !a->beyond[0];
        for (int k = 0; k < n_rows; k++)
            a->chosen &= r->advice[k].beyond[0] || !is_better(&rows[k], &rows[i]);
    }
    return STATUS_OK;
}
