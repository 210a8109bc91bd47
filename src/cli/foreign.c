#include "cli/foreign.h"

#include <stddef.h>

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
