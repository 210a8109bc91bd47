#include "text/vocab.h"

#include <inttypes.h>
#include <limits.h>

#include "base/mem.h"
#include "formats/gguf_values.h"
#include "text/unicode.h"

#define TOKENS_KEY "tokenizer.ggml.tokens"
#define TYPES_KEY  "tokenizer.ggml.token_type"

/* Lower ranks are preferred among tokens of the same bytes. */
enum find_rank { FIND_NORMAL, FIND_BYTE, FIND_SPECIAL, FIND_NEVER };

struct text vocab_bytes(const struct vocab *v, int id)
{
    assert(id >= 0 && id < v->n);
    return text_span(v->bytes + v->start[id], v->start[id + 1] - v->start[id]);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int vocab_hex_byte(struct text s, enum token_type type)
{
    if (type != TOKEN_BYTE && type != TOKEN_NORMAL && type != TOKEN_UNDEFINED)
        return -1;
    if (s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>')
        return -1;
    const int high = hex_digit(s.data[3]), low = hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Puts the *len bytes of a token written as `name` at `out` (name.len bytes of room). */
static enum find_rank read_token(enum vocab_notation notation, struct text name,
                                 enum token_type type, char *out, size_t *len)
{
    const bool plain = type == TOKEN_UNDEFINED || type == TOKEN_NORMAL;
    const bool may_be_hex =
        notation == VOCAB_SPACES || (notation == VOCAB_BYTES && type == TOKEN_BYTE);
    const int byte = may_be_hex ? vocab_hex_byte(name, type) : -1;
    if (byte >= 0) {
        *out = (char)byte;
        *len = 1;
        return notation == VOCAB_BYTES ? FIND_BYTE : FIND_NEVER;
    }
    if (notation == VOCAB_BYTES && (plain || type == TOKEN_BYTE) &&
        byte_alphabet_decode(name, out, len))
        return FIND_NORMAL;
    const bool marks = notation == VOCAB_SPACES && (plain || type == TOKEN_UNUSED);
    *len = 0;
    while (name.len > 0) {
        const bool space = marks && text_starts_with(name, VOCAB_SPACE);
        const size_t step = space ? sizeof VOCAB_SPACE - 1 : 1;
        out[(*len)++] = space ? ' ' : *name.data;
        name.data += step;
        name.len -= step;
    }
    const bool special = type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED;
    return notation == VOCAB_BYTES && special ? FIND_SPECIAL : FIND_NEVER;
}

enum status vocab_init(struct vocab *v, enum vocab_notation notation, const struct gguf *g,
                       struct err *e)
{
    *v = (struct vocab){.first_empty = -1};
    const struct gguf_value *names, *types;
    bool has_types;
    if (notation == VOCAB_RAW && !gguf_find(g, TOKENS_KEY))
        return STATUS_OK;
    TRY(gguf_get_array(g, TOKENS_KEY, GGUF_STRING, &names, NULL, e));
    if (names->count == 0 || names->count > INT_MAX - 1)
        return err_bad_file(e, "%s: expected 1 to %d tokens, found %" PRIu64, TOKENS_KEY,
                            INT_MAX - 1, names->count);
    TRY(gguf_get_array(g, TYPES_KEY, GGUF_I32, &types, &has_types, e));
    if (has_types && types->count != names->count)
        return err_bad_file(e, "%s: expected %" PRIu64 " elements, one a token, found %" PRIu64,
                            TYPES_KEY, names->count, types->count);
    v->n = names->count;
    TRY_ZEROED(v->bytes, names->bytes.len, "vocabulary", e); /* the strings and their lengths */
    TRY_ZEROED(v->start, (size_t)v->n + 1, "vocabulary", e);
    TRY_ZEROED(v->type, v->n, "vocabulary", e);

    struct gguf_cursor cursor = {0};
    struct text name;
    for (int id = 0; gguf_next_text(names, &cursor, &name); id++) {
        const int64_t type = types ? gguf_int_at(types, id) : TOKEN_NORMAL;
        if (type < TOKEN_UNDEFINED || type > TOKEN_BYTE)
            return err_bad_file(e, "%s of token %d: expected 0 to %d, found %" PRId64, TYPES_KEY,
                                id, TOKEN_BYTE, type);
        if (name.len == 0 && type != TOKEN_UNUSED && v->first_empty < 0)
            v->first_empty = id;
        struct text bytes = {v->bytes + v->start[id], 0};
        const enum find_rank rank =
            read_token(notation, name, type, v->bytes + v->start[id], &bytes.len);
        v->type[id] = type;
        v->start[id + 1] = v->start[id] + bytes.len;
        if (rank != FIND_NEVER && bytes.len > 0)
            TRY(name_index_add(&v->names, bytes, id, rank, e));
    }
    name_index_sort(&v->names);
    return STATUS_OK;
}

void vocab_free(struct vocab *v)
{
    name_index_free(&v->names);
    free(v->bytes);
    free(v->start);
    free(v->type);
    *v = (struct vocab){0};
}

/* --- finding --------------------------------------------------------------------------------- */

int vocab_find(const struct vocab *v, struct text bytes, int *twin)
{
    assert(bytes.len > 0);
    const struct indexed *first = name_index_find(&v->names, bytes);
    const struct indexed *second = first ? first + 1 : NULL;
    *twin = -1;
    if (!first)
        return -1;
    if (second < v->names.list + v->names.n && second->rank == FIND_NORMAL &&
        text_equal(second->text, bytes))
        *twin = second->id;
    return first->id;
}

enum status lacks_token(struct text text, size_t at, struct err *e)
{
    char name[32];
    uint32_t code;
    at = utf8_start(text, at);
    struct text rest = text_from(text, at);
    const struct text bytes = utf8_next(&rest, &code);
    const enum char_class c = unicode_class(code);
    if (code == UNICODE_INVALID)
        chars_printf(name, "byte 0x%02X", (unsigned char)*bytes.data);
    /* Not all that can be shown, but nothing else: marks and format characters change the line. */
    else if (c == CHAR_LETTER || c == CHAR_NUMBER || (code > ' ' && code < 0x7f))
        chars_printf(name, "U+%04X '%.*s'", code, (int)bytes.len, bytes.data);
    else
        chars_printf(name, "U+%04X", code);
    return err_usage(e, "the text has %s at offset %zu, for which the vocabulary has no token",
                     name, at);
}

/* --- lists of ids ---------------------------------------------------------------------------- */

enum status id_list_add(struct id_list *list, int32_t id, struct err *e)
{
    assert(id >= 0 && list->len <= list->cap);
    TRY_ROOM(list->ids, list->len, list->cap, "token ids", e);
    list->ids[list->len++] = id;
    return STATUS_OK;
}
