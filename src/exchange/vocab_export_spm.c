/*
 * A tokenizer.model is a message of Protocol Buffers; the numbers of its fields are those of
 * sentencepiece_model.proto.
 */
#include "base/text.h"
#include "exchange/vocab_export.h"

/* What follows a field's number. */
enum wire { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_32 = 5 };

#define MODEL_BPE 2

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
    return put_varint(b, field << 3 | WIRE_VARINT) && put_varint(b, (uint64_t)value);
}

static bool put_bytes(struct bytes *b, unsigned field, struct text value)
{
    return put_varint(b, field << 3 | WIRE_BYTES) && put_varint(b, value.len) &&
           bytes_put(b, value);
}

static bool put_float(struct bytes *b, unsigned field, float value)
{
    uint32_t bits;
    char out[4];
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; i++)
        out[i] = (char)(bits >> (8 * i));
    return put_varint(b, field << 3 | WIRE_32) && bytes_put(b, (struct text){out, sizeof out});
}

/* The number that the library has for the type, which it knows by no name. */
static enum token_type type_of(const struct vocab_export *x, int id)
{
    const enum token_type type = x->names.replaced[id] ? TOKEN_UNUSED : x->vocab.type[id];
    if (vocab_hex_byte(x->names.name[id], type) >= 0)
        return TOKEN_BYTE;
    return type == TOKEN_UNDEFINED || type == TOKEN_BYTE ? TOKEN_NORMAL : type;
}

static bool put_pieces(const struct vocab_export *x, struct bytes *piece, struct bytes *out)
{
    const struct gguf_value *scores = gguf_find(x->gguf, "tokenizer.ggml.scores");
    bool good = true;
    for (int id = 0; good && id < x->vocab.n; id++) {
        const float score = scores ? (float)gguf_float_at(scores, (uint64_t)id) : 0.0f;
        piece->len = 0;
        good = put_bytes(piece, 1, x->names.name[id]) && put_float(piece, 2, score) &&
               put_number(piece, 3, type_of(x, id)) && put_bytes(out, 1, bytes_text(piece));
    }
    return good;
}

/* An id, and the piece that it must be. */
static bool put_special_piece(const struct vocab_export *x, struct bytes *b, unsigned field, int id)
{
    return put_number(b, field, id) && (id < 0 || put_bytes(b, field + 5, x->names.name[id]));
}

static bool put_trainer(const struct vocab_export *x, int unk, bool bytes, struct bytes *b)
{
    return put_number(b, 3, MODEL_BPE) && put_number(b, 4, x->vocab.n) &&
           put_number(b, 35, bytes) && put_special_piece(x, b, 40, unk) &&
           put_special_piece(x, b, 41, x->bos) && put_special_piece(x, b, 42, x->eos) &&
           put_special_piece(x, b, 43, x->pad);
}

static bool put_rules(const struct vocab_export *x, struct bytes *b)
{
    return put_bytes(b, 1, text_of("identity")) && put_number(b, 3, x->adds_space) &&
           put_number(b, 4, false) && put_number(b, 5, true);
}

bool put_sentencepiece(const struct vocab_export *x, struct bytes *out, bool *fits)
{
    struct bytes part = {NULL, 0, 0};
    int unk = -1, n_unknown = 0, n_bytes = 0;
    for (int id = 0; id < x->vocab.n; id++) {
        const enum token_type type = type_of(x, id);
        n_bytes += type == TOKEN_BYTE;
        n_unknown += type == TOKEN_UNKNOWN;
        unk = type == TOKEN_UNKNOWN ? id : unk;
    }
    *fits = n_unknown == 1 && (n_bytes == 0 || n_bytes == 256);
    if (!*fits)
        return true;
    bool good = put_pieces(x, &part, out);
    part.len = 0;
    good = good && put_trainer(x, unk, n_bytes > 0, &part) && put_bytes(out, 2, bytes_text(&part));
    part.len = 0;
    good = good && put_rules(x, &part) && put_bytes(out, 3, bytes_text(&part));
    bytes_free(&part);
    return good;
}
