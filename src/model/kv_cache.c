#include "model/kv_cache.h"

#include <assert.h>

/* Elements of one head's K and V region for `cap` positions. */
static size_t k_region(int head_dim, int cap)
{
    return (size_t)kernel_padded(cap) * (size_t)head_dim;
}

static size_t v_region(int head_dim, int cap)
{
    return (size_t)cap * (size_t)kernel_padded(head_dim);
}

static struct mem_plan plan(const struct config *c, int cap, enum storage storage)
{
    struct mem_plan p = {0};
    const uint64_t regions = (uint64_t)c->n_layers * (uint64_t)c->n_kv_heads;
    const uint64_t bytes = storage_bytes(storage);
    mem_plan_add(&p, regions, k_region(c->head_dim, cap) * bytes);
    mem_plan_add(&p, regions, v_region(c->head_dim, cap) * bytes);
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
    return 2 * (size_t)c->n_layers * (size_t)n_kv_heads * (size_t)c->head_dim *
           storage_bytes(storage);
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
    };
    const enum status s = arena_create(&kv->arena, &p, "the KV cache", e);
    if (s != STATUS_OK)
        return s;
    const uint64_t regions = (uint64_t)c->n_layers * (uint64_t)c->n_kv_heads;
    kv->k = arena_take(&kv->arena, regions, kv->k_stride * storage_bytes(storage));
    kv->v = arena_take(&kv->arena, regions, kv->v_stride * storage_bytes(storage));
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
    if (kv->storage == STORAGE_F16) {
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
    const size_t bytes = storage_bytes(kv->storage);
    const size_t k_at = region * kv->k_stride + (size_t)first * (size_t)kv->head_dim;
    const size_t v_at = region * kv->v_stride + (size_t)first * (size_t)kernel_padded(kv->head_dim);
    return (struct kv_chunk){
        .k = kv->k + k_at * bytes,
        .v = kv->v + v_at * bytes,
        .n_positions = n,
        .head_dim = kv->head_dim,
        .storage = kv->storage,
    };
}
