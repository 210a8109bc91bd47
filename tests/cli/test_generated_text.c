/*
 * Tests of spaces in texts that a SentencePiece vocabulary generates: a prompt is echoed as it was
 * given, and a text without a prompt begins without a space.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostile.h"

#define MARK "\xe2\x96\x81"

/* Writes the good checkpoint with 260 tokens "<mark>w0" and so on, except BOS and the tokens of
 * prompts. */
static void write_words(bool space)
{
    struct gguf_bytes b = {0};
    for (int id = 0; id < 260; id++) {
        char name[32];
        snprintf(name, sizeof name, MARK "w%d", id);
        gb_put_text(&b, text_of(id == 1 ? "<s>" : id == 2 ? MARK : id == 3 ? "a" : name));
    }
    hostile_set_array(TOKENS, GGUF_STRING, 260, b.data, b.len);
    free(b.data);
    bend("tokenizer.ggml.token_type=i32[]:1,3,1*258");
    hostile_set_text("tokenizer.ggml.model", text_of("llama"));
    hostile_set_u32("tokenizer.ggml.bos_token_id", 1);
    hostile_set_u32("tokenizer.ggml.eos_token_id", UINT32_MAX);
    hostile_set("tokenizer.ggml.add_space_prefix", GGUF_BOOL, space ? "\1" : "\0", 1);
    hostile_write();
}

/* The vocabulary adds a space or does not; the output begins with `start`. %T is a prompt. */
TEST(first_space, .before = bent_set_up)
{
    static const struct {
        bool space;
        const char *line, *start;
    } cases[] = {
        {true, "generate %B -n 3 --seed 3 -t 1 -q", "w"},
        {true, "generate %B -n 3 --seed 3 -t 1 -q --stop w999", "w"},
        {true, "generate %B -p a -n 3 --seed 3 -t 1 -q", "a w"},
        {true, "generate %B -p a -n 3 --seed 3 -t 1 -q --no-echo", " w"},
        {true, "tokenize %B --decode 4,5", "w4 w5"},
        {true, "tokenize %B --decode 1,5", "<s> w5"},
        {true, "tokenize %B -p a", "2 3\n"},
        {false, "generate %B -n 3 --seed 3 -t 1 -q", " w"},
        {false, "tokenize %B --decode 4,5", " w4 w5"},
    };
    struct ran r;
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (i == 0 || cases[i].space != cases[i - 1].space)
            write_words(cases[i].space);
        run_on_bad(&r, cases[i].line);
        expect_success(&r);
        ck_assert_msg(strncmp(r.out, cases[i].start, strlen(cases[i].start)) == 0,
                      "%s: '%s' does not begin with '%s'", cases[i].line, r.out, cases[i].start);
    }
    write_words(true);
    write_file(text_path, "a\n", 2);
    expect_line_done("generate --prompts %T %B -n 3 --seed 3 -t 1 -q",
                     "\"prompt\": \"a\", \"text\": \" w");
    expect_line_done("generate %B -n 3 --seed 3 -t 1 -q --format json",
                     "\"prompt\": \"\", \"text\": \"w");
}

/* A text begins with BOS itself, behind the BOS that the checkpoint asks for. A note says so once,
 * and eval neither scores nor counts it. */
TEST(two_bos, .before = bent_set_up)
{
    static const char with[] = "<s>a a a a", *const texts[] = {with + 3, with};
    static const char *const lines[] = {"score %B -p <s>a -t 1", "attend %B -p <s>a -t 1",
                                        "generate %B -p <s>a -n 1 --seed 1 -t 1"};
    struct ran r;
    char figures[2][64]; /* tokens, bytes, nats a token */
    write_words(true);
    for (size_t i = 0; i < COUNT(lines); i++) {
        run_on_bad(&r, lines[i]);
        expect_success(&r);
        const char *note = strstr(r.err, "note: the text begins with the begin-of-text token, 1,");
        ck_assert_msg(note && !strstr(note + 1, "note:"), "%s: %s", lines[i], r.err);
    }
    for (int i = 0; i < 2; i++) {
        write_file(text_path, texts[i], strlen(texts[i]));
        run_on_bad(&r, "eval %B %T -t 1 --format jsonl");
        expect_success(&r);
        ck_assert((strstr(r.err, "note:") != NULL) == i);
        const char *tokens = strstr(r.out, "\"tokens\""), *end = strstr(r.out, ", \"nll_stderr\"");
        ck_assert(tokens && end && end - tokens < (int)sizeof *figures);
        snprintf(figures[i], sizeof *figures, "%.*s", (int)(end - tokens), tokens);
    }
    ck_assert_str_eq(figures[0], figures[1]);
}
