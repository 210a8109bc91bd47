#include "conversions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compute/linalg.h"
#include "engine/session.h"
#include "formats/gguf.h"
#include "support.h"

/* --- checkpoints in memory ------------------------------------------------------------------- */

static void close_opened(void *opened)
{
    struct opened *o = opened;
    model_free(o->model);
    gguf_free(o->gguf);
    free(o->bytes);
    free(o);
}

static void open_bytes(struct opened *o)
{
    expect_ok(gguf_parse(o->bytes, o->len, &o->gguf, &err));
    expect_ok(model_create(o->gguf, NULL, NULL, &o->model, &err));
    released_by(close_opened, memcpy(malloc(sizeof *o), o, sizeof *o));
}

struct opened open_path(const char *path)
{
    struct opened o = {.bytes = NULL};
    o.bytes = read_file(path, &o.len);
    open_bytes(&o);
    return o;
}

const char *const golden_kinds[N_KINDS] = {
    "llama",        "mha",         "shared-block", "transformer", "alibi",          "quadratic",
    "layerwise-kv", "mixed-llama", "mixed-alibi",  "mixed-none",  "mixed-quadratic"};

struct opened open_golden_kind(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "tests/data/golden/%s.gguf", name);
    return open_path(path);
}

struct opened open_shape(const struct checkpoint_shape *shape)
{
    const char *path = scratch_path("model.gguf");
    write_checkpoint(path, shape);
    const struct opened o = open_path(path);
    scratch_remove();
    return o;
}

struct opened open_writer(struct gguf_writer *w)
{
    struct opened o = {.bytes = NULL};
    expect_ok(gguf_write_memory(w, &o.bytes, &o.len, &err));
    open_bytes(&o);
    return o;
}

/* --- converting ------------------------------------------------------------------------------ */

void text_tokens(int32_t *tokens, int n, int n_vocab, uint64_t seed)
{
    struct rng r;
    rng_seed(&r, seed, 0);
    for (int i = 0; i < n; i++)
        tokens[i] = (int32_t)(rng_u32(&r) % (uint32_t)(n_vocab < 256 ? n_vocab : 256));
}

int32_t calib[N_CALIB];

struct convert_spec spec_of(const struct opened *o, int g, enum convert_method method)
{
    return (struct convert_spec){.gguf = o->gguf,
                                 .source_name = "model.gguf",
                                 .version = "test",
                                 .n_kv_heads = g,
                                 .method = method};
}

struct convert_spec with_text(struct convert_spec spec, int n)
{
    struct config c;
    expect_ok(config_read(spec.gguf, &c, &err));
    text_tokens(calib, N_CALIB, c.n_vocab, 99);
    spec.tokens = calib;
    spec.n_tokens = (size_t)n;
    return spec;
}

static uint64_t elements_of(const struct gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_tensors; i++)
        if (!text_is(g->tensors[i].name, "output.weight") || !layout_output_tied(g))
            n += g->tensors[i].n_elements;
    return n;
}

struct opened convert_to(const struct convert_spec *spec, struct convert_layer *lost)
{
    struct convert c;
    expect_ok(convert_run(spec, &c, &err));
    if (lost)
        memcpy(lost, c.layers, (size_t)c.n_layers * sizeof *lost);
    const struct opened o = open_writer(c.writer);
    ck_assert_uint_eq(c.n_params_before, elements_of(spec->gguf));
    ck_assert_uint_eq(c.n_params_after, elements_of(o.gguf));
    convert_free(&c);
    return o;
}

void expect_same_bytes(struct convert_spec spec)
{
    static const int threads[] = {2, 5};
    enum { N_THREADS = sizeof threads / sizeof *threads };
    struct opened alone = convert_to(&spec, NULL);
    for (int t = SANITIZED ? N_THREADS - 1 : 0; t < (SANITIZED ? N_THREADS : N_THREADS + 1); t++) {
        spec.pool = NULL;
        if (t < N_THREADS)
            expect_ok(pool_create(threads[t], &spec.pool, &err));
        else
            spec.kernels = &kernels_scalar;
        struct opened b = convert_to(&spec, NULL);
        ck_assert_uint_eq(alone.len, b.len);
        ck_assert_mem_eq(alone.bytes, b.bytes, b.len);
        pool_free(spec.pool);
    }
}

double logits_apart(const struct opened *a, const struct opened *b, double *spread)
{
    const size_t n_vocab = (size_t)a->model->config.n_vocab, n = N_TOKENS * n_vocab;
    int32_t tokens[N_TOKENS];
    float *logits[2];
    const struct opened *both[] = {a, b};
    text_tokens(tokens, N_TOKENS, (int)n_vocab, 3);
    for (int i = 0; i < 2; i++) {
        const struct session_params params = {.n_ctx = 0};
        struct session *s;
        logits[i] = calloc(n, sizeof(float));
        expect_ok(session_create(both[i]->model, &params, NULL, &s, &err));
        expect_ok(session_feed(s, 0, tokens, N_TOKENS, logits[i], &err));
        session_free(s);
    }
    double square = 0, own = 0, mean = 0;
    for (size_t i = 0; i < n; i++) {
        square += pow((double)logits[0][i] - (double)logits[1][i], 2);
        own += pow((double)logits[0][i], 2);
        mean += (double)logits[0][i];
    }
    if (spread)
        *spread = sqrt(own / (double)n - pow(mean / (double)n, 2));
    free(logits[0]), free(logits[1]);
    return sqrt(square / (double)n);
}

double qkv_element(const struct opened *o, int layer, int row, const float *x)
{
    const struct matrix *w = &o->model->blocks[layer].w[ROLE_ATTN_QKV].matrix;
    const float *panels = (const float *)w->panels +
                          (size_t)(row / KERNEL_LANES) * (size_t)w->n_in * KERNEL_LANES +
                          row % KERNEL_LANES;
    double sum = w->bias ? (double)w->bias[row] : 0;
    for (int i = 0; i < w->n_in; i++)
        sum += (double)panels[i * KERNEL_LANES] * (double)x[i];
    return sum;
}

/* --- one block in double --------------------------------------------------------------------- */

#define MAX_DIM 32

/* Rows as in the file, but of the output matrix turned over; a bias is the last element of its
 * row. So a head's Q, K, V and O are dim rows each. */
struct heads {
    int dim, cols, n;
    double *rows; /* [n, dim, cols] */
};

static struct heads take_heads(int n, int dim, int cols)
{
    struct heads h = {.dim = dim, .cols = cols, .n = n};
    h.rows = calloc((size_t)n * (size_t)dim * (size_t)cols, sizeof *h.rows);
    ck_assert_ptr_nonnull(h.rows);
    return h;
}

static double *head_rows(const struct heads *h, int head)
{
    ck_assert(head >= 0 && head < h->n);
    return h->rows + (size_t)head * (size_t)h->dim * (size_t)h->cols;
}

enum { IS_Q, IS_K, IS_V, IS_O, KINDS };
struct block_heads {
    struct heads h[KINDS];
    double *rel; /* [n_heads, 2], or NULL */
};

/* Where element (row, col) of Q, K, V or O is in a file's tensors; col = d_model is the bias. */
struct element_place {
    struct tensor_name name;
    size_t at;
};

static struct element_place place_of(const struct config *c, int block, int kind, int row, int col)
{
    const int first[] = {0, config_q_dim(c), config_q_dim(c) + config_k_dim(c, block)};
    const bool is_bias = col == c->d_model && kind != IS_O;
    struct qkv_part parts[QKV_PARTS];
    int part = 0;
    if (kind == IS_O)
        return (struct element_place){arch_tensor_name(ROLE_ATTN_OUTPUT, block, false),
                                      (size_t)col * (size_t)config_heads_dim(c) + (size_t)row};
    const int n = layout_qkv(c, block, parts), joined = first[kind] + row;
    while (part + 1 < n && joined >= parts[part + 1].first)
        part++;
    const size_t in_part = (size_t)(joined - parts[part].first);
    return (struct element_place){arch_tensor_name(parts[part].role, block, is_bias),
                                  is_bias ? in_part : in_part * (size_t)c->d_model + (size_t)col};
}

/* Tensors of a block that a planting changes, as floats. */
#define MAX_CHANGED 512
struct changed {
    struct tensor_name name;
    uint64_t dims[2];
    int n_dims;
    float *x;
};

/* 0 where there is no such tensor. */
static double old_element(const struct opened *o, struct element_place p)
{
    const struct gguf_tensor *t = gguf_find_tensor(o->gguf, p.name.text);
    float block[32];
    if (!t)
        return 0;
    const size_t n = t->type->block_elements, bytes = t->type->block_bytes;
    blocks_decode(t->type->type, block, t->data + p.at / n * bytes, n);
    return (double)block[p.at % n];
}

static struct heads read_heads(const struct opened *o, int block, int kind)
{
    const struct config *c = &o->model->config;
    const int kv = config_kv_heads(c, block), d = c->d_model;
    const int dims[] = {c->head_dim, c->head_dim, config_value_dim(c), config_value_dim(c)};
    const int ns[] = {c->n_heads, kv, kv, c->n_heads};
    struct heads h = take_heads(ns[kind], dims[kind], kind == IS_O ? d : d + 1);
    for (int r = 0; r < h.n * h.dim; r++)
        for (int i = 0; i < h.cols; i++)
            h.rows[r * h.cols + i] = old_element(o, place_of(c, block, kind, r, i));
    return h;
}

/* --- maps ------------------------------------------------------------------------------------ */

/* A random well-conditioned matrix and its inverse: the product of a lower and an upper triangular
 * one with ones on their diagonals. */
static void invertible(double *a, double *inverse, int n, struct rng *r)
{
    double lower[2][MAX_DIM * MAX_DIM], upper[MAX_DIM * MAX_DIM];
    const double spread = 0.8 * (n > 8 ? sqrt(8.0 / n) : 1);
    ck_assert_int_le(n, MAX_DIM);
    if (n == 0)
        return;
    for (int k = 0; k < 2 * n * n; k++) {
        const int i = k / 2 / n, j = k / 2 % n;
        lower[k % 2][k / 2] = i == j ? 1 : j < i ? spread * (rng_unit(r) - 0.5) : 0;
    }
    linalg_transpose(upper, lower[1], n, n);
    linalg_multiply(a, lower[0], upper, n, n, n);
    linalg_identity(inverse, n);
    linalg_solve_lower(lower[0], n, inverse, n);
    linalg_solve_lower_transposed(lower[1], n, inverse, n);
}

/* A complex factor for each of the first n_turned / 2 pairs; what is left as above. */
static void turning(double *a, double *inverse, int n, int n_turned, struct rng *r)
{
    const int rest = n - n_turned;
    double b[MAX_DIM * MAX_DIM], b_inverse[MAX_DIM * MAX_DIM];
    memset(a, 0, (size_t)(n * n) * sizeof *a);
    memset(inverse, 0, (size_t)(n * n) * sizeof *inverse);
    for (int i = 0; i < n_turned; i += 2) {
        const double angle = 6.28 * rng_unit(r), size = 0.5 + rng_unit(r);
        const double re = size * cos(angle), im = size * sin(angle);
        double *at = a + i * n + i, *back = inverse + i * n + i;
        at[0] = at[n + 1] = re;
        at[1] = -im;
        at[n] = im;
        back[0] = back[n + 1] = re / (size * size);
        back[1] = im / (size * size);
        back[n] = -im / (size * size);
    }
    invertible(b, b_inverse, rest, r);
    for (int i = 0; i < rest; i++)
        for (int j = 0; j < rest; j++) {
            a[(n_turned + i) * n + n_turned + j] = b[i * rest + j];
            inverse[(n_turned + i) * n + n_turned + j] = b_inverse[i * rest + j];
        }
}

/* A head's rows := m rows, or m^T rows. */
static void map_head(const struct heads *h, int head, const double *m, bool transposed)
{
    double *rows = head_rows(h, head), turned[MAX_DIM * MAX_DIM];
    const size_t bytes = (size_t)(h->dim * h->cols) * sizeof *rows;
    double *old = memcpy(malloc(bytes), rows, bytes);
    linalg_transpose(turned, m, h->dim, h->dim);
    linalg_multiply(rows, transposed ? turned : m, old, h->dim, h->dim, h->cols);
    free(old);
}

/* --- planting -------------------------------------------------------------------------------- */

struct planting planting_of(int kv_heads, int base)
{
    struct planting p = {.gauge = false};
    for (int l = 0; l < 8; l++) {
        p.kv_heads[l] = kv_heads;
        p.base[l] = base;
    }
    return p;
}

static struct config planted_config(const struct opened *o, const struct planting *p)
{
    struct config c = o->model->config;
    c.n_kv_heads = 0;
    for (int l = 0; l < c.n_layers; l++) {
        const int n = c.layer_kv_heads[l] = p->kv_heads[config_block(&c, l)];
        c.n_kv_heads = n > c.n_kv_heads ? n : c.n_kv_heads;
    }
    c.value_dim = config_value_dim(&c) + p->extra_values;
    c.rope.n_dims = p->n_turned ? p->n_turned : c.rope.n_dims;
    return c;
}

static void replace_heads(struct heads *old, const struct heads *new)
{
    free(old->rows);
    *old = *new;
}

/* As many new K or V heads as wanted. */
static void choose_heads(struct heads *h, int wanted, int base)
{
    const struct heads new = take_heads(wanted, h->dim, h->cols);
    for (int j = 0; j < wanted; j++)
        memcpy(head_rows(&new, j), head_rows(h, j * base / wanted),
               (size_t)h->dim * (size_t)h->cols * sizeof *new.rows);
    replace_heads(h, &new);
}

static void lengthen_heads(struct heads *h, int extra, struct rng *r)
{
    const struct heads new = take_heads(h->n, h->dim + extra, h->cols);
    const int old_size = h->dim * h->cols;
    for (int j = 0; j < h->n; j++) {
        memcpy(head_rows(&new, j), head_rows(h, j), (size_t)old_size * sizeof *new.rows);
        for (int i = 0; i < extra * h->cols; i++)
            head_rows(&new, j)[old_size + i] = 0.4 * (rng_unit(r) - 0.5);
    }
    replace_heads(h, &new);
}

static void gauge_heads(struct block_heads *b, const struct config *c, bool dense, struct rng *r)
{
    double a[MAX_DIM * MAX_DIM], inverse[MAX_DIM * MAX_DIM];
    const int group = c->n_heads / b->h[IS_K].n;
    const int n_turned = c->position == POSITION_ROPE && !dense ? c->rope.n_dims : 0;
    for (int kind = IS_K; kind <= IS_V; kind++)
        for (int h = 0; h < c->n_heads; h++) {
            if (h % group == 0) {
                turning(a, inverse, b->h[kind].dim, kind == IS_K ? n_turned : 0, r);
                map_head(&b->h[kind], h / group, a, false);
            }
            map_head(&b->h[kind == IS_K ? IS_Q : IS_O], h, inverse, true);
        }
}

static void swap_doubles(double *a, double *b, size_t n)
{
    for (size_t i = 0; i < n && a != b; i++) {
        const double x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

static void permute_heads(struct block_heads *b, int n_heads, struct rng *r)
{
    for (int g = n_heads - 1; g > 0; g--) {
        const int h = (int)(rng_u32(r) % (uint32_t)(g + 1));
        for (int kind = IS_Q; kind < KINDS; kind++)
            swap_doubles(head_rows(&b->h[kind], g), head_rows(&b->h[kind], h),
                         (size_t)b->h[kind].dim * (size_t)b->h[kind].cols);
        if (b->rel)
            swap_doubles(b->rel + 2 * g, b->rel + 2 * h, 2);
    }
}

static struct block_heads plant_block(const struct opened *o, const struct planting *p,
                                      const struct config *c, int block)
{
    struct block_heads b = {.rel = NULL};
    struct rng same, r; /* of what belongs to the function, of the gauge */
    rng_seed(&same, 5, (uint64_t)block);
    rng_seed(&r, p->seed, (uint64_t)block);
    for (int kind = IS_Q; kind < KINDS; kind++)
        b.h[kind] = read_heads(o, block, kind);
    if (p->extra_values) {
        lengthen_heads(&b.h[IS_V], p->extra_values, &same);
        lengthen_heads(&b.h[IS_O], p->extra_values, &same);
    }
    choose_heads(&b.h[IS_K], p->kv_heads[block], p->base[block]);
    choose_heads(&b.h[IS_V], p->kv_heads[block], p->base[block]);
    if (c->position == POSITION_QUADRATIC) {
        b.rel = calloc(2 * (size_t)c->n_heads, sizeof *b.rel);
        for (int i = 0; i < 2 * c->n_heads; i++)
            b.rel[i] =
                old_element(o, (struct element_place){arch_tensor_name(ROLE_ATTN_REL, block, false),
                                                      (size_t)i});
    }
    if (p->gauge)
        gauge_heads(&b, c, p->dense, &r);
    if (p->permute && b.h[IS_K].n == c->n_heads)
        permute_heads(&b, c->n_heads, &r);
    return b;
}

/* --- the planted checkpoint ------------------------------------------------------------------ */

struct planted_file {
    struct changed changed[MAX_CHANGED];
    int n;
};

static struct changed *find_changed(struct planted_file *f, struct text name)
{
    for (int i = 0; i < f->n; i++)
        if (text_is(name, f->changed[i].name.text))
            return &f->changed[i];
    return NULL;
}

/* Room for the old tensors of these roles, where there are such. */
static void add_changed(struct planted_file *f, const struct opened *o, const struct config *c,
                        int block)
{
    static const enum tensor_role roles[] = {ROLE_ATTN_QKV, ROLE_ATTN_Q,      ROLE_ATTN_K,
                                             ROLE_ATTN_V,   ROLE_ATTN_OUTPUT, ROLE_ATTN_REL};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        for (int bias = 0; bias < 2; bias++) {
            if (bias && (roles[i] == ROLE_ATTN_OUTPUT || !layout_has_bias(c, roles[i])))
                continue;
            const struct tensor_spec s =
                bias ? layout_bias(c, roles[i], block) : layout_weight(c, roles[i], block);
            if (!gguf_find_tensor(o->gguf, s.name.text))
                continue;
            ck_assert_int_lt(f->n, MAX_CHANGED);
            f->changed[f->n++] = (struct changed){.name = s.name,
                                                  .dims = {(uint64_t)s.cols, (uint64_t)s.rows},
                                                  .n_dims = s.n_dims,
                                                  .x = calloc(spec_elements(&s), sizeof(float))};
        }
}

static void fill_changed(struct planted_file *f, const struct config *c, int block,
                         const struct block_heads *b)
{
    for (int kind = IS_Q; kind < KINDS; kind++) {
        const struct heads *h = &b->h[kind];
        for (int r = 0; r < h->n * h->dim; r++)
            for (int i = 0; i < h->cols; i++) {
                const struct element_place p = place_of(c, block, kind, r, i);
                struct changed *to = find_changed(f, text_of(p.name.text));
                if (to)
                    to->x[p.at] = (float)h->rows[r * h->cols + i];
            }
    }
    struct changed *rel =
        find_changed(f, text_of(arch_tensor_name(ROLE_ATTN_REL, block, false).text));
    for (int i = 0; i < 2 * c->n_heads && rel; i++)
        rel->x[i] = (float)b->rel[i];
}

/* The old keys, but those of sizes that may be others now. */
static void write_keys(struct gguf_writer *w, const struct opened *o, const struct config *c)
{
    static const char *const suffixes[] = {"attention.key_length", "attention.value_length",
                                           "rope.dimension_count"};
    const int values[] = {c->head_dim, config_value_dim(c), c->rope.n_dims};
    char keys[3][96];
    for (int k = 0; k < 3; k++)
        snprintf(keys[k], sizeof keys[k], "%s.%s", c->arch->name, suffixes[k]);
    for (size_t i = 0; i < o->gguf->n_pairs; i++) {
        const struct text key = o->gguf->pairs[i].key;
        bool is_size = config_is_kv_heads_key(c, key);
        for (int k = 0; k < 3; k++)
            is_size |= text_is(key, keys[k]);
        if (!is_size)
            gguf_add_value(w, key, &o->gguf->pairs[i].value);
    }
    config_write_kv_heads(c, w);
    for (int k = 0; k < (c->position == POSITION_ROPE ? 3 : 2); k++)
        gguf_add_u32(w, keys[k], (uint32_t)values[k]);
}

struct opened plant(const struct opened *o, const struct planting *p)
{
    const struct config c = planted_config(o, p);
    static struct planted_file f;
    struct gguf_writer *w;
    f.n = 0;
    for (int block = 0; block < config_blocks(&c); block++) {
        struct block_heads b = plant_block(o, p, &c, block);
        add_changed(&f, o, &c, block);
        fill_changed(&f, &c, block, &b);
        for (int kind = IS_Q; kind < KINDS; kind++)
            free(b.h[kind].rows);
        free(b.rel);
    }
    expect_ok(gguf_writer_create(&w, &err));
    write_keys(w, o, &c);
    for (size_t i = 0; i < o->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &o->gguf->tensors[i];
        const struct changed *new = find_changed(&f, t->name);
        if (new)
            gguf_add_tensor(w, t->name, TENSOR_F32, new->n_dims, new->dims, new->x);
        else
            gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    const struct opened planted = open_writer(w);
    gguf_writer_free(w);
    for (int i = 0; i < f.n; i++)
        free(f.changed[i].x);
    return planted;
}
