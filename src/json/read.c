/*
 * While a container is open its `span` is the index of the container around it: the stack is in the
 * nodes. They are indices, because the array may move as it grows.
 */
#include "json/read.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/utf8.h"

#define NO_CONTAINER UINT32_MAX
#define FIRST_NODES  64

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
    return err_set(p->e, STATUS_BAD_FILE, "JSON at byte %zu: expected %s, found %s", p->at,
                   expected, found);
}

/* --- strings --------------------------------------------------------------------------------- */

/* Room for all strings of the text: what an escape stands for is never longer than itself. */
static enum status reserve_strings(struct json_parse *p)
{
    struct json_reader *r = p->r;
    if (r->strings_cap >= p->source.len)
        return STATUS_OK;
    assert(r->strings_len == 0);
    char *strings = malloc(p->source.len);
    if (!strings)
        return err_no_memory(p->e, "decoding JSON strings", p->source.len);
    free(r->strings);
    r->strings = strings;
    r->strings_cap = p->source.len;
    return STATUS_OK;
}

static void copy_bytes(struct json_reader *r, const char *bytes, size_t n)
{
    assert(n <= r->strings_cap - r->strings_len);
    memcpy(r->strings + r->strings_len, bytes, n);
    r->strings_len += n;
}

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

/* "\uXXXX" at the backslash. */
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

/* The same, or two of them that are a surrogate pair. */
static enum status parse_units(struct json_parse *p, uint32_t *code)
{
    const size_t start = p->at;
    uint32_t low;
    TRY(parse_unit(p, code));
    if (*code < 0xd800 || *code > 0xdfff)
        return STATUS_OK;
    if (*code > 0xdbff) {
        p->at = start;
        return unexpected(p, "a high surrogate before a low one");
    }
    if (!text_starts_with(json_rest(p), "\\u"))
        return unexpected(p, "\\u with the low surrogate of a pair");
    const size_t second = p->at;
    TRY(parse_unit(p, &low));
    if (low < 0xdc00 || low > 0xdfff) {
        p->at = second;
        return unexpected(p, "the low surrogate of a pair, \\udc00 to \\udfff");
    }
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return STATUS_OK;
}

/* What the escape at the backslash stands for. */
static enum status parse_escape(struct json_parse *p, uint32_t *code)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    p->at++;
    const int c = peek(p);
    const char *name = c > 0 ? strchr(names, c) : NULL;
    if (c == 'u') {
        p->at--;
        return parse_units(p, code);
    }
    if (!name)
        return unexpected(p, "one of \"\\/bfnrtu after a backslash");
    *code = (unsigned char)values[name - names];
    p->at++;
    return STATUS_OK;
}

/* A string with escapes, of which the bytes from `plain` on are read up to the first. */
static enum status copy_string(struct json_parse *p, size_t plain, struct text *out)
{
    struct json_reader *r = p->r;
    TRY(reserve_strings(p));
    const size_t start = r->strings_len;
    while (peek(p) == '\\') {
        uint32_t code = 0;
        char bytes[4];
        copy_bytes(r, p->source.data + plain, p->at - plain);
        TRY(parse_escape(p, &code));
        copy_bytes(r, bytes, utf8_encode(code, bytes));
        plain = p->at;
        TRY(skip_plain(p));
    }
    copy_bytes(r, p->source.data + plain, p->at++ - plain);
    *out = (struct text){r->strings + start, r->strings_len - start};
    return STATUS_OK;
}

/* A string at its quote. */
static enum status parse_string(struct json_parse *p, struct text *out)
{
    const size_t start = ++p->at;
    TRY(skip_plain(p));
    if (peek(p) == '\\')
        return copy_string(p, start, out);
    *out = (struct text){p->source.data + start, p->at++ - start};
    return STATUS_OK;
}

/* --- numbers and literals -------------------------------------------------------------------- */

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

/* After a zero there is no other digit of a whole part. */
static enum status skip_whole(struct json_parse *p)
{
    if (peek(p) != '0')
        return skip_digits(p);
    p->at++;
    return STATUS_OK;
}

static enum status parse_number(struct json_parse *p, struct text *out)
{
    const size_t start = p->at;
    p->at += peek(p) == '-';
    TRY(skip_whole(p));
    if (peek(p) == '.') {
        p->at++;
        TRY(skip_digits(p));
    }
    if (peek(p) == 'e' || peek(p) == 'E') {
        p->at++;
        p->at += peek(p) == '+' || peek(p) == '-';
        TRY(skip_digits(p));
    }
    *out = (struct text){p->source.data + start, p->at - start};
    if (out->len > JSON_NUMBER_MAX)
        return err_set(p->e, STATUS_BAD_FILE,
                       "JSON at byte %zu: expected numbers of at most %d bytes, found %zu", start,
                       JSON_NUMBER_MAX, out->len);
    return STATUS_OK;
}

static enum status parse_literal(struct json_parse *p, struct json_node *node)
{
    static const struct {
        const char *text;
        enum json_kind kind;
    } literals[] = {{"null", JSON_NULL}, {"true", JSON_BOOL}, {"false", JSON_BOOL}};
    for (size_t i = 0; i < sizeof literals / sizeof *literals; i++) {
        if (!text_starts_with(json_rest(p), literals[i].text))
            continue;
        node->kind = literals[i].kind;
        node->text = (struct text){p->source.data + p->at, strlen(literals[i].text)};
        p->at += node->text.len;
        return STATUS_OK;
    }
    return unexpected(p, "a value");
}

/* --- containers ------------------------------------------------------------------------------ */

static enum status open_container(struct json_parse *p, struct json_node *node, enum json_kind kind)
{
    if (p->depth == p->limits->depth)
        return err_set(
            p->e, STATUS_BAD_FILE,
            "JSON at byte %zu: expected at most %d containers in one another, found more", p->at,
            p->limits->depth);
    node->kind = kind;
    node->text.data = p->source.data + p->at;
    node->span = p->open;
    p->open = (uint32_t)(node - p->r->nodes);
    p->depth++;
    p->at++;
    return STATUS_OK;
}

/* By key, equal ones in the order of the text. */
static int compare_members(const void *a, const void *b)
{
    const struct json_node *x = *(const struct json_node *const *)a;
    const struct json_node *y = *(const struct json_node *const *)b;
    const int order = text_order(x->key, y->key);
    return order ? order : (x > y) - (x < y);
}

static enum status reserve_members(struct json_parse *p, uint32_t n)
{
    struct json_reader *r = p->r;
    if (r->members_cap >= n)
        return STATUS_OK;
    const uint64_t cap = (uint64_t)n + n / 2;
    size_t bytes = SIZE_MAX;
    const struct json_node **members = NULL;
    if (size_of_array(cap, sizeof *members, &bytes))
        members = malloc(bytes);
    if (!members)
        return err_no_memory(p->e, "comparing JSON keys", bytes);
    free(r->members);
    r->members = members;
    r->members_cap = cap;
    return STATUS_OK;
}

static enum status sort_members(struct json_parse *p, const struct json_node *object)
{
    TRY(reserve_members(p, object->n));
    const struct json_node **members = p->r->members;
    uint32_t n = 0;
    for (const struct json_node *c = NULL; (c = json_child(object, c));)
        members[n++] = c;
    assert(n == object->n);
    qsort(members, n, sizeof *members, compare_members);
    return STATUS_OK;
}

/* No key twice; else the first that has been there before is named. */
static enum status check_members(struct json_parse *p, const struct json_node *object)
{
    const struct json_node *again = NULL;
    if (object->n < 2)
        return STATUS_OK;
    TRY(sort_members(p, object));
    for (uint32_t i = 1; i < object->n; i++) {
        const struct json_node *member = p->r->members[i];
        if (text_equal(member->key, p->r->members[i - 1]->key) && (!again || member < again))
            again = member;
    }
    if (!again)
        return STATUS_OK;
    return err_set(p->e, STATUS_BAD_FILE,
                   "JSON at byte %zu: expected every key once in an object, found \"%.*s\" again",
                   again->at, text_width(again->key), again->key.data);
}

static enum status close_container(struct json_parse *p)
{
    struct json_node *node = &p->r->nodes[p->open];
    p->at++;
    p->depth--;
    p->open = node->span;
    node->span = (uint32_t)(p->r->nodes + p->r->n_nodes - node);
    node->text.len = (size_t)(p->source.data + p->at - node->text.data);
    return node->kind == JSON_OBJECT ? check_members(p, node) : STATUS_OK;
}

/* --- values ---------------------------------------------------------------------------------- */

static enum status grow_nodes(struct json_parse *p)
{
    struct json_reader *r = p->r;
    const uint64_t cap = r->nodes_cap + (r->nodes_cap ? r->nodes_cap / 2 : FIRST_NODES);
    const uint64_t most = p->limits->values;
    size_t bytes = SIZE_MAX;
    struct json_node *nodes = NULL;
    if (size_of_array(cap < most ? cap : most, sizeof *nodes, &bytes))
        nodes = realloc(r->nodes, bytes);
    if (!nodes)
        return err_no_memory(p->e, "reading JSON", bytes);
    r->nodes = nodes;
    r->nodes_cap = bytes / sizeof *nodes;
    return STATUS_OK;
}

/* A value of the open container, of no kind yet. */
static enum status add_node(struct json_parse *p, struct json_node **out)
{
    struct json_reader *r = p->r;
    if (r->n_nodes == p->limits->values)
        return err_set(p->e, STATUS_BAD_FILE,
                       "JSON at byte %zu: expected at most %u values, found more", p->at,
                       (unsigned)p->limits->values);
    if (r->n_nodes == r->nodes_cap)
        TRY(grow_nodes(p));
    *out = &r->nodes[r->n_nodes++];
    **out = (struct json_node){.at = p->at, .span = 1};
    if (p->open != NO_CONTAINER)
        r->nodes[p->open].n++;
    return STATUS_OK;
}

static enum status parse_key(struct json_parse *p, struct text *key)
{
    if (peek(p) != '"')
        return unexpected(p, "a key in quotes");
    TRY(parse_string(p, key));
    skip_space(p);
    if (peek(p) != ':')
        return unexpected(p, "':'");
    p->at++;
    skip_space(p);
    return STATUS_OK;
}

static enum status parse_value(struct json_parse *p, struct json_node *node)
{
    const int c = peek(p);
    if (c == '{')
        return open_container(p, node, JSON_OBJECT);
    if (c == '[')
        return open_container(p, node, JSON_ARRAY);
    if (c == '"') {
        node->kind = JSON_STRING;
        return parse_string(p, &node->text);
    }
    if (c == '-' || is_digit(c)) {
        node->kind = JSON_NUMBER;
        return parse_number(p, &node->text);
    }
    return parse_literal(p, node);
}

/* A value, with its key where it needs one. Of a container only the opening bracket is read. */
static enum status parse_item(struct json_parse *p)
{
    struct json_node *node;
    skip_space(p);
    TRY(add_node(p, &node));
    if (p->open != NO_CONTAINER && p->r->nodes[p->open].kind == JSON_OBJECT)
        TRY(parse_key(p, &node->key));
    return parse_value(p, node);
}

/* Up to where the next item is to be, or to the end of the outermost value. */
static enum status parse_between(struct json_parse *p)
{
    while (p->open != NO_CONTAINER) {
        const struct json_node *open = &p->r->nodes[p->open];
        const bool is_object = open->kind == JSON_OBJECT;
        skip_space(p);
        if (peek(p) == (is_object ? '}' : ']')) {
            TRY(close_container(p));
            continue;
        }
        if (open->n == 0)
            return STATUS_OK;
        if (peek(p) != ',')
            return unexpected(p, is_object ? "',' or '}'" : "',' or ']'");
        p->at++;
        return STATUS_OK;
    }
    return STATUS_OK;
}

static enum status parse_text(struct json_parse *p)
{
    do {
        TRY(parse_item(p));
        TRY(parse_between(p));
    } while (p->open != NO_CONTAINER);
    skip_space(p);
    return peek(p) < 0 ? STATUS_OK : unexpected(p, "the end");
}

enum status json_read(struct json_reader *r, struct text source, const struct json_limits *limits,
                      const struct json_node **root, struct err *e)
{
    assert(limits->values < NO_CONTAINER && limits->depth >= 0);
    struct json_parse p = {.r = r,
                           .source = source.data ? source : text_of(""),
                           .limits = limits,
                           .open = NO_CONTAINER,
                           .e = e};
    r->n_nodes = 0;
    r->strings_len = 0;
    if (source.len > limits->bytes)
        return err_set(e, STATUS_BAD_FILE, "JSON: expected at most %zu bytes, found %zu",
                       limits->bytes, source.len);
    TRY(parse_text(&p));
    *root = r->nodes;
    return STATUS_OK;
}

void json_reader_free(struct json_reader *r)
{
    free(r->nodes);
    free(r->strings);
    free(r->members);
    *r = (struct json_reader){0};
}
