/* Prompts out of lines, as they are and as JSON objects. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "formats/prompts.h"
#include "support.h"

static const struct text stop = {"stop", 4};

static struct prompts p; /* the test's, and the last of them */
static struct prompt prompt;

static void close_prompts(void *unused)
{
    (void)unused;
    prompt_free(&prompt);
    prompts_close(&p);
    prompt = (struct prompt){.index = 0};
}

/* Until the test ends, or release_all. */
static void open_prompts(bool jsonl, const char *content, size_t len)
{
    const char *path = scratch_path("prompts");
    write_file(path, content, len);
    p = (struct prompts){.n = 7, .seed = 42, .stops = &stop, .n_stops = 1, .jsonl = jsonl};
    expect_ok(prompts_open(&p, path, &err));
    released_by(close_prompts, &p);
}

static bool next(void)
{
    enum lines_state state;
    do
        expect_ok(prompts_next(&p, 0, &state, &prompt, &err));
    while (state == LINES_LATER);
    return state == LINES_LINE;
}

TEST(plain_lines_are_prompts)
{
    static const char *const texts[] = {"", "one", "  two {\"prompt\": 3}", "\xc3\xa9\r", "end"};
    const char content[] = "\xef\xbb\xbf\none\r\n  two {\"prompt\": 3}\n\xc3\xa9\r\r\nend\r";
    open_prompts(false, content, sizeof content - 1);
    for (uint64_t i = 0; i < 5; i++) {
        ck_assert(next());
        ck_assert(!prompt.refused && prompt.has_text && prompt.id_kind == PROMPT_ID_NONE);
        ck_assert(text_is(prompt.text, texts[i]));
        ck_assert_uint_eq(prompt.index, i);
        ck_assert_uint_eq(prompt.seed, rng_derive(42, i));
        ck_assert(prompt.n == 7 && prompt.n_stops == 1 && text_is(prompt.stops[0], "stop"));
    }
    ck_assert(!next());
}

/* One line after which a good one follows. */
static void expect_refused(bool jsonl, struct text line, const char *why)
{
    struct bytes content = {NULL, 0, 0};
    ck_assert(bytes_put(&content, line) &&
              bytes_put(&content, text_of("\n{\"prompt\": \"good\"}\n")));
    open_prompts(jsonl, content.data, content.len);
    bytes_free(&content);
    ck_assert(next());
    ck_assert_msg(prompt.refused && strncmp(prompt.error.text, "line 1: ", 8) == 0 &&
                      strstr(prompt.error.text, why),
                  "%.60s: '%s' instead of '%s'", line.data, prompt.error.text, why);
    ck_assert(next());
    ck_assert_msg(!prompt.refused && prompt.index == 1, "%s", prompt.error.text);
    ck_assert(text_is(prompt.text, jsonl ? "good" : "{\"prompt\": \"good\"}"));
    ck_assert(!next());
    release_all();
}

TEST(bad_lines_are_refused)
{
    expect_refused(false, text_of("ab\xff"), "byte 2: expected UTF-8, found 0xff");
    expect_refused(false, text_of("\xc3"), "byte 0: expected UTF-8, found 0xc3");
    expect_refused(true, text_of("{\"prompt\": \"\xff\"}"), "byte 12");
    for (int jsonl = 0; jsonl < 2; jsonl++) {
        const size_t len = PROMPTS_MAX_LINE + 1;
        const struct text line = {memset(allocated(len), 'a', len), len};
        expect_refused(jsonl, line, "expected at most 16777216 bytes");
    }
}

TEST(objects_say_more)
{
    static const char content[] =
        "\xef\xbb\xbf{\"prompt\": \"a\\n\\u00e9\\u0000b\", \"id\": \"x\", \"n\": 0, "
        "\"seed\": 18446744073709551615, "
        "\"stop\": \"\\u0000\"}\n"
        " { \"stop\" : [\"s\", \"tt\"], \"id\": -5, \"prompt\": \"\", "
        "\"seed\": \"18446744073709551615\" } \n"
        "{\"id\": \"-5\", \"prompt\": \"p\", \"stop\": []}\n"
        "{\"prompt\": \"q\"}\n" /* what is null is not given; an id may come again */
        "{\"prompt\": \"q\", \"id\": null, \"n\": null, \"seed\": null, \"stop\": null}\n"
        "{\"prompt\": \"q\", \"id\": \"x\"}";
    open_prompts(true, content, sizeof content - 1);
    ck_assert(next() && !prompt.refused);
    ck_assert(text_equal(prompt.text, (struct text){"a\n\xc3\xa9\0b", 6}));
    ck_assert(prompt.id_kind == PROMPT_ID_STRING && text_is(prompt.id, "x"));
    ck_assert(prompt.n == 0 && prompt.seed == UINT64_MAX && prompt.n_stops == 1);
    ck_assert(text_equal(prompt.stops[0], (struct text){"\0", 1}));

    ck_assert(next() && !prompt.refused);
    ck_assert(prompt.id_kind == PROMPT_ID_NUMBER && text_is(prompt.id, "-5"));
    ck_assert(prompt.has_text && prompt.text.len == 0 && prompt.n == 7 && prompt.n_stops == 2);
    ck_assert(text_is(prompt.stops[0], "s") && text_is(prompt.stops[1], "tt"));
    ck_assert_uint_eq(prompt.seed, UINT64_MAX);

    ck_assert(next() && !prompt.refused); /* a string is another id than a number */
    ck_assert(prompt.id_kind == PROMPT_ID_STRING && prompt.n_stops == 0);
    ck_assert_uint_eq(prompt.seed, rng_derive(42, 2));

    for (uint64_t i = 3; i < 5; i++) {
        ck_assert(next() && !prompt.refused);
        ck_assert(prompt.id_kind == PROMPT_ID_NONE && prompt.n == 7 && prompt.n_stops == 1);
        ck_assert(text_is(prompt.stops[0], "stop") && prompt.seed == rng_derive(42, i));
    }
    ck_assert(next() && !prompt.refused && text_is(prompt.id, "x") && !next());
}

TEST(whole_ids_may_be_large)
{
    static const char *const ids[] = {"0", "-0", "9223372036854775808",
                                      "-123456789012345678901234567890"};
    for (size_t i = 0; i < COUNT(ids); i++) {
        char line[100];
        snprintf(line, sizeof line, "{\"id\": %s, \"prompt\": \"a\"}\n", ids[i]);
        open_prompts(true, line, strlen(line));
        ck_assert(next() && !prompt.refused);
        ck_assert(prompt.id_kind == PROMPT_ID_NUMBER && text_is(prompt.id, ids[i]));
        release_all();
    }
}

/* The rows of tests/data/broken/prompts.txt. */
TEST(bad_objects_are_refused)
{
    char *table = strdup(file_text("tests/data/broken/prompts.txt", NULL)), *rest = table, *row;
    int n = 0;
    for (; (row = next_row(&rest)); n++) {
        const struct text line = text_of(next_field(&row));
        expect_refused(true, line, row);
    }
    ck_assert_int_ge(n, 25);
    free(table);

    char line[8 * (PROMPTS_MAX_STOPS + 3)] = "{\"prompt\": \"a\", \"stop\": [\"x\"";
    for (int i = 1; i < PROMPTS_MAX_STOPS; i++)
        strcat(line, ",\"x\"");
    const size_t len = strlen(line);
    strcat(line, "]}");
    open_prompts(true, line, strlen(line));
    ck_assert(next() && !prompt.refused && prompt.n_stops == PROMPTS_MAX_STOPS);
    release_all();
    strcpy(line + len, ",\"x\"]}");
    expect_refused(true, text_of(line), "\"stop\": expected at most 256 texts");
}

TEST(refused_lines_show_what_they_have)
{
    static const char content[] =
        "{\"n\": [], \"id\": 3, \"prompt\": \"abc\"}\n{\"id\": 4, \"n\": 1}";
    open_prompts(true, content, sizeof content - 1);
    ck_assert(next() && prompt.refused);
    ck_assert(text_is(prompt.id, "3") && prompt.has_text && text_is(prompt.text, "abc"));
    ck_assert(next() && prompt.refused && text_is(prompt.id, "4") && !prompt.has_text);
}
