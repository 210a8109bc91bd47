#include "formats/json_read.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/utf8.h"

struct json_parse {
    struct json_reader *r;
    struct text source;
    const struct json_limits *limits;
    size_t at;
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
    return text_span(p->source.data + p->at, p->source.len - p->at);
}

/* The bytes read from `start` on. */
static struct text read_since(const struct json_parse *p, size_t start)
{
    return text_span(p->source.data + start, p->at - start);
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
        chars_printf(found, "'%c'", c);
    else if (c >= 0 && p->at == 0 && text_starts_with(p->source, "\xef\xbb\xbf"))
        chars_printf(found, "a byte-order mark");
    else if (c >= 0)
        chars_printf(found, "byte 0x%02x", c);
    return err_bad_file(p->e, "JSON at byte %zu: expected %s, found %s", p->at, expected, found);
}

static enum status too_many(const struct json_parse *p, size_t most, const char *what)
{
    return err_bad_file(p->e, "JSON at byte %zu: expected at most %zu %s, found more", p->at, most,
                        what);
}

/* --- strings --------------------------------------------------------------------------------- */

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
    uint32_t low = 0;
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
    if (text_starts_with(json_rest(p), "\\u"))
        TRY(parse_unit(p, &low));
    if (*code > 0xdbff || low < 0xdc00 || low > 0xdfff) {
        p->at = first;
        return unexpected(p, "surrogates in pairs, \\ud800 to \\udbff before \\udc00 to \\udfff");
    }
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return STATUS_OK;
}

/* A string at its quote. Decoded it is never longer: with room for the whole source no string of
 * the reader's moves. */
static enum status parse_string(struct json_parse *p, struct text *out)
{
    struct bytes *decoded = &p->r->strings;
    const size_t start = decoded->len;
    size_t plain = ++p->at; /* from here on bytes stand for themselves */
    for (int c; (c = peek(p)) != '"';) {
        uint32_t code = 0;
        if (c == '\\') {
            char bytes[4];
            if (!bytes_reserve(decoded, p->source.len - decoded->len))
                return err_no_memory(p->e, "decoding JSON strings", p->source.len);
            bytes_put(decoded, read_since(p, plain));
            TRY(parse_escape(p, &code));
            bytes_put(decoded, (struct text){bytes, utf8_encode(code, bytes)});
            plain = p->at;
        } else if (c < 0x20) {
            return unexpected(p, "more of a string (control characters as escapes) or '\"'");
        } else if (c < 0x80) {
            p->at++;
        } else {
            const size_t len = utf8_decode(json_rest(p), &code);
            if (code == UNICODE_INVALID)
                return unexpected(p, "UTF-8");
            p->at += len;
        }
    }
    *out = read_since(p, plain);
    p->at++;
    if (decoded->len > start) {
        bytes_put(decoded, *out);
        *out = text_span(decoded->data + start, decoded->len - start);
    }
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
    return out->len > JSON_NUMBER_MAX ? too_many(p, JSON_NUMBER_MAX, "bytes of a number")
                                      : STATUS_OK;
}

/* --- values ---------------------------------------------------------------------------------- */

static enum status parse_value(struct json_parse *p, bool is_member, int depth);

/* The container of a node, at its bracket, which `depth` others are around. No key is in an object
 * twice. */
static enum status parse_container(struct json_parse *p, uint32_t node_index, int depth)
{
    struct name_index *keys = &p->r->keys;
    const bool is_object = peek(p) == '{';
    const size_t start = p->at;
    uint32_t n = 0;
    if (depth == p->limits->depth)
        return too_many(p, depth, "containers in one another");
    p->at++;
    for (skip_space(p); peek(p) != (is_object ? '}' : ']'); skip_space(p), n++) {
        if (n > 0 && peek(p) != ',')
            return unexpected(p, is_object ? "',' or '}'" : "',' or ']'");
        p->at += n > 0;
        TRY(parse_value(p, is_object, depth + 1));
    }
    p->at++;
    struct json_node *node = &p->r->nodes[node_index]; /* here, because nodes may have moved */
    node->kind = is_object ? JSON_OBJECT : JSON_ARRAY;
    node->text = read_since(p, start);
    node->n = n;
    node->span = p->r->n_nodes - node_index;
    if (!is_object || n < 2)
        return STATUS_OK;

    keys->n = 0;
    JSON_EACH (c, node)
        TRY(name_index_add(keys, c->key, c - p->r->nodes, 0, p->e));
    name_index_sort(keys);
    const struct indexed *twins = name_index_twins(keys);
    if (!twins)
        return STATUS_OK;
    return err_bad_file(
        p->e, "JSON at byte %zu: expected every key once in an object, found \"%.*s\" again",
        p->r->nodes[twins[1].id].at, text_width(twins->text), twins->text.data);
}

/* A value, with its key where it needs one. */
static enum status parse_value(struct json_parse *p, bool is_member, int depth)
{
    static const struct {
        const char *name;
        enum json_kind kind;
    } literals[] = {{"null", JSON_NULL}, {"true", JSON_BOOL}, {"false", JSON_BOOL}};
    struct json_reader *r = p->r;
    const uint32_t index = r->n_nodes;
    skip_space(p);
    if (index == p->limits->values)
        return too_many(p, index, "values");
    TRY_ROOM(r->nodes, index, r->nodes_cap, "reading JSON", p->e);
    r->n_nodes++;
    struct json_node *node = &r->nodes[index];
    *node = (struct json_node){.at = p->at, .span = 1};
    if (is_member) {
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
    if (c == '{' || c == '[')
        return parse_container(p, index, depth);
    node->kind = c == '"' ? JSON_STRING : JSON_NUMBER;
    if (c == '"')
        return parse_string(p, &node->text);
    if (c == '-' || is_digit(c))
        return parse_number(p, &node->text);
    for (int i = 0; i < LENGTH(literals); i++)
        if (text_starts_with(json_rest(p), literals[i].name)) {
            const size_t start = p->at;
            p->at += strlen(literals[i].name);
            node->kind = literals[i].kind;
            node->text = read_since(p, start);
            return STATUS_OK;
        }
    return unexpected(p, "a value");
}

enum status json_read(struct json_reader *r, struct text source, const struct json_limits *limits,
                      const struct json_node **root, struct err *e)
{
    assert(limits->values < INT32_MAX && limits->depth >= 0);
    struct json_parse p = {r, source.data ? source : text_of(""), limits, 0, e};
    r->n_nodes = 0;
    r->strings.len = 0;
    if (source.len > limits->bytes)
        return too_many(&p, limits->bytes, "bytes");
    TRY(parse_value(&p, false, 0));
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
    name_index_free(&r->keys);
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
    JSON_EACH (c, object)
        if (text_is(c->key, key))
            return c;
    return NULL;
}

static const char *const kind_names[] = {
    [JSON_NULL] = "null",       [JSON_BOOL] = "true or false", [JSON_NUMBER] = "a number",
    [JSON_STRING] = "a string", [JSON_ARRAY] = "an array",     [JSON_OBJECT] = "an object",
};

#define NUMBER_SHOWN 40 /* bytes */
#define OUT_OF_RANGE ", which is out of range"

/* `note` goes behind what was found. */
static enum status refuse_node(const struct json_node *node, const char *expected, const char *note,
                               struct err *e)
{
    const struct text name = node->key.data ? node->key : text_of("the value");
    const struct text found =
        node->kind <= JSON_NUMBER ? node->text : text_of(kind_names[node->kind]);
    const char *quote = node->key.data ? "\"" : "";
    const int shown = MIN(found.len, NUMBER_SHOWN);
    return err_bad_file(e, "%s%.*s%s at byte %zu: expected %s, found %.*s%s%s", quote,
                        text_width(name), name.data, quote, node->at, expected, shown, found.data,
                        found.len > NUMBER_SHOWN ? "..." : "", note);
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

/* --- numbers --------------------------------------------------------------------------------- */

/* A whole number from min to max, in two's complement. */
static enum status whole_number(const struct json_node *node, int64_t min, uint64_t max,
                                uint64_t *out, struct err *e)
{
    const bool is_negative = node->kind == JSON_NUMBER && *node->text.data == '-';
    const uint64_t most = !is_negative ? max : min < 0 ? -(uint64_t)min : 0;
    const char *note = node->kind == JSON_NUMBER ? NULL : "";
    uint64_t magnitude = 0;
    bool fits = true;
    for (size_t i = is_negative; !note && i < node->text.len; i++) {
        const char digit = node->text.data[i];
        if (!is_digit(digit))
            note = ", which is not whole";
        fits = fits && u64_mul(magnitude, 10, &magnitude) &&
               u64_add(magnitude, digit - '0', &magnitude);
    }
    if (!note && (!fits || magnitude > most || (min > 0 && magnitude < (uint64_t)min)))
        note = OUT_OF_RANGE;
    if (note) {
        char expected[80];
        chars_printf(expected, "a whole number from %" PRId64 " to %" PRIu64, min, max);
        return refuse_node(node, expected, note, e);
    }
    *out = is_negative ? -magnitude : magnitude;
    return STATUS_OK;
}

enum status json_node_u64(const struct json_node *node, uint64_t *out, struct err *e)
{
    return whole_number(node, 0, UINT64_MAX, out, e);
}

enum status json_node_i64(const struct json_node *node, int64_t min, int64_t max, int64_t *out,
                          struct err *e)
{
    uint64_t bits = 0;
    assert(max >= 0);
    TRY(whole_number(node, min, max, &bits, e));
    *out = bits;
    return STATUS_OK;
}

enum status json_node_double(const struct json_node *node, double *out, struct err *e)
{
    char text[JSON_NUMBER_MAX + 1];
    TRY(json_expect(node, JSON_NUMBER, e));
    chars_printf(text, "%.*s", (int)node->text.len, node->text.data);
    const double value = strtod(text, NULL);
    if (!isfinite(value))
        return refuse_node(node, "a number that a double can hold", OUT_OF_RANGE, e);
    *out = value;
    return STATUS_OK;
}
