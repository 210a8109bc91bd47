/* Attention to a chunk of the cache, and the joining of chunks: every vector table against the
 * scalar definition, bit for bit, and the definition against double precision. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "kernel_data.h"
#include "support.h"

struct shape {
    int n_heads, key_dim, value_dim, n;
    enum storage storage;
    bool biased, additive;
};

struct attention {
    struct attend args;
    struct shape shape;
    size_t n_out; /* floats of each of max, sum, out */
    float *k_values, *v_values;
    struct attend_bias *bias;
};

static uint16_t *random_scales(size_t n)
{
    uint16_t *scales = allocated(n * sizeof *scales);
    for (size_t i = 0; i < n; i++)
        scales[i] = f16_round(fabsf(random_float()) * 0.01f);
    return scales;
}

/* ALiBi's and quadratic ones in turn. */
static struct attend_bias *random_biases(int n_heads)
{
    struct attend_bias *bias = allocated((size_t)n_heads * sizeof *bias);
    for (int h = 0; h < n_heads; h++)
        bias[h] = h % 2
                      ? (struct attend_bias){random_float() * 20, 0, -fabsf(random_float()) * 0.1f}
                      : (struct attend_bias){0, -1.0f / (float)(h + 2), 0};
    return bias;
}

/* What lies beyond the positions and the dimensions must not matter, whatever it holds: NaN. */
static struct attention make_attention(struct shape s)
{
    const size_t n_panels = (size_t)matrix_panels(s.n), key_dim = (size_t)s.key_dim;
    const size_t n_k = n_panels * key_dim * KERNEL_LANES, n = (size_t)s.n;
    const size_t v_stride = (size_t)kernel_padded(s.value_dim), n_v = n * v_stride;
    const size_t stride = (size_t)s.value_dim + 3; /* the gaps stay as they are */
    const size_t n_heads = (size_t)s.n_heads, n_out = n_heads * stride;
    struct attention at = {.shape = s,
                           .n_out = n_out,
                           .k_values = random_floats(n_k),
                           .v_values = random_floats(n_v),
                           .bias = random_biases(s.n_heads)};
    for (size_t t = n; t < n_panels * KERNEL_LANES; t++)
        for (size_t i = 0; i < key_dim; i++)
            at.k_values[(t / 16 * key_dim + i) * 16 + t % 16] = NAN;
    for (size_t i = 0; i < n_v; i++)
        if (i % v_stride >= (size_t)s.value_dim)
            at.v_values[i] = NAN;
    struct kv_segment segment = {
        as_storage(at.k_values, n_k, s.storage), as_storage(at.v_values, n_v, s.storage),
        random_scales(n_panels * (size_t)quant_blocks(s.key_dim) * KERNEL_LANES),
        random_scales(n * (size_t)quant_blocks(s.value_dim))};
    at.args = (struct attend){.kv = {.segment = {segment},
                                     .split = s.n,
                                     .n_positions = s.n,
                                     .key_dim = s.key_dim,
                                     .value_dim = s.value_dim,
                                     .storage = s.storage},
                              .n_heads = s.n_heads,
                              .q = random_floats(n_heads * key_dim),
                              .additive = s.additive ? random_floats(n_heads * key_dim) : NULL,
                              .scores = random_floats(n_heads * KERNEL_CHUNK),
                              .max = random_floats(n_out),
                              .sum = random_floats(n_out),
                              .out = random_floats(n_out),
                              .stride = stride,
                              .bias = s.biased ? at.bias : NULL,
                              .distance = s.n - 1 + s.n_heads % 2 * 40};
    return at;
}

/* Runs it by a table: the same bits as those of `expected`. */
static void expect_same(const struct kernels *k, const struct attention *at,
                        const struct attend *args, const struct attend *expected)
{
    const struct shape *s = &at->shape;
    char what[128];
    snprintf(what, sizeof what, "%s attend, %d heads of %d and %d, %d positions, %s%s%s", k->name,
             s->n_heads, s->key_dim, s->value_dim, s->n, storage_name(s->storage),
             s->biased ? ", biased" : "", s->additive ? ", additive" : "");
    k->attend(args);
    assert_same_bits(expected->max, args->max, at->n_out, what);
    assert_same_bits(expected->sum, args->sum, at->n_out, what);
    assert_same_bits(expected->out, args->out, at->n_out, what);
}

/* What the definition gives, in memory of its own. */
static struct attend defined(const struct attention *at)
{
    struct attend a = at->args;
    a.out = copy_floats(a.out, at->n_out);
    a.max = copy_floats(a.max, at->n_out);
    a.sum = copy_floats(a.sum, at->n_out);
    kernels_scalar.attend(&a);
    return a;
}

/* --- the same bits --------------------------------------------------------------------------- */

static void compare_attend(const struct kernels *k, struct shape s)
{
    const struct attention at = make_attention(s);
    const struct attend expected = defined(&at);
    expect_same(k, &at, &at.args, &expected);
    release_all();
}

static const enum storage storages[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};

/* Plainly, and with values of any other size. */
TEST(attend_equals_scalar, .first = SANITIZED ? 4 : 0, .loops = SANITIZED ? 5 : 7,
     .before = seed_numbers)
{
    static const int heads[] = {1, 2, 3, 4, 7, 12, 22};
    static const int dims[] = {1, 8, 16, 20, 24, 48, 64, 80};
    static const int positions[] = {1, 15, 16, 17, 63, 64, 100, 256};
    for (const struct kernels *k = NULL; (k = next_vector(k));)
        for (int i = 0; i < 8 * 8 * 3; i++) {
            const int d = i / 24, p = i / 3 % 8, dim = dims[d], n = positions[p];
            const int other = dims[(d + _i + 1) % 8];
            const enum storage storage = storages[i % 3];
            compare_attend(k, (struct shape){heads[_i], dim, dim, n, storage, false, false});
            compare_attend(k, (struct shape){heads[_i], dim, other, n, storage, true, false});
            if (i % 7 == _i) /* they take as long as many others */
                compare_attend(k, (struct shape){heads[_i], dim, other, n, storage, i % 2, true});
        }
}

static uint16_t *copy_scales(const uint16_t *from, size_t n)
{
    return memcpy(allocated(n * sizeof *from), from, n * sizeof *from);
}

/* The positions [begin, end), in memory of just the panels and rows that they take; what else is in
 * these is NaN. */
static struct kv_segment segment_of(const struct attention *at, int begin, int end)
{
    const struct kv_chunk *kv = &at->args.kv;
    const struct kv_segment *whole = &kv->segment[0];
    const size_t panel = (size_t)begin / KERNEL_LANES, first = panel * KERNEL_LANES;
    const size_t panels = (size_t)matrix_panels(end) - panel, rows = (size_t)end - first;
    const size_t size = (size_t)kv->key_dim * KERNEL_LANES,
                 stride = (size_t)kernel_padded(kv->value_dim);
    const size_t k_blocks = (size_t)quant_blocks(kv->key_dim) * KERNEL_LANES;
    const size_t v_blocks = (size_t)quant_blocks(kv->value_dim);
    float *k = copy_floats(at->k_values + panel * size, panels * size);
    for (size_t i = 0; i < panels * size; i++) {
        const int t = (int)(first + i / size * KERNEL_LANES + i % KERNEL_LANES);
        if (t < begin || t >= end)
            k[i] = NAN;
    }
    return (struct kv_segment){
        .k = as_storage(k, panels * size, kv->storage),
        .v = as_storage(at->v_values + first * stride, rows * stride, kv->storage),
        .k_scales = copy_scales(whole->k_scales + panel * k_blocks, panels * k_blocks),
        .v_scales = copy_scales(whole->v_scales + first * v_blocks, rows * v_blocks)};
}

/* A chunk in two segments is the chunk in one, on every table. */
static void compare_segments(struct shape s, int split)
{
    const struct attention at = make_attention(s);
    const struct attend expected = defined(&at);
    struct attend segments = at.args;
    segments.kv.split = split;
    segments.kv.segment[0] = split > 0 ? segment_of(&at, 0, split) : (struct kv_segment){0};
    segments.kv.segment[1] = split < s.n ? segment_of(&at, split, s.n) : (struct kv_segment){0};
    for (const struct kernels *k = NULL; (k = next_kernels(k));)
        expect_same(k, &at, &segments, &expected);
    release_all();
}

TEST(segments_equal_the_whole, .loops = 3, .before = seed_numbers)
{
    static const int heads[] = {1, 3, 12}, dims[] = {20, 64}, positions[] = {1, 17, 100, 256};
    static const int splits[] = {0, 1, 15, 16, 17, 31, 64, 100, 255, 256};
    for (int i = 0; i < 2 * 4 * 10 * 3; i++) {
        const int d = i % 2, n = positions[i / 2 % 4], at = i / 8 % 10;
        const bool other = (_i + at) % 2;
        const struct shape s = {heads[_i], dims[d],   dims[other ? 1 - d : d], n, storages[i / 80],
                                other,     i % 7 == 0};
        if (splits[at] <= n)
            compare_segments(s, splits[at]);
    }
}

/* --- what it means --------------------------------------------------------------------------- */

/* Number `index` of the keys or values, as stored. */
static double stored(enum storage storage, const void *x, size_t index, uint16_t scale)
{
    return storage == STORAGE_F16    ? (double)f16_widen(((const uint16_t *)x)[index])
           : storage == STORAGE_Q8_0 ? ((const int8_t *)x)[index] * (double)f16_widen(scale)
                                     : (double)((const float *)x)[index];
}

/* The chunk's keys or values at position t, dimension i. */
static double key_at(const struct attention *at, int t, int i)
{
    const struct kv_chunk *kv = &at->args.kv;
    const int block = (t / 16 * ((kv->key_dim + 31) / 32) + i / 32) * 16 + t % 16;
    return stored(kv->storage, kv->segment[0].k, (size_t)((t / 16 * kv->key_dim + i) * 16 + t % 16),
                  kv->segment[0].k_scales[block]);
}

static double value_at(const struct attention *at, int t, int i)
{
    const struct kv_chunk *kv = &at->args.kv;
    const int block = t * ((kv->value_dim + 31) / 32) + i / 32;
    return stored(kv->storage, kv->segment[0].v, (size_t)(t * ((kv->value_dim + 15) / 16 * 16) + i),
                  kv->segment[0].v_scales[block]);
}

/* Head h's score of position t. */
static double score_at(const struct attention *at, int h, int t)
{
    const struct attend *a = &at->args;
    double s = 0;
    for (int i = 0; i < a->kv.key_dim; i++)
        s += a->additive ? (double)a->additive[h * a->kv.key_dim + i] *
                               tanh((double)a->q[h * a->kv.key_dim + i] + key_at(at, t, i))
                         : (double)a->q[h * a->kv.key_dim + i] * key_at(at, t, i);
    if (a->bias) {
        const double x = a->distance - t - (double)a->bias[h].centre;
        s += (double)a->bias[h].linear * x + (double)a->bias[h].square * x * x;
    }
    return s;
}

/* Adds head h's softmax over the chunk: numerator [value_dim] and denominator. */
static void add_softmax(const struct attention *at, int h, double *numerator, double *denominator)
{
    for (int t = 0; t < at->args.kv.n_positions; t++) {
        const double e = exp(score_at(at, h, t));
        *denominator += e;
        for (int i = 0; i < at->args.kv.value_dim; i++)
            numerator[i] += e * value_at(at, t, i);
    }
}

/* Any number of heads, every storage, with biases and without, products and additive scores. */
TEST(attend_is_softmax, .loops = SANITIZED ? 3 : 12, .before = seed_numbers)
{
    for (int n_heads = 1; n_heads <= 22; n_heads++) {
        const int values = n_heads % 3 ? 70 : 12;
        const struct attention at = make_attention((struct shape){
            n_heads, 33, values, 100 + n_heads, storages[_i % 3], _i / 3 % 2, _i / 6});
        kernels_scalar.attend(&at.args);
        for (int h = 0; h < n_heads; h++) {
            double numerator[80] = {0}, denominator = 0;
            add_softmax(&at, h, numerator, &denominator);
            const size_t first = (size_t)h * at.args.stride;
            for (int i = 0; i < values; i++)
                ck_assert_double_eq_tol(
                    (double)(at.args.out[first + (size_t)i] / at.args.sum[first]),
                    numerator[i] / denominator, 1e-5);
        }
        release_all();
    }
}
