/*
 * Vocabularies in files that are no tokenizer.json.
 */
#include <assert.h>
#include <math.h>

#include "base/little.h"
#include "base/text.h"
#include "exchange/private.h"
#include "text/unicode.h"

/* --- bytes, and single characters ------------------------------------------------------------ */

enum status vocab_bytes_fill(struct vocabulary *v, struct err *e)
{
    assert(v->keys.n == 256);
    v->keys.model = "gpt2";
    v->keys.pre = "gpt-2";
    for (int byte = 0; byte < 256; byte++) {
        char name[2];
        const size_t len = byte_alphabet_write(byte, name);
        TRY(vocabulary_token(v, byte, (struct text){name, len}, TOKEN_NORMAL, e));
    }
    v->keys.bos = '\n';
    v->keys.eos = 0;
    return STATUS_OK;
}

enum status vocab_chars_read(const struct json_node *vocab, struct vocabulary *v, struct err *e)
{
    v->keys.model = "llama";
    v->keys.add_space_prefix = 0;
    for (const struct json_node *c = NULL; (c = json_child(vocab, c));) {
        int64_t id;
        uint32_t code;
        if (c->key.len == 0 || utf8_decode(c->key, &code) != c->key.len)
            return bad_file(e,
                            "expected single characters, as there is no merges.txt beside it, "
                            "found \"%.*s\"" VOCAB_ADVICE,
                            SHOWN(c->key));
        TRY(json_node_i64(c, 0, v->keys.n - 1, &id, e));
        const struct text name = code == ' ' ? text_of(VOCAB_SPACE) : c->key;
        TRY(vocabulary_token(v, id, name, TOKEN_NORMAL, e));
    }
    return STATUS_OK;
}

/* --- llama2.c -------------------------------------------------------------------------------- */

/*
 * tokenizer.bin: the length of the longest token, then for each its score (float32), its length
 * (int32) and its bytes. That is all of a SentencePiece vocabulary whose first three tokens are
 * <unk>, <s> and </s>; spaces are spaces there, and line breaks stand around the last two.
 */

enum { ID_UNKNOWN, ID_BOS, ID_EOS, N_SPECIAL };

static const struct {
    const char *written, *name;
    enum token_type type;
} specials[N_SPECIAL] = {{"<unk>", "<unk>", TOKEN_UNKNOWN},
                         {"\n<s>\n", "<s>", TOKEN_CONTROL},
                         {"\n</s>\n", "</s>", TOKEN_CONTROL}};

struct entry {
    float score;
    struct text bytes;
};

static bool take_entry(struct text *rest, struct entry *entry)
{
    const size_t len = rest->len < 8 ? SIZE_MAX : little_load(rest->data + 4, 4);
    if (rest->len < 8 || len > rest->len - 8)
        return false;
    entry->score = float_of_bits(little_load(rest->data, 4));
    (void)text_take(rest, 8);
    entry->bytes = text_take(rest, len);
    return true;
}

static enum status add_entry(struct vocabulary *v, int id, const struct entry *entry, struct err *e)
{
    if (!isfinite(entry->score))
        return bad_file(e, "token %d: expected a finite score, found %g", id, (double)entry->score);
    v->scores[id] = entry->score;
    if (id < N_SPECIAL) {
        if (!text_is(entry->bytes, specials[id].written) &&
            !text_is(entry->bytes, specials[id].name))
            return bad_file(e, "token %d: expected %s, as llama2.c has it, found \"%.*s\"", id,
                            specials[id].name, SHOWN(entry->bytes));
        return vocabulary_token(v, id, text_of(specials[id].name), specials[id].type, e);
    }
    const bool is_byte = vocab_hex_byte(entry->bytes, TOKEN_BYTE) >= 0;
    char *name = vocabulary_take(v, entry->bytes.len + 1, strlen(VOCAB_SPACE), e);
    size_t len = 0;
    if (!name)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < entry->bytes.len; i++) {
        const struct text c = {entry->bytes.data + i, 1};
        const struct text put = *c.data == ' ' ? text_of(VOCAB_SPACE) : c;
        memcpy(name + len, put.data, put.len);
        len += put.len;
    }
    return vocabulary_token(v, id, (struct text){name, len}, is_byte ? TOKEN_BYTE : TOKEN_NORMAL,
                            e);
}

enum status vocab_llama2c_read(struct text file, struct vocabulary *v, struct err *e)
{
    const size_t head = file.len < 4 ? file.len : 4;
    struct text rest = {file.data + head, file.len - head}, behind = rest;
    struct entry entry;
    size_t n = 0;
    while (take_entry(&behind, &entry))
        n++;
    if (n != (size_t)v->keys.n || behind.len > 0)
        return bad_file(e,
                        "expected a tokenizer.bin of llama2.c with %d tokens, as the model has, "
                        "found %zu and %zu bytes behind them",
                        v->keys.n, n, behind.len);
    for (int id = 0; take_entry(&rest, &entry); id++)
        TRY(add_entry(v, id, &entry, e));
    v->keys.model = "llama";
    v->keys.unk = ID_UNKNOWN;
    v->keys.bos = n > ID_BOS ? ID_BOS : -1;
    /* Where its program ends a text: <s> stands between those that its models learn from. */
    v->keys.eos = v->keys.bos;
    v->keys.add_bos = n > ID_BOS;
    v->keys.add_space_prefix = 1;
    return STATUS_OK;
}

/* --- llm.c ----------------------------------------------------------------------------------- */

/*
 * A header of 256 uint32 (magic, version, tokens, EOT), then for each token its length in a byte
 * and its bytes. Merges are not in the file: as in tiktoken's tables the ids are the order in which
 * tokens were made, so each is made of the two that the merges before it leave of its bytes.
 */

#define MAGIC        20240328u
#define HEADER_BYTES 1024u
#define LONGEST      255    /* bytes of a token */
#define GPT2_TOKENS  50257u /* version 1 knows no other vocabulary */

static uint32_t header_word(struct text file, size_t i)
{
    return little_load(file.data + 4 * i, 4);
}

bool vocab_is_llmc(struct text file)
{
    return file.len >= 4 && header_word(file, 0) == MAGIC;
}

static enum status read_header(struct text file, uint32_t n_vocab, uint32_t *eot, struct err *e)
{
    if (file.len < HEADER_BYTES || !vocab_is_llmc(file))
        return bad_file(e,
                        "expected a tokenizer of llm.c, %u bytes of header with %u first, found "
                        "%zu bytes%s",
                        HEADER_BYTES, MAGIC, file.len,
                        file.len < HEADER_BYTES ? "" : " that begin with another number");
    const uint32_t version = header_word(file, 1), n = header_word(file, 2);
    if (version != 1 && version != 2)
        return bad_file(e, "version: expected 1 or 2, found %u", version);
    if (n != n_vocab || (version == 1 && n != GPT2_TOKENS))
        return bad_file(e, "tokens: expected %u, as %s has, found %u",
                        n != n_vocab ? n_vocab : GPT2_TOKENS,
                        n != n_vocab ? "the model" : "version 1", n);
    *eot = version == 1 ? GPT2_TOKENS - 1 : header_word(file, 3);
    return *eot < n ? STATUS_OK
                    : bad_file(e, "end of text: expected a token, 0 to %u, found %u", n - 1, *eot);
}

/* The tokens as their bytes. */
static enum status read_tokens(struct text file, struct vocabulary *v, int eot, struct err *e)
{
    size_t at = HEADER_BYTES;
    for (int id = 0; id < v->keys.n; id++) {
        const size_t len = at < file.len ? (unsigned char)file.data[at] : 0;
        if (len == 0 || len > file.len - at - 1)
            return bad_file(e,
                            "token %d of %d at byte %zu: expected its length, 1 to 255, and as "
                            "many bytes, found %zu and %zu bytes",
                            id, v->keys.n, at, len, at < file.len ? file.len - at - 1 : 0);
        TRY(vocabulary_token(v, id, (struct text){file.data + at + 1, len},
                             id == eot ? TOKEN_CONTROL : TOKEN_NORMAL, e));
        at += len + 1;
    }
    if (at != file.len)
        return bad_file(e, "expected %d tokens to end the file, found %zu bytes more", v->keys.n,
                        file.len - at);
    return STATUS_OK;
}

/* A token's bytes in parts: part i is from start[i] to start[i + 1]. */
struct parts {
    const struct vocabulary *v;
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
    const int id = vocabulary_find(p->v, bytes);
    return id < p->below && id >= 0 && p->v->types[id] == TOKEN_NORMAL ? id : -1;
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
        len += byte_alphabet_write(bytes.data[i], out + len);
    return (struct text){out, len};
}

/* The merge that makes a token of several bytes. */
static enum status find_merge(struct vocabulary *v, int id, struct err *e)
{
    struct parts p = {.v = v, .bytes = v->tokens[id], .below = id, .n = v->tokens[id].len};
    char left[2 * LONGEST], right[2 * LONGEST];
    for (size_t i = 0; i <= p.n; i++)
        p.start[i] = i;
    merge_parts(&p);
    if (p.n != 2 || find_token(&p, 0, 1) < 0 || find_token(&p, 1, 2) < 0)
        return bad_file(e,
                        "token %d, \"%.*s\": expected two tokens of lower ids that it is made of, "
                        "found %zu parts" VOCAB_ADVICE,
                        id, SHOWN(p.bytes), p.n);
    struct text rest = p.bytes;
    const struct text first = text_take(&rest, p.start[1]);
    const struct text name[] = {write_name(first, left), text_of(" "), write_name(rest, right)};
    return vocabulary_join(v, name, 3, &v->merges[v->keys.n_merges++], e);
}

enum status vocab_llmc_read(struct text file, struct vocabulary *v, struct err *e)
{
    uint32_t eot;
    char name[2 * LONGEST];
    TRY(read_header(file, v->keys.n, &eot, e));
    TRY(read_tokens(file, v, eot, e));
    vocabulary_index(v);
    v->merges = vocabulary_take(v, v->keys.n, sizeof *v->merges, e);
    if (!v->merges)
        return STATUS_NO_MEMORY;
    for (int id = 0; id < v->keys.n; id++)
        if (v->types[id] == TOKEN_NORMAL && v->tokens[id].len > 1)
            TRY(find_merge(v, id, e));
    for (int id = 0; id < v->keys.n; id++) { /* now that all are found, their names are written */
        const struct text written = write_name(v->tokens[id], name);
        if (v->types[id] == TOKEN_NORMAL)
            TRY(vocabulary_join(v, &written, 1, &v->tokens[id], e));
    }
    v->keys.model = "gpt2";
    v->keys.pre = "gpt-2";
    v->keys.bos = v->keys.eos = eot;
    return STATUS_OK;
}
