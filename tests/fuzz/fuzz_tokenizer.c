/*
 * fuzz_tokenizer - the tokenizer on small vocabularies and texts.
 *
 * Input: a byte of flags (the rule in two bits, see rules), then either a whole GGUF file (flag 1),
 * or a table of merges and one of special tokens in a few bytes each (see build_merges and
 * build_specials), and the text. Checks that decoding gives the text back, and that encoding agrees
 * with a plain version that looks at everything every time.
 */
#include <stdlib.h>
#include <string.h>

#include "../gguf_bytes.h"
#include "round_trip.h"
#include "target.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

enum { FLAG_FILE = 1, FLAG_RULE = 2, FLAG_NO_TYPES = 4, FLAG_RULE_HIGH = 8 };

/* By the bits FLAG_RULE and FLAG_RULE_HIGH. */
static const char *const rules[] = {"gpt-2", "starcoder", "llama-bpe", "qwen2"};

#define MAX_MERGES   24
#define MAX_SPECIALS 8
#define MAX_TOKENS   (256 + MAX_MERGES + MAX_SPECIALS)
#define MAX_NAME     64 /* bytes of a token that merges make */

struct table {
    char bytes[256 + MAX_MERGES][MAX_NAME];
    struct text token[MAX_TOKENS]; /* its bytes */
    int n_tokens;
    int left[MAX_MERGES], right[MAX_MERGES], result[MAX_MERGES];
    int n_merges;
    int first_special;
    bool has_types;
    const struct pretokenizer *pre;
};

/* --- vocabularies ---------------------------------------------------------------------------- */

static int find_token(const struct table *t, struct text bytes)
{
    for (int id = 0; id < t->n_tokens; id++)
        if (text_equal(t->token[id], bytes))
            return id;
    return -1;
}

static bool has_merge(const struct table *t, int left, int right)
{
    for (int m = 0; m < t->n_merges; m++)
        if (t->left[m] == left && t->right[m] == right)
            return true;
    return false;
}

/* A count, then for each merge the indices of two tokens known so far; the merges are listed
 * from a place in the middle, so that results take part in earlier merges too. */
static void build_merges(struct table *t, struct choices *in)
{
    for (int n = next_byte(in) % (MAX_MERGES + 1); n > 0; n--) {
        int side[2];
        for (int i = 0; i < 2; i++) {
            const int byte = next_byte(in);
            const int made = t->n_tokens - 256;
            side[i] = byte >= 128 && made > 0 ? 256 + byte % made : byte;
        }
        char joined[2 * MAX_NAME];
        const struct text a = t->token[side[0]];
        const struct text b = t->token[side[1]];
        if (a.len + b.len > MAX_NAME || has_merge(t, side[0], side[1]))
            continue;
        memcpy(joined, a.data, a.len);
        memcpy(joined + a.len, b.data, b.len);
        int id = find_token(t, (struct text){joined, a.len + b.len});
        if (id < 0) {
            id = t->n_tokens++;
            memcpy(t->bytes[id], joined, a.len + b.len);
            t->token[id] = (struct text){t->bytes[id], a.len + b.len};
        }
        t->left[t->n_merges] = side[0];
        t->right[t->n_merges] = side[1];
        t->result[t->n_merges++] = id;
    }
    if (t->n_merges == 0)
        return;
    const struct table old = *t;
    const int from = next_byte(in) % t->n_merges;
    for (int m = 0; m < t->n_merges; m++) {
        const int o = (m + from) % t->n_merges;
        t->left[m] = old.left[o];
        t->right[m] = old.right[o];
        t->result[m] = old.result[o];
    }
}

/* A count, then for each special token its length and bytes. */
static void build_specials(struct table *t, struct choices *in)
{
    t->first_special = t->n_tokens;
    for (int n = next_byte(in) % (MAX_SPECIALS + 1); n > 0; n--) {
        const struct text name = next_text(in, 1 + (size_t)next_byte(in) % 16);
        if (name.len == 0)
            return;
        t->token[t->n_tokens++] = name;
    }
}

static void put_written(struct gguf_bytes *b, struct text bytes)
{
    for (size_t i = 0; i < bytes.len; i++) {
        char c[2];
        gb_put(b, c, byte_alphabet_write((unsigned char)bytes.data[i], c));
    }
}

/* Puts a string whose length is known only after it is written. */
static void put_string(struct gguf_bytes *b, struct text left, const char *between,
                       struct text right)
{
    const size_t at = b->len;
    gb_put_u64(b, 0);
    put_written(b, left);
    gb_put(b, between, strlen(between));
    put_written(b, right);
    const uint64_t len = b->len - at - sizeof len;
    memcpy(b->data + at, &len, sizeof len);
}

static void write_table(const struct table *t, struct gguf_bytes *b)
{
    gb_text(b, "tokenizer.ggml.model", "gpt2");
    gb_text(b, "tokenizer.ggml.pre", t->pre->names[0]);
    gb_array(b, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)t->n_tokens);
    for (int id = 0; id < t->n_tokens; id++)
        if (id < t->first_special)
            put_string(b, t->token[id], "", (struct text){NULL, 0});
        else
            gb_put_text(b, t->token[id]);
    if (t->has_types) {
        gb_array(b, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)t->n_tokens);
        for (int id = 0; id < t->n_tokens; id++)
            gb_put_u32(b, id < t->first_special ? 1 : 3 + (uint32_t)id % 2);
    }
    gb_array(b, "tokenizer.ggml.merges", GGUF_STRING, (uint64_t)t->n_merges);
    for (int m = 0; m < t->n_merges; m++)
        put_string(b, t->token[t->left[m]], " ", t->token[t->right[m]]);
}

/* --- the plain version ----------------------------------------------------------------------- */

static int longest_special(const struct table *t, struct text s)
{
    int best = -1;
    if (!t->has_types)
        return best;
    for (int id = t->first_special; id < t->n_tokens; id++)
        if (t->token[id].len <= s.len && memcmp(t->token[id].data, s.data, t->token[id].len) == 0 &&
            (best < 0 || t->token[id].len > t->token[best].len))
            best = id;
    return best;
}

static size_t merge_piece(const struct table *t, struct text piece, int32_t *ids)
{
    size_t n = piece.len;
    for (size_t i = 0; i < n; i++)
        ids[i] = (unsigned char)piece.data[i];
    for (;;) {
        int best = t->n_merges;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (int m = 0; m < best; m++)
                if (t->left[m] == ids[i] && t->right[m] == ids[i + 1]) {
                    best = m;
                    at = i;
                }
        if (best == t->n_merges)
            return n;
        ids[at] = t->result[best];
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static size_t encode_piece(const struct table *t, struct text piece, int32_t *ids)
{
    const int whole = t->pre->whole_pieces ? find_token(t, piece) : -1;
    if (whole < 0 || whole >= t->first_special)
        return merge_piece(t, piece, ids);
    *ids = whole;
    return 1;
}

/* `ids` has room for s.len. */
static size_t encode_plainly(const struct table *t, struct text s, int32_t *ids)
{
    size_t n = 0;
    size_t at = 0;
    while (at < s.len) {
        const int special = longest_special(t, (struct text){s.data + at, s.len - at});
        if (special >= 0) {
            ids[n++] = special;
            at += t->token[special].len;
            continue;
        }
        size_t end = at + 1;
        while (end < s.len && longest_special(t, (struct text){s.data + end, s.len - end}) < 0)
            end++;
        while (at < end) {
            struct text piece = {s.data + at, end - at};
            piece.len = pretokenize_next(t->pre->rule, piece);
            require(piece.len > 0 && piece.len <= end - at);
            n += encode_piece(t, piece, ids + n);
            at += piece.len;
        }
    }
    return n;
}

/* --- the checks ------------------------------------------------------------------------------ */

/* NULL, and why, if it is refused; *exact: see keeps_texts. */
static struct tokenizer *open_tokenizer(const void *bytes, size_t len, bool *exact)
{
    struct gguf *g;
    struct err e;
    if (gguf_parse(bytes, len, &g, &e) != STATUS_OK)
        return NULL;
    struct tokenizer *t;
    const enum status s = tokenizer_create(g, &t, &e);
    require((s == STATUS_OK) == (t != NULL) && (t || e.text[0]));
    *exact = keeps_texts(g);
    gguf_free(g);
    return t;
}

static void try_file(struct choices in)
{
    bool exact;
    struct tokenizer *t = open_tokenizer(in.at, in.left, &exact);
    if (!t)
        return;
    for (int id = 0; id < tokenizer_n_tokens(t); id++) {
        tokenizer_is_special(t, id);
        round_trip(t, tokenizer_bytes(t, id), exact);
    }
    round_trip(t, text_of("a b  \n\n 12 \xc3\xa9\xe2 \xff"), exact);
    require(tokenizer_bos(t) < tokenizer_n_tokens(t) && tokenizer_eos(t) < tokenizer_n_tokens(t));
    tokenizer_free(t);
}

static void try_table(int flags, struct choices in)
{
    struct table *t = calloc(1, sizeof *t);
    require(t != NULL);
    const int rule = (flags & FLAG_RULE ? 1 : 0) + (flags & FLAG_RULE_HIGH ? 2 : 0);
    t->pre = pretokenizer_find(text_of(rules[rule]));
    t->has_types = !(flags & FLAG_NO_TYPES);
    for (t->n_tokens = 0; t->n_tokens < 256; t->n_tokens++) {
        t->bytes[t->n_tokens][0] = (char)t->n_tokens;
        t->token[t->n_tokens] = (struct text){t->bytes[t->n_tokens], 1};
    }
    build_merges(t, &in);
    if (t->has_types)
        build_specials(t, &in);
    else
        t->first_special = t->n_tokens;

    struct gguf_bytes b = {0};
    write_table(t, &b);
    bool exact;
    struct tokenizer *tokenizer = open_tokenizer(b.data, b.len, &exact);
    require(tokenizer != NULL && exact);
    free(b.data);

    const struct text s = {(const char *)in.at, in.left < 4096 ? in.left : 4096};
    int32_t *ids;
    size_t n;
    struct err e;
    require(tokenizer_encode(tokenizer, s, &ids, &n, &e) == STATUS_OK);
    round_trip(tokenizer, s, true);
    int32_t *plain = malloc((s.len + 1) * sizeof *plain);
    require(plain != NULL);
    require(encode_plainly(t, s, plain) == n);
    require(n == 0 || memcmp(plain, ids, n * sizeof *ids) == 0);
    free(plain);
    free(ids);
    tokenizer_free(tokenizer);
    free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices in = {data, size};
    const int flags = next_byte(&in);
    if (flags & FLAG_FILE)
        try_file(in);
    else
        try_table(flags, in);
    return 0;
}
