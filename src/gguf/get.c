/*
 * Typed access to the values of a parsed GGUF file.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gguf/private.h"

/* --- single values ------------------------------------------------------------------------- */

bool gguf_is_integer(enum gguf_kind kind)
{
    switch (kind) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_U16:
    case GGUF_I16:
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_U64:
    case GGUF_I64:
        return true;
    default:
        return false;
    }
}

static bool is_signed(enum gguf_kind kind)
{
    return kind == GGUF_I8 || kind == GGUF_I16 || kind == GGUF_I32 || kind == GGUF_I64;
}

/* Element i as 64 bits: sign-extended if its kind is signed. */
static uint64_t bits_at(const struct gguf_value *v, uint64_t i)
{
    const enum gguf_kind kind = v->kind == GGUF_ARRAY ? v->element_kind : v->kind;
    const size_t bytes = gguf_kind_bytes(kind);
    assert(bytes && i < v->count && v->bytes.len / bytes > i);
    const uint64_t raw = little_load(v->bytes.data + i * bytes, bytes);
    const unsigned unused = 64 - 8 * (unsigned)bytes;
    if (!is_signed(kind) || !(raw >> (63 - unused) & 1))
        return raw;
    return raw | ~(UINT64_MAX >> unused);
}

static double float_of_bits(enum gguf_kind kind, uint64_t bits)
{
    if (kind == GGUF_F64) {
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return (double)value;
}

/* Two's complement, without the conversion that C leaves to the implementation. */
static int64_t signed_of_bits(uint64_t bits)
{
    int64_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounds towards zero; what does not fit becomes the nearest that does, NaN becomes 0. */
static int64_t int_of_float(double value)
{
    if (value >= 0x1p63)
        return INT64_MAX;
    if (value < -0x1p63)
        return INT64_MIN;
    return value == value ? (int64_t)value : 0;
}

int64_t gguf_int_at(const struct gguf_value *v, uint64_t i)
{
    const enum gguf_kind kind = v->kind == GGUF_ARRAY ? v->element_kind : v->kind;
    const uint64_t bits = bits_at(v, i);
    if (kind == GGUF_F32 || kind == GGUF_F64)
        return int_of_float(float_of_bits(kind, bits));
    if (kind == GGUF_U64 && bits > INT64_MAX)
        return INT64_MAX;
    return signed_of_bits(bits);
}

double gguf_float_at(const struct gguf_value *v, uint64_t i)
{
    const enum gguf_kind kind = v->kind == GGUF_ARRAY ? v->element_kind : v->kind;
    const uint64_t bits = bits_at(v, i);
    if (kind == GGUF_F32 || kind == GGUF_F64)
        return float_of_bits(kind, bits);
    return is_signed(kind) ? (double)signed_of_bits(bits) : (double)bits;
}

bool gguf_next_text(const struct gguf_value *array, struct gguf_cursor *c, struct text *out)
{
    if (array->kind != GGUF_ARRAY || array->element_kind != GGUF_STRING || c->i >= array->count)
        return false;
    const struct text all = array->bytes;
    if (c->offset > all.len || all.len - c->offset < 8)
        return false;
    assert(all.data);
    const uint64_t len = little_load(all.data + c->offset, 8);
    if (len > all.len - c->offset - 8)
        return false;
    *out = (struct text){all.data + c->offset + 8, (size_t)len};
    c->i++;
    c->offset += 8 + (size_t)len;
    return true;
}

/* --- lookups ------------------------------------------------------------------------------- */

/* Finds the key; *v is NULL if it is missing and may be. */
static enum status look_up(const struct gguf *g, const char *key, const char *expected,
                           const struct gguf_value **v, bool *found, struct err *e)
{
    assert(g && key);
    *v = gguf_find(g, key);
    if (found)
        *found = *v != NULL;
    if (!*v && !found)
        return err_set(e, STATUS_BAD_FILE, "key \"%s\" is missing, expected %s", key, expected);
    return STATUS_OK;
}

static enum status wrong_kind(const char *key, const char *expected, const struct gguf_value *v,
                              struct err *e)
{
    if (v->kind == GGUF_ARRAY)
        return err_set(e, STATUS_BAD_FILE,
                       "key \"%s\": expected %s, found an array of %" PRIu64 " %s", key, expected,
                       v->count, gguf_kind_name(v->element_kind));
    return err_set(e, STATUS_BAD_FILE, "key \"%s\": expected %s, found %s", key, expected,
                   gguf_kind_name(v->kind));
}

enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max,
                         uint64_t *out, bool *found, struct err *e)
{
    assert(min <= max);
    const struct gguf_value *v;
    const enum status s = look_up(g, key, "an integer", &v, found, e);
    if (s || !v)
        return s;
    if (!gguf_is_integer(v->kind))
        return wrong_kind(key, "an integer", v, e);
    const uint64_t bits = bits_at(v, 0);
    const bool negative = is_signed(v->kind) && signed_of_bits(bits) < 0;
    if (negative)
        return err_set(e, STATUS_BAD_FILE,
                       "key \"%s\": expected %" PRIu64 " to %" PRIu64 ", found %" PRId64, key, min,
                       max, signed_of_bits(bits));
    if (bits < min || bits > max)
        return err_set(e, STATUS_BAD_FILE,
                       "key \"%s\": expected %" PRIu64 " to %" PRIu64 ", found %" PRIu64, key, min,
                       max, bits);
    *out = bits;
    return STATUS_OK;
}

enum status gguf_get_f64(const struct gguf *g, const char *key, double *out, bool *found,
                         struct err *e)
{
    const struct gguf_value *v;
    const enum status s = look_up(g, key, "a float", &v, found, e);
    if (s || !v)
        return s;
    if (v->kind != GGUF_F32 && v->kind != GGUF_F64)
        return wrong_kind(key, "f32 or f64", v, e);
    *out = gguf_float_at(v, 0);
    return STATUS_OK;
}

enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, bool *found,
                          struct err *e)
{
    const struct gguf_value *v;
    const enum status s = look_up(g, key, "a bool", &v, found, e);
    if (s || !v)
        return s;
    if (v->kind != GGUF_BOOL)
        return wrong_kind(key, "bool", v, e);
    *out = bits_at(v, 0) != 0;
    return STATUS_OK;
}

enum status gguf_get_text(const struct gguf *g, const char *key, struct text *out, bool *found,
                          struct err *e)
{
    const struct gguf_value *v;
    const enum status s = look_up(g, key, "a string", &v, found, e);
    if (s || !v)
        return s;
    if (v->kind != GGUF_STRING)
        return wrong_kind(key, "string", v, e);
    *out = v->bytes;
    return STATUS_OK;
}

enum status gguf_get_array(const struct gguf *g, const char *key, enum gguf_kind element_kind,
                           const struct gguf_value **out, bool *found, struct err *e)
{
    assert((unsigned)element_kind <= GGUF_LAST_KIND && element_kind != GGUF_ARRAY);
    char expected[40];
    snprintf(expected, sizeof expected, "an array of %s", gguf_kind_name(element_kind));
    const struct gguf_value *v;
    *out = NULL;
    const enum status s = look_up(g, key, expected, &v, found, e);
    if (s || !v)
        return s;
    if (v->kind != GGUF_ARRAY || v->element_kind != element_kind)
        return wrong_kind(key, expected, v, e);
    *out = v;
    return STATUS_OK;
}
