#include <assert.h>
#include <stdlib.h>

#include "exchange/private.h"
#include "formats/gguf.h"

/* Elements made at a time, unless a row has more; and columns, so that no block is cut. */
#define ELEMENTS_AT_A_TIME 16384
#define COLUMNS_AT_A_TIME  32

void view_maker_free(struct view_maker *m)
{
    free(m->numbers);
    *m = (struct view_maker){0};
}

static int part_rows(const struct view_part *p)
{
    return p->copies > 1 ? p->rows * p->copies : p->rows;
}

int view_rows(const struct view *v)
{
    int rows = 0;
    for (int i = 0; i < v->n_parts; i++)
        rows += part_rows(&v->parts[i]);
    return rows;
}

/* The part that has a row, whose number becomes that in the part. */
static const struct view_part *part_of_row(const struct view *v, int *row)
{
    const struct view_part *p = v->parts;
    while (*row >= part_rows(p))
        *row -= part_rows(p++);
    assert(p < v->parts + v->n_parts);
    return p;
}

static uint64_t bytes_of(uint32_t type, uint64_t elements)
{
    return tensor_type_bytes(tensor_type_find(type), elements);
}

/* Columns [from, from + n) of a row. */
static void decode_row(const struct view *v, int row, int from, int n, float *out)
{
    int r = row;
    const struct view_part *p = part_of_row(v, &r);
    const struct row_swap *s = &p->swap;
    if (p->copies > 1)
        r = r / (p->head_rows * p->copies) * p->head_rows + r % p->head_rows;
    if (s->p) { /* row [n][a][b][inner] is row [n][b][a][inner] of the source */
        const int inner = r % s->m, b = r / s->m % s->p, a = r / s->m / s->p % s->q;
        r = ((r / s->m / s->p / s->q * s->p + b) * s->q + a) * s->m + inner;
    }
    const uint64_t first = (p->first + r) * (uint64_t)v->cols + from;
    if (p->type != VIEW_INT8) {
        blocks_decode(p->type, out, p->data + bytes_of(p->type, first), n);
        return;
    }
    for (int i = 0; i < n; i++) {
        const uint64_t at = first + i;
        float factor;
        blocks_decode(TENSOR_F32, &factor, p->factors + at / p->group * sizeof factor, 1);
        out[i] = (float)(signed char)p->data[at] * factor;
    }
}

enum status view_piece(void *view, uint64_t offset, const void **data, size_t *len, struct err *e)
{
    const struct view *v = view;
    struct view_maker *m = v->maker;
    /* What another view was made of is not read again. */
    for (int i = 0; m->last && m->last != v && i < m->last->n_parts; i++) {
        const struct view_part *p = &m->last->parts[i];
        const uint64_t n = p->source_rows * (uint64_t)m->last->cols;
        if (p->file)
            file_map_release(p->file, p->data, p->type == VIEW_INT8 ? n : bytes_of(p->type, n));
    }
    m->last = v;
    const int made_cols = v->transposes ? view_rows(v) : v->cols;
    const int made_rows = v->transposes ? v->cols : view_rows(v);
    const uint64_t row_bytes = bytes_of(v->type, made_cols);
    const int row = offset / row_bytes;
    int in_part = row;
    const struct view_part *p = v->transposes ? v->parts : part_of_row(v, &in_part);
    if (p->type == v->type && !v->transposes && !p->swap.p && p->copies <= 1) {
        /* Rows are in the source as they are wanted: what is left of them. */
        const uint64_t skip = offset % row_bytes;
        *data = p->data + (p->first + in_part) * row_bytes + skip;
        *len = (p->rows - in_part) * row_bytes - skip;
        return STATUS_OK;
    }
    assert(offset % row_bytes == 0);
    int n = ELEMENTS_AT_A_TIME / made_cols / COLUMNS_AT_A_TIME * COLUMNS_AT_A_TIME;
    if (n < COLUMNS_AT_A_TIME)
        n = v->transposes ? COLUMNS_AT_A_TIME : 1;
    if (n > made_rows - row)
        n = made_rows - row;
    const size_t elements = n * (size_t)made_cols;
    if (elements > m->cap) {
        free(m->numbers);
        m->cap = 0;
        m->numbers = malloc(3 * elements * sizeof *m->numbers);
        if (!m->numbers)
            return err_no_memory(e, "rows of a tensor", 3 * elements * sizeof *m->numbers);
        m->cap = elements;
    }
    float *span = m->numbers + m->cap, *bytes = span + m->cap;
    for (int r = 0; r < n && !v->transposes; r++)
        decode_row(v, row + r, 0, v->cols, m->numbers + r * (size_t)v->cols);
    for (int r = 0; r < made_cols && v->transposes; r++) { /* columns become rows */
        decode_row(v, r, row, n, span);
        for (int i = 0; i < n; i++)
            m->numbers[i * (size_t)made_cols + r] = span[i];
    }
    blocks_encode(v->type, bytes, m->numbers, elements);
    *data = bytes;
    *len = bytes_of(v->type, elements);
    return STATUS_OK;
}
