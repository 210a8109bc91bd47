#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "exchange/private.h"
#include "model/config.h"
#include "text/bpe.h"
#include "text/tokenizer.h"

/* --- memory ---------------------------------------------------------------------------------- */

#define CHUNK_BYTES (1 << 16)
#define CHUNK_ALIGN 16

/* Pieces are never moved. */
struct pool_chunk {
    struct pool_chunk *next;
    size_t used, cap;
    _Alignas(CHUNK_ALIGN) unsigned char bytes[];
};

void *vocabulary_take(struct vocabulary *v, uint64_t count, uint64_t size, struct err *e)
{
    struct pool_chunk *chunk = v->memory;
    size_t bytes = SIZE_MAX;
    const bool fits = size_of_array(count, size, &bytes);
    const size_t taken = fits ? (bytes / CHUNK_ALIGN + 1) * CHUNK_ALIGN : 0;
    if (fits && (!chunk || chunk->cap - chunk->used < taken)) {
        const size_t cap = taken < CHUNK_BYTES ? CHUNK_BYTES : taken;
        chunk = calloc(1, sizeof *chunk + cap);
        if (chunk) {
            chunk->next = v->memory;
            chunk->cap = cap;
            v->memory = chunk;
        }
    }
    if (!fits || !chunk) {
        err_no_memory(e, "the vocabulary", bytes);
        return NULL;
    }
    void *piece = chunk->bytes + chunk->used;
    chunk->used += taken;
    return piece;
}

enum status vocabulary_join(struct vocabulary *v, const struct text *parts, size_t n,
                            struct text *out, struct err *e)
{
    size_t len = 0; /* the parts are in memory, and few */
    for (size_t i = 0; i < n; i++)
        len += parts[i].len;
    char *to = vocabulary_take(v, len + 1, 1, e);
    if (!to)
        return STATUS_NO_MEMORY;
    *out = (struct text){to, len};
    for (size_t i = 0; i < n; i++) {
        if (parts[i].len > 0)
            memcpy(to, parts[i].data, parts[i].len);
        to += parts[i].len;
    }
    return STATUS_OK;
}

/* --- tokens ---------------------------------------------------------------------------------- */

enum status vocabulary_start(struct vocabulary *v, int n_vocab,
                             const struct vocabulary_notes *notes, struct err *e)
{
    assert(n_vocab > 0 && n_vocab <= CONFIG_MAX_VOCAB);
    const uint64_t n = n_vocab;
    *v = (struct vocabulary){.notes = notes};
    v->keys = (struct vocab_keys){
        .n = n_vocab, .bos = -1, .eos = -1, .unk = -1, .pad = -1, .add_space_prefix = -1};
    v->tokens = vocabulary_take(v, n, sizeof *v->tokens, e);
    v->types = vocabulary_take(v, n, sizeof *v->types, e);
    v->scores = vocabulary_take(v, n, sizeof *v->scores, e);
    v->names = vocabulary_take(v, n, sizeof *v->names, e);
    if (v->tokens && v->types && v->scores && v->names)
        return STATUS_OK;
    vocabulary_free(v);
    return STATUS_NO_MEMORY;
}

void vocabulary_free(struct vocabulary *v)
{
    for (struct pool_chunk *chunk = v->memory, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    *v = (struct vocabulary){.memory = NULL};
}

enum status vocabulary_token(struct vocabulary *v, int64_t id, struct text name,
                             enum token_type type, struct err *e)
{
    if (id < 0 || id >= v->keys.n)
        return bad_file(e,
                        "token \"%.*s\": expected an id from 0 to %d, as the model has, found %lld",
                        SHOWN(name), v->keys.n - 1, (long long)id);
    const struct text other = v->tokens[id];
    if (other.data)
        return bad_file(e, "token %lld: expected one name, found \"%.*s\" and \"%.*s\"",
                        (long long)id, SHOWN(other), SHOWN(name));
    v->types[id] = type;
    return vocabulary_join(v, &name, 1, &v->tokens[id], e);
}

static int compare_names(const void *left, const void *right)
{
    const struct vocab_name *a = left;
    const struct vocab_name *b = right;
    const int order = text_order(a->name, b->name);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

void vocabulary_index(struct vocabulary *v)
{
    v->n_names = 0;
    for (int id = 0; id < v->keys.n; id++)
        if (v->tokens[id].data)
            v->names[v->n_names++] = (struct vocab_name){v->tokens[id], id};
    qsort(v->names, v->n_names, sizeof *v->names, compare_names);
}

int vocabulary_find(const struct vocabulary *v, struct text name)
{
    int low = 0, high = v->n_names;
    while (low < high) { /* the first that is not before the name */
        const int middle = low + (high - low) / 2;
        if (text_order(v->names[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < v->n_names && text_equal(v->names[low].name, name) ? v->names[low].id : -1;
}

void vocabulary_note(const struct vocabulary_notes *notes, const char *format, ...)
{
    if (!notes || !notes->note)
        return;
    struct err line;
    char text[sizeof line.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err_format(&line, "%s", text); /* names come from files */
    notes->note(notes->arg, line.text);
}

/* --- scores ---------------------------------------------------------------------------------- */

/*
 * A list merges pairs in its order. Scores belong to tokens: whatever two neighbours are together a
 * token may merge, the token of the highest score first. A token's score is here minus the number
 * of tokens that the list makes before it. The two are the same if each token's merges follow one
 * another in the list and if the list makes each token of its characters alone. So it is for lists
 * that were learned or made of scores; for others it is noted how many tokens are concerned.
 */
static void score(struct vocabulary *v, const struct symbol_pair *pairs, size_t n, bool *made)
{
    int n_made = 0, apart = -1; /* a token whose merges do not follow one another */
    for (size_t i = 0; i < n; i++) {
        const int id = pairs[i].result;
        if (made[id] && pairs[i - 1].result != id)
            apart = apart < 0 ? id : apart;
        if (!made[id])
            v->scores[id] = (float)-n_made++; /* by the first of its merges */
        made[id] = true;
    }
    for (int id = 0; id < v->keys.n; id++)
        if (!made[id])
            v->scores[id] = (float)-n_made;
    if (apart >= 0)
        vocabulary_note(v->notes,
                        "the merges of some tokens, such as \"%.*s\", do not follow one another: "
                        "scores cannot say that, a few ids may differ",
                        SHOWN(v->tokens[apart]));
}

/* Merges, and memory to run them in. */
struct scoring {
    struct merging merging;
    struct merge_scratch scratch;
};

/* Whether the merges make the token, of several characters, of these. */
static enum status is_made(const struct vocabulary *v, struct scoring *s, int id, bool *made,
                           struct err *e)
{
    struct text rest = v->tokens[id];
    size_t n = 0;
    *made = true;
    TRY(merge_reserve(&s->scratch, rest.len, e));
    int32_t *spans = s->scratch.spans;
    while (rest.len > 0 && *made) {
        spans[n] = vocabulary_find(v, spm_next_char(&rest));
        *made = spans[n++] >= 0;
    }
    if (!*made || n == 1)
        return STATUS_OK;
    merge_run(&s->merging, &s->scratch, n);
    *made = merge_end(spans, n, 0) == n && spans[0] == id;
    return STATUS_OK;
}

/* Of n pairs. */
static enum status check_merges(const struct vocabulary *v, struct scoring *s, size_t n,
                                struct err *e)
{
    int n_unmade = 0, unmade = -1; /* tokens that are not made of their characters, and the first */
    for (size_t i = 1; i < n; i++) {
        const struct symbol_pair *p = &s->merging.pairs[i];
        if (p[-1].left == p->left && p[-1].right == p->right)
            return bad_file(e,
                            "merge %d: expected each pair once, found \"%.*s\" again, which merge "
                            "%d makes of the same",
                            p->rank, SHOWN(v->tokens[p->result]), p[-1].rank);
    }
    for (int id = 0; id < v->keys.n; id++) {
        bool made = true;
        if (v->tokens[id].len > 0 && v->types[id] == TOKEN_NORMAL)
            TRY(is_made(v, s, id, &made, e));
        if (!made && n_unmade++ == 0)
            unmade = id;
    }
    if (n_unmade > 0)
        vocabulary_note(v->notes,
                        "no merges make %d of the tokens, such as \"%.*s\", of their characters: "
                        "by scores a text may have them, a few ids may differ",
                        n_unmade, SHOWN(v->tokens[unmade]));
    return STATUS_OK;
}

enum status vocabulary_score(struct vocabulary *v, struct symbol_pair *pairs, size_t n,
                             struct err *e)
{
    struct scoring scoring = {.merging = {0}};
    bool *made = vocabulary_take(v, v->keys.n, sizeof *made, e);
    if (!made) {
        free(pairs);
        return STATUS_NO_MEMORY;
    }
    score(v, pairs, n, made);
    enum status s = merging_init(&scoring.merging, pairs, n, v->keys.n, e); /* takes them over */
    if (s == STATUS_OK)
        s = check_merges(v, &scoring, n, e);
    merging_free(&scoring.merging);
    merge_scratch_free(&scoring.scratch);
    return s;
}

/* --- the end --------------------------------------------------------------------------------- */

/* What comes out is read here as it will be read. */
static enum status check_keys(const struct vocab_keys *k, struct err *e)
{
    struct gguf_writer *w;
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    unsigned char *bytes = NULL;
    size_t len = 0;
    TRY(gguf_writer_create(&w, e));
    vocab_keys_write(k, w);
    enum status s = gguf_write_memory(w, &bytes, &len, e);
    if (s == STATUS_OK)
        s = gguf_parse(bytes, len, &g, e);
    if (s == STATUS_OK)
        s = tokenizer_create(g, &t, e);
    if (s == STATUS_OK)
        s = tokenizer_reads_text(t, e);
    tokenizer_free(t);
    gguf_free(g);
    free(bytes);
    gguf_writer_free(w);
    return s;
}

enum status vocabulary_finish(struct vocabulary *v, enum status s, struct err *e)
{
    for (int id = 0; id < v->keys.n && s == STATUS_OK; id++) {
        char name[24];
        snprintf(name, sizeof name, "[PAD%d]", id);
        if (!v->tokens[id].data)
            s = vocabulary_token(v, id, text_of(name), TOKEN_UNUSED, e);
    }
    if (s == STATUS_OK) {
        v->keys.tokens = v->tokens;
        v->keys.types = v->types;
        v->keys.merges = v->merges;
        if (strcmp(v->keys.model, "llama") == 0)
            v->keys.scores = v->scores;
        s = check_keys(&v->keys, e);
    }
    if (s != STATUS_OK)
        vocabulary_free(v);
    return s;
}
