#include "cli/head_choice.h"

#include <stdlib.h>
#include <string.h>

#include "cli/numbers.h"

enum status choice_of(const char *option, const char *text, int n_all, const char *what,
                      struct choice *out, struct err *e)
{
    const bool all = !text || strcmp(text, "all") == 0;
    int *items = calloc((size_t)n_all, sizeof *items); /* 1 for what is named; then their numbers */
    *out = (struct choice){items, 0};
    if (!items)
        return err_no_memory(e, "the list of heads", (size_t)n_all * sizeof *items);
    for (char end = all ? 0 : ','; end;) {
        char item[32];
        int value;
        end = list_next(&text, ",", item, sizeof item);
        if (!parse_int(item, 0, n_all - 1, &value) || items[value])
            return err_set(e, STATUS_USAGE,
                           "%s: expected all or %ss from 0 to %d, separated by commas, each once "
                           "(the model has %d), found '%.40s'",
                           option, what, n_all - 1, n_all, item);
        items[value] = 1;
    }
    for (int i = 0; i < n_all; i++)
        if (all || items[i])
            items[out->n++] = i;
    return STATUS_OK;
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

enum status heads_of_option(const char *option, const char *text, const struct config *c,
                            unsigned char **heads, struct err *e)
{
    const size_t n = (size_t)c->n_layers * (size_t)c->n_heads;
    enum status s = STATUS_OK;
    *heads = calloc(n, 1);
    if (!*heads)
        return err_no_memory(e, "the list of heads", n);
    for (char end = ','; end && s == STATUS_OK;) {
        char item[32];
        int layer = 0, head = 0;
        end = list_next(&text, ",", item, sizeof item);
        s = head_of_option(option, item, c, &layer, &head, e);
        unsigned char *mark = *heads + (size_t)layer * (size_t)c->n_heads + (size_t)head;
        if (s == STATUS_OK && *mark)
            s = err_set(e, STATUS_USAGE, "%s: head %s is given twice", option, item);
        *mark = 1;
    }
    if (s != STATUS_OK) {
        free(*heads);
        *heads = NULL;
    }
    return s;
}
