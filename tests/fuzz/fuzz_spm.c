/*
 * fuzz_spm - SentencePiece's BPE by scores on small vocabularies and texts.
 *
 * Input: a byte of flags; a byte that counts tokens; for each of them a byte of its type, one of
 * its score, one of its length, and its bytes; then the text. Checks that the vocabulary is refused
 * where it must be, and that encoding agrees with a plain version.
 */
#include <math.h>
#include <stdio.h>

#include "plain_tokens.h"

enum { FLAG_BYTES = 1, FLAG_NO_SPACE = 2, FLAG_NO_SCORES = 4 };
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

#define MARK        "\xe2\x96\x81"
#define MAX_READ    48
#define MAX_TEXT    256
#define MAX_SYMBOLS (3 * MAX_TEXT + 3)

struct table {
    struct plain plain; /* must be the first */
    char hex[256][8];
    int32_t type[PLAIN_TOKENS];
    float score[PLAIN_TOKENS];
    int n_bytes; /* they come first */
    bool adds_space, has_scores;
};

/* --- vocabularies ---------------------------------------------------------------------------- */

static void add_token(struct table *t, struct text name, int32_t type, float score)
{
    const int id = t->plain.n++;
    t->plain.name[id] = name;
    t->plain.special[id] = type == CONTROL || type == USER_DEFINED || type == UNKNOWN;
    t->type[id] = type;
    t->score[id] = score;
}

static void read_tokens(struct table *t, struct choices *in)
{
    static const int32_t types[] = {NORMAL,       NORMAL, NORMAL, NORMAL,  0,
                                    USER_DEFINED, UNUSED, BYTE,   UNKNOWN, CONTROL};
    for (int n = next_byte(in) % (MAX_READ + 1); n > 0; n--) {
        const int32_t type = types[next_byte(in) % COUNT(types)];
        const int score = next_byte(in);
        const struct text name = next_text(in, 1 + (size_t)next_byte(in) % 16);
        if (name.len == 0)
            return;
        add_token(t, name, type, score == 255 ? NAN : (float)score / 4);
    }
}

static void write_table(const struct table *t, struct gguf_bytes *b)
{
    const size_t n = (size_t)t->plain.n;
    gb_text(b, "tokenizer.ggml.model", "llama");
    gb_texts(b, "tokenizer.ggml.tokens", t->plain.name, n);
    gb_i32s(b, "tokenizer.ggml.token_type", t->type, n);
    if (t->has_scores)
        gb_f32s(b, "tokenizer.ggml.scores", t->score, n);
    if (!t->adds_space)
        gb_bool(b, "tokenizer.ggml.add_space_prefix", false);
}

/* --- the plain version ----------------------------------------------------------------------- */

static int hex_digit(char c)
{
    const char *digits = "0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static int byte_of(const struct table *t, int id)
{
    const struct text s = t->plain.name[id];
    const bool may = t->type[id] == BYTE || t->type[id] <= NORMAL;
    if (!may || s.len != 6 || memcmp(s.data, "<0x", 3) != 0 || s.data[5] != '>')
        return -1;
    const int high = hex_digit(s.data[3]), low = hex_digit(s.data[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

static bool is_merged(const struct table *t, int id)
{
    const int32_t type = t->type[id];
    return byte_of(t, id) < 0 && (type <= NORMAL || type == USER_DEFINED || type == UNUSED);
}

static int find(const struct table *t, struct text s)
{
    for (int id = t->n_bytes; id < t->plain.n; id++)
        if (is_merged(t, id) && text_equal(t->plain.name[id], s))
            return id;
    return -1;
}

static int find_byte(const struct table *t, char c)
{
    for (int id = 0; id < t->plain.n; id++)
        if (byte_of(t, id) == (unsigned char)c)
            return id;
    return find(t, (struct text){&c, 1});
}

static bool is_bad(const struct table *t)
{
    for (int id = t->n_bytes; id < t->plain.n; id++)
        if ((t->has_scores && isnan(t->score[id])) ||
            (is_merged(t, id) && find(t, t->plain.name[id]) != id))
            return true;
    return false;
}

static size_t cut_symbols(struct text s, struct text *symbols)
{
    size_t n = 0;
    while (s.len > 0) {
        const unsigned char c = (unsigned char)s.data[0];
        const size_t len = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        symbols[n++] = text_cut(&s, len < s.len ? len : s.len);
    }
    return n;
}

static size_t merge_symbols(const struct table *t, struct text *symbols, size_t n)
{
    for (;;) {
        size_t best = n;
        float highest = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct text both = {symbols[i].data, symbols[i].len + symbols[i + 1].len};
            const int id = find(t, both);
            const float score = id < 0 || !t->has_scores ? 0 : t->score[id];
            if (id >= 0 && (best == n || score > highest)) {
                best = i;
                highest = score;
            }
        }
        if (best == n)
            return n;
        symbols[best].len += symbols[best + 1].len;
        memmove(symbols + best + 1, symbols + best + 2, (n - best - 2) * sizeof *symbols);
        n--;
    }
}

/* False if there is no token for a byte. */
static bool encode_piece(const struct plain *plain, struct text s, struct plain_ids *out)
{
    const struct table *t = (const struct table *)plain;
    static char marked[MAX_SYMBOLS];
    static struct text symbols[MAX_SYMBOLS];
    size_t len = 0;
    for (size_t i = t->adds_space ? 0 : 1; i <= s.len; i++) {
        const char c = i == 0 ? ' ' : s.data[i - 1];
        memcpy(marked + len, c == ' ' ? MARK : &c, c == ' ' ? 3 : 1);
        len += c == ' ' ? 3 : 1;
    }
    const size_t n = merge_symbols(t, symbols, cut_symbols((struct text){marked, len}, symbols));
    for (size_t i = 0; i < n; i++) {
        const int id = find(t, symbols[i]);
        if (id >= 0)
            out->id[out->n++] = id;
        for (size_t k = 0; id < 0 && k < symbols[i].len; k++) {
            const int byte = find_byte(t, symbols[i].data[k]);
            if (byte < 0)
                return false;
            out->id[out->n++] = byte;
        }
    }
    return true;
}

/* --- the checks ------------------------------------------------------------------------------ */

static void check_bytes(const struct table *t, const struct tokenizer *tokenizer)
{
    for (int id = 0; id < t->plain.n; id++) {
        const struct text found = tokenizer_bytes(tokenizer, id), name = t->plain.name[id];
        const int byte = byte_of(t, id);
        if (byte >= 0)
            require(found.len == 1 && (unsigned char)found.data[0] == byte);
        else if (!is_merged(t, id) || t->type[id] == USER_DEFINED)
            require(text_equal(found, name));
        else
            require(found.len > 0 && found.len <= name.len &&
                    !memmem(found.data, found.len, MARK, 3));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct table table;
    struct table *t = &table;
    struct choices in = {data, size};
    struct gguf_bytes b = {0};
    const int flags = next_byte(&in);
    *t = (struct table){.plain = {.encode = encode_piece},
                        .adds_space = !(flags & FLAG_NO_SPACE),
                        .has_scores = !(flags & FLAG_NO_SCORES)};
    for (; flags & FLAG_BYTES && t->n_bytes < 256; t->n_bytes++) {
        char *hex = t->hex[t->n_bytes];
        snprintf(hex, sizeof t->hex[0], "<0x%02X>", (unsigned)t->n_bytes);
        add_token(t, text_of(hex), BYTE, 0);
    }
    read_tokens(t, &in);
    if (t->plain.n == 0)
        return 0;
    write_table(t, &b);
    struct tokenizer *tokenizer = tokenizer_of(&b);
    require(is_bad(t) == !tokenizer);
    if (!tokenizer)
        return 0;
    check_bytes(t, tokenizer);
    check_plainly(&t->plain, tokenizer, next_text(&in, MAX_TEXT));
    tokenizer_free(tokenizer);
    return 0;
}
