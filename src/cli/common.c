#include "cli/common.h"

#define VALUES struct common_options

const struct option general_options[] = {
    OPT_STRING("model", model, "FILE", "the checkpoint, instead of the first argument",
               .letter = 'm', .reads = "the checkpoint"),
    OPT_FLAG("quiet", quiet, "nothing on standard error but errors", .letter = 'q',
             .unrecorded = true),
    OPT_FLAG("verbose", verbose, "also memory plan, threads, instruction set", .letter = 'v',
             .unrecorded = true),
    OPT_END,
};

const struct option input_options[] = {
    OPT_STRING("prompt", prompt, "TEXT", "the text, as it is: \\n is a backslash and an n",
               .letter = 'p', .excludes = "file|tokens|decode|prompts"),
    OPT_STRING("file", file, "FILE",
               "read the text from a file, its last newline too; - is standard input",
               .letter = 'f', .excludes = "tokens|decode|prompts", .reads = "the text"),
    OPT_END,
};

const char *const truncate_sides[] = {[TRUNCATE_LEFT] = "left", [TRUNCATE_RIGHT] = "right", NULL};
const char *const text_formats[] = {[FORMAT_TEXT] = "text", [FORMAT_JSON] = "json", NULL};

const struct option engine_options[] = {
    OPT_STRING("threads", threads, "N|auto", THREADS_HELP, .letter = 't',
               .otherwise = "DECODE_THREADS, else auto"),
    OPT_STRING("kv-heads", kv_heads, "G|G,G,...",
               "run with G K/V heads, a divisor of the query heads, or with these, layer by layer; "
               "converted in memory by fit, from the weights alone"),
    OPT_STRING("without", without, "L.H,...",
               "leave out what these heads add: layer and head, from 0, of the model as it runs"),
    OPT_END,
};
