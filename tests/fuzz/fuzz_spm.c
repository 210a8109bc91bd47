/*
 * fuzz_spm - SentencePiece's BPE by scores on small vocabularies and texts.
 *
 * Input: a byte of flags; a byte that counts tokens; for each of them a byte of its type, one of
 * its score, one of its length, and its bytes; then the text. Checks that the vocabulary is refused
 * where it must be, and that encoding agrees with a plain version that looks at everything every
 * time.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../gguf_bytes.h"
#include "target.h"
#include "text/tokenizer.h"

enum { FLAG_BYTES = 1, FLAG_NO_SPACE = 2, FLAG_NO_SCORES = 4 };
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

#define MARK        "\xe2\x96\x81"
#define MAX_READ    48
#define MAX_TOKENS  (256 + MAX_READ)
#define MAX_TEXT    256
#define MAX_SYMBOLS (3 * MAX_TEXT + 3)

struct table {
    char hex[256][8];
    struct text name[MAX_TOKENS];
    int32_t type[MAX_TOKENS];
    float score[MAX_TOKENS];
    int n_bytes, n; /* those of bytes come first */
    bool adds_space, has_scores;
};

/* --- vocabularies ---------------------------------------------------------------------------- */

static void add_bytes(struct table *t)
{
    for (int byte = 0; byte < 256; byte++) {
        snprintf(t->hex[byte], sizeof t->hex[byte], "<0x%02X>", (unsigned)byte);
        t->name[t->n] = text_of(t->hex[byte]);
        t->type[t->n++] = BYTE;
    }
    t->n_bytes = t->n;
}

static void read_tokens(struct table *t, struct choices *in)
{
    static const int32_t types[] = {NORMAL,       NORMAL, NORMAL, NORMAL,  0,
                                    USER_DEFINED, UNUSED, BYTE,   UNKNOWN, CONTROL};
    for (int n = next_byte(in) % (MAX_READ + 1); n > 0; n--) {
        const int32_t type = types[next_byte(in) % (sizeof types / sizeof types[0])];
        const int score = next_byte(in);
        const struct text name = next_text(in, 1 + (size_t)next_byte(in) % 16);
        if (name.len == 0)
            return;
        t->score[t->n] = score == 255 ? NAN : (float)score / 4;
        t->type[t->n] = type;
        t->name[t->n++] = name;
    }
}

static void write_table(const struct table *t, struct gguf_bytes *b)
{
    gb_text(b, "tokenizer.ggml.model", "llama");
    gb_texts(b, "tokenizer.ggml.tokens", t->name, (size_t)t->n);
    gb_i32s(b, "tokenizer.ggml.token_type", t->type, (size_t)t->n);
    if (t->has_scores)
        gb_f32s(b, "tokenizer.ggml.scores", t->score, (size_t)t->n);
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
    const struct text s = t->name[id];
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
    for (int id = t->n_bytes; id < t->n; id++)
        if (is_merged(t, id) && text_equal(t->name[id], s))
            return id;
    return -1;
}

static int find_byte(const struct table *t, char c)
{
    for (int id = 0; id < t->n; id++)
        if (byte_of(t, id) == (unsigned char)c)
            return id;
    return find(t, (struct text){&c, 1});
}

static bool is_bad(const struct table *t)
{
    for (int id = t->n_bytes; id < t->n; id++)
        if ((t->has_scores && isnan(t->score[id])) ||
            (is_merged(t, id) && find(t, t->name[id]) != id))
            return true;
    return false;
}

static int longest_special(const struct table *t, struct text s)
{
    int best = -1;
    for (int id = t->n_bytes; id < t->n; id++) {
        const struct text name = t->name[id];
        const bool special =
            t->type[id] == CONTROL || t->type[id] == USER_DEFINED || t->type[id] == UNKNOWN;
        if (special && name.len <= s.len && memcmp(name.data, s.data, name.len) == 0 &&
            (best < 0 || name.len > t->name[best].len))
            best = id;
    }
    return best;
}

static size_t cut_symbols(struct text s, struct text *symbols)
{
    size_t n = 0;
    while (s.len > 0) {
        const unsigned char c = (unsigned char)s.data[0];
        const size_t len = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        symbols[n].data = s.data;
        symbols[n].len = len < s.len ? len : s.len;
        s.data += symbols[n].len;
        s.len -= symbols[n++].len;
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

struct ids {
    int32_t id[2 * MAX_SYMBOLS];
    size_t n;
};

/* False if there is no token for a byte. */
static bool encode_piece(const struct table *t, struct text s, struct ids *out)
{
    static char marked[MAX_SYMBOLS];
    static struct text symbols[MAX_SYMBOLS];
    size_t len = 0;
    for (size_t i = t->adds_space ? 0 : 1; i <= s.len; i++) {
        const char c = i == 0 ? ' ' : s.data[i - 1];
        memcpy(marked + len, c == ' ' ? MARK : &c, c == ' ' ? 3 : 1);
        len += c == ' ' ? 3 : 1;
    }
    size_t n = cut_symbols((struct text){marked, len}, symbols);
    n = merge_symbols(t, symbols, n);
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

static bool encode_plainly(const struct table *t, struct text s, struct ids *out)
{
    size_t at = 0;
    out->n = 0;
    while (at < s.len) {
        const int special = longest_special(t, (struct text){s.data + at, s.len - at});
        size_t end = at;
        if (special >= 0) {
            out->id[out->n++] = special;
            at += t->name[special].len;
            continue;
        }
        while (end < s.len && longest_special(t, (struct text){s.data + end, s.len - end}) < 0)
            end++;
        if (!encode_piece(t, (struct text){s.data + at, end - at}, out))
            return false;
        at = end;
    }
    return true;
}

/* --- the checks ------------------------------------------------------------------------------ */

static void check_bytes(const struct table *t, const struct tokenizer *tokenizer)
{
    for (int id = 0; id < t->n; id++) {
        const struct text found = tokenizer_bytes(tokenizer, id);
        const int byte = byte_of(t, id);
        if (byte >= 0)
            require(found.len == 1 && (unsigned char)found.data[0] == byte);
        else if (!is_merged(t, id) || t->type[id] == USER_DEFINED)
            require(text_equal(found, t->name[id]));
        else
            require(found.len > 0 && found.len <= t->name[id].len &&
                    !memmem(found.data, found.len, MARK, 3));
    }
}

static void check_text(const struct table *t, const struct tokenizer *tokenizer, struct text s)
{
    static struct ids plain;
    int32_t *ids;
    size_t n;
    struct err e = {{0}};
    const enum status status = tokenizer_encode(tokenizer, s, &ids, &n, &e);
    if (!encode_plainly(t, s, &plain)) {
        require(status == STATUS_USAGE && !ids);
        require_message(&e);
        return;
    }
    require(status == STATUS_OK && n == plain.n);
    require(n == 0 || memcmp(ids, plain.id, n * sizeof *ids) == 0);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct table table;
    struct table *t = &table;
    struct choices in = {data, size};
    const int flags = next_byte(&in);
    *t = (struct table){.adds_space = !(flags & FLAG_NO_SPACE),
                        .has_scores = !(flags & FLAG_NO_SCORES)};
    if (flags & FLAG_BYTES)
        add_bytes(t);
    read_tokens(t, &in);
    if (t->n == 0)
        return 0;

    struct gguf_bytes b = {0};
    struct gguf *g;
    struct tokenizer *tokenizer;
    struct err e = {{0}};
    write_table(t, &b);
    require(gguf_parse(b.data, b.len, &g, &e) == STATUS_OK);
    const enum status s = tokenizer_create(g, &tokenizer, &e);
    gguf_free(g);
    free(b.data);
    if (is_bad(t)) {
        require(s == STATUS_BAD_FILE && !tokenizer);
        require_message(&e);
        return 0;
    }
    require(s == STATUS_OK);
    check_bytes(t, tokenizer);
    check_text(t, tokenizer,
               (struct text){(const char *)in.at, in.left < MAX_TEXT ? in.left : MAX_TEXT});
    tokenizer_free(tokenizer);
    return 0;
}
