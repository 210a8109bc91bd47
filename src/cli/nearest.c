#include "cli/nearest.h"

#include <stddef.h>
#include <string.h>

#define LONGEST 63

static int shorter(int a, int b)
{
    return a < b ? a : b;
}

int edit_distance(const char *a, const char *b)
{
    const size_t a_len = strlen(a), b_len = strlen(b);
    if (a_len > LONGEST || b_len > LONGEST)
        return LONGEST + 1;
    /* Rows i - 2, i - 1 and i of the distance between prefixes, used in turn. */
    int rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = (int)j;
    for (size_t i = 1; i <= a_len; i++) {
        int *now = rows[i % 3];
        const int *above = rows[(i - 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            now[j] = shorter(above[j], now[j - 1]) + 1;
            now[j] = shorter(now[j], above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = shorter(now[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

void nearest_offer(struct nearest *n, const char *candidate)
{
    const size_t word_len = strlen(n->word);
    const size_t longer = word_len > strlen(candidate) ? word_len : strlen(candidate);
    const int allowed = longer < 3 ? 1 : (int)(longer + 2) / 3;
    int distance = edit_distance(n->word, candidate);
    if (word_len >= 2 && strncmp(n->word, candidate, word_len) == 0)
        distance = shorter(distance, 1); /* cut short rather than mistyped */
    /* Of words too long to be compared no distance is known. */
    if (distance <= LONGEST && distance <= allowed && (!n->best || distance < n->distance)) {
        n->best = candidate;
        n->distance = distance;
    }
}

#define CPU_ONLY "decode computes on the CPU alone; -t N are its threads"

static const struct foreign names[] = {
    {.name = "temperature", .ours = "temp"},
    {.name = "do-sample", .why = "text is sampled unless --greedy is given"},
    {.name = "repetition-penalty", .ours = "repeat-penalty"},
    {.name = "n-predict", .ours = "n"},
    {.name = "max-new-tokens", .ours = "n"},
    {.name = "max-tokens", .ours = "n"},
    {.name = "ctx-size", .ours = "ctx"},
    {.name = "ctx-size", .ours = "depth"}, /* where the context is the model's */
    /* the text */
    {.name = "text", .ours = "prompt"},
    {.name = "f", .ours = "text"}, /* other commands' */
    {.name = "file", .ours = "text"},
    {.name = "batch-size", .ours = "batch"},
    {.name = "n-gpu-layers", .why = CPU_ONLY},
    {.name = "ngl", .why = CPU_ONLY},
    {.name = "flash-attn", .why = "attention keeps no matrix of scores in any case"},
    {.name = "learning-rate", .ours = "lr"},
    {.name = "out", .ours = "output"},
};

const struct foreign *foreign_at(int index)
{
    return (size_t)index < sizeof names / sizeof *names ? &names[index] : NULL;
}
