/*
 * The vocabulary of a folder or of one file, of whichever format it is, with what the files beside
 * it say of added and special tokens.
 */
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
    in->bytes = text_span(in->map.data ? (const char *)in->map.data : "", in->map.len);
    return file_map_make_private(&in->map, in->map.len, e);
}

enum status input_read_json(struct input *in, struct err *e)
{
    static const struct json_limits limits = {.bytes = 1 << 29, .values = 1 << 23, .depth = 32};
    const struct json_node *root;
    if (!in->bytes.data)
        return STATUS_OK;
    TRY(status_in(json_read(&in->reader, in->bytes, &limits, &root, e), in->path, e));
    TRY(status_in(json_expect(root, JSON_OBJECT, e), in->path, e));
    in->root = root;
    return STATUS_OK;
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
    const struct json_node *member =
        object && object->kind == JSON_OBJECT ? json_member(object, key) : NULL;
    return member && member->kind != JSON_NULL ? member : NULL;
}

struct text json_shown(const struct json_node *object, const char *key)
{
    const struct json_node *node = json_present(object, key);
    return node && node->text.len > 0 ? node->text : text_of("null");
}

bool json_is_one_of(const struct json_node *object, const char *key, const char *values)
{
    const struct text found = json_shown(object, key);
    for (const char *at = values; *at; at += strspn(at, "|")) {
        const struct text value = {at, strcspn(at, "|")};
        if (text_equal(found, value) || (text_is(value, "*") && !text_is(found, "null")))
            return true;
        at += value.len;
    }
    return false;
}

/* --- added tokens ---------------------------------------------------------------------------- */

/* Makes a normal or user-defined token, if it is one, a special one. */
static void mark_special(struct vocabulary *v, int id)
{
    if (id >= 0 && (v->types[id] == TOKEN_NORMAL || v->types[id] == TOKEN_USER_DEFINED))
        v->types[id] = TOKEN_CONTROL;
}

enum status added_tokens_read(const struct json_node *from, bool normalizes, struct vocabulary *v,
                              struct err *e)
{
    struct text strips = {NULL, 0}, normalized = {NULL, 0}; /* the last such token */
    if (!from)
        return STATUS_OK;
    if (from->kind != JSON_ARRAY)
        TRY(json_expect(from, JSON_OBJECT, e));
    TRY(vocabulary_index(v, e));
    JSON_EACH (c, from) {
        /* A number is an id whose key is the name, an object has the name; its id is a member, or
         * its key. */
        const struct json_node key = {.key = c->key, .text = c->key, .kind = JSON_NUMBER};
        const struct json_node *object = NULL, *content, *id = c;
        struct text name = c->key;
        int64_t number;
        if (c->kind != JSON_NUMBER) {
            object = c;
            id = &key;
            TRY(json_expect(object, JSON_OBJECT, e));
            TRY(json_require(object, "content", JSON_STRING, &content, e));
            name = content->text;
            if (from->kind == JSON_ARRAY)
                TRY(json_require(object, "id", JSON_NUMBER, &id, e));
        }
        TRY(json_node_i64(id, INT64_MIN, INT64_MAX, &number, e));
        if (name.len == 0 || json_is_one_of(object, "single_word", "true"))
            return err_bad_file(
                e,
                "added token \"%.*s\": expected a name, and single_word to be false" VOCAB_ADVICE,
                SHOWN(name));
        const int known = vocabulary_find(v, name);
        if (known >= 0 && known != number)
            return err_bad_file(
                e, "added token \"%.*s\": expected id %d, as in the vocabulary, found %lld",
                SHOWN(name), known, (long long)number);
        if (known < 0)
            TRY(vocabulary_token(v, number, name, TOKEN_USER_DEFINED, e));
        else if (v->types[known] == TOKEN_NORMAL)
            v->types[known] = TOKEN_USER_DEFINED;
        if (json_is_one_of(object, "special", "true"))
            mark_special(v, number);
        if (json_is_one_of(object, "lstrip", "true") || json_is_one_of(object, "rstrip", "true"))
            strips = name;
        if (normalizes && json_is_one_of(object, "normalized", "true"))
            normalized = name;
    }
    if (strips.data)
        vocabulary_note(v->notes,
                        "spaces beside added tokens, such as \"%.*s\", stay, which the folder's "
                        "tokenizer takes away (lstrip, rstrip)",
                        SHOWN(strips));
    if (normalized.data)
        vocabulary_note(v->notes,
                        "added tokens, such as \"%.*s\", are found wherever they stand; the "
                        "folder's tokenizer looks for them behind a space (normalized)",
                        SHOWN(normalized));
    return STATUS_OK;
}

/* --- special tokens -------------------------------------------------------------------------- */

/* The token that a string, or an object's "content", names, which is special; -1: none. */
static enum status find_special(const struct json_node *node, struct vocabulary *v, int *id,
                                struct err *e)
{
    const struct json_node *content = json_present(node, "content");
    struct text name;
    TRY(json_node_text(content ? content : node, &name, e));
    *id = vocabulary_find(v, name);
    mark_special(v, *id);
    return STATUS_OK;
}

/*
 * BOS, EOS, padding and the unknown token: those that the folder's files name, or `otherwise` names
 * where none has the key; else what they were, else what the model's config says. And whether BOS
 * stands before each text, which stays where nothing is said.
 */
static enum status read_special_tokens(const struct input *files, const struct hf_ids *ids,
                                       const char *otherwise, struct vocabulary *v, struct err *e)
{
    struct vocab_keys *k = &v->keys;
    const struct json_node *const named_in[] = {files[VOCAB_CONFIG].root, files[VOCAB_MAP].root};
    const struct {
        const char *key, *otherwise;
        int64_t of_config;
        int *id;
    } specials[] = {{"bos_token", otherwise, ids->bos, &k->bos},
                    {"eos_token", otherwise, ids->eos, &k->eos},
                    {"pad_token", NULL, ids->pad, &k->pad},
                    {"unk_token", otherwise, -1, &k->unk}};
    TRY(vocabulary_index(v, e));
    for (int s = 0; s < 4; s++) {
        const char *name = specials[s].otherwise;
        int id = -1;
        for (int i = 0; i < 2 && id < 0; i++) {
            const struct json_node *node = json_present(named_in[i], specials[s].key);
            if (node) {
                name = NULL;
                TRY(find_special(node, v, &id, e));
            }
        }
        if (name) {
            id = vocabulary_find(v, text_of(name));
            mark_special(v, id);
        }
        if (id < 0 && *specials[s].id < 0 && specials[s].of_config < k->n)
            id = specials[s].of_config;
        if (id >= 0)
            *specials[s].id = id;
    }
    int first = -1;
    for (int i = 0; i < 2; i++) {
        const struct json_node *list = json_present(named_in[i], "additional_special_tokens");
        for (const struct json_node *c = NULL; list && (c = json_child(list, c));)
            TRY(find_special(c, v, &first, e));
    }
    if (json_present(named_in[0], "add_bos_token"))
        k->add_bos = json_is_one_of(named_in[0], "add_bos_token", "true");
    if (files[VOCAB_TOKENIZER].root) {
        TRY(status_in(tokenizer_template_read(files[VOCAB_TOKENIZER].root, v, &first, e),
                      "tokenizer.json", e));
        k->add_bos = first >= 0;
        if (first >= 0 && k->bos >= 0 && first != k->bos)
            return err_bad_file(e,
                                "post_processor: expected BOS, token %d, before each text, found "
                                "token %d, \"%.*s\"" VOCAB_ADVICE,
                                k->bos, first, SHOWN(v->tokens[first]));
        if (first >= 0)
            k->bos = first;
    }
    k->add_bos &= k->bos >= 0;
    if (k->bos < 0 || k->eos < 0)
        vocabulary_note(v->notes, "the vocabulary has no %s token%s",
                        k->bos >= 0   ? "EOS"
                        : k->eos >= 0 ? "BOS"
                                      : "BOS and no EOS",
                        k->eos < 0 ? ": texts do not end by themselves" : "");
    return STATUS_OK;
}

/* --- the whole ------------------------------------------------------------------------------- */

static const char *const names[VOCAB_FILES] = {
    [VOCAB_CONFIG] = "tokenizer_config.json",
    [VOCAB_MAP] = "special_tokens_map.json",
    [VOCAB_ADDED] = "added_tokens.json",
    [VOCAB_TOKENIZER] = "tokenizer.json",
    [VOCAB_MODEL] = "tokenizer.model",
    [VOCAB_NAMES] = "vocab.json", /* this and the next are of no use beside a tokenizer.json */
    [VOCAB_MERGES] = "merges.txt",
};

/* A tokenizer.model is the truth where it is SentencePiece's (others write tables of theirs under
 * that name): a tokenizer.json beside it was made from it, and may have added tokens to it. */
enum status vocabulary_of(const struct input files[VOCAB_FILES], const char *folder,
                          const struct hf_ids *ids, struct vocabulary *v, struct err *e)
{
    const struct json_node *tokenizer = files[VOCAB_TOKENIZER].root;
    const struct text model = files[VOCAB_MODEL].bytes;
    const struct input *config = &files[VOCAB_CONFIG], *from = NULL;
    const char *otherwise = NULL;
    enum status s = STATUS_OK;
    if (vocab_is_sentencepiece(model) || (model.data && !tokenizer && !files[VOCAB_NAMES].root)) {
        from = &files[VOCAB_MODEL];
        s = (vocab_is_llmc(model)            ? vocab_llmc_read
             : vocab_is_sentencepiece(model) ? vocab_sentencepiece_read
                                             : vocab_llama2c_read)(model, v, e);
        THEN(s, added_tokens_read(json_present(tokenizer, "added_tokens"), false, v, e));
    } else if (tokenizer) {
        from = &files[VOCAB_TOKENIZER];
        s = vocab_tokenizer_json_read(tokenizer, v, e);
    } else if (files[VOCAB_NAMES].root) {
        from = &files[files[VOCAB_MERGES].bytes.data ? VOCAB_MERGES : VOCAB_NAMES];
        otherwise = files[VOCAB_MERGES].bytes.data ? "<|endoftext|>" : NULL;
        s = vocab_names_read(files[VOCAB_NAMES].root, files[VOCAB_MERGES].bytes, v, e);
    } else if (v->keys.n == 256) {
        s = vocab_bytes_fill(v, e);
    }
    const char *path = from ? from->path : folder;
    TRY(status_in(s, path, e));
    if (!v->keys.model) {
        if (folder)
            vocabulary_note(v->notes, "there is no tokenizer: tokens come without text");
        return STATUS_OK;
    }
    /* GPT-2's tokenizer puts a space before texts if its config says so. */
    if (v->keys.pre && json_is_one_of(config->root, "add_prefix_space", "true"))
        return status_in(
            err_bad_file(e, "expected \"add_prefix_space\" to be false, found true" VOCAB_ADVICE),
            config->path, e);
    if (folder || from != &files[VOCAB_MODEL]) {
        TRY(status_in(
            added_tokens_read(json_present(config->root, "added_tokens_decoder"), false, v, e),
            names[VOCAB_CONFIG], e));
        TRY(status_in(added_tokens_read(files[VOCAB_ADDED].root, false, v, e), names[VOCAB_ADDED],
                      e));
        TRY(status_in(read_special_tokens(files, ids, otherwise, v, e), folder ? folder : path, e));
    }
    return status_in(vocabulary_finish(v, e), path, e);
}

enum status vocabulary_read(const char *path, const struct vocabulary_options *o,
                            struct vocabulary *out, struct err *e)
{
    struct input files[VOCAB_FILES + 1] = {{.path = NULL}}, *one = &files[VOCAB_FILES];
    struct stat st;
    const bool is_folder = path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    enum status s = vocabulary_start(out, o->n_vocab, o->notes, e);
    for (int i = 0; i < VOCAB_FILES && is_folder && s == STATUS_OK; i++) {
        if (i > VOCAB_MODEL && files[VOCAB_TOKENIZER].root)
            break;
        s = input_open(&files[i], path, names[i], e);
        if (s == STATUS_OK && i != VOCAB_MODEL && i != VOCAB_MERGES)
            s = input_read_json(&files[i], e);
    }
    if (path && !is_folder && s == STATUS_OK) {
        s = input_open(one, NULL, path, e);
        if (s == STATUS_OK && text_starts_with(one->bytes, "{"))
            s = input_read_json(one, e);
        files[!one->root                        ? VOCAB_MODEL
              : json_member(one->root, "model") ? VOCAB_TOKENIZER
                                                : VOCAB_NAMES] = *one;
        *one = (struct input){.path = NULL};
    }
    THEN(s, vocabulary_of(files, is_folder ? path : NULL, &o->ids, out, e));
    if (s != STATUS_OK || !out->keys.model)
        vocabulary_free(out);
    for (int i = 0; i < VOCAB_FILES; i++)
        input_close(&files[i]);
    return s;
}
