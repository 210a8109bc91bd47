#include <stdlib.h>

#include "exchange/json_file.h"
#include "exchange/special_tokens.h"
#include "exchange/tokenizer_json.h"
#include "exchange/vocab_build.h"

struct folder {
    const char *dir;
    struct json_file tokenizer, config, map, added;
};

static void folder_close(struct folder *f)
{
    json_file_close(&f->tokenizer);
    json_file_close(&f->config);
    json_file_close(&f->map);
    json_file_close(&f->added);
}

static enum status folder_open(struct folder *f, struct err *e)
{
    TRY(json_file_open(&f->config, f->dir, "tokenizer_config.json", e));
    TRY(json_file_open(&f->map, f->dir, "special_tokens_map.json", e));
    TRY(json_file_open(&f->added, f->dir, "added_tokens.json", e));
    return json_file_open(&f->tokenizer, f->dir, "tokenizer.json", e);
}

static enum status read_all(const struct folder *f, const struct hf_ids *ids, struct vocab_build *b,
                            struct err *e)
{
    const struct special_sources specials = {
        .config = f->config.root,
        .map = f->map.root,
        .added = f->added.root,
        .tokenizer = f->tokenizer.root,
    };
    TRY(tokenizer_json_read(f->tokenizer.root, b, e));
    return special_tokens_read(&specials, ids, b, e);
}

enum status vocabulary_of_folder(const char *dir, const struct hf_ids *ids, int n_vocab,
                                 const struct vocabulary_notes *notes, struct vocabulary *out,
                                 struct err *e)
{
    struct folder f = {.dir = dir};
    struct vocab_build b = {.memory = NULL};
    *out = (struct vocabulary){.memory = NULL};
    enum status s = folder_open(&f, e);
    if (s == STATUS_OK && f.tokenizer.root) {
        s = vocab_build_start(&b, n_vocab, notes, e);
        if (s == STATUS_OK)
            s = read_all(&f, ids, &b, e);
        if (s == STATUS_OK)
            s = vocab_build_finish(&b, out, e);
        if (s != STATUS_OK)
            err_prefix(e, dir);
    }
    vocab_build_drop(&b);
    folder_close(&f);
    return s;
}
