#include "model/kv_cache.h"

#include "base/half.h"
#include "compute/kernels_math.h"

/* What one position of a K/V head has in an array: n cells of so many bytes, `step` cells apart. A
 * panel has the keys, or the scales of keys or of values, of KERNEL_LANES positions, cell by cell.
 */
struct cells {
    size_t n, bytes, step;
};

static struct cells cells_of(const struct config *c, struct kv_type type, enum kv_array array)
{
    const bool keys = array == KV_KEYS || array == KV_KEY_SCALES;
    const int dim = keys ? c->head_dim : config_value_dim(c);
    const enum cache_type t = keys ? type.keys : type.values;
    if (array == KV_KEY_SCALES || array == KV_VALUE_SCALES)
        return (struct cells){cache_types[t].has_scales ? quant_blocks(dim) : 0, sizeof(uint16_t),
                              KERNEL_LANES};
    return keys ? (struct cells){cache_key_cells(t, dim), cache_types[t].cell_bytes, KERNEL_LANES}
                : (struct cells){cache_value_bytes(t, dim), 1, 1};
}

/* Counts the cache, and takes it if its arena has memory. */
static void take_cache(struct kv_cache *kv, const struct config *c, const struct kv_shape *shape)
{
    const bool turns = c->score == SCORE_DOT; /* only products survive a rotation of both sides */
    *kv = (struct kv_cache){
        .config = *c,
        .shape = *shape,
        .arena = kv->arena,
        .key_rotation = turns ? cache_rotation(shape->type.keys, c->head_dim) : 0,
        .value_rotation = cache_rotation(shape->type.values, config_value_dim(c))};
    for (int l = 0; l < c->n_layers; l++)
        for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
            const size_t n = config_kv_heads(c, l) * cells_of(c, shape->type, array).n;
            kv->before[l][array] = shape->one_layer ? 0 : kv->all[array];
            kv->all[array] = shape->one_layer ? MAX(n, kv->all[array]) : kv->all[array] + n;
        }
    for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
        const struct cells cells = cells_of(c, shape->type, array);
        kv->room[array] = cells.step > 1 ? kernel_padded(shape->cap) : shape->cap;
        kv->array[array] = arena_take(&kv->arena, (uint64_t)shape->n_sequences * kv->room[array],
                                      (uint64_t)kv->all[array] * cells.bytes);
    }
}

bool kv_cache_bytes(const struct config *c, const struct kv_shape *shape, size_t *bytes)
{
    struct kv_cache kv = {.arena = {0}};
    take_cache(&kv, c, shape);
    *bytes = kv.arena.used;
    return !kv.arena.overflow;
}

/* Bytes of one position in a layer. */
static uint64_t layer_bytes(const struct config *c, struct kv_type type, int layer)
{
    uint64_t bytes = 0;
    for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
        const struct cells cells = cells_of(c, type, array);
        bytes += config_kv_heads(c, layer) * cells.n * cells.bytes;
    }
    return bytes;
}

size_t kv_cache_bytes_per_token(const struct config *c, struct kv_type type)
{
    size_t bytes = 0;
    for (int l = 0; l < c->n_layers; l++)
        bytes += layer_bytes(c, type, l);
    return bytes;
}

uint64_t kv_cache_bytes_read(const struct config *c, struct kv_type type, int depth)
{
    uint64_t bytes = 0;
    for (int l = 0; l < c->n_layers; l++)
        bytes += layer_bytes(c, type, l) * (depth - config_window_first(c, l, depth));
    return bytes;
}

enum status kv_cache_create(struct kv_cache *kv, const struct config *c,
                            const struct kv_shape *shape, struct err *e)
{
    assert(shape->n_sequences >= 1 && shape->cap >= 1);
    kv->arena = (struct arena){0};
    take_cache(kv, c, shape);
    TRY(arena_allocate(&kv->arena, "the KV cache", e));
    take_cache(kv, c, shape);
    return STATUS_OK;
}

void kv_cache_free(struct kv_cache *kv)
{
    arena_free(&kv->arena);
}

/* Where a position of a head is in each array; NULL in those that keep nothing. */
struct kv_at {
    unsigned char *array[KV_ARRAYS];
};

static struct kv_at locate_position(const struct kv_cache *kv, struct kv_slot slot, int position)
{
    assert(slot.sequence >= 0 && slot.sequence < kv->shape.n_sequences);
    assert(slot.layer >= 0 && slot.layer < kv->config.n_layers);
    assert(slot.kv_head >= 0 && slot.kv_head < config_kv_heads(&kv->config, slot.layer));
    struct kv_at at = {{NULL}};
    for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
        const struct cells cells = cells_of(&kv->config, kv->shape.type, array);
        const size_t before = slot.sequence * kv->all[array] + kv->before[slot.layer][array] +
                              slot.kv_head * cells.n,
                     lane = position % cells.step; /* in its panel */
        const size_t cell = before * kv->room[array] + (position - lane) * cells.n + lane;
        if (cells.n > 0)
            at.array[array] = kv->array[array] + cell * cells.bytes;
    }
    return at;
}

/* Stores n numbers `step` elements apart. */
static void put_floats(const struct kernels *kernels, enum cache_type type, const float *x,
                       size_t n, void *out, size_t step)
{
    float *floats = out;
    uint16_t halves[64]; /* so many a call, because a step puts every head of every row */
    if (type == CACHE_F32 && step == 1)
        memcpy(floats, x, n * sizeof *x);
    else if (type == CACHE_F32)
        for (size_t i = 0; i < n; i++)
            floats[i * step] = x[i];
    else
        for (size_t first = 0, now; first < n; first += now) {
            now = MIN(n - first, LENGTH(halves));
            kernels->to_f16(halves, x + first, now);
            for (size_t i = 0; i < now; i++)
                ((uint16_t *)out)[(first + i) * step] = halves[i];
        }
}

/* The lower four bits of eight bytes, the first's in the lowest. */
static uint32_t nibbles_of(const uint8_t *q)
{
    uint64_t x = little_load(q, 8) & 0x0f0f0f0f0f0f0f0f;
    x = (x | x >> 4) & 0x00ff00ff00ff00ff;
    x = (x | x >> 8) & 0x0000ffff0000ffff;
    return (uint32_t)(x | x >> 16);
}

/* The fifth bits of n bytes, n a multiple of 8. */
static uint32_t fifths_of(const uint8_t *q, int n)
{
    uint32_t fifths = 0;
    for (int i = 0; i < n; i += 8) /* the product brings bit 8 j to bit 56 + j */
        fifths |=
            (uint32_t)((little_load(q + i, 8) >> 4 & 0x0101010101010101) * 0x0102040810204080 >> 56)
            << i;
    return fifths;
}

/* These two store the integers of block b of a row's n numbers as struct kv_chunk has them: keys
 * cell by cell, values in lanes. */
static void put_key_levels(const uint8_t *q, enum cache_type type, int b, int n, void *out)
{
    const int first = b * QUANT_BLOCK, now = MIN(n - first, QUANT_BLOCK);
    if (type == CACHE_Q8_0) {
        for (int i = 0; i < now; i++)
            ((uint8_t *)out)[(first + i) * KERNEL_LANES] = q[i];
        return;
    }
    uint32_t *words = out;
    for (int i = 0; i < now; i += 8)
        words[(first + i) / 8 * KERNEL_LANES] = nibbles_of(q + i);
    if (type == CACHE_Q5_0)
        words[(cache_words(n) + b) * KERNEL_LANES] = fifths_of(q, QUANT_BLOCK);
}

static void put_value_levels(const uint8_t *q, enum cache_type type, int b, int n,
                             unsigned char *out)
{
    const int padded = kernel_padded(n), first = b * QUANT_BLOCK;
    const int now = MIN(padded - first, QUANT_BLOCK);
    if (type == CACHE_Q8_0) {
        memcpy(out + first, q, now);
        return;
    }
    for (int v = 0; v < now; v += KERNEL_LANES) {
        uint8_t halves[2][KERNEL_LANES / 2];
        for (int i = 0; i < KERNEL_LANES; i++)
            halves[i % 2][i / 2] = q[v + i];
        const uint32_t words[] = {nibbles_of(halves[0]), nibbles_of(halves[1])};
        const uint16_t fifths = fifths_of(q + v, KERNEL_LANES);
        memcpy(out + (first + v) / 2, words, sizeof words);
        if (type == CACHE_Q5_0)
            memcpy(out + padded / 2 + (first + v) / 8, &fifths, sizeof fifths);
    }
}

/* Stores a row of n numbers, a key or a value, rotated in runs of `rotation`, and its scales. */
static void put_row(const struct kernels *kernels, enum cache_type type, int rotation, bool is_key,
                    const float *x, int n, void *out, uint16_t *scales)
{
    const int step = is_key ? KERNEL_LANES : 1, run = MAX(rotation, QUANT_BLOCK);
    if (!cache_types[type].has_scales) {
        put_floats(kernels, type, x, n, out, step);
        return;
    }
    for (int first = 0; first < n; first += run) {
        float rotated[CACHE_MOST_ROTATED] = {0};
        const int now = MIN(n - first, run);
        memcpy(rotated, x + first, now * sizeof *x);
        kernels->hadamard(rotated, now, rotation);
        for (int b = first / QUANT_BLOCK; b * QUANT_BLOCK < first + now; b++) {
            uint8_t q[QUANT_BLOCK];
            scales[b * KERNEL_LANES] =
                kernels->levels(cache_types[type].bits, q, rotated + (b * QUANT_BLOCK - first));
            if (is_key)
                put_key_levels(q, type, b, n, out);
            else
                put_value_levels(q, type, b, n, out);
        }
    }
}

void kv_cache_put(struct kv_cache *kv, const struct kernels *kernels, struct kv_slot slot,
                  int position, const float *k, const float *v)
{
    assert(position >= 0 && position < kv->shape.cap);
    const struct kv_at at = locate_position(kv, slot, position);
    put_row(kernels, kv->shape.type.keys, kv->key_rotation, true, k, kv->config.head_dim,
            at.array[KV_KEYS], (void *)at.array[KV_KEY_SCALES]);
    put_row(kernels, kv->shape.type.values, kv->value_rotation, false, v,
            config_value_dim(&kv->config), at.array[KV_VALUES], (void *)at.array[KV_VALUE_SCALES]);
}

void kv_cache_get(const struct kv_cache *kv, struct kv_slot slot, int position, float *k, float *v)
{
    const int lane = position % KERNEL_LANES;
    const struct kv_chunk chunk = kv_cache_chunk(kv, slot, position - lane, lane + 1);
    float scale;
    for (int i = 0; i < chunk.key_dim; i++) {
        k[i] = math_chunk_key(&chunk, lane, i, &scale);
        k[i] *= scale;
    }
    for (int i = 0; i < chunk.value_dim; i++) {
        v[i] = math_chunk_value(&chunk, lane, i, &scale);
        v[i] *= scale;
    }
    kernels_scalar.hadamard(k, chunk.key_dim, kv->key_rotation);
    kernels_scalar.hadamard(v, chunk.value_dim, kv->value_rotation);
}

void kv_cache_copy(const struct kv_cache *source, int from, struct kv_cache *target, int to, int n)
{
    const struct config *c = &source->config;
    const struct kv_type type = source->shape.type;
    assert(n >= 0 && n <= MIN(source->shape.cap, target->shape.cap));
    for (int l = 0; l < c->n_layers; l++)
        for (int head = 0; head < config_kv_heads(c, l); head++) {
            const struct kv_at at = locate_position(source, (struct kv_slot){from, l, head}, 0);
            const struct kv_at goal = locate_position(target, (struct kv_slot){to, l, head}, 0);
            for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
                const struct cells cells = cells_of(c, type, array);
                const size_t positions = cells.step > 1 ? kernel_padded(n) : n;
                if (cells.n > 0)
                    memcpy(goal.array[array], at.array[array], positions * cells.n * cells.bytes);
            }
        }
}

struct kv_chunk kv_cache_chunk(const struct kv_cache *kv, struct kv_slot slot, int first, int n)
{
    assert(first % KERNEL_LANES == 0 && n >= 1 && n <= KERNEL_CHUNK && first + n <= kv->shape.cap);
    const struct kv_at at = locate_position(kv, slot, first);
    return (struct kv_chunk){.k = at.array[KV_KEYS],
                             .v = at.array[KV_VALUES],
                             .k_scales = (void *)at.array[KV_KEY_SCALES],
                             .v_scales = (void *)at.array[KV_VALUE_SCALES],
                             .n_positions = n,
                             .key_dim = kv->config.head_dim,
                             .value_dim = config_value_dim(&kv->config),
                             .type = kv->shape.type};
}
