/*
 * SentencePiece's tokenizer.model, in and out.
 *
 * A tokenizer.model is a message of Protocol Buffers: fields, each a number with a wire type and a
 * value. The numbers and defaults are those of sentencepiece_model.proto.
 */
#include <math.h>

#include "base/little.h"
#include "exchange/private.h"

/* What follows a field's number. */
enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* Messages in the model. */
enum { PIECE = 1, TRAINER = 2, NORMALIZER = 3 };
enum { MODEL_BPE = 2 };

/* --- in ------------------------------------------------------------------------------------- */

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
                    (m->rest.data - m->start), expected);
}

static enum status take_varint(struct message *m, uint64_t *value, struct err *e)
{
    *value = 0;
    for (size_t i = 0; i < 10 && i < m->rest.len; i++) {
        const unsigned char byte = m->rest.data[i];
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            (void)text_take(&m->rest, i + 1);
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
    *f = (struct field){.number = tag >> 3, .wire = (tag & 7)};
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
    f->bytes = text_take(&m->rest, len);
    if (f->wire != WIRE_BYTES)
        f->value = little_load(f->bytes.data, len);
    return STATUS_OK;
}

static bool is_field(const struct field *f, uint64_t number, enum wire wire)
{
    return f->number == number && f->wire == wire;
}

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
            score = float_of_bits(f.value);
        else if (is_field(&f, 3, WIRE_VARINT))
            type = f.value;
    }
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE || !isfinite(score))
        return bad_file(e,
                        "piece %d, \"%.*s\": expected a type from %d to %d and a finite score, "
                        "found %llu and %g",
                        s->n_pieces, SHOWN(name), TOKEN_NORMAL, TOKEN_BYTE,
                        (unsigned long long)type, (double)score);
    TRY(vocabulary_token(v, s->n_pieces, name, type, e));
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
                s->spec[i] = f.value;
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
        *ids[i] = id >= 0 && id < s.n_pieces ? id : -1;
    }
    v->keys.model = "llama";
    v->keys.add_space_prefix = s.spec[ADDS_SPACE] != 0;
    v->keys.add_bos = v->keys.bos >= 0;
    return STATUS_OK;
}

/* --- out ------------------------------------------------------------------------------------- */

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
    return put_varint(b, field << 3 | WIRE_VARINT) && put_varint(b, value);
}

static bool put_bytes(struct bytes *b, unsigned field, struct text value)
{
    return put_varint(b, field << 3 | WIRE_BYTES) && put_varint(b, value.len) &&
           bytes_put(b, value);
}

/* The number that the library has for the type, which it knows by no name. */
static enum token_type type_of(const struct vocabulary *v, int id)
{
    const enum token_type type = v->types[id];
    if (vocab_hex_byte(v->tokens[id], type) >= 0)
        return TOKEN_BYTE;
    return type == TOKEN_UNDEFINED || type == TOKEN_BYTE ? TOKEN_NORMAL : type;
}

/* The tokens of a type; *last is one of them. */
static int count_type(const struct vocabulary *v, enum token_type type, int *last)
{
    int n = 0;
    for (int id = 0; id < v->keys.n; id++) {
        if (type_of(v, id) != type)
            continue;
        *last = id;
        n++;
    }
    return n;
}

bool vocab_fits_sentencepiece(const struct vocabulary *v)
{
    int last;
    const int n_bytes = count_type(v, TOKEN_BYTE, &last);
    return count_type(v, TOKEN_UNKNOWN, &last) == 1 && (n_bytes == 0 || n_bytes == 256);
}

bool vocab_sentencepiece_write(const struct vocabulary *v, struct bytes *out)
{
    struct bytes part = {NULL, 0, 0};
    int unk = -1, last;
    (void)count_type(v, TOKEN_UNKNOWN, &unk);
    const int ids[] = {unk, v->keys.bos, v->keys.eos, v->keys.pad};
    bool good = true;
    for (int id = 0; good && id < v->keys.n; id++) {
        char score[4];
        uint32_t bits;
        memcpy(&bits, &v->scores[id], sizeof bits);
        little_store(score, bits, sizeof score);
        part.len = 0;
        good = put_bytes(&part, 1, v->tokens[id]) && put_varint(&part, 2 << 3 | WIRE_32) &&
               bytes_put(&part, (struct text){score, sizeof score}) &&
               put_number(&part, 3, type_of(v, id)) && put_bytes(out, PIECE, bytes_text(&part));
    }
    part.len = 0;
    good = good && put_number(&part, 3, MODEL_BPE) && put_number(&part, 4, v->keys.n) &&
           put_number(&part, 35, count_type(v, TOKEN_BYTE, &last) > 0);
    for (unsigned i = 0; i < 4; i++) /* an id, and the piece that it must be */
        good = good && put_number(&part, 40 + i, ids[i]) &&
               (ids[i] < 0 || put_bytes(&part, 45 + i, v->tokens[ids[i]]));
    good = good && put_bytes(out, TRAINER, bytes_text(&part));
    part.len = 0;
    good = good && put_bytes(&part, 1, text_of("identity")) &&
           put_number(&part, 3, v->keys.add_space_prefix > 0) && put_number(&part, 4, false) &&
           put_number(&part, 5, true) && put_bytes(out, NORMALIZER, bytes_text(&part));
    bytes_free(&part);
    return good;
}
