/*
 * bent - the good checkpoint, bent by a test and run, and good again after.
 */
#ifndef TESTS_BENT_H
#define TESTS_BENT_H

#include <stdlib.h>
#include <string.h>

#include "hostile.h"
#include "support.h"

static struct hostile h;

static inline void reset(void)
{
    hostile_free(&h);
    hostile_open(&h);
}

/* What `h` has become is refused by one of the commands, the next one each time. */
static inline void expect_bent_refused(unsigned commands, const char *text)
{
    hostile_write(&h);
    expect_refused_in_turn(commands, text);
    reset();
}

static inline void expect_bent_refused_by_all(unsigned commands, const char *text)
{
    hostile_write(&h);
    expect_refused(commands, text);
    reset();
}

static inline void expect_bent_accepted(unsigned commands)
{
    hostile_write(&h);
    expect_accepted(commands);
    reset();
}

static inline void bent_set_up(void)
{
    hostile_set_up();
    hostile_open(&h);
}

static inline void bent_tear_down(void)
{
    hostile_free(&h);
    hostile_tear_down();
}

#define TOKENS "tokenizer.ggml.tokens"

/* The vocabulary with this instead of one of its tokens. */
static inline void set_token(int id, struct text token)
{
    struct text value = hostile_pair(&h, TOKENS)->value;
    struct gguf_bytes b = {0};
    size_t at = 12;
    for (int i = 0; at < value.len; i++) {
        uint64_t len;
        memcpy(&len, value.data + at, 8);
        gb_put_text(&b, i == id ? token : (struct text){value.data + at + 8, (size_t)len});
        at += 8 + (size_t)len;
    }
    hostile_set_array(&h, TOKENS, GGUF_STRING, 260, b.data, b.len);
    free(b.data);
}

static inline void set_types(uint64_t count, int id, int32_t type)
{
    int32_t types[300];
    for (int i = 0; i < 300; i++)
        types[i] = i == id ? type : 1;
    hostile_set_array(&h, "tokenizer.ggml.token_type", GGUF_I32, count, types, count * 4);
}

#endif
