/*
 * Vocabularies in files that are no tokenizer.json.
 */
#include <assert.h>
#include <math.h>

#include "base/little.h"
#include "base/utf8.h"
#include "exchange/private.h"
#include "text/byte_alphabet.h"

/* Cuts the first `len` bytes off a text that has them. */
static struct text take(struct text *rest, size_t len)
{
    const struct text first = {rest->data, len};
    rest->data += len;
    rest->len -= len;
    return first;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- bytes, and single characters ------------------------------------------------------------ */

enum status vocab_bytes_fill(struct vocabulary *v, struct err *e)
{
    assert(v->keys.n == 256);
    v->keys.model = "gpt2";
    v->keys.pre = "gpt-2";
    for (int byte = 0; byte < 256; byte++) {
        char name[2];
        const size_t len = byte_alphabet_write((unsigned char)byte, name);
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

/* --- SentencePiece --------------------------------------------------------------------------- */

/*
 * A tokenizer.model is a message of Protocol Buffers: fields, each a number with a wire type and a
 * value. The numbers and defaults are those of sentencepiece_model.proto.
 */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct field {
    uint64_t number;
    enum wire wire;
    uint64_t value;    /* of a number */
    struct text bytes; /* of WIRE_BYTES */
};

struct message {
    struct text rest;
    const char *start; /* of the file */
};

static enum status refuse_field(const struct message *m, const char *expected, struct err *e)
{
    return bad_file(e, "field at byte %zu: expected %s, found other bytes",
                    (size_t)(m->rest.data - m->start), expected);
}

static enum status take_varint(struct message *m, uint64_t *value, struct err *e)
{
    *value = 0;
    for (size_t i = 0; i < 10 && i < m->rest.len; i++) {
        const unsigned char byte = (unsigned char)m->rest.data[i];
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            (void)take(&m->rest, i + 1);
            return STATUS_OK;
        }
    }
    return refuse_field(m, "a number of at most 10 bytes", e);
}

/* The next field of a message that has one. */
static enum status take_field(struct message *m, struct field *f, struct err *e)
{
    uint64_t tag, len = 0;
    const struct message at = *m;
    TRY(take_varint(m, &tag, e));
    *f = (struct field){.number = tag >> 3, .wire = (enum wire)(tag & 7)};
    switch (f->wire) {
    case WIRE_VARINT:
        return take_varint(m, &f->value, e);
    case WIRE_BYTES:
        TRY(take_varint(m, &len, e));
        break;
    case WIRE_64:
    case WIRE_32:
        len = f->wire == WIRE_64 ? 8 : 4;
        break;
    default:
        return refuse_field(&at, "wire type 0, 1, 2 or 5", e);
    }
    if (len > m->rest.len)
        return bad_file(e, "field at byte %zu: expected %llu bytes, found %zu",
                        (size_t)(m->rest.data - m->start), (unsigned long long)len, m->rest.len);
    f->bytes = take(&m->rest, (size_t)len);
    if (f->wire != WIRE_BYTES)
        f->value = little_load(f->bytes.data, (size_t)len);
    return STATUS_OK;
}

static bool is_field(const struct field *f, uint64_t number, enum wire wire)
{
    return f->number == number && f->wire == wire;
}

/* Messages in the model. */
enum { PIECE = 1, TRAINER = 2, NORMALIZER = 3 };
enum { MODEL_BPE = 2 };

/* Numbers of trainer_spec and normalizer_spec. */
enum spec { TYPE, SPACE_BEHIND, UNK, BOS, EOS, PAD, ADDS_SPACE, DROPS_SPACES, MARKS_SPACES, SPECS };

static const struct {
    uint64_t message, field;
    int64_t otherwise;
} specs[SPECS] = {
    [TYPE] = {TRAINER, 3, 1},
    [SPACE_BEHIND] = {TRAINER, 24, 0},
    [UNK] = {TRAINER, 40, 0},
    [BOS] = {TRAINER, 41, 1},
    [EOS] = {TRAINER, 42, 2},
    [PAD] = {TRAINER, 43, -1},
    [ADDS_SPACE] = {NORMALIZER, 3, 1},
    [DROPS_SPACES] = {NORMALIZER, 4, 1},
    [MARKS_SPACES] = {NORMALIZER, 5, 1},
};

struct sentencepiece {
    int n_pieces;
    int64_t spec[SPECS];
    bool maps_chars;
};

static enum status read_piece(struct sentencepiece *s, struct message m, struct vocabulary *v,
                              struct err *e)
{
    struct text name = {"", 0};
    uint64_t type = TOKEN_NORMAL;
    float score = 0;
    while (m.rest.len > 0) {
        struct field f;
        TRY(take_field(&m, &f, e));
        if (is_field(&f, 1, WIRE_BYTES))
            name = f.bytes;
        else if (is_field(&f, 2, WIRE_32))
            score = float_of((uint32_t)f.value);
        else if (is_field(&f, 3, WIRE_VARINT))
            type = f.value;
    }
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE || !isfinite(score))
        return bad_file(e,
                        "piece %d, \"%.*s\": expected a type from %d to %d and a finite score, "
                        "found %llu and %g",
                        s->n_pieces, SHOWN(name), TOKEN_NORMAL, TOKEN_BYTE,
                        (unsigned long long)type, (double)score);
    TRY(vocabulary_token(v, s->n_pieces, name, (enum token_type)type, e));
    v->scores[s->n_pieces++] = score;
    return STATUS_OK;
}

static enum status read_spec(struct sentencepiece *s, uint64_t message, struct message m,
                             struct err *e)
{
    while (m.rest.len > 0) {
        struct field f;
        TRY(take_field(&m, &f, e));
        if (message == NORMALIZER && is_field(&f, 2, WIRE_BYTES))
            s->maps_chars = f.bytes.len > 0;
        for (int i = 0; i < SPECS; i++)
            if (specs[i].message == message && is_field(&f, specs[i].field, WIRE_VARINT))
                s->spec[i] = (int64_t)f.value;
    }
    return STATUS_OK;
}

static enum status check_sentencepiece(const struct sentencepiece *s, const struct vocabulary *v,
                                       struct err *e)
{
    static const char *const names[] = {"none", "UNIGRAM", "BPE", "WORD", "CHAR"};
    const int64_t type = s->spec[TYPE];
    const bool named = type >= 0 && type < (int64_t)(sizeof names / sizeof *names);
    if (s->n_pieces == 0)
        return bad_file(e, "expected a SentencePiece model, found no pieces");
    if (type != MODEL_BPE)
        return bad_file(e,
                        "trainer_spec.model_type: expected BPE (2), found %s (%lld)" VOCAB_ADVICE,
                        named ? names[type] : "another", (long long)type);
    if (s->spec[SPACE_BEHIND])
        return bad_file(e, "trainer_spec.treat_whitespace_as_suffix: expected false, found "
                           "true" VOCAB_ADVICE);
    if (!s->spec[MARKS_SPACES])
        return bad_file(e, "normalizer_spec.escape_whitespaces: expected true, found "
                           "false" VOCAB_ADVICE);
    if (s->maps_chars)
        vocabulary_note(v->notes,
                        "the normalizer of the SentencePiece model is not applied: line breaks, "
                        "tabs and forms of characters that it would replace stay as they are");
    if (s->spec[DROPS_SPACES])
        vocabulary_note(v->notes,
                        "spaces at the ends of a text, and several in a row, stay as they are, "
                        "where SentencePiece drops them");
    return STATUS_OK;
}

bool vocab_is_sentencepiece(struct text file)
{
    /* A first piece that is not empty; the other formats that are known have a zero there. */
    return file.len >= 2 && file.data[0] == '\n' && file.data[1] != 0;
}

enum status vocab_sentencepiece_read(struct text file, struct vocabulary *v, struct err *e)
{
    struct sentencepiece s = {.n_pieces = 0};
    struct message m = {file, file.data};
    int *const ids[] = {&v->keys.unk, &v->keys.bos, &v->keys.eos, &v->keys.pad};
    for (int i = 0; i < SPECS; i++)
        s.spec[i] = specs[i].otherwise;
    while (m.rest.len > 0) {
        struct field f;
        TRY(take_field(&m, &f, e));
        const struct message inner = {f.bytes, file.data};
        if (is_field(&f, PIECE, WIRE_BYTES))
            TRY(read_piece(&s, inner, v, e));
        else if (is_field(&f, TRAINER, WIRE_BYTES) || is_field(&f, NORMALIZER, WIRE_BYTES))
            TRY(read_spec(&s, f.number, inner, e));
    }
    TRY(check_sentencepiece(&s, v, e));
    for (int i = 0; i < 4; i++) {
        const int64_t id = s.spec[UNK + i];
        *ids[i] = id >= 0 && id < s.n_pieces ? (int)id : -1;
    }
    v->keys.model = "llama";
    v->keys.add_space_prefix = s.spec[ADDS_SPACE] != 0;
    v->keys.add_bos = v->keys.bos >= 0;
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
    const size_t len = rest->len < 8 ? SIZE_MAX : (size_t)little_load(rest->data + 4, 4);
    if (rest->len < 8 || len > rest->len - 8)
        return false;
    entry->score = float_of((uint32_t)little_load(rest->data, 4));
    (void)take(rest, 8);
    entry->bytes = take(rest, len);
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
    char *name = vocabulary_take(v, (uint64_t)entry->bytes.len + 1, strlen(VOCAB_SPACE), e);
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
    return (uint32_t)little_load(file.data + 4 * i, 4);
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
        len += byte_alphabet_write((unsigned char)bytes.data[i], out + len);
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
    const struct text first = take(&rest, p.start[1]);
    const struct text name[] = {write_name(first, left), text_of(" "), write_name(rest, right)};
    return vocabulary_join(v, name, 3, &v->merges[v->keys.n_merges++], e);
}

enum status vocab_llmc_read(struct text file, struct vocabulary *v, struct err *e)
{
    uint32_t eot;
    char name[2 * LONGEST];
    TRY(read_header(file, (uint32_t)v->keys.n, &eot, e));
    TRY(read_tokens(file, v, (int)eot, e));
    vocabulary_index(v);
    v->merges = vocabulary_take(v, (uint64_t)v->keys.n, sizeof *v->merges, e);
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
    v->keys.bos = v->keys.eos = (int)eot;
    return STATUS_OK;
}
