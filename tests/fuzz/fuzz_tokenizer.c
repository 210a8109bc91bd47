/*
 * fuzz_tokenizer - the tokenizer on small vocabularies and texts.
 *
 * Input: a byte of flags (the rule in two bits, see rules), then either a whole GGUF file (flag 1),
 * or a table of merges and one of special tokens in a few bytes each (see build_merges and
 * build_specials), and the text. Checks that decoding gives the text back, and that encoding agrees
 * with a plain version.
 */
#include "../gguf_bytes.h"
#include "round_trip.h"
#include "text/pretokenize.h"

enum { FLAG_FILE = 1, FLAG_RULE = 2, FLAG_NO_TYPES = 4, FLAG_RULE_HIGH = 8 };

/* By the bits FLAG_RULE and FLAG_RULE_HIGH. */
static const char *const rules[] = {"gpt-2", "starcoder", "llama-bpe", "qwen2"};

#define MAX_MERGES   24
#define MAX_SPECIALS 8
#define MAX_NAME     64 /* bytes of a token that merges make */
#define MAX_TOKENS   (256 + MAX_MERGES + MAX_SPECIALS)
#define MAX_TEXT     4096

struct merge {
    int left, right, result;
};

struct table {
    struct text name[MAX_TOKENS];
    bool special[MAX_TOKENS];
    int n;
    char bytes[256 + MAX_MERGES][MAX_NAME];
    struct merge merges[MAX_MERGES];
    int n_merges;
    int first_special;
    bool has_types;
    const struct pretokenizer *pre;
};

/* --- vocabularies ---------------------------------------------------------------------------- */

static int find_token(const struct table *t, struct text bytes)
{
    for (int id = 0; id < t->n; id++)
        if (text_equal(t->name[id], bytes))
            return id;
    return -1;
}

static const struct merge *find_merge(const struct table *t, int left, int right)
{
    for (const struct merge *m = t->merges; m < t->merges + t->n_merges; m++)
        if (m->left == left && m->right == right)
            return m;
    return NULL;
}

/* A token's index of those known so far. */
static int next_side(const struct table *t, struct choices *in)
{
    const int byte = next_byte(in), made = t->n - 256;
    return byte >= 128 && made > 0 ? 256 + byte % made : byte;
}

static void add_merge(struct table *t, int left, int right)
{
    const struct text a = t->name[left], b = t->name[right];
    if (a.len + b.len > MAX_NAME || find_merge(t, left, right))
        return;
    char *joined = t->bytes[t->n];
    const struct text both = {joined, a.len + b.len};
    memcpy(joined, a.data, a.len);
    memcpy(joined + a.len, b.data, b.len);
    int id = find_token(t, both);
    if (id < 0) {
        id = t->n++;
        t->name[id] = both;
    }
    t->merges[t->n_merges++] = (struct merge){left, right, id};
}

/* A count, then for each merge the indices of two tokens known so far; the merges are listed
 * from a place in the middle, so that results take part in earlier merges too. */
static void build_merges(struct table *t, struct choices *in)
{
    for (int n = next_byte(in) % (MAX_MERGES + 1); n > 0; n--) {
        const int left = next_side(t, in), right = next_side(t, in);
        add_merge(t, left, right);
    }
    if (t->n_merges == 0)
        return;
    struct merge old[MAX_MERGES];
    memcpy(old, t->merges, sizeof old);
    const int from = next_byte(in) % t->n_merges;
    for (int m = 0; m < t->n_merges; m++)
        t->merges[m] = old[(m + from) % t->n_merges];
}

/* A count, then for each special token its length and bytes. */
static void build_specials(struct table *t, struct choices *in)
{
    for (int n = next_byte(in) % (MAX_SPECIALS + 1); n > 0; n--) {
        const struct text name = next_text(in, 1 + (size_t)next_byte(in) % 16);
        if (name.len == 0)
            return;
        t->special[t->n] = true;
        t->name[t->n++] = name;
    }
}

/* One or two tokens in the alphabet of bytes. */
static void put_written(struct gguf_bytes *b, struct text left, const char *between,
                        struct text right)
{
    char s[4 * MAX_NAME + 1];
    size_t len = 0;
    for (size_t i = 0; i < left.len; i++)
        len += byte_alphabet_write((unsigned char)left.data[i], s + len);
    if (*between)
        s[len++] = *between;
    for (size_t i = 0; i < right.len; i++)
        len += byte_alphabet_write((unsigned char)right.data[i], s + len);
    gb_put_text(b, (struct text){s, len});
}

static void write_table(const struct table *t, struct gguf_bytes *b)
{
    gb_text(b, "tokenizer.ggml.model", "gpt2");
    gb_text(b, "tokenizer.ggml.pre", t->pre->names[0]);
    gb_array(b, "tokenizer.ggml.tokens", GGUF_STRING, (uint64_t)t->n);
    for (int id = 0; id < t->n; id++)
        if (t->special[id])
            gb_put_text(b, t->name[id]);
        else
            put_written(b, t->name[id], "", (struct text){NULL, 0});
    if (t->has_types) {
        gb_array(b, "tokenizer.ggml.token_type", GGUF_I32, (uint64_t)t->n);
        for (int id = 0; id < t->n; id++)
            gb_put_u32(b, t->special[id] ? 3 + (uint32_t)id % 2 : 1);
    }
    gb_array(b, "tokenizer.ggml.merges", GGUF_STRING, (uint64_t)t->n_merges);
    for (int m = 0; m < t->n_merges; m++)
        put_written(b, t->name[t->merges[m].left], " ", t->name[t->merges[m].right]);
}

/* --- the plain version ----------------------------------------------------------------------- */

static size_t merge_piece(const struct table *t, struct text piece, int32_t *ids)
{
    size_t n = piece.len;
    for (size_t i = 0; i < n; i++)
        ids[i] = (unsigned char)piece.data[i];
    for (;;) {
        const struct merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct merge *m = find_merge(t, ids[i], ids[i + 1]);
            if (m && (!best || m < best)) {
                best = m;
                at = i;
            }
        }
        if (!best)
            return n;
        ids[at] = best->result;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

struct plain_ids {
    int32_t id[MAX_TEXT];
    size_t n;
};

/* Of what has no special token in it. */
static void encode_pieces(const struct table *t, struct text s, struct plain_ids *out)
{
    while (s.len > 0) {
        const size_t len = pretokenize_next(t->pre->rule, s);
        require(len > 0 && len <= s.len);
        const struct text piece = text_cut(&s, len);
        const int whole = t->pre->whole_pieces ? find_token(t, piece) : -1;
        if (whole >= 0 && whole < t->first_special)
            out->id[out->n++] = whole;
        else
            out->n += merge_piece(t, piece, out->id + out->n);
    }
}

static bool text_starts(struct text s, struct text with)
{
    return with.len <= s.len && memcmp(with.data, s.data, with.len) == 0;
}

static int longest_special(const struct table *t, struct text s)
{
    int best = -1;
    for (int id = 0; id < t->n; id++)
        if (t->special[id] && text_starts(s, t->name[id]) &&
            (best < 0 || t->name[id].len > t->name[best].len))
            best = id;
    return best;
}

/* The special tokens first, the longest at each place, then what is between them. */
static void encode_plainly(const struct table *t, struct text s, struct plain_ids *out)
{
    out->n = 0;
    while (s.len > 0) {
        const int special = longest_special(t, s);
        struct text between = {s.data, 0};
        if (special >= 0) {
            out->id[out->n++] = special;
            text_cut(&s, t->name[special].len);
            continue;
        }
        while (s.len > 0 && longest_special(t, s) < 0)
            between.len += text_cut(&s, 1).len;
        encode_pieces(t, between, out);
    }
}

/* --- the checks ------------------------------------------------------------------------------ */

static void try_file(struct choices in)
{
    struct gguf *g;
    if (gguf_parse(in.at, in.left, &g, NULL) != STATUS_OK)
        return;
    tokenizer_free(try_vocabulary(g));
    gguf_free(g);
}

static void compare(const struct table *t, const struct tokenizer *tokenizer, struct text s)
{
    static struct plain_ids plain;
    int32_t *ids;
    size_t n;
    require(tokenizer_encode(tokenizer, s, &ids, &n, NULL) == STATUS_OK);
    encode_plainly(t, s, &plain);
    require(n == plain.n && (n == 0 || memcmp(ids, plain.id, n * sizeof *ids) == 0));
    free(ids);
}

static void try_table(int flags, struct choices in)
{
    static struct table table;
    struct table *t = &table;
    struct gguf_bytes b = {0};
    const int rule = (flags & FLAG_RULE ? 1 : 0) + (flags & FLAG_RULE_HIGH ? 2 : 0);
    *t = (struct table){.n = 256,
                        .pre = pretokenizer_find(text_of(rules[rule])),
                        .has_types = !(flags & FLAG_NO_TYPES)};
    for (int id = 0; id < 256; id++) {
        t->bytes[id][0] = (char)id;
        t->name[id] = (struct text){t->bytes[id], 1};
    }
    build_merges(t, &in);
    t->first_special = t->n;
    if (t->has_types)
        build_specials(t, &in);
    write_table(t, &b);
    struct gguf *g;
    struct tokenizer *tokenizer;
    require(gguf_parse(b.data, b.len, &g, NULL) == STATUS_OK);
    require(tokenizer_create(g, &tokenizer, NULL) == STATUS_OK);
    gguf_free(g);
    free(b.data);
    const struct text s = next_text(&in, MAX_TEXT);
    compare(t, tokenizer, s);
    round_trip(tokenizer, s, true);
    tokenizer_free(tokenizer);
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
