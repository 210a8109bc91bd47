#include "model/kv_cache.h"

/* How far apart one position's cells are in an array: a panel has the keys, or their scales, of
 * KERNEL_LANES positions, cell by cell. */
static size_t step_of(enum kv_array array)
{
    return array == KV_KEYS || array == KV_KEY_SCALES ? KERNEL_LANES : 1;
}

/* The bytes of a cell of an array. */
static size_t cell_bytes(enum kv_array array, struct kv_type type)
{
    return array == KV_KEYS     ? cache_types[type.keys].cell_bytes
           : array == KV_VALUES ? 1
                                : sizeof(uint16_t);
}

/* How many cells one position of a K/V head has in an array. */
static size_t cells_of(const struct config *c, struct kv_type type, enum kv_array array)
{
    const bool keys = array == KV_KEYS || array == KV_KEY_SCALES;
    const int dim = keys ? c->head_dim : config_value_dim(c);
    const enum cache_type t = keys ? type.keys : type.values;
    if (array == KV_KEY_SCALES || array == KV_VALUE_SCALES)
        return cache_types[t].has_scales ? quant_blocks(dim) : 0;
    return keys ? cache_key_cells(t, dim) : cache_value_bytes(t, dim);
}

/* Counts the cache, and takes it if its arena has memory. */
static void take_cache(struct kv_cache *kv, const struct config *c, const struct kv_shape *shape)
{
    *kv = (struct kv_cache){.config = *c, .shape = *shape, .arena = kv->arena};
    for (int l = 0; l < c->n_layers; l++)
        for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
            const size_t n = config_kv_heads(c, l) * cells_of(c, shape->type, array);
            kv->before[l][array] = shape->one_layer ? 0 : kv->all[array];
            kv->all[array] = shape->one_layer ? MAX(n, kv->all[array]) : kv->all[array] + n;
        }
    for (enum kv_array array = 0; array < KV_ARRAYS; array++) {
        kv->room[array] = step_of(array) > 1 ? kernel_padded(shape->cap) : shape->cap;
        kv->array[array] = arena_take(&kv->arena, (uint64_t)shape->n_sequences * kv->room[array],
                                      (uint64_t)kv->all[array] * cell_bytes(array, shape->type));
    }
}

bool kv_cache_bytes(const struct config *c, const struct kv_shape *shape, size_t *bytes)
{
    struct kv_cache kv = {.arena = {0}};
    take_cache(&kv, c, shape);
    *bytes = kv.arena.used;
    return !kv.arena.overflow;
}

size_t kv_cache_bytes_per_token(const struct config *c, int n_kv_heads, struct kv_type type)
{
    size_t bytes = 0;
    for (int l = 0; l < c->n_layers; l++)
        for (enum kv_array array = 0; array < KV_ARRAYS; array++)
            bytes += config_variant_heads(c, n_kv_heads, l) * cells_of(c, type, array) *
                     cell_bytes(array, type);
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
        const size_t n = cells_of(&kv->config, kv->shape.type, array),
                     before = slot.sequence * kv->all[array] + kv->before[slot.layer][array] +
                              slot.kv_head * n,
                     lane = position % step_of(array); /* in its panel */
        const size_t element = before * kv->room[array] + (position - lane) * n + lane;
        if (n > 0)
            at.array[array] = kv->array[array] + element * cell_bytes(array, kv->shape.type);
    }
    return at;
}

/* Stores n numbers `step` elements apart, and in Q8_0 their scales, as far apart. */
static void put_row(const struct kernels *kernels, enum cache_type type, const float *x, size_t n,
                    void *out, uint16_t *scales, size_t step)
{
    float *floats = out;
    uint16_t halves[64]; /* one call for so many: a step puts every head of every row */
    const size_t at_once = type == CACHE_F16 ? 64 : QUANT_BLOCK;
    if (type == CACHE_F32 && step == 1)
        memcpy(floats, x, n * sizeof *x);
    else if (type == CACHE_F32)
        for (size_t i = 0; i < n; i++)
            floats[i * step] = x[i];
    if (type != CACHE_F32)
        for (size_t first = 0; first < n; first += at_once) {
            const size_t now = MIN(n - first, at_once);
            if (type == CACHE_F16) {
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
    put_row(kernels, kv->shape.type.keys, k, kv->config.head_dim, at.array[KV_KEYS],
            (void *)at.array[KV_KEY_SCALES], KERNEL_LANES);
    put_row(kernels, kv->shape.type.values, v, config_value_dim(&kv->config), at.array[KV_VALUES],
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
                const size_t numbers = cells_of(&kv->config, kv->shape.type, array);
                if (numbers > 0)
                    memcpy(target.array[array], source.array[array],
                           positions * numbers * cell_bytes(array, kv->shape.type));
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
                             .type = kv->shape.type};
}
