#include "measure/attend.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"

/* For the vectoriser, sums run in so many interleaved parts, and over pieces of a row. */
enum { LANES = 4, PIECE = 128 };

/* A run while the text goes through. */
struct attend_run {
    const struct attend_spec *spec;
    struct attend_found *out;
    int *earlier; /* [n_tokens] the last place before each token that has the same one; -1: none */
    const struct attend_head *bad; /* the head and query whose weights are not finite; NULL: none */
    int bad_row;
};

/* --- memory ---------------------------------------------------------------------------------- */

static void take_maps(struct attend_run *run)
{
    const struct attend_spec *spec = run->spec;
    struct arena *a = &run->out->arena;
    run->earlier = arena_take(a, spec->n_tokens, sizeof *run->earlier);
    if (spec->query >= 0)
        run->out->query = arena_take(a, spec->n_heads, (spec->query + 1) * sizeof *run->out->query);
    for (struct attend_map *m = spec->maps; m < spec->maps + spec->n_maps; m++)
        m->cell = arena_take(a, (uint64_t)m->cells * m->cells, sizeof *m->cell);
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

#define LN_2 0x1.62e42fefa39efp-1

/* log x, x >= 0 and finite, within 1e-11, by additions, multiplications and a division; something
 * finite for 0 and below the normal numbers. */
static double log_of(float x)
{
    const uint32_t root_half = 0x3f3504f3u; /* of 1/2 */
    uint32_t bits;
    float m;
    memcpy(&bits, &x, sizeof bits);
    const int32_t exponent = (int32_t)(bits - root_half) >> 23;
    bits -= (uint32_t)exponent << 23;
    memcpy(&m, &bits, sizeof m);
    /* x = m 2^exponent, and log m = 2 (z + z^3 / 3 + z^5 / 5 + ...) with |z| < 0.172. */
    const double z = ((double)m - 1) / ((double)m + 1), w = z * z;
    const double series =
        1 + w * (1.0 / 3 + w * (1.0 / 5 + w * (1.0 / 7 + w * (1.0 / 9 + w * (1.0 / 11)))));
    return exponent * LN_2 + 2 * z * series;
}

/* Adds the weights of query i; false if they are not finite. */
static bool add_query(const struct attend_run *run, struct attend_head *h, const float *a, int i)
{
    double sums[3][LANES] = {{0}}, all[3], logs[PIECE];
    const int n = i + 1;
    for (int first = 0; first < n; first += PIECE) {
        const float *piece = a + first;
        const int len = n - first < PIECE ? n - first : PIECE;
        for (int j = 0; j < len; j++)
            logs[j] = log_of(piece[j]);
        for (int j = 0; j < len; j += LANES) {
            for (int l = 0; l < LANES && j + l < len; l++) {
                const double x = (double)piece[j + l];
                sums[0][l] += x;
                sums[1][l] -= x * logs[j + l];
                sums[2][l] += x * (first + j + l);
            }
        }
    }
    for (int k = 0; k < 3; k++)
        all[k] = (sums[k][0] + sums[k][1]) + (sums[k][2] + sums[k][3]);
    if (!isfinite(all[0]))
        return false;
    h->entropy += all[1];
    h->distance += i * all[0] - all[2];
    h->self += (double)a[i];
    if (i > 0) {
        h->first += (double)a[0];
        h->previous += (double)a[i - 1];
    }
    for (int p = run->earlier[i]; p >= 0; p = run->earlier[p])
        h->induction += (double)a[p + 1];
    for (int j = 1; j < i; j++) {
        if (h->query >= 0 && !((double)a[j] > h->strongest))
            continue;
        h->query = i;
        h->key = j;
        h->strongest = (double)a[j];
    }
    return true;
}

/* --- the text -------------------------------------------------------------------------------- */

static void take_layer(void *arg, const struct attention_weights *l)
{
    struct attend_run *run = arg;
    const struct attend_spec *spec = run->spec;
    for (int r = 0; r < l->n_rows && !run->bad; r++) {
        const float *row = l->weights + r * l->n_heads * l->stride;
        const int i = l->rows[r].position;
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
        for (const struct attend_map *m = spec->maps; m < spec->maps + spec->n_maps; m++) {
            const float *a = row + m->head * l->stride;
            const int64_t n = spec->n_tokens;
            float *cell = m->cell + (int64_t)i * m->cells / n * m->cells;
            for (int64_t j = m->without_first, c = 0; m->layer == l->layer && j <= i; j++) {
                while ((c + 1) * n <= j * m->cells)
                    c++;
                cell[c] = a[j] > cell[c] ? a[j] : cell[c];
            }
        }
    }
}

enum status attend_run(const struct attend_spec *spec, struct attend_found *out, struct err *e)
{
    struct attend_run run = {.spec = spec, .out = out};
    const struct attention_watch watch = {take_layer, &run};
    struct session_params params = spec->params;
    const double none = (double)NAN;
    const int n = spec->n_tokens;
    int n_repeated = 0; /* tokens that were there before */
    struct session *session = NULL;
    params.n_ctx = spec->n_tokens;
    params.watch = &watch;
    *out = (struct attend_found){.query = NULL};
    take_maps(&run);
    TRY(arena_allocate(&out->arena, "the maps of attention", e));
    take_maps(&run);
    for (int i = 0; i < n; i++) {
        int p = i - 1;
        while (p >= 0 && spec->tokens[p] != spec->tokens[i])
            p--;
        run.earlier[i] = p;
        n_repeated += p >= 0;
    }
    for (struct attend_head *h = spec->heads; h < spec->heads + spec->n_heads; h++)
        *h = (struct attend_head){.layer = h->layer, .head = h->head, .query = -1, .key = -1};

    enum status s = session_create(spec->model, &params, spec->pool, &session, e);
    for (int at = 0, len; at < n && s == STATUS_OK; at += len) {
        len = n - at < session_block(session) ? n - at : session_block(session);
        s = spec->stop && spec->stop(spec->arg)
                ? STATUS_INTERRUPTED
                : session_feed(session, 0, spec->tokens + at, len, NULL, e);
        if (s == STATUS_OK && run.bad)
            s = err_set(e, STATUS_FAILED,
                        "the attention weights of token %d in head %d of layer %d are not finite "
                        "(info --check finds tensors that are not)",
                        run.bad_row, run.bad->head, run.bad->layer);
        if (s == STATUS_OK && spec->progress)
            spec->progress(spec->arg, at + len, n);
    }
    session_free(session);
    for (struct attend_head *h = spec->heads; h < spec->heads + spec->n_heads; h++) {
        h->entropy /= n; /* sums to means */
        h->distance /= n;
        h->self /= n;
        h->first = n > 1 ? h->first / (n - 1) : none;
        h->previous = n > 1 ? h->previous / (n - 1) : none;
        h->induction = n_repeated > 0 ? h->induction / n_repeated : none;
        h->strongest = h->query < 0 ? none : h->strongest;
    }
    if (s != STATUS_OK)
        attend_free(out);
    return s;
}

void attend_free(struct attend_found *a)
{
    arena_free(&a->arena);
    *a = (struct attend_found){.query = NULL};
}
