/*
 * While a container is open its `span` is the index of the container around it: the stack is in the
 * nodes. They are indices, because the array may move as it grows.
 */
#include "formats/json_read.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/mem.h"

#define NO_CONTAINER UINT32_MAX

struct json_parse {
    struct json_reader *r;
    struct text source;
    const struct json_limits *limits;
    size_t at;
    uint32_t open; /* the innermost container that is open, or NO_CONTAINER */
    int depth;
    struct err *e;
};

/* --- bytes ----------------------------------------------------------------------------------- */

/* The next byte; -1 at the end. */
static int peek(const struct json_parse *p)
{
    return p->at < p->source.len ? (unsigned char)p->source.data[p->at] : -1;
}

static struct text json_rest(const struct json_parse *p)
{
    return (struct text){p->source.data + p->at, p->source.len - p->at};
}

/* The bytes read from `start` on. */
static struct text read_since(const struct json_parse *p, size_t start)
{
    return (struct text){p->source.data + start, p->at - start};
}

static void skip_space(struct json_parse *p)
{
    for (int c = peek(p); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = peek(p))
        p->at++;
}

/* The message about the next byte. */
static enum status unexpected(const struct json_parse *p, const char *expected)
{
    const int c = peek(p);
    char found[32] = "the end";
    if (c > ' ' && c < 0x7f)
        snprintf(found, sizeof found, "'%c'", c);
    else if (c >= 0 && p->at == 0 && text_starts_with(p->source, "\xef\xbb\xbf"))
        snprintf(found, sizeof found, "a byte-order mark");
    else if (c >= 0)
        snprintf(found, sizeof found, "byte 0x%02x", (unsigned)c);
    return err_bad_file(p->e, "JSON at byte %zu: expected %s, found %s", p->at, expected, found);
}

/* --- strings --------------------------------------------------------------------------------- */

/* Up to the next quote or backslash. */
static enum status skip_plain(struct json_parse *p)
{
    for (;;) {
        const int c = peek(p);
        if (c == '"' || c == '\\')
            return STATUS_OK;
        if (c < 0x20)
            return unexpected(p, "more of a string (control characters as escapes) or '\"'");
        uint32_t code = 0;
        p->at += c < 0x80 ? 1 : utf8_decode(json_rest(p), &code);
        if (code == UNICODE_INVALID) {
            p->at--;
            return unexpected(p, "UTF-8");
        }
    }
}

/* The XXXX of "\uXXXX", at the backslash. */
static enum status parse_unit(struct json_parse *p, uint32_t *unit)
{
    static const char digits[] = "0123456789abcdef";
    *unit = 0;
    p->at += 2;
    for (int i = 0; i < 4; i++, p->at++) {
        const int c = peek(p);
        const char *digit = c > 0 ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
        if (!digit)
            return unexpected(p, "a hexadecimal digit");
        *unit = *unit << 4 | (uint32_t)(digit - digits);
    }
    return STATUS_OK;
}

/* What the escape at the backslash stands for, or two of them that are a surrogate pair. */
static enum status parse_escape(struct json_parse *p, uint32_t *code)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const size_t first = p->at++;
    const int c = peek(p);
    const char *name = c > 0 ? strchr(names, c) : NULL;
    if (name) {
        *code = (unsigned char)values[name - names];
        p->at++;
        return STATUS_OK;
    }
    if (c != 'u')
        return unexpected(p, "one of \"\\/bfnrtu after a backslash");
    p->at = first;
    TRY(parse_unit(p, code));
    if (*code < 0xd800 || *code > 0xdfff)
        return STATUS_OK;
    if (*code > 0xdbff) {
        p->at = first;
        return unexpected(p, "a high surrogate before a low one");
    }
    const size_t second = p->at;
    uint32_t low = 0;
    if (!text_starts_with(json_rest(p), "\\u"))
        return unexpected(p, "\\u with the low surrogate of a pair");
    TRY(parse_unit(p, &low));
    if (low < 0xdc00 || low > 0xdfff) {
        p->at = second;
        return unexpected(p, "the low surrogate of a pair, \\udc00 to \\udfff");
    }
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return STATUS_OK;
}

/* A string at its quote. Decoded it is never longer: with room for the whole source no string of
 * the reader's moves. */
static enum status parse_string(struct json_parse *p, struct text *out)
{
    struct bytes *strings = &p->r->strings;
    const size_t start = strings->len;
    size_t plain = ++p->at;
    TRY(skip_plain(p));
    if (peek(p) == '\\' && !bytes_reserve(strings, p->source.len - start))
        return err_no_memory(p->e, "decoding JSON strings", p->source.len);
    while (peek(p) == '\\') {
        uint32_t code = 0;
        char bytes[4];
        bytes_put(strings, read_since(p, plain));
        TRY(parse_escape(p, &code));
        bytes_put(strings, (struct text){bytes, utf8_encode(code, bytes)});
        plain = p->at;
        TRY(skip_plain(p));
    }
    *out = read_since(p, plain);
    if (strings->len > start) {
        bytes_put(strings, *out);
        *out = (struct text){strings->data + start, strings->len - start};
    }
    p->at++;
    return STATUS_OK;
}

/* --- numbers --------------------------------------------------------------------------------- */

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

/* At least one. */
static enum status skip_digits(struct json_parse *p)
{
    if (!is_digit(peek(p)))
        return unexpected(p, "a digit");
    while (is_digit(peek(p)))
        p->at++;
    return STATUS_OK;
}

static enum status parse_number(struct json_parse *p, struct text *out)
{
    const size_t start = p->at;
    p->at += peek(p) == '-';
    if (peek(p) == '0') /* after which there is no other digit of a whole part */
        p->at++;
    else
        TRY(skip_digits(p));
    if (peek(p) == '.') {
        p->at++;
        TRY(skip_digits(p));
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        p->at++;
        p->at += peek(p) == '+' || peek(p) == '-';
        TRY(skip_digits(p));
    }
    *out = read_since(p, start);
    if (out->len > JSON_NUMBER_MAX)
        return err_bad_file(p->e,
                            "JSON at byte %zu: expected numbers of at most %d bytes, found %zu",
                            start, JSON_NUMBER_MAX, out->len);
    return STATUS_OK;
}

/* --- containers ------------------------------------------------------------------------------ */

/* No key twice; else the first that has been there before is named. */
static enum status check_members(struct json_parse *p, const struct json_node *object)
{
    struct name_index *names = &p->r->members;
    const struct json_node *nodes = p->r->nodes;
    int32_t again = INT32_MAX;
    names->n = 0;
    for (const struct json_node *c = NULL; (c = json_child(object, c));)
        if (name_index_add(names, c->key, (int32_t)(c - nodes), 0, NULL))
            return err_no_memory(p->e, "comparing JSON keys", object->n * sizeof *names->list);
    name_index_sort(names);
    for (size_t i = 1; i < names->n; i++)
        if (names->list[i].id < again && text_equal(names->list[i].text, names->list[i - 1].text))
            again = names->list[i].id;
    if (again == INT32_MAX)
        return STATUS_OK;
    const struct json_node *member = &nodes[again];
    return err_bad_file(
        p->e, "JSON at byte %zu: expected every key once in an object, found \"%.*s\" again",
        member->at, text_width(member->key), member->key.data);
}

/* --- values ---------------------------------------------------------------------------------- */

/* A value of the open container, of no kind yet. */
static enum status add_node(struct json_parse *p, struct json_node **out)
{
    struct json_reader *r = p->r;
    if (r->n_nodes == p->limits->values)
        return err_bad_file(p->e, "JSON at byte %zu: expected at most %u values, found more", p->at,
                            (unsigned)p->limits->values);
    struct json_node *nodes =
        array_grow(r->nodes, (size_t)r->n_nodes + 1, &r->nodes_cap, sizeof *nodes);
    if (!nodes)
        return err_no_memory(p->e, "reading JSON", r->n_nodes * sizeof *nodes);
    r->nodes = nodes;
    *out = &nodes[r->n_nodes++];
    **out = (struct json_node){.at = p->at, .span = 1};
    if (p->open != NO_CONTAINER)
        nodes[p->open].n++;
    return STATUS_OK;
}

/* A value, with its key where it needs one. Of a container only the opening bracket is read. */
static enum status parse_item(struct json_parse *p)
{
    static const struct {
        const char *name;
        enum json_kind kind;
    } literals[] = {{"null", JSON_NULL}, {"true", JSON_BOOL}, {"false", JSON_BOOL}};
    struct json_node *node = NULL;
    skip_space(p);
    TRY(add_node(p, &node));
    if (p->open != NO_CONTAINER && p->r->nodes[p->open].kind == JSON_OBJECT) {
        if (peek(p) != '"')
            return unexpected(p, "a key in quotes");
        TRY(parse_string(p, &node->key));
        skip_space(p);
        if (peek(p) != ':')
            return unexpected(p, "':'");
        p->at++;
        skip_space(p);
    }
    const int c = peek(p);
    if (c == '{' || c == '[') {
        if (p->depth++ == p->limits->depth)
            return err_bad_file(
                p->e, "JSON at byte %zu: expected at most %d containers in one another, found more",
                p->at, p->limits->depth);
        node->kind = c == '{' ? JSON_OBJECT : JSON_ARRAY;
        node->text.data = p->source.data + p->at++;
        node->span = p->open;
        p->open = (uint32_t)(node - p->r->nodes);
        return STATUS_OK;
    }
    node->kind = c == '"' ? JSON_STRING : JSON_NUMBER;
    if (c == '"')
        return parse_string(p, &node->text);
    if (c == '-' || is_digit(c))
        return parse_number(p, &node->text);
    for (size_t i = 0; i < sizeof literals / sizeof *literals; i++)
        if (text_starts_with(json_rest(p), literals[i].name)) {
            node->kind = literals[i].kind;
            node->text = (struct text){p->source.data + p->at, strlen(literals[i].name)};
            p->at += node->text.len;
            return STATUS_OK;
        }
    return unexpected(p, "a value");
}

/* Up to where the next item is to be, or to the end of the outermost value. */
static enum status parse_between(struct json_parse *p)
{
    while (p->open != NO_CONTAINER) {
        struct json_node *open = &p->r->nodes[p->open];
        const bool is_object = open->kind == JSON_OBJECT;
        skip_space(p);
        if (peek(p) != (is_object ? '}' : ']')) {
            if (open->n > 0 && peek(p) != ',')
                return unexpected(p, is_object ? "',' or '}'" : "',' or ']'");
            p->at += open->n > 0;
            return STATUS_OK;
        }
        p->at++;
        p->depth--;
        p->open = open->span;
        open->span = (uint32_t)(p->r->nodes + p->r->n_nodes - open);
        open->text.len = (size_t)(p->source.data + p->at - open->text.data);
        if (is_object && open->n > 1)
            TRY(check_members(p, open));
    }
    return STATUS_OK;
}

enum status json_read(struct json_reader *r, struct text source, const struct json_limits *limits,
                      const struct json_node **root, struct err *e)
{
    assert(limits->values < INT32_MAX && limits->depth >= 0);
    struct json_parse p = {.r = r,
                           .source = source.data ? source : text_of(""),
                           .limits = limits,
                           .open = NO_CONTAINER,
                           .e = e};
    r->n_nodes = 0;
    r->strings.len = 0;
    if (source.len > limits->bytes)
        return err_bad_file(e, "JSON: expected at most %zu bytes, found %zu", limits->bytes,
                            source.len);
    do {
        TRY(parse_item(&p));
        TRY(parse_between(&p));
    } while (p.open != NO_CONTAINER);
    skip_space(&p);
    if (peek(&p) >= 0)
        return unexpected(&p, "the end");
    *root = r->nodes;
    return STATUS_OK;
}

void json_reader_free(struct json_reader *r)
{
    free(r->nodes);
    bytes_free(&r->strings);
    name_index_free(&r->members);
    *r = (struct json_reader){0};
}

/* --- what has been read ---------------------------------------------------------------------- */

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

static const char *const kind_names[] = {
    [JSON_NULL] = "null",       [JSON_BOOL] = "true or false", [JSON_NUMBER] = "a number",
    [JSON_STRING] = "a string", [JSON_ARRAY] = "an array",     [JSON_OBJECT] = "an object",
};

#define NUMBER_SHOWN 40 /* bytes */
#define NOT_WHOLE    ", which is not whole"
#define OUT_OF_RANGE ", which is out of range"

/* `note` goes behind what was found. */
static enum status refuse_node(const struct json_node *node, const char *expected, const char *note,
                               struct err *e)
{
    const struct text found =
        node->kind <= JSON_NUMBER ? node->text : text_of(kind_names[node->kind]);
    const int shown = found.len < NUMBER_SHOWN ? (int)found.len : NUMBER_SHOWN;
    const char *more = found.len > NUMBER_SHOWN ? "..." : "";
    if (!node->key.data)
        return err_bad_file(e, "the value at byte %zu: expected %s, found %.*s%s%s", node->at,
                            expected, shown, found.data, more, note);
    return err_bad_file(e, "\"%.*s\" at byte %zu: expected %s, found %.*s%s%s",
                        text_width(node->key), node->key.data, node->at, expected, shown,
                        found.data, more, note);
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
        return err_bad_file(e, "the object at byte %zu: expected \"%s\", %s, found no such key",
                            object->at, key, kind_names[kind]);
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

/* A whole number is its sign and its magnitude. */
static enum status whole_number(const struct json_node *node, const char *expected, bool *negative,
                                uint64_t *magnitude, struct err *e)
{
    if (node->kind != JSON_NUMBER)
        return refuse_node(node, expected, "", e);
    *negative = text_starts_with(node->text, "-");
    *magnitude = 0;
    bool fits = true;
    for (size_t i = *negative; i < node->text.len; i++) {
        const char digit = node->text.data[i];
        if (!is_digit(digit))
            return refuse_node(node, expected, NOT_WHOLE, e);
        fits = fits && u64_mul(*magnitude, 10, magnitude) &&
               u64_add(*magnitude, (uint64_t)(digit - '0'), magnitude);
    }
    return fits ? STATUS_OK : refuse_node(node, expected, OUT_OF_RANGE, e);
}

enum status json_node_u64(const struct json_node *node, uint64_t *out, struct err *e)
{
    const char *const expected = "a whole number from 0 to 18446744073709551615";
    bool negative = false;
    uint64_t magnitude = 0;
    TRY(whole_number(node, expected, &negative, &magnitude, e));
    if (negative && magnitude > 0)
        return refuse_node(node, expected, OUT_OF_RANGE, e);
    *out = magnitude;
    return STATUS_OK;
}

enum status json_node_i64(const struct json_node *node, int64_t min, int64_t max, int64_t *out,
                          struct err *e)
{
    char expected[80];
    bool negative = false;
    uint64_t magnitude = 0;
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, min, max);
    TRY(whole_number(node, expected, &negative, &magnitude, e));
    const int64_t value = negative ? (int64_t)-magnitude : (int64_t)magnitude;
    if (magnitude > (uint64_t)INT64_MAX + negative || value < min || value > max)
        return refuse_node(node, expected, OUT_OF_RANGE, e);
    *out = value;
    return STATUS_OK;
}

enum status json_node_double(const struct json_node *node, double *out, struct err *e)
{
    char text[JSON_NUMBER_MAX + 1];
    TRY(json_expect(node, JSON_NUMBER, e));
    snprintf(text, sizeof text, "%.*s", (int)node->text.len, node->text.data);
    const double value = strtod(text, NULL);
    if (!isfinite(value))
        return refuse_node(node, "a number that a double can hold", OUT_OF_RANGE, e);
    *out = value;
    return STATUS_OK;
}
