/*
 * matrix - weight matrices, cut into the panels that kernels read, and how their numbers are
 * stored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

/* Width of a weight panel, a K panel and of every interleaved sum. */
#define KERNEL_LANES 16
/* Panels whose columns lie side by side, where elements are not quantised. */
#define PANEL_GROUP 4

/* How weights are stored in memory. In the quantised types, GGUF's, QUANT_BLOCK consecutive
 * elements share a binary16 scale. (The KV cache has types of its own: cache_type.h.) */
enum storage { STORAGE_F32, STORAGE_F16, STORAGE_BF16, STORAGE_Q8_0, STORAGE_Q4_0, STORAGE_COUNT };
#define QUANT_BLOCK 32

/* The names: "f32", "f16", "bf16", "q8_0", "q4_0", NULL. */
extern const char *const storage_names[];

static inline bool storage_is_quantised(enum storage s)
{
    return s == STORAGE_Q8_0 || s == STORAGE_Q4_0;
}

/* Returns the bytes of QUANT_BLOCK elements, without their scale. */
static inline size_t storage_block_bytes(enum storage s)
{
    switch (s) {
    case STORAGE_F32:
        return QUANT_BLOCK * sizeof(float);
    case STORAGE_Q8_0:
        return QUANT_BLOCK;
    case STORAGE_Q4_0:
        return QUANT_BLOCK / 2;
    default:
        return QUANT_BLOCK * sizeof(uint16_t);
    }
}

/* Returns the bytes of a row of n elements with the scales of its blocks; the last may be shorter.
 */
uint64_t storage_bytes(enum storage s, uint64_t n);

/* Returns the blocks that n elements take; the last may be shorter. */
static inline int quant_blocks(int n)
{
    return (n + QUANT_BLOCK - 1) / QUANT_BLOCK;
}

/* --- weights --------------------------------------------------------------------------------- */

/*
 * A weight matrix W [n_out, n_in] in ceil(n_out / KERNEL_LANES) panels of KERNEL_LANES rows, each
 * of matrix_panel_bytes; rows from n_out on are zero. Panel p has the rows from
 * first = p * KERNEL_LANES on.
 *   F32, F16, BF16: groups of PANEL_GROUP panels, the last of those left, one after the other; a
 *     group is [n_in][panel][lane] = W[first + lane][i], see matrix_place: one stream of memory
 *     feeds as many chains of sums as a processor wants
 *   Q8_0 (n_in a multiple of QUANT_BLOCK): panels one after the other, each binary16 scales
 *     [n_in / 32][lane], padded to 64 bytes; then bytes [n_in / 4][lane][4], the elements i of four
 *     columns plus 128
 *   Q4_0: the same scales; then bytes [n_in / 32][4][lane][4], where byte [v][lane][j] has element
 *     4 v + j of the block, plus 8, in its low half and element 16 + 4 v + j in its high half
 */
struct matrix {
    int n_out, n_in;
    enum storage storage;
    const void *panels; /* matrix_bytes; borrowed, as all pointers here are */
    const float *bias;  /* [n_out], or NULL: none */
};

/* Returns the panels that n_out rows take. */
static inline int matrix_panels(int n_out)
{
    return (n_out + KERNEL_LANES - 1) / KERNEL_LANES;
}

/* Returns at which element a panel of F32, F16 or BF16 has its first column, and how many elements
 * lie between the beginnings of a column and the next. */
struct panel_place {
    size_t first, column;
};
static inline struct panel_place matrix_place(int n_out, int n_in, int panel)
{
    const int in_group = panel % PANEL_GROUP, group = panel - in_group;
    const int width = MIN(matrix_panels(n_out) - group, PANEL_GROUP);
    return (struct panel_place){((size_t)group * n_in + in_group) * KERNEL_LANES,
                                (size_t)width * KERNEL_LANES};
}

/* Returns the bytes from the start of a quantised panel to its elements. */
static inline size_t matrix_scales_bytes(int n_in)
{
    const size_t bytes = (size_t)quant_blocks(n_in) * KERNEL_LANES * sizeof(uint16_t);
    return (bytes + 63) / 64 * 64;
}

/* Return the bytes of a panel, and of all. These are calls, because inlined they make gcc's Q4_0
 * tiles a tenth slower. */
size_t matrix_panel_bytes(int n_in, enum storage s);
uint64_t matrix_bytes(int n_out, int n_in, enum storage s);

/* Returns n rounded up to whole lanes. */
static inline int kernel_padded(int n)
{
    return matrix_panels(n) * KERNEL_LANES;
}
