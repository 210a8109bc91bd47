/*
 * Kinds of metadata values; sizes of tensors; keys and tensors of a parsed GGUF file by name, and
 * typed access.
 */
#include "formats/gguf_values.h"

#include <inttypes.h>

#include "base/half.h"
#include "base/mem.h"
#include "formats/gguf_private.h"

/* --- kinds --------------------------------------------------------------------------------- */

/* Sets of kinds. */
enum family { UNSIGNED = 1, SIGNED = 2, INTEGER = 3, FLOAT = 4, BOOL = 8, STRING = 16, ARRAY = 32 };

static const struct kind_info {
    const char *name;
    size_t bytes; /* 0: no fixed size */
    enum family family;
} kinds[] = {
    /* by enum gguf_kind */
    {"u8", 1, UNSIGNED},   {"i8", 1, SIGNED},   {"u16", 2, UNSIGNED}, {"i16", 2, SIGNED},
    {"u32", 4, UNSIGNED},  {"i32", 4, SIGNED},  {"f32", 4, FLOAT},    {"bool", 1, BOOL},
    {"string", 0, STRING}, {"array", 0, ARRAY}, {"u64", 8, UNSIGNED}, {"i64", 8, SIGNED},
    {"f64", 8, FLOAT},     {"unknown", 0, 0},
};

static const struct kind_info *kind_of(enum gguf_kind kind)
{
    return &kinds[(unsigned)kind <= GGUF_LAST_KIND ? kind : GGUF_LAST_KIND + 1];
}

const char *gguf_kind_name(enum gguf_kind kind)
{
    return kind_of(kind)->name;
}

size_t gguf_kind_bytes(enum gguf_kind kind)
{
    return kind_of(kind)->bytes;
}

bool gguf_is_integer(enum gguf_kind kind)
{
    return kind_of(kind)->family & INTEGER;
}

/* --- sizes of tensors --------------------------------------------------------------------- */

enum status gguf_tensor_measure(struct gguf_tensor *t, uint32_t type, struct err *e)
{
    assert(t->n_dims >= 1 && t->n_dims <= GGUF_MAX_DIMS);
    t->type = tensor_type_find(type);
    if (!t->type)
        return err_bad_file(
            e,
            "type %" PRIu32
            " is unknown or was removed from GGUF: convert the model again with current tools",
            type);
    t->n_elements = 1;
    for (int d = 0; d < t->n_dims; d++) {
        if (t->dims[d] == 0)
            return err_bad_file(e, "dimension %d is 0, expected at least 1", d);
        t->n_elements = u64_product(t->n_elements, t->dims[d]);
    }
    if (t->dims[0] % t->type->block_elements != 0)
        return err_bad_file(e,
                            "dimension 0 is %" PRIu64 ", expected a multiple of %" PRIu32
                            ", the block of type %s",
                            t->dims[0], t->type->block_elements, t->type->name);
    t->n_bytes = u64_product(t->n_elements / t->type->block_elements, t->type->block_bytes);
    if (t->n_elements > INT64_MAX || t->n_bytes > INT64_MAX)
        return err_bad_file(e, "its shape overflows, expected less than 2^63 elements and bytes");
    return STATUS_OK;
}

/* --- elements ------------------------------------------------------------------------------ */

/* Returns element i extended to 64 bits by its sign; sets *kind. */
static uint64_t bits_at(const struct gguf_value *v, uint64_t i, const struct kind_info **kind)
{
    const struct kind_info *k = *kind = kind_of(v->kind == GGUF_ARRAY ? v->element_kind : v->kind);
    assert(k->bytes && i < v->count && v->bytes.len / k->bytes > i);
    const uint64_t bits = little_load(v->bytes.data + i * k->bytes, k->bytes);
    const uint64_t sign = (uint64_t)1 << (8 * k->bytes - 1);
    return k->family == SIGNED ? (bits ^ sign) - sign : bits;
}

int64_t gguf_int_at(const struct gguf_value *v, uint64_t i)
{
    const struct kind_info *kind;
    const uint64_t bits = bits_at(v, i, &kind);
    assert(kind->family != FLOAT);
    return kind->family != SIGNED && bits > INT64_MAX ? INT64_MAX : bits;
}

double gguf_float_at(const struct gguf_value *v, uint64_t i)
{
    const struct kind_info *kind;
    const uint64_t bits = bits_at(v, i, &kind);
    if (kind->family == SIGNED)
        return (int64_t)bits;
    if (kind->family != FLOAT)
        return bits;
    float f32;
    double f64;
    memcpy(&f32, &bits, sizeof f32); /* of little-endian bits the first */
    memcpy(&f64, &bits, sizeof f64);
    return kind->bytes == sizeof f32 ? (double)f32 : f64;
}

bool gguf_next_text(const struct gguf_value *array, struct gguf_cursor *c, struct text *out)
{
    if (array->kind != GGUF_ARRAY || array->element_kind != GGUF_STRING || c->i == array->count)
        return false;
    const char *at = array->bytes.data + c->offset;
    *out = (struct text){at + 8, (size_t)little_load(at, 8)};
    c->i++;
    c->offset += 8 + out->len; /* gguf_parse has seen that they are all there */
    assert(c->offset <= array->bytes.len);
    return true;
}

/* --- lookups ------------------------------------------------------------------------------- */

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    const struct indexed *found = name_index_find(&g->by_key, text_of(key));
    return found ? &g->pairs[found->id].value : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    const struct indexed *found = name_index_find(&g->by_name, text_of(name));
    return found ? &g->tensors[found->id] : NULL;
}

/* A key, and what its value must be. */
struct lookup {
    const struct gguf *gguf;
    const char *key;
    enum family family;
    const char *expected;        /* what messages call it */
    enum gguf_kind element_kind; /* of an array */
};

/* Sets *v to the value; to NULL on failure, and if the key is missing and may be. */
static enum status look_up(struct lookup l, const struct gguf_value **v, bool *found, struct err *e)
{
    const struct gguf_value *value = gguf_find(l.gguf, l.key);
    *v = NULL;
    if (found)
        *found = value != NULL;
    if (!value)
        return found ? STATUS_OK
                     : err_bad_file(e, "key \"%s\" is missing, expected %s", l.key, l.expected);
    const bool is_array = value->kind == GGUF_ARRAY;
    if (!(kind_of(value->kind)->family & l.family) ||
        (is_array && value->element_kind != l.element_kind))
        return err_bad_file(e, "key \"%s\": expected %s, found %s%s", l.key, l.expected,
                            is_array ? "an array of " : "",
                            gguf_kind_name(is_array ? value->element_kind : value->kind));
    *v = value;
    return STATUS_OK;
}

enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max,
                         uint64_t *out, bool *found, struct err *e)
{
    const struct gguf_value *v;
    assert(min <= max);
    TRY(look_up((struct lookup){g, key, INTEGER, "an integer", 0}, &v, found, e));
    if (!v)
        return STATUS_OK;
    const struct kind_info *kind;
    const uint64_t x = bits_at(v, 0, &kind);
    const bool negative = kind->family == SIGNED && x >> 63;
    if (negative || x < min || x > max)
        return err_bad_file(e, "key \"%s\": expected %" PRIu64 " to %" PRIu64 ", found %s%" PRIu64,
                            key, min, max, negative ? "-" : "", negative ? -x : x);
    *out = x;
    return STATUS_OK;
}

enum status gguf_get_f64(const struct gguf *g, const char *key, double *out, bool *found,
                         struct err *e)
{
    const struct gguf_value *v;
    TRY(look_up((struct lookup){g, key, FLOAT, "f32 or f64", 0}, &v, found, e));
    if (v)
        *out = gguf_float_at(v, 0);
    return STATUS_OK;
}

enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, bool *found,
                          struct err *e)
{
    const struct gguf_value *v;
    TRY(look_up((struct lookup){g, key, BOOL, "bool", 0}, &v, found, e));
    if (v)
        *out = v->bytes.data[0] != 0;
    return STATUS_OK;
}

enum status gguf_get_text(const struct gguf *g, const char *key, struct text *out, bool *found,
                          struct err *e)
{
    const struct gguf_value *v;
    TRY(look_up((struct lookup){g, key, STRING, "string", 0}, &v, found, e));
    if (v)
        *out = v->bytes;
    return STATUS_OK;
}

enum status gguf_get_array(const struct gguf *g, const char *key, enum gguf_kind element_kind,
                           const struct gguf_value **out, bool *found, struct err *e)
{
    char name[40];
    assert((unsigned)element_kind <= GGUF_LAST_KIND && element_kind != GGUF_ARRAY);
    chars_printf(name, "an array of %s", gguf_kind_name(element_kind));
    return look_up((struct lookup){g, key, ARRAY, name, element_kind}, out, found, e);
}
