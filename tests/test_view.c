/*
 * Views against a definition that is written down plainly: all rows of the source decoded, then
 * moved about as lists.
 */
#include "exchange/private.h"

#include <string.h>

#include "base/rng.h"
#include "formats/gguf.h"
#include "support.h"

#define GROUP 48 /* of VIEW_INT8: rows do not begin where groups do */

static const struct type {
    uint32_t type;
    int block, bytes; /* elements of a block, and its bytes */
} types[] = {{TENSOR_F32, 1, 4},    {TENSOR_F16, 1, 2},    {TENSOR_BF16, 1, 2},
             {TENSOR_Q8_0, 32, 34}, {TENSOR_Q4_0, 32, 18}, {VIEW_INT8, 1, 1}};
#define N_TYPES ((int)COUNT(types))

static const struct type *type_of(uint32_t type)
{
    const struct type *t = types;
    while (t->type != type)
        t++;
    return t;
}

/* Whole blocks, n elements. */
static void decode(const struct view_part *p, float *out, int n)
{
    float factor;
    if (p->type != VIEW_INT8)
        blocks_decode(p->type, out, p->data, (size_t)n);
    for (int i = 0; i < n && p->type == VIEW_INT8; i++) {
        memcpy(&factor, p->factors + i / GROUP * (int)sizeof factor, sizeof factor);
        out[i] = factor * (float)(int8_t)p->data[i];
    }
}

static struct rng dice;
static struct view_maker maker;

static void set_up(void)
{
    rng_seed(&dice, 11, 0);
}

/* The maker knows the view and its sources, too. */
static void free_sources(void)
{
    view_maker_free(&maker);
    release_all();
}

/* n blocks at an odd address, with nothing behind them that may be read. Exponents are no NaN's,
 * which none of the types has to keep. */
static const unsigned char *fill(uint32_t type, int n, int off)
{
    const int size = type_of(type)->bytes;
    unsigned char *bytes = allocated((size_t)(n * size + off)), *at = bytes + off;
    for (int i = 0; i < n * size; i++)
        at[i] = (unsigned char)rng_u32(&dice);
    for (int i = 0; i < n && type != VIEW_INT8; i++)
        at[i * size + (type == TENSOR_F32 ? 3 : 1)] &= 0xbf;
    return at;
}

static struct view_part make_part(uint32_t type, int cols, int off, int first, int rows)
{
    const int source_rows = first + rows + (first ? 3 : 0), n = source_rows * cols;
    return (struct view_part){.data = fill(type, n / type_of(type)->block, off),
                              .type = type,
                              .factors = fill(TENSOR_F32, (n + GROUP - 1) / GROUP, off),
                              .group = GROUP,
                              .source_rows = source_rows,
                              .first = first,
                              .rows = rows};
}

/* The rows of a part, to out; returns how many. */
static int define_part(const struct view_part *p, int cols, float *out)
{
    const struct row_swap s = p->swap.p ? p->swap : (struct row_swap){1, 1, p->rows};
    const int copies = p->copies ? p->copies : 1, head_rows = p->copies ? p->head_rows : p->rows;
    int *rows = allocated((size_t)p->rows * sizeof *rows), n = 0, made = 0;
    float *all = allocated((size_t)p->source_rows * (size_t)cols * sizeof *all);
    decode(p, all, p->source_rows * cols);
    for (int first = p->first; first < p->first + p->rows; first += s.p * s.q * s.m)
        for (int b = 0; b < s.q; b++)
            for (int a = 0; a < s.p; a++)
                for (int m = 0; m < s.m; m++)
                    rows[n++] = first + (a * s.q + b) * s.m + m;
    for (int first = 0; first < n; first += head_rows)
        for (int copy = 0; copy < copies; copy++)
            for (int i = 0; i < head_rows; i++)
                memcpy(&out[made++ * cols], &all[rows[first + i] * cols],
                       (size_t)cols * sizeof *out);
    return made;
}

/* What is made, in numbers; *rows of it before it is transposed. */
static float *define(const struct view *v, int *rows)
{
    const size_t room = (size_t)view_rows(v) * (size_t)v->cols;
    float *made = allocated(room * sizeof *made), *turned = allocated(room * sizeof *turned);
    *rows = 0;
    for (int i = 0; i < v->n_parts; i++)
        *rows += define_part(&v->parts[i], v->cols, made + *rows * v->cols);
    for (int r = 0; r < *rows; r++)
        for (int c = 0; c < v->cols; c++)
            turned[c * *rows + r] = made[r * v->cols + c];
    return v->transposes ? turned : made;
}

/* n bytes of what is made are those of the elements from `first` on: the same bits. */
static void compare(const struct view *v, const float *expected, size_t first, const void *data,
                    size_t bytes)
{
    const struct type *t = type_of(v->type);
    const int n = (int)bytes / t->bytes * t->block;
    float *found = allocated((size_t)n * sizeof *found);
    ck_assert(n > 0 && bytes % (size_t)t->bytes == 0);
    decode(&(struct view_part){.type = v->type, .data = data}, found, n);
    for (int i = 0; i < n; i++)
        if (memcmp(&found[i], &expected[first + (size_t)i], sizeof *found) != 0)
            ck_abort_msg("type %u from %u, cols %d, element %zu: %g, expected %g",
                         (unsigned)v->type, (unsigned)v->parts[0].type, v->cols, first + (size_t)i,
                         (double)found[i], (double)expected[first + (size_t)i]);
}

/* From the first byte to the last, and from each row on. */
static void check_view(struct view *v)
{
    int rows;
    float *expected = define(v, &rows);
    ck_assert_int_eq(view_rows(v), rows);
    const struct type *t = type_of(v->type);
    const size_t elements = (size_t)rows * (size_t)v->cols;
    const size_t row_elements = (size_t)(v->transposes ? rows : v->cols);
    const size_t row_bytes = row_elements / (size_t)t->block * (size_t)t->bytes;
    const size_t all = elements / row_elements * row_bytes;
    const void *data;
    size_t len;
    for (size_t at = 0; at < all; at += len) {
        expect_ok(view_piece(v, at, &data, &len, &err));
        ck_assert_uint_le(len, all - at);
        compare(v, expected, at / (size_t)t->bytes * (size_t)t->block, data, len);
    }
    const size_t step = v->transposes ? 32 : elements > 4096 ? 7 : 1; /* no block is cut */
    for (size_t row = 0; row < elements / row_elements; row += step) {
        expect_ok(view_piece(v, row * row_bytes, &data, &len, &err));
        ck_assert_uint_le(len, all - row * row_bytes);
        compare(v, expected, row * row_elements, data, len < row_bytes ? len : row_bytes);
    }
}

static bool is_block(uint32_t type)
{
    return type_of(type)->block > 1;
}

/* To F32, and to its own type where that loses nothing. */
static void check_types(struct view *v, bool is_plain)
{
    const uint32_t from = v->parts[0].type;
    v->maker = &maker;
    v->type = TENSOR_F32;
    check_view(v);
    v->type = from;
    if (from != VIEW_INT8 && from != TENSOR_F32 && (is_plain || !is_block(from)))
        check_view(v);
    free_sources();
}

static void one_part(uint32_t type, int cols, int off, int first)
{
    static const struct row_swap swaps[] = {{0, 0, 0}, {2, 3, 1}, {3, 2, 2}, {4, 1, 3}};
    for (int i = 0; i < 4 * 4 * 2; i++) {
        const int swap = i % 4, copies = i / 4 % 4, transposes = i / 16;
        struct view v = {.n_parts = 1, .cols = cols, .transposes = transposes != 0};
        v.parts[0] = make_part(type, cols, off, first, 24); /* a multiple of all swaps' products */
        v.parts[0].swap = swaps[swap];
        v.parts[0].copies = copies;
        v.parts[0].head_rows = copies ? 4 : 0;
        check_types(&v, !swap && copies <= 1 && !transposes);
    }
}

TEST(one_part_in_every_order, .loops = N_TYPES, .tags = ONE_THREAD, .before = set_up)
{
    static const int cols[] = {32, 64, 1, 19};
    for (int off = 0; off <= 3; off++)
        for (int first = 0; first <= 5; first += 5)
            for (int i = 0; i < (is_block(types[_i].type) ? 2 : 4); i++)
                one_part(types[_i].type, cols[i], off, first);
}

/* Q, K and V of one type or of several, K and V repeated; also plain ones before others. */
TEST(several_parts, .loops = N_TYPES, .tags = ONE_THREAD, .before = set_up)
{
    static const int copies[][VIEW_PARTS] = {{0, 0, 0}, {1, 2, 2}, {2, 0, 3}, {0, 0, 2}};
    const uint32_t first_type = types[_i].type;
    for (int k = 0; k < N_TYPES * 4 * 2; k++) {
        const int other = k / 8;
        struct view v = {
            .n_parts = VIEW_PARTS, .cols = 32, .transposes = k % 2, .type = TENSOR_F32};
        for (int i = 0; i < VIEW_PARTS; i++) {
            v.parts[i] = make_part(i == 1 ? types[other].type : first_type, 32, i, i == 2 ? 4 : 0,
                                   8 + 4 * i);
            v.parts[i].copies = copies[k / 2 % 4][i];
            v.parts[i].head_rows = 4;
        }
        v.maker = &maker;
        check_view(&v);
        v.type = first_type;
        if (other == _i && !is_block(first_type) && first_type != VIEW_INT8)
            check_view(&v);
        free_sources();
    }
}

/* More elements than are made at a time: many short rows, rows longer than a piece, and both when
 * transposed. */
TEST(more_than_one_piece, .loops = N_TYPES, .tags = ONE_THREAD, .before = set_up)
{
    static const struct {
        int rows, cols;
    } shapes[] = {{1200, 32}, {24, 1024}, {4, 20000}, {600, 96}};
    for (int i = 0; i < 8; i++) {
        struct view v = {.n_parts = 1, .cols = shapes[i / 2].cols, .transposes = i % 2};
        v.parts[0] = make_part(types[_i].type, v.cols, 1, 2, shapes[i / 2].rows);
        v.parts[0].swap = (struct row_swap){2, 2, 1};
        check_types(&v, false);
    }
}
