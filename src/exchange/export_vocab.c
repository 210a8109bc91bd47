/*
 * A GGUF file's vocabulary as the files of a Hugging Face folder.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "exchange/private.h"
#include "text/tokenizer.h"

/* A merge, with what it is sorted by: the ways to make one token, or tokens of one score, have one
 * rank; those follow as transformers' own converter sorts them, longest parts first. */
struct merge {
    struct symbol_pair pair;
    int64_t keys[4]; /* rank, characters of the left and of the right part, result */
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

/* "[PADi]", at `out` [24]. */
static struct text padding(int id, char *out)
{
    return (struct text){out, snprintf(out, 24, "[PAD%d]", id)};
}

/* Of tokens with one name all but one are replaced. The one that texts become comes first: special
 * ones are looked for before anything else. Time O(n log n). */
static enum status make_names(struct exported *x, struct err *e)
{
    static const int ranks[] = {
        [TOKEN_CONTROL] = 0, [TOKEN_USER_DEFINED] = 0, [TOKEN_UNKNOWN] = 0, [TOKEN_UNDEFINED] = 1,
        [TOKEN_NORMAL] = 1,  [TOKEN_BYTE] = 2,         [TOKEN_UNUSED] = 3,
    };
    const struct vocab *v = x->vocab;
    struct name_index *names = &x->v.names;
    struct gguf_cursor cursor = {0};
    struct text name;
    int twice = 0, lowest = v->n; /* of those that are in use */
    char pad[24];
    TRY(vocabulary_start(&x->v, v->n, x->notes, e));
    x->replaced = vocabulary_take(&x->v, v->n, e);
    if (!x->replaced)
        return STATUS_NO_MEMORY;
    for (int id = 0; id < v->n && gguf_next_text(gguf_find(x->gguf, TOKENS_KEY), &cursor, &name);
         id++) {
        const enum token_type type = v->type[id];
        const int byte = x->pre && type == TOKEN_BYTE ? vocab_hex_byte(name, type) : -1;
        char letter[2];
        uint32_t code = 0;
        if (byte >= 0)
            name = (struct text){letter, byte_alphabet_write(byte, letter)};
        for (struct text rest = name; rest.len > 0 && code != UNICODE_INVALID;)
            (void)utf8_next(&rest, &code);
        if (code == UNICODE_INVALID)
            return err_bad_file(e,
                                "%s element %d: expected UTF-8, without which it cannot be "
                                "exported, found \"%.*s\"",
                                TOKENS_KEY, id, SHOWN(name));
        if (type == TOKEN_UNUSED && (name.len == 0 || (x->pre && x->pre->whole_pieces))) {
            x->replaced[id] = !text_equal(name, padding(id, pad));
            name = padding(id, pad);
        }
        TRY(vocabulary_token(&x->v, id, name, type, e));
        TRY(name_index_add(names, x->v.tokens[id], id, ranks[type], e));
    }
    name_index_sort(names);
    for (size_t i = 1, first = 0; i < names->n; i++) {
        const int one = names->list[first].id, other = names->list[i].id;
        if (!text_equal(names->list[first].text, names->list[i].text)) {
            first = i;
            continue;
        }
        const bool in_use = v->type[other] != TOKEN_UNUSED;
        name = padding(other, pad);
        if ((in_use && !text_equal(vocab_bytes(v, one), vocab_bytes(v, other))) ||
            vocabulary_find(&x->v, name) >= 0)
            return err_bad_file(
                e,
                "%s: expected names that are one token's each, as exported files need, or of "
                "tokens for one text, and none to be \"%s\"; found tokens %d and %d to be \"%.*s\"",
                TOKENS_KEY, pad, one, other, SHOWN(names->list[i].text));
        twice += in_use;
        lowest = in_use && other < lowest ? other : lowest;
        TRY(vocabulary_join(&x->v, &name, 1, &x->v.tokens[other], e));
        x->v.types[other] = TOKEN_UNUSED;
        x->replaced[other] = true;
    }
    if (twice > 0)
        vocabulary_note(x->notes,
                        "%d tokens, such as %d, have the name of another: they are exported as "
                        "\"[PADi]\", i being their ids",
                        twice, lowest);
    x->n = v->n; /* import fills up the end */
    while (x->n > 1 && v->type[x->n - 1] == TOKEN_UNUSED &&
           text_equal(x->v.tokens[x->n - 1], padding(x->n - 1, pad)))
        x->n--;
    return STATUS_OK;
}

/* --- merges ---------------------------------------------------------------------------------- */

/* Whether a token is looked for in texts before anything else. */
static bool is_added(const struct exported *x, int id)
{
    const enum token_type type = x->vocab->type[id];
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN;
}

static int64_t count_chars(struct text s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.data[i] & 0xc0) != 0x80;
    return n;
}

static int compare_merges(const void *left, const void *right)
{
    const struct merge *a = left, *b = right;
    for (int i = 0; i < 4; i++)
        if (a->keys[i] != b->keys[i])
            return a->keys[i] < b->keys[i] ? -1 : 1;
    return 0;
}

static enum status read_key_merges(struct exported *x, const struct merging *m, struct err *e)
{
    const size_t most = m->first[m->n_symbols];
    const struct symbol_pair *lost = NULL;
    TRY_ZEROED(x->merges, most + 1, "merges", e);
    for (size_t i = 0; i < most; i++) {
        const struct symbol_pair *p = &m->pairs[i];
        const int32_t symbols[] = {p->left, p->right, p->result};
        bool is_merged = true, is_token = false;
        for (int k = 0; k < 3; k++) { /* byte-level texts have no special token in what is merged */
            is_token = symbols[k] < x->vocab->n && !x->replaced[symbols[k]];
            is_merged &= is_token && !(x->pre && is_added(x, symbols[k]));
        }
        if (is_merged)
            x->merges[x->n_merges++] =
                (struct merge){*p,
                               {p->rank, -count_chars(x->v.tokens[p->left]),
                                -count_chars(x->v.tokens[p->right]), p->result}};
        else if (!x->pre && is_token)
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

/* What the file says. */
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
    /* tokenizer_create does not need these: others are none. */
    k->unk = export_id(x->gguf, "tokenizer.ggml.unknown_token_id", x->vocab->n - 1);
    k->pad = export_id(x->gguf, "tokenizer.ggml.padding_token_id", x->vocab->n - 1);
    return read_key_merges(x, parts.merging, e);
}

/* --- JSON ------------------------------------------------------------------------------------ */

/* Writes the members or values of a text in JSON, in which 'strings' have single quotes and no
 * escapes, and $ stands for the next of the holes (null where it has no data; a key before a
 * colon), # for one that is no string. */
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
        } else if (*at == '#' || (*at == '$' && !holes->data)) {
            json_literal(j, NULL, holes->data ? *holes : text_of("null"));
            holes++;
        } else if (*at == '\'' || *at == '$') {
            struct text string = *at == '$' ? *holes++ : text_of(at + 1);
            if (*at == '\'') {
                string.len = strcspn(string.data, "'");
                end += string.len + 1;
            }
            if (*end == ':')
                json_key(j, string);
            else
                json_text(j, NULL, string);
        } else if (!strchr(" ,:", *at)) {
            end = at + strcspn(at, ",]}");
            json_literal(j, NULL, text_span(at, end - at));
        }
    }
}

static struct text truth(bool is)
{
    return text_of(is ? "true" : "false");
}

/* The name of a token that is looked for in texts anyway: any other would be from then on. */
static struct text special(const struct exported *x, int id)
{
    return id >= 0 && is_added(x, id) && !x->replaced[id] ? x->v.tokens[id] : text_span(NULL, 0);
}

static void put_vocab_json(struct json *j, const void *exported)
{
    const struct exported *x = exported;
    json_begin_object(j, NULL);
    for (int id = 0; id < x->n; id++) {
        json_key(j, x->v.tokens[id]);
        json_int(j, NULL, id);
    }
    json_end(j);
}

#define BYTE_LEVEL(regex)                                                                          \
    "{'type': 'ByteLevel', 'add_prefix_space': false, 'trim_offsets': true, 'use_regex': " regex "}"
#define REPLACE(from, to)                                                                          \
    "{'type': 'Replace', 'pattern': {'String': '" from "'}, 'content': '" to "'}"
#define MARKED(prepend)                                                                            \
    "'normalizer': {'type': 'Sequence', 'normalizers': [" prepend REPLACE(                         \
        " ", VOCAB_SPACE) "]}, 'pre_tokenizer': null"
#define CUT(step, regex)                                                                           \
    "'normalizer': null, 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [" step            \
    BYTE_LEVEL(regex) "]}"
#define UNMARKED(strip)                                                                            \
    "'decoder': {'type': 'Sequence', 'decoders': [" REPLACE(                                       \
        VOCAB_SPACE, " ") ", {'type': 'ByteFallback'}, {'type': 'Fuse'}" strip "]}"
#define BOS    "{'SpecialToken': {'id': $, 'type_id': 0}}"
#define TEXT_A "{'Sequence': {'id': 'A', 'type_id': 0}}"
#define TEXT_B "{'Sequence': {'id': 'B', 'type_id': 1}}"

static void put_tokenizer_json(struct json *j, const void *exported)
{
    const struct exported *x = exported;
    const bool adds_space = x->v.keys.add_space_prefix > 0;
    const struct pipeline *p = x->pre ? pipeline_of_rule(x->pre->rule) : NULL;
    char number[16];
    put(j, "{'version': '1.0', 'truncation': null, 'padding': null, 'added_tokens': [", NULL);
    for (int id = 0; id < x->n; id++) {
        if (!special(x, id).data)
            continue;
        chars_printf(number, "%d", id);
        put(j,
            "{'id': #, 'content': $, 'single_word': false, 'lstrip': false, 'rstrip': false, "
            "'normalized': false, 'special': #}",
            (const struct text[]){text_of(number), x->v.tokens[id],
                                  truth(x->vocab->type[id] != TOKEN_USER_DEFINED)});
    }
    put(j, "]", NULL);
    if (!p)
        put(j,
            adds_space ? MARKED("{'type': 'Prepend', 'prepend': '" VOCAB_SPACE "'}") : MARKED(""),
            NULL);
    else if (p->regex)
        put(j,
            CUT("{'type': 'Split', 'pattern': {'Regex': $}, 'behavior': 'Isolated', 'invert': "
                "false}, ",
                "false"),
            (const struct text[]){text_of(p->regex)});
    else
        put(j,
            p->rule == PRETOKENIZE_STARCODER
                ? CUT("{'type': 'Digits', 'individual_digits': true}, ", "true")
                : "'normalizer': null, 'pre_tokenizer': " BYTE_LEVEL("true"),
            NULL);
    if (tokenizer_adds_bos(x->tokenizer)) {
        const struct text bos = x->v.tokens[x->v.keys.bos];
        chars_printf(number, "%d", x->v.keys.bos);
        put(j,
            "'post_processor': {'type': 'TemplateProcessing', 'single': [" BOS TEXT_A
            "], 'pair': [" BOS TEXT_A BOS TEXT_B
            "], 'special_tokens': {$: {'id': $, 'ids': [#], 'tokens': [$]}}}",
            (const struct text[]){bos, bos, bos, bos, bos, text_of(number), bos});
    } else {
        put(j, p ? "'post_processor': " BYTE_LEVEL("true") : "'post_processor': null", NULL);
    }
    put(j,
        p            ? "'decoder': " BYTE_LEVEL("true")
        : adds_space ? UNMARKED("{'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0}")
                     : UNMARKED(""),
        NULL);
    put(j,
        "'model': {'type': 'BPE', 'dropout': null, 'unk_token': $, 'continuing_subword_prefix': "
        "null, 'end_of_word_suffix': null, 'fuse_unk': #, 'byte_fallback': #, 'ignore_merges': #, "
        "'vocab':",
        (const struct text[]){special(x, p ? -1 : x->v.keys.unk), truth(!p), truth(!p),
                              truth(p && x->pre->whole_pieces)});
    put_vocab_json(j, x);
    put(j, "'merges': [", NULL);
    for (size_t i = 0; i < x->n_merges; i++)
        put(j, "[$, $]",
            (const struct text[]){x->v.tokens[x->merges[i].pair.left],
                                  x->v.tokens[x->merges[i].pair.right]});
    put(j, "]}}", NULL);
}

/* PreTrainedTokenizerFast is the class that takes tokenizer.json as it is in every version: from
 * transformers 5 on others put the parts together anew, in a way of their own. Without
 * model_input_names version 4 gives token_type_ids, too, which GPT-2 embeds. */
static void put_tokenizer_config(struct json *j, const void *exported)
{
    const struct exported *x = exported;
    const struct vocab_keys *k = &x->v.keys;
    const bool adds_bos = tokenizer_adds_bos(x->tokenizer);
    json_begin_object(j, NULL);
    if (!adds_bos || is_added(x, k->bos)) /* needs bos_token */
        json_bool(j, "add_bos_token", adds_bos);
    put(j,
        "'add_prefix_space': #, 'bos_token': $, 'clean_up_tokenization_spaces': false, "
        "'eos_token': $, 'model_input_names': ['input_ids', 'attention_mask']",
        (const struct text[]){truth(k->add_space_prefix > 0), special(x, k->bos),
                              special(x, k->eos)});
    for (size_t i = 0; i < x->gguf->n_pairs; i++) { /* of whatever architecture */
        const struct gguf_pair *p = &x->gguf->pairs[i];
        if (!text_ends_with(p->key, ".context_length") || !gguf_is_integer(p->value.kind))
            continue;
        json_int(j, "model_max_length", gguf_int_at(&p->value, 0));
        break;
    }
    put(j, "'pad_token': $, 'tokenizer_class': 'PreTrainedTokenizerFast', 'unk_token': $}",
        (const struct text[]){special(x, k->pad), special(x, k->unk)});
}

/* A line a merge, as GPT-2 has them. */
static void put_merges(struct json *j, const void *exported)
{
    const struct exported *x = exported;
    output_puts(j->out, "#version: 0.2");
    for (size_t i = 0; i < x->n_merges; i++) {
        output_puts(j->out, "\n");
        output_put(j->out, x->v.tokens[x->merges[i].pair.left]);
        output_puts(j->out, " ");
        output_put(j->out, x->v.tokens[x->merges[i].pair.right]);
    }
}

/* --- files ----------------------------------------------------------------------------------- */

/* What transformers looks for, and whether only byte-level vocabularies have it. */
static const struct file {
    const char *name;
    void (*put)(struct json *j, const void *exported); /* NULL: none of ours has it */
    bool is_bytes;
} file_list[] = {
    {"tokenizer.json", put_tokenizer_json, false},
    {"tokenizer_config.json", put_tokenizer_config, false},
    {"vocab.json", put_vocab_json, true},
    {"merges.txt", put_merges, true},
    {"tokenizer.model", NULL, false},
    {"special_tokens_map.json", NULL, false},
    {"added_tokens.json", NULL, false},
};

enum status export_vocab(const struct gguf *g, const char *dir,
                         const struct vocabulary_notes *notes, unsigned *others, struct err *e)
{
    struct exported x = {.gguf = g, .notes = notes};
    enum status s = read_vocabulary(&x, e);
    *others = 0;
    for (int i = 0; i < LENGTH(file_list) && s == STATUS_OK; i++) {
        const struct file *f = &file_list[i];
        if (x.n > 0 && f->put && (x.pre || !f->is_bytes))
            s = export_json(dir, f->name, f->put, &x, e);
        else
            *others |= 1u << i;
    }
    tokenizer_free(x.tokenizer);
    vocabulary_free(&x.v);
    free(x.merges);
    return s;
}

enum status export_vocab_remove(const char *dir, unsigned others, struct err *e)
{
    char path[PATH_MAX + 32]; /* no memory that could fail when all is written */
    for (int i = 0; i < LENGTH(file_list); i++) {
        chars_printf(path, "%s/%s", dir, file_list[i].name);
        if (others >> i & 1 && unlink(path) != 0 && errno != ENOENT)
            return file_failure(e, STATUS_FAILED, path, "remove", errno);
    }
    return STATUS_OK;
}
