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

/* Of one K/V head of a layer. */
static struct kv_extent extent_of_head(const struct config *c, int layer, enum storage storage)
{
    const int k_dim = config_key_dim(c, layer), v_dim = config_cached_value_dim(c);
    const bool has_scales = storage == STORAGE_Q8_0;
    return (struct kv_extent){
        .k = (size_t)k_dim,
        .v = (size_t)kernel_padded(v_dim),
        .k_scales = has_scales ? (size_t)quant_blocks(k_dim) : 0,
        .v_scales = has_scales ? (size_t)quant_blocks(v_dim) : 0,
    };
}

/* `at` and n times `one`. */
static struct kv_extent extent_after(struct kv_extent at, struct kv_extent one, int n)
{
    return (struct kv_extent){
        .k = at.k + (size_t)n * one.k,
        .v = at.v + (size_t)n * one.v,
        .k_scales = at.k_scales + (size_t)n * one.k_scales,
        .v_scales = at.v_scales + (size_t)n * one.v_scales,
    };
}

/* Of heads that hold the positions from `first` up to the shape's cap. */
static struct kv_regions describe_regions(const struct kv_shape *shape, int first)
{
    return (struct kv_regions){
        .first = first,
        .n = (size_t)(shape->cap - first),
        .padded = (size_t)kernel_padded(shape->cap - first),
    };
}

/* Sums the layers up, into `before` if that is there. */
static void add_layers(struct kv_cache *kv)
{
    kv->all = (struct kv_extent){0};
    for (int l = 0; l < kv->config.n_layers; l++) {
        if (kv->before)
            kv->before[l] = kv->all;
        kv->all = extent_after(kv->all, extent_of_head(&kv->config, l, kv->shape.storage),
                               config_kv_heads(&kv->config, l));
    }
}

static void describe_cache(struct kv_cache *kv, const struct config *c,
                           const struct kv_shape *shape)
{
    kv->config = *c;
    kv->shape = *shape;
    kv->before = NULL;
    kv->whole = describe_regions(shape, 0);
    kv->own = describe_regions(shape, shape->n_shared / KERNEL_LANES * KERNEL_LANES);
    kv->arena = (struct arena){0};
    add_layers(kv);
}

/* All positions of n_sequences regions of `each` numbers a position. */
static void *take_region(struct arena *a, int n_sequences, size_t positions, size_t each,
                         size_t bytes)
{
    uint64_t n = (uint64_t)n_sequences * (uint64_t)positions;
    return arena_take(a, n, (uint64_t)each * bytes);
}

static void take_regions(struct kv_regions *r, const struct kv_cache *kv, int n_sequences,
                         struct arena *a)
{
    const struct kv_extent all = kv->all;
    const size_t element = element_bytes(kv->shape.storage);
    r->k = take_region(a, n_sequences, r->padded, all.k, element);
    r->v = take_region(a, n_sequences, r->n, all.v, element);
    r->k_scales = take_region(a, n_sequences, r->padded, all.k_scales, sizeof(uint16_t));
    r->v_scales = take_region(a, n_sequences, r->n, all.v_scales, sizeof(uint16_t));
}

static void take_all_regions(struct kv_cache *kv, struct arena *a)
{
    take_regions(&kv->whole, kv, 1, a);
    take_regions(&kv->own, kv, kv->shape.n_sequences - 1, a);
}

static void take_cache(struct kv_cache *kv, struct arena *a)
{
    take_all_regions(kv, a);
    kv->before = arena_take(a, (uint64_t)kv->config.n_layers, sizeof *kv->before);
}

bool kv_cache_bytes(const struct config *c, const struct kv_shape *shape, size_t *bytes)
{
    struct kv_cache kv;
    describe_cache(&kv, c, shape);
    take_all_regions(&kv, &kv.arena);
    *bytes = kv.arena.used;
    return !kv.arena.overflow;
}

size_t kv_cache_bytes_per_token(const struct config *c, int n_kv_heads, enum storage storage)
{
    struct kv_extent all = {0};
    for (int l = 0; l < c->n_layers; l++)
        all = extent_after(all, extent_of_head(c, l, storage),
                           config_variant_heads(c, n_kv_heads, l));
    return (all.k + all.v) * element_bytes(storage) +
           (all.k_scales + all.v_scales) * sizeof(uint16_t);
}

enum status kv_cache_create(struct kv_cache *kv, const struct config *c,
                            const struct kv_shape *shape, struct err *e)
{
    assert(shape->n_sequences >= 1 && shape->cap >= 1 && kv_cache_can_store(shape->storage));
    assert(shape->n_shared >= 0 && shape->n_shared <= shape->cap);
    describe_cache(kv, c, shape);
    take_cache(kv, &kv->arena);
    const enum status s = arena_allocate(&kv->arena, "the KV cache", e);
    if (s == STATUS_OK) {
        take_cache(kv, &kv->arena);
        add_layers(kv);
    }
    return s;
}

void kv_cache_free(struct kv_cache *kv)
{
    arena_free(&kv->arena);
}

/* Where a position of a head is in the arrays of its regions: elements and scales. */
struct kv_at {
    const struct kv_regions *regions;
    size_t k, v, k_scales, v_scales;
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
    const size_t i = (size_t)(position - r->first), lane = i % KERNEL_LANES;
    return (struct kv_at){
        .regions = r,
        .k = before.k * r->padded + (i - lane) * one.k + lane,
        .v = before.v * r->n + i * one.v,
        .k_scales =
            before.k_scales * r->padded + (i - lane) * one.k_scales + (one.k_scales > 0 ? lane : 0),
        .v_scales = before.v_scales * r->n + i * one.v_scales,
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
    put_row(kernels, kv->shape.storage, k, (size_t)config_key_dim(&kv->config, place.layer), r->k,
            at.k, KERNEL_LANES, r->k_scales + at.k_scales, KERNEL_LANES);
    if (config_is_latent(&kv->config))
        return;
    put_row(kernels, kv->shape.storage, v, (size_t)config_value_dim(&kv->config), r->v, at.v, 1,
            r->v_scales + at.v_scales, 1);
}

/* What a place has from the panel of a position on. */
static struct kv_piece piece_from(const struct kv_cache *kv, struct kv_place place, int position)
{
    const struct kv_at at = locate_position(kv, place, position / KERNEL_LANES * KERNEL_LANES);
    const size_t element = element_bytes(kv->shape.storage);
    const bool has_scales = kv->shape.storage == STORAGE_Q8_0;
    const bool has_values = !config_is_latent(&kv->config);
    return (struct kv_piece){
        .k = at.regions->k + at.k * element,
        .v = has_values ? at.regions->v + at.v * element : NULL,
        .k_scales = has_scales ? at.regions->k_scales + at.k_scales : NULL,
        .v_scales = has_scales && has_values ? at.regions->v_scales + at.v_scales : NULL,
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

/* n elements of a head's position: where they stand in the cache, `step` of them apart. */
struct kv_run {
    unsigned char *first;
    size_t n, step, element;
};

#define KV_RUNS 4
struct kv_runs {
    struct kv_run run[KV_RUNS];
};

/* In the order of their bytes. The lanes that pad a value are left out. */
static struct kv_runs runs_of(const struct kv_cache *kv, struct kv_place place, int position)
{
    const struct kv_extent one = extent_of_head(&kv->config, place.layer, kv->shape.storage);
    const struct kv_at at = locate_position(kv, place, position);
    const struct kv_regions *r = at.regions;
    const size_t element = element_bytes(kv->shape.storage), scale = sizeof *r->k_scales;
    const size_t n_values = (size_t)config_cached_value_dim(&kv->config);
    struct kv_runs runs = {{{NULL, one.k, KERNEL_LANES, element},
                            {NULL, n_values, 1, element},
                            {NULL, one.k_scales, KERNEL_LANES, scale},
                            {NULL, one.v_scales, 1, scale}}};
    if (one.k > 0)
        runs.run[0].first = r->k + at.k * element;
    if (n_values > 0)
        runs.run[1].first = r->v + at.v * element;
    if (one.k_scales > 0)
        runs.run[2].first = (unsigned char *)(r->k_scales + at.k_scales);
    if (one.v_scales > 0)
        runs.run[3].first = (unsigned char *)(r->v_scales + at.v_scales);
    return runs;
}

/* Each returns the byte behind those of the run. */
static unsigned char *read_run(const struct kv_run *r, unsigned char *bytes)
{
    for (size_t i = 0; i < r->n; i++, bytes += r->element)
        memcpy(bytes, r->first + i * r->step * r->element, r->element);
    return bytes;
}

static const unsigned char *write_run(const struct kv_run *r, const unsigned char *bytes)
{
    for (size_t i = 0; i < r->n; i++, bytes += r->element)
        memcpy(r->first + i * r->step * r->element, bytes, r->element);
    return bytes;
}

size_t kv_cache_position_bytes(const struct kv_cache *kv)
{
    size_t bytes = 0;
    for (int l = 0; l < kv->config.n_layers; l++) {
        const struct kv_runs runs = runs_of(kv, (struct kv_place){.layer = l}, 0);
        for (int i = 0; i < KV_RUNS; i++)
            bytes += (size_t)config_kv_heads(&kv->config, l) * runs.run[i].n * runs.run[i].element;
    }
    return bytes;
}

void kv_cache_read(const struct kv_cache *kv, int sequence, int position, void *bytes)
{
    unsigned char *to = bytes;
    for (int l = 0; l < kv->config.n_layers; l++)
        for (int h = 0; h < config_kv_heads(&kv->config, l); h++) {
            const struct kv_runs runs = runs_of(kv, (struct kv_place){sequence, l, h}, position);
            for (int i = 0; i < KV_RUNS; i++)
                to = read_run(&runs.run[i], to);
        }
}

void kv_cache_write(struct kv_cache *kv, int sequence, int position, const void *bytes)
{
    const unsigned char *from = bytes;
    for (int l = 0; l < kv->config.n_layers; l++)
        for (int h = 0; h < config_kv_heads(&kv->config, l); h++) {
            const struct kv_runs runs = runs_of(kv, (struct kv_place){sequence, l, h}, position);
            for (int i = 0; i < KV_RUNS; i++)
                from = write_run(&runs.run[i], from);
        }
}
