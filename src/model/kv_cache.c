#include "model/kv_cache.h"

#include <assert.h>
#include <string.h>

bool kv_cache_can_store(enum storage storage)
{
    return storage == STORAGE_F32 || storage == STORAGE_F16 || storage == STORAGE_Q8_0;
}

/* Keys, and their scales, of KERNEL_LANES positions are together, so these stand so far apart. */
static size_t step_of(enum kv_part part)
{
    return part == KV_KEYS || part == KV_KEY_SCALES ? KERNEL_LANES : 1;
}

static size_t bytes_of(enum kv_part part, enum storage storage)
{
    if (part == KV_KEY_SCALES || part == KV_VALUE_SCALES || storage == STORAGE_F16)
        return sizeof(uint16_t);
    return storage == STORAGE_F32 ? sizeof(float) : sizeof(int8_t);
}

/* Positions that a region has room for. */
static size_t room_of(const struct kv_regions *r, enum kv_part part)
{
    return step_of(part) > 1 ? r->padded : r->n;
}

/* Of one K/V head of a layer. */
static struct kv_extent extent_of_head(const struct config *c, int layer, enum storage storage)
{
    const int k_dim = config_key_dim(c, layer), v_dim = config_cached_value_dim(c);
    struct kv_extent e = {{k_dim, kernel_padded(v_dim)}};
    if (storage == STORAGE_Q8_0) {
        e.n[KV_KEY_SCALES] = quant_blocks(k_dim);
        e.n[KV_VALUE_SCALES] = quant_blocks(v_dim);
    }
    return e;
}

/* `at` and n times `one`. */
static struct kv_extent extent_after(struct kv_extent at, struct kv_extent one, int n)
{
    for (enum kv_part part = 0; part < KV_PARTS; part++)
        at.n[part] += n * one.n[part];
    return at;
}

/* Of heads that hold the positions from `first` up to the shape's cap. */
static struct kv_regions describe_regions(const struct kv_shape *shape, int first)
{
    return (struct kv_regions){
        .first = first,
        .n = shape->cap - first,
        .padded = kernel_padded(shape->cap - first),
    };
}

static void describe_cache(struct kv_cache *kv, const struct config *c,
                           const struct kv_shape *shape)
{
    *kv = (struct kv_cache){
        .config = *c,
        .shape = *shape,
        .whole = describe_regions(shape, 0),
        .own = describe_regions(shape, shape->n_shared / KERNEL_LANES * KERNEL_LANES)};
    for (int l = 0; l < c->n_layers; l++)
        kv->all =
            extent_after(kv->all, extent_of_head(c, l, shape->storage), config_kv_heads(c, l));
}

/* All positions of n_sequences regions. */
static void take_regions(struct kv_cache *kv, struct kv_regions *r, int n_sequences)
{
    for (enum kv_part part = 0; part < KV_PARTS; part++)
        r->part[part] = arena_take(&kv->arena, (uint64_t)n_sequences * room_of(r, part),
                                   (uint64_t)kv->all.n[part] * bytes_of(part, kv->shape.storage));
}

static void take_all_regions(struct kv_cache *kv)
{
    take_regions(kv, &kv->whole, 1);
    take_regions(kv, &kv->own, kv->shape.n_sequences - 1);
}

static void take_cache(struct kv_cache *kv)
{
    take_all_regions(kv);
    kv->before = arena_take(&kv->arena, kv->config.n_layers, sizeof *kv->before);
    struct kv_extent sum = {{0}};
    for (int l = 0; l < kv->config.n_layers && kv->before; l++) {
        kv->before[l] = sum;
        sum = extent_after(sum, extent_of_head(&kv->config, l, kv->shape.storage),
                           config_kv_heads(&kv->config, l));
    }
}

bool kv_cache_bytes(const struct config *c, const struct kv_shape *shape, size_t *bytes)
{
    struct kv_cache kv;
    describe_cache(&kv, c, shape);
    take_all_regions(&kv);
    *bytes = kv.arena.used;
    return !kv.arena.overflow;
}

size_t kv_cache_bytes_per_token(const struct config *c, int n_kv_heads, enum storage storage)
{
    size_t bytes = 0;
    for (int l = 0; l < c->n_layers; l++) {
        const struct kv_extent one = extent_of_head(c, l, storage);
        for (enum kv_part part = 0; part < KV_PARTS; part++)
            bytes += config_variant_heads(c, n_kv_heads, l) * one.n[part] * bytes_of(part, storage);
    }
    return bytes;
}

enum status kv_cache_create(struct kv_cache *kv, const struct config *c,
                            const struct kv_shape *shape, struct err *e)
{
    assert(shape->n_sequences >= 1 && shape->cap >= 1 && kv_cache_can_store(shape->storage));
    assert(shape->n_shared >= 0 && shape->n_shared <= shape->cap);
    describe_cache(kv, c, shape);
    take_cache(kv);
    TRY(arena_allocate(&kv->arena, "the KV cache", e));
    take_cache(kv);
    return STATUS_OK;
}

void kv_cache_free(struct kv_cache *kv)
{
    arena_free(&kv->arena);
}

/* Where a position of a head is in the arrays of its regions; NULL in those that have nothing of
 * it. */
struct kv_at {
    unsigned char *part[KV_PARTS];
};

static struct kv_at locate_position(const struct kv_cache *kv, struct kv_place place, int position)
{
    assert(place.sequence >= 0 && place.sequence < kv->shape.n_sequences);
    assert(place.layer >= 0 && place.layer < kv->config.n_layers);
    assert(place.kv_head >= 0 && place.kv_head < config_kv_heads(&kv->config, place.layer));
    const struct kv_regions *r = place.sequence == 0 ? &kv->whole : &kv->own;
    const struct kv_extent one = extent_of_head(&kv->config, place.layer, kv->shape.storage);
    struct kv_extent before = extent_after(kv->before[place.layer], one, place.kv_head);
    if (place.sequence > 0)
        before = extent_after(before, kv->all, place.sequence - 1);
    assert(position >= r->first);
    const size_t i = position - r->first;
    struct kv_at at = {{NULL}};
    for (enum kv_part part = 0; part < KV_PARTS; part++) {
        const size_t lane = i % step_of(part); /* in its panel */
        const size_t element = before.n[part] * room_of(r, part) + (i - lane) * one.n[part] + lane;
        if (one.n[part] > 0)
            at.part[part] = r->part[part] + element * bytes_of(part, kv->shape.storage);
    }
    return at;
}

/* Puts n numbers, `step` elements apart; of Q8_0 their scales, as far apart, too. */
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
    for (size_t first = 0; first < n && storage != STORAGE_F32; first += at_once) {
        const size_t now = n - first < at_once ? n - first : at_once;
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

void kv_cache_put(struct kv_cache *kv, const struct kernels *kernels, struct kv_place place,
                  int position, const float *k, const float *v)
{
    assert(position >= (place.sequence == 0 ? 0 : kv->shape.n_shared) && position < kv->shape.cap);
    const struct kv_at at = locate_position(kv, place, position);
    put_row(kernels, kv->shape.storage, k, config_key_dim(&kv->config, place.layer),
            at.part[KV_KEYS], (void *)at.part[KV_KEY_SCALES], KERNEL_LANES);
    if (at.part[KV_VALUES])
        put_row(kernels, kv->shape.storage, v, config_value_dim(&kv->config), at.part[KV_VALUES],
                (void *)at.part[KV_VALUE_SCALES], 1);
}

/* What a place has from the panel of a position on. */
static struct kv_piece piece_from(const struct kv_cache *kv, struct kv_place place, int position)
{
    const struct kv_at at = locate_position(kv, place, position / KERNEL_LANES * KERNEL_LANES);
    return (struct kv_piece){.k = at.part[KV_KEYS],
                             .v = at.part[KV_VALUES],
                             .k_scales = (void *)at.part[KV_KEY_SCALES],
                             .v_scales = (void *)at.part[KV_VALUE_SCALES]};
}

struct kv_chunk kv_cache_chunk(const struct kv_cache *kv, struct kv_place place, int first, int n)
{
    assert(first % KERNEL_CHUNK == 0 && n >= 1 && n <= KERNEL_CHUNK && first + n <= kv->shape.cap);
    const struct kv_place holder = {0, place.layer, place.kv_head};
    int split = (place.sequence == 0 ? kv->shape.cap : kv->shape.n_shared) - first;
    split = split < 0 ? 0 : split < n ? split : n;
    struct kv_chunk chunk = {.split = split,
                             .n_positions = n,
                             .key_dim = config_key_dim(&kv->config, place.layer),
                             .value_dim = config_average_dim(&kv->config, place.layer),
                             .storage = kv->shape.storage};
    if (split > 0)
        chunk.piece[0] = piece_from(kv, holder, first);
    if (split < n)
        chunk.piece[1] = piece_from(kv, place, first + split);
    return chunk;
}

/* --- positions as bytes ---------------------------------------------------------------------- */

/* Copies all numbers of a position `out` of the cache or from `in` into it, or does neither (NULL);
 * gives their bytes. The lanes that pad a value are left out. */
static size_t copy_position(const struct kv_cache *kv, int sequence, int position,
                            unsigned char *out, const unsigned char *in)
{
    const struct config *c = &kv->config;
    size_t done = 0;
    for (int l = 0; l < c->n_layers; l++) {
        struct kv_extent numbers = extent_of_head(c, l, kv->shape.storage);
        numbers.n[KV_VALUES] = config_cached_value_dim(c);
        for (int h = 0; h < config_kv_heads(c, l); h++) {
            const struct kv_place place = {sequence, l, h};
            const struct kv_at at = locate_position(kv, place, position);
            for (enum kv_part part = 0; part < KV_PARTS; part++) {
                const size_t bytes = bytes_of(part, kv->shape.storage);
                for (size_t i = 0; i < numbers.n[part]; i++, done += bytes) {
                    unsigned char *number = at.part[part] + i * step_of(part) * bytes;
                    if (in)
                        memcpy(number, in + done, bytes);
                    else if (out)
                        memcpy(out + done, number, bytes);
                }
            }
        }
    }
    return done;
}

size_t kv_cache_position_bytes(const struct kv_cache *kv)
{
    return copy_position(kv, 0, 0, NULL, NULL);
}

void kv_cache_read(const struct kv_cache *kv, int sequence, int position, void *bytes)
{
    copy_position(kv, sequence, position, bytes, NULL);
}

void kv_cache_write(struct kv_cache *kv, int sequence, int position, const void *bytes)
{
    copy_position(kv, sequence, position, NULL, bytes);
}
