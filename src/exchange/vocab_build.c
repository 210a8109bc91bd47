/*
 * A vocabulary while it is put together: its memory, tokens and merges, and its end.
 */
#include <stdarg.h>
#include <stdio.h>

#include "exchange/private.h"
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

void *vocabulary_take(struct vocabulary *v, size_t bytes, struct err *e)
{
    struct pool_chunk *chunk = v->memory;
    const size_t taken = (bytes / CHUNK_ALIGN + 1) * CHUNK_ALIGN;
    if (!chunk || chunk->cap - chunk->used < taken) {
        const size_t cap = MAX(taken, CHUNK_BYTES);
        chunk = calloc(1, sizeof *chunk + cap);
        if (!chunk) {
            err_no_memory(e, "the vocabulary", cap);
            return NULL;
        }
        chunk->next = v->memory;
        chunk->cap = cap;
        v->memory = chunk;
    }
    chunk->used += taken;
    return chunk->bytes + chunk->used - taken;
}

enum status vocabulary_join(struct vocabulary *v, const struct text *parts, size_t n,
                            struct text *out, struct err *e)
{
    size_t len = 0; /* the parts are in memory, and few */
    for (size_t i = 0; i < n; i++)
        len += parts[i].len;
    char *to = vocabulary_take(v, len + 1, e);
    if (!to)
        return STATUS_NO_MEMORY;
    *out = text_span(to, len);
    for (size_t i = 0; i < n; to += parts[i++].len)
        if (parts[i].len > 0)
            memcpy(to, parts[i].data, parts[i].len);
    return STATUS_OK;
}

/* --- tokens and merges ----------------------------------------------------------------------- */

enum status vocabulary_start(struct vocabulary *v, int n_vocab,
                             const struct vocabulary_notes *notes, struct err *e)
{
    assert(n_vocab > 0 && n_vocab <= CONFIG_MAX_VOCAB);
    const size_t n = n_vocab;
    *v = (struct vocabulary){.notes = notes};
    v->keys = (struct vocab_keys){
        .n = n_vocab, .bos = -1, .eos = -1, .unk = -1, .pad = -1, .add_space_prefix = -1};
    v->tokens = vocabulary_take(v, n * sizeof *v->tokens, e);
    v->types = vocabulary_take(v, n * sizeof *v->types, e);
    v->scores = vocabulary_take(v, n * sizeof *v->scores, e);
    return v->tokens && v->types && v->scores ? STATUS_OK : STATUS_NO_MEMORY;
}

void vocabulary_free(struct vocabulary *v)
{
    for (struct pool_chunk *chunk = v->memory, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(v->merges);
    name_index_free(&v->names);
    *v = (struct vocabulary){.memory = NULL};
}

enum status vocabulary_token(struct vocabulary *v, int64_t id, struct text name,
                             enum token_type type, struct err *e)
{
    if (id < 0 || id >= v->keys.n)
        return err_bad_file(
            e, "token \"%.*s\": expected an id from 0 to %d, as the model has, found %lld",
            SHOWN(name), v->keys.n - 1, (long long)id);
    const struct text other = v->tokens[id];
    if (other.data)
        return err_bad_file(e, "token %lld: expected one name, found \"%.*s\" and \"%.*s\"",
                            (long long)id, SHOWN(other), SHOWN(name));
    v->types[id] = type;
    return vocabulary_join(v, &name, 1, &v->tokens[id], e);
}

enum status vocabulary_index(struct vocabulary *v, struct err *e)
{
    v->names.n = 0;
    for (int id = 0; id < v->keys.n; id++)
        if (v->tokens[id].data)
            TRY(name_index_add(&v->names, v->tokens[id], id, 0, e));
    name_index_sort(&v->names);
    return STATUS_OK;
}

int vocabulary_find(const struct vocabulary *v, struct text name)
{
    const struct indexed *found = name_index_find(&v->names, name);
    return found ? found->id : -1;
}

enum status vocabulary_merge(struct vocabulary *v, int left, int right, int result, struct err *e)
{
    TRY_ROOM(v->merges, v->n_merges, v->merges_cap, "merges", e);
    v->merges[v->n_merges] = (struct symbol_pair){left, right, v->n_merges, result};
    v->n_merges++;
    return STATUS_OK;
}

void vocabulary_note(const struct vocabulary_notes *notes, const char *format, ...)
{
    struct err line;
    char text[sizeof line.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err_format(&line, "%s", text); /* names come from files */
    if (notes && notes->note)
        notes->note(notes->arg, line.text);
}

/* --- the end --------------------------------------------------------------------------------- */

enum status vocabulary_finish(struct vocabulary *v, struct err *e)
{
    struct vocab_keys *k = &v->keys;
    struct text *merges = vocabulary_take(v, v->n_merges * sizeof *merges, e);
    if (!merges)
        return STATUS_NO_MEMORY;
    for (int id = 0; id < k->n; id++) {
        char name[24];
        chars_printf(name, "[PAD%d]", id);
        if (!v->tokens[id].data)
            TRY(vocabulary_token(v, id, text_of(name), TOKEN_UNUSED, e));
    }
    k->tokens = v->tokens;
    k->types = v->types;
    k->scores = k->pre ? NULL : v->scores;
    for (; k->pre && k->n_merges < v->n_merges; k->n_merges++) {
        const struct symbol_pair *p = &v->merges[k->n_merges];
        const struct text parts[] = {v->tokens[p->left], text_of(" "), v->tokens[p->right]};
        TRY(vocabulary_join(v, parts, 3, &merges[k->n_merges], e));
    }
    k->merges = merges;
    /* What comes out is read here as it will be read. */
    struct gguf_writer *w;
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct file_map file;
    TRY(gguf_writer_create(&w, e));
    vocab_keys_write(k, w);
    enum status s = gguf_write_map(w, &file, e);
    THEN(s, gguf_parse(file.data, file.len, &g, e));
    THEN(s, tokenizer_create(g, &t, e));
    THEN(s, tokenizer_reads_text(t, e));
    tokenizer_free(t);
    gguf_free(g);
    file_map_close(&file);
    gguf_writer_free(w);
    return s;
}
