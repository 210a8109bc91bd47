/*
 * A GGUF file's vocabulary as the files of a Hugging Face folder.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/little.h"
#include "base/text.h"
#include "exchange/export.h"
#include "exchange/private.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/spm.h"
#include "text/tokenizer.h"

/*
 * A token as other formats name it: in UTF-8, each name once. A GGUF file may have a name twice,
 * where no text becomes the second one, and empty names of unused tokens: those are replaced, they
 * are called "[PADi]" by their ids.
 */
struct token {
    struct text name; /* of the file's memory, or of what follows */
    bool replaced;    /* merging knows it by another name, or never makes it */
    char made[16];
};

/* A merge, with what it is sorted by. */
struct merge {
    struct symbol_pair pair;
    size_t left_chars, right_chars;
};

/* Points into itself: it may not be moved. Everything but what is freed is borrowed. */
struct exported {
    const struct gguf *gguf;
    const struct vocabulary_notes *notes;
    struct tokenizer *tokenizer;
    struct vocab vocab;
    struct token *tokens;           /* [vocab.n]; NULL: there is nothing to export */
    char bytes[256][2];             /* in the byte alphabet */
    int n;                          /* of vocab's tokens, without padding at the end */
    const struct pretokenizer *pre; /* NULL: SentencePiece's */
    struct bpe bpe;                 /* of pre */
    struct spm spm;                 /* else */
    struct merge *merges;           /* [n_merges] as they are tried */
    size_t n_merges;
    bool adds_space;        /* before texts, of SentencePiece's */
    int bos, eos, unk, pad; /* -1: none */
};

/* --- names ----------------------------------------------------------------------------------- */

#define TOKENS_KEY "tokenizer.ggml.tokens"

/* Of tokens with one name, the one that texts become comes first: special ones are looked for
 * before anything else. */
static const int preference[] = {
    [TOKEN_CONTROL] = 0, [TOKEN_USER_DEFINED] = 0, [TOKEN_UNKNOWN] = 0, [TOKEN_UNDEFINED] = 1,
    [TOKEN_NORMAL] = 1,  [TOKEN_BYTE] = 2,         [TOKEN_UNUSED] = 3,
};

struct named {
    struct text name;
    int32_t id;
    int preference;
};

static int compare_named(const void *left, const void *right)
{
    const struct named *a = left;
    const struct named *b = right;
    const int order = text_order(a->name, b->name);
    if (order != 0)
        return order;
    return a->preference != b->preference
               ? (a->preference > b->preference) - (a->preference < b->preference)
               : (a->id > b->id) - (a->id < b->id);
}

/* The names of the file, to `list` too. */
static enum status read_names(struct exported *x, struct named *list, struct err *e)
{
    struct gguf_cursor cursor = {0};
    struct text name;
    for (int id = 0;
         id < x->vocab.n && gguf_next_text(gguf_find(x->gguf, TOKENS_KEY), &cursor, &name); id++) {
        const enum token_type type = x->vocab.type[id];
        const int byte = x->pre && type == TOKEN_BYTE ? vocab_hex_byte(name, type) : -1;
        if (byte >= 0)
            name = (struct text){x->bytes[byte],
                                 byte_alphabet_write((unsigned char)byte, x->bytes[byte])};
        uint32_t code = 0;
        for (struct text rest = name; rest.len > 0 && code != UNICODE_INVALID;)
            (void)utf8_next(&rest, &code);
        if (code == UNICODE_INVALID)
            return bad_file(e,
                            "%s element %d: expected UTF-8, without which it cannot be exported, "
                            "found \"%.*s\"",
                            TOKENS_KEY, id, SHOWN(name));
        x->tokens[id].name = name;
        list[id] = (struct named){name, id, preference[type]};
    }
    return STATUS_OK;
}

/* Of the tokens of one name in the sorted list all but the first are replaced. */
static enum status find_twins(struct exported *x, const struct named *list, struct err *e)
{
    const struct vocab *v = &x->vocab;
    int twice = 0, lowest = v->n; /* of those that are in use */
    for (int i = 1, first = 0; i < v->n; i++) {
        if (!text_equal(list[first].name, list[i].name)) {
            first = i;
            continue;
        }
        const int one = list[first].id, other = list[i].id;
        x->tokens[other].replaced = true;
        if (v->type[other] == TOKEN_UNUSED)
            continue;
        if (!text_equal(vocab_bytes(v, one), vocab_bytes(v, other)))
            return bad_file(e,
                            "%s: expected names that are one token's each, as exported files need, "
                            "found tokens %d and %d, for different texts, to be \"%.*s\"",
                            TOKENS_KEY, one, other, SHOWN(list[i].name));
        twice++;
        lowest = other < lowest ? other : lowest;
    }
    if (twice > 0)
        vocabulary_note(x->notes,
                        "%d tokens, such as %d, have the name of another: they are exported as "
                        "\"[PADi]\", i being their ids",
                        twice, lowest);
    return STATUS_OK;
}

static bool has_name(const struct named *list, int n, struct text name)
{
    int low = 0, high = n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (text_order(list[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && text_equal(list[low].name, name);
}

/* Time O(n log n). */
static enum status make_names(struct exported *x, struct named *list, struct err *e)
{
    TRY(read_names(x, list, e));
    qsort(list, (size_t)x->vocab.n, sizeof *list, compare_named);
    TRY(find_twins(x, list, e));
    x->n = 1;
    for (int id = 0; id < x->vocab.n; id++) {
        struct token *t = &x->tokens[id];
        const int len = snprintf(t->made, sizeof t->made, "[PAD%d]", id);
        const struct text padding = {t->made, (size_t)len};
        const bool is_unused = x->vocab.type[id] == TOKEN_UNUSED;
        const bool is_padding = text_equal(t->name, padding);
        if (is_unused && (t->name.len == 0 || (x->pre && x->pre->whole_pieces)))
            t->replaced = !is_padding;
        if (t->replaced && has_name(list, x->vocab.n, padding))
            return bad_file(e,
                            "%s: expected no token to be called \"%s\", as token %d, whose name is "
                            "another's, is exported",
                            TOKENS_KEY, t->made, id);
        if (t->replaced)
            t->name = padding;
        if (!is_unused || !(t->replaced || is_padding)) /* import fills up what misses at the end */
            x->n = id + 1;
    }
    return STATUS_OK;
}

/* --- merges ---------------------------------------------------------------------------------- */

/* Whether a token is looked for in texts before anything else. */
static bool is_added(const struct exported *x, int id)
{
    const enum token_type type = x->vocab.type[id];
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
    return symbol < x->vocab.n && !x->tokens[symbol].replaced;
}

/* Byte-level texts have no special token within what is merged; their names are no bytes. */
static bool is_merged(const struct exported *x, int32_t symbol)
{
    return is_token(x, symbol) && !(x->pre && is_added(x, symbol));
}

static enum status read_merges(struct exported *x, struct err *e)
{
    const struct merging *m = x->pre ? &x->bpe.merging : &x->spm.merging;
    const size_t most = m->first[m->n_symbols];
    const struct symbol_pair *lost = NULL;
    x->merges = calloc(most + 1, sizeof *x->merges);
    if (!x->merges)
        return err_no_memory(e, "merges", (most + 1) * sizeof *x->merges);
    for (size_t i = 0; i < most; i++) {
        const struct symbol_pair *p = &m->pairs[i];
        if (is_merged(x, p->left) && is_merged(x, p->right) && is_merged(x, p->result))
            x->merges[x->n_merges++] = (struct merge){*p, count_chars(x->tokens[p->left].name),
                                                      count_chars(x->tokens[p->right].name)};
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
                        SHOWN(x->tokens[one->result].name), SHOWN(x->tokens[other->result].name));
        break;
    }
    if (lost)
        vocabulary_note(x->notes,
                        "some tokens, such as \"%.*s\", are merged from characters that are none: "
                        "transformers does not make them; a few ids may differ",
                        SHOWN(x->tokens[lost->result].name));
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
    return id < (uint64_t)x->vocab.n ? (int)id : -1;
}

/* Tokens, as texts are cut and merged to them. */
static enum status read_tokens(struct exported *x, struct text model, struct err *e)
{
    struct text pre = text_of("default");
    bool found;
    if (text_is(model, "gpt2")) {
        TRY(gguf_get_text(x->gguf, "tokenizer.ggml.pre", &pre, &found, e));
        x->pre = pretokenizer_find(pre);
        TRY(vocab_init(&x->vocab, VOCAB_BYTES, x->gguf, e));
        TRY(bpe_init(&x->bpe, &x->vocab, x->gguf, e));
        if (x->bpe.lacks_bytes)
            vocabulary_note(x->notes, "the vocabulary has not a token for every byte: where a text "
                                      "has one that is missing transformers drops it");
    } else {
        x->adds_space = true;
        TRY(gguf_get_bool(x->gguf, "tokenizer.ggml.add_space_prefix", &x->adds_space, &found, e));
        TRY(vocab_init(&x->vocab, VOCAB_SPACES, x->gguf, e));
        TRY(spm_init(&x->spm, &x->vocab, x->gguf, e));
    }
    const size_t n = (size_t)x->vocab.n + 1; /* there may be no tokens */
    struct named *list = calloc(n, sizeof *list);
    x->tokens = calloc(n, sizeof *x->tokens);
    const enum status s = list && x->tokens ? make_names(x, list, e)
                                            : err_no_memory(e, "names of tokens",
                                                            n * (sizeof *x->tokens + sizeof *list));
    free(list);
    return s;
}

static enum status read_vocabulary(struct exported *x, struct err *e)
{
    struct text model = {"", 0};
    struct err why;
    if (!gguf_find(x->gguf, "tokenizer.ggml.model")) {
        vocabulary_note(x->notes, "the checkpoint has no vocabulary: none is exported");
        return STATUS_OK;
    }
    TRY(tokenizer_create(x->gguf, &x->tokenizer, e));
    TRY(gguf_get_text(x->gguf, "tokenizer.ggml.model", &model, NULL, e));
    if (tokenizer_reads_text(x->tokenizer, &why) != STATUS_OK) {
        vocabulary_note(x->notes, "the vocabulary is not exported: %s", why.text);
        return STATUS_OK;
    }
    TRY(read_tokens(x, model, e));
    x->bos = tokenizer_bos(x->tokenizer);
    x->eos = tokenizer_eos(x->tokenizer);
    x->unk = read_id(x, "tokenizer.ggml.unknown_token_id");
    x->pad = read_id(x, "tokenizer.ggml.padding_token_id");
    return read_merges(x, e);
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
            const struct text string = {at + 1, (size_t)(end - at - 2)};
            if (*end == ':')
                json_key(j, string);
            else
                json_text(j, NULL, string);
        } else if (!strchr(" ,:", *at)) {
            end = at + strcspn(at, ",]}");
            json_literal(j, NULL, (struct text){at, (size_t)(end - at)});
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
        if (x->adds_space)
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
    else if (c->digits)
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
    snprintf(id, sizeof id, "%d", x->bos);
    const struct text bos = x->tokens[x->bos].name;
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
    if (x->adds_space)
        put(j, "{'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}", NULL);
    put(j, "]}", NULL);
}

/* The name of a token that is looked for in texts anyway: any other would be from then on. */
static void put_special(struct json *j, const char *key, const struct exported *x, int id)
{
    if (id >= 0 && is_added(x, id) && !x->tokens[id].replaced)
        json_text(j, key, x->tokens[id].name);
    else
        json_null(j, key);
}

static void put_vocab(struct json *j, const char *key, const struct exported *x)
{
    json_begin_object(j, key);
    for (int id = 0; id < x->n; id++) {
        json_key(j, x->tokens[id].name);
        json_int(j, NULL, id);
    }
    json_end(j);
}

static void put_model(struct json *j, const struct exported *x)
{
    put(j, "'model': {'type': 'BPE', 'dropout': null", NULL);
    put_special(j, "unk_token", x, x->pre ? -1 : x->unk);
    put(j, "'continuing_subword_prefix': null, 'end_of_word_suffix': null", NULL);
    json_bool(j, "fuse_unk", !x->pre);
    json_bool(j, "byte_fallback", !x->pre);
    json_bool(j, "ignore_merges", x->pre && x->pre->whole_pieces);
    put_vocab(j, "vocab", x);
    json_begin_array(j, "merges");
    for (size_t i = 0; i < x->n_merges; i++)
        put(j, "[$, $]",
            (const struct text[]){x->tokens[x->merges[i].pair.left].name,
                                  x->tokens[x->merges[i].pair.right].name});
    put(j, "]}", NULL);
}

static void put_tokenizer_json(struct json *j, const void *exported)
{
    const struct exported *x = exported;
    put(j, "{'version': '1.0', 'truncation': null, 'padding': null, 'added_tokens': [", NULL);
    for (int id = 0; id < x->n; id++) {
        if (!is_added(x, id) || x->tokens[id].replaced)
            continue;
        json_begin_object(j, NULL);
        json_int(j, "id", id);
        put(j,
            "'content': $, 'single_word': false, 'lstrip': false, 'rstrip': false, "
            "'normalized': false",
            &x->tokens[id].name);
        json_bool(j, "special", x->vocab.type[id] != TOKEN_USER_DEFINED);
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
    if (!adds_bos || is_added(x, x->bos)) /* needs bos_token */
        json_bool(j, "add_bos_token", adds_bos);
    json_bool(j, "add_prefix_space", x->adds_space);
    put_special(j, "bos_token", x, x->bos);
    json_bool(j, "clean_up_tokenization_spaces", false);
    put_special(j, "eos_token", x, x->eos);
    put(j, "'model_input_names': ['input_ids', 'attention_mask']", NULL);
    put_longest(j, x->gguf);
    put_special(j, "pad_token", x, x->pad);
    json_string(j, "tokenizer_class", "PreTrainedTokenizerFast");
    put_special(j, "unk_token", x, x->unk);
    json_end(j);
}

/* --- SentencePiece --------------------------------------------------------------------------- */

/*
 * A tokenizer.model is a message of Protocol Buffers; the numbers of its fields are those of
 * sentencepiece_model.proto.
 */

/* What follows a field's number. */
enum wire { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_32 = 5 };

#define MODEL_BPE 2

static bool put_varint(struct bytes *b, uint64_t value)
{
    char out[10];
    size_t len = 0;
    for (; value >= 0x80; value >>= 7)
        out[len++] = (char)(value | 0x80);
    out[len++] = (char)value;
    return bytes_put(b, (struct text){out, len});
}

/* Negative ones as 64 bits. */
static bool put_number(struct bytes *b, unsigned field, int64_t value)
{
    return put_varint(b, field << 3 | WIRE_VARINT) && put_varint(b, (uint64_t)value);
}

static bool put_bytes(struct bytes *b, unsigned field, struct text value)
{
    return put_varint(b, field << 3 | WIRE_BYTES) && put_varint(b, value.len) &&
           bytes_put(b, value);
}

static bool put_float(struct bytes *b, unsigned field, float value)
{
    uint32_t bits;
    char out[4];
    memcpy(&bits, &value, sizeof bits);
    little_store(out, bits, sizeof out);
    return put_varint(b, field << 3 | WIRE_32) && bytes_put(b, (struct text){out, sizeof out});
}

/* The number that the library has for the type, which it knows by no name. */
static enum token_type type_of(const struct exported *x, int id)
{
    const enum token_type type = x->tokens[id].replaced ? TOKEN_UNUSED : x->vocab.type[id];
    if (vocab_hex_byte(x->tokens[id].name, type) >= 0)
        return TOKEN_BYTE;
    return type == TOKEN_UNDEFINED || type == TOKEN_BYTE ? TOKEN_NORMAL : type;
}

static bool put_pieces(const struct exported *x, struct bytes *piece, struct bytes *out)
{
    const struct gguf_value *scores = gguf_find(x->gguf, "tokenizer.ggml.scores");
    bool good = true;
    for (int id = 0; good && id < x->vocab.n; id++) {
        const float score = scores ? (float)gguf_float_at(scores, (uint64_t)id) : 0.0f;
        piece->len = 0;
        good = put_bytes(piece, 1, x->tokens[id].name) && put_float(piece, 2, score) &&
               put_number(piece, 3, type_of(x, id)) && put_bytes(out, 1, bytes_text(piece));
    }
    return good;
}

/* What the model was learned and texts are normalized by. */
static bool put_specs(const struct exported *x, int unk, bool has_bytes, struct bytes *part,
                      struct bytes *out)
{
    const int ids[] = {unk, x->bos, x->eos, x->pad};
    part->len = 0;
    bool good = put_number(part, 3, MODEL_BPE) && put_number(part, 4, x->vocab.n) &&
                put_number(part, 35, has_bytes);
    for (unsigned i = 0; i < 4; i++) /* an id, and the piece that it must be */
        good = good && put_number(part, 40 + i, ids[i]) &&
               (ids[i] < 0 || put_bytes(part, 45 + i, x->tokens[ids[i]].name));
    good = good && put_bytes(out, 2, bytes_text(part));
    part->len = 0;
    return good && put_bytes(part, 1, text_of("identity")) && put_number(part, 3, x->adds_space) &&
           put_number(part, 4, false) && put_number(part, 5, true) &&
           put_bytes(out, 3, bytes_text(part));
}

/* --- files ----------------------------------------------------------------------------------- */

static enum status remove_file(const char *path, struct err *e)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return STATUS_OK;
    return err_set(e, STATUS_FAILED, "%.200s: cannot remove it: %s", path, strerror(errno));
}

/* Not written, and removed, if the sentencepiece library would not take it: it wants one unknown
 * token, and all bytes or none. */
static enum status write_sentencepiece(const struct exported *x, const char *path, struct err *e)
{
    struct bytes part = {NULL, 0, 0}, model = {NULL, 0, 0};
    struct file_writer *w;
    int unk = -1, n_unknown = 0, n_bytes = 0;
    for (int id = 0; id < x->vocab.n; id++) {
        const enum token_type type = type_of(x, id);
        n_bytes += type == TOKEN_BYTE;
        n_unknown += type == TOKEN_UNKNOWN;
        unk = type == TOKEN_UNKNOWN ? id : unk;
    }
    if (n_unknown != 1 || (n_bytes != 0 && n_bytes != 256))
        return remove_file(path, e);
    const bool good = put_pieces(x, &part, &model) && put_specs(x, unk, n_bytes > 0, &part, &model);
    bytes_free(&part);
    enum status s =
        good ? file_writer_open(&w, path, e) : err_no_memory(e, "tokenizer.model", 2 * model.cap);
    if (s == STATUS_OK) {
        file_writer_put(w, model.data, model.len);
        s = file_writer_commit(w, e);
    }
    bytes_free(&model);
    return s;
}

static enum status write_merges(const struct exported *x, const char *path, struct err *e)
{
    static const char version[] = "#version: 0.2\n";
    struct file_writer *w;
    TRY(file_writer_open(&w, path, e));
    file_writer_put(w, version, sizeof version - 1);
    for (size_t i = 0; i < x->n_merges; i++) {
        const struct text left = x->tokens[x->merges[i].pair.left].name;
        const struct text right = x->tokens[x->merges[i].pair.right].name;
        file_writer_put(w, left.data, left.len);
        file_writer_put(w, " ", 1);
        file_writer_put(w, right.data, right.len);
        file_writer_put(w, "\n", 1);
    }
    return file_writer_commit(w, e);
}

/* The kinds of vocabularies that have a file. */
enum { BYTES = 1, SPACES = 2 };

/* What transformers looks for: other ones than are written must not stay. */
static const struct vocab_file {
    const char *name;
    unsigned kinds;
    void (*put)(struct json *j, const void *exported);
    enum status (*write)(const struct exported *x, const char *path, struct err *e);
} vocab_files[] = {
    {"tokenizer.json", BYTES | SPACES, put_tokenizer_json, NULL},
    {"tokenizer_config.json", BYTES | SPACES, put_tokenizer_config, NULL},
    {"vocab.json", BYTES, put_vocab_json, NULL},
    {"merges.txt", BYTES, NULL, write_merges},
    {"tokenizer.model", SPACES, NULL, write_sentencepiece},
    {"special_tokens_map.json", 0, NULL, NULL},
    {"added_tokens.json", 0, NULL, NULL},
};

static enum status write_file(const struct exported *x, const char *dir, const struct vocab_file *f,
                              struct err *e)
{
    const unsigned kind = !x->tokens || x->vocab.n == 0 ? 0 : x->pre ? BYTES : SPACES;
    char *path;
    if (f->kinds & kind && f->put)
        return export_json(dir, f->name, f->put, x, e);
    TRY(file_in_folder(dir, f->name, &path, e));
    const enum status s = f->kinds & kind ? f->write(x, path, e) : remove_file(path, e);
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
    vocab_free(&x.vocab);
    bpe_free(&x.bpe);
    spm_free(&x.spm);
    free(x.tokens);
    free(x.merges);
    return s;
}
