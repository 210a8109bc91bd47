#include "text/vocab.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "text/byte_alphabet.h"

#define TOKENS_KEY "tokenizer.ggml.tokens"
#define TYPES_KEY  "tokenizer.ggml.token_type"

/* Lower ranks are preferred among tokens of the same bytes. */
enum find_rank { FIND_NORMAL, FIND_BYTE, FIND_SPECIAL, FIND_NEVER };

/*
 * Sorted by bytes rather than hashed: there are no collisions for a hostile file to arrange. The
 * first eight bytes as a number settle most comparisons without a look at the tokens.
 */
struct vocab_entry {
    uint64_t head;
    struct text bytes;
    int32_t id;
    enum find_rank rank;
};

struct text vocab_bytes(const struct vocab *v, int id)
{
    assert(id >= 0 && id < v->n);
    return (struct text){v->bytes + v->start[id], v->start[id + 1] - v->start[id]};
}

/* --- reading the tokens ---------------------------------------------------------------------- */

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
    const int high = hex_digit(s.data[3]);
    const int low = hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Puts the bytes of a token written as `name` at `out` (name.len bytes of room). */
typedef enum find_rank read_token(struct text name, enum token_type type, char *out, size_t *len);

static enum find_rank read_raw(struct text name, enum token_type type, char *out, size_t *len)
{
    (void)type;
    if (name.len > 0)
        memcpy(out, name.data, name.len);
    *len = name.len;
    return FIND_NEVER;
}

static bool read_hex(struct text name, enum token_type type, char *out, size_t *len)
{
    const int byte = vocab_hex_byte(name, type);
    if (byte < 0)
        return false;
    *out = (char)byte;
    *len = 1;
    return true;
}

static enum find_rank read_byte_alphabet(struct text name, enum token_type type, char *out,
                                         size_t *len)
{
    if (type == TOKEN_BYTE && read_hex(name, type, out, len))
        return FIND_BYTE;
    const bool plain = type == TOKEN_UNDEFINED || type == TOKEN_NORMAL || type == TOKEN_BYTE;
    if (plain && byte_alphabet_decode(name, out, len))
        return FIND_NORMAL;
    read_raw(name, type, out, len);
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED ? FIND_SPECIAL : FIND_NEVER;
}

static enum find_rank read_space_marks(struct text name, enum token_type type, char *out,
                                       size_t *len)
{
    if (read_hex(name, type, out, len))
        return FIND_NEVER;
    if (type != TOKEN_UNDEFINED && type != TOKEN_NORMAL && type != TOKEN_UNUSED)
        return read_raw(name, type, out, len);
    *len = 0;
    while (name.len > 0) {
        const bool space = text_starts_with(name, VOCAB_SPACE);
        const size_t step = space ? sizeof VOCAB_SPACE - 1 : 1;
        out[(*len)++] = space ? ' ' : *name.data;
        name.data += step;
        name.len -= step;
    }
    return FIND_NEVER;
}

static read_token *const readers[] = {
    [VOCAB_BYTES] = read_byte_alphabet, [VOCAB_SPACES] = read_space_marks, [VOCAB_RAW] = read_raw};

static uint64_t head_of(struct text bytes)
{
    uint64_t head = 0;
    for (size_t i = 0; i < 8; i++)
        head = head << 8 | (i < bytes.len ? (unsigned char)bytes.data[i] : 0);
    return head;
}

static enum status read_token_type(const struct gguf_value *types, int id, struct vocab *v,
                                   struct err *e)
{
    const int64_t type = types ? gguf_int_at(types, (uint64_t)id) : TOKEN_NORMAL;
    if (type < TOKEN_UNDEFINED || type > TOKEN_BYTE)
        return err_set(e, STATUS_BAD_FILE, "%s of token %d: expected 0 to %d, found %lld",
                       TYPES_KEY, id, TOKEN_BYTE, (long long)type);
    v->type[id] = (unsigned char)type;
    return STATUS_OK;
}

static enum status read_tokens(struct vocab *v, enum vocab_notation notation,
                               const struct gguf_value *names, const struct gguf_value *types,
                               struct err *e)
{
    struct gguf_cursor cursor = {0};
    struct text name;
    size_t used = 0;
    for (int id = 0; gguf_next_text(names, &cursor, &name); id++) {
        TRY(read_token_type(types, id, v, e));
        if (name.len == 0 && v->type[id] != TOKEN_UNUSED && notation != VOCAB_RAW)
            return err_set(e, STATUS_BAD_FILE, "%s: expected no empty token, found token %d empty",
                           TOKENS_KEY, id);
        char *out = v->bytes + used;
        size_t len;
        const enum find_rank rank = readers[notation](name, v->type[id], out, &len);
        v->start[id] = used;
        used += len;
        const struct text bytes = {out, len};
        if (rank != FIND_NEVER)
            v->sorted[v->n_sorted++] = (struct vocab_entry){head_of(bytes), bytes, id, rank};
    }
    v->start[v->n] = used;
    return STATUS_OK;
}

static enum status get_arrays(const struct gguf *g, const struct gguf_value **names,
                              const struct gguf_value **types, struct err *e)
{
    TRY(gguf_get_array(g, TOKENS_KEY, GGUF_STRING, names, NULL, e));
    const uint64_t n = (*names)->count;
    if (n == 0 || n > INT_MAX - 1)
        return err_set(e, STATUS_BAD_FILE, "%s: expected 1 to %d tokens, found %llu", TOKENS_KEY,
                       INT_MAX - 1, (unsigned long long)n);
    bool has_types;
    TRY(gguf_get_array(g, TYPES_KEY, GGUF_I32, types, &has_types, e));
    if (has_types && (*types)->count != n)
        return err_set(e, STATUS_BAD_FILE, "%s: expected %llu elements, one a token, found %llu",
                       TYPES_KEY, (unsigned long long)n, (unsigned long long)(*types)->count);
    return STATUS_OK;
}

static enum status vocab_allocate(struct vocab *v, const struct gguf_value *names, struct err *e)
{
    size_t total = 0; /* the strings lie in the file, so their sum fits */
    struct gguf_cursor cursor = {0};
    for (struct text name; gguf_next_text(names, &cursor, &name);)
        total += name.len;
    const size_t n = (size_t)v->n;
    v->bytes = malloc(total ? total : 1);
    v->start = calloc(n + 1, sizeof *v->start);
    v->type = calloc(n, 1);
    v->sorted = calloc(n, sizeof *v->sorted);
    if (!v->bytes || !v->start || !v->type || !v->sorted)
        return err_no_memory(e, "vocabulary",
                             total + n * (sizeof *v->start + sizeof *v->sorted + 1));
    return STATUS_OK;
}

/* --- finding --------------------------------------------------------------------------------- */

static int compare_bytes(const struct vocab_entry *a, const struct vocab_entry *b)
{
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    return text_order(a->bytes, b->bytes);
}

static int compare_entries(const void *left, const void *right)
{
    const struct vocab_entry *a = left;
    const struct vocab_entry *b = right;
    const int order = compare_bytes(a, b);
    if (order != 0)
        return order;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

int vocab_find(const struct vocab *v, struct text bytes, int *twin)
{
    assert(v->sorted && bytes.len > 0);
    const struct vocab_entry wanted = {.head = head_of(bytes), .bytes = bytes};
    int low = 0;
    int high = v->n_sorted;
    while (low < high) { /* the first entry that is not below the wanted one */
        const int middle = low + (high - low) / 2;
        if (compare_bytes(&v->sorted[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *twin = -1;
    if (low == v->n_sorted || compare_bytes(&v->sorted[low], &wanted) != 0)
        return -1;
    if (low + 1 < v->n_sorted && v->sorted[low + 1].rank == FIND_NORMAL &&
        compare_bytes(&v->sorted[low + 1], &wanted) == 0)
        *twin = v->sorted[low + 1].id;
    return v->sorted[low].id;
}

void vocab_end_finding(struct vocab *v)
{
    free(v->sorted);
    v->sorted = NULL;
    v->n_sorted = 0;
}

/* --- life ------------------------------------------------------------------------------------ */

enum status vocab_init(struct vocab *v, enum vocab_notation notation, const struct gguf *g,
                       struct err *e)
{
    *v = (struct vocab){0};
    const struct gguf_value *names = NULL;
    const struct gguf_value *types = NULL;
    if (notation == VOCAB_RAW && !gguf_find(g, TOKENS_KEY))
        return STATUS_OK;
    TRY(get_arrays(g, &names, &types, e));
    v->n = (int)names->count;
    TRY(vocab_allocate(v, names, e));
    TRY(read_tokens(v, notation, names, types, e));
    qsort(v->sorted, (size_t)v->n_sorted, sizeof *v->sorted, compare_entries);
    return STATUS_OK;
}

void vocab_free(struct vocab *v)
{
    vocab_end_finding(v);
    free(v->bytes);
    free(v->start);
    free(v->type);
    *v = (struct vocab){0};
}
