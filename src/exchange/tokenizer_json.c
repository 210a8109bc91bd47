#include "exchange/tokenizer_json.h"

#include <stdlib.h>

#include "base/checked.h"
#include "exchange/added_tokens.h"
#include "exchange/json_file.h"
#include "exchange/merge_scores.h"
#include "exchange/tokenizer_pipeline.h"

/* --- what the model must be ------------------------------------------------------------------ */

struct model {
    const struct json_node *vocab, *merges;
    struct text unknown; /* data is NULL: none */
    bool byte_fallback, whole_pieces;
};

static enum status refuse_option(const struct json_node *node, const char *expected, struct err *e)
{
    return err_set(e, STATUS_BAD_FILE, "model: expected \"%.*s\" to be %s, found %.*s" VOCAB_ADVICE,
                   text_width(node->key), node->key.data, expected, text_width(node->text),
                   node->text.data);
}

static enum status check_dropout(const struct json_node *model, struct err *e)
{
    const struct json_node *dropout = json_present(model, "dropout");
    double value = 0;
    if (dropout)
        TRY(json_node_double(dropout, &value, e));
    return value > 0 || value < 0 ? refuse_option(dropout, "null or 0", e) : STATUS_OK;
}

static enum status check_affix(const struct json_node *model, const char *key, struct err *e)
{
    struct text affix = {NULL, 0};
    const struct json_node *node = json_present(model, key);
    if (node)
        TRY(json_node_text(node, &affix, e));
    return affix.len > 0 ? refuse_option(node, "null", e) : STATUS_OK;
}

/* Old files do not say the type of a model that has merges. */
static enum status check_type(const struct json_node *model, struct err *e)
{
    struct text type = text_of(json_member(model, "merges") ? "BPE" : "no merges");
    const struct json_node *node = json_present(model, "type");
    if (node)
        TRY(json_node_text(node, &type, e));
    if (text_is(type, "BPE"))
        return STATUS_OK;
    return err_set(e, STATUS_BAD_FILE,
                   "model: expected \"type\" to be BPE, found %.*s" VOCAB_ADVICE, text_width(type),
                   type.data);
}

static enum status read_model(const struct json_node *root, struct model *m, struct err *e)
{
    *m = (struct model){.vocab = NULL};
    const struct json_node *model;
    TRY(json_require(root, "model", JSON_OBJECT, &model, e));
    TRY(check_type(model, e));
    TRY(check_dropout(model, e));
    TRY(check_affix(model, "continuing_subword_prefix", e));
    TRY(check_affix(model, "end_of_word_suffix", e));
    TRY(json_optional_bool(model, "byte_fallback", &m->byte_fallback, e));
    TRY(json_optional_bool(model, "ignore_merges", &m->whole_pieces, e));
    const struct json_node *unknown = json_present(model, "unk_token");
    if (unknown)
        TRY(json_node_text(unknown, &m->unknown, e));
    TRY(json_require(model, "vocab", JSON_OBJECT, &m->vocab, e));
    return json_require(model, "merges", JSON_ARRAY, &m->merges, e);
}

/* --- tokens ---------------------------------------------------------------------------------- */

enum status vocab_json_read(const struct json_node *vocab, struct vocab_build *b, struct err *e)
{
    for (const struct json_node *c = NULL; (c = json_child(vocab, c));) {
        int64_t id;
        TRY(json_node_i64(c, 0, b->keys.n - 1, &id, e));
        TRY(vocab_build_token(b, id, c->key, TOKEN_NORMAL, e));
    }
    return vocab_build_index(b, e);
}

/* --- merges ---------------------------------------------------------------------------------- */

enum status merge_split(struct text line, uint64_t rank, struct text *left, struct text *right,
                        struct err *e)
{
    const char *space = line.len > 0 ? memchr(line.data, ' ', line.len) : NULL;
    const size_t cut = space ? (size_t)(space - line.data) : 0;
    const size_t behind = space ? line.len - cut - 1 : 0;
    if (cut == 0 || behind == 0 || memchr(space + 1, ' ', behind))
        return err_set(e, STATUS_BAD_FILE,
                       "merge %llu: expected two tokens with a space between, found \"%.*s\"",
                       (unsigned long long)rank, text_width(line), line.data);
    *left = (struct text){line.data, cut};
    *right = (struct text){space + 1, behind};
    return STATUS_OK;
}

static enum status split_node(const struct json_node *merge, uint64_t rank, struct text *left,
                              struct text *right, struct err *e)
{
    if (merge->kind == JSON_STRING)
        return merge_split(merge->text, rank, left, right, e);
    TRY(json_expect(merge, JSON_ARRAY, e));
    if (merge->n != 2)
        return err_set(e, STATUS_BAD_FILE, "merge %llu: expected two tokens, found %u",
                       (unsigned long long)rank, (unsigned)merge->n);
    const struct json_node *first = json_child(merge, NULL);
    TRY(json_node_text(first, left, e));
    return json_node_text(json_child(merge, first), right, e);
}

static enum status find_merged(const struct vocab_build *b, struct text name, uint64_t rank,
                               int32_t *id, struct err *e)
{
    *id = vocab_build_find(b, name);
    if (*id < 0)
        return err_set(e, STATUS_BAD_FILE,
                       "merge %llu: expected tokens of the vocabulary, found \"%.*s\"",
                       (unsigned long long)rank, text_width(name), name.data);
    return STATUS_OK;
}

/* The pair of a merge, and its name "left right". */
static enum status find_pair(struct vocab_build *b, struct text left, struct text right,
                             uint64_t rank, struct symbol_pair *pair, struct text *name,
                             struct err *e)
{
    const struct text parts[] = {left, text_of(" "), right}, both[] = {left, right};
    struct text joined;
    TRY(find_merged(b, left, rank, &pair->left, e));
    TRY(find_merged(b, right, rank, &pair->right, e));
    TRY(vocab_build_join(b, both, 2, &joined, e));
    TRY(find_merged(b, joined, rank, &pair->result, e));
    pair->rank = (int32_t)rank;
    return name ? vocab_build_join(b, parts, 3, name, e) : STATUS_OK;
}

enum status merge_add(struct vocab_build *b, struct text left, struct text right, struct err *e)
{
    struct symbol_pair pair;
    const uint64_t rank = b->keys.n_merges;
    if ((left.len > 0 && memchr(left.data, ' ', left.len)) ||
        (right.len > 0 && memchr(right.data, ' ', right.len)))
        return err_set(e, STATUS_BAD_FILE,
                       "merge %llu: expected tokens in GPT-2's byte alphabet, found a space in "
                       "\"%.*s\" or \"%.*s\"",
                       (unsigned long long)rank, text_width(left), left.data, text_width(right),
                       right.data);
    TRY(find_pair(b, left, right, rank, &pair, &b->merges[rank], e));
    b->keys.n_merges++;
    return STATUS_OK;
}

static enum status read_merges(struct vocab_build *b, const struct json_node *merges, struct err *e)
{
    TRY(vocab_build_take_merges(b, merges->n, e));
    for (const struct json_node *c = NULL; (c = json_child(merges, c));) {
        struct text left, right;
        TRY(split_node(c, b->keys.n_merges, &left, &right, e));
        TRY(merge_add(b, left, right, e));
    }
    return STATUS_OK;
}

static enum status read_pairs(struct vocab_build *b, const struct json_node *merges,
                              struct symbol_pair *pairs, struct err *e)
{
    uint64_t rank = 0;
    for (const struct json_node *c = NULL; (c = json_child(merges, c)); rank++) {
        struct text left, right;
        TRY(split_node(c, rank, &left, &right, e));
        TRY(find_pair(b, left, right, rank, &pairs[rank], NULL, e));
    }
    return STATUS_OK;
}

static enum status score_merges(struct vocab_build *b, const struct json_node *merges,
                                struct err *e)
{
    TRY(vocab_build_take_scores(b, e));
    struct symbol_pair *pairs = calloc((size_t)merges->n + 1, sizeof *pairs);
    if (!pairs)
        return err_no_memory(e, "merges", ((size_t)merges->n + 1) * sizeof *pairs);
    const enum status s = read_pairs(b, merges, pairs, e);
    if (s == STATUS_OK)
        return merge_scores(b, pairs, merges->n, e);
    free(pairs);
    return s;
}

/* --- the two kinds --------------------------------------------------------------------------- */

static enum status read_bytes(struct vocab_build *b, const struct model *m,
                              enum pretokenize_rule rule, struct err *e)
{
    static const struct {
        enum pretokenize_rule rule;
        bool whole_pieces;
        const char *pre;
    } names[] = {{PRETOKENIZE_GPT2, false, "gpt-2"},
                 {PRETOKENIZE_STARCODER, false, "starcoder"},
                 {PRETOKENIZE_LLAMA3, true, "llama-bpe"},
                 {PRETOKENIZE_LLAMA3, false, "dbrx"},
                 {PRETOKENIZE_QWEN2, false, "qwen2"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].rule == rule && names[i].whole_pieces == m->whole_pieces)
            b->keys.pre = names[i].pre;
    if (!b->keys.pre)
        return err_set(e, STATUS_BAD_FILE,
                       "model: expected \"ignore_merges\" to be false with these cuts, found "
                       "true" VOCAB_ADVICE);
    b->keys.model = "gpt2";
    return read_merges(b, m->merges, e);
}

/* Whether a space stands behind something else in a token that merging makes. */
static bool crosses_space(struct text name)
{
    static const size_t len = sizeof VOCAB_SPACE - 1;
    for (size_t i = 1; i + len <= name.len; i++)
        if (memcmp(name.data + i, VOCAB_SPACE, len) == 0)
            return true;
    return false;
}

static enum status check_spaces(const struct vocab_build *b, const struct model *m, bool cuts,
                                struct err *e)
{
    if (m->whole_pieces)
        return err_set(
            e, STATUS_BAD_FILE,
            "model: expected \"ignore_merges\" to be false where spaces are \"" VOCAB_SPACE
            "\", found true" VOCAB_ADVICE);
    for (int id = 0; id < b->keys.n; id++) {
        const struct text name = b->tokens[id];
        if (cuts && crosses_space(name))
            return err_set(
                e, STATUS_BAD_FILE,
                "pre_tokenizer Metaspace: expected \"split\" to be false, as token %d is "
                "\"%.*s\", found true" VOCAB_ADVICE,
                id, text_width(name), name.data);
        const bool is_byte = name.data && vocab_hex_byte(name, TOKEN_BYTE) >= 0;
        if (is_byte && !m->byte_fallback)
            return err_set(e, STATUS_BAD_FILE,
                           "model: expected \"byte_fallback\" to be true, as token %d is %.*s, "
                           "found false" VOCAB_ADVICE,
                           id, text_width(name), name.data);
        if (is_byte)
            b->types[id] = TOKEN_BYTE;
    }
    return STATUS_OK;
}

static enum status read_spaces(struct vocab_build *b, const struct model *m,
                               const struct tokenizer_pipeline *p, struct err *e)
{
    b->keys.model = "llama";
    b->keys.add_space_prefix = p->adds_space;
    TRY(check_spaces(b, m, p->cuts_spaces, e));
    if (b->keys.unk >= 0)
        b->types[b->keys.unk] = TOKEN_UNKNOWN;
    return score_merges(b, m->merges, e);
}

enum status tokenizer_json_read(const struct json_node *root, struct vocab_build *b, struct err *e)
{
    struct model m;
    struct tokenizer_pipeline p;
    TRY(read_model(root, &m, e));
    TRY(tokenizer_pipeline_read(root, b, &p, e));
    TRY(vocab_json_read(m.vocab, b, e));
    if (m.unknown.data)
        b->keys.unk = vocab_build_find(b, m.unknown);
    const struct json_node *added = json_present(root, "added_tokens");
    if (added)
        TRY(json_expect(added, JSON_ARRAY, e));
    if (added)
        TRY(added_tokens_read_list(added, p.normalizes, b, e));
    return p.is_bytes ? read_bytes(b, &m, p.rule, e) : read_spaces(b, &m, &p, e);
}
