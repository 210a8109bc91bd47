#include "exchange/special_tokens.h"

#include "exchange/added_tokens.h"
#include "exchange/json_file.h"
#include "exchange/tokenizer_pipeline.h"

/* --- names ----------------------------------------------------------------------------------- */

/* A token's name: a string, or an object that has it as "content". */
static enum status read_name(const struct json_node *node, struct text *name, struct err *e)
{
    if (node->kind != JSON_OBJECT)
        return json_node_text(node, name, e);
    TRY(json_require(node, "content", JSON_STRING, &node, e));
    *name = node->text;
    return STATUS_OK;
}

/* The token that a key names in one of the files, or `otherwise` if none has the key; -1: none. */
static enum status find_named(const struct special_sources *s, const struct vocab_build *b,
                              const char *key, const char *otherwise, int *id, struct err *e)
{
    const struct json_node *const files[] = {s->config, s->map};
    bool said = false;
    *id = -1;
    for (int i = 0; i < 2 && *id < 0; i++) {
        const struct json_node *node = files[i] ? json_present(files[i], key) : NULL;
        struct text name;
        if (!node)
            continue;
        said = true;
        TRY(read_name(node, &name, e));
        *id = vocab_build_find(b, name);
    }
    if (!said && otherwise)
        *id = vocab_build_find(b, text_of(otherwise));
    return STATUS_OK;
}

/* *id: the named token, else what it was, else what the model's config says. */
static enum status choose_id(const struct special_sources *s, struct vocab_build *b,
                             const char *key, const char *otherwise, int64_t of_config, int *id,
                             struct err *e)
{
    int named;
    TRY(find_named(s, b, key, otherwise, &named, e));
    if (named >= 0) {
        added_token_mark(b, named);
        *id = named;
    } else if (*id < 0 && of_config >= 0 && of_config < b->keys.n) {
        *id = (int)of_config;
    }
    return STATUS_OK;
}

static enum status mark_others(const struct json_node *file, struct vocab_build *b, struct err *e)
{
    const struct json_node *list = file ? json_present(file, "additional_special_tokens") : NULL;
    if (!list)
        return STATUS_OK;
    TRY(json_expect(list, JSON_ARRAY, e));
    for (const struct json_node *c = NULL; (c = json_child(list, c));) {
        struct text name;
        TRY(read_name(c, &name, e));
        const int id = vocab_build_find(b, name);
        if (id >= 0)
            added_token_mark(b, id);
    }
    return STATUS_OK;
}

static enum status of_file(enum status s, const char *name, struct err *e)
{
    if (s != STATUS_OK && s != STATUS_NO_MEMORY)
        err_prefix(e, name);
    return s;
}

static enum status add_decoder(const struct json_node *decoder, struct vocab_build *b,
                               struct err *e)
{
    TRY(json_expect(decoder, JSON_OBJECT, e));
    TRY(vocab_build_index(b, e));
    return added_tokens_read_decoder(decoder, b, e);
}

static enum status add_tokens(const struct special_sources *s, struct vocab_build *b, struct err *e)
{
    const struct json_node *decoder =
        s->config ? json_present(s->config, "added_tokens_decoder") : NULL;
    if (decoder)
        TRY(of_file(add_decoder(decoder, b, e), "tokenizer_config.json", e));
    if (s->added) {
        TRY(vocab_build_index(b, e));
        TRY(of_file(added_tokens_read_ids(s->added, b, e), "added_tokens.json", e));
    }
    return vocab_build_index(b, e);
}

/* --- BOS before texts ------------------------------------------------------------------------ */

static enum status read_adds_bos(const struct special_sources *s, struct vocab_build *b,
                                 struct err *e)
{
    struct vocab_keys *k = &b->keys;
    int first = -1;
    bool adds = s->adds_bos;
    if (s->config)
        TRY(json_optional_bool(s->config, "add_bos_token", &adds, e));
    if (s->tokenizer) {
        TRY(of_file(tokenizer_template_read(s->tokenizer, b, &first, e), "tokenizer.json", e));
        adds = first >= 0;
    }
    if (first >= 0 && k->bos >= 0 && first != k->bos)
        return err_set(e, STATUS_BAD_FILE,
                       "post_processor: expected BOS, token %d, before each text, found token %d, "
                       "\"%.*s\"" VOCAB_ADVICE,
                       k->bos, first, text_width(b->tokens[first]), b->tokens[first].data);
    if (first >= 0)
        k->bos = first;
    k->add_bos = adds && k->bos >= 0;
    return STATUS_OK;
}

static void note_missing(const struct vocab_build *b)
{
    const struct vocab_keys *k = &b->keys;
    if (k->bos < 0 || k->eos < 0)
        vocab_build_note(b, "the vocabulary has no %s token%s",
                         k->bos >= 0   ? "EOS"
                         : k->eos >= 0 ? "BOS"
                                       : "BOS and no EOS",
                         k->eos < 0 ? ": texts do not end by themselves" : "");
}

enum status special_tokens_read(const struct special_sources *s, const struct hf_ids *ids,
                                struct vocab_build *b, struct err *e)
{
    int unknown = -1;
    TRY(add_tokens(s, b, e));
    TRY(mark_others(s->config, b, e));
    TRY(mark_others(s->map, b, e));
    TRY(choose_id(s, b, "bos_token", s->otherwise, ids->bos, &b->keys.bos, e));
    TRY(choose_id(s, b, "eos_token", s->otherwise, ids->eos, &b->keys.eos, e));
    TRY(choose_id(s, b, "pad_token", NULL, ids->pad, &b->keys.pad, e));
    TRY(choose_id(s, b, "unk_token", s->otherwise, -1, &unknown, e));
    if (b->keys.unk < 0)
        b->keys.unk = unknown;
    TRY(read_adds_bos(s, b, e));
    note_missing(b);
    return STATUS_OK;
}
