/*
 * Compares attention's weights with NumPy's, and figures and maps with their definitions, computed
 * from the whole weights.
 */
#include <math.h>
#include <string.h>

#include "golden.h"
#include "kernel_data.h"
#include "measure/attend.h"
#include "measure/eval.h"
#include "model/pack.h"
#include "opened.h"
#include "program.h"

#define NOTHING ((double)NAN)

/* A run of all heads of a model, with a map of each. */
struct all_heads {
    struct attend_head *heads; /* [n] */
    struct attend_map *maps;   /* [n] */
    struct attend_found *found;
    int n;
};

static void free_found(void *found)
{
    attend_free(found);
    attend_free(found);
}

static struct attend_spec spec_of(const struct model *m, struct all_heads *all,
                                  const int32_t *tokens, int n_tokens, int cells)
{
    const struct config *c = &m->config;
    all->n = c->n_layers * c->n_heads;
    all->heads = allocated_zeros((size_t)all->n * sizeof *all->heads);
    all->maps = allocated_zeros((size_t)all->n * sizeof *all->maps);
    all->found = released_by(free_found, allocated_zeros(sizeof *all->found));
    for (int i = 0; i < all->n; i++) {
        const int layer = i / c->n_heads, head = i % c->n_heads;
        all->heads[i] = (struct attend_head){.layer = layer, .head = head, .entropy = 77};
        all->maps[i] = (struct attend_map){.layer = layer, .head = head, .cells = cells};
    }
    return (struct attend_spec){.model = m,
                                .tokens = tokens,
                                .n_tokens = n_tokens,
                                .heads = all->heads,
                                .n_heads = all->n,
                                .maps = all->maps,
                                .n_maps = all->n,
                                .query = -1};
}

static void run(const struct attend_spec *spec, struct all_heads *all)
{
    expect_ok(attend_run(spec, all->found, &err));
}

/* Runs such a run at once, with a text in which tokens come again, for any vocabulary. */
static int32_t tokens[40];
static bool separators[COUNT(tokens)];

static struct all_heads found_in(const struct model *m, int n, int cells)
{
    struct all_heads all;
    struct attend_spec spec = spec_of(m, &all, tokens, n, cells);
    spec.separators = separators;
    run(&spec, &all);
    return all;
}

static void make_tokens(void)
{
    text_tokens(tokens, COUNT(tokens), 17, 11);
    for (size_t i = 0; i < COUNT(tokens); i++)
        separators[i] = tokens[i] < 3;
}

TEST(roles)
{
    static const struct {
        struct attend_head h;
        const char *role;
        double share;
    } cases[] = {
        {{.first = 0.4, .previous = 0.5, .content = 0.9}, "previous", 0.5},
        {{.first = 0.3, .previous = 0.2, .content = 0.6, .separator = 0.33}, "content", 0.6},
        {{.first = NOTHING, .previous = NOTHING, .self = 1, .content = NOTHING}, "self", 1},
        {{.induction = 0.35, .content = 0.5}, "induction", 0.35},
        {{.separator = 0.6, .first = 0.6}, "separator", 0.6},
        {{.content = 0.95, .at_offset = 0.92, .offset = 3}, "offset 3", 0.92},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char role[ATTEND_ROLE_SIZE];
        ck_assert_double_eq(attend_role(&cases[i].h, role), cases[i].share);
        ck_assert_str_eq(role, cases[i].role);
    }
}

#define CLOSE 1e-5 /* to what others compute */
#define SUM   1e-6

static void assert_causal(const struct attend_map *m, const char *name)
{
    for (int i = 0; i < m->cells; i++) {
        const float *row = m->cell + (size_t)i * (size_t)m->cells;
        double sum = 0;
        for (int j = 0; j < m->cells; j++) {
            ck_assert_msg(j <= i ? row[j] >= 0 : row[j] == 0, "%s: [%d, %d]", name, i, j);
            sum += (double)row[j];
        }
        ck_assert_msg(fabs(sum - 1) <= SUM, "%s: row %d of %d.%d adds up to %.9f", name, i,
                      m->layer, m->head, sum);
    }
}

/* The queries are at a quarter, a half, three quarters and the end of the text. */
#define QUERIES 4

/* The checkpoints that run once more with scores times 0.5, which is no default of theirs; the
 * weights are those of tests/model/reference_model.py --attention --score-scale 0.5. */
static const char *const scaled_names[] = {"gqa", "llama"};

TEST(golden_weights, .loops = N_GOLDEN + COUNT(scaled_names))
{
    const bool is_scaled = _i >= N_GOLDEN;
    const char *name = is_scaled ? scaled_names[_i - N_GOLDEN] : golden_names[_i];
    struct golden g = open_golden(name);
    struct all_heads all;
    const int n = g.n_tokens;
    struct attend_spec spec = spec_of(g.checkpoint.model, &all, g.tokens, n, n);
    if (is_scaled)
        g.checkpoint.model->config.score_scale = 0.5f;
    run(&spec, &all);
    char path[128];
    snprintf(path, sizeof path, "tests/data/golden/%s.%s.npy", name,
             is_scaled ? "scaled" : "attention");
    const float *truth = read_npy(path, (size_t)(all.n * QUERIES * n));
    for (int i = 0; i < all.n; i++) {
        assert_causal(&all.maps[i], name);
        for (int q = 0; q < QUERIES; q++) {
            const float *expected = truth + (size_t)(i * QUERIES + q) * (size_t)n;
            const int query = (n - 1) * (q + 1) / QUERIES;
            const float *found = all.maps[i].cell + (size_t)query * (size_t)n;
            for (int j = 0; j < n; j++)
                ck_assert_msg(fabs((double)found[j] - (double)expected[j]) <= CLOSE,
                              "%s: head %d, [%d, %d] is %.9g, not %.9g", name, i, query, j,
                              (double)found[j], (double)expected[j]);
        }
    }
}

static double at(const struct attend_map *m, int i, int j)
{
    return (double)m->cell[i * m->cells + j];
}

/* Returns the figures as attend.h defines them. */
static struct attend_head figures_of(const struct attend_map *m)
{
    const int n = m->cells;
    struct attend_head h = {.query = -1, .key = -1, .strongest = NOTHING};
    int repeated = 0;
    for (int i = 0; i < n; i++) {
        bool again = false;
        double most = 0, mean = 0, variance = 0;
        h.gradient += 1.0 / n;
        for (int j = 0; j <= i; j++) {
            bool follows = false;
            for (int p = 0; p < i; p++)
                follows |= p + 1 == j && tokens[p] == tokens[i];
            h.separator += j < i && separators[j] ? at(m, i, j) / (n - 1) : 0;
            if (j > 0 && j < i - 1 && !separators[j] && !follows)
                h.content += at(m, i, j) / (n - 1);
            most = fmax(most, at(m, i, j));
            mean += log(at(m, i, j)) / (i + 1);
        }
        for (int j = 0; j <= i; j++)
            variance += pow(log(at(m, i, j)) - mean, 2) / (i + 1);
        for (int j = 0; j <= i; j++)
            h.gradient -= pow(at(m, i, j), 2) / n;
        h.max_weight += most / n;
        h.score_sd += sqrt(variance) / n;
        for (int j = 0; j <= i; j++) {
            h.entropy -= at(m, i, j) > 0 ? at(m, i, j) * log(at(m, i, j)) / n : 0;
            h.distance += at(m, i, j) * (i - j) / n;
            if (j > 0 && j < i && !(at(m, i, j) <= h.strongest)) {
                h.query = i;
                h.key = j;
                h.strongest = at(m, i, j);
            }
            if (j < i && tokens[j] == tokens[i]) {
                again = true;
                h.induction += at(m, i, j + 1);
            }
        }
        repeated += again;
        h.self += at(m, i, i) / n;
        h.first += i > 0 ? at(m, i, 0) / (n - 1) : 0;
        h.previous += i > 0 ? at(m, i, i - 1) / (n - 1) : 0;
    }
    h.at_offset = NOTHING;
    for (int d = n / 2; d >= 2; d--) {
        double sum = 0;
        for (int i = d; i < n; i++)
            sum += at(m, i, i - d);
        if (!(sum / (n - d) < h.at_offset)) {
            h.at_offset = sum / (n - d);
            h.offset = d;
        }
    }
    h.first = n > 1 ? h.first : NOTHING;
    h.separator = n > 1 ? h.separator : NOTHING;
    h.content = n > 1 ? h.content : NOTHING;
    h.previous = n > 1 ? h.previous : NOTHING;
    h.induction = repeated ? h.induction / repeated : NOTHING;
    return h;
}

static void assert_figures(const struct attend_head *found, const struct attend_head *x)
{
    const double pairs[][2] = {{found->entropy, x->entropy},     {found->distance, x->distance},
                               {found->first, x->first},         {found->previous, x->previous},
                               {found->self, x->self},           {found->induction, x->induction},
                               {found->strongest, x->strongest}, {found->separator, x->separator},
                               {found->content, x->content},     {found->max_weight, x->max_weight},
                               {found->score_sd, x->score_sd},   {found->gradient, x->gradient},
                               {found->at_offset, x->at_offset}};
    for (size_t i = 0; i < COUNT(pairs); i++)
        ck_assert_msg(isnan(pairs[i][1]) ? isnan(pairs[i][0])
                                         : fabs(pairs[i][0] - pairs[i][1]) <= 1e-9,
                      "figure %zu is %.12g, not %.12g", i, pairs[i][0], pairs[i][1]);
    ck_assert(found->query == x->query && found->key == x->key && found->offset == x->offset);
}

TEST(figures_are_those_of_the_weights, .loops = 5, .before = make_tokens)
{
    static const int lengths[] = {1, 2, 3, 5, 40};
    const int n = lengths[_i];
    struct golden g = open_golden("gqa");
    const struct all_heads all = found_in(g.checkpoint.model, n, n);
    for (int i = 0; i < all.n; i++) {
        const struct attend_head expected = figures_of(&all.maps[i]);
        assert_figures(&all.heads[i], &expected);
    }
}

TEST(no_block_thread_or_instruction_set_changes_a_bit, .before = make_tokens)
{
    enum { N = 33 };
    struct golden g = open_golden("layerwise-kv");
    const struct all_heads first = found_in(g.checkpoint.model, N, 9);
    struct all_heads other;
    struct pool *pool = new_pool(3);
    int turn = 0;
    for (const struct kernels *k = NULL; (k = next_kernels(k)); turn++) {
        struct attend_spec spec = spec_of(g.checkpoint.model, &other, tokens, N, 9);
        spec.params.kernels = k;
        spec.params.block = 1 + 6 * (turn % 2);
        spec.pool = turn % 3 ? pool : NULL;
        spec.separators = separators;
        run(&spec, &other);
        ck_assert_mem_eq(first.heads, other.heads, (size_t)first.n * sizeof *first.heads);
        for (int i = 0; i < first.n; i++)
            ck_assert_mem_eq(first.maps[i].cell, other.maps[i].cell, 81 * sizeof(float));
    }
}

TEST(cells_are_the_largest_weights, .loops = 5, .before = make_tokens)
{
    enum { N = 37 };
    static const int sides[] = {1, 2, 7, 36, 37};
    const int cells = sides[_i];
    struct golden g = open_golden("mha");
    const struct all_heads whole = found_in(g.checkpoint.model, N, N);
    struct all_heads small;
    const struct attend_spec spec = spec_of(g.checkpoint.model, &small, tokens, N, cells);
    run(&spec, &small);
    for (int m = 0; m < whole.n; m++) {
        float expected[N * N] = {0};
        for (int i = 0; i < N; i++)
            for (int j = 0; j <= i; j++) {
                float *cell = &expected[i * cells / N * cells + j * cells / N];
                *cell = fmaxf(*cell, whole.maps[m].cell[i * N + j]);
            }
        ck_assert_mem_eq(small.maps[m].cell, expected, (size_t)(cells * cells) * sizeof *expected);
    }
}

/* Quadratic positions make a head a convolution; tests/measure/make_convolution.py computes that
 * instead of a softmax. */
TEST(heads_that_are_a_convolution)
{
    static const char *const expected[] = {"self",     "previous", "offset 2",
                                           "offset 5", "offset 2", "content"};
    struct golden g = open_golden("convolution");
    const struct model *m = g.checkpoint.model;
    const float *logits =
        logits_after(m, g.tokens, g.n_tokens, 0, NULL, &(struct session_params){0});
    struct all_heads all;
    for (int i = 0; i < g.n_tokens * m->config.n_vocab; i++)
        ck_assert_double_eq_tol((double)logits[i], (double)g.logits[i], 5e-6);
    const struct attend_spec spec = spec_of(m, &all, g.tokens, g.n_tokens, 1);
    run(&spec, &all);
    for (size_t h = 0; h < COUNT(expected); h++) {
        char role[ATTEND_ROLE_SIZE];
        attend_role(&all.heads[h], role);
        ck_assert_str_eq(role, expected[h]);
    }
}

/* Checks the last token's path through one head: what the head adds to the stream, worked out from
 * its result `z` and all of the output matrix. */
static void expect_path(const struct attend_paths *p, const struct model *m,
                        const struct attend_trace *t, const float *z)
{
    const struct config *c = &m->config;
    const struct path_layer *l = &p->layers[0];
    const int heads = c->n_heads, dim = config_value_dim(c), d = c->d_model;
    const size_t of_head = (size_t)t->query * heads + t->head;
    const struct path_written *w = &l->written[of_head];
    float row[512], part[512];
    double squares = 0;
    ck_assert_int_le(config_heads_dim(c), COUNT(row));
    ck_assert_int_le(d, COUNT(part));
    for (int o = 0; o < d; o++) {
        double sum = 0;
        pack_read_row(&m->blocks[l->layer].w[ROLE_ATTN_OUTPUT].matrix, o, row);
        for (int i = 0; i < dim; i++)
            sum += (double)row[t->head * dim + i] * (double)z[i];
        part[o] = (float)sum;
        squares += sum * sum;
    }
    ck_assert_double_eq_tol((double)w->length, sqrt(squares), 1e-5 * fmax(1, sqrt(squares)));
    for (int k = 0; k < PATHS_LARGEST; k++) {
        const int place = (int)w->largest[k].place;
        if (k >= d) {
            ck_assert_int_eq(place, -1);
            continue;
        }
        ck_assert_double_eq_tol((double)w->largest[k].number, (double)part[place], 1e-5);
        int larger = 0;
        for (int o = 0; o < d; o++)
            larger += fabsf(part[o]) > fabsf(part[place]) + 1e-5f;
        ck_assert_int_le(larger, k);
    }
}

/* The steps of a token through a head are those of tests/model/reference_model.py --trace. */
static const struct {
    const char *name;
    int layer, head;
} traces[] = {{"hello", 0, 0},       {"hello-2-heads", 0, 1}, {"gqa", 1, 2},
              {"mixed-llama", 1, 4}, {"mixed-alibi", 1, 5},   {"mixed-quadratic", 2, 3},
              {"additive", 1, 3}};

TEST(golden_traces, .loops = COUNT(traces))
{
    const int layer = traces[_i].layer, head = traces[_i].head;
    const bool is_hello = _i < 2;
    struct golden g = {.tokens = {0, 1, 2, 3}, .n_tokens = 4};
    if (is_hello)
        g.checkpoint = opened_checkpoint(
            _i == 0 ? "models/hello.gguf" : "models/hello-2-heads.gguf", CHECKPOINT_MODEL);
    else
        g = open_golden(traces[_i].name);
    const struct config *c = &g.checkpoint.model->config;
    const int n = g.n_tokens, dim = config_value_dim(c), width = config_heads_dim(c);
    const int d = c->d_model;
    const int key_dim = c->head_dim, kv_heads = config_kv_heads(c, layer), heads = c->n_heads;
    struct attend_trace t = {.path.layer = layer, .head = head, .query = n - 1};
    struct all_heads all;
    struct attend_spec spec = spec_of(g.checkpoint.model, &all, g.tokens, n, 1);
    struct path_layer of_layer = {.layer = layer, .n_tokens = n};
    struct attend_paths paths = {.n_layers = 1, .layers = &of_layer};
    spec.trace = &t;
    spec.paths = &paths;
    spec.pool = new_pool(3);
    run(&spec, &all);
    float *keys = allocated((size_t)n * key_dim * sizeof *keys); /* the head's */
    for (int j = 0; j < n; j++)
        memcpy(keys + j * key_dim, t.path.keys + (j * kv_heads + head * kv_heads / heads) * key_dim,
               key_dim * sizeof *keys);
    const float *results = t.path.results + (n - 1) * width;
    const struct {
        const float *x;
        int n;
    } parts[] = {{t.path.q + ((n - 1) * heads + head) * key_dim, key_dim},
                 {keys, n * key_dim},
                 {t.scores, n},
                 {t.weights, n},
                 {results + head * dim, dim},
                 {results, width},
                 {t.parts, heads * d},
                 {t.out, d},
                 {t.sum, d},
                 {t.normed, d}};
    size_t all_n = 0;
    for (size_t p = 0; p < COUNT(parts); p++)
        all_n += (size_t)parts[p].n;
    char path[128];
    snprintf(path, sizeof path, "tests/data/golden/%s.trace.npy", traces[_i].name);
    const float *truth = read_npy(path, all_n);
    for (size_t p = 0; p < COUNT(parts); truth += parts[p++].n)
        for (int i = 0; i < parts[p].n; i++)
            ck_assert_msg(fabsf(parts[p].x[i] - truth[i]) <= 2e-5f * fmaxf(1, fabsf(truth[i])),
                          "%s, part %zu: element %d is %.9g, not %.9g", traces[_i].name, p, i,
                          (double)parts[p].x[i], (double)truth[i]);
    expect_path(&paths, g.checkpoint.model, &t, results + head * dim);
}

/* The scores of a path are of the keys that the cache holds, and give its weights. */
TEST(traces_of_a_cache_type, .loops = CACHE_TYPES)
{
    const struct golden g = open_golden("mixed-llama");
    const int n = g.n_tokens;
    struct attend_trace t = {.path.layer = 1, .head = 4, .query = n - 1};
    struct all_heads all;
    struct attend_spec spec = spec_of(g.checkpoint.model, &all, g.tokens, n, 1);
    double sum = 0;
    spec.trace = &t;
    spec.params.kv_type = (struct kv_type){_i, CACHE_TYPES - 1 - _i};
    run(&spec, &all);
    for (int j = 0; j < n; j++)
        sum += exp((double)t.scores[j]);
    for (int j = 0; j < n; j++)
        ck_assert_double_eq_tol((double)t.weights[j], exp((double)t.scores[j]) / sum, 1e-6);
}

/* Behind a head's result nothing counts a head that is left out: the numbers are those of a model
 * whose output matrix has zeros in its columns. */
TEST(traces_without_a_head)
{
    enum { N = 12, LAYER = 1, HEAD = 2 };
    struct gguf_file f = read_gguf("tests/data/golden/mha.gguf");
    float *output = floats_of(f.g, "blk.1.attn_output.weight");
    unsigned char off[64] = {0};
    const struct head_ablation without = {.off = off};
    float out[2][512];
    make_tokens();
    for (int i = 0; i < 2; i++) {
        const struct model *m = new_model(f.g, NULL);
        struct all_heads all;
        const struct config *c = &m->config;
        const int d = c->d_model, dim = config_value_dim(c);
        struct attend_trace t = {.path.layer = LAYER, .head = HEAD, .query = N - 1};
        struct attend_spec spec = spec_of(m, &all, tokens, N, 1);
        spec.trace = &t;
        ck_assert_uint_le(3 * (size_t)d, COUNT(out[0]));
        off[LAYER * c->n_heads + HEAD] = 1;
        if (i == 0)
            spec.params.without = &without;
        run(&spec, &all);
        memcpy(out[i], t.out, d * sizeof *t.out);
        memcpy(out[i] + d, t.sum, d * sizeof *t.sum);
        memcpy(out[i] + 2 * d, t.normed, d * sizeof *t.normed);
        for (int k = 0; k < d; k++) {
            ck_assert(t.parts[HEAD * d + k] == 0);
            for (int j = 0; j < dim; j++)
                output[k * config_heads_dim(c) + HEAD * dim + j] = 0;
        }
        for (int k = 0; k < 3 * d; k++)
            ck_assert(fabsf(out[0][k] - out[i][k]) < 1e-5f);
    }
}

/* The tokens that may come next are those of a session's logits. */
TEST(what_comes_next)
{
    enum { N = 20, NEXT = 5 };
    struct golden g = open_golden("mha");
    struct all_heads all;
    struct attend_spec spec = spec_of(g.checkpoint.model, &all, g.tokens, N, 1);
    spec.n_next = NEXT;
    run(&spec, &all);
    const int n_vocab = g.checkpoint.model->config.n_vocab;
    for (int i = 0; i < N; i++) {
        const float *logits = g.logits + (size_t)i * n_vocab;
        double sum = 0;
        for (int t = 0; t < n_vocab; t++)
            sum += exp((double)logits[t]);
        for (int k = 0; k < NEXT; k++) {
            const struct token_score *next = &all.found->next[i * NEXT + k];
            ck_assert_double_eq_tol(next->logprob, (double)logits[next->id] - log(sum), 1e-3);
            if (k > 0)
                ck_assert_double_le(next->logprob, next[-1].logprob);
        }
    }
}

/* Returns a stream [d], or a part of one, scaled as the last norm scales `whole`, times a token's
 * row of the output matrix. With the norm's bias, if that is wanted, it is the token's logit. */
static double logit_of(const struct model *m, const float *part, const float *whole, int token,
                       bool biased)
{
    const struct config *c = &m->config;
    const struct norm *norm = &m->w[ROLE_OUTPUT_NORM].norm;
    const bool centred = c->norm == NORM_LAYER;
    double mean[2] = {0, 0}, squares = 0, logit = 0;
    float row[512];
    ck_assert_int_le(c->d_model, COUNT(row));
    pack_read_row(&m->w[ROLE_OUTPUT].matrix, token, row);
    for (int o = 0; o < c->d_model && centred; o++) {
        mean[0] += (double)part[o] / c->d_model;
        mean[1] += (double)whole[o] / c->d_model;
    }
    for (int o = 0; o < c->d_model; o++)
        squares += pow((double)whole[o] - mean[1], 2) / c->d_model;
    for (int o = 0; o < c->d_model; o++) {
        const double x = ((double)part[o] - mean[0]) / sqrt(squares + (double)c->norm_eps);
        logit += (double)row[o] *
                 (x * (double)norm->gain[o] + (biased && norm->bias ? (double)norm->bias[o] : 0));
    }
    return logit;
}

static void keep_streams(void *arg, const struct batch_row *rows, int n, const float *streams)
{
    struct attend_trace *t = arg; /* `row` is of the last token's */
    memcpy(t->row, streams + (size_t)(n - 1) * t->query, t->query * sizeof *streams);
    ck_assert_int_ge(rows[n - 1].position, n - 1);
}

static void watch_nothing(void *arg, const struct attention_weights *w)
{
    ck_assert(arg && w);
}

/* A head adds to logits its part of A Wo (t.parts, which is compared with NumPy's above), scaled as
 * the last norm scales the whole stream, times the output matrix. The golden logits show that the
 * whole stream makes a logit in this way. */
TEST(heads_add_to_logits, .loops = 4)
{
    static const char *const names[] = {"mha", "llama", "mixed-alibi", "transformer"};
    enum { NEXT = 3 };
    struct golden g = open_golden(names[_i]);
    const struct model *m = g.checkpoint.model;
    const struct config *c = &m->config;
    const int n = g.n_tokens, d = c->d_model, heads = c->n_heads, layer = c->n_layers - 1;
    float *last = allocated((size_t)d * sizeof *last);
    struct attend_trace kept = {.row = last, .query = d}, t = {.path.layer = layer, .query = n - 1};
    const struct attention_watch watch = {watch_nothing, &kept, keep_streams};
    struct session *session;
    struct all_heads all;
    expect_ok(session_create(m, &(struct session_params){.watch = &watch}, NULL, &session, &err));
    expect_ok(session_feed(session, 0, g.tokens, n, NULL, false, &err));
    session_free(session);
    struct attend_spec spec = spec_of(m, &all, g.tokens, n, 1);
    struct path_layer of_layer = {.layer = layer, .n_tokens = n};
    struct attend_paths paths = {.n_layers = 1, .layers = &of_layer};
    spec.trace = &t;
    spec.paths = &paths;
    spec.n_next = NEXT;
    run(&spec, &all);
    for (int k = 0; k < NEXT; k++) {
        const int token = all.found->next[(n - 1) * NEXT + k].id;
        const double logit = (double)g.logits[(size_t)(n - 1) * c->n_vocab + token];
        if (paths_are_direct(c))
            ck_assert_double_eq_tol(logit_of(m, last, last, token, true), logit, 2e-4);
        for (int h = 0; h < heads; h++)
            ck_assert_double_eq_tol(
                (double)of_layer.direct[((size_t)(n - 1) * heads + h) * NEXT + k],
                paths_are_direct(c) ? logit_of(m, t.parts + h * d, last, token, false) : 0, 1e-4);
    }
}

TEST(sizes)
{
    struct golden g = open_golden("mha");
    struct all_heads all;
    uint64_t few, more;
    struct attend_spec spec = spec_of(g.checkpoint.model, &all, tokens, 20, 4);
    expect_ok(attend_plan(&spec, &few, &err));
    all.maps[0].cells = 1 << 12;
    expect_ok(attend_plan(&spec, &more, &err));
    ck_assert_uint_ge(more - few, (sizeof(float) << 24) - 4096);
    ck_assert_uint_le(more - few, (sizeof(float) << 24) + 4096);
    for (int i = 0; i < all.n; i++)
        all.maps[i].cells = INT32_MAX;
    ck_assert_int_eq(attend_run(&spec, all.found, &err), STATUS_NO_MEMORY);
}
