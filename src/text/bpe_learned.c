#include "text/bpe_learn.h"

#include "text/byte_alphabet.h"
#include "text/vocab.h"
#include "text/vocab_keys.h"

void bpe_learned_free(struct bpe_learned *v)
{
    arena_free(&v->arena);
    *v = (struct bpe_learned){0};
}

/* The token in the byte alphabet, at `out`: at most two bytes a byte. */
static size_t write_name(struct text token, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < token.len; i++)
        len += byte_alphabet_write((unsigned char)token.data[i], out + len);
    return len;
}

struct names {
    struct arena arena;
    struct text *tokens; /* [n_tokens] */
    struct text *merges; /* [n_merges] "left right" */
    int32_t *types;      /* [n_tokens] */
    char *bytes;
};

static void names_take(struct names *n, const struct bpe_learned *v, uint64_t n_bytes)
{
    n->tokens = arena_take(&n->arena, (uint64_t)v->n_tokens, sizeof *n->tokens);
    n->merges = arena_take(&n->arena, (uint64_t)v->n_merges, sizeof *n->merges);
    n->types = arena_take(&n->arena, (uint64_t)v->n_tokens, sizeof *n->types);
    n->bytes = arena_take(&n->arena, n_bytes, 1);
}

static enum status names_allocate(struct names *n, const struct bpe_learned *v, struct err *e)
{
    uint64_t total = 0; /* the tokens' bytes are in memory, so this fits */
    for (int i = 0; i < v->n_tokens; i++)
        total += v->tokens[i].len;
    const uint64_t n_bytes = 4 * total + (uint64_t)v->n_merges;
    names_take(n, v, n_bytes);
    const enum status s = arena_allocate(&n->arena, "writing the vocabulary", e);
    if (s == STATUS_OK)
        names_take(n, v, n_bytes);
    return s;
}

static void fill_names(const struct bpe_learned *v, struct names *n)
{
    char *at = n->bytes;
    for (int i = 0; i < v->n_tokens; i++) {
        n->tokens[i] = (struct text){at, write_name(v->tokens[i], at)};
        n->types[i] = i == v->end_of_text ? TOKEN_CONTROL : TOKEN_NORMAL;
        at += n->tokens[i].len;
    }
    for (int i = 0; i < v->n_merges; i++) {
        size_t len = write_name(v->tokens[v->merges[i].left], at);
        at[len++] = ' ';
        len += write_name(v->tokens[v->merges[i].right], at + len);
        n->merges[i] = (struct text){at, len};
        at += len;
    }
}

enum status bpe_learned_write(const struct bpe_learned *v, struct gguf_writer *w, struct err *e)
{
    struct names n = {0};
    TRY(names_allocate(&n, v, e));
    fill_names(v, &n);
    const bool has_special = v->end_of_text >= 0;
    const struct vocab_keys keys = {
        .model = "gpt2",
        .pre = "gpt-2",
        .n = v->n_tokens,
        .tokens = n.tokens,
        .types = n.types,
        .n_merges = (uint64_t)v->n_merges,
        .merges = n.merges,
        .bos = has_special ? v->end_of_text : '\n',
        .eos = has_special ? v->end_of_text : 0,
        .unk = -1,
        .pad = -1,
        .add_space_prefix = -1,
    };
    vocab_keys_write(&keys, w);
    arena_free(&n.arena);
    return STATUS_OK;
}
