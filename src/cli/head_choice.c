#include "cli/head_choice.h"

#include <stdlib.h>
#include <string.h>

#include "cli/numbers.h"

static enum status not_there(const char *option, const char *what, int n_all, const char *found,
                             struct err *e)
{
    return err_set(e, STATUS_USAGE,
                   "%s: expected all or %ss from 0 to %d, separated by commas, each once (the "
                   "model has %d), found '%.40s'",
                   option, what, n_all - 1, n_all, found);
}

/* Marks what the list names. */
static enum status mark_items(const char *option, const char *text, int n_all, const char *what,
                              bool *marked, struct err *e)
{
    for (char end = ','; end;) {
        char item[32];
        int value;
        end = list_next(&text, ",", item, sizeof item);
        if (!parse_int(item, 0, n_all - 1, &value) || marked[value])
            return not_there(option, what, n_all, item, e);
        marked[value] = true;
    }
    return STATUS_OK;
}

enum status choice_of(const char *option, const char *text, int n_all, const char *what,
                      struct choice *out, struct err *e)
{
    const bool all = !text || strcmp(text, "all") == 0;
    bool *marked = calloc((size_t)n_all, sizeof *marked);
    *out = (struct choice){malloc((size_t)n_all * sizeof *out->items), 0};
    enum status s = STATUS_OK;
    if (!marked || !out->items)
        s = err_no_memory(e, "the list of heads", (size_t)n_all * sizeof *out->items);
    else if (!all)
        s = mark_items(option, text, n_all, what, marked, e);
    for (int i = 0; i < n_all && s == STATUS_OK; i++)
        if (all || marked[i])
            out->items[out->n++] = i;
    free(marked);
    return s;
}

void choice_free(struct choice *c)
{
    free(c->items);
    *c = (struct choice){NULL, 0};
}

enum status head_of_option(const char *option, const char *text, const struct config *c, int *layer,
                           int *head, struct err *e)
{
    char item[32];
    const char *rest = text;
    if (list_next(&rest, ".", item, sizeof item) == '.' &&
        parse_int(item, 0, c->n_layers - 1, layer) && parse_int(rest, 0, c->n_heads - 1, head))
        return STATUS_OK;
    return err_set(e, STATUS_USAGE,
                   "%s: expected L.H, a layer from 0 to %d and a head from 0 to %d, found '%.40s'",
                   option, c->n_layers - 1, c->n_heads - 1, text);
}
