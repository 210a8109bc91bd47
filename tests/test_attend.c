/* Attention to a chunk of the cache, and the joining of chunks: every vector table against the
 * scalar definition, bit for bit, and the definition against double precision. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "kernel_data.h"
#include "support.h"

struct shape {
    int n_heads, key_dim, value_dim, n;
    enum storage storage;
    bool biased;
    bool latent; /* the keys are the values */
};

static const char *shape_text(const struct shape *s, const char *table)
{
    static char text[128];
    snprintf(text, sizeof text, "%s attend%s, %d heads of %d and %d, %d positions, %s%s", table,
             s->latent ? "_latent" : "", s->n_heads, s->key_dim, s->value_dim, s->n,
             storage_name(s->storage), s->biased ? ", biased" : "");
    return text;
}

struct attention {
    struct attend args;
    bool latent;
    size_t n_out; /* floats of each of max, sum, out */
    float *q, *scores, *max, *sum, *out, *patches;
    void *k, *v;
    uint16_t *k_scales, *v_scales;
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

static struct attention make_attention(const struct shape *s)
{
    const size_t n_panels = (size_t)matrix_panels(s->n), key_dim = (size_t)s->key_dim;
    const size_t n_k = n_panels * key_dim * KERNEL_LANES;
    const size_t v_stride = (size_t)kernel_padded(s->value_dim);
    const size_t n_v = (size_t)s->n * v_stride;
    const size_t stride = (size_t)s->value_dim + 3; /* the gaps stay as they are */
    struct attention at = {
        .latent = s->latent,
        .patches = random_floats(LATENT_PATCHES * key_dim * KERNEL_LANES),
        .q = random_floats((size_t)s->n_heads * key_dim),
        .scores = random_floats((size_t)s->n_heads * KERNEL_CHUNK),
        .n_out = (size_t)s->n_heads * stride,
        .max = random_floats((size_t)s->n_heads * stride),
        .sum = random_floats((size_t)s->n_heads * stride),
        .out = random_floats((size_t)s->n_heads * stride),
        .k_values = random_floats(n_k),
        .v_values = random_floats(n_v),
        .bias = random_biases(s->n_heads),
    };
    /* Stale lanes beyond n must not matter, whatever they hold. */
    for (size_t t = (size_t)s->n; t < n_panels * KERNEL_LANES; t++)
        for (size_t i = 0; i < key_dim; i++)
            at.k_values[(t / 16 * key_dim + i) * 16 + t % 16] = NAN;
    for (size_t i = 0; i < n_v; i++)
        if (i % v_stride >= (size_t)s->value_dim)
            at.v_values[i] = NAN;
    at.k = as_storage(at.k_values, n_k, s->storage);
    at.v = as_storage(at.v_values, n_v, s->storage);
    at.k_scales = random_scales(n_panels * (size_t)quant_blocks(s->key_dim) * KERNEL_LANES);
    at.v_scales = random_scales((size_t)s->n * (size_t)quant_blocks(s->value_dim));
    at.args = (struct attend){.kv = {.piece = {{at.k, s->latent ? NULL : at.v, at.k_scales,
                                                s->latent ? NULL : at.v_scales}},
                                     .split = s->n,
                                     .n_positions = s->n,
                                     .key_dim = s->key_dim,
                                     .value_dim = s->value_dim,
                                     .storage = s->storage},
                              .n_heads = s->n_heads,
                              .q = at.q,
                              .scores = at.scores,
                              .max = at.max,
                              .sum = at.sum,
                              .out = at.out,
                              .stride = stride,
                              .bias = s->biased ? at.bias : NULL,
                              .distance = s->n - 1 + s->n_heads % 2 * 40,
                              .patches = at.patches};
    return at;
}

static void run(const struct kernels *k, const struct attention *at, const struct attend *args)
{
    if (at->latent)
        k->attend_latent(args);
    else
        k->attend(args);
}

/* --- the same bits --------------------------------------------------------------------------- */

static void compare_attend(const struct kernels *k, const struct shape *s)
{
    struct attention at = make_attention(s);
    const size_t n_out = at.n_out;
    struct attend reference = at.args;
    reference.out = copy_floats(at.out, n_out);
    reference.max = copy_floats(at.max, n_out);
    reference.sum = copy_floats(at.sum, n_out);
    run(&kernels_scalar, &at, &reference);
    run(k, &at, &at.args);
    const char *what = shape_text(s, k->name);
    assert_same_bits(reference.max, at.max, n_out, what);
    assert_same_bits(reference.sum, at.sum, n_out, what);
    assert_same_bits(reference.out, at.out, n_out, what);
    release_all();
}

static const enum storage storages[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};

TEST(attend_equals_scalar, .before = seed_numbers)
{
    static const int heads[] = {1, 2, 3, 4, 7, 12, 22};
    static const int dims[] = {1, 8, 16, 20, 24, 48, 64, 80};
    static const int positions[] = {1, 15, 16, 17, 63, 64, 100, 256};
    for (const struct kernels *k = NULL; (k = next_vector(k));) {
        for (int h = 0; h < 7; h++)
            for (int d = 0; d < 8; d++)
                for (int p = 0; p < 8; p++)
                    for (int kind = 0; kind < 3; kind++) {
                        struct shape s = {heads[h],       dims[d], dims[d], positions[p],
                                          storages[kind], false,   false};
                        compare_attend(k, &s);
                        s.latent = true;
                        s.biased = (d + p) % 2;
                        compare_attend(k, &s);
                        s.latent = false;
                        s.value_dim = dims[(d + h + 1) % 8]; /* any other */
                        s.biased = true;
                        compare_attend(k, &s);
                    }
    }
}

/* Rows [begin, end), exactly. */
static void *copy_rows(const void *from, size_t row_bytes, int begin, int end)
{
    unsigned char *rows = allocated((size_t)(end - begin) * row_bytes);
    memcpy(rows, (const unsigned char *)from + (size_t)begin * row_bytes,
           (size_t)(end - begin) * row_bytes);
    return rows;
}

/* Overwrites what a piece from position `first` on holds at position t: all bits set are NaN. */
static void spoil_position(const struct kv_piece *piece, int first, int t, int dim, size_t element)
{
    const size_t panel = (size_t)((t - first) / KERNEL_LANES) * (size_t)dim;
    const size_t lane = (size_t)(t % KERNEL_LANES);
    for (size_t i = 0; i < (size_t)dim; i++)
        memset((unsigned char *)(uintptr_t)piece->k + ((panel + i) * KERNEL_LANES + lane) * element,
               0xff, element);
}

/* The positions [begin, end) of a chunk that is in one piece. */
static struct kv_piece copy_piece(const struct kv_chunk *kv, int begin, int end)
{
    static const size_t elements[] = {
        [STORAGE_F32] = 4, [STORAGE_F16] = 2, [STORAGE_Q8_0] = sizeof(int8_t)};
    const struct kv_piece *whole = &kv->piece[0];
    const size_t element = elements[kv->storage];
    const size_t k_scales = (size_t)quant_blocks(kv->key_dim) * sizeof(uint16_t);
    const size_t v_scales = (size_t)quant_blocks(kv->value_dim) * sizeof(uint16_t);
    const int panel = begin / KERNEL_LANES, panels = matrix_panels(end);
    const int first = panel * KERNEL_LANES;
    const struct kv_piece piece = {
        copy_rows(whole->k, (size_t)kv->key_dim * KERNEL_LANES * element, panel, panels),
        whole->v ? copy_rows(whole->v, (size_t)kernel_padded(kv->value_dim) * element, first, end)
                 : NULL,
        copy_rows(whole->k_scales, k_scales * KERNEL_LANES, panel, panels),
        whole->v ? copy_rows(whole->v_scales, v_scales, first, end) : NULL,
    };
    for (int t = first; t < begin; t++)
        spoil_position(&piece, first, t, kv->key_dim, element);
    for (int t = end; t < panels * KERNEL_LANES; t++)
        spoil_position(&piece, first, t, kv->key_dim, element);
    return piece;
}

/* A chunk in two pieces is the chunk in one, on every table. */
static void compare_pieces(const struct shape *s, int split)
{
    struct attention at = make_attention(s);
    const size_t n_out = at.n_out;
    float *expected = copy_floats(at.out, n_out);
    struct attend whole = at.args, pieces = at.args;
    whole.out = expected;
    run(&kernels_scalar, &at, &whole);
    const float max = at.max[0], sum = at.sum[0];
    pieces.kv.split = split;
    pieces.kv.piece[0] = split > 0 ? copy_piece(&at.args.kv, 0, split) : (struct kv_piece){0};
    pieces.kv.piece[1] = split < s->n ? copy_piece(&at.args.kv, split, s->n) : (struct kv_piece){0};
    for (const struct kernels *k = NULL; (k = next_kernels(k));) {
        const char *what = shape_text(s, k->name);
        run(k, &at, &pieces);
        assert_same_bits(expected, at.out, n_out, what);
        assert_same_bits(&max, at.max, 1, what);
        assert_same_bits(&sum, at.sum, 1, what);
    }
    release_all();
}

TEST(pieces_equal_the_whole, .before = seed_numbers)
{
    static const int heads[] = {1, 3, 12}, dims[] = {20, 64};
    static const int positions[] = {1, 17, 100, 256};
    static const int splits[] = {0, 1, 15, 16, 17, 31, 64, 100, 255, 256};
    for (int h = 0; h < 3; h++)
        for (int d = 0; d < 2; d++)
            for (int p = 0; p < 4; p++)
                for (int at = 0; at < 10 && splits[at] <= positions[p]; at++)
                    for (int kind = 0; kind < 3; kind++) {
                        const bool other = (h + at) % 2;
                        struct shape s = {heads[h],     dims[d],        dims[other ? 1 - d : d],
                                          positions[p], storages[kind], other,
                                          false};
                        compare_pieces(&s, splits[at]);
                        s.latent = true;
                        s.value_dim = s.key_dim;
                        compare_pieces(&s, splits[at]);
                    }
}

/* --- what it means --------------------------------------------------------------------------- */

/* The chunk's keys or values at position t, dimension i, as stored. */
static double key_at(const struct attention *at, int t, int i)
{
    const int dim = at->args.kv.key_dim;
    const size_t index = (size_t)((t / 16 * dim + i) * 16 + t % 16);
    const int block = (t / 16 * ((dim + 31) / 32) + i / 32) * 16 + t % 16;
    switch (at->args.kv.storage) {
    case STORAGE_F16:
        return (double)f16_widen(((const uint16_t *)at->k)[index]);
    case STORAGE_Q8_0:
        return ((const int8_t *)at->k)[index] * (double)f16_widen(at->k_scales[block]);
    default:
        return (double)at->k_values[index];
    }
}

static double value_at(const struct attention *at, int t, int i)
{
    if (at->latent)
        return key_at(at, t, i);
    const int dim = at->args.kv.value_dim;
    const size_t index = (size_t)(t * ((dim + 15) / 16 * 16) + i);
    const int block = t * ((dim + 31) / 32) + i / 32;
    switch (at->args.kv.storage) {
    case STORAGE_F16:
        return (double)f16_widen(((const uint16_t *)at->v)[index]);
    case STORAGE_Q8_0:
        return ((const int8_t *)at->v)[index] * (double)f16_widen(at->v_scales[block]);
    default:
        return (double)at->v_values[index];
    }
}

/* Head h's score of position t. */
static double score_at(const struct attention *at, int h, int t)
{
    const struct attend *a = &at->args;
    double s = 0;
    for (int i = 0; i < a->kv.key_dim; i++)
        s += (double)a->q[h * a->kv.key_dim + i] * key_at(at, t, i);
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

/* Any number of heads, every storage, with biases and without. */
TEST(attend_is_softmax, .loops = 9, .before = seed_numbers)
{
    for (int n_heads = 1; n_heads <= 22; n_heads++) {
        const bool latent = _i >= 6;
        const struct shape s = {n_heads,
                                33,
                                latent ? 33 : n_heads % 3 ? 70 : 12,
                                100 + n_heads,
                                storages[_i % 3],
                                _i / 3 == 1,
                                latent};
        struct attention at = make_attention(&s);
        run(&kernels_scalar, &at, &at.args);
        for (int h = 0; h < n_heads; h++) {
            double numerator[80] = {0}, denominator = 0;
            add_softmax(&at, h, numerator, &denominator);
            const size_t first = (size_t)h * at.args.stride;
            for (int i = 0; i < s.value_dim; i++)
                ck_assert_double_eq_tol((double)(at.out[first + (size_t)i] / at.sum[first]),
                                        numerator[i] / denominator, 1e-5);
        }
        release_all();
    }
}

/* Softmax attention in double over three chunks equals attend and merge; a chunk's distance is that
 * of its own first position. */
TEST(attend_and_merge_are_softmax, .loops = 2, .before = seed_numbers)
{
    enum { KEYS = 20, VALUES = 36, CHUNKS = 3, POSITION = 256 + 256 + 39 };
    static const int lengths[CHUNKS] = {256, 256, 40};
    const size_t stride = VALUES + 2;
    float parts[CHUNKS * (VALUES + 2)], merged[VALUES];
    float *q = random_floats(KEYS);
    const struct attend_bias bias = {300, 0, -1e-4f};
    double numerator[VALUES] = {0}, denominator = 0;
    for (int c = 0; c < CHUNKS; c++) {
        const struct shape s = {1, KEYS, VALUES, lengths[c], STORAGE_F32, _i == 1, false};
        struct attention at = make_attention(&s);
        at.bias[0] = bias;
        at.args.distance = POSITION - 256 * c;
        at.args.q = q;
        at.args.out = parts + (size_t)c * stride;
        at.args.max = parts + (size_t)c * stride + VALUES;
        at.args.sum = parts + (size_t)c * stride + VALUES + 1;
        kernels_scalar.attend(&at.args);
        add_softmax(&at, 0, numerator, &denominator);
    }
    kernels_scalar.merge(merged, parts, parts + VALUES, parts + VALUES + 1, CHUNKS, stride, VALUES);
    for (int i = 0; i < VALUES; i++)
        ck_assert_double_eq_tol((double)merged[i], numerator[i] / denominator, 1e-5);
    for (const struct kernels *k = NULL; (k = next_vector(k));) {
        float again[VALUES];
        k->merge(again, parts, parts + VALUES, parts + VALUES + 1, CHUNKS, stride, VALUES);
        assert_same_bits(merged, again, VALUES, k->name);
    }
}

/* A quadratic bias so steep reads the position at its centre, whatever the keys say. */
TEST(steep_biases_read_one_place, .before = seed_numbers)
{
    for (const struct kernels *k = NULL; (k = next_kernels(k));) {
        for (int n = 1; n <= 256; n += 51) {
            const struct shape s = {1, 16, 16, n, STORAGE_F32, true, false};
            struct attention at = make_attention(&s);
            const int place = n / 2;
            at.args.distance = 1000;
            at.bias[0] = (struct attend_bias){(float)(1000 - place), 0, -1e6f};
            k->attend(&at.args);
            ck_assert(at.sum[0] == 1);
            assert_same_bits(at.v_values + place * 16, at.out, 16, k->name);
            release_all();
        }
    }
}

/* --- contracts ------------------------------------------------------------------------------- */

/* Each of these breaks a contract of kernels.h, which every table asserts. */
TEST(broken_contracts_abort, .loops = 14, .before = seed_numbers, .signal = SIGABRT)
{
    const struct shape s = {2, 16, 32, 20, STORAGE_F32, true, false};
    struct attention at = make_attention(&s);
    const struct kernels *k = _i & 1 ? fastest_kernels() : &kernels_scalar;
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); /* the assertion's message */
    switch (_i / 2) {
    case 0: /* rows of out that overlap, though those of keys would not */
        at.args.stride = 31;
        break;
    case 1: /* a position after the query's */
        at.args.distance = 18;
        break;
    case 2:
        at.args.kv.key_dim = 0;
        break;
    case 3:
        at.args.kv.value_dim = 0;
        break;
    case 4:
        at.args.kv.n_positions = KERNEL_CHUNK + 1;
        break;
    case 5: /* keys that are values of another size */
        k->attend_latent(&at.args);
        break;
    default:
        at.args.kv.storage = STORAGE_BF16;
    }
    k->attend(&at.args);
}
