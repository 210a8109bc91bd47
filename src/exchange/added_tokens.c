#include "exchange/added_tokens.h"

#include "exchange/json_file.h"

struct flags {
    bool special, single_word, lstrip, rstrip, normalized;
};

/* How many tokens have a flag, and the first of them. */
struct flagged {
    int n;
    struct text first;
};

static void count(struct flagged *f, bool has, struct text name)
{
    if (has && f->n++ == 0)
        f->first = name;
}

void added_token_mark(struct vocab_build *b, int id)
{
    if (b->types[id] == TOKEN_NORMAL || b->types[id] == TOKEN_USER_DEFINED)
        b->types[id] = TOKEN_CONTROL;
}

static enum status add(struct vocab_build *b, int64_t id, struct text name, bool special,
                       struct err *e)
{
    const int known = vocab_build_find(b, name);
    if (known >= 0 && known != id)
        return err_set(e, STATUS_BAD_FILE,
                       "added token \"%.*s\": expected id %d, as in the vocabulary, found %lld",
                       text_width(name), name.data, known, (long long)id);
    if (known < 0)
        return vocab_build_token(b, id, name, special ? TOKEN_CONTROL : TOKEN_USER_DEFINED, e);
    if (special)
        added_token_mark(b, known);
    else if (b->types[known] == TOKEN_NORMAL)
        b->types[known] = TOKEN_USER_DEFINED;
    return STATUS_OK;
}

static enum status read_flags(const struct json_node *token, struct flags *f, struct err *e)
{
    *f = (struct flags){.special = false};
    TRY(json_optional_bool(token, "special", &f->special, e));
    TRY(json_optional_bool(token, "single_word", &f->single_word, e));
    TRY(json_optional_bool(token, "lstrip", &f->lstrip, e));
    TRY(json_optional_bool(token, "rstrip", &f->rstrip, e));
    return json_optional_bool(token, "normalized", &f->normalized, e);
}

static enum status read_token(const struct json_node *token, struct text *name, struct flags *f,
                              struct err *e)
{
    const struct json_node *content;
    TRY(json_expect(token, JSON_OBJECT, e));
    TRY(json_require(token, "content", JSON_STRING, &content, e));
    *name = content->text;
    TRY(read_flags(token, f, e));
    if (name->len > 0 && !f->single_word)
        return STATUS_OK;
    return err_set(e, STATUS_BAD_FILE, "added token \"%.*s\": expected %s" VOCAB_ADVICE,
                   text_width(*name), name->data,
                   name->len > 0 ? "single_word to be false, found true" : "a name, found none");
}

static void note_strips(const struct vocab_build *b, const struct flagged *strips)
{
    if (strips->n > 0)
        vocab_build_note(b,
                         "spaces beside added tokens, such as \"%.*s\", stay, which the folder's "
                         "tokenizer takes away (%d of them with lstrip or rstrip)",
                         text_width(strips->first), strips->first.data, strips->n);
}

enum status added_tokens_read_list(const struct json_node *list, bool normalizes,
                                   struct vocab_build *b, struct err *e)
{
    struct flagged strips = {0}, normalized = {0};
    for (const struct json_node *c = NULL; (c = json_child(list, c));) {
        struct text name;
        struct flags f;
        const struct json_node *id;
        int64_t value;
        TRY(read_token(c, &name, &f, e));
        TRY(json_require(c, "id", JSON_NUMBER, &id, e));
        TRY(json_node_i64(id, INT64_MIN, INT64_MAX, &value, e));
        TRY(add(b, value, name, f.special, e));
        count(&strips, f.lstrip || f.rstrip, name);
        count(&normalized, f.normalized && normalizes, name);
    }
    note_strips(b, &strips);
    if (normalized.n > 0)
        vocab_build_note(b,
                         "added tokens, such as \"%.*s\", are found wherever they stand; the "
                         "folder's tokenizer looks for them behind a space (%d normalized ones)",
                         text_width(normalized.first), normalized.first.data, normalized.n);
    return STATUS_OK;
}

/* A key that is a number. */
static enum status read_id(const struct json_node *node, int64_t *id, struct err *e)
{
    *id = 0;
    bool digits = node->key.len > 0 && node->key.len < 10;
    for (size_t i = 0; digits && i < node->key.len; i++) {
        digits = node->key.data[i] >= '0' && node->key.data[i] <= '9';
        *id = 10 * *id + (node->key.data[i] - '0');
    }
    if (!digits)
        return err_set(e, STATUS_BAD_FILE,
                       "\"added_tokens_decoder\": expected ids as keys, found \"%.*s\"",
                       text_width(node->key), node->key.data);
    return STATUS_OK;
}

enum status added_tokens_read_decoder(const struct json_node *object, struct vocab_build *b,
                                      struct err *e)
{
    struct flagged strips = {0};
    for (const struct json_node *c = NULL; (c = json_child(object, c));) {
        struct text name;
        struct flags f;
        int64_t id;
        TRY(read_id(c, &id, e));
        TRY(read_token(c, &name, &f, e));
        TRY(add(b, id, name, f.special, e));
        count(&strips, f.lstrip || f.rstrip, name);
    }
    note_strips(b, &strips);
    return STATUS_OK;
}

enum status added_tokens_read_ids(const struct json_node *object, struct vocab_build *b,
                                  struct err *e)
{
    for (const struct json_node *c = NULL; (c = json_child(object, c));) {
        int64_t id;
        TRY(json_node_i64(c, INT64_MIN, INT64_MAX, &id, e));
        TRY(add(b, id, c->key, false, e));
    }
    return STATUS_OK;
}
