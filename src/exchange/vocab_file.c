#include "exchange/json_file.h"
#include "exchange/special_tokens.h"
#include "exchange/tokenizer_json.h"
#include "exchange/vocab_build.h"
#include "exchange/vocab_readers.h"

/* --- bytes ----------------------------------------------------------------------------------- */

static bool is_json(struct text file)
{
    size_t i = 0;
    while (i < file.len && file.data[i] && strchr(" \t\r\n", file.data[i]))
        i++;
    return i < file.len && file.data[i] == '{';
}

static enum status read_binary(struct text file, struct vocab_build *b, struct err *e)
{
    if (vocab_is_llmc(file))
        return vocab_llmc_read(file, b, e);
    if (vocab_is_sentencepiece(file))
        return vocab_sentencepiece_read(file, b, e);
    return vocab_llama2c_read(file, b, e);
}

static enum status read_json(const struct json_node *root, const struct hf_ids *ids,
                             struct vocab_build *b, struct err *e)
{
    struct special_sources specials = {.tokenizer = NULL};
    if (json_member(root, "model")) {
        specials.tokenizer = root;
        TRY(tokenizer_json_read(root, b, e));
    } else {
        TRY(vocab_chars_read(root, b, e));
    }
    return special_tokens_read(&specials, ids, b, e);
}

/* --- files ----------------------------------------------------------------------------------- */

static enum status read_binary_file(const char *path, struct vocab_build *b, bool *json,
                                    struct err *e)
{
    struct file_map map;
    TRY(file_map_steady(&map, path, e));
    const struct text file = {map.data ? (const char *)map.data : "", map.len};
    *json = is_json(file);
    const enum status s = *json ? STATUS_OK : read_binary(file, b, e);
    file_map_close(&map);
    if (s != STATUS_OK && s != STATUS_NO_MEMORY)
        err_prefix(e, path);
    return s;
}

static enum status read_json_file(const char *path, const struct hf_ids *ids, struct vocab_build *b,
                                  struct err *e)
{
    struct json_file f;
    enum status s = json_file_open(&f, path, e);
    if (s == STATUS_OK && f.root) {
        s = read_json(f.root, ids, b, e);
        if (s != STATUS_OK && s != STATUS_NO_MEMORY)
            err_prefix(e, path);
    }
    json_file_close(&f);
    return s;
}

static enum status finish(struct vocab_build *b, const char *path, struct vocabulary *out,
                          struct err *e)
{
    const enum status s = vocab_build_finish(b, out, e);
    if (s != STATUS_OK && s != STATUS_NO_MEMORY)
        err_prefix(e, path);
    return s;
}

static enum status read_file_of_any(const char *path, const struct hf_ids *ids,
                                    struct vocab_build *b, struct vocabulary *out, struct err *e)
{
    bool json;
    TRY(read_binary_file(path, b, &json, e));
    if (json)
        TRY(read_json_file(path, ids, b, e));
    return finish(b, path, out, e);
}

enum status vocabulary_of_file(const char *path, const struct hf_ids *ids, int n_vocab,
                               const struct vocabulary_notes *notes, struct vocabulary *out,
                               struct err *e)
{
    struct vocab_build b;
    *out = (struct vocabulary){.memory = NULL};
    enum status s = vocab_build_start(&b, n_vocab, notes, e);
    if (s == STATUS_OK)
        s = read_file_of_any(path, ids, &b, out, e);
    vocab_build_drop(&b);
    return s;
}

enum status vocabulary_plain(int n_vocab, struct vocabulary *out, struct err *e)
{
    struct vocab_build b;
    *out = (struct vocabulary){.memory = NULL};
    if (n_vocab != 256)
        return STATUS_OK;
    enum status s = vocab_build_start(&b, n_vocab, NULL, e);
    if (s == STATUS_OK)
        s = vocab_bytes_fill(&b, e);
    if (s == STATUS_OK)
        s = vocab_build_finish(&b, out, e);
    vocab_build_drop(&b);
    return s;
}
