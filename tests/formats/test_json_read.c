/* The JSON reader: what it takes, what it refuses and with which words. (Allocations that fail:
 * test_faults.c, which reads prompts.) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/json_read.h"
#include "support.h"

/* --- helpers --------------------------------------------------------------------------------- */

static struct json_reader reader;
static const struct json_node *root; /* of what was read last */
static const struct json_limits limits = {.bytes = 1 << 20, .values = 1 << 16, .depth = 8};

/* In memory of its own without an end, so that a read past it is caught. */
static enum status read_copy(struct text source, struct json_limits most)
{
    static char *copy;
    free(copy);
    copy = malloc(source.len + !source.len);
    if (source.len)
        memcpy(copy, source.data, source.len);
    root = NULL;
    return json_read(&reader, (struct text){copy, source.len}, &most, &root, &err);
}

static const struct json_node *read_string(const char *source)
{
    expect_ok(read_copy(text_of(source), limits));
    return root;
}

/* `message` is behind "JSON at byte ". */
static void refused(const char *bytes, size_t len, struct json_limits most, const char *message)
{
    ck_assert_int_eq(read_copy((struct text){bytes, len}, most), STATUS_BAD_FILE);
    ck_assert_ptr_null(root);
    ck_assert_str_eq(err.text + strlen("JSON at byte "), message);
}

static void free_reader(void)
{
    json_reader_free(&reader);
    json_reader_free(&reader);
    ck_assert_ptr_null(reader.nodes);
}

#define READER .after = free_reader

/* --- structure ------------------------------------------------------------------------------- */

/* A line a node: kind, byte, elements, span, key and text. */
TEST(values_in_their_order, READER)
{
    static const char *const expected[] = {
        "5 1 3 9 - {\"a\" : [1, -2.5e+3,\n\t[ ] ] ,\r\"b\":{\"\":null,\"x\":{}},\"c\":\"d\"}",
        "4 2 3 4 a [1, -2.5e+3,\n\t[ ] ]",
        "2 9 0 1 - 1",
        "2 12 0 1 - -2.5e+3",
        "4 22 0 1 - [ ]",
        "5 30 2 3 b {\"\":null,\"x\":{}}",
        "0 35 0 1  null",
        "5 43 0 1 x {}",
        "3 51 0 1 c d",
    };
    read_string(" {\"a\" : [1, -2.5e+3,\n\t[ ] ] ,\r\"b\":{\"\":null,\"x\":{}},\"c\":\"d\"} ");
    ck_assert_uint_eq(root->span, COUNT(expected));
    for (size_t i = 0; i < COUNT(expected); i++) {
        const struct text key = root[i].key.data ? root[i].key : text_of("-");
        char line[128];
        snprintf(line, sizeof line, "%d %zu %u %u %.*s %.*s", (int)root[i].kind, root[i].at,
                 (unsigned)root[i].n, (unsigned)root[i].span, (int)key.len, key.data,
                 (int)root[i].text.len, root[i].text.data);
        ck_assert_str_eq(line, expected[i]);
    }
    ck_assert(json_child(root, NULL) == root + 1 && json_child(root, root + 1) == root + 5);
    ck_assert(json_child(root, root + 5) == root + 8 && !json_child(root, root + 8));
    ck_assert(!json_child(root + 2, NULL) && !json_child(root + 4, NULL));
    ck_assert(json_member(root, "c") == root + 8 && json_member(root + 5, "") == root + 6);
    ck_assert_ptr_null(json_member(root + 5, "a"));
}

TEST(one_value_is_a_text, READER)
{
    static const struct {
        const char *source;
        enum json_kind kind;
        const char *text;
    } texts[] = {
        {"null", JSON_NULL, "null"},
        {"\ttrue\n", JSON_BOOL, "true"},
        {"false ", JSON_BOOL, "false"},
        {"-0", JSON_NUMBER, "-0"},
        {"-1.25E+7", JSON_NUMBER, "-1.25E+7"},
        {"\"\"", JSON_STRING, ""},
        {"\"\x7f/\"", JSON_STRING, "\x7f/"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", JSON_STRING, "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20AC\"", JSON_STRING, "Aé€"},
        {"\"\\uD800\\uDC00\\uDBFF\\uDFFF\"", JSON_STRING, "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\"\\ud7ff\\ue000\\uffff\"", JSON_STRING, "\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"},
        {"\"é€😀\"", JSON_STRING, "é€😀"},
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        read_string(texts[i].source);
        ck_assert(root->kind == texts[i].kind && !root->key.data && root->span == 1);
        ck_assert_uint_eq(root->at, strspn(texts[i].source, " \t\n"));
        ck_assert_msg(text_is(root->text, texts[i].text), "%s", texts[i].source);
    }
    ck_assert(text_equal(read_string("\"a\\u0000b\"")->text, (struct text){"a\0b", 3}));
    /* The longest number, and the smallest double with all its digits. */
    char source[JSON_NUMBER_MAX + 2];
    double x;
    memset(source, '3', sizeof source);
    refused(source, JSON_NUMBER_MAX + 1, limits,
            "1101: expected at most 1100 bytes of a number, found more");
    source[JSON_NUMBER_MAX] = 0;
    ck_assert_uint_eq(read_string(source)->text.len, JSON_NUMBER_MAX);
    ck_assert_int_lt(snprintf(source, sizeof source, "%.1074f", 0x1p-1074), JSON_NUMBER_MAX);
    expect_ok(json_node_double(read_string(source), &x, &err));
    ck_assert_double_eq(x, 0x1p-1074);
}

/* --- what is refused ------------------------------------------------------------------------- */

/* The rows of tests/data/broken/json.txt. */
TEST(what_is_not_json, READER)
{
    char *rest = file_text("tests/data/broken/json.txt", NULL), *row;
    int n = 0;
    for (; (row = next_row(&rest)); n++) {
        char *text = next_field(&row);
        unescape(text);
        unescape(row);
        refused(text, strlen(text), limits, row);
    }
    ck_assert_int_ge(n, 35);
    refused(
        "\"\0\"", 3, limits,
        "1: expected more of a string (control characters as escapes) or '\"', found byte 0x00");
    refused(NULL, 0, limits, "0: expected a value, found the end");
    /* A text of JSON cut anywhere is none, but for a number's. */
    static const char source[] =
        "{\"a\\ud83d\\ude00\": [-1.5e+10, true, {\"é\": null}, \"\\u00e9\"]}";
    for (size_t len = 0; len < sizeof source - 1; len++)
        ck_assert_int_eq(read_copy((struct text){source, len}, limits), STATUS_BAD_FILE);
    read_string(source);
}

/* --- limits ---------------------------------------------------------------------------------- */

TEST(bounds, READER)
{
    static const struct {
        size_t bytes, values, depth;
        const char *source, *message; /* NULL: none */
    } cases[] = {
        {9, 4, 2, "[[1, 22]]", NULL},
        {9, 4, 2, "[[1, 222]]", "0: expected at most 9 bytes, found more"},
        {9, 4, 2, "[1,2,3,4]", "7: expected at most 4 values, found more"},
        {9, 4, 2, "[[{}]]", "2: expected at most 2 containers in one another, found more"},
        {9, 4, 2, "[[],{},1]", NULL},
        {9, 4, 0, "1", NULL},
        {9, 4, 0, "[]", "0: expected at most 0 containers in one another, found more"},
        {9, 0, 0, "1", "0: expected at most 0 values, found more"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct text source = text_of(cases[i].source);
        const struct json_limits most = {
            .bytes = cases[i].bytes, .values = cases[i].values, .depth = cases[i].depth};
        if (cases[i].message)
            refused(source.data, source.len, most, cases[i].message);
        else
            expect_ok(read_copy(source, most));
    }
}

/* The stack does not grow with what is refused. */
TEST(a_million_containers, READER)
{
    enum { N = 1000000, DEPTH = 64 };
    const struct json_limits most = {.bytes = SIZE_MAX, .values = N, .depth = DEPTH};
    char *source = memset(allocated(N), '[', N);
    memset(source + DEPTH, ']', DEPTH);
    expect_ok(json_read(&reader, (struct text){source, 2 * DEPTH}, &most, &root, &err));
    ck_assert(root->span == DEPTH && root[DEPTH - 1].span == 1);
    memset(source, '[', N);
    expect_status(json_read(&reader, (struct text){source, N}, &most, &root, &err), STATUS_BAD_FILE,
                  "at byte 64: expected at most 64 containers");
}

/* 100,000 keys in an order that is not theirs; then the first of them again. */
TEST(many_keys, READER)
{
    enum { N = 100000 };
    const struct json_limits most = {.bytes = SIZE_MAX, .values = 2 * N, .depth = 1};
    char *source = allocated(N * 24);
    size_t len = 0;
    for (int i = 0; i < N; i++)
        len += (size_t)sprintf(source + len, "%s\"%d\":%d", i ? "," : "{", i * 7 % N, i);
    source[len] = '}';
    expect_ok(json_read(&reader, (struct text){source, len + 1}, &most, &root, &err));
    ck_assert(root->n == N && text_is(json_member(root, "7")->text, "1"));
    len += (size_t)sprintf(source + len, ",\"7\":0}");
    expect_status(json_read(&reader, (struct text){source, len}, &most, &root, &err),
                  STATUS_BAD_FILE, "found \"7\" again");
}

/* --- getters --------------------------------------------------------------------------------- */

/* What a getter gives of a value, 'u' a u64, 'i' an i64 from -5 to 4096, 'I' any, 'd' a double,
 * 't' a text, 'b' a bool. */
static enum status get(char getter, const struct json_node *node, char found[64])
{
    uint64_t u = 0;
    int64_t i = 0;
    double d = 0;
    struct text t = {"", 0};
    switch (getter) {
    case 'u':
        TRY(json_node_u64(node, &u, &err));
        return snprintf(found, 64, "%" PRIu64, u) < 0;
    case 'i':
    case 'I':
        TRY(json_node_i64(node, getter == 'i' ? -5 : INT64_MIN, getter == 'i' ? 4096 : INT64_MAX,
                          &i, &err));
        return snprintf(found, 64, "%" PRId64, i) < 0;
    case 'd':
        TRY(json_node_double(node, &d, &err));
        return snprintf(found, 64, "%a", d) < 0;
    default:
        TRY(json_node_text(node, &t, &err));
        return snprintf(found, 64, "%.*s", (int)t.len, t.data) < 0;
    }
}

/* Or the end of its message. */
TEST(values_by_their_kind, READER)
{
#define U64 "expected a whole number from 0 to 18446744073709551615, found "
#define I64 "expected a whole number from -5 to 4096, found "
    static const struct {
        char getter;
        const char *source, *found;
    } cases[] = {
        {'u', "0", "0"},
        {'u', "9007199254740993", "9007199254740993"},
        {'u', "18446744073709551615", "18446744073709551615"},
        {'u', "1.0", U64 "1.0, which is not whole"},
        {'u', "-1", U64 "-1, which is out of range"},
        {'u', "18446744073709551616", U64 "18446744073709551616, which is out of range"},
        {'u', "100000000000000000000000000000000000000000000",
         U64 "1000000000000000000000000000000000000000..., which is out of range"},
        {'u', "\"5\"", U64 "a string"},
        {'u', "null", U64 "null"},
        {'I', "-9223372036854775808", "-9223372036854775808"},
        {'I', "-9223372036854775809", "-9223372036854775809, which is out of range"},
        {'i', "-5", "-5"},
        {'i', "4097", I64 "4097, which is out of range"},
        {'i', "false", I64 "false"},
        {'d', "-0", "-0x0p+0"},
        {'d', "-2.5e3", "-0x1.388p+11"},
        {'d', "9007199254740993", "0x1p+53"}, /* a tie: to even */
        {'d', "9007199254740993.0000000000000000000001", "0x1.0000000000001p+53"},
        {'d', "1.7976931348623157e308", "0x1.fffffffffffffp+1023"},
        {'d', "4.9406564584124654e-324", "0x0.0000000000001p-1022"},
        {'d', "1e-400", "0x0p+0"},
        {'d', "-1e309",
         "expected a number that a double can hold, found -1e309, which is out of range"},
        {'d', "\"1\"", "expected a number, found a string"},
        {'t', "\"x\"", "x"},
        {'t', "3", "expected a string, found 3"},
    };
    for (size_t k = 0; k < COUNT(cases); k++) {
        char source[128], found[64];
        snprintf(source, sizeof source, "{\"\\u001b\":%s}", cases[k].source);
        const enum status s = get(cases[k].getter, json_member(read_string(source), "\x1b"), found);
        if (s) {
            ck_assert_int_eq(s, STATUS_BAD_FILE);
            ck_assert(strncmp(err.text, "\"?\" at byte 1: expected ", 24) == 0);
        }
        ck_assert_msg(s ? text_ends_with(text_of(err.text), cases[k].found)
                        : strcmp(found, cases[k].found) == 0,
                      "%s: %s", cases[k].source, s ? err.text : found);
    }
}

TEST(required_members, READER)
{
    const struct json_node *node = NULL;
    read_string("{\"s\":\"x\",\"o\":{}}");
    expect_ok(json_require(root, "o", JSON_OBJECT, &node, &err));
    ck_assert_ptr_eq(node, json_member(root, "o"));
    expect_status(json_require(root, "s", JSON_ARRAY, &node, &err), STATUS_BAD_FILE,
                  "\"s\" at byte 1: expected an array, found a string");
    expect_status(json_require(root, "p", JSON_STRING, &node, &err), STATUS_BAD_FILE,
                  "the object at byte 0: expected \"p\", a string, found no such key");
    ck_assert_ptr_eq(node, json_member(root, "o"));
    expect_ok(json_expect(root, JSON_OBJECT, &err));
    expect_status(json_expect(root, JSON_NULL, &err), STATUS_BAD_FILE,
                  "the value at byte 0: expected null, found an object");
}
