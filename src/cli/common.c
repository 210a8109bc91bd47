#include "cli/common.h"

#include "base/numbers.h"

#define VALUES struct common_options

const struct option general_options[] = {
    OPT_STRING("model", model, "FILE", "the checkpoint, instead of the first argument",
               .letter = 'm', .reads = "the checkpoint"),
    OPT_FLAG("quiet", quiet, "nothing on standard error but errors", .letter = 'q'),
    OPT_FLAG("verbose", verbose, "also memory plan, threads, instruction set", .letter = 'v'),
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

const char *const truncate_sides[] = {"left", "right", NULL};

const char *const kv_type_names[] = {"f32", "f16", "q8_0", NULL};
const enum storage kv_type_storage[] = {STORAGE_F32, STORAGE_F16, STORAGE_Q8_0};

const char *kv_type_smaller(int kv_type)
{
    const int smaller = kv_type + 1;
    return smaller < LENGTH(kv_type_storage) ? kv_type_names[smaller] : NULL;
}

const struct option engine_options[] = {
    OPT_STRING("threads", threads, "N|auto", THREADS_HELP, .letter = 't',
               .otherwise = "DECODE_THREADS, else auto"),
    OPT_CHOICE("kv-type", kv_type, "TYPE", kv_type_names, "how keys and values are cached",
               .fallback = "f32"),
    OPT_STRING("without", without, "L.H,...",
               "leave out what these heads add: layer and head, from 0, of the model as it runs"),
    OPT_END,
};

#undef VALUES
#define VALUES struct variant_options

static const char *const groupings[] = {"auto", "adjacent", "cluster", NULL};
/* auto, then those of enum convert_refit */
static const char *const refits[] = {"auto", "none", "wo", "all", "block", NULL};

#define ANY_VARIANT "kv-heads|cache-bytes"

const struct option variant_options[] = {
    OPT_STRING("kv-heads", kv_heads, "G|G,G,...",
               "convert to G K/V heads, a divisor of the query heads and fewer than there are; or "
               "to these, layer by layer"),
    OPT_CHOICE("method", method, "METHOD", convert_methods,
               "what the heads of a group come to share: their mean, the first, random numbers "
               "(the GQA paper's), the mean after alignment, or the best fit",
               .fallback = "fit", .needs = ANY_VARIANT),
    OPT_STRING("calib", calib, "TEXT|self[:N]|none",
               "a file of text to calibrate on; or N tokens that the model writes itself (16384); "
               "or nothing, so that the weights alone decide",
               .otherwise = "self for fit where there is a vocabulary, else none",
               .needs = ANY_VARIANT, .reads = "the text of --calib"),
    OPT_END,
};

const struct option conversion_options[] = {
    OPT_STRING("cache-bytes", cache_bytes, "B",
               "convert to the K/V heads that do best layer by layer for at most B bytes a token "
               "(f32)"),
    OPT_INT("calib-tokens", calib_tokens, "N", CONVERT_MIN_TOKENS, INT_MAX,
            "how many of its tokens are used, in windows of the context, of 256 at most, spread "
            "over the text",
            .otherwise = "65536", .needs = "calib"),
    OPT_CHOICE("group", grouping, "HOW", groupings,
               "which heads share: neighbours, or those that lose least; auto: cluster for fit and "
               "procrustes, but with ALiBi, whose slopes keep heads in their places",
               .fallback = "auto", .needs = ANY_VARIANT),
    OPT_CHOICE("refit", refit, "WHAT", refits,
               "what is fitted to the calibration text beyond the shared heads: nothing, the "
               "output matrix, also values, inputs and the feed-forward part, or also queries and "
               "keys by gradients (minutes for large models); auto: all for fit, wo on the "
               "model's own text, none for the others",
               .fallback = "auto", .needs = ANY_VARIANT),
    OPT_END,
};
