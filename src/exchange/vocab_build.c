#include "exchange/vocab_build.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "model/config.h"
#include "text/order.h"
#include "text/tokenizer.h"

/* --- memory ---------------------------------------------------------------------------------- */

#define CHUNK_BYTES ((size_t)1 << 16)
#define CHUNK_ALIGN 16

/* Pieces are never moved. */
struct pool_chunk {
    struct pool_chunk *next;
    size_t used, cap;
    _Alignas(CHUNK_ALIGN) unsigned char bytes[];
};

static struct pool_chunk *add_chunk(struct pool_chunk **first, size_t least)
{
    const size_t cap = least < CHUNK_BYTES ? CHUNK_BYTES : least;
    size_t bytes;
    if (!size_of_array(1, (uint64_t)cap + sizeof(struct pool_chunk), &bytes))
        return NULL;
    struct pool_chunk *chunk = calloc(1, bytes);
    if (!chunk)
        return NULL;
    chunk->next = *first;
    chunk->cap = cap;
    *first = chunk;
    return chunk;
}

static void free_chunks(struct pool_chunk *chunk)
{
    while (chunk) {
        struct pool_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
}

void *vocab_build_take(struct vocab_build *b, uint64_t count, uint64_t size)
{
    uint64_t rounded;
    size_t bytes;
    if (!size_of_array(count, size, &bytes) || !u64_align_up(bytes, CHUNK_ALIGN, &rounded))
        return NULL;
    struct pool_chunk *chunk = b->memory;
    if (!chunk || chunk->cap - chunk->used < rounded)
        chunk = add_chunk(&b->memory, (size_t)rounded);
    if (!chunk)
        return NULL;
    void *piece = chunk->bytes + chunk->used;
    chunk->used += (size_t)rounded;
    return piece;
}

static enum status no_memory(uint64_t count, size_t size, struct err *e)
{
    size_t bytes = SIZE_MAX;
    (void)size_of_array(count, size, &bytes);
    return err_no_memory(e, "the vocabulary", bytes);
}

enum status vocab_build_start(struct vocab_build *b, int n_vocab,
                              const struct vocabulary_notes *notes, struct err *e)
{
    assert(n_vocab > 0 && n_vocab <= CONFIG_MAX_VOCAB);
    *b = (struct vocab_build){.notes = notes};
    b->keys = (struct vocab_keys){
        .n = n_vocab, .bos = -1, .eos = -1, .unk = -1, .pad = -1, .add_space_prefix = -1};
    const uint64_t n = (uint64_t)n_vocab;
    b->tokens = vocab_build_take(b, n, sizeof *b->tokens);
    b->types = vocab_build_take(b, n, sizeof *b->types);
    if (!b->tokens || !b->types)
        return no_memory(n, sizeof *b->tokens + sizeof *b->types, e);
    return STATUS_OK;
}

void vocab_build_drop(struct vocab_build *b)
{
    free_chunks(b->memory);
    free(b->names);
    *b = (struct vocab_build){.memory = NULL};
}

enum status vocab_build_take_scores(struct vocab_build *b, struct err *e)
{
    const uint64_t n = (uint64_t)b->keys.n;
    b->scores = vocab_build_take(b, n, sizeof *b->scores);
    return b->scores ? STATUS_OK : no_memory(n, sizeof *b->scores, e);
}

enum status vocab_build_take_merges(struct vocab_build *b, uint64_t n, struct err *e)
{
    b->merges = vocab_build_take(b, n, sizeof *b->merges);
    return b->merges ? STATUS_OK : no_memory(n, sizeof *b->merges, e);
}

enum status vocab_build_join(struct vocab_build *b, const struct text *parts, size_t n,
                             struct text *out, struct err *e)
{
    size_t len = 0; /* the parts are in memory, and few */
    for (size_t i = 0; i < n; i++)
        len += parts[i].len;
    char *to = vocab_build_take(b, (uint64_t)len + 1, 1);
    if (!to)
        return no_memory(len, 1, e);
    *out = (struct text){to, len};
    for (size_t i = 0; i < n; i++) {
        if (parts[i].len > 0)
            memcpy(to, parts[i].data, parts[i].len);
        to += parts[i].len;
    }
    return STATUS_OK;
}

/* --- tokens ---------------------------------------------------------------------------------- */

enum status vocab_build_token(struct vocab_build *b, int64_t id, struct text name,
                              enum token_type type, struct err *e)
{
    if (id < 0 || id >= b->keys.n)
        return err_set(e, STATUS_BAD_FILE,
                       "token \"%.*s\": expected an id from 0 to %d, as the model has, found %lld",
                       text_width(name), name.data, b->keys.n - 1, (long long)id);
    const struct text other = b->tokens[id];
    if (other.data)
        return err_set(e, STATUS_BAD_FILE,
                       "token %lld: expected one name, found \"%.*s\" and \"%.*s\"", (long long)id,
                       text_width(other), other.data, text_width(name), name.data);
    b->types[id] = (int32_t)type;
    return vocab_build_join(b, &name, 1, &b->tokens[id], e);
}

struct vocab_name {
    struct text name;
    int id;
};

static int compare_names(const void *left, const void *right)
{
    const struct vocab_name *a = left;
    const struct vocab_name *b = right;
    const int order = text_order(a->name, b->name);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

enum status vocab_build_index(struct vocab_build *b, struct err *e)
{
    const size_t n = (size_t)b->keys.n;
    free(b->names);
    b->n_names = 0;
    b->names = calloc(n, sizeof *b->names);
    if (!b->names)
        return no_memory(n, sizeof *b->names, e);
    for (int id = 0; id < b->keys.n; id++)
        if (b->tokens[id].data)
            b->names[b->n_names++] = (struct vocab_name){b->tokens[id], id};
    qsort(b->names, (size_t)b->n_names, sizeof *b->names, compare_names);
    return STATUS_OK;
}

int vocab_build_find(const struct vocab_build *b, struct text name)
{
    int low = 0, high = b->n_names;
    while (low < high) { /* the first that is not before the name */
        const int middle = low + (high - low) / 2;
        if (text_order(b->names[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < b->n_names && text_equal(b->names[low].name, name) ? b->names[low].id : -1;
}

void vocab_build_note(const struct vocab_build *b, const char *format, ...)
{
    if (!b->notes)
        return;
    struct err line;
    char text[sizeof line.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err_format(&line, "%s", text); /* names come from files */
    b->notes->note(b->notes->arg, line.text);
}

/* --- the end --------------------------------------------------------------------------------- */

static enum status fill_holes(struct vocab_build *b, struct err *e)
{
    for (int id = 0; id < b->keys.n; id++) {
        if (b->tokens[id].data)
            continue;
        char name[24];
        snprintf(name, sizeof name, "[PAD%d]", id);
        TRY(vocab_build_token(b, id, text_of(name), TOKEN_UNUSED, e));
    }
    return STATUS_OK;
}

static enum status check_bytes(const void *bytes, size_t len, struct err *e)
{
    struct gguf *g;
    struct tokenizer *t = NULL;
    TRY(gguf_parse(bytes, len, &g, e));
    enum status s = tokenizer_create(g, &t, e);
    gguf_free(g);
    if (s == STATUS_OK)
        s = tokenizer_reads_text(t, e);
    tokenizer_free(t);
    return s;
}

static enum status check_keys(const struct vocab_keys *k, struct err *e)
{
    struct gguf_writer *w;
    unsigned char *bytes = NULL;
    size_t len = 0;
    TRY(gguf_writer_create(&w, e));
    vocab_keys_write(k, w);
    enum status s = gguf_write_memory(w, &bytes, &len, e);
    gguf_writer_free(w);
    if (s == STATUS_OK)
        s = check_bytes(bytes, len, e);
    free(bytes);
    return s;
}

enum status vocab_build_finish(struct vocab_build *b, struct vocabulary *out, struct err *e)
{
    TRY(fill_holes(b, e));
    b->keys.tokens = b->tokens;
    b->keys.types = b->types;
    b->keys.scores = b->scores;
    b->keys.merges = b->merges;
    TRY(check_keys(&b->keys, e));
    *out = (struct vocabulary){b->keys, b->memory};
    b->memory = NULL;
    return STATUS_OK;
}

void vocabulary_free(struct vocabulary *v)
{
    free_chunks(v->memory);
    *v = (struct vocabulary){.memory = NULL};
}
