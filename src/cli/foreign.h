/*
 * foreign - what llama.cpp, llama2.c, Hugging Face, nanoGPT and our other commands call the options
 * that a command has.
 */
#ifndef DECODE_CLI_FOREIGN_H
#define DECODE_CLI_FOREIGN_H

struct foreign {
    const char *name; /* without dashes in front, and with '-' for '_' */
    const char *ours; /* "temp", or with a value, "format json"; NULL: we have none */
    const char *why;  /* then: why not */
};

/* NULL after the last. A name stands for the first of ours that the command has. */
const struct foreign *foreign_at(int index);

#endif
