/*
 * Views against a definition that is written down plainly: all rows of the source decoded, then
 * moved about as lists.
 */
#include "exchange/private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "support.h"

/* --- allocations that fail ------------------------------------------------------------------- */

static bool armed; /* Check allocates too */
static int allocations, fails_at = -1;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

void *__wrap_malloc(size_t n)
{
    return armed && allocations++ == fails_at ? NULL : __real_malloc(n);
}

/* --- elements -------------------------------------------------------------------------------- */

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

static unsigned half_bits(const unsigned char *at)
{
    return at[0] | (unsigned)at[1] << 8;
}

static float bits_to_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float half_value(unsigned bits)
{
    const int exponent = (int)(bits >> 10 & 31);
    const int fraction = (int)(bits & 1023);
    const double size = exponent == 0    ? ldexp(fraction, -24)
                        : exponent == 31 ? (double)INFINITY
                                         : ldexp(1024 + fraction, exponent - 25);
    return (float)(bits >> 15 ? -size : size);
}

static float element(uint32_t type, const unsigned char *data, const unsigned char *factors,
                     size_t i)
{
    float x;
    const struct type *t = type_of(type);
    const unsigned char *block = data + i / (size_t)t->block * (size_t)t->bytes;
    const size_t in = i % (size_t)t->block;
    switch (type) {
    case TENSOR_F32:
        memcpy(&x, block, sizeof x);
        return x;
    case TENSOR_F16:
        return half_value(half_bits(block));
    case TENSOR_BF16:
        return bits_to_float((uint32_t)half_bits(block) << 16);
    case TENSOR_Q8_0:
        return half_value(half_bits(block)) * (float)(int8_t)block[2 + in];
    case TENSOR_Q4_0:
        return half_value(half_bits(block)) *
               (float)((in < 16 ? block[2 + in] & 15 : block[2 + in - 16] >> 4) - 8);
    default:
        memcpy(&x, factors + i / GROUP * sizeof x, sizeof x);
        return x * (float)(int8_t)*block;
    }
}

/* --- sources --------------------------------------------------------------------------------- */

/* A matrix at an odd address, with nothing behind it that may be read. */
struct source {
    unsigned char *bytes, *factors;
    int off;
};

static struct rng dice;
static struct view_maker maker;

static unsigned char *fill(size_t n, int off)
{
    unsigned char *bytes = malloc(n + (size_t)off);
    for (size_t i = 0; i < n; i++)
        bytes[(size_t)off + i] = (unsigned char)rng_u32(&dice);
    return bytes;
}

/* Exponents that are no NaN's, which none of the types has to keep. */
static void tame(uint32_t type, unsigned char *data, size_t n_blocks)
{
    const size_t step = (size_t)type_of(type)->bytes;
    for (size_t i = 0; i < n_blocks; i++, data += step)
        if (type == TENSOR_F32)
            data[3] &= 0xbf;
        else if (type != VIEW_INT8)
            data[1] &= 0xbf;
}

static struct source make_source(uint32_t type, size_t elements, int off)
{
    struct source s = {.off = off};
    const struct type *t = type_of(type);
    const size_t blocks = elements / (size_t)t->block, groups = (elements + GROUP - 1) / GROUP;
    s.bytes = fill(blocks * (size_t)t->bytes, off);
    tame(type, s.bytes + off, blocks);
    s.factors = fill(groups * sizeof(float), off);
    tame(TENSOR_F32, s.factors + off, groups);
    return s;
}

/* --- the definition -------------------------------------------------------------------------- */

#define MAX_ROWS 4096

struct list {
    int rows[MAX_ROWS], n;
};

static void push(struct list *l, int row)
{
    if (l->n == MAX_ROWS)
        ck_abort_msg("more than %d rows", MAX_ROWS);
    l->rows[l->n++] = row;
}

static struct list swapped(const struct list *l, struct row_swap s)
{
    struct list out = {.n = 0};
    if (!s.p)
        return *l;
    for (int first = 0; first < l->n; first += s.p * s.q * s.m)
        for (int q = 0; q < s.q; q++)
            for (int p = 0; p < s.p; p++)
                for (int m = 0; m < s.m; m++)
                    push(&out, l->rows[first + (p * s.q + q) * s.m + m]);
    return out;
}

static struct list copied(const struct list *l, int head_rows, int copies)
{
    struct list out = {.n = 0};
    if (!copies)
        return *l;
    for (int first = 0; first < l->n; first += head_rows)
        for (int copy = 0; copy < copies; copy++)
            for (int i = 0; i < head_rows; i++)
                push(&out, l->rows[first + i]);
    return out;
}

/* The rows of a part, to out; returns how many. */
static int define_part(const struct view_part *p, int cols, float *out)
{
    struct list rows = {.n = 0};
    for (int r = 0; r < p->rows; r++)
        push(&rows, p->first + r);
    rows = swapped(&rows, p->swap);
    rows = copied(&rows, p->head_rows, p->copies);
    for (int r = 0; r < rows.n; r++)
        for (int c = 0; c < cols; c++) {
            const int at = rows.rows[r] * cols + c;
            *out++ = element(p->type, p->data, p->factors, (size_t)at);
        }
    return rows.n;
}

/* What is made, in numbers; *rows of it before it is transposed. */
static float *define(const struct view *v, int *rows)
{
    int room = 0;
    for (int i = 0; i < v->n_parts; i++)
        room += v->parts[i].rows * (v->parts[i].copies + 1);
    float *made = malloc((size_t)room * (size_t)v->cols * sizeof *made);
    *rows = 0;
    for (int i = 0; i < v->n_parts; i++)
        *rows += define_part(&v->parts[i], v->cols, made + *rows * v->cols);
    if (!v->transposes)
        return made;
    float *turned = malloc((size_t)*rows * (size_t)v->cols * sizeof *turned);
    for (int r = 0; r < *rows; r++)
        for (int c = 0; c < v->cols; c++)
            turned[c * *rows + r] = made[r * v->cols + c];
    free(made);
    return turned;
}

/* --- comparison ------------------------------------------------------------------------------ */

/* n bytes of what is made are those of the elements from `first` on: the same bits. */
static void compare(const struct view *v, const float *expected, size_t first, const void *data,
                    size_t bytes)
{
    const struct type *t = type_of(v->type);
    ck_assert(bytes > 0 && bytes % (size_t)t->bytes == 0);
    for (size_t i = 0; i < bytes / (size_t)t->bytes * (size_t)t->block; i++) {
        const float found = element(v->type, data, NULL, i);
        if (memcmp(&found, &expected[first + i], sizeof found) != 0)
            ck_abort_msg("type %u from %u, cols %d, element %zu: %g, expected %g",
                         (unsigned)v->type, (unsigned)v->parts[0].type, v->cols, first + i,
                         (double)found, (double)expected[first + i]);
    }
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
    free(expected);
}

/* --- tests ----------------------------------------------------------------------------------- */

static const struct row_swap swaps[] = {{0, 0, 0}, {2, 3, 1}, {3, 2, 2}, {4, 1, 3}};
#define N_SWAPS 4
#define ROWS    24 /* a multiple of all their products */

struct source_list {
    struct source list[VIEW_PARTS];
    int n;
};

static struct view_part make_part(struct source_list *l, uint32_t type, int cols, int off,
                                  int first, int rows)
{
    const int source_rows = first + rows + (first ? 3 : 0);
    struct source *s = &l->list[l->n++];
    *s = make_source(type, (size_t)source_rows * (size_t)cols, off);
    return (struct view_part){.data = s->bytes + off,
                              .type = type,
                              .factors = s->factors + off,
                              .group = GROUP,
                              .source_rows = source_rows,
                              .first = first,
                              .rows = rows};
}

/* And what was made of them: the maker knows the view. */
static void free_sources(struct source_list *l)
{
    view_maker_free(&maker);
    for (int i = 0; i < l->n; i++) {
        free(l->list[i].bytes);
        free(l->list[i].factors);
    }
    l->n = 0;
}

static bool is_block(uint32_t type)
{
    return type == TENSOR_Q8_0 || type == TENSOR_Q4_0;
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
}

static void one_part(uint32_t type, int cols, int off, int first)
{
    for (int swap = 0; swap < N_SWAPS; swap++)
        for (int copies = 0; copies <= 3; copies++)
            for (int transposes = 0; transposes <= 1; transposes++) {
                struct source_list l = {.n = 0};
                struct view v = {.n_parts = 1, .cols = cols, .transposes = transposes != 0};
                v.parts[0] = make_part(&l, type, cols, off, first, ROWS);
                v.parts[0].swap = swaps[swap];
                v.parts[0].copies = copies;
                v.parts[0].head_rows = copies ? 4 : 0;
                check_types(&v, !swap && copies <= 1 && !transposes);
                free_sources(&l);
            }
}

static void set_up(void)
{
    rng_seed(&dice, 11, 0);
}

TEST(one_part_in_every_order, .loops = N_TYPES, .tags = ONE_THREAD, .before = set_up)
{
    const uint32_t type = types[_i].type;
    for (int off = 0; off <= 3; off++)
        for (int first = 0; first <= 5; first += 5) {
            one_part(type, 32, off, first);
            one_part(type, 64, off, first);
            if (!is_block(type)) {
                one_part(type, 1, off, first);
                one_part(type, 19, off, first);
            }
        }
}

/* Q, K and V of one type or of several, K and V repeated; also plain ones before others. */
TEST(several_parts, .loops = N_TYPES, .tags = ONE_THREAD, .before = set_up)
{
    static const int copies[][VIEW_PARTS] = {{0, 0, 0}, {1, 2, 2}, {2, 0, 3}, {0, 0, 2}};
    const uint32_t first_type = types[_i].type;
    for (int other = 0; other < N_TYPES; other++)
        for (int c = 0; c < 4; c++)
            for (int transposes = 0; transposes <= 1; transposes++) {
                struct source_list l = {.n = 0};
                struct view v = {.n_parts = VIEW_PARTS, .cols = 32, .maker = &maker};
                v.transposes = transposes != 0;
                for (int i = 0; i < VIEW_PARTS; i++) {
                    const uint32_t type = i == 1 ? types[other].type : first_type;
                    v.parts[i] = make_part(&l, type, 32, i, i == 2 ? 4 : 0, 8 + 4 * i);
                    v.parts[i].copies = copies[c][i];
                    v.parts[i].head_rows = 4;
                }
                v.type = TENSOR_F32;
                check_view(&v);
                v.type = first_type;
                if (other == _i && !is_block(first_type) && first_type != VIEW_INT8)
                    check_view(&v);
                free_sources(&l);
            }
}

/* More elements than are made at a time: many short rows, rows longer than a piece, and both when
 * transposed. */
TEST(more_than_one_piece, .loops = N_TYPES, .tags = ONE_THREAD, .before = set_up)
{
    static const struct {
        int rows, cols;
    } shapes[] = {{1200, 32}, {24, 1024}, {4, 20000}, {600, 96}};
    const uint32_t type = types[_i].type;
    for (int i = 0; i < 4; i++)
        for (int transposes = 0; transposes <= 1; transposes++) {
            struct source_list l = {.n = 0};
            struct view v = {.n_parts = 1, .cols = shapes[i].cols, .transposes = transposes != 0};
            v.parts[0] = make_part(&l, type, v.cols, 1, 2, shapes[i].rows);
            v.parts[0].swap = (struct row_swap){2, 2, 1};
            check_types(&v, false);
            free_sources(&l);
        }
}

TEST(memory_that_is_not_there, .tags = ONE_THREAD, .before = set_up)
{
    struct source_list l = {.n = 0};
    struct view_maker own = {0};
    struct view v = {.n_parts = 1, .cols = 32, .type = TENSOR_F32, .maker = &own};
    v.parts[0] = make_part(&l, TENSOR_F16, 32, 0, 0, 8);
    const void *data;
    size_t len;
    int failures = 0;
    enum status s = STATUS_NO_MEMORY;
    for (fails_at = 0; s != STATUS_OK; fails_at++) {
        allocations = 0;
        armed = true;
        s = view_piece(&v, 0, &data, &len, &err);
        armed = false;
        if (s != STATUS_OK) {
            expect_status(s, STATUS_NO_MEMORY, "memory");
            failures++;
        }
    }
    ck_assert_int_eq(failures, 1);
    check_view(&v);
    view_maker_free(&own);
    view_maker_free(&own);
    free_sources(&l);
}
