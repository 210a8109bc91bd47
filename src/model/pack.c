#include "model/pack.h"

#include <string.h>

#include "compute/kernels_math.h"
#include "gguf/blocks.h"

/* By enum storage. */
static const enum tensor_type tensor_types[STORAGE_COUNT] = {
    [STORAGE_F32] = TENSOR_F32,   [STORAGE_F16] = TENSOR_F16,   [STORAGE_BF16] = TENSOR_BF16,
    [STORAGE_Q8_0] = TENSOR_Q8_0, [STORAGE_Q4_0] = TENSOR_Q4_0,
};

/* A block in a file: a binary16 scale, then the elements. */
#define SCALE_BYTES sizeof(uint16_t)

bool pack_storage(const struct tensor_type_info *type, enum storage *out)
{
    for (int s = 0; s < STORAGE_COUNT; s++) {
        if (tensor_types[s] == type->type) {
            *out = (enum storage)s;
            return true;
        }
    }
    return false;
}

uint32_t pack_type(enum storage s)
{
    return tensor_types[s];
}

struct pack_scratch pack_scratch_take(struct arena *a, int n)
{
    struct pack_scratch s = {.row = arena_take(a, (uint64_t)n, sizeof(float)),
                             .sum = arena_take(a, (uint64_t)n, sizeof(float)),
                             .encoded = arena_take(a, (uint64_t)n, sizeof(float))};
    return s;
}

void pack_floats(float *out, const struct gguf_tensor *t)
{
    blocks_decode(t->type->type, out, t->data, t->n_elements);
}

/* Bytes of a row of n elements in a file. */
static size_t encoded_bytes(enum storage s, int n)
{
    const struct tensor_type_info *info = tensor_type_find(tensor_types[s]);
    return (size_t)n / info->block_elements * info->block_bytes;
}

/* --- from the file's layout to the panels' -----------------------------------------------------
 */

/*
 * Up to KERNEL_LANES rows, `row_bytes` apart, into one panel: panels are a transposition, so rows
 * go in together, one cache line of the target after the other.
 */

static void transpose_words(uint32_t *out, const unsigned char *rows, size_t row_bytes, int n_in,
                            int n_rows)
{
    for (int i = 0; i < n_in; i++, out += KERNEL_LANES)
        for (int lane = 0; lane < n_rows; lane++)
            memcpy(&out[lane], rows + (size_t)lane * row_bytes + (size_t)i * sizeof *out,
                   sizeof *out);
}

static void transpose_halves(uint16_t *out, const unsigned char *rows, size_t row_bytes, int n_in,
                             int n_rows)
{
    for (int i = 0; i < n_in; i++, out += KERNEL_LANES)
        for (int lane = 0; lane < n_rows; lane++)
            memcpy(&out[lane], rows + (size_t)lane * row_bytes + (size_t)i * sizeof *out,
                   sizeof *out);
}

/* Blocks of `element_bytes` bytes of elements after their scale; `flip` turns words of signed
 * elements into words of elements with an offset. */
static void transpose_blocks(unsigned char *panel, size_t first_lane, const unsigned char *rows,
                             size_t row_bytes, int n_in, int n_rows, size_t element_bytes,
                             uint32_t flip)
{
    uint16_t *scales = (uint16_t *)(void *)panel + first_lane;
    uint32_t *out = (uint32_t *)(void *)(panel + matrix_scales_bytes(n_in)) + first_lane;
    for (int block = 0; block < n_in / QUANT_BLOCK; block++, scales += KERNEL_LANES) {
        const unsigned char *in = rows + (size_t)block * (SCALE_BYTES + element_bytes);
        for (int lane = 0; lane < n_rows; lane++)
            memcpy(&scales[lane], in + (size_t)lane * row_bytes, SCALE_BYTES);
        in += SCALE_BYTES;
        for (size_t at = 0; at < element_bytes; at += sizeof *out, out += KERNEL_LANES) {
            for (int lane = 0; lane < n_rows; lane++) {
                memcpy(&out[lane], in + (size_t)lane * row_bytes + at, sizeof *out);
                out[lane] ^= flip;
            }
        }
    }
}

/* Rows row .. row + n_rows - 1, all of one panel, from their bytes in a file of w's type. */
static void place(void *panels, const struct matrix *w, int row, int n_rows,
                  const unsigned char *rows)
{
    const size_t lane = (size_t)(row % KERNEL_LANES);
    const size_t row_bytes = encoded_bytes(w->storage, w->n_in);
    unsigned char *panel = (unsigned char *)panels +
                           (size_t)(row / KERNEL_LANES) * matrix_panel_bytes(w->n_in, w->storage);
    switch (w->storage) {
    case STORAGE_Q8_0:
        transpose_blocks(panel, lane, rows, row_bytes, w->n_in, n_rows, QUANT_BLOCK, 0x80808080u);
        break;
    case STORAGE_Q4_0:
        transpose_blocks(panel, lane, rows, row_bytes, w->n_in, n_rows, QUANT_BLOCK / 2, 0);
        break;
    case STORAGE_F32:
        transpose_words((uint32_t *)(void *)panel + lane, rows, row_bytes, w->n_in, n_rows);
        break;
    default:
        transpose_halves((uint16_t *)(void *)panel + lane, rows, row_bytes, w->n_in, n_rows);
    }
}

/* One row of floats, in w's storage. */
static void place_floats(void *panels, const struct matrix *w, int row, const float *x,
                         const struct pack_scratch *scratch)
{
    blocks_encode(tensor_types[w->storage], scratch->encoded, x, (uint64_t)w->n_in);
    place(panels, w, row, 1, scratch->encoded);
}

/* --- tensors -----------------------------------------------------------------------------------
 */

static const unsigned char *row_data(const struct gguf_tensor *t, uint64_t row)
{
    return t->data + row * (t->n_bytes / (t->n_elements / t->dims[0]));
}

void pack_matrix(void *panels, const struct matrix *w, int first, const struct gguf_tensor *t,
                 const struct pack_scratch *scratch)
{
    enum storage of_file;
    const int n_rows = (int)t->dims[1];
    if (pack_storage(t->type, &of_file) && of_file == w->storage) {
        for (int row = 0, n; row < n_rows; row += n) {
            const int left = n_rows - row, of_panel = KERNEL_LANES - (first + row) % KERNEL_LANES;
            n = left < of_panel ? left : of_panel;
            place(panels, w, first + row, n, row_data(t, (uint64_t)row));
        }
        return;
    }
    for (int row = 0; row < n_rows; row++) {
        blocks_decode(t->type->type, scratch->row, row_data(t, (uint64_t)row), (uint64_t)w->n_in);
        place_floats(panels, w, first + row, scratch->row, scratch);
    }
}

void pack_again(void *panels, const struct matrix *w, const struct matrix *from, int begin, int end,
                const struct pack_scratch *scratch)
{
    for (int row = begin; row < end; row++) {
        pack_read_row(from, row, scratch->row);
        place_floats(panels, w, row, scratch->row, scratch);
    }
}

static inline uint64_t row_of(struct pack_rows from, int k)
{
    return (uint64_t)from.first + (uint64_t)k * (uint64_t)from.step;
}

void pack_mean(void *panels, const struct matrix *w, int row, const struct gguf_tensor *t,
               struct pack_rows from, const struct pack_scratch *scratch)
{
    for (int i = 0; i < w->n_in; i++)
        scratch->sum[i] = 0;
    for (int k = 0; k < from.n; k++) {
        blocks_decode(t->type->type, scratch->row, row_data(t, row_of(from, k)), (uint64_t)w->n_in);
        for (int i = 0; i < w->n_in; i++)
            scratch->sum[i] += scratch->row[i];
    }
    for (int i = 0; i < w->n_in; i++)
        scratch->sum[i] /= (float)from.n;
    place_floats(panels, w, row, scratch->sum, scratch);
}

float pack_mean_of_vector(const struct gguf_tensor *t, struct pack_rows from)
{
    float sum = 0;
    for (int k = 0; k < from.n; k++) {
        float x;
        blocks_decode(t->type->type, &x, t->data + row_of(from, k) * t->type->block_bytes, 1);
        sum += x;
    }
    return sum / (float)from.n;
}

static inline float uniform(struct rng *r, float spread)
{
    return (float)(int32_t)rng_u32(r) * 0x1p-31f * spread;
}

void pack_random_floats(float *out, uint64_t n, float spread, struct rng *r)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = uniform(r, spread);
}

void pack_random(void *panels, const struct matrix *w, float spread, struct rng *r,
                 const struct pack_scratch *scratch)
{
    for (int row = 0; row < w->n_out; row++) {
        pack_random_floats(scratch->row, (uint64_t)w->n_in, spread, r);
        place_floats(panels, w, row, scratch->row, scratch);
    }
}

void pack_read_row(const struct matrix *w, int row, float *out)
{
    if (storage_is_quantised(w->storage)) {
        const unsigned char *panel = math_panel(w, row);
        for (int i = 0; i < w->n_in; i++)
            out[i] =
                (float)math_quant(w, panel, row, i) * math_quant_scale(panel, row, i / QUANT_BLOCK);
        return;
    }
    const size_t first = (size_t)(row / KERNEL_LANES) * (size_t)w->n_in * KERNEL_LANES +
                         (size_t)(row % KERNEL_LANES);
    for (int i = 0; i < w->n_in; i++)
        out[i] = math_load(w->panels, w->storage, first + (size_t)i * KERNEL_LANES);
}
