/*
 * Kinds of values and types of tensors: names, sizes, and what a shape takes.
 */
#include <assert.h>
#include <inttypes.h>

#include "base/checked.h"
#include "gguf/private.h"

struct kind_info {
    const char *name;
    size_t bytes; /* 0: no fixed size */
};

static const struct kind_info kinds[] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_kind_name(enum gguf_kind kind)
{
    return (unsigned)kind <= GGUF_LAST_KIND ? kinds[kind].name : "unknown";
}

size_t gguf_kind_bytes(enum gguf_kind kind)
{
    return (unsigned)kind <= GGUF_LAST_KIND ? kinds[kind].bytes : 0;
}

bool gguf_alignment_legal(uint64_t alignment)
{
    return alignment >= GGUF_ALIGNMENT_MIN && alignment <= GGUF_ALIGNMENT_MAX &&
           (alignment & (alignment - 1)) == 0;
}

/* --- tensor types -------------------------------------------------------------------------- */

/* Ordered by number. Blocks of 256 belong to the K, IQ and TQ families. */
static const struct tensor_type_info types[] = {
    {"F32", 0, 1, 4},         {"F16", 1, 1, 2},         {"Q4_0", 2, 32, 18},
    {"Q4_1", 3, 32, 20},      {"Q5_0", 6, 32, 22},      {"Q5_1", 7, 32, 24},
    {"Q8_0", 8, 32, 34},      {"Q8_1", 9, 32, 36},      {"Q2_K", 10, 256, 84},
    {"Q3_K", 11, 256, 110},   {"Q4_K", 12, 256, 144},   {"Q5_K", 13, 256, 176},
    {"Q6_K", 14, 256, 210},   {"Q8_K", 15, 256, 292},   {"IQ2_XXS", 16, 256, 66},
    {"IQ2_XS", 17, 256, 74},  {"IQ3_XXS", 18, 256, 98}, {"IQ1_S", 19, 256, 50},
    {"IQ4_NL", 20, 32, 18},   {"IQ3_S", 21, 256, 110},  {"IQ2_S", 22, 256, 82},
    {"IQ4_XS", 23, 256, 136}, {"I8", 24, 1, 1},         {"I16", 25, 1, 2},
    {"I32", 26, 1, 4},        {"I64", 27, 1, 8},        {"F64", 28, 1, 8},
    {"IQ1_M", 29, 256, 56},   {"BF16", 30, 1, 2},       {"TQ1_0", 34, 256, 54},
    {"TQ2_0", 35, 256, 66},   {"MXFP4", 39, 32, 17},    {"NVFP4", 40, 64, 36},
    {"Q1_0", 41, 128, 18},
};

#define N_TYPES (sizeof types / sizeof types[0])

/* Q4_2, Q4_3, and the layouts that were repacked for one machine, now made while loading. */
static bool type_was_removed(uint32_t type)
{
    return type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38);
}

const struct tensor_type_info *tensor_type_find(uint32_t type)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].type == type)
            return &types[i];
    return NULL;
}

/* Of ASCII only: no locale has a say in what a type is called. */
static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static bool same_name(const char *type_name, struct text name)
{
    if (strlen(type_name) != name.len)
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (upper(name.data[i]) != type_name[i])
            return false;
    return true;
}

const struct tensor_type_info *tensor_type_named(struct text name)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (same_name(types[i].name, name))
            return &types[i];
    return NULL;
}

static enum status count_elements(struct gguf_tensor *t, enum status bad, struct err *e)
{
    uint64_t n = 1;
    for (int d = 0; d < t->n_dims; d++) {
        if (t->dims[d] == 0)
            return err_set(e, bad, "dimension %d is 0, expected at least 1", d);
        if (t->dims[d] > INT64_MAX || !u64_mul(n, t->dims[d], &n) || n > INT64_MAX)
            return err_set(e, bad,
                           "dimension %d is %" PRIu64 ": the number of elements overflows, "
                           "expected a product below 2^63",
                           d, t->dims[d]);
    }
    t->n_elements = n;
    return STATUS_OK;
}

enum status gguf_tensor_measure(struct gguf_tensor *t, uint32_t type, enum status bad,
                                struct err *e)
{
    assert(t->n_dims >= 1 && t->n_dims <= GGUF_MAX_DIMS);
    t->type = tensor_type_find(type);
    if (!t->type && type_was_removed(type))
        return err_set(e, bad,
                       "type %" PRIu32 " was removed from GGUF: convert the model again with "
                       "current tools",
                       type);
    if (!t->type)
        return err_set(e, bad, "type %" PRIu32 " is unknown, expected 0 to %" PRIu32, type,
                       types[N_TYPES - 1].type);
    const enum status s = count_elements(t, bad, e);
    if (s)
        return s;
    if (t->dims[0] % t->type->block_elements != 0)
        return err_set(e, bad,
                       "dimension 0 is %" PRIu64 ", expected a multiple of %" PRIu32
                       ", the block of type %s",
                       t->dims[0], t->type->block_elements, t->type->name);
    if (!u64_mul(t->n_elements / t->type->block_elements, t->type->block_bytes, &t->n_bytes) ||
        t->n_bytes > INT64_MAX)
        return err_set(e, bad,
                       "%" PRIu64 " elements of type %s: the number of bytes overflows, "
                       "expected less than 2^63",
                       t->n_elements, t->type->name);
    return STATUS_OK;
}

uint32_t gguf_file_type(uint32_t type)
{
    switch (type) {
    case TENSOR_F16:
        return 1;
    case TENSOR_Q4_0:
        return 2;
    case TENSOR_Q8_0:
        return 7;
    case TENSOR_BF16:
        return 32;
    default:
        return 0;
    }
}
