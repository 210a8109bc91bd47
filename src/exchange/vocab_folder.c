#include <stdlib.h>

#include "exchange/added_tokens.h"
#include "exchange/json_file.h"
#include "exchange/special_tokens.h"
#include "exchange/tokenizer_json.h"
#include "exchange/vocab_build.h"
#include "exchange/vocab_readers.h"

/* --- the files ------------------------------------------------------------------------------- */

enum { CONFIG, MAP, ADDED, TOKENIZER, VOCAB, N_JSON };
enum { MODEL = N_JSON, MERGES, N_FILES };

static const char *const names[N_FILES] = {
    [CONFIG] = "tokenizer_config.json",
    [MAP] = "special_tokens_map.json",
    [ADDED] = "added_tokens.json",
    [TOKENIZER] = "tokenizer.json",
    [VOCAB] = "vocab.json",
    [MODEL] = "tokenizer.model",
    [MERGES] = "merges.txt",
};

struct folder {
    char *path[N_FILES];
    struct json_file json[N_JSON];
    struct file_map model, merges;
    bool has_model, has_merges;
};

static void folder_close(struct folder *f)
{
    for (int i = 0; i < N_FILES; i++)
        free(f->path[i]);
    for (int i = 0; i < N_JSON; i++)
        json_file_close(&f->json[i]);
    file_map_close(&f->model);
    file_map_close(&f->merges);
}

static enum status open_other(struct file_map *map, bool *has, const char *path, struct err *e)
{
    *has = file_is_there(path);
    return *has ? file_map_steady(map, path, e) : STATUS_OK;
}

static enum status folder_open(struct folder *f, const char *dir, struct err *e)
{
    for (int i = 0; i < N_FILES; i++) {
        f->path[i] = path_in(dir, names[i]);
        if (!f->path[i])
            return err_no_memory(e, "paths", strlen(dir) + strlen(names[i]));
    }
    for (int i = 0; i <= TOKENIZER; i++)
        TRY(json_file_open(&f->json[i], f->path[i], e));
    TRY(open_other(&f->model, &f->has_model, f->path[MODEL], e));
    if (f->json[TOKENIZER].root)
        return STATUS_OK;
    TRY(json_file_open(&f->json[VOCAB], f->path[VOCAB], e));
    return open_other(&f->merges, &f->has_merges, f->path[MERGES], e);
}

static struct text text_of_map(const struct file_map *m)
{
    return (struct text){m->data ? (const char *)m->data : "", m->len};
}

/* --- which of them --------------------------------------------------------------------------- */

/* A tokenizer.model is the truth where it is SentencePiece's (others write tables of theirs under
 * that name): a tokenizer.json beside it was made from it. */
static bool takes_model(const struct folder *f)
{
    const struct text model = text_of_map(&f->model);
    return vocab_is_sentencepiece(model) ||
           (f->has_model && !f->json[TOKENIZER].root && !f->json[VOCAB].root);
}

/* A tokenizer.json beside the model may have added tokens to it. */
static enum status read_model(const struct folder *f, struct vocab_build *b, struct err *e)
{
    const struct json_node *root = f->json[TOKENIZER].root;
    const struct json_node *added = root ? json_present(root, "added_tokens") : NULL;
    TRY(vocab_sentencepiece_read(text_of_map(&f->model), b, e));
    if (!added)
        return STATUS_OK;
    TRY(json_expect(added, JSON_ARRAY, e));
    TRY(vocab_build_index(b, e));
    return added_tokens_read_list(added, false, b, e);
}

/* Reads the tokens; *source becomes the file that has them, or N_FILES: there is none. */
static enum status read_tokens(const struct folder *f, struct vocab_build *b, int *source,
                               struct err *e)
{
    const struct json_node *vocab = f->json[VOCAB].root;
    *source = takes_model(f)            ? MODEL
              : f->json[TOKENIZER].root ? TOKENIZER
              : !vocab                  ? N_FILES
              : f->has_merges           ? MERGES
                                        : VOCAB;
    switch (*source) {
    case MODEL:
        return read_model(f, b, e);
    case TOKENIZER:
        return tokenizer_json_read(f->json[TOKENIZER].root, b, e);
    case MERGES:
        return vocab_merges_read(vocab, text_of_map(&f->merges), b, e);
    case VOCAB:
        return vocab_chars_read(vocab, b, e);
    default:
        return b->keys.n == 256 ? vocab_bytes_fill(b, e) : STATUS_OK;
    }
}

/* GPT-2's tokenizer puts a space before texts if its config says so. */
static enum status check_config(const struct folder *f, const struct vocab_build *b, struct err *e)
{
    bool adds = false;
    const struct json_node *config = f->json[CONFIG].root;
    if (!config || !b->keys.pre)
        return STATUS_OK;
    TRY(json_optional_bool(config, "add_prefix_space", &adds, e));
    return !adds ? STATUS_OK
                 : err_set(e, STATUS_BAD_FILE,
                           "expected \"add_prefix_space\" to be false, found true" VOCAB_ADVICE);
}

static enum status read_specials(const struct folder *f, const struct hf_ids *ids, int source,
                                 struct vocab_build *b, struct err *e)
{
    const struct special_sources specials = {
        .config = f->json[CONFIG].root,
        .map = f->json[MAP].root,
        .added = f->json[ADDED].root,
        .tokenizer = f->json[TOKENIZER].root,
        .otherwise = source == MERGES ? "<|endoftext|>" : NULL,
        .adds_bos = b->keys.add_bos,
    };
    return special_tokens_read(&specials, ids, b, e);
}

/* --- one after another ----------------------------------------------------------------------- */

static enum status prefixed(enum status s, const char *path, struct err *e)
{
    if (s != STATUS_OK && s != STATUS_NO_MEMORY)
        err_prefix(e, path);
    return s;
}

static enum status read_folder(const struct folder *f, const char *dir, const struct hf_ids *ids,
                               struct vocab_build *b, struct vocabulary *out, struct err *e)
{
    int source;
    const enum status s = read_tokens(f, b, &source, e);
    TRY(prefixed(s, source < N_FILES ? f->path[source] : dir, e));
    if (!b->keys.model) {
        vocab_build_note(b, "there is no tokenizer: tokens come without text");
        return STATUS_OK;
    }
    TRY(prefixed(check_config(f, b, e), f->path[CONFIG], e));
    TRY(prefixed(read_specials(f, ids, source, b, e), dir, e));
    return prefixed(vocab_build_finish(b, out, e), source < N_FILES ? f->path[source] : dir, e);
}

enum status vocabulary_of_folder(const char *dir, const struct hf_ids *ids, int n_vocab,
                                 const struct vocabulary_notes *notes, struct vocabulary *out,
                                 struct err *e)
{
    struct folder f = {.path = {NULL}};
    struct vocab_build b = {.memory = NULL};
    *out = (struct vocabulary){.memory = NULL};
    enum status s = folder_open(&f, dir, e);
    if (s == STATUS_OK)
        s = vocab_build_start(&b, n_vocab, notes, e);
    if (s == STATUS_OK)
        s = read_folder(&f, dir, ids, &b, out, e);
    vocab_build_drop(&b);
    folder_close(&f);
    return s;
}
