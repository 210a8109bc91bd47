#include "conversions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "compute/linalg.h"
#include "formats/gguf_write.h"
#include "model/config_keys.h"
#include "opened.h"

static struct opened opened(struct gguf_file f)
{
    return (struct opened){f.bytes, f.len, f.g, new_model(f.g, NULL)};
}

struct opened open_path(const char *path)
{
    return opened(read_gguf(path));
}

const char *const golden_kinds[N_KINDS] = {
    "llama",        "mha",         "shared-block", "transformer", "alibi",          "quadratic",
    "layerwise-kv", "mixed-llama", "mixed-alibi",  "mixed-none",  "mixed-quadratic"};

struct opened open_golden_kind(const char *name)
{
    return opened(golden_gguf(name));
}

struct opened open_shape(const struct checkpoint_shape *shape)
{
    const char *path = scratch_path("made.gguf");
    write_checkpoint(path, shape);
    return open_path(path);
}

struct checkpoint_shape mha_shape(int n_heads, int base)
{
    return (struct checkpoint_shape){SIZES(2, n_heads, n_heads, 8, 64, 64, 300),
                                     .base_kv_heads = base, .seed = 7};
}

struct opened open_mha(int n_heads, int base)
{
    const struct checkpoint_shape shape = mha_shape(n_heads, base);
    return open_shape(&shape);
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

struct convert_spec fit_to(const struct opened *o, int g, bool refit)
{
    struct convert_spec spec = with_text(spec_of(o, g, CONVERT_FIT), N_CALIB);
    spec.refit = refit;
    return spec;
}

struct opened convert_to(const struct convert_spec *spec, struct convert_layer *lost)
{
    struct convert c;
    expect_ok(convert_run(spec, &c, &err));
    if (lost)
        memcpy(lost, c.layers, (size_t)c.n_layers * sizeof *lost);
    const struct opened o = opened(written_gguf(c.writer));
    c.writer = NULL;
    convert_free(&c);
    return o;
}

#define MAX_DIM 32

/* Rows are the file's, those of the output matrix after it is transposed; a bias is the last
 * element of its row. So a head's Q, K, V and O are dim rows each. */
struct heads {
    int n, dim, cols;
    double *rows; /* [n, dim, cols] */
};

enum { IS_Q, IS_K, IS_V, IS_O, KINDS };
struct block_heads {
    struct heads h[KINDS];
    double *rel; /* [n_heads, 2] */
};

static struct heads take_heads(int n, int dim, int cols)
{
    const size_t bytes = (size_t)(n * dim * cols) * sizeof(double);
    return (struct heads){n, dim, cols, allocated_zeros(bytes)};
}

static double *head_rows(const struct heads *h, int head)
{
    ck_assert(head >= 0 && head < h->n);
    return h->rows + head * h->dim * h->cols;
}

/* Returns the place of element (row, col) of a tensor in the block's heads. */
static double *element(const struct block_heads *b, const struct config *c,
                       const struct tensor_spec *t, int row, int col)
{
    struct qkv_part parts[QKV_PARTS];
    const int n_parts = layout_qkv(c, t->layer, parts), d = c->d_model;
    if (t->role == ROLE_ATTN_REL)
        return &b->rel[2 * row + col];
    if (t->role == ROLE_ATTN_OUTPUT)
        return &b->h[IS_O].rows[col * d + row];
    int part = 0, kind = IS_Q;
    while (part + 1 < n_parts && parts[part].role != t->role)
        part++;
    int at = parts[part].first + (t->is_bias ? col : row);
    for (; kind < IS_V && at >= b->h[kind].n * b->h[kind].dim; kind++)
        at -= b->h[kind].n * b->h[kind].dim;
    return &b->h[kind].rows[at * (d + 1) + (t->is_bias ? d : col)];
}

static bool is_of_heads(const struct tensor_spec *t)
{
    return (t->role >= ROLE_ATTN_QKV && t->role <= ROLE_ATTN_V) || t->role == ROLE_ATTN_REL ||
           (t->role == ROLE_ATTN_OUTPUT && !t->is_bias);
}

static void read_blocks(const struct opened *o, struct block_heads *blocks)
{
    const struct config *c = &o->model->config;
    for (int block = 0; block < config_blocks(c); block++) {
        struct block_heads *b = &blocks[block];
        const int kv = config_kv_heads(c, block), v_dim = config_value_dim(c), d = c->d_model;
        b->h[IS_Q] = take_heads(c->n_heads, c->head_dim, d + 1);
        b->h[IS_K] = take_heads(kv, c->head_dim, d + 1);
        b->h[IS_V] = take_heads(kv, v_dim, d + 1);
        b->h[IS_O] = take_heads(c->n_heads, v_dim, d);
        b->rel = allocated_zeros(2 * (size_t)c->n_heads * sizeof *b->rel);
    }
    for (size_t i = 0; i < o->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &o->gguf->tensors[i];
        struct tensor_spec s;
        if (!layout_named(c, t->name, &s) || !is_of_heads(&s))
            continue;
        float *x = allocated(t->n_elements * sizeof *x);
        blocks_decode(t->type->type, x, t->data, t->n_elements);
        for (int k = 0; k < s.rows * s.cols; k++)
            *element(&blocks[s.layer], c, &s, k / s.cols, k % s.cols) = (double)x[k];
    }
}

/* Draws a well-conditioned matrix, the product of a lower and an upper triangular one with ones on
 * their diagonals, and writes its inverse. */
static void invertible(double *a, double *inverse, int n, struct rng *r)
{
    double lower[2][MAX_DIM * MAX_DIM], upper[MAX_DIM * MAX_DIM];
    const double spread = 0.8 * (n > 8 ? sqrt(8.0 / n) : 1);
    ck_assert_int_le(n, MAX_DIM);
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

/* Draws a complex factor for each of the first n_turned / 2 pairs, and such a matrix for the rest.
 */
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
    if (rest > 0)
        invertible(b, b_inverse, rest, r);
    for (int i = 0; i < rest * rest; i++) {
        const int at = (n_turned + i / rest) * n + n_turned + i % rest;
        a[at] = b[i];
        inverse[at] = b_inverse[i];
    }
}

/* Sets a head's rows to m rows, or m^T rows. */
static void map_head(const struct heads *h, int head, const double *m, bool transposed)
{
    double *rows = head_rows(h, head), turned[MAX_DIM * MAX_DIM];
    const size_t bytes = (size_t)(h->dim * h->cols) * sizeof *rows;
    double *old = memcpy(malloc(bytes), rows, bytes);
    linalg_transpose(turned, m, h->dim, h->dim);
    linalg_multiply(rows, transposed ? turned : m, old, h->dim, h->dim, h->cols);
    free(old);
}

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

/* Makes as many new heads as wanted, and adds elements to each, drawn for its old head. */
static void choose_heads(struct heads *h, int wanted, int base, int extra, uint64_t stream)
{
    const struct heads new = take_heads(wanted, h->dim + extra, h->cols);
    const int size = h->dim * h->cols;
    struct rng r;
    for (int j = 0; j < wanted; j++) {
        const int old = j * base / wanted;
        double *rows = head_rows(&new, j);
        memcpy(rows, head_rows(h, old), (size_t)size * sizeof *rows);
        rng_seed(&r, 5, stream * 100 + (uint64_t)old);
        for (int i = 0; i < extra * h->cols; i++)
            rows[size + i] = 0.4 * (rng_unit(&r) - 0.5);
    }
    *h = new;
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

static void swap_doubles(double *a, double *b, int n)
{
    for (int i = 0; i < n && a != b; i++) {
        const double x = a[i];
        a[i] = b[i];
        b[i] = x;
    }
}

static void permute_heads(struct block_heads *b, int n_heads, struct rng *r)
{
    for (int g = n_heads - 1; g > 0; g--) {
        const int other = (int)(rng_u32(r) % (uint32_t)(g + 1));
        for (int kind = IS_Q; kind < KINDS; kind++) {
            const struct heads *h = &b->h[kind];
            swap_doubles(head_rows(h, g), head_rows(h, other), h->dim * h->cols);
        }
        swap_doubles(b->rel + 2 * g, b->rel + 2 * other, 2);
    }
}

static void plant_block(struct block_heads *b, const struct planting *p, const struct config *c,
                        int block)
{
    const int n = p->kv_heads[block], base = p->base[block], extra = p->extra_values;
    struct rng r;
    rng_seed(&r, p->seed, (uint64_t)block);
    choose_heads(&b->h[IS_K], n, base, 0, 0);
    choose_heads(&b->h[IS_V], n, base, extra, (uint64_t)(2 * block));
    choose_heads(&b->h[IS_O], c->n_heads, c->n_heads, extra, (uint64_t)(2 * block + 1));
    if (p->gauge)
        gauge_heads(b, c, p->dense, &r);
    if (p->permute && b->h[IS_K].n == c->n_heads)
        permute_heads(b, c->n_heads, &r);
}

/* Writes the keys of the planted config, and the old keys that no config has. */
static void write_keys(struct gguf_writer *w, const struct opened *o, const struct config *c)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", c->arch->name);
    gguf_add_text(w, "general.architecture", text_of(c->arch->name));
    config_write(c, w);
    for (size_t i = 0; i < o->gguf->n_pairs; i++) {
        const struct text key = o->gguf->pairs[i].key;
        if (!text_is(key, "general.architecture") && !text_starts_with(key, prefix))
            gguf_add_value(w, key, &o->gguf->pairs[i].value);
    }
}

struct opened plant(const struct opened *o, const struct planting *p)
{
    const struct config c = planted_config(o, p);
    struct block_heads blocks[8];
    struct gguf_writer *w;
    read_blocks(o, blocks);
    for (int block = 0; block < config_blocks(&c); block++)
        plant_block(&blocks[block], p, &c, block);
    expect_ok(gguf_writer_create(&w, &err));
    write_keys(w, o, &c);
    for (size_t i = 0; i < o->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &o->gguf->tensors[i];
        struct tensor_spec s;
        if (!layout_named(&o->model->config, t->name, &s) || !is_of_heads(&s)) {
            gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
            continue;
        }
        s = s.is_bias ? layout_bias(&c, s.role, s.layer) : layout_weight(&c, s.role, s.layer);
        float *x = allocated(spec_elements(&s) * sizeof *x);
        for (int k = 0; k < s.rows * s.cols; k++)
            x[k] = (float)*element(&blocks[s.layer], &c, &s, k / s.cols, k % s.cols);
        gguf_add_tensor(w, t->name, TENSOR_F32, s.n_dims, spec_dims(&s).n, x);
    }
    return opened(written_gguf(w));
}
