/* Compares what a KV cache holds, and attention to it, with what NumPy and the gguf package made of
 * the same numbers (make_kv_cache.py), on every instruction set. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoints.h"
#include "kernel_data.h"
#include "model/kv_cache.h"
#include "support.h"

enum { POSITIONS = 19, HEADS = 2, MOST = 96, BLOCK_BYTES = 34 };

static const int sizes[] = {64, 48, 80, 96, 20};
static const struct kv_type pairs[] = {{CACHE_F32, CACHE_F16},
                                       {CACHE_Q8_0, CACHE_Q4_0},
                                       {CACHE_Q5_0, CACHE_Q4_0},
                                       {CACHE_Q4_0, CACHE_Q5_0}};

/* Makes row t, as make_kv_cache.py does. */
static void numbers(float *x, int t, int n, uint64_t salt)
{
    for (int j = 0; j < n; j++) {
        const uint64_t i = (uint64_t)(t * n + j) + salt;
        const uint64_t bits = (i * 2654435761u ^ i * 40503 >> 7) % (1 << 24);
        x[j] = (float)(((double)bits / (1 << 23) - 1) * (j % 7 == 3 ? 8 : 1));
    }
}

/* Returns the level of number i of position t, of a key or a value of n numbers in the chunk. */
static int level_at(const struct kv_chunk *kv, bool is_key, int t, int i, int n)
{
    const enum cache_type type = is_key ? kv->type.keys : kv->type.values;
    const unsigned char *base = is_key ? kv->k : kv->v;
    const int lane = is_key ? t % 16 : i % 16, words = (n + 7) / 8, vectors = (n + 15) / 16;
    const int blocks = (n + 31) / 32;
    uint32_t word, fifth = 0;
    if (type == CACHE_Q8_0) {
        const int at = is_key ? (t / 16 * n + i) * 16 + lane : t * vectors * 16 + i;
        return (int8_t)base[at];
    }
    if (is_key) {
        const uint32_t *panel =
            (const uint32_t *)kv->k + t / 16 * (type == CACHE_Q5_0 ? words + blocks : words) * 16;
        word = panel[i / 8 * 16 + lane] >> i % 8 * 4;
        if (type == CACHE_Q5_0)
            fifth = panel[(words + i / 32) * 16 + lane] >> i % 32;
    } else {
        const unsigned char *row = base + t * vectors * (type == CACHE_Q5_0 ? 10 : 8);
        memcpy(&word, row + i / 16 * 8 + lane % 2 * 4, sizeof word);
        word >>= lane / 2 * 4;
        if (type == CACHE_Q5_0)
            fifth = (uint32_t)row[vectors * 8 + i / 8] >> i % 8;
    }
    return (int)(word & 15) | (int)(fifth & 1) << 4;
}

/* Writes block b of a row as GGUF has it, with zeros past n; returns its bytes. */
static size_t block_of(const struct kv_chunk *kv, bool is_key, int t, int b, int n,
                       unsigned char *out)
{
    const enum cache_type type = is_key ? kv->type.keys : kv->type.values;
    const uint16_t scale =
        (is_key ? kv->k_scales : kv->v_scales)[(t / 16 * quant_blocks(n) + b) * 16 + t % 16];
    unsigned char *q = out + sizeof scale;
    uint32_t fifths = 0;
    int levels[32];
    memcpy(out, &scale, sizeof scale);
    for (int j = 0; j < 32; j++) {
        const int none = type == CACHE_Q8_0 ? 0 : type == CACHE_Q5_0 ? 16 : 8;
        levels[j] = b * 32 + j < n ? level_at(kv, is_key, t, b * 32 + j, n) : none;
        fifths |= (uint32_t)(levels[j] >> 4 & 1) << j;
    }
    if (type == CACHE_Q8_0) {
        for (int j = 0; j < 32; j++)
            q[j] = (unsigned char)levels[j];
        return 34;
    }
    if (type == CACHE_Q5_0) {
        memcpy(q, &fifths, sizeof fifths);
        q += sizeof fifths;
    }
    for (int j = 0; j < 16; j++)
        q[j] = (unsigned char)((levels[j] & 15) | (levels[j + 16] & 15) << 4);
    return (size_t)(q + 16 - out);
}

/* Compares the blocks of all rows with those at *golden, and goes on behind them. */
static void expect_blocks(const struct kv_chunk *kv, bool is_key, int n,
                          const unsigned char **golden)
{
    const enum cache_type type = is_key ? kv->type.keys : kv->type.values;
    for (int t = 0; t < POSITIONS && cache_types[type].has_scales; t++)
        for (int b = 0; b < quant_blocks(n); b++) {
            unsigned char found[BLOCK_BYTES];
            const size_t bytes = block_of(kv, is_key, t, b, n, found);
            ck_assert_msg(memcmp(found, *golden, bytes) == 0,
                          "%s, heads of %d: block %d of %s %d is not gguf's",
                          cache_type_names[type], n, b, is_key ? "key" : "value", t);
            *golden += bytes;
        }
}

/* Compares the results of both query heads, rotated back, to 1e-5 of the largest value. */
static void expect_attention(const struct kv_cache *kv, const struct kv_chunk *chunk,
                             const struct kernels *k, int n, const double *golden)
{
    float q[HEADS * MOST], scores[HEADS * KERNEL_CHUNK], out[HEADS * (MOST + 2)];
    const size_t stride = (size_t)n + 2;
    for (int h = 0; h < HEADS; h++) {
        numbers(q + h * n, h, n, 900001);
        for (int i = 0; i < n; i++)
            q[h * n + i] = (float)((double)q[h * n + i] / sqrt(n));
    }
    k->hadamard(q, HEADS * n, kv->key_rotation);
    k->attend(&(struct attend){.kv = *chunk,
                               .n_first = chunk->n_positions,
                               .n_heads = HEADS,
                               .group = HEADS,
                               .q = q,
                               .scores = scores,
                               .max = out + n,
                               .sum = out + n + 1,
                               .out = out,
                               .stride = stride});
    for (int h = 0; h < HEADS; h++) {
        float *result = out + (size_t)h * stride;
        for (int i = 0; i < n; i++)
            result[i] /= result[n + 1];
        k->hadamard(result, n, kv->value_rotation);
        for (int i = 0; i < n; i++)
            ck_assert_msg(fabs((double)result[i] - golden[h * n + i]) <= 8e-5,
                          "%s, %s cache, heads of %d: element %d of head %d is %.7g, not %.7g",
                          k->name, kv_type_name(chunk->type).text, n, i, h, (double)result[i],
                          golden[h * n + i]);
    }
}

/* Compares them also with those of what the cache gives back, in double precision, for queries that
 * are not rotated. */
static void expect_given_back(const struct kv_cache *kv, int n, const double *golden)
{
    float q[MOST], keys[POSITIONS][MOST], values[POSITIONS][MOST];
    for (int t = 0; t < POSITIONS; t++)
        kv_cache_get(kv, (struct kv_slot){0, 0, 0}, t, keys[t], values[t]);
    for (int h = 0; h < HEADS; h++) {
        double sum = 0, result[MOST] = {0};
        numbers(q, h, n, 900001);
        for (int t = 0; t < POSITIONS; t++) {
            double score = 0;
            for (int i = 0; i < n; i++)
                score += (double)q[i] * (double)keys[t][i] / sqrt(n);
            sum += exp(score);
            for (int i = 0; i < n; i++)
                result[i] += exp(score) * (double)values[t][i];
        }
        for (int i = 0; i < n; i++)
            ck_assert_double_eq_tol(result[i] / sum, golden[h * n + i], 8e-5);
    }
}

TEST(blocks_and_attention_are_numpys)
{
    size_t len;
    const unsigned char *golden = released_by(free, read_file("tests/data/kv-cache.bin", &len));
    const unsigned char *at = golden;
    for (int s = 0; s < (int)COUNT(sizes); s++)
        for (int p = 0; p < (int)COUNT(pairs); p++) {
            const int n = sizes[s];
            const struct kv_shape shape = {.n_sequences = 1, .cap = POSITIONS, .type = pairs[p]};
            char text[96];
            snprintf(text, sizeof text, "layers=1 heads=2 kv=1 ctx=32 vocab=9 ff=8 dim=%d", n);
            struct config c = config_sized("gpt2", text);
            struct kv_cache kv;
            config_complete(&c);
            ck_assert_int_eq(c.head_dim, n);
            expect_ok(kv_cache_create(&kv, &c, &shape, NULL));
            for (int t = 0; t < POSITIONS; t++) {
                float key[MOST], value[MOST];
                numbers(key, t, n, 1);
                numbers(value, t, n, 70001);
                kv_cache_put(&kv, fastest_kernels(), (struct kv_slot){0, 0, 0}, t, key, value);
            }
            const struct kv_chunk chunk =
                kv_cache_chunk(&kv, (struct kv_slot){0, 0, 0}, 0, POSITIONS);
            double results[HEADS * MOST];
            expect_blocks(&chunk, true, n, &at);
            expect_blocks(&chunk, false, n, &at);
            memcpy(results, at, (size_t)(HEADS * n) * sizeof *results);
            at += (size_t)(HEADS * n) * sizeof *results;
            expect_given_back(&kv, n, results);
            for (const struct kernels *k = NULL; (k = next_kernels(k));)
                expect_attention(&kv, &chunk, k, n, results);
            kv_cache_free(&kv);
        }
    ck_assert_int_eq(at - golden, (int)len);
}

/* H = H^T = H^-1, for each run of the largest power of two that divides a row; every table gives
 * the scalar one's bits. */
TEST(rotation_undoes_itself, .before = seed_numbers)
{
    static const int rotations[][2] = {{64, 64}, {48, 16},   {96, 32}, {8, 8},
                                       {20, 0},  {512, 256}, {24, 8}};
    for (int i = 0; i < (int)COUNT(rotations); i++) {
        const int n = rotations[i][0], size = rotations[i][1];
        ck_assert_int_eq(cache_rotation(CACHE_Q4_0, n), size);
        ck_assert_int_eq(cache_rotation(CACHE_F16, n), 0);
        float *any = random_floats((size_t)n), *rotated = copy_floats(any, (size_t)n);
        kernels_scalar.hadamard(rotated, n, size);
        for (const struct kernels *k = NULL; (k = next_kernels(k));) {
            float x[512] = {0}, once[512], *other = copy_floats(any, (size_t)n);
            k->hadamard(other, n, size);
            assert_same_bits(rotated, other, (size_t)n, k->name);
            x[n - 1] = 1;
            k->hadamard(x, n, size);
            memcpy(once, x, sizeof x);
            for (int j = 0; j < n && size > 0; j++) {
                const int ones = __builtin_popcount((unsigned)(j % size) & (unsigned)(size - 1));
                const double expected = j < n - size ? 0 : (ones % 2 ? -1 : 1) / sqrt(size);
                ck_assert_double_eq_tol((double)once[j], expected, 1e-6);
            }
            k->hadamard(x, n, size);
            for (int j = 0; j < n; j++)
                ck_assert_double_eq_tol((double)x[j], j == n - 1, 1e-6);
        }
        release_all();
    }
}
