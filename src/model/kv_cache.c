#include "model/kv_cache.h"

/* How far apart one position's numbers are in an array: a panel has the keys, or their scales, of
 * KERNEL_LANES positions, dimension by dimension. */
static size_t step_of(enum kv_array array)
{
    return array == KV_KEYS || array == KV_KEY_SCALES ? KERNEL_LANES : 1;
}

static size_t number_bytes(enum kv_array array, enum storage storage)
{
    if (array == KV_KEY_SCALES || array == KV_VALUE_SCALES || storage == STORAGE_F16)
        return sizeof(uint16_t);
    return storage == STORAGE_F32 ? sizeof(float) : sizeof(int8_t);
}

/* How many numbers one position of a K/V head has in an array. */
static size_t numbers_of(const struct config *c, enum storage storage, enum kv_array array)
{
    const bool scales = array == KV_KEY_SCALES || array == KV_VALUE_SCALES;
    const int dim = step_of(array) > 1 ? c->head_dim : config_value_dim(c);
    if (scales)
        return storage == STORAGE_Q8_0 ? quant_blocks(dim) : 0;
    return array == KV_VALUES ? kernel_padded(dim) : dim;
}

/* Counts the cache, and takes it if its arena has memory. */
static void take_cache(struct kv_cache *kv, const struct config *c, const struct kv_shape *shape)
{
    *kv = (struct kv_cache){.config = *c, .shape = *shape, .arena = kv->arena};
    for (int l = 0; l < c->n_layers; l++)
        for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
            const size_t n = config_kv_heads(c, l) * numbers_of(c, shape->storage, array);
            kv->before[l][array] = shape->one_layer ? 0 : kv->all[array];
            kv->all[array] = shape->one_layer ? MAX(n, kv->all[array]) : kv->all[array] + n;
        }
    for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
        kv->room[array] = step_of(array) > 1 ? kernel_padded(shape->cap) : shape->cap;
        kv->array[array] =
            arena_take(&kv->arena, (uint64_t)shape->n_sequences * kv->room[array],
                       (uint64_t)kv->all[array] * number_bytes(array, shape->storage));
    }
}

bool kv_cache_bytes(const struct config *c, const struct kv_shape *shape, size_t *bytes)
{
    struct kv_cache kv = {.arena = {0}};
    take_cache(&kv, c, shape);
    *bytes = kv.arena.used;
    return !kv.arena.overflow;
}

size_t kv_cache_bytes_per_token(const struct config *c, int n_kv_heads, enum storage storage)
{
    size_t bytes = 0;
    for (int l = 0; l < c->n_layers; l++)
        for (enum kv_array array = 0; array < KV_ARRAYS; array++)
            bytes += config_variant_heads(c, n_kv_heads, l) * numbers_of(c, storage, array) *
                     number_bytes(array, storage);
    return bytes;
}

enum status kv_cache_create(struct kv_cache *kv, const struct config *c,
                            const struct kv_shape *shape, struct err *e)
{
    assert(shape->n_sequences >= 1 && shape->cap >= 1);
    assert(shape->storage == STORAGE_F32 || shape->storage == STORAGE_F16 ||
           shape->storage == STORAGE_Q8_0);
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

/* Where a position of a head is in the arrays; NULL in those that have nothing of it. */
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
        const size_t n = numbers_of(&kv->config, kv->shape.storage, array),
                     before = slot.sequence * kv->all[array] + kv->before[slot.layer][array] +
                              slot.kv_head * n,
                     lane = position % step_of(array); /* in its panel */
        const size_t element = before * kv->room[array] + (position - lane) * n + lane;
        if (n > 0)
            at.array[array] = kv->array[array] + element * number_bytes(array, kv->shape.storage);
    }
    return at;
}

/* Stores n numbers `step` elements apart, and in Q8_0 their scales, as far apart. */
static void put_row(const struct kernels *kernels, enum storage storage, const float *x, size_t n,
                    void *out, uint16_t *scales, size_t step)
{
    float *floats = out;
    uint16_t halves[64]; /* one call for so many: a step puts every head of every row */
    const size_t at_once = storage == STORAGE_F16 ? 64 : QUANT_BLOCK;
    if (storage == STORAGE_F32 && step == 1)
        memcpy(floats, x, n * sizeof *x);
    else if (storage == STORAGE_F32)
        for (size_t i = 0; i < n; i++)
            floats[i * step] = x[i];
    if (storage != STORAGE_F32)
        for (size_t first = 0; first < n; first += at_once) {
            const size_t now = MIN(n - first, at_once);
            if (storage == STORAGE_F16) {
                kernels->to_f16(halves, x + first, now);
                for (size_t i = 0; i < now; i++)
                    ((uint16_t *)out)[(first + i) * step] = halves[i];
                continue;
            }
            float padded[QUANT_BLOCK] = {0}, scale;
            _Alignas(64) unsigned char row[64]; /* quant_row_bytes(QUANT_BLOCK) */
            memcpy(padded, x + first, now * sizeof *x);
            kernels->quantize(row, padded, QUANT_BLOCK, 1, QUANT_BLOCK);
            for (size_t i = 0; i < now; i++)
                ((int8_t *)out)[(first + i) * step] = (int8_t)row[i];
            memcpy(&scale, row + QUANT_BLOCK, sizeof scale);
            kernels->to_f16(scales + first / QUANT_BLOCK * step, &scale, 1);
        }
}

void kv_cache_put(struct kv_cache *kv, const struct kernels *kernels, struct kv_slot slot,
                  int position, const float *k, const float *v)
{
    assert(position >= 0 && position < kv->shape.cap);
    const struct kv_at at = locate_position(kv, slot, position);
    put_row(kernels, kv->shape.storage, k, kv->config.head_dim, at.array[KV_KEYS],
            (void *)at.array[KV_KEY_SCALES], KERNEL_LANES);
    put_row(kernels, kv->shape.storage, v, config_value_dim(&kv->config), at.array[KV_VALUES],
            (void *)at.array[KV_VALUE_SCALES], 1);
}

void kv_cache_copy(struct kv_cache *kv, int from, int to, int n)
{
    assert(from != to && n >= 0 && n <= kv->shape.cap);
    for (int l = 0; l < kv->config.n_layers; l++)
        for (int head = 0; head < config_kv_heads(&kv->config, l); head++) {
            const struct kv_at source = locate_position(kv, (struct kv_slot){from, l, head}, 0);
            const struct kv_at target = locate_position(kv, (struct kv_slot){to, l, head}, 0);
            for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
                const size_t positions = step_of(array) > 1 ? kernel_padded(n) : n;
                const size_t numbers = numbers_of(&kv->config, kv->shape.storage, array);
                if (numbers > 0)
                    memcpy(target.array[array], source.array[array],
                           positions * numbers * number_bytes(array, kv->shape.storage));
            }
        }
}

struct kv_chunk kv_cache_chunk(const struct kv_cache *kv, struct kv_slot slot, int first, int n)
{
    assert(first % KERNEL_CHUNK == 0 && n >= 1 && n <= KERNEL_CHUNK && first + n <= kv->shape.cap);
    const struct kv_at at = locate_position(kv, slot, first);
    return (struct kv_chunk){.k = at.array[KV_KEYS],
                             .v = at.array[KV_VALUES],
                             .k_scales = (void *)at.array[KV_KEY_SCALES],
                             .v_scales = (void *)at.array[KV_VALUE_SCALES],
                             .n_positions = n,
                             .key_dim = kv->config.head_dim,
                             .value_dim = config_value_dim(&kv->config),
                             .storage = kv->shape.storage};
}
