/* Tests of attention to a chunk of the cache and of joining chunks: every vector table gives the
 * bits of the scalar definition, and this is compared with double precision. */
#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "kernel_data.h"
#include "support.h"

struct shape {
    int n_heads, key_dim, value_dim, n;
    struct kv_type type;
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

/* Stores the given numbers as a type has them, in so many bytes, or, for integers, any bits. */
static void *as_cached(const float *x, size_t n, enum cache_type type, size_t bytes)
{
    if (!cache_types[type].has_scales)
        return as_storage(x, n, type == CACHE_F16 ? STORAGE_F16 : STORAGE_F32);
    uint8_t *any = allocated(bytes);
    for (size_t i = 0; i < bytes; i++)
        any[i] = (uint8_t)random_u32();
    return any;
}

/* Biases are ALiBi's and quadratic ones in turn. */
static struct attend_bias *random_biases(int n_heads)
{
    struct attend_bias *bias = allocated((size_t)n_heads * sizeof *bias);
    for (int h = 0; h < n_heads; h++)
        bias[h] = h % 2
                      ? (struct attend_bias){random_float() * 20, 0, -fabsf(random_float()) * 0.1f}
                      : (struct attend_bias){0, -1.0f / (float)(h + 2), 0};
    return bias;
}

/* Numbers beyond the positions and the dimensions must not matter; here they are NaN. The heads are
 * those of one token, or of several tokens: all of these, some or the last alone read all. */
static struct attention make_attention(struct shape s)
{
    const int few = s.n_heads % 2 == 0 ? s.n_heads / 2 : 1;
    const int group = (s.n + s.key_dim) % 3 ? s.n_heads : s.n % 2 ? few : 1;
    const int fewer = (s.n_heads / group - 1) * (s.n % 4) / 2;
    const int n_first = s.n > fewer ? s.n - fewer : 1;
    const int n_hidden = s.n_heads % 3 == 1 ? (s.n - 1) % KERNEL_LANES : 0;
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
    const size_t cells = (size_t)cache_key_cells(s.type.keys, s.key_dim);
    const size_t k_bytes =
        n_panels * cells * KERNEL_LANES * (size_t)cache_types[s.type.keys].cell_bytes;
    const size_t v_bytes = n * (size_t)cache_value_bytes(s.type.values, s.value_dim);
    const size_t k_blocks = n_panels * (size_t)quant_blocks(s.key_dim) * KERNEL_LANES;
    at.args =
        (struct attend){.kv = {.k = as_cached(at.k_values, n_k, s.type.keys, k_bytes),
                               .v = as_cached(at.v_values, n_v, s.type.values, v_bytes),
                               .k_scales = random_scales(k_blocks),
                               .v_scales = random_scales(
                                   n_panels * (size_t)quant_blocks(s.value_dim) * KERNEL_LANES),
                               .n_positions = s.n,
                               .key_dim = s.key_dim,
                               .value_dim = s.value_dim,
                               .type = s.type},
                        .n_first = n_first,
                        .n_heads = s.n_heads,
                        .group = group,
                        .q = random_floats(n_heads * key_dim),
                        .additive = s.additive ? random_floats(n_heads * key_dim) : NULL,
                        .scores = random_floats(n_heads * KERNEL_CHUNK),
                        .max = random_floats(n_out),
                        .sum = random_floats(n_out),
                        .out = random_floats(n_out),
                        .stride = stride,
                        .bias = s.biased ? at.bias : NULL,
                        .distance = s.n - 1 + s.n_heads % 2 * 40,
                        .n_hidden = n_hidden < n_first ? n_hidden : n_first - 1};
    return at;
}

/* --- the same bits --------------------------------------------------------------------------- */

/* Compares a table with the definition. */
static void compare_attend(const struct kernels *k, struct shape s)
{
    const struct attention at = make_attention(s);
    const struct attend *found = &at.args;
    struct attend expected = *found;
    char what[128];
    expected.out = copy_floats(found->out, at.n_out);
    expected.max = copy_floats(found->max, at.n_out);
    expected.sum = copy_floats(found->sum, at.n_out);
    kernels_scalar.attend(&expected);
    snprintf(what, sizeof what, "%s attend, %d heads of %d and %d, %d positions, %s%s%s", k->name,
             s.n_heads, s.key_dim, s.value_dim, s.n, kv_type_name(s.type).text,
             s.biased ? ", biased" : "", s.additive ? ", additive" : "");
    k->attend(found);
    assert_same_bits(expected.max, found->max, at.n_out, what);
    assert_same_bits(expected.sum, found->sum, at.n_out, what);
    assert_same_bits(expected.out, found->out, at.n_out, what);
    release_all();
}

/* Values have the keys' size, or any other. */
TEST(attend_equals_scalar, .first = SANITIZED ? 4 : 0, .loops = SANITIZED ? 5 : 7,
     .before = seed_numbers)
{
    static const int heads[] = {1, 2, 3, 4, 7, 12, 22};
    static const int dims[] = {1, 8, 16, 20, 24, 48, 64, 80};
    static const int positions[] = {1, 15, 16, 17, 63, 64, 100, 256};
    for (const struct kernels *k = NULL; (k = next_vector(k));)
        for (int i = 0; i < 8 * 8 * CACHE_TYPES; i++) {
            const int d = i / 8 / CACHE_TYPES, p = i / CACHE_TYPES % 8, dim = dims[d],
                      n = positions[p];
            const int other = dims[(d + _i + 1) % 8];
            const struct kv_type type = {i % CACHE_TYPES, (i + i / CACHE_TYPES) % CACHE_TYPES};
            compare_attend(k, (struct shape){heads[_i], dim, dim, n, type, false, false});
            compare_attend(k, (struct shape){heads[_i], dim, other, n, type, true, false});
            if (i % 7 == _i) /* they take as long as many others */
                compare_attend(k, (struct shape){heads[_i], dim, other, n, type, i % 2, true});
        }
}

/* --- what it means --------------------------------------------------------------------------- */

/* Bit `bit` and those above it of the 32-bit word `word` at p. */
static unsigned bits_at(const void *p, int word, int bit)
{
    const unsigned char *bytes = (const unsigned char *)p + 4 * word;
    unsigned value = 0;
    for (int i = 3; i >= 0; i--)
        value = value << 8 | bytes[i];
    return value >> bit;
}

/* Returns number `index` of cells, or of a row, that are single numbers. */
static double number_at(enum cache_type type, const void *x, int index)
{
    return type == CACHE_F16    ? (double)f16_widen(((const uint16_t *)x)[index])
           : type == CACHE_Q8_0 ? (double)((const int8_t *)x)[index]
                                : (double)((const float *)x)[index];
}

/* Returns a key or a value of the chunk at position t, dimension i, from its bits as kernels.h
 * defines them. */
static double key_at(const struct attention *at, int t, int i)
{
    const struct kv_chunk *kv = &at->args.kv;
    const enum cache_type type = kv->type.keys;
    const int words = (kv->key_dim + 7) / 8, blocks = (kv->key_dim + 31) / 32, lane = t % 16;
    const double scale =
        type < CACHE_Q8_0 ? 1
                          : (double)f16_widen(kv->k_scales[(t / 16 * blocks + i / 32) * 16 + lane]);
    if (type <= CACHE_Q8_0)
        return scale * number_at(type, kv->k, (t / 16 * kv->key_dim + i) * 16 + lane);
    const int first = t / 16 * (type == CACHE_Q5_0 ? words + blocks : words);
    const int low = bits_at(kv->k, (first + i / 8) * 16 + lane, i % 8 * 4) % 16;
    if (type == CACHE_Q4_0)
        return scale * (low - 8);
    return scale *
           (low + (int)(bits_at(kv->k, (first + words + i / 32) * 16 + lane, i % 32) % 2) * 16 -
            16);
}

static double value_at(const struct attention *at, int t, int i)
{
    const struct kv_chunk *kv = &at->args.kv;
    const enum cache_type type = kv->type.values;
    const int vectors = (kv->value_dim + 15) / 16, blocks = (kv->value_dim + 31) / 32;
    const double scale =
        type < CACHE_Q8_0
            ? 1
            : (double)f16_widen(kv->v_scales[(t / 16 * blocks + i / 32) * 16 + t % 16]);
    if (type <= CACHE_Q8_0)
        return scale * number_at(type, kv->v, t * vectors * 16 + i);
    const unsigned char *row =
        (const unsigned char *)kv->v + t * vectors * (type == CACHE_Q5_0 ? 10 : 8);
    const int low = bits_at(row + i / 16 * 8, i % 2, i % 16 / 2 * 4) % 16;
    if (type == CACHE_Q4_0)
        return scale * (low - 8);
    const int fifth = row[vectors * 8 + i / 8] >> i % 8 & 1;
    return scale * (low + fifth * 16 - 16);
}

/* Returns head h's score of position t. */
static double score_at(const struct attention *at, int h, int t)
{
    const struct attend *a = &at->args;
    double s = 0;
    for (int i = 0; i < a->kv.key_dim; i++)
        s += a->additive ? (double)a->additive[h % a->group * a->kv.key_dim + i] *
                               tanh((double)a->q[h * a->kv.key_dim + i] + key_at(at, t, i))
                         : (double)a->q[h * a->kv.key_dim + i] * key_at(at, t, i);
    if (a->bias) {
        const struct attend_bias *bias = &a->bias[h % a->group];
        const double x = a->distance + h / a->group - t - (double)bias->centre;
        s += (double)bias->linear * x + (double)bias->square * x * x;
    }
    return s;
}

/* Adds head h's softmax over the chunk: numerator [value_dim] and denominator. */
static void add_softmax(const struct attention *at, int h, double *numerator, double *denominator)
{
    for (int t = at->args.n_hidden; t < attend_positions(&at->args, h); t++) {
        const double e = exp(score_at(at, h, t));
        *denominator += e;
        for (int i = 0; i < at->args.kv.value_dim; i++)
            numerator[i] += e * value_at(at, t, i);
    }
}

/* Tries any number of heads, every storage, with biases and without, products and additive scores.
 */
TEST(attend_is_softmax, .loops = SANITIZED ? KV_TYPES : 4 * KV_TYPES, .before = seed_numbers)
{
    for (int n_heads = 1; n_heads <= 22; n_heads++) {
        const int values = n_heads % 3 ? 70 : 12;
        const struct attention at = make_attention(
            (struct shape){n_heads, 33, values, 100 + n_heads, kv_type_at(_i % KV_TYPES),
                           _i / KV_TYPES % 2, _i / KV_TYPES / 2});
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
