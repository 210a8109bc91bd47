/* Text shaded by the probabilities of its tokens: on terminals and in pictures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoints.h"
#include "cli/attend_view.h"
#include "hostile.h"
#include "outputs.h"
#include "program.h"
#include "show/shaded_text.h"
#include "show/text_picture.h"
#include "support.h"
#include "vocabularies.h"

/* --- terminals ------------------------------------------------------------------------------ */

/* As a reader sees it: "[3:ab]" is what stands on level 3. */
static void expect_shades(struct descriptor *o, const char *expected)
{
    char text[512] = "";
    const char *at = expected;
    for (size_t used = 0; *at && used + 64 < sizeof text;) {
        int level = 0, n = 0;
        if (sscanf(at, "[%1d:%n", &level, &n) == 1 && n > 0) {
            used +=
                (size_t)snprintf(text + used, 64, "%s", heatmap_colour(HEATMAP_DARK, level).text);
            at += n;
        } else if (*at == ']') {
            used += (size_t)snprintf(text + used, 64, "%s", heatmap_colour(HEATMAP_DARK, 0).text);
            at++;
        } else {
            text[used++] = *at++;
            text[used] = 0;
        }
    }
    output_is(o, text);
}

static void put(struct shaded_text *s, struct descriptor *o, const char *ready, size_t skipped)
{
    shaded_text_put(s, &o->out, HEATMAP_DARK, text_of(ready), skipped);
}

START_TEST(held_back_bytes_keep_their_level)
{
    unsigned char levels[32];
    struct shaded_text s = {.levels = levels, .cap = sizeof levels};
    struct descriptor o;
    output_begin(&o);
    shaded_text_push(&s, 2, 3);
    put(&s, &o, "ab", 0);
    shaded_text_push(&s, 2, 5); /* "c" and half of a character */
    put(&s, &o, "c", 0);
    shaded_text_push(&s, 3, 7); /* its other half, which is shaded as the first, and "de" */
    put(&s, &o,
        "\xc3\xa9"
        "d",
        0);
    shaded_text_push(&s, 1, 7);
    put(&s, &o, "ef", 0);
    ck_assert_uint_eq(s.len, 0);
    expect_shades(&o, "[3:ab][5:c][5:\xc3\xa9][7:d][7:ef]");
}
END_TEST

START_TEST(levels_change_inside_of_what_is_ready)
{
    unsigned char levels[32];
    struct shaded_text s = {.levels = levels, .cap = sizeof levels};
    struct descriptor o;
    output_begin(&o);
    shaded_text_push(&s, 2, 9);
    shaded_text_push(&s, 3, 0);
    shaded_text_push(&s, 2, 9);
    shaded_text_push(&s, 4, 2);
    /* Without the space before the text; control characters are not shaded. */
    put(&s, &o, " xplain\n\tz", 1);
    put(&s, &o, "!", 0);
    expect_shades(&o, "[9:x]pla[9:in]\n\t[2:z][2:!]");
}
END_TEST

/* --- labels --------------------------------------------------------------------------------- */

START_TEST(labels_have_as_many_columns_as_there_is_room)
{
    static const struct {
        const char *token;
        int columns;
        const char *label;
    } cases[] = {
        {"abcdefghijkl", 12, "abcdefghijkl"},
        {"abcdefghijklm", 12, "abcdefghijk…"},
        {"日本語日本語", 12, "日本語日本語"},
        {"日本語日本", 8, "日本語…"},
        {"\x01\x02\x03", 12, "\\x01\\x02\\x03"},
        {"\x01\x02\x03\x04", 12, "\\x01\\x02…"},
        {"\xe2\x96\x81x", 12, "x"},
    };
    static struct vocabulary v;
    vocabulary_of_scores(&v, true);
    add_scored(&v, cases[_i].token, 0);
    struct tokenizer *t = must_create(&v);
    const int32_t id = (int32_t)v.n_tokens - 1;
    const struct attend_view view = {.tokenizer = t, .tokens = &id, .n_tokens = 1};
    ck_assert_str_eq(attend_label(&view, 0, cases[_i].columns, true).text, cases[_i].label);
    tokenizer_free(t);
}
END_TEST

/* --- pictures ------------------------------------------------------------------------------- */

static char *draw(const struct text_picture_token *tokens, int n)
{
    struct err e = {""};
    const struct text_picture p = {"a <title>", "under it", tokens, n};
    size_t len;
    ck_assert_msg(text_picture_write(&p, scratch_path("text.svg"), &e) == STATUS_OK, "%s", e.text);
    char *text = (char *)read_file(scratch_path("text.svg"), &len);
    text[len] = 0;
    ck_assert_uint_eq(strlen(text), len);
    scratch_remove();
    return text;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* What can be selected, a line each: the character data of the tspans, but for the marks of
 * newlines. */
static void selectable(const char *svg, char *out, size_t size)
{
    size_t n = 0;
    bool in_line = false, skips = false;
    for (const char *at = strstr(svg, "<text class=\"mono\""); at && *at && n + 2 < size; at++) {
        if (strncmp(at, "<text class=\"mono\"", 18) == 0)
            in_line = true;
        if (in_line && strncmp(at, "</text>", 7) == 0) {
            in_line = false;
            out[n++] = '\n';
        }
        if (*at == '<') {
            skips = strncmp(at, "<tspan class=\"mark", 18) == 0;
            at = strchr(at, '>');
            ck_assert_ptr_nonnull(at);
        } else if (in_line && !skips) {
            out[n++] = *at;
        }
    }
    out[n] = 0;
}

START_TEST(a_picture)
{
    const struct text_picture_token tokens[] = {
        {text_of("<s>"), (double)NAN}, {text_of("To"), 1},      {text_of(" be\n"), 0.5},
        {text_of("\xe2\x82"), 0.01},   {text_of("\xac"), 1e-9}, {text_of("\\\x1b"), 0.3}};
    char *svg = draw(tokens, 6), seen[256];
    selectable(svg, seen, sizeof seen);
    ck_assert_str_eq(seen, "&lt;s&gt;To be\n\\xe2\\x82\\xac\\\\x1b\n");
    ck_assert_int_eq(count(svg, "<title>a &lt;title&gt;</title>"), 1);
    /* The legend has a sample of each level, too. */
    ck_assert_int_eq(count(svg, "class=\"frame\""), 1);
    ck_assert_int_eq(count(svg, "class=\"cell h9\""), 2);
    ck_assert_int_eq(count(svg, "class=\"cell h5\""), 2);
    ck_assert_int_eq(count(svg, "class=\"cell h3\""), 2);
    ck_assert_int_eq(count(svg, "class=\"ground\""), 3);
    ck_assert_int_eq(count(svg, "<title>0.01"), 1);
    ck_assert_int_eq(count(svg, "\xe2\x86\xb5"), 1);
    ck_assert_ptr_null(strchr(svg, '\x1b'));
    ck_assert_ptr_null(strstr(svg, "nan"));
    free(svg);
}
END_TEST

/* Two of 60 columns do not share a line of 100, and one of 250 takes three. */
START_TEST(lines_are_wrapped)
{
    char words[311], seen[512];
    memset(words, 'x', 60);
    memset(words + 60, 'y', 250);
    words[310] = 0;
    const struct text_picture_token tokens[] = {
        {{words, 60}, 0.5}, {{words, 60}, 0.5}, {{words + 60, 250}, 0.5}, {text_of("z"), 0.5}};
    char *svg = draw(tokens, 4);
    selectable(svg, seen, sizeof seen);
    const size_t lines[] = {60, 60, 100, 100, 51};
    const char *at = seen;
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(strcspn(at, "\n"), lines[i]);
        at += lines[i] + 1;
    }
    ck_assert_str_eq(at, "");
    free(svg);
}
END_TEST

/* The most there may be: some 2 MB, and as high as its lines. */
START_TEST(the_largest_picture)
{
    static struct text_picture_token tokens[TEXT_PICTURE_MOST];
    for (int i = 0; i < TEXT_PICTURE_MOST; i++)
        tokens[i] = (struct text_picture_token){text_of(i % 3 ? " of" : "ever\n"),
                                                (i % 1000 + 0.123456789) / 1001};
    char *svg = draw(tokens, TEXT_PICTURE_MOST);
    ck_assert_uint_lt(strlen(svg), 2 << 20);
    ck_assert_int_eq(count(svg, "<tspan x=") + count(svg, "<tspan class=\"low\" x=") +
                         count(svg, "<tspan class=\"high\" x="),
                     TEXT_PICTURE_MOST);
    free(svg);
    /* Tokens without any bytes are seen, too. */
    for (int i = 0; i < 300; i++)
        tokens[i] = (struct text_picture_token){text_of(""), 0.5};
    svg = draw(tokens, 300);
    ck_assert_int_eq(count(svg, "class=\"cell h5\""), 301);
    free(svg);
}
END_TEST

START_TEST(a_text_that_is_too_long_for_a_picture)
{
    const struct checkpoint_shape shape = {.n_layers = 1,
                                           .n_heads = 1,
                                           .n_kv_heads = 1,
                                           .head_dim = 2,
                                           .d_ff = 2,
                                           .n_ctx = TEXT_PICTURE_MOST + 10,
                                           .n_vocab = 256};
    struct ran r;
    char line[600], *text = malloc(TEXT_PICTURE_MOST + 1), model[200], file[200];
    snprintf(model, sizeof model, "%s", scratch_path("m.gguf"));
    snprintf(file, sizeof file, "%s", scratch_path("long.txt"));
    write_checkpoint(model, &shape);
    memset(text, 'a', TEXT_PICTURE_MOST + 1);
    write_file(file, text, TEXT_PICTURE_MOST + 1);
    snprintf(line, sizeof line, "score %s -f %s --svg %s", model, file, scratch_path("p.svg"));
    run_program(&r, line, NULL, NULL);
    expect_refusal(&r, 2, "--svg: a picture has at most 8192 tokens");
    ck_assert_int_ne(access(scratch_path("p.svg"), F_OK), 0);
    free(text);
    scratch_remove();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("text_picture");
    TCase *t = tcase_create("text_picture");
    tcase_add_test(t, held_back_bytes_keep_their_level);
    tcase_add_test(t, levels_change_inside_of_what_is_ready);
    tcase_add_loop_test(t, labels_have_as_many_columns_as_there_is_room, 0, 7);
    tcase_add_test(t, a_picture);
    tcase_add_test(t, lines_are_wrapped);
    tcase_add_test(t, the_largest_picture);
    tcase_add_test(t, a_text_that_is_too_long_for_a_picture);
    suite_add_tcase(s, t);
    return run_suite(s);
}
