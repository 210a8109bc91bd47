#include "text/bpe.h"

#include <stdlib.h>

#include "base/contract.h"
#include "text/byte_alphabet.h"

#define MERGES_KEY "tokenizer.ggml.merges"

/* --- reading the merges ---------------------------------------------------------------------- */

static enum status find_bytes(struct bpe *b, const struct vocab *v, struct err *e)
{
    for (int byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        int twin;
        b->byte_id[byte] = vocab_find(v, (struct text){&c, 1}, &twin);
        if (twin >= 0)
            return err_set(e, STATUS_BAD_FILE,
                           "tokenizer.ggml.tokens: expected one token for byte 0x%02X, found %d "
                           "and %d",
                           (unsigned)byte, b->byte_id[byte], twin);
        if (b->byte_id[byte] < 0)
            b->lacks_bytes = true;
    }
    return STATUS_OK;
}

static enum status merge_error(struct err *e, size_t rank, struct text merge, const char *expected)
{
    return err_set(e, STATUS_BAD_FILE, "%s element %zu: expected %s, found \"%.*s\"", MERGES_KEY,
                   rank, expected, text_width(merge), merge.data);
}

/* The token of some bytes of a merge; -1 if there is none. */
static enum status find_part(const struct vocab *v, struct text bytes, size_t rank, int32_t *id,
                             struct err *e)
{
    int twin;
    *id = vocab_find(v, bytes, &twin);
    if (twin >= 0)
        return err_set(e, STATUS_BAD_FILE,
                       "%s element %zu: expected tokens that are one each, found %d and %d alike",
                       MERGES_KEY, rank, *id, twin);
    return STATUS_OK;
}

/* *len bytes that the parts of a merge stand for, *left_len of them the left part's, at `buffer`,
 * which has room for the merge. */
static enum status read_parts(size_t rank, struct text merge, char *buffer, size_t *left_len,
                              size_t *len, struct err *e)
{
    /* From index 1: a part may start with a space, were it written raw. */
    const char *space = merge.len > 1 ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
    const size_t cut = space ? (size_t)(space - merge.data) : 0;
    if (!space || cut + 1 == merge.len)
        return merge_error(e, rank, merge, "two parts with a space between");
    const struct text left = {merge.data, cut}, right = {space + 1, merge.len - cut - 1};
    size_t right_len;
    if (!byte_alphabet_decode(left, buffer, left_len) ||
        !byte_alphabet_decode(right, buffer + *left_len, &right_len))
        return merge_error(e, rank, merge, "characters that stand for bytes");
    *len = *left_len + right_len;
    return STATUS_OK;
}

/* The pair of a merge. *happens is false where a part or the result is no token: nothing leads to
 * such a merge, or nothing could be said of its result. */
static enum status read_merge(const struct vocab *v, size_t rank, struct text merge, char *buffer,
                              struct symbol_pair *pair, bool *happens, struct err *e)
{
    size_t left, len;
    TRY(read_parts(rank, merge, buffer, &left, &len, e));
    pair->rank = (int32_t)rank;
    TRY(find_part(v, (struct text){buffer, left}, rank, &pair->left, e));
    TRY(find_part(v, (struct text){buffer + left, len - left}, rank, &pair->right, e));
    TRY(find_part(v, (struct text){buffer, len}, rank, &pair->result, e));
    *happens = pair->left >= 0 && pair->right >= 0 && pair->result >= 0;
    return STATUS_OK;
}

/* Fills pairs, which has room for all, with the *n that happen. */
static enum status read_merges(const struct vocab *v, const struct gguf_value *merges,
                               struct symbol_pair *pairs, size_t *n, struct err *e)
{
    size_t longest = 0;
    struct gguf_cursor cursor = {0};
    struct text merge;
    while (gguf_next_text(merges, &cursor, &merge))
        longest = merge.len > longest ? merge.len : longest;
    char *buffer = malloc(longest + 1);
    if (!buffer)
        return err_no_memory(e, "reading the merges", longest + 1);

    enum status s = STATUS_OK;
    cursor = (struct gguf_cursor){0};
    for (size_t rank = 0; s == STATUS_OK && gguf_next_text(merges, &cursor, &merge); rank++) {
        bool happens = false;
        s = read_merge(v, rank, merge, buffer, &pairs[*n], &happens, e);
        *n += happens;
    }
    free(buffer);
    return s;
}

static enum status check_pairs(const struct merging *m, size_t n, struct err *e)
{
    for (size_t i = 1; i < n; i++) {
        const struct symbol_pair *p = &m->pairs[i];
        if (p[-1].left == p->left && p[-1].right == p->right)
            return err_set(e, STATUS_BAD_FILE,
                           "%s element %d: expected each pair once, found that of element %d",
                           MERGES_KEY, p->rank, p[-1].rank);
    }
    return STATUS_OK;
}

/* NULL where there are no merges; then the array's element type means nothing. */
static enum status get_merges(const struct gguf *g, const struct gguf_value **merges, struct err *e)
{
    *merges = NULL;
    const struct gguf_value *any = gguf_find(g, MERGES_KEY);
    if (!any || (any->kind == GGUF_ARRAY && any->count == 0))
        return STATUS_OK;
    const enum status s = gguf_get_array(g, MERGES_KEY, GGUF_STRING, merges, NULL, e);
    if (s == STATUS_OK && (*merges)->count >= INT32_MAX)
        return err_set(e, STATUS_BAD_FILE, "%s: expected fewer than %d elements, found %llu",
                       MERGES_KEY, INT32_MAX, (unsigned long long)(*merges)->count);
    return s;
}

enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e)
{
    *b = (struct bpe){.lacks_bytes = false};
    const struct gguf_value *merges;
    TRY(get_merges(g, &merges, e));
    TRY(find_bytes(b, v, e));
    const size_t most = merges ? (size_t)merges->count : 0;
    size_t n = 0;
    struct symbol_pair *pairs = calloc(most + 1, sizeof *pairs);
    if (!pairs)
        return err_no_memory(e, "merges", (most + 1) * sizeof *pairs);
    const enum status s = merges ? read_merges(v, merges, pairs, &n, e) : STATUS_OK;
    if (s != STATUS_OK) {
        free(pairs);
        return s;
    }
    TRY(merging_init(&b->merging, pairs, n, v->n, e));
    return check_pairs(&b->merging, n, e);
}

void bpe_free(struct bpe *b)
{
    merging_free(&b->merging);
    *b = (struct bpe){.lacks_bytes = false};
}

/* --- encoding -------------------------------------------------------------------------------- */

static bool has_all_tokens(const struct bpe *b, struct text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (b->byte_id[(unsigned char)text.data[i]] < 0)
            return false;
    return true;
}

enum status bpe_encode(const struct bpe *b, struct merge_scratch *scratch, struct text text,
                       struct id_list *out, struct err *e)
{
    const size_t n = text.len;
    assert(n > 0);
    assert_costly(has_all_tokens(b, text));
    if (n == 1)
        return id_list_add(out, b->byte_id[(unsigned char)text.data[0]], e);
    TRY(merge_reserve(scratch, n, e));
    for (size_t i = 0; i < n; i++)
        scratch->spans[i] = b->byte_id[(unsigned char)text.data[i]];
    merge_run(&b->merging, scratch, n);
    for (size_t i = 0; i < n; i = merge_end(scratch->spans, n, i))
        TRY(id_list_add(out, scratch->spans[i], e));
    return STATUS_OK;
}
