#include "exchange/tokenizer_pipeline.h"

#include "exchange/cuts.h"
#include "exchange/json_file.h"

/* --- lists of steps -------------------------------------------------------------------------- */

struct reading {
    const struct vocab_build *build;
    struct tokenizer_pipeline *out;
    bool marks_spaces; /* spaces become U+2581 */
    struct text regex; /* of Split; data is NULL: none */
    bool digits;       /* each is a piece */
    bool bytes_regex;  /* of ByteLevel: GPT-2's, too */
};

typedef enum status read_step(struct reading *r, const struct json_node *step, struct text type,
                              struct err *e);

static enum status read_one(struct reading *r, const struct json_node *step, read_step *read,
                            struct err *e)
{
    const struct json_node *type;
    TRY(json_expect(step, JSON_OBJECT, e));
    TRY(json_require(step, "type", JSON_STRING, &type, e));
    return read(r, step, type->text, e);
}

/* A step, or the steps of a Sequence, which has them at `list`. */
static enum status read_steps(struct reading *r, const struct json_node *node, const char *list,
                              read_step *read, struct err *e)
{
    const struct json_node *type, *steps;
    TRY(json_expect(node, JSON_OBJECT, e));
    TRY(json_require(node, "type", JSON_STRING, &type, e));
    if (!text_is(type->text, "Sequence"))
        return read(r, node, type->text, e);
    TRY(json_require(node, list, JSON_ARRAY, &steps, e));
    for (const struct json_node *c = NULL; (c = json_child(steps, c));)
        TRY(read_one(r, c, read, e));
    return STATUS_OK;
}

static enum status refuse_step(const char *what, const char *expected, struct text found,
                               struct err *e)
{
    return err_set(e, STATUS_BAD_FILE, "%s: expected %s, found \"%.*s\"" VOCAB_ADVICE, what,
                   expected, text_width(found), found.data);
}

/* --- normalizer ------------------------------------------------------------------------------ */

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

static enum status read_replace(struct reading *r, const struct json_node *step, struct err *e)
{
    struct text from;
    const struct json_node *to;
    TRY(read_pattern(step, "String", &from, e));
    TRY(json_require(step, "content", JSON_STRING, &to, e));
    if (!text_is(from, " ") || !text_is(to->text, VOCAB_SPACE))
        return refuse_step("normalizer Replace", "\" \" to be replaced by \"" VOCAB_SPACE "\"",
                           from, e);
    r->marks_spaces = true;
    return STATUS_OK;
}

static enum status read_normalizer(struct reading *r, const struct json_node *step,
                                   struct text type, struct err *e)
{
    const struct json_node *text;
    if (text_is(type, "Replace"))
        return read_replace(r, step, e);
    if (text_is(type, "Prepend")) {
        TRY(json_require(step, "prepend", JSON_STRING, &text, e));
        if (!text_is(text->text, VOCAB_SPACE))
            return refuse_step("normalizer Prepend", "\"" VOCAB_SPACE "\"", text->text, e);
        r->out->adds_space = true;
        return STATUS_OK;
    }
    if (!text_is(type, "NFC") && !text_is(type, "NFKC") && !text_is(type, "Precompiled"))
        return refuse_step("normalizer", "none, NFC, NFKC, Precompiled, Prepend or Replace", type,
                           e);
    vocab_build_note(r->build,
                     "the normalizer %.*s is not applied: texts must be in its form already",
                     text_width(type), type.data);
    return STATUS_OK;
}

/* --- pre_tokenizer --------------------------------------------------------------------------- */

static enum status read_byte_level(struct reading *r, const struct json_node *step, struct err *e)
{
    bool adds_space = false;
    r->bytes_regex = true;
    TRY(json_optional_bool(step, "use_regex", &r->bytes_regex, e));
    TRY(json_optional_bool(step, "add_prefix_space", &adds_space, e));
    if (adds_space)
        return err_set(e, STATUS_BAD_FILE,
                       "pre_tokenizer ByteLevel: expected add_prefix_space to be false, found "
                       "true" VOCAB_ADVICE);
    r->out->is_bytes = true;
    return STATUS_OK;
}

static enum status read_split(struct reading *r, const struct json_node *step, struct err *e)
{
    struct text string;
    const struct json_node *behavior;
    bool invert = false;
    TRY(read_pattern(step, "String", &string, e));
    if (text_is(string, " ") && r->marks_spaces)
        return STATUS_OK; /* there are none */
    struct text regex;
    TRY(read_pattern(step, "Regex", &regex, e));
    TRY(json_require(step, "behavior", JSON_STRING, &behavior, e));
    TRY(json_optional_bool(step, "invert", &invert, e));
    if (!regex.data || r->regex.data || r->digits || invert || !text_is(behavior->text, "Isolated"))
        return err_set(e, STATUS_BAD_FILE,
                       "pre_tokenizer Split at byte %zu: expected one, by a Regex, Isolated and "
                       "not inverted, found another" VOCAB_ADVICE,
                       step->at);
    r->regex = regex;
    return STATUS_OK;
}

static enum status read_digits(struct reading *r, const struct json_node *step, struct err *e)
{
    bool individual = false;
    TRY(json_optional_bool(step, "individual_digits", &individual, e));
    if (!individual)
        return err_set(e, STATUS_BAD_FILE,
                       "pre_tokenizer Digits: expected individual_digits to be true, found "
                       "false" VOCAB_ADVICE);
    r->digits = true;
    return STATUS_OK;
}

/* How Metaspace puts a space before texts; before the schemes there was a bool. */
static enum status read_scheme(struct reading *r, const struct json_node *step, struct err *e)
{
    struct text scheme = text_of("always");
    bool adds = true;
    TRY(json_optional_bool(step, "add_prefix_space", &adds, e));
    if (!adds)
        scheme = text_of("never");
    const struct json_node *node = json_present(step, "prepend_scheme");
    if (node)
        TRY(json_node_text(node, &scheme, e));
    const bool first = text_is(scheme, "first");
    const bool adds_space = first || text_is(scheme, "always");
    if (!adds_space && !text_is(scheme, "never"))
        return refuse_step("pre_tokenizer Metaspace: prepend_scheme", "always, first or never",
                           scheme, e);
    r->out->adds_space |= adds_space;
    if (adds_space)
        vocab_build_note(r->build,
                         "a space is put before every text, also one that begins with a space%s, "
                         "which the folder's tokenizer does not do",
                         first ? ", and behind special tokens" : "");
    return STATUS_OK;
}

static enum status read_metaspace(struct reading *r, const struct json_node *step, struct err *e)
{
    const struct json_node *mark;
    TRY(json_require(step, "replacement", JSON_STRING, &mark, e));
    if (!text_is(mark->text, VOCAB_SPACE))
        return refuse_step("pre_tokenizer Metaspace", "\"" VOCAB_SPACE "\"", mark->text, e);
    r->marks_spaces = r->out->cuts_spaces = true;
    TRY(json_optional_bool(step, "split", &r->out->cuts_spaces, e));
    return read_scheme(r, step, e);
}

static enum status read_pre_tokenizer(struct reading *r, const struct json_node *step,
                                      struct text type, struct err *e)
{
    static const struct {
        const char *type;
        enum status (*read)(struct reading *r, const struct json_node *step, struct err *e);
    } kinds[] = {{"ByteLevel", read_byte_level},
                 {"Split", read_split},
                 {"Digits", read_digits},
                 {"Metaspace", read_metaspace}};
    if (r->out->is_bytes)
        return refuse_step("pre_tokenizer", "nothing after ByteLevel", type, e);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (text_is(type, kinds[i].type))
            return kinds[i].read(r, step, e);
    return refuse_step("pre_tokenizer", "ByteLevel, Split, Digits or Metaspace", type, e);
}

static enum status find_cut(struct reading *r, struct err *e)
{
    const struct cut *c = cut_find(r->regex, r->digits, r->bytes_regex);
    if (c) {
        r->out->rule = c->rule;
        return STATUS_OK;
    }
    return err_set(e, STATUS_BAD_FILE,
                   "pre_tokenizer: expected the cuts of GPT-2, StarCoder, Llama 3 or Qwen 2, found "
                   "%s%sByteLevel %s its regex, Split: \"%.*s\"" VOCAB_ADVICE,
                   r->regex.data ? "Split, " : "", r->digits ? "Digits, " : "",
                   r->bytes_regex ? "with" : "without", text_width(r->regex),
                   r->regex.data ? r->regex.data : "");
}

enum status tokenizer_pipeline_read(const struct json_node *root, const struct vocab_build *b,
                                    struct tokenizer_pipeline *out, struct err *e)
{
    *out = (struct tokenizer_pipeline){.is_bytes = false};
    struct reading r = {.build = b, .out = out};
    const struct json_node *normalizer = json_present(root, "normalizer");
    const struct json_node *pre = json_present(root, "pre_tokenizer");
    if (normalizer)
        TRY(read_steps(&r, normalizer, "normalizers", read_normalizer, e));
    out->normalizes = r.marks_spaces || out->adds_space;
    if (pre)
        TRY(read_steps(&r, pre, "pretokenizers", read_pre_tokenizer, e));
    if (out->is_bytes == r.marks_spaces || (out->is_bytes && out->adds_space) ||
        (!out->is_bytes && (r.digits || r.regex.data)))
        return err_set(e, STATUS_BAD_FILE,
                       "normalizer and pre_tokenizer: expected either ByteLevel or \"" VOCAB_SPACE
                       "\" for spaces, found %s" VOCAB_ADVICE,
                       out->is_bytes    ? "both"
                       : r.marks_spaces ? "more"
                                        : "neither");
    return out->is_bytes ? find_cut(&r, e) : STATUS_OK;
}

/* --- post_processor -------------------------------------------------------------------------- */

struct template
{
    int before, after; /* special tokens */
    int id;            /* of the first before */
};

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
        return err_set(e, STATUS_BAD_FILE,
                       "\"special_tokens\" at byte %zu: expected \"%.*s\", as in \"single\", found "
                       "no such key",
                       specials->at, text_width(name), name.data);
    TRY(json_expect(found, JSON_OBJECT, e));
    TRY(json_require(found, "ids", JSON_ARRAY, &ids, e));
    if (ids->n != 1)
        return err_set(e, STATUS_BAD_FILE, "\"ids\" at byte %zu: expected one id, found %u",
                       ids->at, (unsigned)ids->n);
    TRY(json_node_i64(json_child(ids, NULL), 0, n - 1, &value, e));
    *id = (int)value;
    return STATUS_OK;
}

static enum status read_template(const struct json_node *step, int n, struct template *t,
                                 struct err *e)
{
    const struct json_node *single, *specials, *name;
    bool text = false;
    TRY(json_require(step, "single", JSON_ARRAY, &single, e));
    for (const struct json_node *c = NULL; (c = json_child(single, c));) {
        TRY(json_expect(c, JSON_OBJECT, e));
        const struct json_node *special = json_member(c, "SpecialToken");
        text |= !special;
        if (!special)
            continue;
        t->after += text;
        if (text || t->before++ > 0)
            continue;
        TRY(json_expect(special, JSON_OBJECT, e));
        TRY(json_require(special, "id", JSON_STRING, &name, e));
        TRY(json_require(step, "special_tokens", JSON_OBJECT, &specials, e));
        TRY(read_special_id(specials, name->text, n, &t->id, e));
    }
    return STATUS_OK;
}

struct post_reading {
    struct reading reading; /* first, so that the steps are read as the others are */
    struct template template;
};

static enum status read_post(struct reading *r, const struct json_node *step, struct text type,
                             struct err *e)
{
    struct post_reading *p = (struct post_reading *)r;
    if (text_is(type, "ByteLevel")) /* places of tokens in the text, nothing else */
        return STATUS_OK;
    if (!text_is(type, "TemplateProcessing"))
        return refuse_step("post_processor", "TemplateProcessing or ByteLevel", type, e);
    return read_template(step, r->build->keys.n, &p->template, e);
}

enum status tokenizer_template_read(const struct json_node *root, const struct vocab_build *b,
                                    int *id, struct err *e)
{
    struct post_reading p = {.reading.build = b};
    const struct json_node *post = json_present(root, "post_processor");
    *id = -1;
    if (!post)
        return STATUS_OK;
    TRY(read_steps(&p.reading, post, "processors", read_post, e));
    if (p.template.before > 1)
        return err_set(e, STATUS_BAD_FILE,
                       "post_processor: expected at most one special token before a text, found "
                       "%d" VOCAB_ADVICE,
                       p.template.before);
    if (p.template.after > 0)
        vocab_build_note(b, "the special token that the folder's tokenizer puts behind every text "
                            "is not put there");
    if (p.template.before == 1)
        *id = p.template.id;
    return STATUS_OK;
}
