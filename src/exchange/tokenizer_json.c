/*
 * tokenizer.json: what it does with a text before, in and after its merges, and the tokens. And
 * vocab.json with merges.txt, which are a part of one.
 */

#include "exchange/private.h"

/* --- what a text goes through ---------------------------------------------------------------- */

/*
 * The steps that do what ours does, or nearly so, a letter each: a step is the first row of its
 * type whose members it has. Members may stand in "pattern". Before prepend_scheme there was a
 * bool.
 */
static const struct step_rule {
    char letter;
    const char *type;
    struct {
        const char *key, *values; /* see json_is_one_of */
    } members[4];
} step_rules[] = {
    {.letter = 'n', .type = "NFC"}, /* not applied */
    {.letter = 'n', .type = "NFKC"},
    {.letter = 'n', .type = "Precompiled"},
    {'p', "Prepend", {{"prepend", VOCAB_SPACE}}},
    {'r', "Replace", {{"String", " "}, {"content", VOCAB_SPACE}}},
    {'B', "ByteLevel", {{"add_prefix_space", "false|null"}, {"use_regex", "true|null"}}},
    {'b', "ByteLevel", {{"add_prefix_space", "false|null"}, {"use_regex", "false"}}},
    {'D', "Digits", {{"individual_digits", "true"}}},
    {' ', "Split", {{"String", " "}}},
    {'S', "Split", {{"Regex", "*"}, {"behavior", "Isolated"}, {"invert", "false|null"}}},
    /* Metaspace marks spaces: 'm' is all, 'a' puts one before every text, 'f' not behind special
     * tokens. */
    {'m', "Metaspace", {{"replacement", VOCAB_SPACE}, {"prepend_scheme", "never"}}},
    {'a', "Metaspace", {{"replacement", VOCAB_SPACE}, {"prepend_scheme", "always"}}},
    {'f', "Metaspace", {{"replacement", VOCAB_SPACE}, {"prepend_scheme", "first"}}},
    {'a',
     "Metaspace",
     {{"replacement", VOCAB_SPACE}, {"prepend_scheme", "null"}, {"add_prefix_space", "true|null"}}},
    {'m',
     "Metaspace",
     {{"replacement", VOCAB_SPACE}, {"prepend_scheme", "null"}, {"add_prefix_space", "false"}}},
};

#define SPACES "\\s+(?!\\S)|\\s+"
#define GPT2   "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES
#define LLAMA3(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" SPACES

/* Those of byte-level tokenizers; the first of a rule is the one that is written. */
static const struct pipeline pipelines[] = {
    {"B", NULL, PRETOKENIZE_GPT2, "gpt-2", NULL},
    {"Sb", "'s|'t|'re|'ve|'m|'ll|'d" GPT2, PRETOKENIZE_GPT2, "gpt-2", NULL},
    {"Sb", "'(?:[sdmt]|ll|ve|re)" GPT2, PRETOKENIZE_GPT2, "gpt-2", NULL},
    {"DB", NULL, PRETOKENIZE_STARCODER, "starcoder", NULL},
    {"Sb", LLAMA3("\\p{N}{1,3}"), PRETOKENIZE_LLAMA3, "dbrx", "llama-bpe"},
    {"Sb", LLAMA3("\\p{N}"), PRETOKENIZE_QWEN2, "qwen2", NULL},
};
/* Spaces are U+2581: marked by the normalizer or Metaspace, behind which nothing is left to be
 * split at. */
static const struct pipeline marked_spaces = {.steps = "pr maf"};

const struct pipeline *pipeline_of_rule(enum pretokenize_rule rule)
{
    const struct pipeline *p = pipelines;
    while (p->rule != rule)
        p++;
    return p;
}

/* The step after `last`, NULL at first and at last, of what is a step or a Sequence that has them;
 * and its type. */
static const struct json_node *next_step(const struct json_node *steps,
                                         const struct json_node *last, struct text *type)
{
    static const char *const lists[] = {"normalizers", "pretokenizers", "processors"};
    const struct json_node *list = NULL, *step = last ? NULL : steps;
    for (int i = 0; i < 3 && !list; i++)
        list = json_present(steps, lists[i]);
    if (json_is_one_of(steps, "type", "Sequence"))
        step = list ? json_child(list, last) : NULL;
    *type = json_shown(step, "type");
    return step;
}

/* What a tokenizer.json says of the way to its tokens. */
struct found {
    char steps[8]; /* letters: more steps than fit are none of ours */
    struct text regex;
    bool cuts_spaces; /* no merge goes across one */
    const struct pipeline *pipeline;
};

/* Adds the letters of the steps of a normalizer or a pre_tokenizer, if there is one. */
static enum status read_steps(const struct json_node *root, const char *in,
                              const struct vocabulary *v, struct found *f, struct err *e)
{
    const struct json_node *steps = json_present(root, in), *step = NULL;
    struct text type;
    while ((step = next_step(steps, step, &type))) {
        const struct json_node *pattern = json_present(step, "pattern");
        const struct step_rule *r = step_rules;
        const size_t n = strlen(f->steps);
        for (bool fits = false; r < END_OF(step_rules) && !fits; r += !fits) {
            fits = text_is(type, r->type);
            for (int i = 0; i < 4 && r->members[i].key && fits; i++) {
                const char *key = r->members[i].key;
                fits = json_is_one_of(json_present(pattern, key) ? pattern : step, key,
                                      r->members[i].values);
            }
        }
        if (r == END_OF(step_rules) || n + 1 == sizeof f->steps)
            return err_bad_file(
                e, "%s \"%.*s\": expected a step that is done here, found %.*s" VOCAB_ADVICE, in,
                SHOWN(type), SHOWN(step->text));
        if (r->letter == 'n')
            vocabulary_note(v->notes,
                            "the normalizer %s is not applied: texts must be in its form already",
                            r->type);
        else
            f->steps[n] = r->letter;
        if (r->letter == 'S')
            f->regex = json_shown(pattern, "Regex");
        if (r->letter == 'a' || r->letter == 'f')
            vocabulary_note(v->notes,
                            "a space is put before every text, also one that begins with a "
                            "space%s, which the folder's tokenizer does not do",
                            r->letter == 'f' ? ", and behind special tokens" : "");
        f->cuts_spaces |= strchr("maf", r->letter) && !json_is_one_of(step, "split", "false");
    }
    return STATUS_OK;
}

/* What ours cannot do is refused; what differs for few texts is noted. */
static enum status read_pipeline(const struct json_node *root, const struct vocabulary *v,
                                 struct found *f, struct err *e)
{
    *f = (struct found){.steps = ""};
    TRY(read_steps(root, "normalizer", v, f, e));
    TRY(read_steps(root, "pre_tokenizer", v, f, e));
    for (const struct pipeline *p = pipelines; p < END_OF(pipelines); p++)
        if (str_is(f->steps, p->steps) && (!p->regex || text_is(f->regex, p->regex)))
            f->pipeline = p;
    if (strpbrk(f->steps, "rmaf") && !f->steps[strspn(f->steps, marked_spaces.steps)])
        f->pipeline = &marked_spaces;
    if (f->pipeline)
        return STATUS_OK;
    return err_bad_file(e,
                        "pre_tokenizer: expected ByteLevel with the cuts of GPT-2, StarCoder, "
                        "Llama 3 or Qwen 2, or \"" VOCAB_SPACE
                        "\" for spaces, found %.*s" VOCAB_ADVICE,
                        SHOWN(json_shown(root, "pre_tokenizer")));
}

/* --- what is put around a text --------------------------------------------------------------- */

enum status tokenizer_template_read(const struct json_node *root, const struct vocabulary *v,
                                    int *id, struct err *e)
{
    const struct json_node *post = json_present(root, "post_processor"), *step = NULL;
    struct text type;
    bool after = false;
    *id = -1;
    while ((step = next_step(post, step, &type))) {
        if (text_is(type, "ByteLevel")) /* places of tokens in the text, nothing else */
            continue;
        const struct json_node *single = json_present(step, "single"), *ids = NULL;
        const struct json_node *list = json_present(step, "special_tokens");
        bool fits = single && text_is(type, "TemplateProcessing"), text = false;
        for (const struct json_node *c = NULL; fits && (c = json_child(single, c));) {
            const struct json_node *special = json_present(c, "SpecialToken");
            const struct text name = json_shown(special, "id");
            int64_t value = -1;
            text |= !special; /* it is before `c` */
            after |= special && text;
            if (text)
                continue;
            for (const struct json_node *s = NULL; list && (s = json_child(list, s));)
                if (text_equal(s->key, name))
                    ids = json_present(s, "ids");
            fits = *id < 0 && ids && ids->n == 1 &&
                   json_node_i64(json_child(ids, NULL), 0, v->keys.n - 1, &value, e) == STATUS_OK;
            *id = value;
        }
        if (!fits)
            return err_bad_file(
                e,
                "post_processor: expected ByteLevel, or TemplateProcessing with at most one "
                "special token before a text, of one id; found %.*s" VOCAB_ADVICE,
                SHOWN(step->text));
    }
    if (after)
        vocabulary_note(v->notes, "the special token that the folder's tokenizer puts behind every "
                                  "text is not put there");
    return STATUS_OK;
}

/* --- tokens and merges ----------------------------------------------------------------------- */

/* The tokens of an object of names and ids, all normal, also in the index. Single characters are
 * written as they are, but for the space. */
static enum status read_names(const struct json_node *names, bool are_chars, struct vocabulary *v,
                              struct err *e)
{
    JSON_EACH (c, names) {
        int64_t id;
        uint32_t code;
        struct text name = c->key;
        if (are_chars && (name.len == 0 || utf8_decode(name, &code) != name.len))
            return err_bad_file(e,
                                "expected single characters, as there is no merges.txt beside it, "
                                "found \"%.*s\"" VOCAB_ADVICE,
                                SHOWN(name));
        if (are_chars && code == ' ')
            name = text_of(VOCAB_SPACE);
        TRY(json_node_i64(c, 0, v->keys.n - 1, &id, e));
        TRY(vocabulary_token(v, id, name, TOKEN_NORMAL, e));
    }
    return vocabulary_index(v, e);
}

/* The parts and what they make must be tokens of the index. */
static enum status add_merge(struct vocabulary *v, struct text left, struct text right,
                             struct err *e)
{
    struct text names[3] = {left, right};
    int ids[3];
    TRY(vocabulary_join(v, names, 2, &names[2], e));
    for (int i = 0; i < 3; i++) {
        ids[i] = vocabulary_find(v, names[i]);
        if (ids[i] < 0)
            return err_bad_file(e, "merge %zu: expected tokens of the vocabulary, found \"%.*s\"",
                                v->n_merges, SHOWN(names[i]));
    }
    return vocabulary_merge(v, ids[0], ids[1], ids[2], e);
}

/* One that is written with a space between its parts. */
static enum status add_line(struct vocabulary *v, struct text line, struct err *e)
{
    const char *space = line.len > 0 ? memchr(line.data, ' ', line.len) : NULL;
    struct text right = line;
    const struct text left = text_cut(&right, space ? space - line.data : 0);
    (void)text_cut(&right, space ? 1 : 0);
    if (left.len == 0 || right.len == 0 || memchr(right.data, ' ', right.len))
        return err_bad_file(e,
                            "merge %zu: expected two tokens with a space between, found \"%.*s\"",
                            v->n_merges, SHOWN(line));
    return add_merge(v, left, right, e);
}

enum status vocab_names_read(const struct json_node *names, struct text merges,
                             struct vocabulary *v, struct err *e)
{
    const bool are_chars = !merges.data;
    v->keys.model = are_chars ? "llama" : "gpt2";
    v->keys.pre = are_chars ? NULL : "gpt-2";
    v->keys.add_space_prefix = are_chars ? 0 : -1;
    TRY(read_names(names, are_chars, v, e));
    for (bool first = true; merges.len > 0; first = false) {
        const char *end = memchr(merges.data, '\n', merges.len);
        struct text line = text_cut(&merges, end ? (size_t)(end + 1 - merges.data) : merges.len);
        line.len -= text_ends_with(line, "\n");
        line.len -= text_ends_with(line, "\r");
        if (line.len > 0 && !(first && text_starts_with(line, "#version")))
            TRY(add_line(v, line, e));
    }
    return STATUS_OK;
}

/* --- scores ---------------------------------------------------------------------------------- */

/*
 * A list merges pairs in its order. Scores belong to tokens: whatever two neighbours are together a
 * token may merge, the token of the highest score first. A token's score is here minus the number
 * of tokens that the list makes before it. The two are the same if each token's merges follow one
 * another in the list and if the list makes each token of its characters alone. So it is for lists
 * that were learned or made of scores; of others it is noted where they are seen to differ.
 */
static enum status score(struct vocabulary *v, struct err *e)
{
    int n_made = 0, n_unmade = 0, unmade = -1;
    int apart = -1; /* a token whose merges do not follow one another */
    bool *made = vocabulary_take(v, v->keys.n, e);
    if (!made)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < v->n_merges; i++) {
        const int id = v->merges[i].result;
        if (made[id] && apart < 0 && v->merges[i - 1].result != id)
            apart = id;
        if (!made[id])
            v->scores[id] = (float)-n_made++; /* by the first of its merges */
        made[id] = true;
    }
    for (int id = v->keys.n - 1; id >= 0; id--) {
        struct text rest = v->tokens[id];
        if (made[id])
            continue;
        v->scores[id] = (float)-n_made;
        if (v->types[id] != TOKEN_NORMAL || rest.len == 0)
            continue;
        (void)spm_next_char(&rest);
        if (rest.len > 0) {
            unmade = id;
            n_unmade++;
        }
    }
    if (apart >= 0)
        vocabulary_note(v->notes,
                        "the merges of some tokens, such as \"%.*s\", do not follow one another: "
                        "scores cannot say that, a few ids may differ",
                        SHOWN(v->tokens[apart]));
    if (unmade >= 0)
        vocabulary_note(v->notes,
                        "no merges make %d of the tokens, such as \"%.*s\": by scores a text may "
                        "have them, a few ids may differ",
                        n_unmade, SHOWN(v->tokens[unmade]));
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* Byte tokens, and that nothing stands in the way of merging by scores. */
static enum status read_spaces(const struct json_node *model, const struct found *f,
                               struct vocabulary *v, struct err *e)
{
    v->keys.model = "llama";
    v->keys.add_space_prefix = strpbrk(f->steps, "paf") != NULL;
    for (int id = 0; id < v->keys.n; id++) {
        struct text rest = v->tokens[id];
        const bool is_byte = rest.data && vocab_hex_byte(rest, TOKEN_BYTE) >= 0;
        bool crosses = false; /* a space stands behind something else */
        while (f->cuts_spaces && rest.len > 1 && !crosses) {
            (void)text_cut(&rest, 1);
            crosses = text_starts_with(rest, VOCAB_SPACE);
        }
        if (crosses || (is_byte && !json_is_one_of(model, "byte_fallback", "true")))
            return err_bad_file(e,
                                "token %d, \"%.*s\": expected %s to be %s, as it has such a token, "
                                "found otherwise" VOCAB_ADVICE,
                                id, SHOWN(v->tokens[id]),
                                crosses ? "Metaspace's \"split\"" : "the model's \"byte_fallback\"",
                                crosses ? "false" : "true");
        if (is_byte)
            v->types[id] = TOKEN_BYTE;
    }
    if (v->keys.unk >= 0)
        v->types[v->keys.unk] = TOKEN_UNKNOWN;
    return score(v, e);
}

enum status vocab_tokenizer_json_read(const struct json_node *root, struct vocabulary *v,
                                      struct err *e)
{
    /* What a model must say. Old files do not give the type of one that has merges. */
    static const struct {
        const char *key, *values;
    } must[] = {
        {"type", "BPE|null"},
        {"dropout", "null|0|0.0"},
        {"continuing_subword_prefix", "null"},
        {"end_of_word_suffix", "null"},
        {"byte_fallback", "true|false|null"},
        {"ignore_merges", "true|false|null"},
    };
    struct found f;
    const struct json_node *model, *vocab, *merges;
    struct text left, right;
    TRY(read_pipeline(root, v, &f, e));
    TRY(json_require(root, "model", JSON_OBJECT, &model, e));
    for (int i = 0; i < LENGTH(must); i++)
        if (!json_is_one_of(model, must[i].key, must[i].values))
            return err_bad_file(e, "model: expected \"%s\" to be %s, found %.*s" VOCAB_ADVICE,
                                must[i].key, must[i].values, SHOWN(json_shown(model, must[i].key)));
    const bool whole_pieces = json_is_one_of(model, "ignore_merges", "true");
    v->keys.pre = whole_pieces ? f.pipeline->pre_whole : f.pipeline->pre;
    if (whole_pieces && !v->keys.pre)
        return err_bad_file(e, "model: expected \"ignore_merges\" to be false with these cuts, "
                               "found true" VOCAB_ADVICE);
    TRY(json_require(model, "vocab", JSON_OBJECT, &vocab, e));
    TRY(json_require(model, "merges", JSON_ARRAY, &merges, e));
    TRY(read_names(vocab, false, v, e));
    const struct json_node *unknown = json_present(model, "unk_token");
    if (unknown)
        v->keys.unk = vocabulary_find(v, unknown->text);
    TRY(added_tokens_read(json_present(root, "added_tokens"), strpbrk(f.steps, "pr"), v, e));
    JSON_EACH (c, merges) {
        const struct json_node *first = json_child(c, NULL);
        if (c->kind == JSON_STRING) {
            TRY(add_line(v, c->text, e));
            continue;
        }
        TRY(json_expect(c, JSON_ARRAY, e));
        if (c->n != 2)
            return err_bad_file(e, "merge %zu: expected two tokens, found %u", v->n_merges, c->n);
        TRY(json_node_text(first, &left, e));
        TRY(json_node_text(json_child(c, first), &right, e));
        TRY(add_merge(v, left, right, e));
    }
    v->keys.model = "gpt2";
    return v->keys.pre ? STATUS_OK : read_spaces(model, &f, v, e);
}
