#include <inttypes.h>

#include "base/mem.h"
#include "formats/gguf_values.h"
#include "text/private.h"
#include "text/unicode.h"

#define MERGES_KEY "tokenizer.ggml.merges"

/* Reads a merge as a pair, whose symbols may be -1: no token. `buffer` has room for the merge. */
static enum status read_merge(const struct vocab *v, size_t rank, struct text merge, char *buffer,
                              struct symbol_pair *pair, struct err *e)
{
    /* From index 1: a part may start with a space, were it written raw. */
    const char *space = merge.len > 1 ? memchr(merge.data + 1, ' ', merge.len - 1) : NULL;
    struct text rest = merge, left = {buffer, 0}, right = {0};
    const char *expected = NULL;
    if (!space || space + 1 == merge.data + merge.len) {
        expected = "two parts with a space between";
    } else {
        const bool decoded =
            byte_alphabet_decode(text_cut(&rest, space - merge.data), buffer, &left.len);
        text_cut(&rest, 1);
        right.data = buffer + left.len;
        if (!decoded || !byte_alphabet_decode(rest, buffer + left.len, &right.len))
            expected = "characters that stand for bytes";
    }
    if (expected)
        return err_bad_file(e, "%s element %zu: expected %s, found \"%.*s\"", MERGES_KEY, rank,
                            expected, text_width(merge), merge.data);
    const struct text texts[] = {left, right, {buffer, left.len + right.len}};
    int ids[3], twin;
    for (int i = 0; i < 3; i++) {
        ids[i] = vocab_find(v, texts[i], &twin);
        if (twin >= 0)
            return err_bad_file(
                e, "%s element %zu: expected tokens that are one each, found %d and %d alike",
                MERGES_KEY, rank, ids[i], twin);
    }
    *pair = (struct symbol_pair){ids[0], ids[1], (int32_t)rank, ids[2]};
    return STATUS_OK;
}

/* Fills in b->merging's pairs, and b->n_merges. */
static enum status read_merges(struct bpe *b, const struct vocab *v, const struct gguf *g,
                               struct err *e)
{
    const struct gguf_value *merges = gguf_find(g, MERGES_KEY);
    if (!merges || (merges->kind == GGUF_ARRAY && merges->count == 0))
        return STATUS_OK; /* the element type of none means nothing */
    TRY(gguf_get_array(g, MERGES_KEY, GGUF_STRING, &merges, NULL, e));
    if (merges->count >= INT32_MAX)
        return err_bad_file(e, "%s: expected fewer than %d elements, found %" PRIu64, MERGES_KEY,
                            INT32_MAX, merges->count);
    char *buffer = malloc(merges->bytes.len); /* more than the longest */
    struct symbol_pair *pairs = b->merging.pairs = calloc(merges->count, sizeof *pairs);
    enum status s = STATUS_OK;
    if (!buffer || !pairs)
        s = err_no_memory(e, "merges", merges->bytes.len + merges->count * sizeof *pairs);
    struct gguf_cursor cursor = {0};
    struct text merge;
    for (size_t rank = 0; s == STATUS_OK && gguf_next_text(merges, &cursor, &merge); rank++) {
        struct symbol_pair *p = &pairs[b->n_merges];
        s = read_merge(v, rank, merge, buffer, p, e);
        /* A part that is no token never occurs; a result that is none could not be written. */
        b->n_merges += s == STATUS_OK && p->left >= 0 && p->right >= 0 && p->result >= 0;
    }
    free(buffer);
    return s;
}

enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e)
{
    *b = (struct bpe){.n_merges = 0};
    for (int byte = 0; byte < 256; byte++) {
        const char c = byte;
        int twin;
        b->byte_id[byte] = vocab_find(v, text_span(&c, 1), &twin);
        if (twin >= 0)
            return err_bad_file(
                e, "tokenizer.ggml.tokens: expected one token for byte 0x%02X, found %d and %d",
                byte, b->byte_id[byte], twin);
    }
    TRY(read_merges(b, v, g, e));
    TRY(merging_init(&b->merging, b->merging.pairs, b->n_merges, v->n, e));
    for (size_t i = 1; i < b->n_merges; i++) {
        const struct symbol_pair *p = &b->merging.pairs[i];
        if (p[-1].left == p->left && p[-1].right == p->right)
            return err_bad_file(e,
                                "%s element %d: expected each pair once, found that of element %d",
                                MERGES_KEY, p->rank, p[-1].rank);
    }
    return STATUS_OK;
}

enum status bpe_encode(const struct bpe *b, struct encoding *c, struct text piece, struct err *e)
{
    const size_t n = piece.len;
    assert(n > 0);
    TRY(merge_reserve(&c->merge, n, e));
    int32_t *spans = c->merge.spans;
    for (size_t i = 0; i < n; i++) {
        spans[i] = b->byte_id[(unsigned char)piece.data[i]];
        if (spans[i] < 0)
            return lacks_token(c->text, piece.data + i - c->text.data, e);
    }
    if (n > 1)
        merge_run(&b->merging, &c->merge, n);
    for (size_t i = 0; i < n; i = merge_end(spans, n, i))
        TRY(id_list_add(&c->list, spans[i], e));
    return STATUS_OK;
}
