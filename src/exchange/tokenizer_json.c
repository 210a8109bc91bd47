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
    {NULL, CUT_BYTES_REGEX, PRETOKENIZE_GPT2, "gpt-2", NULL},
    {"'s|'t|'re|'ve|'m|'ll|'d" GPT2, CUT_REGEX, PRETOKENIZE_GPT2, "gpt-2", NULL},
    {"'(?:[sdmt]|ll|ve|re)" GPT2, CUT_REGEX, PRETOKENIZE_GPT2, "gpt-2", NULL},
    {NULL, CUT_DIGITS | CUT_BYTES_REGEX, PRETOKENIZE_STARCODER, "starcoder", NULL},
    {LLAMA3("\\p{N}{1,3}"), CUT_REGEX, PRETOKENIZE_LLAMA3, "dbrx", "llama-bpe"},
    {LLAMA3("\\p{N}"), CUT_REGEX, PRETOKENIZE_QWEN2, "qwen2", NULL},
};
#define N_CUTS (sizeof cuts / sizeof *cuts)

const struct cut *cut_of_rule(enum pretokenize_rule rule)
{
    const struct cut *c = cuts;
    while (c->rule != rule)
        c++;
    return c;
}

/* What a tokenizer.json says, beside enum cut_flags. */
enum {
    BYTES = 1 << 3,         /* tokens are in the byte alphabet; else spaces are U+2581 */
    MARKS_SPACES = 1 << 4,  /* spaces become U+2581 */
    ADDS_SPACE = 1 << 5,    /* of these: before a text */
    ADDS_NONE = 1 << 6,     /* ADDS_SPACE does not hold */
    AFTER_SPECIAL = 1 << 7, /* and behind special tokens */
    CUTS_SPACES = 1 << 8,   /* no merge goes across a space */
    NOT_APPLIED = 1 << 9,
    BYTE_FALLBACK = 1 << 10,
    WHOLE_PIECES = 1 << 11, /* a piece that is a token is that token, whatever the merges */
};
#define SPACES_FLAGS (MARKS_SPACES | ADDS_SPACE)
#define CUT_FLAGS    (CUT_BYTES_REGEX | CUT_REGEX | CUT_DIGITS)

struct pipeline {
    unsigned has;
    bool normalizes;       /* marks spaces before added tokens are looked for */
    struct text regex;     /* of Split */
    const struct cut *cut; /* of BYTES */
    const struct json_node *vocab, *merges;
    struct text unknown; /* data is NULL: none */
};

/*
 * The steps that do what ours does, or nearly so: a step is the first row of its type whose members
 * it has, where no step before has said what the row excludes. Members may stand in "pattern".
 * Before prepend_scheme there was a bool.
 */
static const struct step_rule {
    const char *in, *type;
    unsigned sets, needs, excludes;
    struct json_choice members[5];
} step_rules[] = {
    {"normalizer", "NFC", .sets = NOT_APPLIED},
    {"normalizer", "NFKC", .sets = NOT_APPLIED},
    {"normalizer", "Precompiled", .sets = NOT_APPLIED},
    {"normalizer", "Prepend", .sets = ADDS_SPACE, .members = {{"prepend", .values = VOCAB_SPACE}}},
    {"normalizer", "Replace", .sets = MARKS_SPACES,
     .members = {{"String", .values = " "}, {"content", .values = VOCAB_SPACE}}},
    {"pre_tokenizer", "ByteLevel", .sets = BYTES, .excludes = BYTES,
     .members = {{"add_prefix_space", .values = "false|null"},
                 {"use_regex", "true|null|false", {CUT_BYTES_REGEX, CUT_BYTES_REGEX}}}},
    {"pre_tokenizer", "Digits", .sets = CUT_DIGITS, .excludes = BYTES,
     .members = {{"individual_digits", .values = "true"}}},
    {"pre_tokenizer", "Split", .needs = MARKS_SPACES, .excludes = BYTES, /* there are none left */
     .members = {{"String", .values = " "}}},
    {"pre_tokenizer", "Split", .sets = CUT_REGEX, .excludes = BYTES | CUT_DIGITS | CUT_REGEX,
     .members = {{"Regex", .values = "*"},
                 {"behavior", .values = "Isolated"},
                 {"invert", .values = "false|null"}}},
    {"pre_tokenizer", "Metaspace", .sets = MARKS_SPACES, .excludes = BYTES,
     .members = {{"replacement", .values = VOCAB_SPACE},
                 {"split", "true|null|false", {CUTS_SPACES, CUTS_SPACES}},
                 {"add_prefix_space", "true|null|false", {ADDS_SPACE, ADDS_SPACE}},
                 {"prepend_scheme",
                  "always|first|never|null",
                  {ADDS_SPACE, ADDS_SPACE | AFTER_SPECIAL, ADDS_NONE}}}},
};
#define N_STEP_RULES (sizeof step_rules / sizeof *step_rules)

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

/* What a step adds to the pipeline, if there is a rule for it. */
static enum status read_step(const struct step_rule *r, const struct json_node *step,
                             const struct vocabulary *v, struct pipeline *p, struct err *e)
{
    const struct json_node *pattern = json_present(step, "pattern");
    unsigned sets = r->sets;
    if (pattern)
        TRY(json_expect(pattern, JSON_OBJECT, e));
    for (const struct json_choice *m = r->members; m->key; m++) {
        const bool in_pattern = json_present(pattern, m->key);
        TRY(json_choose(in_pattern ? pattern : step, m, &sets, e));
        if (in_pattern && sets & CUT_REGEX)
            p->regex = json_member(pattern, m->key)->text;
    }
    if (sets & ADDS_NONE)
        sets &= ~ADDS_SPACE;
    if (sets & NOT_APPLIED)
        vocabulary_note(v->notes,
                        "the normalizer %s is not applied: texts must be in its form already",
                        r->type);
    if (r->excludes && sets & ADDS_SPACE)
        vocabulary_note(v->notes,
                        "a space is put before every text, also one that begins with a space%s, "
                        "which the folder's tokenizer does not do",
                        sets & AFTER_SPECIAL ? ", and behind special tokens" : "");
    p->has |= sets;
    return STATUS_OK;
}

/* The steps of a normalizer or a pre_tokenizer, if there is one. */
static enum status read_steps(const struct json_node *root, const char *in, const char *list,
                              const struct vocabulary *v, struct pipeline *p, struct err *e)
{
    const struct json_node *steps = json_present(root, in), *step = NULL;
    struct text type;
    while (steps) {
        struct err why = {"expected a step that is done here, and none after ByteLevel"};
        enum status s = STATUS_BAD_FILE;
        TRY(next_step(steps, list, &step, &type, e));
        if (!step)
            break;
        for (size_t i = 0; i < N_STEP_RULES && s != STATUS_OK; i++) {
            const struct step_rule *r = &step_rules[i];
            if (strcmp(r->in, in) == 0 && text_is(type, r->type) && !(r->excludes & p->has) &&
                (r->needs & p->has) == r->needs)
                s = read_step(r, step, v, p, &why);
        }
        if (s != STATUS_OK)
            return bad_file(e, "%s \"%.*s\": %s" VOCAB_ADVICE, in, SHOWN(type), why.text);
    }
    return STATUS_OK;
}

/* What ours cannot do is refused; what differs for few texts is noted. */
static enum status read_pipeline(const struct json_node *root, const struct vocabulary *v,
                                 struct pipeline *p, struct err *e)
{
    *p = (struct pipeline){.regex = {"", 0}};
    TRY(read_steps(root, "normalizer", "normalizers", v, p, e));
    p->normalizes = p->has & SPACES_FLAGS;
    TRY(read_steps(root, "pre_tokenizer", "pretokenizers", v, p, e));
    const bool is_bytes = p->has & BYTES, marks_spaces = p->has & MARKS_SPACES;
    if (is_bytes == marks_spaces || p->has & (is_bytes ? SPACES_FLAGS : CUT_FLAGS))
        return bad_file(e,
                        "normalizer and pre_tokenizer: expected either ByteLevel or \"" VOCAB_SPACE
                        "\" for spaces, found %s" VOCAB_ADVICE,
                        is_bytes       ? "both"
                        : marks_spaces ? "more"
                                       : "neither");
    for (const struct cut *c = cuts; c < cuts + N_CUTS && is_bytes && !p->cut; c++)
        if (c->flags == (p->has & CUT_FLAGS) && (!c->regex || text_is(p->regex, c->regex)))
            p->cut = c;
    if (is_bytes && !p->cut)
        return bad_file(e,
                        "pre_tokenizer: expected the cuts of GPT-2, StarCoder, Llama 3 or Qwen 2, "
                        "found %s%sByteLevel %s its regex, Split: \"%.*s\"" VOCAB_ADVICE,
                        p->has & CUT_REGEX ? "Split, " : "", p->has & CUT_DIGITS ? "Digits, " : "",
                        p->has & CUT_BYTES_REGEX ? "with" : "without", SHOWN(p->regex));
    return STATUS_OK;
}

/* --- what is put around a text --------------------------------------------------------------- */

/* The id that special_tokens, of TemplateProcessing, has for a name. */
static enum status read_special_id(const struct json_node *step, struct text name, int n, int *id,
                                   struct err *e)
{
    const struct json_node *specials, *ids = NULL;
    int64_t value;
    TRY(json_require(step, "special_tokens", JSON_OBJECT, &specials, e));
    for (const struct json_node *c = NULL; (c = json_child(specials, c));)
        if (text_equal(c->key, name) && c->kind == JSON_OBJECT)
            TRY(json_require(c, "ids", JSON_ARRAY, &ids, e));
    if (!ids || ids->n != 1)
        return bad_file(e, "\"special_tokens\" at byte %zu: expected one id for \"%.*s\"",
                        specials->at, SHOWN(name));
    TRY(json_node_i64(json_child(ids, NULL), 0, n - 1, &value, e));
    *id = value;
    return STATUS_OK;
}

enum status tokenizer_template_read(const struct json_node *root, const struct vocabulary *v,
                                    int *id, struct err *e)
{
    const struct json_node *post = json_present(root, "post_processor");
    const struct json_node *step = NULL, *single, *name;
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
            return bad_file(e,
                            "post_processor: expected TemplateProcessing or ByteLevel, found "
                            "\"%.*s\"" VOCAB_ADVICE,
                            SHOWN(type));
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
            TRY(read_special_id(step, name->text, v->keys.n, id, e));
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
    const size_t cut = space ? (space - line.data) : 0;
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
    *pair = (struct symbol_pair){ids[0], ids[1], rank, ids[2]};
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
                                (unsigned long long)rank, c->n);
            const struct json_node *first = json_child(c, NULL);
            TRY(json_node_text(first, &parts[0], e));
            TRY(json_node_text(json_child(c, first), &parts[1], e));
        }
        TRY(pairs ? find_pair(v, parts, rank, &pairs[rank], e) : add_merge(v, parts, e));
    }
    return STATUS_OK;
}

/* --- the model ------------------------------------------------------------------------------- */

/* What a model must say. Old files do not give the type of one that has merges. */
static const struct json_choice model_choices[] = {
    {"type", .values = "BPE|null"},
    {"dropout", .values = "null|0|0.0"},
    {"continuing_subword_prefix", .values = "null"},
    {"end_of_word_suffix", .values = "null"},
    {"byte_fallback", "true|false|null", {BYTE_FALLBACK}},
    {"ignore_merges", "true|false|null", {WHOLE_PIECES}},
};

static enum status read_model(const struct json_node *root, struct pipeline *p, struct err *e)
{
    const struct json_node *model;
    struct err why;
    TRY(json_require(root, "model", JSON_OBJECT, &model, e));
    for (size_t i = 0; i < sizeof model_choices / sizeof *model_choices; i++)
        if (json_choose(model, &model_choices[i], &p->has, &why) != STATUS_OK)
            return bad_file(e, "model: %s" VOCAB_ADVICE, why.text);
    TRY(json_optional_text(model, "unk_token", &p->unknown, e));
    TRY(json_require(model, "vocab", JSON_OBJECT, &p->vocab, e));
    return json_require(model, "merges", JSON_ARRAY, &p->merges, e);
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

static enum status read_bytes(struct vocabulary *v, const struct pipeline *p, struct err *e)
{
    v->keys.model = "gpt2";
    v->keys.pre = p->has & WHOLE_PIECES ? p->cut->pre_whole : p->cut->pre;
    if (!v->keys.pre)
        return bad_file(e, "model: expected \"ignore_merges\" to be false with these cuts, found "
                           "true" VOCAB_ADVICE);
    v->merges = vocabulary_take(v, p->merges->n, sizeof *v->merges, e);
    return v->merges ? read_merges(v, p->merges, NULL, e) : STATUS_NO_MEMORY;
}

/* Whether a space stands behind something else in a token that merging makes. */
static bool crosses_space(struct text name)
{
    for (size_t i = 1; i < name.len; i++)
        if (text_starts_with((struct text){name.data + i, name.len - i}, VOCAB_SPACE))
            return true;
    return false;
}

static enum status read_spaces(struct vocabulary *v, const struct pipeline *p, struct err *e)
{
    v->keys.model = "llama";
    v->keys.add_space_prefix = (p->has & ADDS_SPACE) != 0;
    if (p->has & WHOLE_PIECES)
        return bad_file(e, "model: expected \"ignore_merges\" to be false where spaces are "
                           "\"" VOCAB_SPACE "\", found true" VOCAB_ADVICE);
    for (int id = 0; id < v->keys.n; id++) {
        const struct text name = v->tokens[id];
        if (p->has & CUTS_SPACES && crosses_space(name))
            return bad_file(e,
                            "pre_tokenizer Metaspace: expected \"split\" to be false, as token %d "
                            "is \"%.*s\", found true" VOCAB_ADVICE,
                            id, SHOWN(name));
        if (!name.data || vocab_hex_byte(name, TOKEN_BYTE) < 0)
            continue;
        if (!(p->has & BYTE_FALLBACK))
            return bad_file(e,
                            "model: expected \"byte_fallback\" to be true, as token %d is %.*s, "
                            "found false" VOCAB_ADVICE,
                            id, SHOWN(name));
        v->types[id] = TOKEN_BYTE;
    }
    if (v->keys.unk >= 0)
        v->types[v->keys.unk] = TOKEN_UNKNOWN;
    const size_t n = p->merges->n;
    struct symbol_pair *pairs = calloc(n + 1, sizeof *pairs);
    if (!pairs)
        return err_no_memory(e, "merges", (n + 1) * sizeof *pairs);
    const enum status s = read_merges(v, p->merges, pairs, e);
    if (s == STATUS_OK)
        return vocabulary_score(v, pairs, n, e);
    free(pairs);
    return s;
}

enum status vocab_tokenizer_json_read(const struct json_node *root, struct vocabulary *v,
                                      struct err *e)
{
    struct pipeline p;
    TRY(read_pipeline(root, v, &p, e));
    TRY(read_model(root, &p, e));
    TRY(read_vocab(p.vocab, v, e));
    if (p.unknown.data)
        v->keys.unk = vocabulary_find(v, p.unknown);
    TRY(added_tokens_read(json_present(root, "added_tokens"), ADDED_LIST, p.normalizes, v, e));
    return (p.has & BYTES ? read_bytes : read_spaces)(v, &p, e);
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
