#include "exchange/cuts.h"

#define SPACES "\\s+(?!\\S)|\\s+"
#define GPT2   "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES
#define LLAMA3(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" SPACES

static const struct cut cuts[] = {
    {NULL, false, true, PRETOKENIZE_GPT2},
    {"'s|'t|'re|'ve|'m|'ll|'d" GPT2, false, false, PRETOKENIZE_GPT2},
    {"'(?:[sdmt]|ll|ve|re)" GPT2, false, false, PRETOKENIZE_GPT2},
    {NULL, true, true, PRETOKENIZE_STARCODER},
    {LLAMA3("\\p{N}{1,3}"), false, false, PRETOKENIZE_LLAMA3},
    {LLAMA3("\\p{N}"), false, false, PRETOKENIZE_QWEN2},
};

#define N_CUTS (sizeof cuts / sizeof cuts[0])

const struct cut *cut_find(struct text regex, bool digits, bool bytes_regex)
{
    for (size_t i = 0; i < N_CUTS; i++) {
        const struct cut *c = &cuts[i];
        const bool same = regex.data ? c->regex && text_is(regex, c->regex) : !c->regex;
        if (same && c->digits == digits && c->bytes_regex == bytes_regex)
            return c;
    }
    return NULL;
}

const struct cut *cut_of_rule(enum pretokenize_rule rule)
{
    const struct cut *c = cuts;
    while (c->rule != rule)
        c++;
    return c;
}
