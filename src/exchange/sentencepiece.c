/*
 * SentencePiece's tokenizer.model.
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

/* Numbers of trainer_spec and normalizer_spec, ids in the order of their fields; then of a piece.
 */
enum spec {
    TYPE,
    SPACE_BEHIND,
    UNK,
    BOS,
    EOS,
    PAD,
    ADDS_SPACE,
    DROPS_SPACES,
    MARKS_SPACES,
    PIECE_SCORE,
    PIECE_TYPE,
    SPECS
};

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
    [PIECE_SCORE] = {PIECE, TAG(2, WIRE_32), 0},
    [PIECE_TYPE] = {PIECE, TAG(3, WIRE_VARINT), TOKEN_NORMAL},
};

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
        return err_bad_file(e,
                            "%zu bytes before the end of a message: expected a field of wire type "
                            "0, 1, 2 or 5 and its bytes, found others",
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
        struct text name = {"", 0}; /* of a piece */
        TRY(take_field(&rest, &message, e));
        if ((message.tag & 7) != WIRE_BYTES)
            continue;
        const uint64_t number = message.tag >> 3;
        spec[PIECE_TYPE] = specs[PIECE_TYPE].otherwise;
        spec[PIECE_SCORE] = specs[PIECE_SCORE].otherwise;
        while (message.bytes.len > 0 && number >= PIECE && number <= NORMALIZER) {
            TRY(take_field(&message.bytes, &f, e));
            if (number == PIECE && f.tag == TAG(1, WIRE_BYTES))
                name = f.bytes;
            if (number == NORMALIZER && f.tag == TAG(2, WIRE_BYTES))
                maps_chars = f.bytes.len > 0;
            for (int i = 0; i < SPECS; i++)
                if (number == specs[i].message && f.tag == specs[i].tag)
                    spec[i] = f.value;
        }
        if (number != PIECE)
            continue;
        const int64_t type = spec[PIECE_TYPE];
        const float score = float_of_bits(spec[PIECE_SCORE]);
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE || !isfinite(score))
            return err_bad_file(e,
                                "piece %d, \"%.*s\": expected a type from %d to %d and a finite "
                                "score, found %lld and %g",
                                n_pieces, SHOWN(name), TOKEN_NORMAL, TOKEN_BYTE, (long long)type,
                                (double)score);
        TRY(vocabulary_token(v, n_pieces, name, type, e));
        v->scores[n_pieces++] = score;
    }
    if (spec[TYPE] != MODEL_BPE)
        return err_bad_file(
            e, "trainer_spec.model_type: expected BPE (2), found %lld (UNIGRAM is 1)" VOCAB_ADVICE,
            (long long)spec[TYPE]);
    if (spec[SPACE_BEHIND] || !spec[MARKS_SPACES])
        return err_bad_file(
            e,
            "expected trainer_spec.treat_whitespace_as_suffix to be false and "
            "normalizer_spec.escape_whitespaces to be true, found %d and %d" VOCAB_ADVICE,
            spec[SPACE_BEHIND] != 0, spec[MARKS_SPACES] != 0);
    if (maps_chars)
        vocabulary_note(v->notes,
                        "the normalizer of the SentencePiece model is not applied: line breaks, "
                        "tabs and forms of characters that it would replace stay as they are");
    if (spec[DROPS_SPACES])
        vocabulary_note(v->notes, "spaces at the ends of a text, and several in a row, stay as "
                                  "they are, where SentencePiece drops them");
    for (int i = 0; i < 4; i++) {
        const int64_t id = spec[UNK + i];
        *ids[i] = id >= 0 && id < n_pieces ? id : -1;
    }
    v->keys.model = "llama";
    v->keys.add_space_prefix = spec[ADDS_SPACE] != 0;
    v->keys.add_bos = v->keys.bos >= 0;
    return STATUS_OK;
}
