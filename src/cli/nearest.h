/*
 * nearest - which known word was probably meant.
 */
#ifndef DECODE_CLI_NEAREST_H
#define DECODE_CLI_NEAREST_H

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b (optimal string
 * alignment). Words longer than 63 bytes count as 64 apart from everything. */
int edit_distance(const char *a, const char *b);

/* Keeps the nearest of the words it is shown. Starts as {.word = the unknown one}. */
struct nearest {
    const char *word;
    const char *best; /* NULL until something is near: at most a third of its letters (but always
                         one) differ, or it begins with the word */
    int distance;
};

void nearest_offer(struct nearest *n, const char *candidate);

struct foreign {
    const char *name; /* without dashes in front, and with '-' for '_' */
    const char *ours; /* "temp", or with a value, "format json"; NULL: we have none */
    const char *why;  /* then: why not */
};

/* NULL after the last. A name stands for the first of ours that the command has. */
const struct foreign *foreign_at(int index);

#endif
