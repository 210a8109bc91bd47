#include "text/specials.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

/* The i-th byte from the end. */
static unsigned char byte_back(struct text s, size_t i)
{
    return (unsigned char)s.data[s.len - 1 - i];
}

struct special {
    struct text bytes;
    int32_t id;
};

/* By the bytes read backwards; of equal tokens the lowest id comes first. */
static int compare_specials(const void *left, const void *right)
{
    const struct special *a = left;
    const struct special *b = right;
    const struct text x = a->bytes, y = b->bytes;
    for (size_t i = 0; i < x.len && i < y.len; i++)
        if (byte_back(x, i) != byte_back(y, i))
            return byte_back(x, i) < byte_back(y, i) ? -1 : 1;
    if (x.len != y.len)
        return x.len < y.len ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static bool is_special(const struct vocab *v, int id)
{
    return v->type[id] == TOKEN_CONTROL || v->type[id] == TOKEN_USER_DEFINED ||
           v->type[id] == TOKEN_UNKNOWN;
}

/* --- building -------------------------------------------------------------------------------- */

/* The special tokens that end with a state, as a range of the sorted list. */
struct range {
    uint32_t from, to;
};

struct builder {
    struct special *list;
    uint32_t n;
    struct range *range; /* [max_states] */
    size_t max_states;
};

/* The child of a state by byte, or 0. */
static uint32_t child_of(const struct specials *s, uint32_t state, unsigned char byte)
{
    assert(state < s->n_states);
    uint32_t low = s->child[state];
    uint32_t high = s->child[state + 1];
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (s->byte[middle] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->child[state + 1] && s->byte[low] == byte ? low : 0;
}

/* The state after reading one more byte backwards. */
static uint32_t next_state(const struct specials *s, uint32_t state, unsigned char byte)
{
    while (state != 0) {
        const uint32_t next = child_of(s, state, byte);
        if (next != 0)
            return next;
        state = s->shorter[state];
    }
    return s->after[byte];
}

/* Makes the children of a state of `depth` bytes and its token. */
static void expand(struct specials *s, struct builder *b, uint32_t state, size_t depth)
{
    struct range r = b->range[state];
    s->child[state] = s->n_states;
    s->token[state] = state ? s->token[s->shorter[state]] : -1;
    if (r.from < r.to && b->list[r.from].bytes.len == depth)
        s->token[state] = b->list[r.from].id;
    while (r.from < r.to && b->list[r.from].bytes.len == depth)
        r.from++;
    while (r.from < r.to) {
        const unsigned char byte = byte_back(b->list[r.from].bytes, depth);
        const uint32_t made = s->n_states++;
        assert(made < b->max_states);
        b->range[made].from = r.from;
        while (r.from < r.to && byte_back(b->list[r.from].bytes, depth) == byte)
            r.from++;
        b->range[made].to = r.from;
        s->byte[made] = byte;
        s->shorter[made] = state ? next_state(s, s->shorter[state], byte) : 0;
        if (state == 0)
            s->after[byte] = made;
    }
    s->child[state + 1] = s->n_states;
}

static void expand_all(struct specials *s, struct builder *b)
{
    s->n_states = 1;
    b->range[0] = (struct range){0, b->n};
    size_t depth = 0;
    uint32_t deeper = 1; /* the first state of depth + 1 */
    for (uint32_t state = 0; state < s->n_states; state++) {
        if (state == deeper) {
            depth++;
            deeper = s->n_states;
        }
        expand(s, b, state, depth);
    }
}

static enum status build_automaton(struct specials *s, struct builder *b, struct err *e)
{
    const size_t max_states = b->max_states;
    s->child = calloc(max_states + 1, sizeof *s->child);
    s->byte = calloc(max_states, 1);
    s->shorter = calloc(max_states, sizeof *s->shorter);
    s->token = calloc(max_states, sizeof *s->token);
    b->range = calloc(max_states, sizeof *b->range);
    if (!s->child || !s->byte || !s->shorter || !s->token || !b->range)
        return err_no_memory(e, "special tokens",
                             max_states * (sizeof *s->child + 1 + sizeof *s->shorter +
                                           sizeof *s->token + sizeof *b->range));
    qsort(b->list, b->n, sizeof *b->list, compare_specials);
    expand_all(s, b);
    return STATUS_OK;
}

enum status specials_init(struct specials *s, const struct vocab *v, struct err *e)
{
    *s = (struct specials){0};
    size_t n = 0;
    size_t bytes = 0;
    for (int id = 0; id < v->n; id++)
        if (is_special(v, id)) {
            n++;
            bytes += vocab_bytes(v, id).len;
        }
    if (n == 0)
        return STATUS_OK;
    if (bytes > UINT32_MAX - 1)
        return err_set(e, STATUS_BAD_FILE,
                       "tokenizer.ggml.tokens: expected at most %u bytes of control and "
                       "user-defined tokens, found %zu",
                       UINT32_MAX - 1, bytes);

    struct builder b = {.list = calloc(n, sizeof *b.list), .max_states = bytes + 1};
    if (!b.list)
        return err_no_memory(e, "special tokens", n * sizeof *b.list);
    for (int id = 0; id < v->n; id++)
        if (is_special(v, id))
            b.list[b.n++] = (struct special){vocab_bytes(v, id), id};
    const enum status status = build_automaton(s, &b, e);
    free(b.list);
    free(b.range);
    return status;
}

void specials_free(struct specials *s)
{
    free(s->child);
    free(s->byte);
    free(s->shorter);
    free(s->token);
    *s = (struct specials){0};
}

/* --- finding --------------------------------------------------------------------------------- */

enum status specials_find(const struct specials *s, struct text text, struct special_match **out,
                          size_t *n, struct err *e)
{
    *out = NULL;
    *n = 0;
    if (s->n_states == 0)
        return STATUS_OK;
    size_t cap = 0;
    uint32_t state = 0;
    for (size_t i = text.len; i-- > 0;) {
        state = next_state(s, state, (unsigned char)text.data[i]);
        if (s->token[state] < 0)
            continue;
        struct special_match *more = array_grow(*out, *n + 1, &cap, sizeof *more);
        if (!more) {
            free(*out);
            *out = NULL;
            return err_no_memory(e, "special tokens in the text", (*n + 1) * sizeof *more);
        }
        *out = more;
        (*out)[(*n)++] = (struct special_match){i, s->token[state]};
    }
    return STATUS_OK;
}
