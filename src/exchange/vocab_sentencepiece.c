/*
 * A tokenizer.model is a message of Protocol Buffers: fields, each a number with a wire type and a
 * value. The numbers and defaults are those of sentencepiece_model.proto.
 */
#include <math.h>

#include "exchange/vocab_readers.h"

/* --- Protocol Buffers ------------------------------------------------------------------------ */

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
    return err_set(e, STATUS_BAD_FILE, "field at byte %zu: expected %s, found other bytes",
                   (size_t)(m->rest.data - m->start), expected);
}

static enum status take_varint(struct message *m, uint64_t *value, struct err *e)
{
    *value = 0;
    for (size_t i = 0; i < 10 && i < m->rest.len; i++) {
        const unsigned char byte = (unsigned char)m->rest.data[i];
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte >= 0x80)
            continue;
        m->rest.data += i + 1;
        m->rest.len -= i + 1;
        return STATUS_OK;
    }
    return refuse_field(m, "a number of at most 10 bytes", e);
}

static enum status take_bytes(struct message *m, uint64_t len, struct text *out, struct err *e)
{
    if (len > m->rest.len)
        return err_set(e, STATUS_BAD_FILE, "field at byte %zu: expected %llu bytes, found %zu",
                       (size_t)(m->rest.data - m->start), (unsigned long long)len, m->rest.len);
    *out = (struct text){m->rest.data, (size_t)len};
    m->rest.data += (size_t)len;
    m->rest.len -= (size_t)len;
    return STATUS_OK;
}

/* Little-endian. */
static uint64_t number_of(struct text bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes.len; i-- > 0;)
        value = value << 8 | (unsigned char)bytes.data[i];
    return value;
}

/* The next field of a message that has one. */
static enum status take_field(struct message *m, struct field *f, struct err *e)
{
    uint64_t tag;
    const struct message at = *m;
    TRY(take_varint(m, &tag, e));
    *f = (struct field){.number = tag >> 3, .wire = (enum wire)(tag & 7)};
    switch (f->wire) {
    case WIRE_VARINT:
        return take_varint(m, &f->value, e);
    case WIRE_BYTES:
        TRY(take_varint(m, &f->value, e));
        return take_bytes(m, f->value, &f->bytes, e);
    case WIRE_64:
    case WIRE_32:
        TRY(take_bytes(m, f->wire == WIRE_64 ? 8 : 4, &f->bytes, e));
        f->value = number_of(f->bytes);
        return STATUS_OK;
    }
    return refuse_field(&at, "wire type 0, 1, 2 or 5", e);
}

static bool is_field(const struct field *f, uint64_t number, enum wire wire)
{
    return f->number == number && f->wire == wire;
}

/* --- the messages ---------------------------------------------------------------------------- */

enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct sentencepiece {
    struct vocab_build *build;
    int n_pieces;
    int64_t type, unk, bos, eos, pad; /* of trainer_spec */
    bool space_behind;
    bool adds_space, drops_spaces, marks_spaces; /* of normalizer_spec */
    bool maps_chars;
};

typedef enum status read_field(struct sentencepiece *s, const struct field *f, struct err *e);

static enum status read_message(struct sentencepiece *s, const char *start, struct text bytes,
                                read_field *read, struct err *e)
{
    struct message m = {bytes, start};
    while (m.rest.len > 0) {
        struct field f;
        TRY(take_field(&m, &f, e));
        TRY(read(s, &f, e));
    }
    return STATUS_OK;
}

struct piece {
    struct text name;
    uint64_t type;
    float score;
};

static enum status read_piece(const char *start, struct text bytes, struct piece *p, struct err *e)
{
    struct message m = {bytes, start};
    *p = (struct piece){.name = {"", 0}, .type = TOKEN_NORMAL};
    while (m.rest.len > 0) {
        struct field f;
        TRY(take_field(&m, &f, e));
        const uint32_t bits = (uint32_t)f.value;
        if (is_field(&f, 1, WIRE_BYTES))
            p->name = f.bytes;
        else if (is_field(&f, 2, WIRE_32))
            memcpy(&p->score, &bits, sizeof p->score);
        else if (is_field(&f, 3, WIRE_VARINT))
            p->type = f.value;
    }
    return STATUS_OK;
}

static enum status add_piece(struct sentencepiece *s, const char *start, struct text bytes,
                             struct err *e)
{
    struct piece p;
    TRY(read_piece(start, bytes, &p, e));
    if (p.type < TOKEN_NORMAL || p.type > TOKEN_BYTE || !isfinite(p.score))
        return err_set(
            e, STATUS_BAD_FILE,
            "piece %d, \"%.*s\": expected a type from %d to %d and a finite score, found "
            "%llu and %g",
            s->n_pieces, text_width(p.name), p.name.data, TOKEN_NORMAL, TOKEN_BYTE,
            (unsigned long long)p.type, (double)p.score);
    TRY(vocab_build_token(s->build, s->n_pieces, p.name, (enum token_type)p.type, e));
    s->build->scores[s->n_pieces++] = p.score;
    return STATUS_OK;
}

static enum status read_trainer(struct sentencepiece *s, const struct field *f, struct err *e)
{
    (void)e;
    if (f->wire != WIRE_VARINT)
        return STATUS_OK;
    const int64_t value = (int64_t)f->value;
    switch (f->number) {
    case 3:
        s->type = value;
        break;
    case 24:
        s->space_behind = value != 0;
        break;
    case 40:
        s->unk = value;
        break;
    case 41:
        s->bos = value;
        break;
    case 42:
        s->eos = value;
        break;
    case 43:
        s->pad = value;
        break;
    }
    return STATUS_OK;
}

static enum status read_normalizer(struct sentencepiece *s, const struct field *f, struct err *e)
{
    (void)e;
    if (is_field(f, 2, WIRE_BYTES))
        s->maps_chars = f->bytes.len > 0;
    else if (is_field(f, 3, WIRE_VARINT))
        s->adds_space = f->value != 0;
    else if (is_field(f, 4, WIRE_VARINT))
        s->drops_spaces = f->value != 0;
    else if (is_field(f, 5, WIRE_VARINT))
        s->marks_spaces = f->value != 0;
    return STATUS_OK;
}

static enum status read_model(struct sentencepiece *s, const char *start, const struct field *f,
                              struct err *e)
{
    if (is_field(f, 1, WIRE_BYTES))
        return add_piece(s, start, f->bytes, e);
    if (is_field(f, 2, WIRE_BYTES))
        return read_message(s, start, f->bytes, read_trainer, e);
    if (is_field(f, 3, WIRE_BYTES))
        return read_message(s, start, f->bytes, read_normalizer, e);
    return STATUS_OK;
}

/* --- what it must be ------------------------------------------------------------------------- */

static enum status check_spec(const struct sentencepiece *s, struct err *e)
{
    static const char *const names[] = {"none", "UNIGRAM", "BPE", "WORD", "CHAR"};
    const bool named = s->type >= 0 && s->type < (int64_t)(sizeof names / sizeof names[0]);
    if (s->n_pieces == 0)
        return err_set(e, STATUS_BAD_FILE, "expected a SentencePiece model, found no pieces");
    if (s->type != MODEL_BPE)
        return err_set(e, STATUS_BAD_FILE,
                       "trainer_spec.model_type: expected BPE (2), found %s (%lld)" VOCAB_ADVICE,
                       named ? names[s->type] : "another", (long long)s->type);
    if (s->space_behind || !s->marks_spaces)
        return err_set(e, STATUS_BAD_FILE, "%s" VOCAB_ADVICE,
                       s->space_behind ? "trainer_spec.treat_whitespace_as_suffix: expected false, "
                                         "found true"
                                       : "normalizer_spec.escape_whitespaces: expected true, found "
                                         "false");
    return STATUS_OK;
}

static void note_normalizing(const struct sentencepiece *s)
{
    if (s->maps_chars)
        vocab_build_note(s->build,
                         "the normalizer of the SentencePiece model is not applied: line breaks, "
                         "tabs and forms of characters that it would replace stay as they are");
    if (s->drops_spaces)
        vocab_build_note(s->build,
                         "spaces at the ends of a text, and several in a row, stay as they are, "
                         "where SentencePiece drops them");
}

static int id_among(const struct sentencepiece *s, int64_t id)
{
    return id >= 0 && id < s->n_pieces ? (int)id : -1;
}

bool vocab_is_sentencepiece(struct text file)
{
    /* A first piece that is not empty; the other formats that are known have a zero there. */
    return file.len >= 2 && file.data[0] == '\n' && file.data[1] != 0;
}

enum status vocab_sentencepiece_read(struct text file, struct vocab_build *b, struct err *e)
{
    struct sentencepiece s = {.build = b,
                              .type = MODEL_UNIGRAM,
                              .bos = 1,
                              .eos = 2,
                              .pad = -1,
                              .adds_space = true,
                              .drops_spaces = true,
                              .marks_spaces = true};
    struct message m = {file, file.data};
    TRY(vocab_build_take_scores(b, e));
    while (m.rest.len > 0) {
        struct field f;
        TRY(take_field(&m, &f, e));
        TRY(read_model(&s, file.data, &f, e));
    }
    TRY(check_spec(&s, e));
    note_normalizing(&s);
    b->keys.model = "llama";
    b->keys.add_space_prefix = s.adds_space;
    b->keys.unk = id_among(&s, s.unk);
    b->keys.bos = id_among(&s, s.bos);
    b->keys.eos = id_among(&s, s.eos);
    b->keys.pad = id_among(&s, s.pad);
    b->keys.add_bos = b->keys.bos >= 0;
    return STATUS_OK;
}
