#include "base/name_index.h"

#include "base/mem.h"

static uint64_t head_of(struct text text)
{
    uint64_t head = 0;
    for (size_t i = 0; i < sizeof head; i++)
        head = head << 8 | (i < text.len ? (unsigned char)text.data[i] : 0);
    return head;
}

static int compare_texts(const struct indexed *a, const struct indexed *b)
{
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    return text_order(a->text, b->text);
}

static int compare_indexed(const void *left, const void *right)
{
    const struct indexed *a = left, *b = right;
    const int order = compare_texts(a, b);
    if (order != 0)
        return order;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

enum status name_index_add(struct name_index *x, struct text text, int32_t id, int rank,
                           struct err *e)
{
    if (x->n >= INT32_MAX)
        return err_no_memory(e, "the index of names", (x->n + 1) * sizeof *x->list);
    TRY_ROOM(x->list, x->n, x->cap, "the index of names", e);
    x->list[x->n++] = (struct indexed){head_of(text), text, NULL, id, rank};
    return STATUS_OK;
}

/* Returns the longest of `last` and the entries that it starts with that the text starts with, too.
 */
static const struct indexed *longest_start(const struct indexed *last, struct text text)
{
    const size_t most = last ? MIN(last->text.len, text.len) : 0;
    size_t common = 0;
    while (common < most && last->text.data[common] == text.data[common])
        common++;
    while (last && last->text.len > common)
        last = last->start;
    return last;
}

void name_index_sort(struct name_index *x)
{
    if (x->n > 0)
        qsort(x->list, x->n, sizeof *x->list, compare_indexed);
}

void name_index_link(struct name_index *x)
{
    /* What starts a text comes before it, and starts all that lie between the two: so it is the one
     * before, or one that starts that. */
    for (size_t i = 1; i < x->n; i++)
        x->list[i].start = longest_start(&x->list[i - 1], x->list[i].text);
}

/* Returns how many entries come before the text; with `equals`, entries of that text count, too. */
static size_t count_before(const struct name_index *x, struct text text, bool equals)
{
    const struct indexed wanted = {.head = head_of(text), .text = text};
    size_t low = 0, high = x->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_texts(&x->list[middle], &wanted) < equals)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct indexed *name_index_find(const struct name_index *x, struct text text)
{
    const size_t at = count_before(x, text, false);
    return at < x->n && text_equal(x->list[at].text, text) ? &x->list[at] : NULL;
}

const struct indexed *name_index_longest(const struct name_index *x, struct text text)
{
    const size_t n = count_before(x, text, true);
    const struct indexed *found = longest_start(n > 0 ? &x->list[n - 1] : NULL, text);
    while (found && found->start && found->start->text.len == found->text.len)
        found = found->start;
    return found;
}

void name_index_free(struct name_index *x)
{
    free(x->list);
    *x = (struct name_index){NULL, 0, 0};
}
