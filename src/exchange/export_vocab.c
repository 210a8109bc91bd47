/*
 * A GGUF file's vocabulary as the files of a Hugging Face folder.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "exchange/exchange.h"
#include "exchange/private.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

/* A merge, with what it is sorted by. */
struct merge {
    struct symbol_pair pair;
    size_t left_chars, right_chars;
};

/* Everything but what is freed is borrowed. */
struct exported {
    const struct gguf *gguf;
    const struct vocabulary_notes *notes;
    struct tokenizer *tokenizer;
    const struct vocab *vocab; /* the tokens as bytes */
    /*
     * The tokens as other formats name them: in UTF-8, each name once. A GGUF file may have a name
     * twice, where no text becomes the second one, and empty names of unused tokens: those are
     * replaced, they are called "[PADi]" by their ids and unused.
     */
    struct vocabulary v;
    bool *replaced; /* [vocab.n] merging knows it by another name, or never makes it */
    int n;          /* of vocab's tokens, without padding at the end; 0: nothing is exported */
    const struct pretokenizer *pre; /* NULL: SentencePiece's */
    struct merge *merges;           /* [n_merges] as they are tried */
    size_t n_merges;
};

/* --- names ----------------------------------------------------------------------------------- */

#define TOKENS_KEY "tokenizer.ggml.tokens"

/* Of tokens with one name, the one that texts become comes first: special ones are looked for
 * before anything else. */
static const int preference[] = {
    [TOKEN_CONTROL] = 0, [TOKEN_USER_DEFINED] = 0, [TOKEN_UNKNOWN] = 0, [TOKEN_UNDEFINED] = 1,
    [TOKEN_NORMAL] = 1,  [TOKEN_BYTE] = 2,         [TOKEN_UNUSED] = 3,
};

static enum status read_names(struct exported *x, struct err *e)
{
    struct gguf_cursor cursor = {0};
    struct text name;
    for (int id = 0;
         id < x->vocab->n && gguf_next_text(gguf_find(x->gguf, TOKENS_KEY), &cursor, &name); id++) {
        const enum token_type type = x->vocab->type[id];
        const int byte = x->pre && type == TOKEN_BYTE ? vocab_hex_byte(name, type) : -1;
        char letter[2];
        uint32_t code = 0;
        if (byte >= 0)
            name = (struct text){letter, byte_alphabet_write(byte, letter)};
        for (struct text rest = name; rest.len > 0 && code != UNICODE_INVALID;)
            (void)utf8_next(&rest, &code);
        if (code == UNICODE_INVALID)
            return bad_file(e,
                            "%s element %d: expected UTF-8, without which it cannot be exported, "
                            "found \"%.*s\"",
                            TOKENS_KEY, id, SHOWN(name));
        TRY(vocabulary_token(&x->v, id, name, type, e));
    }
    vocabulary_index(&x->v);
    return STATUS_OK;
}

/* Of the tokens of one name all but one are replaced. */
static enum status find_twins(struct exported *x, struct err *e)
{
    const struct vocab *v = x->vocab;
    const struct vocab_name *names = x->v.names;
    int twice = 0, lowest = v->n; /* of those that are in use */
    for (int first = 0, end = 0; first < x->v.n_names; first = end) {
        int one = names[first].id;
        while (++end < x->v.n_names && text_equal(names[first].name, names[end].name))
            if (preference[v->type[names[end].id]] < preference[v->type[one]])
                one = names[end].id;
        for (int i = first; i < end; i++) {
            const int other = names[i].id;
            x->replaced[other] = other != one;
            if (other == one || v->type[other] == TOKEN_UNUSED)
                continue;
            if (!text_equal(vocab_bytes(v, one), vocab_bytes(v, other)))
                return bad_file(e,
                                "%s: expected names that are one token's each, as exported files "
                                "need, found tokens %d and %d, for different texts, to be "
                                "\"%.*s\"",
                                TOKENS_KEY, one, other, SHOWN(names[i].name));
            twice++;
            lowest = other < lowest ? other : lowest;
        }
    }
    if (twice > 0)
        vocabulary_note(x->notes,
                        "%d tokens, such as %d, have the name of another: they are exported as "
                        "\"[PADi]\", i being their ids",
                        twice, lowest);
    return STATUS_OK;
}

/* Time O(n log n). */
static enum status make_names(struct exported *x, struct err *e)
{
    TRY(vocabulary_start(&x->v, x->vocab->n, x->notes, e));
    x->replaced = vocabulary_take(&x->v, x->vocab->n, sizeof *x->replaced, e);
    if (!x->replaced)
        return STATUS_NO_MEMORY;
    TRY(read_names(x, e));
    TRY(find_twins(x, e));
    x->n = 1;
    for (int id = 0; id < x->vocab->n; id++) {
        char text[16];
        const int len = snprintf(text, sizeof text, "[PAD%d]", id);
        const struct text padding = {text, len};
        const bool is_unused = x->vocab->type[id] == TOKEN_UNUSED;
        const bool is_padding = text_equal(x->v.tokens[id], padding);
        if (is_unused && (x->v.tokens[id].len == 0 || (x->pre && x->pre->whole_pieces)))
            x->replaced[id] = !is_padding;
        if (!is_unused || !(x->replaced[id] || is_padding)) /* import fills up the end */
            x->n = id + 1;
        if (!x->replaced[id])
            continue;
        if (vocabulary_find(&x->v, padding) >= 0)
            return bad_file(e,
                            "%s: expected no token to be called \"%s\", as token %d, whose name is "
                            "another's, is exported",
                            TOKENS_KEY, text, id);
        TRY(vocabulary_join(&x->v, &padding, 1, &x->v.tokens[id], e));
        x->v.types[id] = TOKEN_UNUSED;
    }
    return STATUS_OK;
}

/* --- merges ---------------------------------------------------------------------------------- */

/* Whether a token is looked for in texts before anything else. */
static bool is_added(const struct exported *x, int id)
{
    const enum token_type type = x->vocab->type[id];
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN;
}

static size_t count_chars(struct text s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.data[i] & 0xc0) != 0x80;
    return n;
}

/* The ways to make one token, or tokens of one score, have one rank: those follow as transformers'
 * own converter sorts them. */
static int compare_merges(const void *left, const void *right)
{
    const struct merge *a = left;
    const struct merge *b = right;
    if (a->pair.rank != b->pair.rank)
        return a->pair.rank < b->pair.rank ? -1 : 1;
    if (a->left_chars != b->left_chars)
        return a->left_chars > b->left_chars ? -1 : 1;
    if (a->right_chars != b->right_chars)
        return a->right_chars > b->right_chars ? -1 : 1;
    return (a->pair.result > b->pair.result) - (a->pair.result < b->pair.result);
}

static bool is_token(const struct exported *x, int32_t symbol)
{
    return symbol < x->vocab->n && !x->replaced[symbol];
}

/* Byte-level texts have no special token within what is merged; their names are no bytes. */
static bool is_merged(const struct exported *x, int32_t symbol)
{
    return is_token(x, symbol) && !(x->pre && is_added(x, symbol));
}

static enum status read_merges(struct exported *x, const struct merging *m, struct err *e)
{
    const size_t most = m->first[m->n_symbols];
    const struct symbol_pair *lost = NULL;
    x->merges = calloc(most + 1, sizeof *x->merges);
    if (!x->merges)
        return err_no_memory(e, "merges", (most + 1) * sizeof *x->merges);
    for (size_t i = 0; i < most; i++) {
        const struct symbol_pair *p = &m->pairs[i];
        if (is_merged(x, p->left) && is_merged(x, p->right) && is_merged(x, p->result))
            x->merges[x->n_merges++] = (struct merge){*p, count_chars(x->v.tokens[p->left]),
                                                      count_chars(x->v.tokens[p->right])};
        else if (!x->pre && is_token(x, p->result))
            lost = p;
    }
    qsort(x->merges, x->n_merges, sizeof *x->merges, compare_merges);
    for (size_t i = 1; i < x->n_merges; i++) {
        const struct symbol_pair *one = &x->merges[i - 1].pair, *other = &x->merges[i].pair;
        if (one->rank != other->rank || one->result == other->result)
            continue;
        vocabulary_note(x->notes,
                        "tokens have one score, such as \"%.*s\" and \"%.*s\": transformers merges "
                        "all of one before the other, not from left to right; a few ids may differ",
                        SHOWN(x->v.tokens[one->result]), SHOWN(x->v.tokens[other->result]));
        break;
    }
    if (lost)
        vocabulary_note(x->notes,
                        "some tokens, such as \"%.*s\", are merged from characters that are none: "
                        "transformers does not make them; a few ids may differ",
                        SHOWN(x->v.tokens[lost->result]));
    return STATUS_OK;
}

/* --- what the file says ---------------------------------------------------------------------- */

/* An id that tokenizer_create does not need; -1 if it is none. */
static int read_id(const struct exported *x, const char *key)
{
    uint64_t id = UINT64_MAX;
    bool found;
    if (gguf_get_u64(x->gguf, key, 0, UINT32_MAX, &id, &found, NULL) != STATUS_OK)
        return -1;
    return id < (uint64_t)x->vocab->n ? (int)id : -1;
}

static enum status read_vocabulary(struct exported *x, struct err *e)
{
    struct err why;
    if (!gguf_find(x->gguf, "tokenizer.ggml.model")) {
        vocabulary_note(x->notes, "the checkpoint has no vocabulary: none is exported");
        return STATUS_OK;
    }
    TRY(tokenizer_create(x->gguf, &x->tokenizer, e));
    if (tokenizer_reads_text(x->tokenizer, &why) != STATUS_OK) {
        vocabulary_note(x->notes, "the vocabulary is not exported: %s", why.text);
        return STATUS_OK;
    }
    const struct tokenizer_parts parts = tokenizer_parts(x->tokenizer);
    x->vocab = parts.vocab;
    x->pre = parts.pre;
    if (parts.lacks_bytes)
        vocabulary_note(x->notes, "the vocabulary has not a token for every byte: where a text has "
                                  "one that is missing transformers drops it");
    TRY(make_names(x, e));
    struct vocab_keys *k = &x->v.keys;
    k->add_space_prefix = parts.adds_space;
    k->bos = tokenizer_bos(x->tokenizer);
    k->eos = tokenizer_eos(x->tokenizer);
    k->unk = read_id(x, "tokenizer.ggml.unknown_token_id");
    k->pad = read_id(x, "tokenizer.ggml.padding_token_id");
    const struct gguf_value *scores = gguf_find(x->gguf, "tokenizer.ggml.scores");
    for (int id = 0; id < x->vocab->n && scores && !x->pre; id++)
        x->v.scores[id] = (float)gguf_float_at(scores, id);
    return read_merges(x, parts.merging, e);
}

/* --- JSON ------------------------------------------------------------------------------------ */

/* Writes the members or values of a text in JSON, in which 'strings' have single quotes and no
 * escapes, and $ stands for the next of the holes, # for one that is no string. */
static void put(struct json *j, const char *at, const struct text *holes)
{
    for (const char *end; *at; at = end) {
        end = at + 1;
        if (*at == '{') {
            json_begin_object(j, NULL);
        } else if (*at == '[') {
            json_begin_array(j, NULL);
        } else if (*at == '}' || *at == ']') {
            json_end(j);
        } else if (*at == '$') {
            json_text(j, NULL, *holes++);
        } else if (*at == '#') {
            json_literal(j, NULL, *holes++);
        } else if (*at == '\'') {
            end = strchr(at + 1, '\'') + 1;
            const struct text string = {at + 1, (end - at - 2)};
            if (*end == ':')
                json_key(j, string);
            else
                json_text(j, NULL, string);
        } else if (!strchr(" ,:", *at)) {
            end = at + strcspn(at, ",]}");
            json_literal(j, NULL, (struct text){at, (end - at)});
        }
    }
}

#define BYTE_LEVEL(regex)                                                                          \
    "{'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': true, 'use_regex': " regex "}"
#define REPLACE(from, to)                                                                          \
    "{'type': 'Replace', 'pattern': {'String': '" from "'}, 'content': '" to "'}"

/* What a text goes through before it is merged. */
static void put_steps(struct json *j, const struct exported *x)
{
    if (!x->pre) {
        put(j, "'normalizer': {'type': 'Sequence', 'normalizers': [", NULL);
        if (x->v.keys.add_space_prefix > 0)
            put(j, "{'type': 'Prepend', 'prepend': '" VOCAB_SPACE "'}", NULL);
        put(j, REPLACE(" ", VOCAB_SPACE) "]}, 'pre_tokenizer': null", NULL);
        return;
    }
    const struct cut *c = cut_of_rule(x->pre->rule);
    put(j, "'normalizer': null", NULL);
    if (c->regex)
        put(j,
            "'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'Split', 'pattern': "
            "{'Regex': $}, 'behavior': 'Isolated', 'invert': false}, " BYTE_LEVEL("false") "]}",
            (const struct text[]){text_of(c->regex)});
    else if (c->flags & CUT_DIGITS)
        put(j,
            "'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'Digits', "
            "'individual_digits': true}, " BYTE_LEVEL("true") "]}",
            NULL);
    else
        put(j, "'pre_tokenizer': " BYTE_LEVEL("true"), NULL);
}

#define BOS    "{'SpecialToken': {'id': $, 'type_id': 0}}"
#define TEXT_A "{'Sequence': {'id': 'A', 'type_id': 0}}"
#define TEXT_B "{'Sequence': {'id': 'B', 'type_id': 1}}"
#define TEMPLATE                                                                                   \
    "'post_processor': {'type': 'TemplateProcessing', 'single': [" BOS TEXT_A                      \
    "], 'pair': [" BOS TEXT_A BOS TEXT_B "], 'special_tokens': {"

static void put_post_processor(struct json *j, const struct exported *x)
{
    if (!tokenizer_adds_bos(x->tokenizer)) {
        put(j, x->pre ? "'post_processor': " BYTE_LEVEL("true") : "'post_processor': null", NULL);
        return;
    }
    char id[16];
    snprintf(id, sizeof id, "%d", x->v.keys.bos);
    const struct text bos = x->v.tokens[x->v.keys.bos];
    put(j, TEMPLATE, (const struct text[]){bos, bos, bos});
    json_key(j, bos);
    put(j, "{'id': $, 'ids': [#], 'tokens': [$]}}}", (const struct text[]){bos, text_of(id), bos});
}

static void put_decoder(struct json *j, const struct exported *x)
{
    if (x->pre) {
        put(j, "'decoder': " BYTE_LEVEL("true"), NULL);
        return;
    }
    put(j,
        "'decoder': {'type': 'Sequence', 'decoders': [" REPLACE(
            VOCAB_SPACE, " ") ", {'type': 'ByteFallback'}, {'type': 'Fuse'}",
        NULL);
    if (x->v.keys.add_space_prefix > 0)
        put(j, "{'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}", NULL);
    put(j, "]}", NULL);
}

/* The name of a token that is looked for in texts anyway: any other would be from then on. */
static void put_special(struct json *j, const char *key, const struct exported *x, int id)
{
    if (id >= 0 && is_added(x, id) && !x->replaced[id])
        json_text(j, key, x->v.tokens[id]);
    else
        json_null(j, key);
}

static void put_vocab(struct json *j, const char *key, const struct exported *x)
{
    json_begin_object(j, key);
    for (int id = 0; id < x->n; id++) {
        json_key(j, x->v.tokens[id]);
        json_int(j, NULL, id);
    }
    json_end(j);
}

static void put_model(struct json *j, const struct exported *x)
{
    put(j, "'model': {'type': 'BPE', 'dropout': null", NULL);
    put_special(j, "unk_token", x, x->pre ? -1 : x->v.keys.unk);
    put(j, "'continuing_subword_prefix': null, 'end_of_word_suffix': null", NULL);
    json_bool(j, "fuse_unk", !x->pre);
    json_bool(j, "byte_fallback", !x->pre);
    json_bool(j, "ignore_merges", x->pre && x->pre->whole_pieces);
    put_vocab(j, "vocab", x);
    json_begin_array(j, "merges");
    for (size_t i = 0; i < x->n_merges; i++)
        put(j, "[$, $]",
            (const struct text[]){x->v.tokens[x->merges[i].pair.left],
                                  x->v.tokens[x->merges[i].pair.right]});
    put(j, "]}", NULL);
}

static void put_tokenizer_json(struct json *j, const void *exported)
{
    const struct exported *x = exported;
    put(j, "{'version': '1.0', 'truncation': null, 'padding': null, 'added_tokens': [", NULL);
    for (int id = 0; id < x->n; id++) {
        if (!is_added(x, id) || x->replaced[id])
            continue;
        json_begin_object(j, NULL);
        json_int(j, "id", id);
        put(j,
            "'content': $, 'single_word': false, 'lstrip': false, 'rstrip': false, "
            "'normalized': false",
            &x->v.tokens[id]);
        json_bool(j, "special", x->vocab->type[id] != TOKEN_USER_DEFINED);
        json_end(j);
    }
    json_end(j);
    put_steps(j, x);
    put_post_processor(j, x);
    put_decoder(j, x);
    put_model(j, x);
    json_end(j);
}

static void put_vocab_json(struct json *j, const void *exported)
{
    put_vocab(j, NULL, exported);
}

/* The context length of whatever architecture. */
static void put_longest(struct json *j, const struct gguf *g)
{
    struct text arch;
    char key[128];
    uint64_t longest = 0;
    bool found;
    if (gguf_get_text(g, "general.architecture", &arch, &found, NULL) != STATUS_OK || !found)
        return;
    snprintf(key, sizeof key, "%.*s.context_length", arch.len < 64 ? (int)arch.len : 64, arch.data);
    if (gguf_get_u64(g, key, 1, INT64_MAX, &longest, &found, NULL) == STATUS_OK && found)
        json_u64(j, "model_max_length", longest);
}

/* PreTrainedTokenizerFast is the class that takes tokenizer.json as it is in every version: from
 * transformers 5 on others put the parts together anew, in a way of their own. Without
 * model_input_names version 4 gives token_type_ids, too, which GPT-2 embeds. */
static void put_tokenizer_config(struct json *j, const void *exported)
{
    const struct exported *x = exported;
    const bool adds_bos = tokenizer_adds_bos(x->tokenizer);
    json_begin_object(j, NULL);
    if (!adds_bos || is_added(x, x->v.keys.bos)) /* needs bos_token */
        json_bool(j, "add_bos_token", adds_bos);
    json_bool(j, "add_prefix_space", x->v.keys.add_space_prefix > 0);
    put_special(j, "bos_token", x, x->v.keys.bos);
    json_bool(j, "clean_up_tokenization_spaces", false);
    put_special(j, "eos_token", x, x->v.keys.eos);
    put(j, "'model_input_names': ['input_ids', 'attention_mask']", NULL);
    put_longest(j, x->gguf);
    put_special(j, "pad_token", x, x->v.keys.pad);
    json_string(j, "tokenizer_class", "PreTrainedTokenizerFast");
    put_special(j, "unk_token", x, x->v.keys.unk);
    json_end(j);
}

/* --- files ----------------------------------------------------------------------------------- */

/* A line a merge, as GPT-2 has them. */
static void put_merges(struct json *j, const void *exported)
{
    const struct exported *x = exported;
    output_puts(j->out, "#version: 0.2");
    for (size_t i = 0; i < x->n_merges; i++) {
        const struct symbol_pair *p = &x->merges[i].pair;
        const struct text left = x->v.tokens[p->left], right = x->v.tokens[p->right];
        output_puts(j->out, "\n");
        output_put(j->out, left);
        output_puts(j->out, " ");
        output_put(j->out, right);
    }
}

/* What transformers looks for: other ones than are written must not stay. */
enum { BYTES = 1, SPACES = 2 }; /* the kinds of vocabularies that have a file */
static const struct vocab_file {
    const char *name;
    unsigned kinds;
    void (*put)(struct json *j, const void *exported);
} vocab_files[] = {
    {"tokenizer.json", BYTES | SPACES, put_tokenizer_json},
    {"tokenizer_config.json", BYTES | SPACES, put_tokenizer_config},
    {"vocab.json", BYTES, put_vocab_json},
    {"merges.txt", BYTES, put_merges},
    {"tokenizer.model", SPACES, NULL},
    {"special_tokens_map.json", 0, NULL},
    {"added_tokens.json", 0, NULL},
};

static enum status write_sentencepiece(const struct exported *x, const char *path, struct err *e)
{
    struct bytes model = {NULL, 0, 0};
    struct file_writer *w;
    enum status s = vocab_sentencepiece_write(&x->v, &model)
                        ? file_writer_open(&w, path, e)
                        : err_no_memory(e, "tokenizer.model", 2 * model.cap);
    if (s == STATUS_OK) {
        file_writer_put(w, model.data, model.len);
        s = file_writer_commit(w, e);
    }
    bytes_free(&model);
    return s;
}

/* Removed if it is of another kind, or if the sentencepiece library would not take it. */
static enum status write_file(const struct exported *x, const char *dir, const struct vocab_file *f,
                              struct err *e)
{
    const unsigned kind = x->n == 0 ? 0 : x->pre ? BYTES : SPACES;
    const bool wanted = f->kinds & kind;
    enum status s = STATUS_OK;
    char *path;
    if (wanted && f->put)
        return export_json(dir, f->name, f->put, x, e);
    TRY(file_in_folder(dir, f->name, &path, e));
    if (wanted && vocab_fits_sentencepiece(&x->v))
        s = write_sentencepiece(x, path, e);
    else if (unlink(path) != 0 && errno != ENOENT)
        s = err_set(e, STATUS_FAILED, "%.200s: cannot remove it: %s", path, strerror(errno));
    free(path);
    return s;
}

enum status export_vocab(const struct gguf *g, const char *dir,
                         const struct vocabulary_notes *notes, struct err *e)
{
    struct exported x = {.gguf = g, .notes = notes};
    enum status s = read_vocabulary(&x, e);
    for (size_t i = 0; i < sizeof vocab_files / sizeof *vocab_files && s == STATUS_OK; i++)
        s = write_file(&x, dir, &vocab_files[i], e);
    tokenizer_free(x.tokenizer);
    vocabulary_free(&x.v);
    free(x.merges);
    return s;
}
