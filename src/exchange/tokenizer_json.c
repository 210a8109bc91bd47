/*
 * tokenizer.json: what it does with a text before, in and after its merges, and the tokens.
 */
#include <stdlib.h>

#include "exchange/private.h"

/* --- what a text goes through ---------------------------------------------------------------- */

#define SPACES "\\s+(?!\\S)|\\s+"
#define GPT2   "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES
#define LLAMA3(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" SPACES

/* The first of a rule is the one that is written. */
static const struct cut cuts[] = {
    {NULL, false, true, PRETOKENIZE_GPT2, "gpt-2", NULL},
    {"'s|'t|'re|'ve|'m|'ll|'d" GPT2, false, false, PRETOKENIZE_GPT2, "gpt-2", NULL},
    {"'(?:[sdmt]|ll|ve|re)" GPT2, false, false, PRETOKENIZE_GPT2, "gpt-2", NULL},
    {NULL, true, true, PRETOKENIZE_STARCODER, "starcoder", NULL},
    {LLAMA3("\\p{N}{1,3}"), false, false, PRETOKENIZE_LLAMA3, "dbrx", "llama-bpe"},
    {LLAMA3("\\p{N}"), false, false, PRETOKENIZE_QWEN2, "qwen2", NULL},
};
#define N_CUTS (sizeof cuts / sizeof *cuts)

const struct cut *cut_of_rule(enum pretokenize_rule rule)
{
    const struct cut *c = cuts;
    while (c->rule != rule)
        c++;
    return c;
}

struct pipeline {
    bool is_bytes;         /* tokens in the byte alphabet; else spaces are U+2581 */
    const struct cut *cut; /* of bytes */
    bool marks_spaces;     /* spaces become U+2581 */
    bool adds_space;       /* of the others: before a text */
    bool cuts_spaces;      /* of the others: no merge goes across a space */
    bool normalizes;       /* marks spaces before added tokens are looked for */
    struct text regex;     /* of Split; data is NULL: none */
    bool digits;           /* each is a piece */
    bool bytes_regex;      /* of ByteLevel: GPT-2's, too */
};

/* The step after *step, NULL at first and at last, of what is a step or a Sequence that has them at
 * `list`; and its type. */
static enum status next_step(const struct json_node *steps, const char *list,
                             const struct json_node **step, struct text *type, struct err *e)
{
    const struct json_node *name;
    TRY(json_expect(steps, JSON_OBJECT, e));
    TRY(json_require(steps, "type", JSON_STRING, &name, e));
    *type = name->text;
    if (!text_is(name->text, "Sequence")) {
        *step = *step ? NULL : steps;
        return STATUS_OK;
    }
    TRY(json_require(steps, list, JSON_ARRAY, &steps, e));
    *step = json_child(steps, *step);
    if (!*step)
        return STATUS_OK;
    TRY(json_expect(*step, JSON_OBJECT, e));
    TRY(json_require(*step, "type", JSON_STRING, &name, e));
    *type = name->text;
    return STATUS_OK;
}

static enum status refuse_step(const char *what, const char *expected, struct text found,
                               struct err *e)
{
    return bad_file(e, "%s: expected %s, found \"%.*s\"" VOCAB_ADVICE, what, expected,
                    SHOWN(found));
}

/* The string or regex that Replace and Split look for. */
static enum status read_pattern(const struct json_node *step, const char *kind, struct text *out,
                                struct err *e)
{
    const struct json_node *pattern;
    TRY(json_require(step, "pattern", JSON_OBJECT, &pattern, e));
    const struct json_node *text = json_member(pattern, kind);
    *out = (struct text){NULL, 0};
    return text ? json_node_text(text, out, e) : STATUS_OK;
}

static enum status read_normalizer(const struct json_node *steps, const struct vocabulary *v,
                                   struct pipeline *p, struct err *e)
{
    const struct json_node *step = NULL, *put;
    struct text type, from;
    for (;;) {
        TRY(next_step(steps, "normalizers", &step, &type, e));
        if (!step)
            return STATUS_OK;
        if (text_is(type, "Replace")) {
            TRY(read_pattern(step, "String", &from, e));
            TRY(json_require(step, "content", JSON_STRING, &put, e));
            if (!text_is(from, " ") || !text_is(put->text, VOCAB_SPACE))
                return refuse_step("normalizer Replace",
                                   "\" \" to be replaced by \"" VOCAB_SPACE "\"", from, e);
            p->marks_spaces = true;
        } else if (text_is(type, "Prepend")) {
            TRY(json_require(step, "prepend", JSON_STRING, &put, e));
            if (!text_is(put->text, VOCAB_SPACE))
                return refuse_step("normalizer Prepend", "\"" VOCAB_SPACE "\"", put->text, e);
            p->adds_space = true;
        } else if (text_is(type, "NFC") || text_is(type, "NFKC") || text_is(type, "Precompiled")) {
            vocabulary_note(v->notes,
                            "the normalizer %.*s is not applied: texts must be in its form already",
                            SHOWN(type));
        } else {
            return refuse_step("normalizer", "none, NFC, NFKC, Precompiled, Prepend or Replace",
                               type, e);
        }
    }
}

/* A flag of a step, false where it is not said, that must be so. */
static enum status expect_flag(const struct json_node *step, const char *type, const char *key,
                               bool expected, struct err *e)
{
    bool found = false;
    TRY(json_optional_bool(step, key, &found, e));
    if (found == expected)
        return STATUS_OK;
    return bad_file(e, "pre_tokenizer %s: expected %s to be %s, found %s" VOCAB_ADVICE, type, key,
                    expected ? "true" : "false", found ? "true" : "false");
}

static enum status read_split(const struct json_node *step, struct pipeline *p, struct err *e)
{
    struct text string, regex;
    const struct json_node *behavior;
    bool invert = false;
    TRY(read_pattern(step, "String", &string, e));
    if (text_is(string, " ") && p->marks_spaces)
        return STATUS_OK; /* there are none */
    TRY(read_pattern(step, "Regex", &regex, e));
    TRY(json_require(step, "behavior", JSON_STRING, &behavior, e));
    TRY(json_optional_bool(step, "invert", &invert, e));
    if (!regex.data || p->regex.data || p->digits || invert || !text_is(behavior->text, "Isolated"))
        return bad_file(e,
                        "pre_tokenizer Split at byte %zu: expected one, by a Regex, Isolated and "
                        "not inverted, found another" VOCAB_ADVICE,
                        step->at);
    p->regex = regex;
    return STATUS_OK;
}

/* How a space is put before texts is a scheme; before the schemes there was a bool. */
static enum status read_metaspace(const struct json_node *step, const struct vocabulary *v,
                                  struct pipeline *p, struct err *e)
{
    const struct json_node *mark;
    bool adds = true;
    TRY(json_require(step, "replacement", JSON_STRING, &mark, e));
    if (!text_is(mark->text, VOCAB_SPACE))
        return refuse_step("pre_tokenizer Metaspace", "\"" VOCAB_SPACE "\"", mark->text, e);
    p->marks_spaces = p->cuts_spaces = true;
    TRY(json_optional_bool(step, "split", &p->cuts_spaces, e));
    TRY(json_optional_bool(step, "add_prefix_space", &adds, e));
    struct text scheme = text_of(adds ? "always" : "never");
    TRY(json_optional_text(step, "prepend_scheme", &scheme, e));
    if (text_is(scheme, "never"))
        return STATUS_OK;
    const bool first = text_is(scheme, "first");
    if (!first && !text_is(scheme, "always"))
        return refuse_step("pre_tokenizer Metaspace: prepend_scheme", "always, first or never",
                           scheme, e);
    p->adds_space = true;
    vocabulary_note(v->notes,
                    "a space is put before every text, also one that begins with a space%s, "
                    "which the folder's tokenizer does not do",
                    first ? ", and behind special tokens" : "");
    return STATUS_OK;
}

static enum status read_pre_tokenizer(const struct json_node *steps, const struct vocabulary *v,
                                      struct pipeline *p, struct err *e)
{
    const struct json_node *step = NULL;
    struct text type;
    for (;;) {
        TRY(next_step(steps, "pretokenizers", &step, &type, e));
        if (!step)
            return STATUS_OK;
        if (p->is_bytes)
            return refuse_step("pre_tokenizer", "nothing after ByteLevel", type, e);
        if (text_is(type, "ByteLevel")) {
            p->is_bytes = p->bytes_regex = true;
            TRY(json_optional_bool(step, "use_regex", &p->bytes_regex, e));
            TRY(expect_flag(step, "ByteLevel", "add_prefix_space", false, e));
        } else if (text_is(type, "Digits")) {
            TRY(expect_flag(step, "Digits", "individual_digits", true, e));
            p->digits = true;
        } else if (text_is(type, "Split")) {
            TRY(read_split(step, p, e));
        } else if (text_is(type, "Metaspace")) {
            TRY(read_metaspace(step, v, p, e));
        } else {
            return refuse_step("pre_tokenizer", "ByteLevel, Split, Digits or Metaspace", type, e);
        }
    }
}

/* What ours cannot do is refused; what differs for few texts is noted. */
static enum status read_pipeline(const struct json_node *root, const struct vocabulary *v,
                                 struct pipeline *p, struct err *e)
{
    const struct json_node *normalizer = json_present(root, "normalizer");
    const struct json_node *pre = json_present(root, "pre_tokenizer");
    *p = (struct pipeline){.cut = NULL};
    if (normalizer)
        TRY(read_normalizer(normalizer, v, p, e));
    p->normalizes = p->marks_spaces || p->adds_space;
    if (pre)
        TRY(read_pre_tokenizer(pre, v, p, e));
    if (p->is_bytes == p->marks_spaces || (p->is_bytes && p->adds_space) ||
        (!p->is_bytes && (p->digits || p->regex.data)))
        return bad_file(e,
                        "normalizer and pre_tokenizer: expected either ByteLevel or \"" VOCAB_SPACE
                        "\" for spaces, found %s" VOCAB_ADVICE,
                        p->is_bytes       ? "both"
                        : p->marks_spaces ? "more"
                                          : "neither");
    for (size_t i = 0; i < N_CUTS && p->is_bytes && !p->cut; i++) {
        const struct cut *c = &cuts[i];
        if ((p->regex.data ? c->regex && text_is(p->regex, c->regex) : !c->regex) &&
            c->digits == p->digits && c->bytes_regex == p->bytes_regex)
            p->cut = c;
    }
    if (p->is_bytes && !p->cut)
        return bad_file(e,
                        "pre_tokenizer: expected the cuts of GPT-2, StarCoder, Llama 3 or Qwen 2, "
                        "found %s%sByteLevel %s its regex, Split: \"%.*s\"" VOCAB_ADVICE,
                        p->regex.data ? "Split, " : "", p->digits ? "Digits, " : "",
                        p->bytes_regex ? "with" : "without", text_width(p->regex),
                        p->regex.data ? p->regex.data : "");
    return STATUS_OK;
}

/* --- what is put around a text --------------------------------------------------------------- */

/* The id that special_tokens, of TemplateProcessing, has for a name. */
static enum status read_special_id(const struct json_node *specials, struct text name, int n,
                                   int *id, struct err *e)
{
    const struct json_node *found = NULL, *ids;
    int64_t value;
    for (const struct json_node *c = NULL; (c = json_child(specials, c));)
        if (text_equal(c->key, name))
            found = c;
    if (!found)
        return bad_file(
            e,
            "\"special_tokens\" at byte %zu: expected \"%.*s\", as in \"single\", found "
            "no such key",
            specials->at, SHOWN(name));
    TRY(json_expect(found, JSON_OBJECT, e));
    TRY(json_require(found, "ids", JSON_ARRAY, &ids, e));
    if (ids->n != 1)
        return bad_file(e, "\"ids\" at byte %zu: expected one id, found %u", ids->at,
                        (unsigned)ids->n);
    TRY(json_node_i64(json_child(ids, NULL), 0, n - 1, &value, e));
    *id = (int)value;
    return STATUS_OK;
}

enum status tokenizer_template_read(const struct json_node *root, const struct vocabulary *v,
                                    int *id, struct err *e)
{
    const struct json_node *post = json_present(root, "post_processor");
    const struct json_node *step = NULL, *single, *specials, *name;
    struct text type;
    int before = 0, after = 0; /* special tokens */
    *id = -1;
    while (post) {
        TRY(next_step(post, "processors", &step, &type, e));
        if (!step)
            break;
        if (text_is(type, "ByteLevel")) /* places of tokens in the text, nothing else */
            continue;
        if (!text_is(type, "TemplateProcessing"))
            return refuse_step("post_processor", "TemplateProcessing or ByteLevel", type, e);
        TRY(json_require(step, "single", JSON_ARRAY, &single, e));
        bool text = false; /* it is before `c` */
        for (const struct json_node *c = NULL; (c = json_child(single, c));) {
            TRY(json_expect(c, JSON_OBJECT, e));
            const struct json_node *special = json_member(c, "SpecialToken");
            text |= !special;
            after += special && text;
            if (text || before++ > 0)
                continue;
            TRY(json_expect(special, JSON_OBJECT, e));
            TRY(json_require(special, "id", JSON_STRING, &name, e));
            TRY(json_require(step, "special_tokens", JSON_OBJECT, &specials, e));
            TRY(read_special_id(specials, name->text, v->keys.n, id, e));
        }
    }
    if (before > 1)
        return bad_file(e,
                        "post_processor: expected at most one special token before a text, found "
                        "%d" VOCAB_ADVICE,
                        before);
    if (after > 0)
        vocabulary_note(v->notes,
                        "the special token that the folder's tokenizer puts behind every text "
                        "is not put there");
    return STATUS_OK;
}

/* --- merges ---------------------------------------------------------------------------------- */

/* The two parts of a merge that is written with a space between. */
static enum status split_merge(struct text line, uint64_t rank, struct text parts[2], struct err *e)
{
    const char *space = line.len > 0 ? memchr(line.data, ' ', line.len) : NULL;
    const size_t cut = space ? (size_t)(space - line.data) : 0;
    const size_t behind = space ? line.len - cut - 1 : 0;
    if (cut == 0 || behind == 0 || memchr(space + 1, ' ', behind))
        return bad_file(e, "merge %llu: expected two tokens with a space between, found \"%.*s\"",
                        (unsigned long long)rank, SHOWN(line));
    parts[0] = (struct text){line.data, cut};
    parts[1] = (struct text){space + 1, behind};
    return STATUS_OK;
}

/* The parts and what they make must be tokens of the index. */
static enum status find_pair(struct vocabulary *v, const struct text parts[2], uint64_t rank,
                             struct symbol_pair *pair, struct err *e)
{
    struct text names[3] = {parts[0], parts[1]};
    int32_t ids[3];
    TRY(vocabulary_join(v, parts, 2, &names[2], e));
    for (int i = 0; i < 3; i++) {
        ids[i] = vocabulary_find(v, names[i]);
        if (ids[i] < 0)
            return bad_file(e, "merge %llu: expected tokens of the vocabulary, found \"%.*s\"",
                            (unsigned long long)rank, SHOWN(names[i]));
    }
    *pair = (struct symbol_pair){ids[0], ids[1], (int32_t)rank, ids[2]};
    return STATUS_OK;
}

/* The next merge of a byte-level vocabulary. */
static enum status add_merge(struct vocabulary *v, const struct text parts[2], struct err *e)
{
    struct symbol_pair pair;
    const uint64_t rank = v->keys.n_merges;
    for (int i = 0; i < 2; i++)
        if (parts[i].len > 0 && memchr(parts[i].data, ' ', parts[i].len))
            return bad_file(e,
                            "merge %llu: expected tokens in GPT-2's byte alphabet, found a space "
                            "in \"%.*s\" or \"%.*s\"",
                            (unsigned long long)rank, SHOWN(parts[0]), SHOWN(parts[1]));
    TRY(find_pair(v, parts, rank, &pair, e));
    const struct text written[] = {parts[0], text_of(" "), parts[1]};
    TRY(vocabulary_join(v, written, 3, &v->merges[rank], e));
    v->keys.n_merges++;
    return STATUS_OK;
}

/* Of the list `merges`, to pairs [merges->n]; to the vocabulary's own if `pairs` is NULL. */
static enum status read_merges(struct vocabulary *v, const struct json_node *merges,
                               struct symbol_pair *pairs, struct err *e)
{
    uint64_t rank = 0;
    for (const struct json_node *c = NULL; (c = json_child(merges, c)); rank++) {
        struct text parts[2];
        if (c->kind == JSON_STRING) {
            TRY(split_merge(c->text, rank, parts, e));
        } else {
            TRY(json_expect(c, JSON_ARRAY, e));
            if (c->n != 2)
                return bad_file(e, "merge %llu: expected two tokens, found %u",
                                (unsigned long long)rank, (unsigned)c->n);
            const struct json_node *first = json_child(c, NULL);
            TRY(json_node_text(first, &parts[0], e));
            TRY(json_node_text(json_child(c, first), &parts[1], e));
        }
        TRY(pairs ? find_pair(v, parts, rank, &pairs[rank], e) : add_merge(v, parts, e));
    }
    return STATUS_OK;
}

/* --- the model ------------------------------------------------------------------------------- */

struct model {
    const struct json_node *vocab, *merges;
    struct text unknown; /* data is NULL: none */
    bool byte_fallback, whole_pieces;
};

static enum status read_model(const struct json_node *root, struct model *m, struct err *e)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const struct json_node *model, *refused = NULL;
    double dropout = 0;
    *m = (struct model){.vocab = NULL};
    TRY(json_require(root, "model", JSON_OBJECT, &model, e));
    /* Old files do not say the type of a model that has merges. */
    struct text type = text_of(json_member(model, "merges") ? "BPE" : "no merges");
    TRY(json_optional_text(model, "type", &type, e));
    if (!text_is(type, "BPE"))
        return bad_file(e, "model: expected \"type\" to be BPE, found %.*s" VOCAB_ADVICE,
                        SHOWN(type));
    const struct json_node *node = json_present(model, "dropout");
    if (node)
        TRY(json_node_double(node, &dropout, e));
    if (dropout > 0 || dropout < 0)
        refused = node;
    for (int i = 0; i < 2 && !refused; i++) {
        struct text affix = {NULL, 0};
        TRY(json_optional_text(model, affixes[i], &affix, e));
        if (affix.len > 0)
            refused = json_member(model, affixes[i]);
    }
    if (refused)
        return bad_file(e, "model: expected \"%.*s\" to be %s, found %.*s" VOCAB_ADVICE,
                        SHOWN(refused->key), refused == node ? "null or 0" : "null",
                        SHOWN(refused->text));
    TRY(json_optional_bool(model, "byte_fallback", &m->byte_fallback, e));
    TRY(json_optional_bool(model, "ignore_merges", &m->whole_pieces, e));
    TRY(json_optional_text(model, "unk_token", &m->unknown, e));
    TRY(json_require(model, "vocab", JSON_OBJECT, &m->vocab, e));
    return json_require(model, "merges", JSON_ARRAY, &m->merges, e);
}

/* The tokens of an object of names and ids, all normal, also in the index. */
static enum status read_vocab(const struct json_node *vocab, struct vocabulary *v, struct err *e)
{
    for (const struct json_node *c = NULL; (c = json_child(vocab, c));) {
        int64_t id;
        TRY(json_node_i64(c, 0, v->keys.n - 1, &id, e));
        TRY(vocabulary_token(v, id, c->key, TOKEN_NORMAL, e));
    }
    vocabulary_index(v);
    return STATUS_OK;
}

static enum status read_bytes(struct vocabulary *v, const struct model *m, const struct cut *cut,
                              struct err *e)
{
    v->keys.model = "gpt2";
    v->keys.pre = m->whole_pieces ? cut->pre_whole : cut->pre;
    if (!v->keys.pre)
        return bad_file(e, "model: expected \"ignore_merges\" to be false with these cuts, found "
                           "true" VOCAB_ADVICE);
    v->merges = vocabulary_take(v, m->merges->n, sizeof *v->merges, e);
    return v->merges ? read_merges(v, m->merges, NULL, e) : STATUS_NO_MEMORY;
}

/* Whether a space stands behind something else in a token that merging makes. */
static bool crosses_space(struct text name)
{
    for (size_t i = 1; i < name.len; i++)
        if (text_starts_with((struct text){name.data + i, name.len - i}, VOCAB_SPACE))
            return true;
    return false;
}

static enum status read_spaces(struct vocabulary *v, const struct model *m,
                               const struct pipeline *p, struct err *e)
{
    v->keys.model = "llama";
    v->keys.add_space_prefix = p->adds_space;
    if (m->whole_pieces)
        return bad_file(e, "model: expected \"ignore_merges\" to be false where spaces are "
                           "\"" VOCAB_SPACE "\", found true" VOCAB_ADVICE);
    for (int id = 0; id < v->keys.n; id++) {
        const struct text name = v->tokens[id];
        if (p->cuts_spaces && crosses_space(name))
            return bad_file(e,
                            "pre_tokenizer Metaspace: expected \"split\" to be false, as token %d "
                            "is \"%.*s\", found true" VOCAB_ADVICE,
                            id, SHOWN(name));
        if (!name.data || vocab_hex_byte(name, TOKEN_BYTE) < 0)
            continue;
        if (!m->byte_fallback)
            return bad_file(e,
                            "model: expected \"byte_fallback\" to be true, as token %d is %.*s, "
                            "found false" VOCAB_ADVICE,
                            id, SHOWN(name));
        v->types[id] = TOKEN_BYTE;
    }
    if (v->keys.unk >= 0)
        v->types[v->keys.unk] = TOKEN_UNKNOWN;
    struct symbol_pair *pairs = calloc((size_t)m->merges->n + 1, sizeof *pairs);
    if (!pairs)
        return err_no_memory(e, "merges", ((size_t)m->merges->n + 1) * sizeof *pairs);
    const enum status s = read_merges(v, m->merges, pairs, e);
    if (s == STATUS_OK)
        return vocabulary_score(v, pairs, m->merges->n, e);
    free(pairs);
    return s;
}

enum status vocab_tokenizer_json_read(const struct json_node *root, struct vocabulary *v,
                                      struct err *e)
{
    struct model m;
    struct pipeline p;
    TRY(read_model(root, &m, e));
    TRY(read_pipeline(root, v, &p, e));
    TRY(read_vocab(m.vocab, v, e));
    if (m.unknown.data)
        v->keys.unk = vocabulary_find(v, m.unknown);
    TRY(added_tokens_read(json_present(root, "added_tokens"), ADDED_LIST, p.normalizes, v, e));
    return p.is_bytes ? read_bytes(v, &m, p.cut, e) : read_spaces(v, &m, &p, e);
}

/* --- vocab.json and merges.txt --------------------------------------------------------------- */

/* Cuts off a line, without its end. */
static struct text next_line(struct text *rest)
{
    const char *end = memchr(rest->data, '\n', rest->len);
    struct text line = {rest->data, end ? (size_t)(end - rest->data) : rest->len};
    const size_t step = line.len + (end ? 1 : 0);
    rest->data += step;
    rest->len -= step;
    line.len -= text_ends_with(line, "\r");
    return line;
}

enum status vocab_merges_read(const struct json_node *vocab, struct text merges,
                              struct vocabulary *v, struct err *e)
{
    uint64_t n = 1;
    for (size_t i = 0; i < merges.len; i++)
        n += merges.data[i] == '\n';
    v->keys.model = "gpt2";
    v->keys.pre = "gpt-2";
    TRY(read_vocab(vocab, v, e));
    v->merges = vocabulary_take(v, n, sizeof *v->merges, e);
    if (!v->merges)
        return STATUS_NO_MEMORY;
    if (text_starts_with(merges, "#version"))
        (void)next_line(&merges);
    while (merges.len > 0) {
        struct text parts[2];
        const struct text line = next_line(&merges);
        if (line.len == 0)
            continue;
        TRY(split_merge(line, v->keys.n_merges, parts, e));
        TRY(add_merge(v, parts, e));
    }
    return STATUS_OK;
}
