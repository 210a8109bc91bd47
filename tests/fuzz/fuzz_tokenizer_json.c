/*
 * fuzz_tokenizer_json - a tokenizer.json, through to the ids of texts. Behind a zero byte a
 * tokenizer_config.json may follow, and behind another an added_tokens.json.
 */
#include "formats/json.h"
#include "round_trip.h"

#define N_FILES 3
#define N_VOCAB 300

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
    start_imported(&v, N_VOCAB);
    finish_imported(&v, vocabulary_of(files, "a folder", &ids, &v, &e), &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices in = {data, size};
    struct json_reader readers[N_FILES] = {{0}};
    const struct json_node *roots[N_FILES] = {NULL};
    bool good = true;
    for (int i = 0; good && i < N_FILES && (i == 0 || in.left > 0); i++)
        good = json_read(&readers[i], next_file(&in), &vocabulary_limits, &roots[i], NULL) ==
                   STATUS_OK &&
               roots[i]->kind == JSON_OBJECT;
    if (good)
        try_roots(roots);
    for (int i = 0; i < N_FILES; i++)
        json_reader_free(&readers[i]);
    return 0;
}
