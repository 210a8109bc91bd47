#include "model/kv_cache.h"

#include <assert.h>
#include <string.h>

bool kv_cache_can_store(enum storage storage)
{
    return storage == STORAGE_F32 || storage == STORAGE_F16 || storage == STORAGE_Q8_0;
}

/* Elements, and scales of Q8_0, of one head's K and V region for `cap` positions. */

static size_t k_region(int head_dim, int cap)
{
    return (size_t)kernel_padded(cap) * (size_t)head_dim;
}

static size_t v_region(int head_dim, int cap)
{
    return (size_t)cap * (size_t)kernel_padded(head_dim);
}

static size_t k_scale_region(int head_dim, int cap, enum storage storage)
{
    return storage == STORAGE_Q8_0 ? (size_t)kernel_padded(cap) * (size_t)quant_blocks(head_dim)
                                   : 0;
}

static size_t v_scale_region(int head_dim, int cap, enum storage storage)
{
    return storage == STORAGE_Q8_0 ? (size_t)cap * (size_t)quant_blocks(head_dim) : 0;
}

static size_t element_bytes(enum storage storage)
{
    return storage == STORAGE_F32   ? sizeof(float)
           : storage == STORAGE_F16 ? sizeof(uint16_t)
                                    : sizeof(int8_t);
}

static struct mem_plan plan(const struct config *c, int cap, enum storage storage)
{
    struct mem_plan p = {0};
    const uint64_t regions = (uint64_t)c->n_layers * (uint64_t)c->n_kv_heads;
    const int dim = c->head_dim;
    mem_plan_add(&p, regions, k_region(dim, cap) * element_bytes(storage));
    mem_plan_add(&p, regions, v_region(dim, cap) * element_bytes(storage));
    mem_plan_add(&p, regions, k_scale_region(dim, cap, storage) * sizeof(uint16_t));
    mem_plan_add(&p, regions, v_scale_region(dim, cap, storage) * sizeof(uint16_t));
    return p;
}

int kv_cache_bytes(const struct config *c, int cap, enum storage storage, size_t *bytes)
{
    const struct mem_plan p = plan(c, cap, storage);
    *bytes = p.bytes;
    return !p.overflow;
}

size_t kv_cache_bytes_per_token(const struct config *c, int n_kv_heads, enum storage storage)
{
    return 2 * (size_t)c->n_layers * (size_t)n_kv_heads *
           (size_t)storage_bytes(storage, (uint64_t)c->head_dim);
}

enum status kv_cache_create(struct kv_cache *kv, const struct config *c, int cap,
                            enum storage storage, struct err *e)
{
    const struct mem_plan p = plan(c, cap, storage);
    *kv = (struct kv_cache){
        .n_layers = c->n_layers,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .cap = cap,
        .storage = storage,
        .k_stride = k_region(c->head_dim, cap),
        .v_stride = v_region(c->head_dim, cap),
        .k_scale_stride = k_scale_region(c->head_dim, cap, storage),
        .v_scale_stride = v_scale_region(c->head_dim, cap, storage),
    };
    const enum status s = arena_create(&kv->arena, &p, "the KV cache", e);
    if (s != STATUS_OK)
        return s;
    const uint64_t regions = (uint64_t)c->n_layers * (uint64_t)c->n_kv_heads;
    kv->k = arena_take(&kv->arena, regions, kv->k_stride * element_bytes(storage));
    kv->v = arena_take(&kv->arena, regions, kv->v_stride * element_bytes(storage));
    if (storage == STORAGE_Q8_0) {
        kv->k_scales = arena_take(&kv->arena, regions, kv->k_scale_stride * sizeof(uint16_t));
        kv->v_scales = arena_take(&kv->arena, regions, kv->v_scale_stride * sizeof(uint16_t));
    }
    return STATUS_OK;
}

void kv_cache_free(struct kv_cache *kv)
{
    arena_free(&kv->arena);
}

static size_t region_of(const struct kv_cache *kv, int layer, int kv_head)
{
    assert(layer >= 0 && layer < kv->n_layers && kv_head >= 0 && kv_head < kv->n_kv_heads);
    return (size_t)layer * (size_t)kv->n_kv_heads + (size_t)kv_head;
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
    const size_t dim = (size_t)kv->head_dim;
    const size_t n_blocks = (size_t)quant_blocks(kv->head_dim);
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

void kv_cache_put(struct kv_cache *kv, const struct kernels *kernels, int layer, int kv_head,
                  int position, const float *k, const float *v)
{
    assert(position >= 0 && position < kv->cap);
    const size_t region = region_of(kv, layer, kv_head);
    const size_t dim = (size_t)kv->head_dim;
    const size_t k_at = region * kv->k_stride +
                        (size_t)(position / KERNEL_LANES) * dim * KERNEL_LANES +
                        (size_t)(position % KERNEL_LANES);
    const size_t v_at =
        region * kv->v_stride + (size_t)position * (size_t)kernel_padded(kv->head_dim);
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

struct kv_chunk kv_cache_chunk(const struct kv_cache *kv, int layer, int kv_head, int first, int n)
{
    assert(first % KERNEL_CHUNK == 0 && n >= 1 && n <= KERNEL_CHUNK && first + n <= kv->cap);
    const size_t region = region_of(kv, layer, kv_head);
    const size_t bytes = element_bytes(kv->storage);
    const size_t k_at = region * kv->k_stride + (size_t)first * (size_t)kv->head_dim;
    const size_t v_at = region * kv->v_stride + (size_t)first * (size_t)kernel_padded(kv->head_dim);
    struct kv_chunk chunk = {
        .k = kv->k + k_at * bytes,
        .v = kv->v + v_at * bytes,
        .n_positions = n,
        .head_dim = kv->head_dim,
        .storage = kv->storage,
    };
    if (kv->storage == STORAGE_Q8_0) {
        const size_t scales = (size_t)first * (size_t)quant_blocks(kv->head_dim);
        chunk.k_scales = kv->k_scales + region * kv->k_scale_stride + scales;
        chunk.v_scales = kv->v_scales + region * kv->v_scale_stride + scales;
    }
    return chunk;
}
