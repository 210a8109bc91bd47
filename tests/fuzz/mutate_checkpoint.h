/*
 * mutate_checkpoint - changes a checkpoint as a whole, for the mutator of GGUF files: the result
 * passes the checks of the container, so that what reads models and tokenizers is reached.
 */
#ifndef TESTS_FUZZ_MUTATE_CHECKPOINT_H
#define TESTS_FUZZ_MUTATE_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

/* The next number of a generator, 31 bits. */
static inline uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* These write at most max_size bytes to `data` and give the new size; 0, with `data` left alone, if
 * the input does not parse or the result does not fit. */

/* Some pairs and tensors removed, renamed, copied, exchanged, or of another type, shape or value.
 */
size_t mutate_checkpoint(uint8_t *data, size_t size, size_t max_size, uint64_t *random);

/* A new checkpoint that runs: shape, types, biases and tokenizer by chance. */
size_t make_checkpoint(uint8_t *data, size_t max_size, uint64_t *random);

/* Pairs and tensors of two files. */
size_t cross_checkpoints(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                         uint8_t *data, size_t max_size, uint64_t *random);

#endif
