/*
 * fuzz_tokenizer_json - a tokenizer.json, through to the ids of texts. Behind a zero byte a
 * tokenizer_config.json may follow, and behind another an added_tokens.json.
 */
#include "formats/json.h"
#include "imported.h"

#define N_FILES 3
#define N_VOCAB 300

static const struct json_limits limits = {.bytes = 1 << 18, .values = 1 << 14, .depth = 32};

/* The text up to the next zero byte; what is behind it is left in *rest. */
static struct text next_file(struct text *rest)
{
    const char *end = rest->len > 0 ? memchr(rest->data, 0, rest->len) : NULL;
    const struct text file = {rest->data, end ? (size_t)(end - rest->data) : rest->len};
    rest->data += file.len + (end ? 1 : 0);
    rest->len -= file.len + (end ? 1 : 0);
    return file;
}

static void try_roots(const struct json_node *const roots[N_FILES])
{
    static const struct hf_ids ids = {1, 2, 400};
    static char path[] = "a path";
    struct input files[VOCAB_FILES] = {
        [VOCAB_CONFIG] = {.path = path, .root = roots[1]},
        [VOCAB_MAP] = {.path = path, .root = roots[1]},
        [VOCAB_ADDED] = {.path = path, .root = roots[2]},
        [VOCAB_TOKENIZER] = {.path = path, .root = roots[0]},
    };
    struct vocabulary v;
    struct err e = {{0}};
    require(vocabulary_start(&v, N_VOCAB, &imported_notes, &e) == STATUS_OK);
    finish_imported(&v, vocabulary_of(files, "a folder", &ids, &v, &e), &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text rest = {(const char *)data, size};
    struct json_reader readers[N_FILES] = {{0}};
    const struct json_node *roots[N_FILES] = {NULL};
    bool good = true;
    for (int i = 0; i < N_FILES && (i == 0 || rest.len > 0); i++)
        good = good &&
               json_read(&readers[i], next_file(&rest), &limits, &roots[i], NULL) == STATUS_OK &&
               roots[i]->kind == JSON_OBJECT;
    if (good)
        try_roots(roots);
    for (int i = 0; i < N_FILES; i++)
        json_reader_free(&readers[i]);
    return 0;
}
