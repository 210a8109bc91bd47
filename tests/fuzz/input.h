/*
 * input - a fuzz input that is read byte by byte, as choices of what is done.
 */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

/* What is left of it; zeros after its end. */
struct input {
    const uint8_t *at;
    size_t left;
};

static inline int next_byte(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

#endif
