/*
 * Hostile checkpoints against the whole program: vocabularies (class 11). What needs no text runs
 * whatever they are, as far as their tokens can be read; and info always.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hostile.h"

#define MERGES "tokenizer.ggml.merges"
#define TYPES  "tokenizer.ggml.token_type"
#define SCORES "tokenizer.ggml.scores"
#define BOS    "tokenizer.ggml.bos_token_id"
#define EOS    "tokenizer.ggml.eos_token_id"
#define ADDS   "tokenizer.ggml.add_bos_token"

/* Those whose texts need the vocabulary. */
#define READERS (TOKENIZER_READERS & ~BENCH)

static void set_merges(const char *const *merges, size_t n)
{
    struct gguf_bytes b = {0};
    for (size_t i = 0; i < n; i++)
        gb_put_text(&b, text_of(merges[i]));
    hostile_set_array(MERGES, GGUF_STRING, n, b.data, b.len);
    free(b.data);
}

/* What `h` has become is refused by all of these, and shown by info. */
static void expect_bad(unsigned commands, const char *text)
{
    struct ran r;
    hostile_write();
    expect_refused(commands, text);
    expect_accepted(INFO | CHECK);
    run_on_bad(&r, "info %B --format json");
    ck_assert_ptr_nonnull(strstr(r.out, "\"problem\": \"")); /* and not null */
    reset();
}

TEST(class_11_tokens, .before = bent_set_up)
{
    static const int32_t numbers[260];
    static const struct bend none[] = {{TOKENS "=u32:260", TOKENS}, {"-" TOKENS, TOKENS}};
    set_token(100, (struct text){"", 0});
    expect_bad(TOKENIZER_READERS, "expected no empty token, found token 100 empty");
    set_token(257, text_of("a"));
    expect_bad(TOKENIZER_READERS, "one token for byte 0x61, found 97 and 257");
    set_token(257, text_of("<x256>")); /* twins that no merge makes */
    bent_accepted(READERS & ~(AGAINST | TEACHER), "");
    bent_refused(TOKENIZE, TOKENS "=string[]:", TOKENS ": expected 1 to ");
    bent_refused_by_all(TOKENIZER_READERS, TOKENS "=string[]:", TOKENS);
    TRY_BENDS(none, READERS);
    hostile_set_array(TOKENS, GGUF_I32, 260, numbers, sizeof numbers);
    bent_refused_by_all(READERS, "", TOKENS);
}

/* A token of 1 MB, as each of the kinds: it costs what it has in bytes, however it is asked for. */
TEST(class_11_long_tokens, .before = bent_set_up)
{
    const size_t len = 1 << 20;
    char *longest = memset(allocated(len), 'a', len);
    for (int32_t type = 0; type <= 6; type++) {
        set_token(259, (struct text){longest, len});
        set_types(260, 259, type);
        bent_accepted(INFO | GENERATE | TOKENIZE | TRAIN, "");
        expect_line_done("score -p ab -t 1 --top 2147483647 %B --format csv", "");
    }
}

TEST(class_11_merges, .before = bent_set_up)
{
    static const char *const twice[] = {"a b", "a b"};
    static const char *const ambiguous[] = {"ab ab", "ab a", "b ab", "aba b", "a bab", "a b"};
    char *longest = memset(allocated_zeros(1 << 20), 'a', (1 << 20) - 1);
    const char *const passed_over[] = {"a b", "aa b", "b aa", longest};
    static const struct bend bends[] = {
        {MERGES "=string[]:ab", "element 0: expected two parts"},
        {MERGES "=string[]: a", "element 0: expected two parts with a space between"},
        {MERGES "=string[]:  a", "element 0: expected characters that stand for bytes"},
        {MERGES "=u32:0", MERGES},
        {MERGES "=string:a b", MERGES},
        {MERGES "=u8[]:97,98,99", MERGES},
        {MERGES "=string[]:a ", "element 0: expected two parts"},
        {MERGES "=string[]:a b c", "element 0: expected"},
        {MERGES "=string[]:a \x1b[2J",
         "element 0: expected characters that stand for bytes, found \"a ?[2J\""},
    };
    set_token(256, text_of("ab"));
    set_token(257, text_of("abab"));
    set_token(258, text_of("aba"));
    set_token(259, text_of("bab"));
    set_merges(ambiguous, 6);
    bent_accepted(READERS & ~(AGAINST | TEACHER), "");
    set_token(256, text_of("ab"));
    set_merges(twice, 2);
    bent_refused_by_all(READERS, "", "element 1: expected each pair once");
    TRY_BENDS(bends, READERS);
    set_token(256, text_of("bc")); /* which the merge makes */
    set_token(257, text_of("bc"));
    bent_refused(TOKENIZER_READERS, MERGES "=string[]:b c",
                 "element 0: expected tokens that are one each, found 256 and 257 alike");
    longest[1 << 19] = ' ';
    for (size_t i = 0; i < COUNT(passed_over); i++) {
        set_merges(&passed_over[i], 1);
        bent_accepted(INFO | GENERATE | TOKENIZE, "");
    }
    bent_accepted(INFO | GENERATE | TOKENIZE | TRAIN, "-" MERGES);
}

TEST(class_11_ids, .before = bent_set_up)
{
    static const struct bend bends[] = {
        {BOS "=u32:260", BOS},
        {EOS "=u32:260", EOS},
        {BOS "=i32:-1", BOS},
        {BOS "=string:10", BOS},
        {"-" BOS "; " ADDS "=bool:1", BOS},
        {ADDS "=string:true", ADDS},
        {ADDS "=u32:1", ADDS},
        {BOS "=u32:0xffffffff", NULL}, /* none */
        {EOS "=u32:0xffffffff", NULL},
        {"-" BOS, NULL},
        {"-" EOS, NULL},
    };
    TRY_BENDS(bends, READERS);
}

/* Kinds that are not known: their tokens are shown, and no text is read. */
TEST(class_11_unknown_kinds, .before = bent_set_up)
{
    static const char *const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.pre"};
    static const char *const found[] = {
        "tokenizer.ggml.model: expected \"gpt2\" or \"llama\", found \"no?[2J\"",
        "tokenizer.ggml.pre: found \"no?[2J\", expected one of gpt-2, default, "};
    struct ran r;
    for (int i = 0; i < 2; i++) {
        hostile_set_text(keys[i], text_of("no\x1b[2J"));
        hostile_write();
        expect_refused(TEXT_READERS, found[i]);
        expect_accepted(INFO | CHECK | TEACHER | QUANTIZE | CONVERT | BENCH);
        expect_line_refused("convert %B -o %O --kv-heads 1 --calib %T -t 1 -q", 3, keys[i]);
        expect_line_refused("generate %B --prompts %T -n 1 -t 1 -q", 3, keys[i]);
        expect_line_done("info %B --format json",
                         "\"n_tokens\": 260|\"problem\": \"tokenizer.ggml.");
        expect_line_done("score %B --tokens 97,98 -t 1 --format jsonl", "\"text\": \"a\"");
        run_on_bad(&r, "tokenize %B --decode 97,98");
        ck_assert(r.code == 0 && strcmp(r.out, "ab") == 0);
        expect_line_done("generate %B -n 2 -t 1 --seed 1 -q", ""); /* from BOS */
        reset();
    }
    hostile_set_text("tokenizer.ggml.model", text_of("none"));
    hostile_drop(TOKENS);
    hostile_drop("tokenizer.ggml.merges");
    hostile_write();
    expect_refused(TEXT_READERS, "found \"none\"");
    expect_accepted(INFO | CHECK | QUANTIZE | CONVERT | BENCH | AGAINST);
    run_on_bad(&r, "score %B --tokens 97,98 -t 1");
    expect_success(&r);
    expect_line_refused("tokenize %B --decode 1", 3, "tokenizer.ggml.tokens: expected tokens");
}

/* A vocabulary that lacks bytes loads; a text that it cannot write is a mistake in the use. */
TEST(class_11_bytes_without_a_token, .before = bent_set_up)
{
    static const struct line lines[] = {
        {"tokenize %B -p bad", 2, "U+0061 'a' at offset 1,", NULL},
        {"generate %B -p ab -n 1", 2, "U+0061 'a' at offset 0,", NULL},
        {"score %B -p ab", 2, "U+0061 'a' at offset 0,", NULL},
        {"eval %B --text %T", 2, "for which the vocabulary has no token", NULL},
        {"tokenize %B -p bc", 0, NULL, "98 99\n"},
        {"tokenize %B --decode 98,97", 0, NULL, "b<x>"},
    };
    set_token('a', text_of("<x>"));
    set_token(10, text_of("<y>")); /* which is BOS, too */
    hostile_write();
    expect_accepted(INFO | CHECK | QUANTIZE | CONVERT | BENCH);
    TRY_LINES(lines);
    hostile_drop(BOS);
    hostile_write();
    expect_line_refused("generate %B -n 1", 2, "the prompt is empty, and the checkpoint has");
}

static void set_scores(uint64_t count, int id, float score)
{
    float scores[300] = {0};
    scores[id] = score;
    hostile_set_array("tokenizer.ggml.scores", GGUF_F32, count, scores, count * 4);
    hostile_set_text("tokenizer.ggml.model", text_of("llama"));
}

TEST(class_11_scores, .before = bent_set_up)
{
    static const struct {
        uint64_t count;
        int id;
        float score;
        const char *bends, *text;
    } bad[] = {
        {260, 7, NAN, "", SCORES " of token 7: expected a finite number, found nan"},
        {260, 259, -INFINITY, "", SCORES " of token 259: expected a finite number, found -inf"},
        {259, 0, 0, "", SCORES ": expected 260 elements, one a token, found 259"},
        {260, 0, 0, SCORES "=u8[]:97,98,99,100", SCORES},
        {260, 0, 0, "tokenizer.ggml.add_space_prefix=u32:1", "tokenizer.ggml.add_space_prefix"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        set_scores(bad[i].count, bad[i].id, bad[i].score);
        bend(bad[i].bends);
        expect_bad(READERS, bad[i].text);
    }
    set_scores(260, 0, 0);
    set_token(257, text_of("a"));
    expect_bad(READERS, "expected each token once, found tokens 97 and 257 to be 'a'");
    set_scores(260, 0, 0);
    set_token(256, text_of("ab"));
    set_token(257, text_of("\xe2\x96\x81"));
    bend(BOS "=u32:1");
    hostile_write();
    expect_accepted(EVERY_COMMAND & ~(AGAINST | TEACHER | EVAL | TRAIN));
    expect_line_done("tokenize %B -p ab", "257 256\n");
    bend("-" SCORES); /* all are equal then */
    hostile_write();
    expect_accepted(TOKENIZE);
    expect_line_done("tokenize %B --decode 257,256", "ab");
    expect_line_refused("tokenize %B -p \xe6\xb0\xb4", 2, "U+6C34");
}

TEST(class_11_types, .before = bent_set_up)
{
    static const int32_t bad_types[] = {-1, 7};
    for (size_t i = 0; i < COUNT(bad_types); i++) {
        set_types(260, 5, bad_types[i]);
        bent_refused(READERS, "", TYPES " of token 5: expected 0 to 6");
    }
    set_types(259, 5, 1);
    bent_refused_by_all(READERS, "", TYPES ": expected 260 elements");
    bent_refused(READERS, TYPES "=string:1", TYPES);
    hostile_set_array(TYPES, GGUF_I8, 260, (const char[260]){0}, 260); /* 4 times too short */
    bent_refused(READERS, "", TYPES);
    bent_accepted(READERS, SCORES "=string[]:,"); /* a byte-level vocabulary has none to read */
    bend("-tokenizer.ggml.model");
    hostile_write();
    expect_refused(TEXT_READERS, "\"tokenizer.ggml.model\" is missing");
    expect_accepted(INFO | AGAINST | QUANTIZE | CONVERT);
}
