#include "json/node.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const struct json_node *json_child(const struct json_node *parent, const struct json_node *child)
{
    const struct json_node *next = child ? child + child->span : parent + 1;
    return next == parent + parent->span ? NULL : next;
}

const struct json_node *json_member(const struct json_node *object, const char *key)
{
    assert(object->kind == JSON_OBJECT);
    for (const struct json_node *c = NULL; (c = json_child(object, c));)
        if (text_is(c->key, key))
            return c;
    return NULL;
}

/* --- what is refused ------------------------------------------------------------------------- */

static const char *const kind_names[] = {
    [JSON_NULL] = "null",       [JSON_BOOL] = "true or false", [JSON_NUMBER] = "a number",
    [JSON_STRING] = "a string", [JSON_ARRAY] = "an array",     [JSON_OBJECT] = "an object",
};

/* Bytes shown of a number. */
#define NUMBER_SHOWN 40

/* `note` goes behind what was found. */
static enum status refuse_node(const struct json_node *node, const char *expected, const char *note,
                               struct err *e)
{
    const bool literal = node->kind <= JSON_NUMBER;
    const struct text found = literal ? node->text : text_of(kind_names[node->kind]);
    const int shown = found.len < NUMBER_SHOWN ? (int)found.len : NUMBER_SHOWN;
    const char *more = found.len > NUMBER_SHOWN ? "..." : "";
    if (!node->key.data)
        return err_set(e, STATUS_BAD_FILE, "the value at byte %zu: expected %s, found %.*s%s%s",
                       node->at, expected, shown, found.data, more, note);
    return err_set(e, STATUS_BAD_FILE, "\"%.*s\" at byte %zu: expected %s, found %.*s%s%s",
                   text_width(node->key), node->key.data, node->at, expected, shown, found.data,
                   more, note);
}

enum status json_expect(const struct json_node *node, enum json_kind kind, struct err *e)
{
    return node->kind == kind ? STATUS_OK : refuse_node(node, kind_names[kind], "", e);
}

enum status json_require(const struct json_node *object, const char *key, enum json_kind kind,
                         const struct json_node **out, struct err *e)
{
    const struct json_node *member = json_member(object, key);
    if (!member)
        return err_set(e, STATUS_BAD_FILE,
                       "the object at byte %zu: expected \"%s\", %s, found no such key", object->at,
                       key, kind_names[kind]);
    TRY(json_expect(member, kind, e));
    *out = member;
    return STATUS_OK;
}

enum status json_node_text(const struct json_node *node, struct text *out, struct err *e)
{
    TRY(json_expect(node, JSON_STRING, e));
    *out = node->text;
    return STATUS_OK;
}

enum status json_node_bool(const struct json_node *node, bool *out, struct err *e)
{
    TRY(json_expect(node, JSON_BOOL, e));
    *out = text_is(node->text, "true");
    return STATUS_OK;
}

/* --- numbers --------------------------------------------------------------------------------- */

enum whole { WHOLE, NOT_WHOLE, TOO_LARGE };

/* A number's sign and magnitude. */
static enum whole read_whole(const struct json_node *node, bool *negative, uint64_t *magnitude)
{
    enum whole is = WHOLE;
    *negative = text_starts_with(node->text, "-");
    *magnitude = 0;
    for (size_t i = *negative; i < node->text.len; i++) {
        const char c = node->text.data[i];
        if (c < '0' || c > '9')
            return NOT_WHOLE;
        if (__builtin_mul_overflow(*magnitude, (uint64_t)10, magnitude) ||
            __builtin_add_overflow(*magnitude, (uint64_t)(c - '0'), magnitude))
            is = TOO_LARGE;
    }
    return is;
}

static const char *const whole_notes[] = {
    [WHOLE] = "", [NOT_WHOLE] = ", which is not whole", [TOO_LARGE] = ", which is out of range"};

enum status json_node_u64(const struct json_node *node, uint64_t *out, struct err *e)
{
    const char *const expected = "a whole number from 0 to 18446744073709551615";
    if (node->kind != JSON_NUMBER)
        return refuse_node(node, expected, "", e);
    bool negative;
    uint64_t magnitude;
    enum whole is = read_whole(node, &negative, &magnitude);
    if (is == WHOLE && negative && magnitude > 0)
        is = TOO_LARGE;
    if (is != WHOLE)
        return refuse_node(node, expected, whole_notes[is], e);
    *out = magnitude;
    return STATUS_OK;
}

/* Whether a sign and magnitude are an int64. */
static bool i64_of(bool negative, uint64_t magnitude, int64_t *out)
{
    if (magnitude > (uint64_t)INT64_MAX + negative)
        return false;
    /* -INT64_MIN is no int64. */
    *out = !negative ? (int64_t)magnitude : magnitude == 0 ? 0 : -(int64_t)(magnitude - 1) - 1;
    return true;
}

enum status json_node_i64(const struct json_node *node, int64_t min, int64_t max, int64_t *out,
                          struct err *e)
{
    char expected[80];
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, min, max);
    if (node->kind != JSON_NUMBER)
        return refuse_node(node, expected, "", e);
    bool negative;
    uint64_t magnitude;
    int64_t value = 0;
    enum whole is = read_whole(node, &negative, &magnitude);
    if (is == WHOLE && (!i64_of(negative, magnitude, &value) || value < min || value > max))
        is = TOO_LARGE;
    if (is != WHOLE)
        return refuse_node(node, expected, whole_notes[is], e);
    *out = value;
    return STATUS_OK;
}

enum status json_node_double(const struct json_node *node, double *out, struct err *e)
{
    TRY(json_expect(node, JSON_NUMBER, e));
    assert(node->text.len <= JSON_NUMBER_MAX);
    char digits[JSON_NUMBER_MAX + 1]; /* strtod needs an end */
    memcpy(digits, node->text.data, node->text.len);
    digits[node->text.len] = 0;
    const double value = strtod(digits, NULL);
    if (!isfinite(value))
        return refuse_node(node, "a number that a double can hold", whole_notes[TOO_LARGE], e);
    *out = value;
    return STATUS_OK;
}
