/*
 * The vocabulary of a folder or of one file, of whichever format it is, with what the files beside
 * it say of added and special tokens.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "exchange/private.h"

/* --- files ----------------------------------------------------------------------------------- */

enum status status_in(enum status s, const char *name, struct err *e)
{
    if (s != STATUS_OK && s != STATUS_NO_MEMORY)
        err_prefix(e, name);
    return s;
}

enum status input_open(struct input *in, const char *folder, const char *name, struct err *e)
{
    struct stat st;
    *in = (struct input){.path = folder ? NULL : strdup(name)};
    if (folder)
        TRY(file_in_folder(folder, name, &in->path, e));
    if (!in->path)
        return err_no_memory(e, "a path", strlen(name) + 1);
    if (folder && lstat(in->path, &st) != 0)
        return STATUS_OK;
    TRY(file_map_open(&in->map, in->path, e));
    in->bytes = (struct text){in->map.data ? (const char *)in->map.data : "", in->map.len};
    return file_map_make_private(&in->map, in->map.len, e);
}

enum status input_read_json(struct input *in, struct err *e)
{
    static const struct json_limits limits = {.bytes = 1 << 29, .values = 1 << 23, .depth = 32};
    const struct json_node *root;
    if (!in->bytes.data)
        return STATUS_OK;
    enum status s = json_read(&in->reader, in->bytes, &limits, &root, e);
    if (s == STATUS_OK)
        s = json_expect(root, JSON_OBJECT, e);
    if (s == STATUS_OK)
        in->root = root;
    else
        err_prefix(e, in->path);
    return s;
}

void input_close(struct input *in)
{
    json_reader_free(&in->reader);
    file_map_close(&in->map);
    free(in->path);
    *in = (struct input){.path = NULL};
}

const struct json_node *json_present(const struct json_node *object, const char *key)
{
    const struct json_node *member = object ? json_member(object, key) : NULL;
    return member && member->kind != JSON_NULL ? member : NULL;
}

enum status json_optional_bool(const struct json_node *object, const char *key, bool *out,
                               struct err *e)
{
    const struct json_node *member = json_present(object, key);
    return member ? json_node_bool(member, out, e) : STATUS_OK;
}

enum status json_optional_text(const struct json_node *object, const char *key, struct text *out,
                               struct err *e)
{
    const struct json_node *member = json_present(object, key);
    return member ? json_node_text(member, out, e) : STATUS_OK;
}

enum status json_choose(const struct json_node *object, const struct json_choice *c, unsigned *sets,
                        struct err *e)
{
    const struct json_node *node = json_present(object, c->key);
    const struct text found = node && node->text.len > 0 ? node->text : text_of("null");
    const char *at = c->values;
    for (int i = 0; *at; i++) {
        const struct text value = {at, strcspn(at, "|")};
        if (text_equal(found, value) || (node && text_is(value, "*"))) {
            *sets |= c->sets[i];
            return STATUS_OK;
        }
        at += value.len + (at[value.len] == '|');
    }
    return bad_file(e, "expected \"%s\" to be %s, found %.*s", c->key, c->values, SHOWN(found));
}

/* --- added tokens ---------------------------------------------------------------------------- */

struct added {
    int64_t id;
    struct text name;
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

/* Makes a normal or user-defined token a special one. */
static void mark_special(struct vocabulary *v, int id)
{
    if (v->types[id] == TOKEN_NORMAL || v->types[id] == TOKEN_USER_DEFINED)
        v->types[id] = TOKEN_CONTROL;
}

/* The object of an added token; its id is a member, or the key that the object has. */
static enum status read_added(const struct json_node *token, bool id_is_key, struct added *a,
                              struct err *e)
{
    const struct json_node *content, *id;
    bool digits = token->key.len > 0 && token->key.len < 10;
    for (size_t i = 0; id_is_key && digits && i < token->key.len; i++) {
        digits = token->key.data[i] >= '0' && token->key.data[i] <= '9';
        a->id = 10 * a->id + (token->key.data[i] - '0');
    }
    if (id_is_key && !digits)
        return bad_file(e, "\"added_tokens_decoder\": expected ids as keys, found \"%.*s\"",
                        SHOWN(token->key));
    TRY(json_expect(token, JSON_OBJECT, e));
    TRY(json_require(token, "content", JSON_STRING, &content, e));
    a->name = content->text;
    TRY(json_optional_bool(token, "special", &a->special, e));
    TRY(json_optional_bool(token, "single_word", &a->single_word, e));
    TRY(json_optional_bool(token, "lstrip", &a->lstrip, e));
    TRY(json_optional_bool(token, "rstrip", &a->rstrip, e));
    TRY(json_optional_bool(token, "normalized", &a->normalized, e));
    if (a->name.len == 0 || a->single_word)
        return bad_file(e, "added token \"%.*s\": expected %s" VOCAB_ADVICE, SHOWN(a->name),
                        a->single_word ? "single_word to be false, found true"
                                       : "a name, found none");
    if (id_is_key)
        return STATUS_OK;
    TRY(json_require(token, "id", JSON_NUMBER, &id, e));
    return json_node_i64(id, INT64_MIN, INT64_MAX, &a->id, e);
}

enum status added_tokens_read(const struct json_node *from, enum added_tokens kind, bool normalizes,
                              struct vocabulary *v, struct err *e)
{
    struct flagged strips = {0}, normalized = {0};
    if (!from)
        return STATUS_OK;
    TRY(json_expect(from, kind == ADDED_LIST ? JSON_ARRAY : JSON_OBJECT, e));
    vocabulary_index(v);
    for (const struct json_node *c = NULL; (c = json_child(from, c));) {
        struct added a = {.name = c->key};
        if (kind == ADDED_IDS)
            TRY(json_node_i64(c, INT64_MIN, INT64_MAX, &a.id, e));
        else
            TRY(read_added(c, kind == ADDED_DECODER, &a, e));
        const int known = vocabulary_find(v, a.name);
        if (known >= 0 && known != a.id)
            return bad_file(e,
                            "added token \"%.*s\": expected id %d, as in the vocabulary, found "
                            "%lld",
                            SHOWN(a.name), known, (long long)a.id);
        if (known < 0)
            TRY(vocabulary_token(v, a.id, a.name, a.special ? TOKEN_CONTROL : TOKEN_USER_DEFINED,
                                 e));
        else if (a.special)
            mark_special(v, known);
        else if (v->types[known] == TOKEN_NORMAL)
            v->types[known] = TOKEN_USER_DEFINED;
        count(&strips, a.lstrip || a.rstrip, a.name);
        count(&normalized, a.normalized && normalizes, a.name);
    }
    if (strips.n > 0)
        vocabulary_note(v->notes,
                        "spaces beside added tokens, such as \"%.*s\", stay, which the folder's "
                        "tokenizer takes away (%d of them with lstrip or rstrip)",
                        SHOWN(strips.first), strips.n);
    if (normalized.n > 0)
        vocabulary_note(v->notes,
                        "added tokens, such as \"%.*s\", are found wherever they stand; the "
                        "folder's tokenizer looks for them behind a space (%d normalized ones)",
                        SHOWN(normalized.first), normalized.n);
    return STATUS_OK;
}

/* --- special tokens -------------------------------------------------------------------------- */

/* A token's name: a string, or an object that has it as "content". */
static enum status read_name(const struct json_node *node, struct text *name, struct err *e)
{
    if (node->kind == JSON_OBJECT)
        TRY(json_require(node, "content", JSON_STRING, &node, e));
    return json_node_text(node, name, e);
}

struct special {
    const char *key, *otherwise; /* `otherwise` is its name where no file has the key */
    int64_t of_config;
    int *id;
};

/* *id: the token that the key names in one of the files, or `otherwise` names; else what it was,
 * else what the model's config says. */
static enum status choose_id(const struct special *special, const struct special_sources *s,
                             struct vocabulary *v, struct err *e)
{
    const struct json_node *const files[] = {s->config, s->map};
    bool said = false;
    int named = -1;
    for (int i = 0; i < 2 && named < 0; i++) {
        const struct json_node *node = json_present(files[i], special->key);
        struct text name;
        if (!node)
            continue;
        said = true;
        TRY(read_name(node, &name, e));
        named = vocabulary_find(v, name);
    }
    if (!said && special->otherwise)
        named = vocabulary_find(v, text_of(special->otherwise));
    if (named >= 0) {
        mark_special(v, named);
        *special->id = named;
    } else if (*special->id < 0 && special->of_config >= 0 && special->of_config < v->keys.n) {
        *special->id = special->of_config;
    }
    return STATUS_OK;
}

static enum status mark_others(const struct json_node *file, struct vocabulary *v, struct err *e)
{
    const struct json_node *list = json_present(file, "additional_special_tokens");
    if (!list)
        return STATUS_OK;
    TRY(json_expect(list, JSON_ARRAY, e));
    for (const struct json_node *c = NULL; (c = json_child(list, c));) {
        struct text name;
        TRY(read_name(c, &name, e));
        const int id = vocabulary_find(v, name);
        if (id >= 0)
            mark_special(v, id);
    }
    return STATUS_OK;
}

/* Whether BOS stands before each text. */
static enum status read_adds_bos(const struct special_sources *s, struct vocabulary *v,
                                 struct err *e)
{
    struct vocab_keys *k = &v->keys;
    int first = -1;
    TRY(json_optional_bool(s->config, "add_bos_token", &k->add_bos, e));
    if (s->tokenizer) {
        TRY(status_in(tokenizer_template_read(s->tokenizer, v, &first, e), "tokenizer.json", e));
        k->add_bos = first >= 0;
    }
    if (first >= 0 && k->bos >= 0 && first != k->bos)
        return bad_file(e,
                        "post_processor: expected BOS, token %d, before each text, found token %d, "
                        "\"%.*s\"" VOCAB_ADVICE,
                        k->bos, first, SHOWN(v->tokens[first]));
    if (first >= 0)
        k->bos = first;
    k->add_bos &= k->bos >= 0;
    return STATUS_OK;
}

enum status special_tokens_read(const struct special_sources *s, struct vocabulary *v,
                                struct err *e)
{
    struct vocab_keys *k = &v->keys;
    const struct json_node *decoder = json_present(s->config, "added_tokens_decoder");
    int unknown = -1;
    const struct special specials[] = {
        {"bos_token", s->otherwise, s->ids->bos, &k->bos},
        {"eos_token", s->otherwise, s->ids->eos, &k->eos},
        {"pad_token", NULL, s->ids->pad, &k->pad},
        {"unk_token", s->otherwise, -1, &unknown},
    };
    TRY(status_in(added_tokens_read(decoder, ADDED_DECODER, false, v, e), "tokenizer_config.json",
                  e));
    TRY(status_in(added_tokens_read(s->added, ADDED_IDS, false, v, e), "added_tokens.json", e));
    vocabulary_index(v);
    TRY(mark_others(s->config, v, e));
    TRY(mark_others(s->map, v, e));
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        TRY(choose_id(&specials[i], s, v, e));
    if (k->unk < 0)
        k->unk = unknown;
    TRY(read_adds_bos(s, v, e));
    if (k->bos < 0 || k->eos < 0)
        vocabulary_note(v->notes, "the vocabulary has no %s token%s",
                        k->bos >= 0   ? "EOS"
                        : k->eos >= 0 ? "BOS"
                                      : "BOS and no EOS",
                        k->eos < 0 ? ": texts do not end by themselves" : "");
    return STATUS_OK;
}

/* --- one file -------------------------------------------------------------------------------- */

static bool is_json(struct text file)
{
    size_t i = 0;
    while (i < file.len && file.data[i] && strchr(" \t\r\n", file.data[i]))
        i++;
    return i < file.len && file.data[i] == '{';
}

static enum status read_file(const struct input *in, const struct hf_ids *ids, struct vocabulary *v,
                             struct err *e)
{
    if (!in->root)
        return vocab_is_llmc(in->bytes)            ? vocab_llmc_read(in->bytes, v, e)
               : vocab_is_sentencepiece(in->bytes) ? vocab_sentencepiece_read(in->bytes, v, e)
                                                   : vocab_llama2c_read(in->bytes, v, e);
    const bool has_model = json_member(in->root, "model");
    const struct special_sources specials = {.tokenizer = has_model ? in->root : NULL, .ids = ids};
    TRY(has_model ? vocab_tokenizer_json_read(in->root, v, e) : vocab_chars_read(in->root, v, e));
    return special_tokens_read(&specials, v, e);
}

enum status vocabulary_of_file(const char *path, const struct vocabulary_options *o,
                               struct vocabulary *out, struct err *e)
{
    struct input in;
    TRY(vocabulary_start(out, o->n_vocab, o->notes, e));
    enum status s = input_open(&in, NULL, path, e);
    if (s == STATUS_OK && is_json(in.bytes))
        s = input_read_json(&in, e);
    if (s == STATUS_OK)
        s = status_in(vocabulary_finish(out, read_file(&in, &o->ids, out, e), e), path, e);
    else
        vocabulary_free(out);
    input_close(&in);
    return s;
}

enum status vocabulary_plain(int n_vocab, struct vocabulary *out, struct err *e)
{
    *out = (struct vocabulary){.memory = NULL};
    if (n_vocab != 256)
        return STATUS_OK;
    TRY(vocabulary_start(out, n_vocab, NULL, e));
    return vocabulary_finish(out, vocab_bytes_fill(out, e), e);
}

/* --- a folder -------------------------------------------------------------------------------- */

/* The last two are of no use beside a tokenizer.json. */
enum { CONFIG, MAP, ADDED, TOKENIZER, MODEL, VOCAB, MERGES, N_FILES };

static const char *const names[N_FILES] = {
    [CONFIG] = "tokenizer_config.json",
    [MAP] = "special_tokens_map.json",
    [ADDED] = "added_tokens.json",
    [TOKENIZER] = "tokenizer.json",
    [MODEL] = "tokenizer.model",
    [VOCAB] = "vocab.json",
    [MERGES] = "merges.txt",
};

/* Which file has the tokens; N_FILES: none. A tokenizer.model is the truth where it is
 * SentencePiece's (others write tables of theirs under that name): a tokenizer.json beside it was
 * made from it. */
static int source_of(const struct input *files)
{
    const struct text model = files[MODEL].bytes;
    if (vocab_is_sentencepiece(model))
        return MODEL;
    if (files[TOKENIZER].root)
        return TOKENIZER;
    if (files[VOCAB].root)
        return files[MERGES].bytes.data ? MERGES : VOCAB;
    return model.data ? MODEL : N_FILES;
}

static enum status read_tokens(const struct input *files, int source, struct vocabulary *v,
                               struct err *e)
{
    switch (source) {
    case MODEL: /* a tokenizer.json beside the model may have added tokens to it */
        TRY(vocab_sentencepiece_read(files[MODEL].bytes, v, e));
        return added_tokens_read(json_present(files[TOKENIZER].root, "added_tokens"), ADDED_LIST,
                                 false, v, e);
    case TOKENIZER:
        return vocab_tokenizer_json_read(files[TOKENIZER].root, v, e);
    case MERGES:
        return vocab_merges_read(files[VOCAB].root, files[MERGES].bytes, v, e);
    case VOCAB:
        return vocab_chars_read(files[VOCAB].root, v, e);
    default:
        return v->keys.n == 256 ? vocab_bytes_fill(v, e) : STATUS_OK;
    }
}

static enum status read_folder(const struct input *files, const char *dir, const struct hf_ids *ids,
                               struct vocabulary *v, struct err *e)
{
    const int source = source_of(files);
    const char *path = source < N_FILES ? files[source].path : dir;
    const struct special_sources specials = {
        .config = files[CONFIG].root,
        .map = files[MAP].root,
        .added = files[ADDED].root,
        .tokenizer = files[TOKENIZER].root,
        .otherwise = source == MERGES ? "<|endoftext|>" : NULL,
        .ids = ids,
    };
    bool adds_space = false;
    TRY(status_in(read_tokens(files, source, v, e), path, e));
    if (!v->keys.model) {
        vocabulary_note(v->notes, "there is no tokenizer: tokens come without text");
        vocabulary_free(v);
        return STATUS_OK;
    }
    if (v->keys.pre) /* GPT-2's tokenizer puts a space before texts if its config says so */
        TRY(status_in(json_optional_bool(files[CONFIG].root, "add_prefix_space", &adds_space, e),
                      files[CONFIG].path, e));
    if (adds_space)
        return status_in(bad_file(e, "expected \"add_prefix_space\" to be false, found "
                                     "true" VOCAB_ADVICE),
                         files[CONFIG].path, e);
    TRY(status_in(special_tokens_read(&specials, v, e), dir, e));
    return status_in(vocabulary_finish(v, STATUS_OK, e), path, e);
}

enum status vocabulary_of_folder(const char *dir, const struct vocabulary_options *o,
                                 struct vocabulary *out, struct err *e)
{
    struct input files[N_FILES] = {{.path = NULL}};
    TRY(vocabulary_start(out, o->n_vocab, o->notes, e));
    enum status s = STATUS_OK;
    for (int i = 0; i < N_FILES && s == STATUS_OK; i++) {
        if (i > MODEL && files[TOKENIZER].root)
            break;
        s = input_open(&files[i], dir, names[i], e);
        if (s == STATUS_OK && i != MODEL && i != MERGES)
            s = input_read_json(&files[i], e);
    }
    if (s == STATUS_OK)
        s = read_folder(files, dir, &o->ids, out, e);
    if (s != STATUS_OK)
        vocabulary_free(out);
    for (int i = 0; i < N_FILES; i++)
        input_close(&files[i]);
    return s;
}
