#include "base/rng.h"
#include "cases.h"
#include "gguf_bytes.h"
#include "support.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* --- vocabularies made here ------------------------------------------------------------------ */

#define MAX_TOKENS 320

/* 256 byte tokens (id = byte) and what a test adds. Every field may be changed before use. */
struct vocabulary {
    const char *model, *pre; /* NULL: no such key */
    char names[256][2];
    struct text tokens[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
    size_t n_tokens;
    bool has_types;
    struct text merges[MAX_TOKENS];
    size_t n_merges;
    bool has_merges;
    int bos, eos, adds_bos; /* -1: no such key */
};

static void vocabulary_init(struct vocabulary *v)
{
    memset(v, 0, sizeof *v);
    v->model = "gpt2";
    v->pre = "gpt-2";
    v->bos = v->eos = v->adds_bos = -1;
    v->n_tokens = 256;
    for (int byte = 0; byte < 256; byte++) {
        const size_t len = byte_alphabet_write((unsigned char)byte, v->names[byte]);
        v->tokens[byte] = (struct text){v->names[byte], len};
        v->types[byte] = 1;
    }
}

static void add_token(struct vocabulary *v, const char *name, int32_t type)
{
    v->tokens[v->n_tokens] = text_of(name);
    v->types[v->n_tokens++] = type;
    v->has_types = v->has_types || type != 1;
}

/* A merge alone; its result is to be a token. */
static void add_merge(struct vocabulary *v, const char *merge)
{
    v->merges[v->n_merges++] = text_of(merge);
    v->has_merges = true;
}

static void vocabulary_write(const struct vocabulary *v, struct gguf_bytes *b)
{
    if (v->model)
        gb_text(b, "tokenizer.ggml.model", v->model);
    if (v->pre)
        gb_text(b, "tokenizer.ggml.pre", v->pre);
    gb_texts(b, "tokenizer.ggml.tokens", v->tokens, v->n_tokens);
    if (v->has_types)
        gb_i32s(b, "tokenizer.ggml.token_type", v->types, v->n_tokens);
    if (v->has_merges)
        gb_texts(b, "tokenizer.ggml.merges", v->merges, v->n_merges);
    if (v->bos >= 0)
        gb_u32(b, "tokenizer.ggml.bos_token_id", (uint32_t)v->bos);
    if (v->eos >= 0)
        gb_u32(b, "tokenizer.ggml.eos_token_id", (uint32_t)v->eos);
    if (v->adds_bos >= 0)
        gb_bool(b, "tokenizer.ggml.add_bos_token", v->adds_bos);
}

/* Takes the bytes over. */
static enum status create_from(struct gguf_bytes *b, struct tokenizer **t, struct err *e)
{
    struct gguf *g;
    ck_assert_msg(gguf_parse(b->data, b->len, &g, e) == STATUS_OK, "%s", e->text);
    const enum status s = tokenizer_create(g, t, e);
    gguf_free(g);
    free(b->data); /* what the tokenizer needs it has copied */
    return s;
}

static enum status create(const struct vocabulary *v, struct tokenizer **t, struct err *e)
{
    struct gguf_bytes b = {0};
    vocabulary_write(v, &b);
    return create_from(&b, t, e);
}

static struct tokenizer *must_create(const struct vocabulary *v)
{
    struct tokenizer *t;
    struct err e = {{0}};
    ck_assert_msg(create(v, &t, &e) == STATUS_OK, "%s", e.text);
    return t;
}

/* --- checks ---------------------------------------------------------------------------------- */

static void check_round_trip(const struct tokenizer *t, struct text s, const int32_t *ids, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct text bytes = tokenizer_bytes(t, ids[i]);
        if (bytes.len > s.len - at || memcmp(bytes.data, s.data + at, bytes.len) != 0)
            ck_abort_msg("id %zu of %zu is not the text's", i, n);
        at += bytes.len;
    }
    ck_assert_uint_eq(at, s.len);
}

static void check_ids(const struct tokenizer *t, struct text s, const int *expected,
                      size_t n_expected, const char *file, int line)
{
    int32_t *ids;
    size_t n;
    struct err e = {{0}};
    ck_assert_msg(tokenizer_encode(t, s, &ids, &n, &e) == STATUS_OK, "%s:%d: %s", file, line,
                  e.text);
    ck_assert_ptr_nonnull(ids);
    for (size_t i = 0; i < n && i < n_expected; i++)
        if (ids[i] != expected[i])
            ck_abort_msg("%s:%d: id %zu is %d, expected %d", file, line, i, ids[i], expected[i]);
    ck_assert_msg(n == n_expected, "%s:%d: %zu ids, expected %zu", file, line, n, n_expected);
    check_round_trip(t, s, ids, n);
    free(ids);
}

#define CHECK_IDS(t, string, ...)                                                                  \
    do {                                                                                           \
        const int expected[] = {__VA_ARGS__};                                                      \
        check_ids(t, (struct text){string, sizeof string - 1}, expected,                           \
                  sizeof expected / sizeof expected[0], __FILE__, __LINE__);                       \
    } while (0)

static void check_refused(const struct vocabulary *v, const char *message)
{
    struct tokenizer *t;
    struct err e = {{0}};
    ck_assert_msg(create(v, &t, &e) == STATUS_BAD_FILE, "accepted; expected: %s", message);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(e.text, message) != NULL, "\"%s\" does not have \"%s\"", e.text, message);
}

/* --- merging --------------------------------------------------------------------------------- */

/* What GPT-2's algorithm makes of a vocabulary of 400 merges, written down plainly in Python. */
START_TEST(test_reference_cases)
{
    struct gguf_bytes b = {0};
    b.data = read_file("tests/data/bpe-small.gguf", &b.len);
    struct tokenizer *t;
    struct err e = {{0}};
    ck_assert_msg(create_from(&b, &t, &e) == STATUS_OK, "%s", e.text);

    static struct test_case test;
    struct cases c;
    cases_open(&c, "tests/data/bpe-small.txt");
    char *rest;
    int n = 0;
    for (const char *hex; (hex = cases_line(&c, &rest)); n++) {
        case_text(&test, hex);
        case_numbers(&test, &rest);
        char *text = malloc(test.len ? test.len : 1); /* a read past the end is caught */
        ck_assert_ptr_nonnull(text);
        memcpy(text, test.text, test.len);
        check_ids(t, (struct text){text, test.len}, test.numbers, test.n, "bpe-small.txt", c.line);
        free(text);
    }
    ck_assert_int_gt(n, 200);
    tokenizer_free(t);
}
END_TEST

START_TEST(test_bytes_without_merges)
{
    struct vocabulary v;
    vocabulary_init(&v);
    struct gguf_bytes b = {0};
    static const enum gguf_kind kinds[] = {GGUF_STRING, GGUF_I32, GGUF_U8};
    for (size_t i = 0; i < 4; i++) {
        struct tokenizer *t;
        struct err e = {{0}};
        b = (struct gguf_bytes){0};
        vocabulary_write(&v, &b);
        if (i < 3)
            gb_array(&b, "tokenizer.ggml.merges", kinds[i], 0);
        ck_assert_msg(create_from(&b, &t, &e) == STATUS_OK, "%s", e.text);
        ck_assert_int_eq(tokenizer_n_tokens(t), 256);
        char all[256];
        int expected[256];
        for (int byte = 0; byte < 256; byte++)
            all[byte] = (char)(expected[byte] = byte);
        check_ids(t, (struct text){all, 256}, expected, 256, __FILE__, __LINE__);
        tokenizer_free(t);
    }
}
END_TEST

START_TEST(test_empty_text)
{
    struct vocabulary v;
    vocabulary_init(&v);
    struct tokenizer *t = must_create(&v);
    check_ids(t, (struct text){NULL, 0}, NULL, 0, __FILE__, __LINE__);
    tokenizer_free(t);
    tokenizer_free(NULL);
}
END_TEST

START_TEST(test_lowest_rank_then_leftmost)
{
    struct vocabulary v;
    vocabulary_init(&v);
    add_token(&v, "bc", 1); /* 256 */
    add_token(&v, "ab", 1); /* 257 */
    add_token(&v, "aa", 1); /* 258 */
    add_merge(&v, "b c");
    add_merge(&v, "a b");
    add_merge(&v, "a a");
    struct tokenizer *t = must_create(&v);
    CHECK_IDS(t, "abc", 'a', 256);
    CHECK_IDS(t, "ab", 257);
    CHECK_IDS(t, "aaa", 258, 'a');
    CHECK_IDS(t, "aaab", 258, 257);
    CHECK_IDS(t, "aaaab", 258, 'a', 257);
    CHECK_IDS(t, "a b", 'a', ' ', 'b'); /* never across pieces */
    tokenizer_free(t);
}
END_TEST

/* One merge at a time: the result of a merge may take part in one of a lower rank, which then
 * comes before the next pair of the same rank. */
START_TEST(test_merge_that_wakes_an_earlier_one)
{
    struct vocabulary v;
    vocabulary_init(&v);
    add_token(&v, "aba", 1); /* 256 */
    add_token(&v, "ab", 1);  /* 257 */
    add_merge(&v, "ab a");
    add_merge(&v, "a b");
    struct tokenizer *t = must_create(&v);
    CHECK_IDS(t, "abab", 256, 'b');
    CHECK_IDS(t, "ababab", 256, 'b', 257);
    tokenizer_free(t);
}
END_TEST

/* Merges the lowest rank, leftmost, by looking at all pairs every time. */
static size_t merge_plainly(const int (*ranks)[8], const int (*results)[8], int *ids, size_t n)
{
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++)
            if (ranks[ids[i]][ids[i + 1]] >= 0 &&
                (best == n || ranks[ids[i]][ids[i + 1]] < ranks[ids[best]][ids[best + 1]]))
                best = i;
        if (best == n)
            return n;
        ids[best] = results[ids[best]][ids[best + 1]];
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof *ids);
        n--;
    }
}

/* Random tables over a few symbols, in every order, so that merges overlap and wake others. */
START_TEST(test_random_merges_match_plain_ones)
{
    static const char *const names[] = {"a", "b", "c", "ab", "bc", "aa", "abc", "aaa"};
    static const char *const merges[] = {"a b", "b c", "a a", "ab c", "a bc", "aa a", "a aa"};
    static const int parts[][3] = {{0, 1, 3}, {1, 2, 4}, {0, 0, 5}, {3, 2, 6},
                                   {0, 4, 6}, {5, 0, 7}, {0, 5, 7}};
    static const int ids[] = {'a', 'b', 'c', 256, 257, 258, 259, 260};
    struct rng rng;
    rng_seed(&rng, 11, 0);
    for (int table = 0; table < 200; table++) {
        struct vocabulary v;
        vocabulary_init(&v);
        for (size_t i = 3; i < 8; i++)
            add_token(&v, names[i], 1);
        int ranks[8][8];
        int results[8][8];
        memset(ranks, -1, sizeof ranks);
        bool used[7] = {false};
        for (uint32_t n = 1 + rng_u32(&rng) % 7; n > 0; n--) {
            const uint32_t m = rng_u32(&rng) % 7;
            if (used[m])
                continue;
            used[m] = true;
            ranks[parts[m][0]][parts[m][1]] = (int)v.n_merges;
            results[parts[m][0]][parts[m][1]] = parts[m][2];
            add_merge(&v, merges[m]);
        }
        struct tokenizer *t = must_create(&v);
        for (int run = 0; run < 20; run++) {
            char text[600];
            int expected[600];
            const size_t len = 1 + rng_u32(&rng) % (run < 15 ? 20 : 600);
            for (size_t i = 0; i < len; i++)
                text[i] = names[expected[i] = (int)(rng_u32(&rng) % 3)][0];
            const size_t n = merge_plainly(ranks, results, expected, len);
            for (size_t i = 0; i < n; i++)
                expected[i] = ids[expected[i]];
            check_ids(t, (struct text){text, len}, expected, n, "random", table);
        }
        tokenizer_free(t);
    }
}
END_TEST

/* A word of four million letters: looking at all pairs for every merge would take days. */
START_TEST(test_long_word)
{
    struct vocabulary v;
    vocabulary_init(&v);
    add_token(&v, "aa", 1);
    add_token(&v, "aaaa", 1);
    add_merge(&v, "a a");
    add_merge(&v, "aa aa");
    struct tokenizer *t = must_create(&v);
    const size_t len = (4 << 20) + 3;
    char *text = malloc(len);
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', len);
    int32_t *ids;
    size_t n;
    struct err e;
    ck_assert_int_eq(tokenizer_encode(t, (struct text){text, len}, &ids, &n, &e), STATUS_OK);
    ck_assert_uint_eq(n, (1 << 20) + 2);
    ck_assert_int_eq(ids[0], 257);
    ck_assert_int_eq(ids[n - 3], 257);
    ck_assert_int_eq(ids[n - 2], 256);
    ck_assert_int_eq(ids[n - 1], 'a');
    free(ids);
    free(text);
    tokenizer_free(t);
}
END_TEST

/* --- special tokens -------------------------------------------------------------------------- */

START_TEST(test_special_tokens_in_text)
{
    struct vocabulary v;
    vocabulary_init(&v);
    add_token(&v, "<|end|>", 3);   /* 256 */
    add_token(&v, "<|end|>>", 4);  /* 257 */
    add_token(&v, "d|>x", 4);      /* 258: overlaps the end of 256 */
    add_token(&v, "<unk>", 2);     /* 259 */
    add_token(&v, "[PAD]", 5);     /* 260 */
    add_token(&v, "<|end|>", 4);   /* 261: as 256 */
    add_token(&v, "\u00e9 \n", 4); /* 262: raw UTF-8, not the alphabet */
    struct tokenizer *t = must_create(&v);
    CHECK_IDS(t, "<|end|>", 256);
    CHECK_IDS(t, "<|end|>>", 257);
    CHECK_IDS(t, "<|end|>x", 256, 'x'); /* the leftmost, not the other */
    CHECK_IDS(t, "nd|>x", 'n', 258);
    CHECK_IDS(t, "<|en<|end|> ", '<', '|', 'e', 'n', 256, ' ');
    CHECK_IDS(t, "<unk>", '<', 'u', 'n', 'k', '>');
    CHECK_IDS(t, "[PAD]", '[', 'P', 'A', 'D', ']');
    CHECK_IDS(t, "\u00e9 \n\u00e9", 262, 0xc3, 0xa9);
    CHECK_IDS(t, "<|end|>\0<|end|>>>", 256, 0, 257, '>');

    ck_assert(tokenizer_is_special(t, 256));
    ck_assert(!tokenizer_is_special(t, 257));
    ck_assert(tokenizer_is_special(t, 259));
    ck_assert(!tokenizer_is_special(t, 260));
    ck_assert(!tokenizer_is_special(t, 'a'));
    ck_assert(text_is(tokenizer_bytes(t, 259), "<unk>"));
    ck_assert(text_is(tokenizer_bytes(t, 262), "\u00e9 \n"));
    tokenizer_free(t);
}
END_TEST

START_TEST(test_names_that_only_look_special)
{
    struct vocabulary v;
    vocabulary_init(&v);
    add_token(&v, "<|x28|>", 1);
    struct tokenizer *t = must_create(&v);
    CHECK_IDS(t, "<|x28|>", '<', '|', 'x', '2', '8', '|', '>');
    ck_assert(text_is(tokenizer_bytes(t, 256), "<|x28|>"));
    tokenizer_free(t);
}
END_TEST

/* The text is cut at a special token as at its end: no look past it. */
START_TEST(test_pieces_end_at_special_tokens)
{
    struct vocabulary v;
    vocabulary_init(&v);
    add_token(&v, "\u0120\u0120", 1); /* two spaces */
    add_token(&v, "\u0120x", 1);
    add_token(&v, "<s>", 3);
    add_merge(&v, "\u0120 \u0120");
    add_merge(&v, "\u0120 x");
    struct tokenizer *t = must_create(&v);
    CHECK_IDS(t, "  x", ' ', 257);
    CHECK_IDS(t, "  <s>x", 256, 258, 'x');
    tokenizer_free(t);
}
END_TEST

/* Every place of the text nearly is a long token, and short ones start everywhere. */
START_TEST(test_hostile_special_tokens_take_linear_time)
{
    const size_t n_letters = 1 << 20;
    char *name = malloc(n_letters + 2);
    ck_assert_ptr_nonnull(name);
    memset(name, 'a', n_letters);
    memcpy(name + n_letters, "b", 2);
    struct vocabulary v;
    vocabulary_init(&v);
    add_token(&v, name, 4);     /* 256: a million letters a, then b */
    add_token(&v, name + 1, 4); /* 257: one letter fewer */
    add_token(&v, "aa", 4);     /* 258 */
    struct tokenizer *t = must_create(&v);
    CHECK_IDS(t, "aaab", 258, 'a', 'b');
    check_ids(t, (struct text){name, n_letters + 1}, (const int[]){256}, 1, __FILE__, __LINE__);
    check_ids(t, (struct text){name + 1, n_letters}, (const int[]){257}, 1, __FILE__, __LINE__);

    const size_t len = 8 << 20;
    char *text = malloc(len);
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', len);
    int32_t *ids;
    size_t n;
    struct err e;
    ck_assert_int_eq(tokenizer_encode(t, (struct text){text, len}, &ids, &n, &e), STATUS_OK);
    ck_assert_uint_eq(n, len / 2);
    ck_assert_int_eq(ids[0], 258);
    ck_assert_int_eq(ids[n - 1], 258);
    free(ids);
    free(text);
    free(name);
    tokenizer_free(t);
}
END_TEST

/* --- kinds of vocabularies ------------------------------------------------------------------- */

START_TEST(test_starcoder_digits)
{
    static const char *const names[] = {"starcoder", "refact", "command-r", "codeshell", "smollm"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct vocabulary v;
        vocabulary_init(&v);
        v.pre = names[i];
        add_token(&v, "12", 1);
        add_token(&v, "\u01201", 1);
        add_merge(&v, "1 2");
        add_merge(&v, "\u0120 1");
        struct tokenizer *t = must_create(&v);
        CHECK_IDS(t, "12 12", '1', '2', ' ', '1', '2');
        tokenizer_free(t);
    }
    static const char *const gpt2[] = {"gpt-2", "default", NULL};
    for (size_t i = 0; i < 3; i++) {
        struct vocabulary v;
        vocabulary_init(&v);
        v.pre = gpt2[i];
        add_token(&v, "12", 1);
        add_merge(&v, "1 2");
        struct tokenizer *t = must_create(&v);
        CHECK_IDS(t, "12 12", 256, ' ', 256);
        tokenizer_free(t);
    }
}
END_TEST

/* As StarCoder's vocabulary lacks F1 and the bytes that are never in UTF-8. */
START_TEST(test_bytes_that_may_lack_a_token)
{
    struct vocabulary v;
    vocabulary_init(&v);
    for (int byte = 0xf5; byte < 0x100; byte++)
        v.types[byte] = 5;
    v.types[0xc0] = v.types[0xc1] = v.types[0xf1] = v.types[0xf2] = 5;
    v.has_types = true;
    struct tokenizer *t = must_create(&v);
    CHECK_IDS(t, "\U0010ffff", 0xf4, 0x8f, 0xbf, 0xbf);
    int32_t *ids;
    size_t n;
    struct err e = {{0}};
    ck_assert_int_eq(tokenizer_encode(t, text_of("abc\xff"), &ids, &n, &e), STATUS_USAGE);
    ck_assert_ptr_null(ids);
    ck_assert_msg(strstr(e.text, "0xFF at offset 3") != NULL, "%s", e.text);
    tokenizer_free(t);
}
END_TEST

START_TEST(test_byte_tokens)
{
    struct vocabulary v;
    vocabulary_init(&v);
    v.tokens[0] = text_of("<0x00>");
    v.types[0] = 6;
    v.types['A'] = 6; /* written in the alphabet */
    v.has_types = true;
    add_token(&v, "<0x42>", 6); /* the normal token for B comes first */
    add_token(&v, "<0x4g>", 6); /* no number: its characters */
    struct tokenizer *t = must_create(&v);
    CHECK_IDS(t, "\0AB", 0, 'A', 'B');
    ck_assert(text_is(tokenizer_bytes(t, 256), "B"));
    ck_assert(text_is(tokenizer_bytes(t, 257), "<0x4g>"));
    tokenizer_free(t);
}
END_TEST

START_TEST(test_tokens_outside_the_alphabet_are_raw)
{
    struct vocabulary v;
    vocabulary_init(&v);
    add_token(&v, "\u2581the", 1);
    add_token(&v, "a b", 1);
    add_token(&v, "\xff\xfe", 1);
    struct tokenizer *t = must_create(&v);
    ck_assert(text_is(tokenizer_bytes(t, 256), "\u2581the"));
    ck_assert(text_is(tokenizer_bytes(t, 257), "a b"));
    ck_assert(text_is(tokenizer_bytes(t, 258), "\xff\xfe"));
    CHECK_IDS(t, "a b", 'a', ' ', 'b');
    tokenizer_free(t);
}
END_TEST

START_TEST(test_duplicates_that_nothing_needs)
{
    struct vocabulary v;
    vocabulary_init(&v);
    add_token(&v, "[PAD]", 1);
    add_token(&v, "[PAD]", 1);
    add_token(&v, "a", 5);
    add_token(&v, "a", 3);
    add_token(&v, "", 5);
    struct tokenizer *t = must_create(&v);
    CHECK_IDS(t, "b[PAD]", 'b', '[', 'P', 'A', 'D', ']');
    tokenizer_free(t);
}
END_TEST

START_TEST(test_special_ids)
{
    struct vocabulary v;
    vocabulary_init(&v);
    struct tokenizer *t = must_create(&v);
    ck_assert_int_eq(tokenizer_bos(t), -1);
    ck_assert_int_eq(tokenizer_eos(t), -1);
    ck_assert(!tokenizer_adds_bos(t));
    tokenizer_free(t);
    v.bos = 0;
    v.eos = 255;
    v.adds_bos = 1;
    t = must_create(&v);
    ck_assert_int_eq(tokenizer_bos(t), 0);
    ck_assert_int_eq(tokenizer_eos(t), 255);
    ck_assert(tokenizer_adds_bos(t));
    tokenizer_free(t);
}
END_TEST

/* --- malformed vocabularies ------------------------------------------------------------------ */

START_TEST(test_refused_kinds)
{
    struct vocabulary v;
    vocabulary_init(&v);
    v.model = "llama";
    check_refused(&v, "tokenizer.ggml.model: expected \"gpt2\", found \"llama\"");
    v.model = NULL;
    check_refused(&v, "tokenizer.ggml.model");
    v.model = "gpt2";
    v.pre = "llama-bpe";
    check_refused(&v, "found \"llama-bpe\"");
    vocabulary_init(&v);
    v.bos = 256;
    check_refused(&v, "tokenizer.ggml.bos_token_id");
    v.bos = -1;
    v.eos = 100000;
    check_refused(&v, "tokenizer.ggml.eos_token_id");
    v.eos = -1;
    v.adds_bos = 1;
    check_refused(&v, "add_bos_token is true");
}
END_TEST

START_TEST(test_refused_tokens)
{
    struct vocabulary v;
    vocabulary_init(&v);
    v.tokens['x'] = text_of("y'");
    check_refused(&v, "none for byte 0x78");
    vocabulary_init(&v);
    v.types[' '] = 5;
    v.has_types = true;
    check_refused(&v, "none for byte 0x20");
    vocabulary_init(&v);
    add_token(&v, "", 1);
    check_refused(&v, "token 256 empty");
    vocabulary_init(&v);
    add_token(&v, "x", 1);
    check_refused(&v, "one token for byte 0x78, found 120 and 256");
    vocabulary_init(&v);
    add_token(&v, "new", 7);
    check_refused(&v, "token 256: expected 0 to 6, found 7");
    vocabulary_init(&v);
    add_token(&v, "new", -1);
    check_refused(&v, "found -1");
    vocabulary_init(&v);
    v.n_tokens = 0;
    check_refused(&v, "tokenizer.ggml.tokens: expected 1 to");
}
END_TEST

START_TEST(test_refused_merges)
{
    static const struct {
        const char *merge, *message;
    } cases[] = {
        {"", "element 1: expected two parts with a space between, found \"\""},
        {"a", "two parts with a space between, found \"a\""},
        {" a", "two parts with a space between"},
        {"a ", "two parts with a space between"},
        {"a \u2581", "characters that stand for bytes"},
        {"a b c", "characters that stand for bytes"},
        {"  a", "characters that stand for bytes"},
        {"zz a", "its left part to be one token, found \"zz a\""},
        {"a zz", "its right part to be one token"},
        {"b a", "its result to be one token, found \"b a\""},
        {"b c", "its result to be one token, found tokens 257 and 258"},
        {"a b", "each pair once, found that of element 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct vocabulary v;
        vocabulary_init(&v);
        add_token(&v, "ab", 1);
        add_token(&v, "bc", 1);
        add_token(&v, "bc", 1);
        add_merge(&v, "a b");
        add_merge(&v, cases[i].merge);
        check_refused(&v, cases[i].message);
    }
}
END_TEST

/* Arrays of another kind or length are refused before their elements are read. */
START_TEST(test_refused_arrays)
{
    struct vocabulary v;
    vocabulary_init(&v);
    static const char *const messages[] = {"token_type", "token_type", "merges",
                                           "merges",     "merges",     "add_bos_token"};
    for (int i = 0; i < 6; i++) {
        struct gguf_bytes b = {0};
        vocabulary_write(&v, &b);
        static const unsigned char zeros[256 * 4] = {0};
        if (i == 0) { /* one byte an element: 4 times too short */
            gb_array(&b, "tokenizer.ggml.token_type", GGUF_I8, 256);
            gb_put(&b, zeros, 256);
        } else if (i == 1) {
            gb_array(&b, "tokenizer.ggml.token_type", GGUF_I32, 255);
            gb_put(&b, zeros, 255 * 4);
        } else if (i == 2) {
            gb_array(&b, "tokenizer.ggml.merges", GGUF_U8, 5);
            gb_put(&b, zeros, 5);
        } else if (i == 3) {
            gb_text(&b, "tokenizer.ggml.merges", "a b");
        } else if (i == 4) {
            gb_u32(&b, "tokenizer.ggml.merges", 0);
        } else {
            gb_u32(&b, "tokenizer.ggml.add_bos_token", 1);
        }
        struct tokenizer *t;
        struct err e = {{0}};
        ck_assert_int_eq(create_from(&b, &t, &e), STATUS_BAD_FILE);
        ck_assert_msg(strstr(e.text, messages[i]) != NULL, "%s", e.text);
    }

    struct gguf_bytes b = {0};
    gb_text(&b, "tokenizer.ggml.model", "gpt2");
    struct tokenizer *t;
    struct err e = {{0}};
    ck_assert_int_eq(create_from(&b, &t, &e), STATUS_BAD_FILE);
    ck_assert_msg(strstr(e.text, "tokenizer.ggml.tokens") != NULL, "%s", e.text);
}
END_TEST

/* --- the suite ------------------------------------------------------------------------------- */

static void add_merging(Suite *s)
{
    TCase *t = tcase_create("merging");
    tcase_add_test(t, test_reference_cases);
    tcase_add_test(t, test_bytes_without_merges);
    tcase_add_test(t, test_empty_text);
    tcase_add_test(t, test_lowest_rank_then_leftmost);
    tcase_add_test(t, test_merge_that_wakes_an_earlier_one);
    tcase_add_test(t, test_random_merges_match_plain_ones);
    tcase_add_test(t, test_long_word);
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
}

static void add_vocabularies(Suite *s)
{
    TCase *t = tcase_create("vocabularies");
    tcase_add_test(t, test_special_tokens_in_text);
    tcase_add_test(t, test_names_that_only_look_special);
    tcase_add_test(t, test_pieces_end_at_special_tokens);
    tcase_add_test(t, test_hostile_special_tokens_take_linear_time);
    tcase_add_test(t, test_starcoder_digits);
    tcase_add_test(t, test_bytes_that_may_lack_a_token);
    tcase_add_test(t, test_byte_tokens);
    tcase_add_test(t, test_tokens_outside_the_alphabet_are_raw);
    tcase_add_test(t, test_duplicates_that_nothing_needs);
    tcase_add_test(t, test_special_ids);
    tcase_add_test(t, test_refused_kinds);
    tcase_add_test(t, test_refused_tokens);
    tcase_add_test(t, test_refused_merges);
    tcase_add_test(t, test_refused_arrays);
    tcase_set_timeout(t, 60);
    suite_add_tcase(s, t);
}

int main(void)
{
    Suite *s = suite_create("tokenizer");
    add_merging(s);
    add_vocabularies(s);
    return run_suite(s);
}
