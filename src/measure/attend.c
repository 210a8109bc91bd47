#include "measure/attend.h"

#include <math.h>

#include "base/figures.h"
#include "base/mem.h"
#include "compute/elementary.h"
#include "engine/sampler.h"

/* Sums are LANES interleaved parts over pieces of a row, for the vectoriser. */
enum { LANES = 4, PIECE = 128 };
/* Tokens of a step whose logits are wanted; each takes memory for the whole vocabulary. */
#define NEXT_ROWS 16

/* A run while the text goes through. */
struct attend_run {
    const struct attend_spec *spec;
    struct attend_found *out;
    int *earlier; /* [n_tokens] the last place before each token that has the same one; -1: none */
    int n_repeated;  /* tokens that have one */
    double *offsets; /* [n_heads, n_tokens / 2 + 1] the sum of the weights at a distance */
    double *divides, *content; /* [n_tokens] 1 for the keys of a query that count as such, else 0 */
    float *logits;  /* [NEXT_ROWS, n_vocab] of a step; NULL: the next tokens are not wanted */
    uint64_t *keys; /* [n_next] scratch memory */
    const struct attend_head *bad; /* the head and query whose weights are not finite; NULL: none */
    int bad_row;
};

static void take_maps(struct attend_run *run)
{
    const struct attend_spec *spec = run->spec;
    struct arena *a = &run->out->arena;
    const uint64_t n = spec->n_tokens;
    ARENA_TAKE(run->earlier, a, n);
    ARENA_TAKE(run->offsets, a, spec->n_heads * (n / 2 + 1));
    ARENA_TAKE(run->divides, a, n);
    ARENA_TAKE(run->content, a, n);
    if (spec->trace)
        trace_take(spec->trace, a, &spec->model->config);
    if (spec->paths) {
        spec->paths->n_next = spec->n_next;
        paths_take(spec->paths, a, &spec->model->config);
    }
    if (spec->n_next > 0) {
        ARENA_TAKE(run->out->next, a, n * spec->n_next);
        ARENA_TAKE(run->logits, a, (uint64_t)NEXT_ROWS * spec->model->config.n_vocab);
        ARENA_TAKE(run->keys, a, spec->n_next);
    }
    if (spec->query >= 0)
        ARENA_TAKE(run->out->query, a, (uint64_t)spec->n_heads * (spec->query + 1));
    for (struct attend_map *m = spec->maps; m < spec->maps + spec->n_maps; m++)
        ARENA_TAKE(m->cell, a, (uint64_t)m->cells * m->cells);
}

enum status attend_plan(const struct attend_spec *spec, uint64_t *bytes, struct err *e)
{
    const struct attention_watch none = {.arg = NULL};
    struct session_params params = spec->params;
    struct attend_found out = {.query = NULL};
    struct attend_run run = {.spec = spec, .out = &out};
    struct session_memory session;
    params.n_ctx = spec->n_tokens;
    params.watch = &none;
    TRY(session_plan(spec->model, &params, pool_n_threads(spec->pool), &session, e));
    take_maps(&run);
    *bytes = u64_sum(out.arena.used, u64_sum(session.kv_bytes, session.scratch_bytes));
    return STATUS_OK;
}

/* --- a row ----------------------------------------------------------------------------------- */

/* Marks the keys of query i that are separators, and the keys that only content counts. */
static void mark_keys(const struct attend_run *run, int i)
{
    for (int j = 0; j <= i; j++) {
        run->divides[j] = run->spec->separators && run->spec->separators[j] && j < i;
        run->content[j] = j > 0 && j < i - 1 && run->divides[j] == 0;
    }
    for (int p = run->earlier[i]; p >= 0; p = run->earlier[p])
        run->content[p + 1] = 0;
}

/* Sums over a query's n keys: a, a^2, -a log a, a j, a of separators, a of content, log a (a score
 * but for a constant) and its square. */
enum { SUM_A, SUM_A2, SUM_ENTROPY, SUM_J, SUM_DIVIDES, SUM_CONTENT, SUM_LOG, SUM_SQUARES, SUMS };

static void sum_row(const struct attend_run *run, const float *a, int n, double all[SUMS])
{
    double sums[SUMS][LANES] = {{0}}, logs[PIECE];
    for (int first = 0; first < n; first += PIECE) {
        const float *piece = a + first;
        const double *divides = run->divides + first, *content = run->content + first;
        const int len = MIN(n - first, PIECE);
        elementary_log(piece, len, logs);
        for (int j = 0; j < len; j += LANES) {
            for (int l = 0; l < LANES && j + l < len; l++) {
                const double x = (double)piece[j + l], log = logs[j + l];
                sums[SUM_A][l] += x;
                sums[SUM_A2][l] += x * x;
                sums[SUM_ENTROPY][l] -= x * log;
                sums[SUM_J][l] += x * (first + j + l);
                sums[SUM_DIVIDES][l] += x * divides[j + l];
                sums[SUM_CONTENT][l] += x * content[j + l];
                sums[SUM_LOG][l] += log;
                sums[SUM_SQUARES][l] += log * log;
            }
        }
    }
    for (int k = 0; k < SUMS; k++)
        all[k] = (sums[k][0] + sums[k][1]) + (sums[k][2] + sums[k][3]);
}

/* Adds the weights of query i; false if they are not finite. */
static bool add_query(const struct attend_run *run, struct attend_head *h, const float *a, int i)
{
    double all[SUMS];
    const int n = i + 1;
    sum_row(run, a, n, all);
    const double mean_log = all[SUM_LOG] / n;
    if (!isfinite(all[SUM_A]))
        return false;
    h->score_sd += sqrt(fmax(all[SUM_SQUARES] / n - mean_log * mean_log, 0));
    h->gradient += 1 - all[SUM_A2];
    double *offsets = run->offsets + (h - run->spec->heads) * (run->spec->n_tokens / 2 + 1);
    for (int d = 2; d <= i && d <= run->spec->n_tokens / 2; d++)
        offsets[d] += (double)a[i - d];
    h->entropy += all[SUM_ENTROPY];
    h->distance += i * all[SUM_A] - all[SUM_J];
    h->self += (double)a[i];
    h->separator += all[SUM_DIVIDES];
    h->content += all[SUM_CONTENT];
    if (i > 0) {
        h->first += (double)a[0];
        h->previous += (double)a[i - 1];
    }
    for (int p = run->earlier[i]; p >= 0; p = run->earlier[p])
        h->induction += (double)a[p + 1];
    float most = 0;
    for (int j = 0; j < n; j++)
        most = MAX(a[j], most);
    h->max_weight += (double)most;
    for (int j = 1; j < i; j++) {
        if (h->query >= 0 && !((double)a[j] > h->strongest))
            continue;
        h->query = i;
        h->key = j;
        h->strongest = (double)a[j];
    }
    return true;
}

double attend_role(const struct attend_head *h, char role[ATTEND_ROLE_SIZE])
{
    static const char *const names[] = {"first",     "previous",  "self",
                                        "induction", "separator", "offset"};
    const double shares[] = {h->first,     h->previous,  h->self,
                             h->induction, h->separator, h->at_offset};
    const char *name = "content";
    double most = ATTEND_LEAST_SHARE, share = h->content;
    for (size_t i = 0; i < LENGTH(names); i++)
        if (shares[i] >= most) { /* not NaN */
            name = names[i];
            share = most = shares[i];
        }
    snprintf(role, ATTEND_ROLE_SIZE, str_is(name, "offset") ? "%s %d" : "%s", name, h->offset);
    return share;
}

/* --- the text -------------------------------------------------------------------------------- */

static void take_layer(void *arg, const struct attention_weights *l)
{
    struct attend_run *run = arg;
    const struct attend_spec *spec = run->spec;
    if (spec->trace)
        trace_add(spec->trace, spec->model, l);
    if (spec->paths)
        paths_add(spec->paths, spec->model, l);
    for (int r = 0; r < l->n_rows && !run->bad; r++) {
        const float *row = l->weights + r * l->n_heads * l->stride;
        const int i = l->rows[r].position;
        mark_keys(run, i);
        for (int h = 0; h < spec->n_heads && !run->bad; h++) {
            struct attend_head *head = &spec->heads[h];
            const float *a = row + head->head * l->stride;
            if (head->layer != l->layer)
                continue;
            if (!add_query(run, head, a, i)) {
                run->bad = head;
                run->bad_row = i;
            }
            if (i == spec->query)
                memcpy(run->out->query + (size_t)h * (i + 1), a, (i + 1) * sizeof *a);
        }
        for (int k = 0; k < spec->n_maps; k++) {
            const struct attend_map *m = &spec->maps[k];
            if (m->layer != l->layer)
                continue;
            const float *a = row + m->head * l->stride;
            const int64_t n = spec->n_tokens;
            float *cell = m->cell + (int64_t)i * m->cells / n * m->cells;
            for (int64_t j = 0, c = 0; j <= i; j++) {
                while ((c + 1) * n <= j * m->cells)
                    c++;
                cell[c] = MAX(a[j], cell[c]);
            }
        }
    }
}

static void take_streams(void *arg, const struct batch_row *rows, int n_rows, const float *streams)
{
    const struct attend_spec *spec = ((struct attend_run *)arg)->spec;
    paths_add_streams(spec->paths, &spec->model->config, rows, n_rows, streams);
}

/* The likeliest tokens after each of `len` tokens from `at` on, whose logits are there. */
static enum status add_next(const struct attend_run *run, int at, int len, struct err *e)
{
    const int n_vocab = run->spec->model->config.n_vocab, n_next = run->spec->n_next;
    for (int i = 0; i < len; i++) {
        const float *logits = run->logits + (size_t)i * n_vocab;
        double log_sum;
        TRY(logits_log_sum(logits, n_vocab, &log_sum, e));
        logits_top(logits, n_vocab, log_sum, n_next, run->keys,
                   run->out->next + (size_t)(at + i) * n_next);
    }
    return STATUS_OK;
}

/* Takes the memory of a run, finds the earlier places of each token, and empties the figures. */
static enum status begin_run(struct attend_run *run, struct err *e)
{
    const struct attend_spec *spec = run->spec;
    take_maps(run);
    TRY(arena_allocate(&run->out->arena, "the maps of attention", e));
    take_maps(run);
    for (int i = 0; i < spec->n_tokens; i++) {
        int p = i - 1;
        while (p >= 0 && spec->tokens[p] != spec->tokens[i])
            p--;
        run->earlier[i] = p;
        run->n_repeated += p >= 0;
    }
    for (int i = 0; i < spec->n_heads; i++) {
        struct attend_head *h = &spec->heads[i];
        *h = (struct attend_head){.layer = h->layer, .head = h->head, .query = -1, .key = -1};
    }
    return STATUS_OK;
}

/* Feeds `len` tokens from `at` on, whose weights take_layer gets. */
static enum status feed_tokens(struct attend_run *run, struct session *session, int at, int len,
                               struct err *e)
{
    const struct attend_spec *spec = run->spec;
    if (callbacks_stop(&spec->callbacks))
        return STATUS_INTERRUPTED;
    TRY(session_feed(session, 0, spec->tokens + at, len, run->logits, true, e));
    if (run->bad)
        return session_explain(
            session,
            err_failed(e,
                       "the attention weights of token %d in head %d of layer %d are not finite "
                       "(info --check finds tensors that are not)",
                       run->bad_row, run->bad->head, run->bad->layer),
            NULL, e);
    if (run->logits)
        TRY(add_next(run, at, len, e));
    callbacks_progress(&spec->callbacks, at + len, spec->n_tokens);
    return STATUS_OK;
}

/* Makes means of the sums over the queries. */
static void end_head(const struct attend_run *run, struct attend_head *h)
{
    const int n = run->spec->n_tokens, n_repeated = run->n_repeated;
    const double none = NO_FIGURE;
    double *const of_all[] = {&h->entropy,    &h->distance, &h->self,
                              &h->max_weight, &h->score_sd, &h->gradient};
    double *const of_later[] = {&h->separator, &h->content, &h->first, &h->previous};
    for (int i = 0; i < LENGTH(of_all); i++)
        *of_all[i] /= n;
    for (int i = 0; i < LENGTH(of_later); i++)
        *of_later[i] = n > 1 ? *of_later[i] / (n - 1) : none;
    h->at_offset = none;
    for (int d = 2; d <= n / 2; d++) {
        const double weight = run->offsets[(h - run->spec->heads) * (n / 2 + 1) + d] / (n - d);
        if (h->offset == 0 || weight > h->at_offset) {
            h->offset = d;
            h->at_offset = weight;
        }
    }
    h->induction = n_repeated > 0 ? h->induction / n_repeated : none;
    h->strongest = h->query < 0 ? none : h->strongest;
}

enum status attend_run(const struct attend_spec *spec, struct attend_found *out, struct err *e)
{
    struct attend_run run = {.spec = spec, .out = out};
    const struct attention_watch watch = {take_layer, &run, spec->paths ? take_streams : NULL};
    struct session_params params = spec->params;
    struct session *session = NULL;
    params.n_ctx = spec->n_tokens;
    params.watch = &watch;
    *out = (struct attend_found){.query = NULL};
    TRY(begin_run(&run, e));
    enum status s = session_create(spec->model, &params, spec->pool, &session, e);
    for (int at = 0, len; at < spec->n_tokens && s == STATUS_OK; at += len) {
        len = MIN(spec->n_tokens - at, run.logits ? NEXT_ROWS : session_block(session));
        s = feed_tokens(&run, session, at, len, e);
    }
    session_free(session);
    if (s != STATUS_OK) {
        attend_free(out);
        return s;
    }
    if (spec->paths)
        paths_finish(spec->paths, spec->model, out->next);
    for (int i = 0; i < spec->n_heads; i++)
        end_head(&run, &spec->heads[i]);
    return STATUS_OK;
}

void attend_free(struct attend_found *a)
{
    arena_free(&a->arena);
    *a = (struct attend_found){.query = NULL};
}
