#include "model/pack.h"

#include <stdio.h>

#include "compute/kernels_math.h"
#include "formats/blocks.h"
#include "formats/gguf_values.h"

/* By enum storage. */
static const enum tensor_type tensor_types[STORAGE_COUNT] = {
    [STORAGE_F32] = TENSOR_F32,   [STORAGE_F16] = TENSOR_F16,   [STORAGE_BF16] = TENSOR_BF16,
    [STORAGE_Q8_0] = TENSOR_Q8_0, [STORAGE_Q4_0] = TENSOR_Q4_0,
};

/* A block in a file: a binary16 scale, then the elements. */
#define SCALE_BYTES sizeof(uint16_t)

bool pack_storage(uint32_t type, enum storage *out)
{
    for (enum storage s = 0; s < STORAGE_COUNT; s++)
        if (tensor_types[s] == blocks_in_memory(type)) {
            *out = s;
            return true;
        }
    return false;
}

uint32_t pack_type(enum storage s)
{
    return tensor_types[s];
}

enum storage pack_common_storage(const struct gguf_tensor *const *tensors, int n)
{
    enum storage common = STORAGE_F32;
    bool same = true, f16_holds = true;
    for (int i = 0; i < n; i++) {
        enum storage own = STORAGE_F32;
        pack_storage(tensors[i]->type->type, &own);
        same &= i == 0 || own == common;
        f16_holds &= own == STORAGE_F16 || !blocks_runs(tensors[i]->type->type);
        common = i == 0 ? own : common;
    }
    return same ? common : f16_holds ? STORAGE_F16 : STORAGE_F32;
}

struct shape_text pack_shape_text(int n_dims, const uint64_t *dims)
{
    struct shape_text shape = {""};
    size_t used = 0;
    for (int i = 0; i < n_dims; i++)
        used += snprintf(shape.text + used, sizeof shape.text - used, "%s%llu", i ? " x " : "",
                         (unsigned long long)dims[i]);
    return shape;
}

enum status pack_find(const struct gguf *g, const struct tensor_spec *spec,
                      const struct gguf_tensor **out, struct err *e)
{
    const char *name = spec->name.text;
    const struct spec_dims dims = spec_dims(spec);
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    enum storage storage;
    *out = t;
    if (!t && spec->flags & SPEC_REQUIRED)
        return err_bad_file(e, "tensor %s: missing", name);
    /* Trailing dimensions of 1 do not matter. */
    if (t)
        for (int i = 0; i < GGUF_MAX_DIMS; i++) {
            if (t->dims[i] != (i < SPEC_DIMS ? dims.n[i] : 1))
                return err_bad_file(e, "tensor %s: expected shape %s, found %s", name,
                                    pack_shape_text(spec->n_dims, dims.n).text,
                                    pack_shape_text(t->n_dims, t->dims).text);
        }
    if (t && !pack_storage(t->type->type, &storage))
        return err_bad_file(e, "tensor %s: expected type " BLOCKS_READ ", found %s", name,
                            t->type->name);
    if (t && spec->n_dims == 1 && t->type->block_elements > 1)
        return err_bad_file(e, "tensor %s: expected type F32, F16 or BF16, found %s", name,
                            t->type->name);
    return STATUS_OK;
}

void pack_floats(float *out, const struct gguf_tensor *t, const struct tensor_spec *spec)
{
    if (spec->halves.n == 0 || spec->n_dims > 1) {
        blocks_decode(t->type->type, out, t->data, t->n_elements);
        return;
    }
    for (uint64_t i = 0; i < t->n_elements; i++) /* of vectors every element is a block */
        blocks_decode(t->type->type, &out[i],
                      t->data + spec_file_row(spec, i) * t->type->block_bytes, 1);
}

/* --- from the file's layout to the panels' ---------------------------------------------------- */

/* Up to KERNEL_LANES rows for one panel. Panels are a transposition, so rows go in together, one
 * cache line of the target after the other. */
struct panel_rows {
    const unsigned char *at[KERNEL_LANES];
    int n;
};

/* Places n elements of so many bytes, a constant wherever this is called, so many elements apart.
 */
static inline void transpose_rows(unsigned char *out, size_t apart, const struct panel_rows *rows,
                                  int n, size_t element)
{
    for (int i = 0; i < n; i++, out += apart * element)
        for (int lane = 0; lane < rows->n; lane++)
            memcpy(out + lane * element, rows->at[lane] + i * element, element);
}

/* Places n blocks of `element_bytes` bytes of elements after their scale, at these places in a
 * panel; `flip` turns words of signed elements into words of elements with an offset. */
static void transpose_blocks(uint16_t *scales, uint32_t *out, const struct panel_rows *rows, int n,
                             size_t element_bytes, uint32_t flip)
{
    for (int block = 0; block < n; block++, scales += KERNEL_LANES) {
        size_t in = block * (SCALE_BYTES + element_bytes);
        for (int lane = 0; lane < rows->n; lane++)
            memcpy(&scales[lane], rows->at[lane] + in, SCALE_BYTES);
        in += SCALE_BYTES;
        for (size_t at = 0; at < element_bytes; at += sizeof *out, out += KERNEL_LANES) {
            for (int lane = 0; lane < rows->n; lane++) {
                memcpy(&out[lane], rows->at[lane] + in + at, sizeof *out);
                out[lane] ^= flip;
            }
        }
    }
}

/* Places n elements, from column `first` on, which begins a block, of rows from `row` on, all of
 * one panel, from their bytes in a file of w's type. */
static void place(void *panels, const struct matrix *w, int row, int first, int n,
                  const struct panel_rows *rows)
{
    const size_t lane = row % KERNEL_LANES, block = storage_block_bytes(w->storage);
    const int panel = row / KERNEL_LANES;
    unsigned char *out = panels;
    if (storage_is_quantised(w->storage)) {
        const size_t at = (size_t)first / QUANT_BLOCK * KERNEL_LANES;
        out += panel * matrix_panel_bytes(w->n_in, w->storage);
        uint32_t *elements = (uint32_t *)(void *)(out + matrix_scales_bytes(w->n_in) + at * block);
        transpose_blocks((uint16_t *)(void *)out + at + lane, elements + lane, rows,
                         n / QUANT_BLOCK, block, w->storage == STORAGE_Q8_0 ? 0x80808080u : 0);
        return;
    }
    const struct panel_place place = matrix_place(w->n_out, w->n_in, panel);
    const size_t at = place.first + first * place.column + lane;
    if (w->storage == STORAGE_F32)
        transpose_rows(out + at * 4, place.column, rows, n, 4);
    else
        transpose_rows(out + at * 2, place.column, rows, n, 2);
}

/* Elements of a row on their way: whole blocks of every type. */
#define PIECE 1024

/* Places n floats of one row in w's storage. */
static void place_floats(void *panels, const struct matrix *w, int row, int first, int n,
                         const float *x)
{
    unsigned char encoded[PIECE * sizeof *x];
    blocks_encode(tensor_types[w->storage], encoded, x, n);
    place(panels, w, row, first, n, &(struct panel_rows){{encoded}, 1});
}

/* --- tensors ---------------------------------------------------------------------------------- */

static const unsigned char *row_data(const struct gguf_tensor *t, uint64_t row)
{
    return t->data + row * (t->n_bytes / (t->n_elements / t->dims[0]));
}

void pack_rows(void *panels, const struct matrix *w, int first, const struct gguf_tensor *t,
               const struct tensor_spec *spec, int begin, int end)
{
    if (t->type->type == pack_type(w->storage)) {
        for (int row = begin; row < end;) {
            struct panel_rows rows = {
                .n = MIN(end - row, KERNEL_LANES - (first + row) % KERNEL_LANES)};
            for (int i = 0; i < rows.n; i++)
                rows.at[i] = row_data(t, spec_file_row(spec, row + i));
            place(panels, w, first + row, 0, w->n_in, &rows);
            row += rows.n;
        }
        return;
    }
    for (int row = begin; row < end; row++) {
        const unsigned char *data = row_data(t, spec_file_row(spec, row));
        for (int at = 0; at < w->n_in; at += PIECE) {
            float piece[PIECE];
            const int n = MIN(w->n_in - at, PIECE);
            blocks_decode(t->type->type, piece, data + tensor_type_bytes(t->type, at), n);
            place_floats(panels, w, first + row, at, n, piece);
        }
    }
}

#define RANDOM_SPREAD 0.04f

void pack_random_floats(float *out, uint64_t n, struct rng *r)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = (float)(int32_t)rng_u32(r) * 0x1p-31f * RANDOM_SPREAD;
}

void pack_random(void *panels, const struct matrix *w, struct rng *r)
{
    for (int row = 0; row < w->n_out; row++)
        for (int at = 0; at < w->n_in; at += PIECE) {
            float piece[PIECE];
            const int n = MIN(w->n_in - at, PIECE);
            pack_random_floats(piece, n, r);
            place_floats(panels, w, row, at, n, piece);
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
    const struct panel_place at = matrix_place(w->n_out, w->n_in, row / KERNEL_LANES);
    for (int i = 0; i < w->n_in; i++)
        out[i] = math_load(w->panels, w->storage, at.first + i * at.column + row % KERNEL_LANES);
}
