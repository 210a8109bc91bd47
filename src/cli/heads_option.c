#include "cli/heads_option.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/numbers.h"

struct head_item {
    char text[32];
    int layer, head;
};

/* The next item of the list; *more: others follow. STATUS_USAGE if it is no head. */
static enum status next_head(const char *option, const char **rest, struct head_item *item,
                             bool *more, struct err *e)
{
    char layer[sizeof item->text];
    *more = list_next(rest, ",", item->text, sizeof item->text) != 0;
    const char *head = item->text;
    list_next(&head, ".", layer, sizeof layer);
    if (!parse_int(layer, 0, INT_MAX, &item->layer) || !parse_int(head, 0, INT_MAX, &item->head))
        return err_set(e, STATUS_USAGE,
                       "%s: expected heads as LAYER.HEAD, both from 0, with commas between them, "
                       "found '%s'",
                       option, item->text);
    return STATUS_OK;
}

enum status heads_option_check(const char *option, const char *text, struct err *e)
{
    struct head_item item;
    for (bool more = true; more;)
        TRY(next_head(option, &text, &item, &more, e));
    return STATUS_OK;
}

static enum status mark_heads(const char *option, const char *text, const struct config *c,
                              unsigned char *heads, struct err *e)
{
    struct head_item item;
    for (bool more = true; more;) {
        TRY(next_head(option, &text, &item, &more, e));
        if (item.layer >= c->n_layers || item.head >= c->n_heads)
            return err_set(e, STATUS_USAGE,
                           "%s: expected layers from 0 to %d and heads from 0 to %d, found '%s'",
                           option, c->n_layers - 1, c->n_heads - 1, item.text);
        unsigned char *mark = heads + (size_t)item.layer * (size_t)c->n_heads + (size_t)item.head;
        if (*mark)
            return err_set(e, STATUS_USAGE, "%s: head %s is given twice", option, item.text);
        *mark = 1;
    }
    return STATUS_OK;
}

enum status heads_of_option(const char *option, const char *text, const struct config *c,
                            unsigned char **heads, struct err *e)
{
    const size_t n = (size_t)c->n_layers * (size_t)c->n_heads;
    *heads = calloc(n, 1);
    if (!*heads)
        return err_no_memory(e, "the list of heads", n);
    const enum status s = mark_heads(option, text, c, *heads, e);
    if (s != STATUS_OK) {
        free(*heads);
        *heads = NULL;
    }
    return s;
}
