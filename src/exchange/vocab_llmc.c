/*
 * llm.c's tokenizer: 256 uint32 (magic, version, tokens, EOT), then for each token its length in a
 * byte and its bytes. Merges are not in the file: as in tiktoken's tables the ids are the order in
 * which tokens were made, so each is made of the two that the merges before it leave of its bytes.
 */
#include "exchange/vocab_readers.h"
#include "text/byte_alphabet.h"

#define MAGIC        20240328u
#define HEADER_BYTES 1024u
#define LONGEST      255 /* bytes of a token */

#define GPT2_TOKENS 50257u /* version 1 knows no other vocabulary */

static uint32_t header_word(struct text file, size_t i)
{
    uint32_t word;
    memcpy(&word, file.data + 4 * i, 4);
    return word;
}

bool vocab_is_llmc(struct text file)
{
    return file.len >= 4 && header_word(file, 0) == MAGIC;
}

/* --- the file -------------------------------------------------------------------------------- */

static enum status read_header(struct text file, int n_vocab, uint32_t *eot, struct err *e)
{
    if (file.len < HEADER_BYTES || !vocab_is_llmc(file))
        return err_set(e, STATUS_BAD_FILE,
                       "expected a tokenizer of llm.c, %u bytes of header with %u first, found %zu "
                       "bytes%s",
                       HEADER_BYTES, MAGIC, file.len,
                       file.len < HEADER_BYTES ? "" : " that begin with another number");
    const uint32_t version = header_word(file, 1), n = header_word(file, 2);
    if (version != 1 && version != 2)
        return err_set(e, STATUS_BAD_FILE, "version: expected 1 or 2, found %u", version);
    if (n != (uint32_t)n_vocab || (version == 1 && n != GPT2_TOKENS))
        return err_set(e, STATUS_BAD_FILE, "tokens: expected %u, as %s has, found %u",
                       n != (uint32_t)n_vocab ? (uint32_t)n_vocab : GPT2_TOKENS,
                       n != (uint32_t)n_vocab ? "the model" : "version 1", n);
    *eot = version == 1 ? GPT2_TOKENS - 1 : header_word(file, 3);
    if (*eot >= n)
        return err_set(e, STATUS_BAD_FILE, "end of text: expected a token, 0 to %u, found %u",
                       n - 1, *eot);
    return STATUS_OK;
}

/* The tokens as their bytes. */
static enum status read_tokens(struct text file, struct vocab_build *b, int eot, struct err *e)
{
    size_t at = HEADER_BYTES;
    for (int id = 0; id < b->keys.n; id++) {
        const size_t len = at < file.len ? (unsigned char)file.data[at] : 0;
        if (len == 0 || len > file.len - at - 1)
            return err_set(e, STATUS_BAD_FILE,
                           "token %d of %d at byte %zu: expected its length, 1 to 255, and as many "
                           "bytes, found %zu and %zu bytes",
                           id, b->keys.n, at, len, at < file.len ? file.len - at - 1 : 0);
        const struct text name = {file.data + at + 1, len};
        TRY(vocab_build_token(b, id, name, id == eot ? TOKEN_CONTROL : TOKEN_NORMAL, e));
        at += len + 1;
    }
    if (at != file.len)
        return err_set(e, STATUS_BAD_FILE,
                       "expected %d tokens to end the file, found %zu bytes more", b->keys.n,
                       file.len - at);
    return STATUS_OK;
}

/* --- merges ---------------------------------------------------------------------------------- */

/* A token's bytes in parts: part i is from start[i] to start[i + 1]. */
struct parts {
    const struct vocab_build *build;
    struct text bytes;
    int below; /* only tokens of lower ids are made */
    size_t n;
    size_t start[LONGEST + 1];
    int joined[LONGEST]; /* the token that parts i and i + 1 make; -1: none */
};

/* The token of the bytes from part `from` up to part `to`, if it is one of those below. */
static int find_token(const struct parts *p, size_t from, size_t to)
{
    const struct text bytes = {p->bytes.data + p->start[from], p->start[to] - p->start[from]};
    const int id = vocab_build_find(p->build, bytes);
    return id < p->below && id >= 0 && p->build->types[id] == TOKEN_NORMAL ? id : -1;
}

static void join(struct parts *p, size_t i)
{
    p->joined[i] = i + 2 <= p->n ? find_token(p, i, i + 2) : -1;
}

/* Makes one part of two as long as there are more than two. */
static void merge_parts(struct parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        join(p, i);
    while (p->n > 2) {
        size_t best = p->n;
        for (size_t i = 0; i + 1 < p->n; i++)
            if (p->joined[i] >= 0 && (best == p->n || p->joined[i] < p->joined[best]))
                best = i;
        if (best == p->n)
            return;
        memmove(&p->start[best + 1], &p->start[best + 2], (p->n - best - 1) * sizeof *p->start);
        memmove(&p->joined[best + 1], &p->joined[best + 2], (p->n - best - 2) * sizeof *p->joined);
        p->n--;
        join(p, best);
        if (best > 0)
            join(p, best - 1);
    }
}

/* A text in the byte alphabet, at `out`, which has room for twice as many bytes. */
static struct text write_name(struct text bytes, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < bytes.len; i++)
        len += byte_alphabet_write((unsigned char)bytes.data[i], out + len);
    return (struct text){out, len};
}

/* The merge that makes a token of several bytes. */
static enum status find_merge(struct vocab_build *b, int id, struct err *e)
{
    struct parts p = {.build = b, .bytes = b->tokens[id], .below = id, .n = b->tokens[id].len};
    char left[2 * LONGEST], right[2 * LONGEST];
    for (size_t i = 0; i <= p.n; i++)
        p.start[i] = i;
    merge_parts(&p);
    if (p.n != 2 || find_token(&p, 0, 1) < 0 || find_token(&p, 1, 2) < 0)
        return err_set(e, STATUS_BAD_FILE,
                       "token %d, \"%.*s\": expected two tokens of lower ids that it is made of, "
                       "found %zu parts" VOCAB_ADVICE,
                       id, text_width(p.bytes), p.bytes.data, p.n);
    const struct text name[] = {
        write_name((struct text){p.bytes.data, p.start[1]}, left), text_of(" "),
        write_name((struct text){p.bytes.data + p.start[1], p.bytes.len - p.start[1]}, right)};
    return vocab_build_join(b, name, 3, &b->merges[b->keys.n_merges++], e);
}

static enum status find_merges(struct vocab_build *b, struct err *e)
{
    TRY(vocab_build_index(b, e));
    TRY(vocab_build_take_merges(b, (uint64_t)b->keys.n, e));
    for (int id = 0; id < b->keys.n; id++)
        if (b->types[id] == TOKEN_NORMAL && b->tokens[id].len > 1)
            TRY(find_merge(b, id, e));
    return STATUS_OK;
}

/* --- all of it ------------------------------------------------------------------------------- */

static enum status write_names(struct vocab_build *b, struct err *e)
{
    char name[2 * LONGEST];
    for (int id = 0; id < b->keys.n; id++) {
        if (b->types[id] != TOKEN_NORMAL)
            continue;
        const struct text written = write_name(b->tokens[id], name);
        TRY(vocab_build_join(b, &written, 1, &b->tokens[id], e));
    }
    return STATUS_OK;
}

enum status vocab_llmc_read(struct text file, struct vocab_build *b, struct err *e)
{
    uint32_t eot;
    TRY(read_header(file, b->keys.n, &eot, e));
    TRY(read_tokens(file, b, (int)eot, e));
    TRY(find_merges(b, e));
    TRY(write_names(b, e));
    b->keys.model = "gpt2";
    b->keys.pre = "gpt-2";
    b->keys.bos = b->keys.eos = (int)eot;
    return STATUS_OK;
}
