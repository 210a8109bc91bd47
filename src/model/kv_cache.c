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

/* Sizes and strides; of one head's K and V region for `cap` positions elements, and scales of
 * Q8_0. */
static struct kv_cache describe_cache(const struct config *c, int n_sequences, int cap,
                                      enum storage storage)
{
    const size_t padded = (size_t)kernel_padded(cap), dim = (size_t)c->head_dim;
    const size_t blocks = storage == STORAGE_Q8_0 ? (size_t)quant_blocks(c->head_dim) : 0;
    return (struct kv_cache){
        .config = *c,
        .n_sequences = n_sequences,
        .cap = cap,
        .storage = storage,
        .k_stride = padded * dim,
        .v_stride = (size_t)cap * (size_t)kernel_padded(c->head_dim),
        .k_scale_stride = padded * blocks,
        .v_scale_stride = (size_t)cap * blocks,
    };
}

static void take_cache(struct kv_cache *kv, struct arena *a)
{
    const uint64_t regions = (uint64_t)kv->n_sequences *
                             (uint64_t)config_kv_heads_before(&kv->config, kv->config.n_layers);
    kv->k = arena_take(a, regions, kv->k_stride * element_bytes(kv->storage));
    kv->v = arena_take(a, regions, kv->v_stride * element_bytes(kv->storage));
    kv->k_scales = arena_take(a, regions, kv->k_scale_stride * sizeof(uint16_t));
    kv->v_scales = arena_take(a, regions, kv->v_scale_stride * sizeof(uint16_t));
}

bool kv_cache_bytes(const struct config *c, int n_sequences, int cap, enum storage storage,
                    size_t *bytes)
{
    struct kv_cache kv = describe_cache(c, n_sequences, cap, storage);
    take_cache(&kv, &kv.arena);
    *bytes = kv.arena.used;
    return !kv.arena.overflow;
}

size_t kv_cache_bytes_per_token(const struct config *c, int n_kv_heads, enum storage storage)
{
    return 2 * (size_t)c->n_layers * (size_t)n_kv_heads *
           (size_t)storage_bytes(storage, (uint64_t)c->head_dim);
}

enum status kv_cache_create(struct kv_cache *kv, const struct config *c, int n_sequences, int cap,
                            enum storage storage, struct err *e)
{
    assert(n_sequences >= 1 && cap >= 1 && kv_cache_can_store(storage));
    *kv = describe_cache(c, n_sequences, cap, storage);
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

static size_t region_of(const struct kv_cache *kv, struct kv_place p)
{
    assert(p.sequence >= 0 && p.sequence < kv->n_sequences);
    assert(p.layer >= 0 && p.layer < kv->config.n_layers);
    assert(p.kv_head >= 0 && p.kv_head < config_kv_heads(&kv->config, p.layer));
    return (size_t)p.sequence * (size_t)config_kv_heads_before(&kv->config, kv->config.n_layers) +
           (size_t)(config_kv_heads_before(&kv->config, p.layer) + p.kv_head);
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

static void put_quantised(struct kv_cache *kv, const struct kernels *kernels, size_t region,
                          size_t position, const float *k, const float *v, int8_t *k_out,
                          int8_t *v_out)
{
    const size_t dim = (size_t)kv->config.head_dim;
    const size_t n_blocks = (size_t)quant_blocks(kv->config.head_dim);
    uint16_t *k_scales = kv->k_scales + region * kv->k_scale_stride +
                         position / KERNEL_LANES * n_blocks * KERNEL_LANES +
                         position % KERNEL_LANES;
    uint16_t *v_scales = kv->v_scales + region * kv->v_scale_stride + position * n_blocks;
    for (size_t b = 0; b < n_blocks; b++) {
        const size_t first = b * QUANT_BLOCK;
        const size_t n = dim - first < QUANT_BLOCK ? dim - first : QUANT_BLOCK;
        put_block(kernels, k + first, n, k_out + first * KERNEL_LANES, KERNEL_LANES,
                  k_scales + b * KERNEL_LANES);
        put_block(kernels, v + first, n, v_out + first, 1, v_scales + b);
    }
}

void kv_cache_put(struct kv_cache *kv, const struct kernels *kernels, struct kv_place place,
                  int position, const float *k, const float *v)
{
    assert(position >= 0 && position < kv->cap);
    const size_t region = region_of(kv, place);
    const size_t dim = (size_t)kv->config.head_dim;
    const size_t k_at = region * kv->k_stride +
                        (size_t)(position / KERNEL_LANES) * dim * KERNEL_LANES +
                        (size_t)(position % KERNEL_LANES);
    const size_t v_at =
        region * kv->v_stride + (size_t)position * (size_t)kernel_padded(kv->config.head_dim);
    if (kv->storage == STORAGE_Q8_0) {
        put_quantised(kv, kernels, region, (size_t)position, k, v, (int8_t *)kv->k + k_at,
                      (int8_t *)kv->v + v_at);
    } else if (kv->storage == STORAGE_F16) {
        uint16_t *k_out = (uint16_t *)(void *)kv->k + k_at;
        for (size_t i = 0; i < dim; i++)
            kernels->to_f16(k_out + i * KERNEL_LANES, k + i, 1);
        kernels->to_f16((uint16_t *)(void *)kv->v + v_at, v, dim);
    } else {
        float *k_out = (float *)(void *)kv->k + k_at;
        float *v_out = (float *)(void *)kv->v + v_at;
        for (size_t i = 0; i < dim; i++) {
            k_out[i * KERNEL_LANES] = k[i];
            v_out[i] = v[i];
        }
    }
}

struct kv_chunk kv_cache_chunk(const struct kv_cache *kv, struct kv_place place, int first, int n)
{
    assert(first % KERNEL_CHUNK == 0 && n >= 1 && n <= KERNEL_CHUNK && first + n <= kv->cap);
    const size_t region = region_of(kv, place);
    const size_t bytes = element_bytes(kv->storage);
    const size_t k_at = region * kv->k_stride + (size_t)first * (size_t)kv->config.head_dim;
    const size_t v_at =
        region * kv->v_stride + (size_t)first * (size_t)kernel_padded(kv->config.head_dim);
    struct kv_chunk chunk = {
        .k = kv->k + k_at * bytes,
        .v = kv->v + v_at * bytes,
        .n_positions = n,
        .head_dim = kv->config.head_dim,
        .storage = kv->storage,
    };
    if (kv->storage == STORAGE_Q8_0) {
        const size_t scales = (size_t)first * (size_t)quant_blocks(kv->config.head_dim);
        chunk.k_scales = kv->k_scales + region * kv->k_scale_stride + scales;
        chunk.v_scales = kv->v_scales + region * kv->v_scale_stride + scales;
    }
    return chunk;
}
