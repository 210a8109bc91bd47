#include "exchange/token_names.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "text/byte_alphabet.h"

#define TOKENS_KEY "tokenizer.ggml.tokens"

/* Of tokens with one name, the one that texts become comes first: special ones are looked for
 * before anything else. */
static const int preference[] = {
    [TOKEN_CONTROL] = 0, [TOKEN_USER_DEFINED] = 0, [TOKEN_UNKNOWN] = 0, [TOKEN_UNDEFINED] = 1,
    [TOKEN_NORMAL] = 1,  [TOKEN_BYTE] = 2,         [TOKEN_UNUSED] = 3,
};

struct named {
    struct text name;
    int32_t id;
    int preference;
};

static int compare_named(const void *left, const void *right)
{
    const struct named *a = left;
    const struct named *b = right;
    const int order = text_order(a->name, b->name);
    if (order != 0)
        return order;
    return a->preference != b->preference
               ? (a->preference > b->preference) - (a->preference < b->preference)
               : (a->id > b->id) - (a->id < b->id);
}

static bool is_utf8(struct text s)
{
    uint32_t code = 0;
    while (s.len > 0 && code != UNICODE_INVALID)
        (void)utf8_next(&s, &code);
    return code != UNICODE_INVALID;
}

/* --- names from the file --------------------------------------------------------------------- */

static enum status allocate(struct token_names *t, int n, struct named **list, struct err *e)
{
    const size_t count = (size_t)n + 1; /* there may be no tokens */
    *t = (struct token_names){.n = n};
    t->name = calloc(count, sizeof *t->name);
    t->replaced = calloc(count, sizeof *t->replaced);
    t->byte = calloc(256, sizeof *t->byte);
    *list = calloc(count, sizeof **list);
    if (!t->name || !t->replaced || !t->byte || !*list)
        return err_no_memory(e, "names of tokens",
                             count * (sizeof *t->name + sizeof *t->replaced + sizeof **list));
    return STATUS_OK;
}

static enum status read_names(struct token_names *t, const struct gguf *g, const struct vocab *v,
                              enum vocab_notation notation, struct named *list, struct err *e)
{
    struct gguf_cursor cursor = {0};
    struct text name;
    for (int id = 0; id < t->n && gguf_next_text(gguf_find(g, TOKENS_KEY), &cursor, &name); id++) {
        const enum token_type type = v->type[id];
        const int byte =
            notation == VOCAB_BYTES && type == TOKEN_BYTE ? vocab_hex_byte(name, type) : -1;
        if (byte >= 0)
            name = (struct text){t->byte[byte],
                                 byte_alphabet_write((unsigned char)byte, t->byte[byte])};
        if (!is_utf8(name))
            return err_set(e, STATUS_BAD_FILE,
                           "%s element %d: expected UTF-8, without which it cannot be exported, "
                           "found \"%.*s\"",
                           TOKENS_KEY, id, text_width(name), name.data);
        t->name[id] = name;
        list[id] = (struct named){name, id, preference[type]};
    }
    return STATUS_OK;
}

/* --- names that are made --------------------------------------------------------------------- */

/* Of the tokens of one name all but the first are replaced. */
static enum status find_twins(struct token_names *t, const struct vocab *v,
                              const struct named *list, struct err *e)
{
    t->first = t->n;
    for (int i = 1, first = 0; i < t->n; i++) {
        if (!text_equal(list[first].name, list[i].name)) {
            first = i;
            continue;
        }
        const int one = list[first].id, other = list[i].id;
        t->replaced[other] = true;
        if (v->type[other] == TOKEN_UNUSED)
            continue;
        if (!text_equal(vocab_bytes(v, one), vocab_bytes(v, other)))
            return err_set(e, STATUS_BAD_FILE,
                           "%s: expected names that are one token's each, as exported files need, "
                           "found tokens %d and %d, for different texts, to be \"%.*s\"",
                           TOKENS_KEY, one, other, text_width(list[i].name), list[i].name.data);
        t->twice++;
        t->first = other < t->first ? other : t->first;
    }
    return STATUS_OK;
}

static bool has_name(const struct token_names *t, const struct named *list, struct text name)
{
    int low = 0, high = t->n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (text_order(list[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->n && text_equal(list[low].name, name);
}

static struct text padding_name(int id, char out[16])
{
    const int len = snprintf(out, 16, "[PAD%d]", id);
    return (struct text){out, (size_t)len};
}

bool token_names_is_padding(const struct token_names *t, int id)
{
    char name[16];
    return text_equal(t->name[id], padding_name(id, name));
}

static enum status make_names(struct token_names *t, const struct named *list, struct err *e)
{
    size_t n = 0;
    for (int id = 0; id < t->n; id++)
        n += t->replaced[id];
    t->made = calloc(n + 1, sizeof *t->made);
    if (!t->made)
        return err_no_memory(e, "names of tokens", (n + 1) * sizeof *t->made);
    for (int id = 0, i = 0; id < t->n; id++) {
        if (!t->replaced[id])
            continue;
        t->name[id] = padding_name(id, t->made[i++]);
        if (has_name(t, list, t->name[id]))
            return err_set(e, STATUS_BAD_FILE,
                           "%s: expected no token to be called \"%s\", as token %d, whose name is "
                           "another's, is exported",
                           TOKENS_KEY, t->name[id].data, id);
    }
    return STATUS_OK;
}

static enum status fill(struct token_names *t, const struct gguf *g, const struct vocab *v,
                        enum vocab_notation notation, bool hides_unused, struct named *list,
                        struct err *e)
{
    TRY(read_names(t, g, v, notation, list, e));
    qsort(list, (size_t)t->n, sizeof *list, compare_named);
    TRY(find_twins(t, v, list, e));
    for (int id = 0; id < t->n; id++)
        if (v->type[id] == TOKEN_UNUSED && (hides_unused || t->name[id].len == 0))
            t->replaced[id] = !token_names_is_padding(t, id);
    return make_names(t, list, e);
}

enum status token_names_make(const struct gguf *g, const struct vocab *v,
                             enum vocab_notation notation, bool hides_unused,
                             struct token_names *out, struct err *e)
{
    struct named *list;
    enum status s = allocate(out, v->n, &list, e);
    if (s == STATUS_OK)
        s = fill(out, g, v, notation, hides_unused, list, e);
    free(list);
    return s;
}

void token_names_free(struct token_names *t)
{
    free(t->name);
    free(t->replaced);
    free(t->byte);
    free(t->made);
    *t = (struct token_names){.n = 0};
}
