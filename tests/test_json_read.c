/* The JSON reader: what it takes, what it refuses and with which words, and its memory. */
#include "formats/json_read.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support.h"

/* --- allocations: counted, and failing from one on ------------------------------------------- */

static bool armed; /* Check allocates too */
static int allocations, fails_at = -1;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);

static bool fails(void)
{
    return armed && allocations++ == fails_at;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

/* --- helpers --------------------------------------------------------------------------------- */

static struct json_reader reader;
static const struct json_limits limits = {.bytes = 1 << 20, .values = 1 << 16, .depth = 8};

/* In memory of its own without an end, so that a read past it is caught. */
static enum status read_copy(struct text source, const struct json_limits *most,
                             const struct json_node **root, struct err *e)
{
    static char *copy;
    free(copy);
    copy = malloc(source.len + !source.len);
    if (source.len)
        memcpy(copy, source.data, source.len);
    return json_read(&reader, (struct text){copy, source.len}, most, root, e);
}

static const struct json_node *read_bytes(const char *bytes, size_t len)
{
    const struct json_node *root = NULL;
    const enum status s = read_copy((struct text){bytes, len}, &limits, &root, &err);
    ck_assert_msg(s == STATUS_OK, "%s: %s", bytes, err.text);
    return root;
}

static const struct json_node *read_string(const char *source)
{
    return read_bytes(source, strlen(source));
}

static void refused_bytes(const char *bytes, size_t len, const struct json_limits *most,
                          const char *message)
{
    const struct json_node *root = NULL;
    ck_assert_int_eq(read_copy((struct text){bytes, len}, most, &root, &err), STATUS_BAD_FILE);
    ck_assert_ptr_null(root);
    ck_assert_str_eq(err.text, message);
}

static void free_reader(void)
{
    json_reader_free(&reader);
    json_reader_free(&reader);
    ck_assert_ptr_null(reader.nodes);
}

/* --- structure ------------------------------------------------------------------------------- */

static void is_node(const struct json_node *node, enum json_kind kind, const char *key,
                    const char *text, size_t at)
{
    ck_assert_ptr_nonnull(node);
    ck_assert_int_eq(node->kind, kind);
    ck_assert_uint_eq(node->at, at);
    ck_assert_msg(text_is(node->text, text), "%.*s", text_width(node->text), node->text.data);
    if (key)
        ck_assert(text_is(node->key, key));
    else
        ck_assert_ptr_null(node->key.data);
}

TEST(values_in_their_order, .after = free_reader)
{
    const struct json_node *root =
        read_string(" {\"a\" : [1, -2.5e+3,\n\t[ ] ] ,\r\"b\":{\"\":null,\"x\":{}},\"c\":\"d\"} ");
    is_node(root, JSON_OBJECT, NULL,
            "{\"a\" : [1, -2.5e+3,\n\t[ ] ] ,\r\"b\":{\"\":null,\"x\":{}},\"c\":\"d\"}", 1);
    ck_assert(root->n == 3 && root->span == 9);

    const struct json_node *a = json_child(root, NULL);
    is_node(a, JSON_ARRAY, "a", "[1, -2.5e+3,\n\t[ ] ]", 2);
    ck_assert_uint_eq(a->n, 3);
    const struct json_node *element = json_child(a, NULL);
    is_node(element, JSON_NUMBER, NULL, "1", 9);
    ck_assert_ptr_null(json_child(element, NULL));
    element = json_child(a, element);
    is_node(element, JSON_NUMBER, NULL, "-2.5e+3", 12);
    element = json_child(a, element);
    is_node(element, JSON_ARRAY, NULL, "[ ]", 22);
    ck_assert(element->n == 0 && !json_child(element, NULL) && !json_child(a, element));

    const struct json_node *b = json_child(root, a);
    is_node(b, JSON_OBJECT, "b", "{\"\":null,\"x\":{}}", 30);
    ck_assert_uint_eq(b->n, 2);
    is_node(json_member(b, ""), JSON_NULL, "", "null", 35);
    is_node(json_member(b, "x"), JSON_OBJECT, "x", "{}", 43);
    ck_assert_ptr_null(json_member(b, "a"));

    const struct json_node *c = json_child(root, b);
    is_node(c, JSON_STRING, "c", "d", 51);
    ck_assert(json_member(root, "c") == c && !json_child(root, c));
}

TEST(one_value_is_a_text, .after = free_reader)
{
    static const struct {
        const char *source;
        enum json_kind kind;
        const char *text;
    } texts[] = {{"null", JSON_NULL, "null"},        {"\ttrue\n", JSON_BOOL, "true"},
                 {"false ", JSON_BOOL, "false"},     {"0", JSON_NUMBER, "0"},
                 {"-0", JSON_NUMBER, "-0"},          {"10", JSON_NUMBER, "10"},
                 {"0.0e0", JSON_NUMBER, "0.0e0"},    {"1E5", JSON_NUMBER, "1E5"},
                 {"1e-05", JSON_NUMBER, "1e-05"},    {"-1.25E+7", JSON_NUMBER, "-1.25E+7"},
                 {"\"\"", JSON_STRING, ""},          {"\"a b\"", JSON_STRING, "a b"},
                 {"[]", JSON_ARRAY, "[]"},           {"{ }", JSON_OBJECT, "{ }"},
                 {"\"\x7f/\"", JSON_STRING, "\x7f/"}};
    for (size_t i = 0; i < COUNT(texts); i++) {
        const struct json_node *root = read_string(texts[i].source);
        is_node(root, texts[i].kind, NULL, texts[i].text, strspn(texts[i].source, " \t\n"));
        ck_assert_uint_eq(root->span, 1);
    }
}

/* --- strings --------------------------------------------------------------------------------- */

TEST(escapes, .after = free_reader)
{
    static const struct {
        const char *source, *text;
    } strings[] = {
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20AC\"", "Aé€"},
        {"\"\\ud83d\\ude00\"", "😀"},
        {"\"\\uD800\\uDC00\\uDBFF\\uDFFF\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\"\\ud7ff\\ue000\\uffff\"", "\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"},
        {"\"before\\nbetween é\\nbehind\"", "before\nbetween é\nbehind"},
        {"\"\\u0120\"", "Ġ"},
        {"\"é€😀\"", "é€😀"},
    };
    for (size_t i = 0; i < COUNT(strings); i++)
        is_node(read_string(strings[i].source), JSON_STRING, NULL, strings[i].text, 0);
    const struct json_node *zero = read_string("\"a\\u0000b\"");
    ck_assert(text_equal(zero->text, (struct text){"a\0b", 3}));
}

/* Strings with escapes stay where they are while others are decoded. */
TEST(decoded_strings_live_together, .after = free_reader)
{
    enum { N = 5000 };
    char *source = malloc((size_t)N * 16 + 2);
    size_t len = 0;
    for (int i = 0; i < N; i++)
        len += (size_t)sprintf(source + len, "%c\"\\n%d\\u0041\"", i ? ',' : '[', i);
    source[len++] = ']';
    const struct json_node *root = read_bytes(source, len), *c = NULL;
    for (int i = 0; i < N; i++) {
        char expected[16];
        sprintf(expected, "\n%dA", i);
        c = json_child(root, c);
        ck_assert(text_is(c->text, expected));
    }
    ck_assert_ptr_null(json_child(root, c));
    free(source);
}

TEST(plain_strings_are_borrowed, .after = free_reader)
{
    const char *const source = "[\"abc\",\"a\\tc\"]";
    const struct json_node *root = NULL;
    expect_ok(json_read(&reader, text_of(source), &limits, &root, &err));
    ck_assert_ptr_eq(root[1].text.data, source + 2);
    ck_assert(root[2].text.data < source || root[2].text.data >= source + strlen(source));
}

/* --- what is refused ------------------------------------------------------------------------- */

static const struct {
    const char *source, *message;
} bad[] = {
    {"", "0: expected a value, found the end"},
    {" \n ", "3: expected a value, found the end"},
    {"\xef\xbb\xbf{}", "0: expected a value, found a byte-order mark"},
    {"{}\xef\xbb\xbf", "2: expected the end, found byte 0xef"},
    {"\f1", "0: expected a value, found byte 0x0c"},
    {"\xc2\xa0", "0: expected a value, found byte 0xc2"},
    {"// a", "0: expected a value, found '/'"},
    {"'a'", "0: expected a value, found '''"},
    {"a", "0: expected a value, found 'a'"},
    {"]", "0: expected a value, found ']'"},
    {",", "0: expected a value, found ','"},
    {"{} {}", "3: expected the end, found '{'"},
    {"1 2", "2: expected the end, found '2'"},
    {"nul", "0: expected a value, found 'n'"},
    {"True", "0: expected a value, found 'T'"},
    {"truee", "4: expected the end, found 'e'"},
    {"NaN", "0: expected a value, found 'N'"},
    {"Infinity", "0: expected a value, found 'I'"},
    {"-Infinity", "1: expected a digit, found 'I'"},
    /* numbers */
    {"-", "1: expected a digit, found the end"},
    {"+1", "0: expected a value, found '+'"},
    {".5", "0: expected a value, found '.'"},
    {"1.", "2: expected a digit, found the end"},
    {"1.e5", "2: expected a digit, found 'e'"},
    {"1e", "2: expected a digit, found the end"},
    {"1e+", "3: expected a digit, found the end"},
    {"1e5.5", "3: expected the end, found '.'"},
    {"01", "1: expected the end, found '1'"},
    {"-01", "2: expected the end, found '1'"},
    {"0x1", "1: expected the end, found 'x'"},
    {"1_000", "1: expected the end, found '_'"},
    {"--1", "1: expected a digit, found '-'"},
    /* arrays and objects */
    {"[", "1: expected a value, found the end"},
    {"[1", "2: expected ',' or ']', found the end"},
    {"[1,", "3: expected a value, found the end"},
    {"[1,]", "3: expected a value, found ']'"},
    {"[,1]", "1: expected a value, found ','"},
    {"[1 2]", "3: expected ',' or ']', found '2'"},
    {"[1}", "2: expected ',' or ']', found '}'"},
    {"[}", "1: expected a value, found '}'"},
    {"[1]]", "3: expected the end, found ']'"},
    {"{", "1: expected a key in quotes, found the end"},
    {"{]", "1: expected a key in quotes, found ']'"},
    {"{a:1}", "1: expected a key in quotes, found 'a'"},
    {"{1:1}", "1: expected a key in quotes, found '1'"},
    {"{\"a\"}", "4: expected ':', found '}'"},
    {"{\"a\" 1}", "5: expected ':', found '1'"},
    {"{\"a\":}", "5: expected a value, found '}'"},
    {"{\"a\":1", "6: expected ',' or '}', found the end"},
    {"{\"a\":1,", "7: expected a key in quotes, found the end"},
    {"{\"a\":1,}", "7: expected a key in quotes, found '}'"},
    {"{\"a\":1]", "6: expected ',' or '}', found ']'"},
    {"{\"a\":1 \"b\":2}", "7: expected ',' or '}', found '\"'"},
    {"{\"a\"::1}", "5: expected a value, found ':'"},
    /* keys */
    {"{\"a\":1,\"a\":2}", "7: expected every key once in an object, found \"a\" again"},
    {"{\"a\":1, \"\\u0061\":2}", "8: expected every key once in an object, found \"a\" again"},
    {"{\"b\":1,\"a\":1,\"ab\":1,\"b\":1,\"a\":1,\"b\":1}",
     "26: expected every key once in an object, found \"a\" again"},
    {"[{\"\":{},\"\":1}]", "8: expected every key once in an object, found \"\" again"},
/* strings */
#define MORE "expected more of a string (control characters as escapes) or '\"', found "
    {"\"", "1: " MORE "the end"},
    {"\"a", "2: " MORE "the end"},
    {"\"a\nb\"", "2: " MORE "byte 0x0a"},
    {"\"\x1f\"", "1: " MORE "byte 0x1f"},
    {"\"\\n\t\"", "3: " MORE "byte 0x09"},
    {"{\"a\tb\":1}", "3: " MORE "byte 0x09"},
#define PAIR                                                                                       \
    "expected surrogates in pairs, \\ud800 to \\udbff before \\udc00 to \\udfff, found '\\'"
#define ESCAPE "expected one of \"\\/bfnrtu after a backslash, found "
    {"\"\\", "2: " ESCAPE "the end"},
    {"\"\\x41\"", "2: " ESCAPE "'x'"},
    {"\"\\'\"", "2: " ESCAPE "'''"},
    {"\"\\\n\"", "2: " ESCAPE "byte 0x0a"},
    {"\"\\U0041\"", "2: " ESCAPE "'U'"},
    {"\"\\u\"", "3: expected a hexadecimal digit, found '\"'"},
    {"\"\\u004", "6: expected a hexadecimal digit, found the end"},
    {"\"\\u00g0\"", "5: expected a hexadecimal digit, found 'g'"},
    {"\"\\u00G0\"", "5: expected a hexadecimal digit, found 'G'"},
    {"\"\\u+041\"", "3: expected a hexadecimal digit, found '+'"},
    {"\"\\ud83d\"", "1: " PAIR},
    {"\"\\ud83da\"", "1: " PAIR},
    {"\"\\ud83d\\n\"", "1: " PAIR},
    {"\"\\ud83d\\ud83d\"", "1: " PAIR},
    {"\"\\ud83d\\u0041\"", "1: " PAIR},
    {"\"\\ud83d\\ude0\"", "12: expected a hexadecimal digit, found '\"'"},
    {"\"a\\ude00\"", "2: " PAIR},
    {"\"\\udfff\\ud800\"", "1: " PAIR},
    /* UTF-8 */
    {"\"\x80\"", "1: expected UTF-8, found byte 0x80"},
    {"\"a\xc3\"", "2: expected UTF-8, found byte 0xc3"},
    {"\"\xc0\xaf\"", "1: expected UTF-8, found byte 0xc0"},
    {"\"\xe0\x80\xaf\"", "1: expected UTF-8, found byte 0xe0"},
    {"\"\xed\xa0\x80\"", "1: expected UTF-8, found byte 0xed"},
    {"\"\xf4\x90\x80\x80\"", "1: expected UTF-8, found byte 0xf4"},
    {"\"\xff\"", "1: expected UTF-8, found byte 0xff"},
    {"\"\\n\xe2\x82\"", "3: expected UTF-8, found byte 0xe2"},
    {"{\"\xe9\":1}", "2: expected UTF-8, found byte 0xe9"},
    {"\"\xe2\x82", "1: expected UTF-8, found byte 0xe2"},
};

TEST(what_is_not_json, .after = free_reader)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        char message[256];
        snprintf(message, sizeof message, "JSON at byte %s", bad[i].message);
        refused_bytes(bad[i].source, strlen(bad[i].source), &limits, message);
    }
    refused_bytes("1\0", 2, &limits, "JSON at byte 1: expected the end, found byte 0x00");
    refused_bytes("\0", 1, &limits, "JSON at byte 0: expected a value, found byte 0x00");
    refused_bytes("\"\0\"", 3, &limits, "JSON at byte 1: " MORE "byte 0x00");
    refused_bytes("\"\\\0\"", 4, &limits, "JSON at byte 2: " ESCAPE "byte 0x00");
    refused_bytes("\"\\u\0\"", 5, &limits,
                  "JSON at byte 3: expected a hexadecimal digit, found byte 0x00");
    refused_bytes(NULL, 0, &limits, "JSON at byte 0: expected a value, found the end");
}

/* A text of JSON cut anywhere is none, but for a number's. */
TEST(every_beginning_is_refused, .after = free_reader)
{
    static const char source[] =
        "{\"a\\ud83d\\ude00\": [-1.5e+10, true, {\"é\": null}, \"\\u00e9\"]}";
    const struct json_node *root;
    for (size_t len = 0; len < sizeof source - 1; len++)
        ck_assert_int_eq(read_copy((struct text){source, len}, &limits, &root, &err),
                         STATUS_BAD_FILE);
    read_bytes(source, sizeof source - 1);
}

/* --- limits ---------------------------------------------------------------------------------- */

TEST(bounds, .after = free_reader)
{
    struct json_limits most = {.bytes = 9, .values = 4, .depth = 2};
    const struct json_node *root;
    expect_ok(read_copy(text_of("[[1, 22]]"), &most, &root, &err));
    refused_bytes("[[1, 222]]", 10, &most, "JSON at byte 0: expected at most 9 bytes, found more");
    refused_bytes("[1,2,3,4]", 9, &most, "JSON at byte 7: expected at most 4 values, found more");
    refused_bytes("[[{}]]", 6, &most,
                  "JSON at byte 2: expected at most 2 containers in one another, found more");
    expect_ok(read_copy(text_of("[[],{},1]"), &most, &root, &err));
    most.depth = 0;
    expect_ok(read_copy(text_of("1"), &most, &root, &err));
    refused_bytes("[]", 2, &most,
                  "JSON at byte 0: expected at most 0 containers in one another, found more");
    most.values = 0;
    refused_bytes("1", 1, &most, "JSON at byte 0: expected at most 0 values, found more");
}

/* The stack does not grow with what is refused. */
TEST(a_million_containers, .after = free_reader)
{
    enum { N = 1000000, DEPTH = 64 };
    const struct json_limits most = {.bytes = SIZE_MAX, .values = N, .depth = DEPTH};
    char *source = malloc(N);
    const struct json_node *root;
    memset(source, '[', N);
    memset(source + DEPTH, ']', DEPTH);
    expect_ok(json_read(&reader, (struct text){source, 2 * DEPTH}, &most, &root, &err));
    ck_assert_uint_eq(root->span, DEPTH);
    ck_assert_uint_eq(root[DEPTH - 1].span, 1);
    memset(source, '[', N);
    expect_status(json_read(&reader, (struct text){source, N}, &most, &root, &err), STATUS_BAD_FILE,
                  "at byte 64: expected at most 64 containers");
    free(source);
}

/* 100,000 keys in an order that is not theirs; then the first of them again. */
TEST(many_keys, .after = free_reader)
{
    enum { N = 100000 };
    const struct json_limits most = {.bytes = SIZE_MAX, .values = 2 * N, .depth = 1};
    char *source = malloc((size_t)N * 24);
    size_t len = 0;
    for (int i = 0; i < N; i++)
        len += (size_t)sprintf(source + len, "%s\"%d\":%d", i ? "," : "{", i * 7 % N, i);
    source[len] = '}';
    const struct json_node *root;
    expect_ok(json_read(&reader, (struct text){source, len + 1}, &most, &root, &err));
    ck_assert_uint_eq(root->n, N);
    ck_assert(text_is(json_member(root, "7")->text, "1"));
    len += (size_t)sprintf(source + len, ",\"7\":0}");
    expect_status(json_read(&reader, (struct text){source, len}, &most, &root, &err),
                  STATUS_BAD_FILE, "found \"7\" again");
    free(source);
}

TEST(long_numbers, .after = free_reader)
{
    char source[JSON_NUMBER_MAX + 2];
    memset(source, '3', sizeof source);
    const struct json_node *root = read_bytes(source, JSON_NUMBER_MAX);
    ck_assert_uint_eq(root->text.len, JSON_NUMBER_MAX);
    refused_bytes(source, JSON_NUMBER_MAX + 1, &limits,
                  "JSON at byte 1101: expected at most 1100 bytes of a number, found more");
}

/* --- getters --------------------------------------------------------------------------------- */

TEST(exact_whole_numbers, .after = free_reader)
{
    static const struct {
        const char *source;
        uint64_t value;
    } good[] = {{"0", 0},
                {"-0", 0},
                {"9007199254740993", 9007199254740993u},
                {"9223372036854775808", (uint64_t)INT64_MAX + 1},
                {"18446744073709551615", UINT64_MAX}};
    uint64_t u;
    int64_t i;
    for (size_t k = 0; k < COUNT(good); k++) {
        expect_ok(json_node_u64(read_string(good[k].source), &u, &err));
        ck_assert_uint_eq(u, good[k].value);
    }
    expect_ok(json_node_i64(read_string("-9223372036854775808"), INT64_MIN, INT64_MAX, &i, &err));
    ck_assert(i == INT64_MIN);
    expect_ok(json_node_i64(read_string("9223372036854775807"), INT64_MIN, INT64_MAX, &i, &err));
    ck_assert(i == INT64_MAX);
    expect_ok(json_node_i64(read_string("-0"), 0, 1, &i, &err));
    ck_assert(i == 0);
    expect_ok(json_node_i64(read_string("-17"), -17, 1, &i, &err));
    ck_assert(i == -17);
}

static void no_u64(const char *source, const char *found)
{
    uint64_t u = 77;
    char message[256];
    ck_assert_int_eq(json_node_u64(json_member(read_string(source), "n"), &u, &err),
                     STATUS_BAD_FILE);
    snprintf(message, sizeof message,
             "\"n\" at byte 1: expected a whole number from 0 to 18446744073709551615, found %s",
             found);
    ck_assert_str_eq(err.text, message);
    ck_assert_uint_eq(u, 77);
}

static void no_i64(const char *source, const char *found)
{
    int64_t i = 77;
    char message[256];
    ck_assert_int_eq(json_node_i64(read_string(source), -5, 4096, &i, &err), STATUS_BAD_FILE);
    snprintf(message, sizeof message,
             "the value at byte 0: expected a whole number from -5 to 4096, found %s", found);
    ck_assert_str_eq(err.text, message);
    ck_assert(i == 77);
}

TEST(not_whole_and_out_of_range, .after = free_reader)
{
    no_u64("{\"n\":1.0}", "1.0, which is not whole");
    no_u64("{\"n\":1e3}", "1e3, which is not whole");
    no_u64("{\"n\":99999999999999999999.5}", "99999999999999999999.5, which is not whole");
    no_u64("{\"n\":-1}", "-1, which is out of range");
    no_u64("{\"n\":18446744073709551616}", "18446744073709551616, which is out of range");
    no_u64("{\"n\":100000000000000000000000000000000000000000000}",
           "1000000000000000000000000000000000000000..., which is out of range");
    no_u64("{\"n\":\"5\"}", "a string");
    no_u64("{\"n\":[5]}", "an array");
    no_u64("{\"n\":{}}", "an object");
    no_u64("{\"n\":null}", "null");
    no_u64("{\"n\":true}", "true");
    no_i64("4097", "4097, which is out of range");
    no_i64("-6", "-6, which is out of range");
    no_i64("0.5", "0.5, which is not whole");
    no_i64("-9223372036854775809", "-9223372036854775809, which is out of range");
    no_i64("18446744073709551616", "18446744073709551616, which is out of range");
    no_i64("false", "false");
}

TEST(exact_doubles, .after = free_reader)
{
    static const struct {
        const char *source;
        double value;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"0.1", 0.1},
        {"-2.5e3", -2500},
        {"1e-5", 1e-5},
        {"9007199254740993", 9007199254740992.0},                        /* a tie: to even */
        {"9007199254740993.0000000000000000000001", 9007199254740994.0}, /* and just above it */
        {"1.7976931348623157e308", DBL_MAX},
        {"4.9406564584124654e-324", 0x1p-1074},
        {"2.2250738585072011e-308", 0x0.fffffffffffffp-1022},
        {"1e-400", 0},
        {"0e99999", 0},
    };
    double x;
    for (size_t i = 0; i < COUNT(good); i++) {
        expect_ok(json_node_double(read_string(good[i].source), &x, &err));
        ck_assert_double_eq(x, good[i].value);
    }
    expect_ok(json_node_double(read_string("-0"), &x, &err));
    ck_assert(x == 0 && signbit(x));
    x = 77;
    ck_assert_int_eq(json_node_double(read_string("-1e309"), &x, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.text,
                     "the value at byte 0: expected a number that a double can hold, found "
                     "-1e309, which is out of range");
    ck_assert_int_eq(json_node_double(read_string("\"1\""), &x, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.text, "the value at byte 0: expected a number, found a string");
    ck_assert_double_eq(x, 77);
}

/* The smallest double with all its digits. */
TEST(the_longest_double, .after = free_reader)
{
    char source[JSON_NUMBER_MAX + 1];
    double x;
    const int len = snprintf(source, sizeof source, "%.1074f", 0x1p-1074);
    ck_assert_int_lt(len, JSON_NUMBER_MAX);
    expect_ok(json_node_double(read_string(source), &x, &err));
    ck_assert_double_eq(x, 0x1p-1074);
}

TEST(kinds, .after = free_reader)
{
    const struct json_node *root =
        read_string("{\"s\":\"x\",\"t\":true,\"f\":false,\"o\":{},\"\\u001b\":3}");
    const struct json_node *node = NULL;
    struct text text = {NULL, 0};
    bool is = false;
    expect_ok(json_node_text(json_member(root, "s"), &text, &err));
    ck_assert(text_is(text, "x"));
    expect_ok(json_node_bool(json_member(root, "t"), &is, &err));
    ck_assert(is);
    expect_ok(json_node_bool(json_member(root, "f"), &is, &err));
    ck_assert(!is);
    expect_ok(json_require(root, "o", JSON_OBJECT, &node, &err));
    ck_assert_ptr_eq(node, json_member(root, "o"));
    ck_assert_str_eq(err.text, "");

    ck_assert_int_eq(json_node_text(json_member(root, "\x1b"), &text, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.text, "\"?\" at byte 35: expected a string, found 3");
    ck_assert_int_eq(json_node_bool(json_member(root, "s"), &is, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.text, "\"s\" at byte 1: expected true or false, found a string");
    ck_assert_int_eq(json_require(root, "s", JSON_ARRAY, &node, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.text, "\"s\" at byte 1: expected an array, found a string");
    ck_assert_int_eq(json_require(root, "p", JSON_STRING, &node, &err), STATUS_BAD_FILE);
    ck_assert_str_eq(err.text, "the object at byte 0: expected \"p\", a string, found no such key");
    ck_assert_ptr_eq(node, json_member(root, "o"));
    expect_ok(json_expect(root, JSON_OBJECT, &err));
    ck_assert_int_eq(json_expect(root, JSON_NULL, &err), STATUS_BAD_FILE);
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Two objects that need every kind of memory, the second more of each. */
static const char *const hungry[] = {
    "{\"\\u0061\":1,\"b\":2}",
    "[{\"a\":\"\\n\",\"b\":1,\"c\":1,\"d\":1},0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
    "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"};

static enum status read_armed(const char *source, const struct json_node **root, struct err *e)
{
    armed = true;
    const enum status s = json_read(&reader, text_of(source), &limits, root, e);
    armed = false;
    return s;
}

TEST(memory_serves_again, .after = free_reader)
{
    const struct json_node *root;
    for (int i = 0; i < 1000; i++) {
        for (int k = 1; k >= 0; k--)
            expect_ok(read_armed(hungry[k], &root, &err));
        if (i == 0)
            allocations = 0;
    }
    ck_assert(allocations == 0 && text_is(root[1].key, "a"));
}

/* Each allocation in its turn; what fails can be tried again. */
TEST(allocations_that_fail, .after = free_reader)
{
    for (int n = 0;; n++) {
        ck_assert_int_lt(n, 50);
        bool failed = false;
        allocations = 0;
        fails_at = n;
        for (int k = 0; k < 2; k++) {
            const struct json_node *root = NULL;
            enum status s = read_armed(hungry[k], &root, &err);
            if (s != STATUS_OK) {
                expect_status(s, STATUS_NO_MEMORY, "out of memory: ");
                ck_assert_ptr_null(root);
                failed = true;
                s = json_read(&reader, text_of(hungry[k]), &limits, &root, &err);
            }
            ck_assert_int_eq(s, STATUS_OK);
            ck_assert_uint_eq(root->n, k ? 69 : 2);
        }
        json_reader_free(&reader);
        if (!failed) {
            ck_assert_int_eq(n, 5); /* nodes, strings, members, and larger ones */
            break;
        }
    }
    fails_at = -1;
}
