#include "exchange/vocab_export.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void note(const struct vocabulary_notes *notes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(const struct vocabulary_notes *notes, const char *format, ...)
{
    char text[512];
    if (!notes || !notes->note)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    notes->note(notes->arg, text);
}

/* --- merges ---------------------------------------------------------------------------------- */

static size_t count_chars(struct text s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.data[i] & 0xc0) != 0x80;
    return n;
}

/* A merge while it is sorted. */
struct ranked {
    struct symbol_pair pair;
    size_t left_chars, right_chars;
};

/* The ways to make one token, or tokens of one score, have one rank: those follow as transformers'
 * own converter sorts them. */
static int compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left;
    const struct ranked *b = right;
    if (a->pair.rank != b->pair.rank)
        return a->pair.rank < b->pair.rank ? -1 : 1;
    if (a->left_chars != b->left_chars)
        return a->left_chars > b->left_chars ? -1 : 1;
    if (a->right_chars != b->right_chars)
        return a->right_chars > b->right_chars ? -1 : 1;
    return (a->pair.result > b->pair.result) - (a->pair.result < b->pair.result);
}

static bool is_token(const struct vocab_export *x, int32_t symbol)
{
    return symbol < x->vocab.n && !x->names.replaced[symbol];
}

/* Byte-level texts have no special token within what is merged; their names are no bytes. */
static bool is_merged(const struct vocab_export *x, int32_t symbol)
{
    return is_token(x, symbol) && !(x->pre && vocab_export_is_added(x, symbol));
}

static void note_merges(const struct vocab_export *x, const struct vocabulary_notes *notes,
                        const struct symbol_pair *lost)
{
    for (size_t i = 1; i < x->n_merges; i++) {
        const struct symbol_pair *p = &x->merges[i];
        if (p[-1].rank != p->rank || p[-1].result == p->result)
            continue;
        const struct text name = x->names.name[p->result];
        note(notes,
             "tokens have one score, such as \"%.*s\" and \"%.*s\": transformers merges all "
             "of one before the other, not from left to right; a few ids may differ",
             text_width(x->names.name[p[-1].result]), x->names.name[p[-1].result].data,
             text_width(name), name.data);
        break;
    }
    if (lost) {
        const struct text name = x->names.name[lost->result];
        note(notes,
             "some tokens, such as \"%.*s\", are merged from characters that are none: "
             "transformers does not make them; a few ids may differ",
             text_width(name), name.data);
    }
}

static enum status read_merges(struct vocab_export *x, const struct vocabulary_notes *notes,
                               struct err *e)
{
    const struct merging *m = x->pre ? &x->bpe.merging : &x->spm.merging;
    const size_t most = m->first[m->n_symbols];
    const struct symbol_pair *lost = NULL;
    struct ranked *list = calloc(most + 1, sizeof *list);
    x->merges = calloc(most + 1, sizeof *x->merges);
    if (!list || !x->merges) {
        free(list);
        return err_no_memory(e, "merges", (most + 1) * (sizeof *list + sizeof *x->merges));
    }
    for (size_t i = 0; i < most; i++) {
        const struct symbol_pair *p = &m->pairs[i];
        if (is_merged(x, p->left) && is_merged(x, p->right) && is_merged(x, p->result))
            list[x->n_merges++] = (struct ranked){*p, count_chars(x->names.name[p->left]),
                                                  count_chars(x->names.name[p->right])};
        else if (!x->pre && is_token(x, p->result))
            lost = p;
    }
    if (x->n_merges > 0)
        qsort(list, x->n_merges, sizeof *list, compare_ranked);
    for (size_t i = 0; i < x->n_merges; i++)
        x->merges[i] = list[i].pair;
    free(list);
    note_merges(x, notes, lost);
    return STATUS_OK;
}

/* --- the keys -------------------------------------------------------------------------------- */

bool vocab_export_is_added(const struct vocab_export *x, int id)
{
    const enum token_type type = x->vocab.type[id];
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN;
}

static enum status read_bytes(struct vocab_export *x, const struct vocabulary_notes *notes,
                              struct err *e)
{
    struct text pre = text_of("default");
    bool found;
    TRY(gguf_get_text(x->gguf, "tokenizer.ggml.pre", &pre, &found, e));
    x->pre = pretokenizer_find(pre);
    TRY(vocab_init(&x->vocab, VOCAB_BYTES, x->gguf, e));
    TRY(bpe_init(&x->bpe, &x->vocab, x->gguf, e));
    if (x->bpe.lacks_bytes)
        note(notes, "the vocabulary has not a token for every byte: where a text has one that is "
                    "missing transformers drops it");
    return token_names_make(x->gguf, &x->vocab, VOCAB_BYTES, x->pre->whole_pieces, &x->names, e);
}

static enum status read_spaces(struct vocab_export *x, struct err *e)
{
    bool found;
    x->adds_space = true;
    TRY(gguf_get_bool(x->gguf, "tokenizer.ggml.add_space_prefix", &x->adds_space, &found, e));
    TRY(vocab_init(&x->vocab, VOCAB_SPACES, x->gguf, e));
    TRY(spm_init(&x->spm, &x->vocab, x->gguf, e));
    return token_names_make(x->gguf, &x->vocab, VOCAB_SPACES, false, &x->names, e);
}

/* An id that tokenizer_create does not need; -1 if it is none. */
static int read_id(const struct vocab_export *x, const char *key)
{
    uint64_t id = UINT64_MAX;
    bool found;
    if (gguf_get_u64(x->gguf, key, 0, UINT32_MAX, &id, &found, NULL) != STATUS_OK)
        return -1;
    return id < (uint64_t)x->vocab.n ? (int)id : -1;
}

/* The context length of whatever architecture; 0: none. */
static uint64_t read_longest(const struct gguf *g)
{
    struct text arch;
    char key[128];
    uint64_t longest = 0;
    bool found;
    if (gguf_get_text(g, "general.architecture", &arch, &found, NULL) != STATUS_OK || !found)
        return 0;
    snprintf(key, sizeof key, "%.*s.context_length", arch.len < 64 ? (int)arch.len : 64, arch.data);
    return gguf_get_u64(g, key, 1, INT64_MAX, &longest, &found, NULL) == STATUS_OK ? longest : 0;
}

static void read_ids(struct vocab_export *x)
{
    x->bos = tokenizer_bos(x->tokenizer);
    x->eos = tokenizer_eos(x->tokenizer);
    x->unk = read_id(x, "tokenizer.ggml.unknown_token_id");
    x->pad = read_id(x, "tokenizer.ggml.padding_token_id");
    x->longest = read_longest(x->gguf);
    x->n = x->vocab.n; /* import fills up what is missing at the end */
    while (x->n > 1 && x->vocab.type[x->n - 1] == TOKEN_UNUSED &&
           token_names_is_padding(&x->names, x->n - 1))
        x->n--;
}

enum status vocab_export_read(const struct gguf *g, const struct vocabulary_notes *notes,
                              struct vocab_export *x, struct err *e)
{
    *x = (struct vocab_export){.gguf = g};
    if (!gguf_find(g, "tokenizer.ggml.model")) {
        note(notes, "the checkpoint has no vocabulary: none is exported");
        return STATUS_OK;
    }
    struct text model = {"", 0};
    struct err why;
    TRY(tokenizer_create(g, &x->tokenizer, e));
    TRY(gguf_get_text(g, "tokenizer.ggml.model", &model, NULL, e));
    if (tokenizer_reads_text(x->tokenizer, &why) != STATUS_OK) {
        note(notes, "the vocabulary is not exported: %s", why.text);
        return STATUS_OK;
    }
    if (text_is(model, "gpt2"))
        TRY(read_bytes(x, notes, e));
    else
        TRY(read_spaces(x, e));
    if (x->names.twice > 0)
        note(notes,
             "%d tokens, such as %d, have the name of another: they are exported as "
             "\"[PADi]\", i being their ids",
             x->names.twice, x->names.first);
    read_ids(x);
    return read_merges(x, notes, e);
}

void vocab_export_free(struct vocab_export *x)
{
    tokenizer_free(x->tokenizer);
    vocab_free(&x->vocab);
    token_names_free(&x->names);
    bpe_free(&x->bpe);
    spm_free(&x->spm);
    free(x->merges);
    *x = (struct vocab_export){.gguf = NULL};
}
