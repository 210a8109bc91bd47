#include "model/pack.h"

#include <string.h>

#include "parts/kernels_math.h"

static inline uint16_t half_at(const unsigned char *data, uint64_t i)
{
    uint16_t x;
    memcpy(&x, data + i * sizeof x, sizeof x);
    return x;
}

static inline float f32_at(const unsigned char *data, uint64_t i)
{
    float x;
    memcpy(&x, data + i * sizeof x, sizeof x);
    return x;
}

static inline float value_at(const struct gguf_tensor *t, uint64_t i)
{
    switch (t->type->type) {
    case TENSOR_F16:
        return math_from_f16(half_at(t->data, i));
    case TENSOR_BF16:
        return math_from_bf16(half_at(t->data, i));
    default:
        return f32_at(t->data, i);
    }
}

bool pack_storage(const struct tensor_type_info *type, enum storage *out)
{
    switch (type->type) {
    case TENSOR_F32:
        *out = STORAGE_F32;
        return true;
    case TENSOR_F16:
        *out = STORAGE_F16;
        return true;
    case TENSOR_BF16:
        *out = STORAGE_BF16;
        return true;
    default:
        return false;
    }
}

/* Where element i of a row stands in the panels. */
static inline size_t place(const struct matrix *w, int row, int i)
{
    return ((size_t)(row / KERNEL_LANES) * (size_t)w->n_in + (size_t)i) * KERNEL_LANES +
           (size_t)(row % KERNEL_LANES);
}

void pack_floats(float *out, const struct gguf_tensor *t)
{
    if (t->type->type == TENSOR_F32)
        memcpy(out, t->data, t->n_bytes);
    else
        for (uint64_t i = 0; i < t->n_elements; i++)
            out[i] = value_at(t, i);
}

/* The usual cases, where the type stays: a transposition, one panel's output after the other. */

static void transpose_f32(float *out, const unsigned char *data, int n_out, int n_in)
{
    for (int row = 0; row < n_out; row += KERNEL_LANES) {
        const int width = n_out - row < KERNEL_LANES ? n_out - row : KERNEL_LANES;
        const unsigned char *rows = data + (size_t)row * (size_t)n_in * sizeof *out;
        for (int i = 0; i < n_in; i++, out += KERNEL_LANES)
            for (int lane = 0; lane < width; lane++)
                out[lane] = f32_at(rows, (uint64_t)lane * (uint64_t)n_in + (uint64_t)i);
    }
}

static void transpose_half(uint16_t *out, const unsigned char *data, int n_out, int n_in)
{
    for (int row = 0; row < n_out; row += KERNEL_LANES) {
        const int width = n_out - row < KERNEL_LANES ? n_out - row : KERNEL_LANES;
        const unsigned char *rows = data + (size_t)row * (size_t)n_in * sizeof *out;
        for (int i = 0; i < n_in; i++, out += KERNEL_LANES)
            for (int lane = 0; lane < width; lane++)
                out[lane] = half_at(rows, (uint64_t)lane * (uint64_t)n_in + (uint64_t)i);
    }
}

void pack_matrix(void *panels, const struct matrix *w, const struct gguf_tensor *t)
{
    enum storage of_file;
    const bool same = pack_storage(t->type, &of_file) && of_file == w->storage;
    if (same && w->storage == STORAGE_F32)
        transpose_f32(panels, t->data, w->n_out, w->n_in);
    else if (same)
        transpose_half(panels, t->data, w->n_out, w->n_in);
    else
        for (int r = 0; r < w->n_out; r++)
            pack_mean(panels, w, r, t, (struct pack_rows){.first = r, .n = 1});
}

static inline uint64_t row_of(struct pack_rows from, int k)
{
    return (uint64_t)from.first + (uint64_t)k * (uint64_t)from.step;
}

void pack_mean(void *panels, const struct matrix *w, int row, const struct gguf_tensor *t,
               struct pack_rows from)
{
    for (int i = 0; i < w->n_in; i++) {
        float sum = 0;
        for (int k = 0; k < from.n; k++)
            sum += value_at(t, row_of(from, k) * (uint64_t)w->n_in + (uint64_t)i);
        math_store(panels, w->storage, place(w, row, i), sum / (float)from.n);
    }
}

float pack_mean_of_vector(const struct gguf_tensor *t, struct pack_rows from)
{
    float sum = 0;
    for (int k = 0; k < from.n; k++)
        sum += value_at(t, row_of(from, k));
    return sum / (float)from.n;
}

static inline float uniform(struct rng *r, float spread)
{
    return (float)(int32_t)rng_u32(r) * 0x1p-31f * spread;
}

void pack_random(void *panels, const struct matrix *w, float spread, struct rng *r)
{
    for (int row = 0; row < w->n_out; row++)
        for (int i = 0; i < w->n_in; i++)
            math_store(panels, w->storage, place(w, row, i), uniform(r, spread));
}

void pack_random_floats(float *out, uint64_t n, float spread, struct rng *r)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = uniform(r, spread);
}
