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
    const size_t len = j->text.len * CALIBRATED;
    if (r->o->max_cache && !parse_bytes(r->o->max_cache, &r->max_cache_bytes))
        return err_usage(e, "--max-cache: expected a number of bytes, as 8192 or 8MiB, found '%s'",
                         r->o->max_cache);
    job_warn_vocabulary(&r->o->common, j->path, j->checkpoint.tokenizer);
    r->calibration = text_span(j->text.data, len);
    j->text = text_span(j->text.data + len, j->text.len - len);
    int32_t *ids = NULL;
    size_t n_ids;
    const enum status s =
        tokens_of_text(j->checkpoint.tokenizer, r->calibration, false, &ids, &n_ids, e);
    free(ids);
    TRY(err_in(e, s, "--text"));
    if (n_ids < CONVERT_MIN_TOKENS)
        return err_usage(e,
                         "--text: expected at least %d tokens in the first nine tenths of "
                         "'%.200s', to calibrate on, found %zu",
                         CONVERT_MIN_TOKENS, r->o->common.file, n_ids);
    TRY(err_in(e, job_tokenize(j, e), "--text"));
    return err_in(e, eval_check_length(j->n_tokens, e), "--text, its last tenth");
}

/* How many variants have to be converted: all but the checkpoint's own. */
static int count_conversions(const struct bench_run *r)
{
    const struct int_list *variants = &r->spec.axes[BENCH_VARIANTS];
    int n = 0;
    for (int i = 0; i < variants->n; i++)
        n += variants->items[i] != r->subjects[0].config.n_kv_heads;
    return n;
}

/* A variant of the checkpoint, whose model is closed again, and what each token costs it: nll. */
static enum status measure_variant(struct bench_run *r, int n_kv_heads,
                                   const struct calibration *text, double *nll,
                                   struct eval_result *out, struct err *e)
{
    struct job *j = r->job;
    char number[16];
    chars_printf(number, "%d", n_kv_heads);
    enum status s = variant_load(j, number, text, &j->checkpoint.model, e);
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

/* By depth and batch; those within the limits first, the smallest cache first, and of equal ones
 * the fastest. */
static int compare(const void *a, const void *b)
{
    const struct bench_advice *x = a, *y = b;
    if (x->row->plan.depth != y->row->plan.depth)
        return x->row->plan.depth > y->row->plan.depth ? 1 : -1;
    if (x->row->plan.batch != y->row->plan.batch)
        return x->row->plan.batch > y->row->plan.batch ? 1 : -1;
    const uint64_t x_bytes = x->row->plan.allocated_bytes, y_bytes = y->row->plan.allocated_bytes;
    if (!x->beyond[0] != !y->beyond[0])
        return x->beyond[0] ? 1 : -1;
    if (x_bytes != y_bytes)
        return x_bytes > y_bytes ? 1 : -1;
    return (x->row->p50_us > y->row->p50_us) - (x->row->p50_us < y->row->p50_us);
}

static bool same_place(const struct bench_advice *x, const struct bench_advice *y)
{
    return x->row->plan.depth == y->row->plan.depth && x->row->plan.batch == y->row->plan.batch;
}

/* Whether x is as good as y in loss, time and cache, and better in one of them. */
static bool dominates(const struct bench_advice *x, const struct bench_advice *y)
{
    const uint64_t x_bytes = x->row->plan.allocated_bytes, y_bytes = y->row->plan.allocated_bytes;
    const double x_us = x->row->p50_us, y_us = y->row->p50_us;
    return x->lost <= y->lost && x_us <= y_us && x_bytes <= y_bytes &&
           (x->lost < y->lost || x_us < y_us || x_bytes < y_bytes);
}

/* What the variants lose, [variants], with its standard error: that of neighbours' differences. */
static enum status measure_losses(struct bench_run *r, const struct calibration *text, double *nll,
                                  struct bench_advice *losses, struct err *e)
{
    const int n = r->spec.axes[BENCH_VARIANTS].n;
    const int *variants = r->spec.axes[BENCH_VARIANTS].items;
    const size_t n_scored = r->job->n_tokens - 1;
    double *whole = nll, *own = nll + n_scored;
    const int n_conversions = count_conversions(r);
    struct eval_result before, after;
    int nth = 0;
    if (n_conversions > 0)
        say(&r->o->common,
            "losses: %d variant%s to convert and evaluate; fewer --calib-tokens take less time",
            n_conversions, plural(n_conversions));
    TRY(measure_variant(r, r->subjects[0].config.n_kv_heads, text, whole, &before, e));
    for (int i = 0; i < n; i++) {
        losses[i] = (struct bench_advice){.bits_per_byte = before.bits_per_byte};
        if (variants[i] == r->subjects[0].config.n_kv_heads)
            continue;
        say_verbose(&r->o->common, "variant %d of %d: %s", ++nth, n_conversions,
                    r->bench.models[i].variant.name);
        TRY(measure_variant(r, variants[i], text, own, &after, e));
        for (size_t t = 0; t < n_scored; t++)
            own[t] -= whole[t];
        losses[i].bits_per_byte = after.bits_per_byte;
        losses[i].lost = after.bits_per_byte - before.bits_per_byte;
        losses[i].lost_error = eval_mean_error(own, n_scored, after.nll - before.nll) *
                               after.tokens / log(2) / after.bytes;
    }
    return STATUS_OK;
}

enum status advice_measure(struct bench_run *r, struct err *e)
{
    struct job *j = r->job;
    const struct bench *b = &r->bench;
    struct bench_advice losses[LIST_MAX];
    struct calibration text = {NULL, 0};
    double *nll;
    TRY_ZEROED(nll, 2 * j->n_tokens, "what each token costs", e);
    j->kernels = r->spec.kernels;
    j->n_threads = r->spec.axes[BENCH_THREADS].items[0];
    enum status s = job_start_threads(j, e);
    if (s == STATUS_OK)
        s = calibration_of_text(&r->o->common, j->checkpoint.tokenizer, &r->subjects[0].config,
                                r->calibration, r->o->common.file,
                                r->o->calib_tokens ? r->o->calib_tokens : CALIBRATION_TOKENS, &text,
                                e);
    if (s == STATUS_OK)
        s = measure_losses(r, &text, nll, losses, e);
    free(text.tokens);
    free(nll);
    TRY(s);
    TRY_ZEROED(r->advice, b->n_rows, "the advice", e);
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_row *row = &b->rows[i];
        struct bench_advice *a = &r->advice[i];
        *a = losses[row->at[BENCH_VARIANTS]];
        a->row = row;
        const bool beyond[] = {
            r->o->max_loss > 0 && !(a->lost <= r->o->max_loss),
            r->o->max_us > 0 && row->p50_us > r->o->max_us,
            r->o->max_cache && row->plan.allocated_bytes > r->max_cache_bytes,
        };
        static const char *const limits[] = {"loss", "time", "cache"};
        for (int k = 0; k < 3; k++)
            if (beyond[k])
                chars_append(a->beyond, "%s%s", a->beyond[0] ? ", " : "", limits[k]);
    }
    qsort(r->advice, b->n_rows, sizeof *r->advice, compare);
    for (int i = 0; i < b->n_rows; i++) {
        struct bench_advice *a = &r->advice[i];
        const bool is_first = i == 0 || !same_place(a, a - 1);
        a->chosen = advice_is_limited(r->o) && is_first && !a->beyond[0];
        a->undominated = true;
        for (int k = 0; k < b->n_rows; k++)
            a->undominated &= !same_place(a, &r->advice[k]) || !dominates(&r->advice[k], a);
    }
    return STATUS_OK;
}
