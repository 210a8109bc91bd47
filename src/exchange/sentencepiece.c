/*
 * SentencePiece's tokenizer.model, in and out.
 *
 * A tokenizer.model is a message of Protocol Buffers: fields, each a number with a wire type and a
 * value. The numbers and defaults are those of sentencepiece_model.proto.
 */
#include <math.h>

#include "base/half.h"
#include "exchange/private.h"

/* A field's number and what follows it. */
enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
#define TAG(number, wire) ((uint64_t)(number) << 3 | (wire))

/* Messages in the model, and a kind of model. */
enum { PIECE = 1, TRAINER = 2, NORMALIZER = 3 };
enum { MODEL_BPE = 2 };

/* Numbers of trainer_spec and normalizer_spec; ids in the order of their fields. */
enum spec { TYPE, SPACE_BEHIND, UNK, BOS, EOS, PAD, ADDS_SPACE, DROPS_SPACES, MARKS_SPACES, SPECS };

static const struct {
    uint64_t message, tag;
    int64_t otherwise;
} specs[SPECS] = {
    [TYPE] = {TRAINER, TAG(3, WIRE_VARINT), 1},
    [SPACE_BEHIND] = {TRAINER, TAG(24, WIRE_VARINT), 0},
    [UNK] = {TRAINER, TAG(40, WIRE_VARINT), 0},
    [BOS] = {TRAINER, TAG(41, WIRE_VARINT), 1},
    [EOS] = {TRAINER, TAG(42, WIRE_VARINT), 2},
    [PAD] = {TRAINER, TAG(43, WIRE_VARINT), -1},
    [ADDS_SPACE] = {NORMALIZER, TAG(3, WIRE_VARINT), 1},
    [DROPS_SPACES] = {NORMALIZER, TAG(4, WIRE_VARINT), 1},
    [MARKS_SPACES] = {NORMALIZER, TAG(5, WIRE_VARINT), 1},
};

/* --- in ------------------------------------------------------------------------------------- */

struct field {
    uint64_t tag, value; /* of a number */
    struct text bytes;   /* of WIRE_BYTES */
};

static bool take_varint(struct text *rest, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < 10 && rest->len > 0; i++) {
        const unsigned char byte = *text_cut(rest, 1).data;
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* The next field of a message that has one. */
static enum status take_field(struct text *rest, struct field *f, struct err *e)
{
    uint64_t len = 0;
    *f = (struct field){.bytes = {"", 0}};
    bool good = take_varint(rest, &f->tag);
    const unsigned wire = f->tag & 7;
    if (good && wire == WIRE_VARINT)
        good = take_varint(rest, &f->value);
    else if (good && wire == WIRE_BYTES)
        good = take_varint(rest, &len);
    else if (wire == WIRE_64 || wire == WIRE_32)
        len = wire == WIRE_64 ? 8 : 4;
    else
        good = false;
    if (!good || len > rest->len)
        return bad_file(e,
                        "%zu bytes before the end of a message: expected a field of wire type 0, "
                        "1, 2 or 5 and its bytes, found others",
                        rest->len);
    f->bytes = text_cut(rest, len);
    if (wire == WIRE_64 || wire == WIRE_32)
        f->value = little_load(f->bytes.data, len);
    return STATUS_OK;
}

bool vocab_is_sentencepiece(struct text file)
{
    /* A first piece that is not empty; the other formats that are known have a zero there. */
    return file.len >= 2 && file.data[0] == '\n' && file.data[1] != 0;
}

static enum status read_piece(struct text rest, int id, struct vocabulary *v, struct err *e)
{
    struct text name = {"", 0};
    uint64_t type = TOKEN_NORMAL;
    float score = 0;
    while (rest.len > 0) {
        struct field f;
        TRY(take_field(&rest, &f, e));
        if (f.tag == TAG(1, WIRE_BYTES))
            name = f.bytes;
        else if (f.tag == TAG(2, WIRE_32))
            score = float_of_bits(f.value);
        else if (f.tag == TAG(3, WIRE_VARINT))
            type = f.value;
    }
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE || !isfinite(score))
        return bad_file(e,
                        "piece %d, \"%.*s\": expected a type from %d to %d and a finite score, "
                        "found %llu and %g",
                        id, SHOWN(name), TOKEN_NORMAL, TOKEN_BYTE, (unsigned long long)type,
                        (double)score);
    TRY(vocabulary_token(v, id, name, type, e));
    v->scores[id] = score;
    return STATUS_OK;
}

enum status vocab_sentencepiece_read(struct text file, struct vocabulary *v, struct err *e)
{
    int64_t spec[SPECS];
    int *const ids[] = {&v->keys.unk, &v->keys.bos, &v->keys.eos, &v->keys.pad};
    int n_pieces = 0;
    bool maps_chars = false;
    for (int i = 0; i < SPECS; i++)
        spec[i] = specs[i].otherwise;
    for (struct text rest = file; rest.len > 0;) {
        struct field message, f;
        TRY(take_field(&rest, &message, e));
        const uint64_t number = message.tag >> 3;
        if (message.tag == TAG(PIECE, WIRE_BYTES))
            TRY(read_piece(message.bytes, n_pieces++, v, e));
        if (number != TRAINER && number != NORMALIZER)
            continue;
        for (struct text inner = message.bytes; inner.len > 0;) {
            TRY(take_field(&inner, &f, e));
            if (number == NORMALIZER && f.tag == TAG(2, WIRE_BYTES))
                maps_chars = f.bytes.len > 0;
            for (int i = 0; i < SPECS; i++)
                if (number == specs[i].message && f.tag == specs[i].tag)
                    spec[i] = f.value;
        }
    }
    if (spec[TYPE] != MODEL_BPE)
        return bad_file(e,
                        "trainer_spec.model_type: expected BPE (2), found %lld (UNIGRAM is "
                        "1)" VOCAB_ADVICE,
                        (long long)spec[TYPE]);
    if (spec[SPACE_BEHIND] || !spec[MARKS_SPACES])
        return bad_file(e,
                        "expected trainer_spec.treat_whitespace_as_suffix to be false and "
                        "normalizer_spec.escape_whitespaces to be true, found %d and "
                        "%d" VOCAB_ADVICE,
                        spec[SPACE_BEHIND] != 0, spec[MARKS_SPACES] != 0);
    if (maps_chars)
        vocabulary_note(v->notes,
                        "the normalizer of the SentencePiece model is not applied: line breaks, "
                        "tabs and forms of characters that it would replace stay as they are");
    if (spec[DROPS_SPACES])
        vocabulary_note(v->notes,
                        "spaces at the ends of a text, and several in a row, stay as they are, "
                        "where SentencePiece drops them");
    for (int i = 0; i < 4; i++) {
        const int64_t id = spec[UNK + i];
        *ids[i] = id >= 0 && id < n_pieces ? id : -1;
    }
    v->keys.model = "llama";
    v->keys.add_space_prefix = spec[ADDS_SPACE] != 0;
    v->keys.add_bos = v->keys.bos >= 0;
    return STATUS_OK;
}

/* --- out ------------------------------------------------------------------------------------- */

/* Of a message; `bad` stays where memory failed. */
struct message {
    struct bytes bytes;
    bool bad;
};

static void put_varint(struct message *m, uint64_t value)
{
    char out[10];
    size_t len = 0;
    for (; value >= 0x80; value >>= 7)
        out[len++] = (char)(value | 0x80);
    out[len++] = (char)value;
    m->bad |= !bytes_put(&m->bytes, (struct text){out, len});
}

/* Negative ones as 64 bits. */
static void put_number(struct message *m, unsigned field, int64_t value)
{
    put_varint(m, TAG(field, WIRE_VARINT));
    put_varint(m, value);
}

static void put_bytes(struct message *m, unsigned field, struct text value)
{
    put_varint(m, TAG(field, WIRE_BYTES));
    put_varint(m, value.len);
    m->bad |= !bytes_put(&m->bytes, value);
}

/* Moves a message into another, as a field. */
static void put_message(struct message *m, unsigned field, struct message *part)
{
    put_bytes(m, field, bytes_text(&part->bytes));
    m->bad |= part->bad;
    part->bytes.len = 0;
}

bool vocab_sentencepiece_write(const struct vocabulary *v, struct bytes *out)
{
    struct message part = {.bad = false}, model = {.bad = false};
    int ids[] = {-1, v->keys.bos, v->keys.eos, v->keys.pad}, n_unknown = 0, n_bytes = 0;
    for (int id = 0; id < v->keys.n; id++) {
        /* The number that the library has for the type, which it knows by no name. */
        enum token_type type = v->types[id];
        if (vocab_hex_byte(v->tokens[id], type) >= 0)
            type = TOKEN_BYTE;
        else if (type == TOKEN_UNDEFINED || type == TOKEN_BYTE)
            type = TOKEN_NORMAL;
        n_bytes += type == TOKEN_BYTE;
        n_unknown += type == TOKEN_UNKNOWN;
        if (type == TOKEN_UNKNOWN)
            ids[0] = id;
        char score[4];
        uint32_t bits;
        memcpy(&bits, &v->scores[id], sizeof bits);
        little_store(score, bits, sizeof score);
        put_bytes(&part, 1, v->tokens[id]);
        put_varint(&part, TAG(2, WIRE_32));
        part.bad |= !bytes_put(&part.bytes, (struct text){score, sizeof score});
        put_number(&part, 3, type);
        put_message(&model, PIECE, &part);
    }
    put_number(&part, 3, MODEL_BPE);
    put_number(&part, 4, v->keys.n);
    put_number(&part, 35, n_bytes > 0);
    for (unsigned i = 0; i < 4; i++) { /* an id, and the piece that it must be */
        put_number(&part, 40 + i, ids[i]);
        if (ids[i] >= 0)
            put_bytes(&part, 45 + i, v->tokens[ids[i]]);
    }
    put_message(&model, TRAINER, &part);
    put_bytes(&part, 1, text_of("identity"));
    put_number(&part, 3, v->keys.add_space_prefix > 0);
    put_number(&part, 4, false);
    put_number(&part, 5, true);
    put_message(&model, NORMALIZER, &part);
    bytes_free(&part.bytes);
    *out = model.bytes;
    if (n_unknown != 1 || (n_bytes != 0 && n_bytes != 256))
        out->len = 0;
    return !model.bad;
}
