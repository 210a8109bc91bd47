#include "model/kv_cache.h"

#include <assert.h>
#include <string.h>

bool kv_cache_can_store(enum storage storage)
{
    return storage == STORAGE_F32 || storage == STORAGE_F16 || storage == STORAGE_Q8_0;
}

static size_t element_bytes(enum storage storage)
{
    return storage == STORAGE_F32   ? sizeof(float)
           : storage == STORAGE_F16 ? sizeof(uint16_t)
                                    : sizeof(int8_t);
}

/* Of heads that hold the positions from `first` up to the shape's cap. */
static struct kv_regions describe_regions(const struct config *c, const struct kv_shape *shape,
                                          int first)
{
    const size_t n = (size_t)(shape->cap - first),
                 padded = (size_t)kernel_padded(shape->cap - first);
    const int k_dim = c->head_dim, v_dim = config_value_dim(c);
    const bool has_scales = shape->storage == STORAGE_Q8_0;
    return (struct kv_regions){
        .first = first,
        .k_stride = padded * (size_t)k_dim,
        .v_stride = n * (size_t)kernel_padded(v_dim),
        .k_scale_stride = has_scales ? padded * (size_t)quant_blocks(k_dim) : 0,
        .v_scale_stride = has_scales ? n * (size_t)quant_blocks(v_dim) : 0,
    };
}

static struct kv_cache describe_cache(const struct config *c, const struct kv_shape *shape)
{
    struct kv_cache kv = {
        .config = *c,
        .shape = *shape,
        .whole = describe_regions(c, shape, 0),
        .own = describe_regions(c, shape, shape->n_shared / KERNEL_LANES * KERNEL_LANES),
    };
    for (int l = 0; l < c->n_layers; l++)
        kv.first_head[l + 1] = kv.first_head[l] + config_kv_heads(c, l);
    return kv;
}

/* K/V heads of a sequence, over all layers. */
static int heads_of_sequence(const struct kv_cache *kv)
{
    return kv->first_head[kv->config.n_layers];
}

static void take_regions(struct kv_regions *r, const struct kv_cache *kv, int n_sequences,
                         struct arena *a)
{
    const uint64_t n = (uint64_t)n_sequences * (uint64_t)heads_of_sequence(kv);
    r->k = arena_take(a, n, r->k_stride * element_bytes(kv->shape.storage));
    r->v = arena_take(a, n, r->v_stride * element_bytes(kv->shape.storage));
    r->k_scales = arena_take(a, n, r->k_scale_stride * sizeof(uint16_t));
    r->v_scales = arena_take(a, n, r->v_scale_stride * sizeof(uint16_t));
}

static void take_cache(struct kv_cache *kv, struct arena *a)
{
    take_regions(&kv->whole, kv, 1, a);
    take_regions(&kv->own, kv, kv->shape.n_sequences - 1, a);
}

bool kv_cache_bytes(const struct config *c, const struct kv_shape *shape, size_t *bytes)
{
    struct kv_cache kv = describe_cache(c, shape);
    take_cache(&kv, &kv.arena);
    *bytes = kv.arena.used;
    return !kv.arena.overflow;
}

size_t kv_cache_bytes_per_token(const struct config *c, int n_kv_heads, enum storage storage)
{
    struct config variant = *c;
    variant.n_kv_heads = n_kv_heads;
    return (size_t)config_all_kv_heads(&variant) *
           (size_t)(storage_bytes(storage, (uint64_t)c->head_dim) +
                    storage_bytes(storage, (uint64_t)config_value_dim(c)));
}

enum status kv_cache_create(struct kv_cache *kv, const struct config *c,
                            const struct kv_shape *shape, struct err *e)
{
    assert(shape->n_sequences >= 1 && shape->cap >= 1 && kv_cache_can_store(shape->storage));
    assert(shape->n_shared >= 0 && shape->n_shared <= shape->cap);
    *kv = describe_cache(c, shape);
    take_cache(kv, &kv->arena);
    const enum status s = arena_allocate(&kv->arena, "the KV cache", e);
    if (s == STATUS_OK)
        take_cache(kv, &kv->arena);
    return s;
}

void kv_cache_free(struct kv_cache *kv)
{
    arena_free(&kv->arena);
}

/* Which of a sequence's heads a place is. */
static size_t head_of_place(const struct kv_cache *kv, struct kv_place p)
{
    assert(p.sequence >= 0 && p.sequence < kv->shape.n_sequences);
    assert(p.layer >= 0 && p.layer < kv->config.n_layers);
    assert(p.kv_head >= 0 && p.kv_head < config_kv_heads(&kv->config, p.layer));
    return (size_t)(kv->first_head[p.layer] + p.kv_head);
}

/* Where a position of a head is in the arrays of its regions: elements and scales. */
struct kv_at {
    const struct kv_regions *regions;
    size_t k, v, k_scales, v_scales;
};

static struct kv_at locate_position(const struct kv_cache *kv, struct kv_place place, int position)
{
    const struct kv_regions *r = place.sequence == 0 ? &kv->whole : &kv->own;
    size_t head = head_of_place(kv, place);
    if (place.sequence > 0)
        head += (size_t)(place.sequence - 1) * (size_t)heads_of_sequence(kv);
    assert(position >= r->first);
    const size_t i = (size_t)(position - r->first), lane = i % KERNEL_LANES;
    const int k_dim = kv->config.head_dim, v_dim = config_value_dim(&kv->config);
    const bool has_scales = kv->shape.storage == STORAGE_Q8_0;
    const size_t k_blocks = has_scales ? (size_t)quant_blocks(k_dim) : 0;
    const size_t v_blocks = has_scales ? (size_t)quant_blocks(v_dim) : 0;
    return (struct kv_at){
        .regions = r,
        .k = head * r->k_stride + (i - lane) * (size_t)k_dim + lane,
        .v = head * r->v_stride + i * (size_t)kernel_padded(v_dim),
        .k_scales = head * r->k_scale_stride + (i - lane) * k_blocks + (has_scales ? lane : 0),
        .v_scales = head * r->v_scale_stride + i * v_blocks,
    };
}

/* Quantises up to QUANT_BLOCK floats. */
static void put_block(const struct kernels *kernels, const float *x, size_t n, int8_t *out,
                      size_t step, uint16_t *scale)
{
    float padded[QUANT_BLOCK] = {0};
    _Alignas(64) unsigned char row[64]; /* quant_row_bytes(QUANT_BLOCK) */
    memcpy(padded, x, n * sizeof *x);
    kernels->quantize(row, padded, QUANT_BLOCK, 1, QUANT_BLOCK);
    for (size_t i = 0; i < n; i++)
        out[i * step] = (int8_t)row[i];
    float d;
    memcpy(&d, row + QUANT_BLOCK, sizeof d);
    kernels->to_f16(scale, &d, 1);
}

/* Puts n numbers, `step` elements apart; of Q8_0 their scales, `scale_step` apart, too. */
static void put_row(const struct kernels *kernels, enum storage storage, const float *x, size_t n,
                    unsigned char *out, size_t at, size_t step, uint16_t *scales, size_t scale_step)
{
    if (storage == STORAGE_F32) {
        float *floats = (float *)(void *)out + at;
        if (step == 1) {
            memcpy(floats, x, n * sizeof *x);
            return;
        }
        for (size_t i = 0; i < n; i++)
            floats[i * step] = x[i];
        return;
    }
    uint16_t halves[64]; /* one call for so many: a step puts every head of every row */
    const size_t at_once = storage == STORAGE_F16 ? 64 : QUANT_BLOCK;
    for (size_t first = 0; first < n; first += at_once) {
        const size_t now = n - first < at_once ? n - first : at_once;
        if (storage == STORAGE_Q8_0) {
            put_block(kernels, x + first, now, (int8_t *)out + at + first * step, step,
                      scales + first / QUANT_BLOCK * scale_step);
            continue;
        }
        kernels->to_f16(halves, x + first, now);
        for (size_t i = 0; i < now; i++)
            ((uint16_t *)(void *)out)[at + (first + i) * step] = halves[i];
    }
}

void kv_cache_put(struct kv_cache *kv, const struct kernels *kernels, struct kv_place place,
                  int position, const float *k, const float *v)
{
    assert(position >= (place.sequence == 0 ? 0 : kv->shape.n_shared) && position < kv->shape.cap);
    const struct kv_at at = locate_position(kv, place, position);
    const struct kv_regions *r = at.regions;
    put_row(kernels, kv->shape.storage, k, (size_t)kv->config.head_dim, r->k, at.k, KERNEL_LANES,
            r->k_scales + at.k_scales, KERNEL_LANES);
    put_row(kernels, kv->shape.storage, v, (size_t)config_value_dim(&kv->config), r->v, at.v, 1,
            r->v_scales + at.v_scales, 1);
}

/* What a place has from the panel of a position on. */
static struct kv_piece piece_from(const struct kv_cache *kv, struct kv_place place, int position)
{
    const struct kv_at at = locate_position(kv, place, position / KERNEL_LANES * KERNEL_LANES);
    const size_t element = element_bytes(kv->shape.storage);
    const bool has_scales = kv->shape.storage == STORAGE_Q8_0;
    return (struct kv_piece){
        .k = at.regions->k + at.k * element,
        .v = at.regions->v + at.v * element,
        .k_scales = has_scales ? at.regions->k_scales + at.k_scales : NULL,
        .v_scales = has_scales ? at.regions->v_scales + at.v_scales : NULL,
    };
}

struct kv_chunk kv_cache_chunk(const struct kv_cache *kv, struct kv_place place, int first, int n)
{
    assert(first % KERNEL_CHUNK == 0 && n >= 1 && n <= KERNEL_CHUNK && first + n <= kv->shape.cap);
    const struct kv_place holder = {0, place.layer, place.kv_head};
    int split = (place.sequence == 0 ? kv->shape.cap : kv->shape.n_shared) - first;
    split = split < 0 ? 0 : split < n ? split : n;
    struct kv_chunk chunk = {.split = split,
                             .n_positions = n,
                             .key_dim = kv->config.head_dim,
                             .value_dim = config_value_dim(&kv->config),
                             .storage = kv->shape.storage};
    if (split > 0)
        chunk.piece[0] = piece_from(kv, holder, first);
    if (split < n)
        chunk.piece[1] = piece_from(kv, place, first + split);
    return chunk;
}
