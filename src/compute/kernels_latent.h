/*
 * kernels_latent - attention to a chunk of a latent cache in vector form (private to the vector
 * kernel objects; see kernels_vector.h).
 *
 * Scores are those of kernels_attend.h. Averages come from the same panels, whose lanes are
 * positions: a tile of heads times dimensions adds the products of exponentials and elements up
 * lane by lane, panel after panel, and the lanes at the end of the chunk. So an element is loaded,
 * and widened, once for all of a tile's heads.
 */
#pragma once

#include "compute/kernels_attend.h"

/* Panels of a chunk that follow each other in memory. */
struct latent_run {
    const void *keys; /* [n][dim][KERNEL_LANES] */
    const uint16_t *scales;
    int n;
    bool is_float; /* whatever the cache's storage is */
};

/* A chunk's panels in order: a piece's whole ones and, between and after them, those that are not
 * all of one piece, or not full: copies, which have zeros where there is nothing. */
#define LATENT_RUNS 4
struct latent_panels {
    struct latent_run runs[LATENT_RUNS];
    int n_runs;
};

/* Element i of a panel of a piece, of all its positions. */
ALWAYS_INLINE lanes latent_element(const void *keys, const uint16_t *scales, enum storage storage,
                                   size_t panel, size_t dim, size_t i)
{
    const lanes c = load_element(keys, storage, (panel * dim + i) * KERNEL_LANES);
    if (storage != STORAGE_Q8_0)
        return c;
    const size_t block = panel * quant_blocks((int)dim) + i / QUANT_BLOCK;
    return lanes_mul(c, lanes_load_f16(scales + block * KERNEL_LANES));
}

/* Copies panel `panel` of the chunk, lanes from either piece, to out [dim, KERNEL_LANES]. */
ALWAYS_INLINE void latent_patch(const struct kv_chunk *kv, enum storage storage, int panel,
                                float *out)
{
    const size_t dim = kv->key_dim;
    const int begin = panel * KERNEL_LANES, before = kv->split - begin; /* lanes of piece 0 */
    const int left = kv->n_positions - begin;
    const struct kv_piece *first = &kv->piece[0], *second = &kv->piece[1];
    for (size_t i = 0; i < dim; i++) {
        lanes c = lanes_zero();
        if (kv->split < kv->n_positions && before < KERNEL_LANES) {
            const size_t own = panel - kv->split / KERNEL_LANES;
            c = latent_element(second->k, second->k_scales, storage, own, dim, i);
        }
        if (before > 0) {
            const lanes a = latent_element(first->k, first->k_scales, storage, panel, dim, i);
            c = before < KERNEL_LANES ? lanes_first(a, c, before) : a;
        }
        lanes_store(out + i * KERNEL_LANES,
                    left < KERNEL_LANES ? lanes_first(c, lanes_zero(), left) : c);
    }
}

/* Panels [begin, end) of the chunk, all of one piece, whose first is `piece_first`. */
ALWAYS_INLINE void latent_add_run(struct latent_panels *p, const struct kv_chunk *kv,
                                  enum storage storage, int i, int piece_first, int begin, int end)
{
    const size_t skipped = begin - piece_first;
    const size_t dim = kv->key_dim, n_blocks = quant_blocks(kv->key_dim);
    const struct kv_piece *piece = &kv->piece[i];
    if (begin >= end)
        return;
    p->runs[p->n_runs++] = (struct latent_run){
        .keys =
            (const unsigned char *)piece->k + skipped * dim * KERNEL_LANES * element_bytes(storage),
        .scales =
            storage == STORAGE_Q8_0 ? piece->k_scales + skipped * n_blocks * KERNEL_LANES : NULL,
        .n = end - begin};
}

ALWAYS_INLINE void latent_add_patch(struct latent_panels *p, const struct kv_chunk *kv,
                                    enum storage storage, int panel, float *patch)
{
    latent_patch(kv, storage, panel, patch);
    p->runs[p->n_runs++] = (struct latent_run){.keys = patch, .n = 1, .is_float = true};
}

/* patches is [LATENT_PATCHES, dim, KERNEL_LANES]. */
ALWAYS_INLINE struct latent_panels latent_find_panels(const struct kv_chunk *kv,
                                                      enum storage storage, float *patches)
{
    struct latent_panels p = {.n_runs = 0};
    const int whole = kv->n_positions / KERNEL_LANES, n_panels = matrix_panels(kv->n_positions);
    const int split = kv->split / KERNEL_LANES;
    const bool is_cut = kv->split % KERNEL_LANES != 0 && kv->split < kv->n_positions;
    latent_add_run(&p, kv, storage, 0, 0, 0, MIN(split, whole));
    if (is_cut)
        latent_add_patch(&p, kv, storage, split, patches);
    if (kv->split < kv->n_positions)
        latent_add_run(&p, kv, storage, 1, split, split + is_cut, whole);
    if (whole < n_panels && !(is_cut && split == whole))
        latent_add_patch(&p, kv, storage, whole, patches + (size_t)kv->key_dim * KERNEL_LANES);
    return p;
}

/* acc[head][dim] += exponentials of a run's positions times n_dims elements from `first` on; p is
 * those of the run's first position. */
ALWAYS_INLINE void latent_run_sums(const struct latent_run *run, enum storage storage, size_t dim,
                                   size_t first, const float *p, const int n_heads,
                                   const int n_dims, lanes acc[TILE_HEADS][4])
{
    for (int panel = 0; panel < run->n; panel++, p += KERNEL_LANES) {
        lanes c[4];
        UNROLLED (d, n_dims)
            c[d] = latent_element(run->keys, run->scales, storage, panel, dim, first + d);
        UNROLLED (h, n_heads) {
            const lanes ph = lanes_load(p + h * KERNEL_CHUNK);
            UNROLLED (d, n_dims)
                acc[h][d] = lanes_fma(ph, c[d], acc[h][d]);
        }
    }
}

/* Elements [first, first + n_dims) of n_heads heads' averages. */
ALWAYS_INLINE void latent_tile(const struct attend *a, enum storage storage,
                               const struct latent_panels *panels, int head, int first,
                               const int n_heads, const int n_dims)
{
    const float *p = a->scores + (size_t)head * KERNEL_CHUNK;
    const size_t dim = a->kv.key_dim;
    lanes acc[TILE_HEADS][4], flat[TILE_HEADS * 4];
    float sums[TILE_HEADS * 4 + LANES_FOLDED];
    clear_tile(acc, n_heads, n_dims);
    for (int r = 0; r < panels->n_runs; r++) {
        const struct latent_run *run = &panels->runs[r];
        if (run->is_float)
            latent_run_sums(run, STORAGE_F32, dim, first, p, n_heads, n_dims, acc);
        else
            latent_run_sums(run, storage, dim, first, p, n_heads, n_dims, acc);
        p += run->n * KERNEL_LANES;
    }
    UNROLLED (h, n_heads)
        UNROLLED (d, n_dims)
            flat[h * n_dims + d] = acc[h][d];
#pragma GCC unroll 6
    for (int i = 0; i < n_heads * n_dims; i += LANES_FOLDED)
        lanes_sums(sums + i, flat + i, n_heads * n_dims - i);
    for (int h = 0; h < n_heads; h++)
        memcpy(a->out + (head + h) * a->stride + first, sums + h * n_dims, n_dims * sizeof *sums);
}

/* All elements of n_heads heads; as many at a time as a tile has, the tail one by one. */
ALWAYS_INLINE void latent_heads(const struct attend *a, enum storage storage,
                                const struct latent_panels *panels, int head, const int n_heads)
{
    const int dim = a->kv.key_dim, width = tile_width(n_heads);
    int i = 0;
    for (; i + width <= dim; i += width)
        latent_tile(a, storage, panels, head, i, n_heads, width);
    for (; i < dim; i++)
        latent_tile(a, storage, panels, head, i, n_heads, 1);
}

ALWAYS_INLINE void latent_storage(const struct attend *a, enum storage storage)
{
    const struct latent_panels panels = latent_find_panels(&a->kv, storage, a->patches);
    ALL_HEADS(latent_heads, a, storage, &panels);
}

EACH_CACHE_STORAGE(vector_averages, latent_storage)

void OF_SET(attend_latent)(const struct attend *a)
{
    attend_check(a, true);
    vector_weights(a);
    vector_averages(a);
}
