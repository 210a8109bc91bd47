#include "model/selection.h"

#include <limits.h>
#include <strings.h>

#include "base/mem.h"

/* A number of K/V heads, or MHA, GQA-G, MQA, of a model that has n_heads query heads. */
static enum status read_heads(const char *option, const char *text, int n_heads, int *out,
                              struct err *e)
{
    const char *number = strncasecmp(text, "gqa-", 4) == 0 ? text + 4 : text;
    if (strcasecmp(text, "mqa") == 0)
        *out = 1;
    else if (strcasecmp(text, "mha") == 0)
        *out = n_heads;
    else if (!parse_int(number, 1, INT_MAX, out))
        return err_usage(e, "%s: expected an integer from 1 on, or MHA, GQA-G, MQA, found '%s'",
                         option, text);
    return STATUS_OK;
}

enum status list_heads(const char *option, const char *text, int n_heads, struct int_list *list,
                       struct err *e)
{
    for (char item[48]; list_item(&text, item, sizeof item);) {
        int n;
        TRY(read_heads(option, item, n_heads, &n, e));
        TRY(list_add(option, n, list, e));
    }
    return STATUS_OK;
}

enum status heads_check(const char *option, const struct config *c, const int *numbers, int n,
                        struct err *e)
{
    for (int l = 0; l < c->n_layers; l++) {
        const int wanted = numbers[n > 1 ? l : 0];
        const int most = n > 1 ? config_kv_heads(c, l) : c->n_kv_heads;
        if (wanted < 1 || wanted > most || c->n_heads % MIN(wanted, config_kv_heads(c, l)) != 0)
            return err_usage(e,
                             "%s: expected a divisor of the %d query heads, at most %d, found %d%s",
                             option, c->n_heads, most, wanted,
                             str_is(option, "--kv-heads") && wanted > 0 && wanted < most
                                 ? "; for a cache of a size between see convert's --kv-heads auto"
                                 : "");
        if (c->shared && wanted != numbers[0])
            return err_usage(e, "%s: all layers share one block; expected one number for all",
                             option);
    }
    return STATUS_OK;
}

enum status heads_of_layers(const char *kv_heads, const struct config *c, int *layers, int *n,
                            struct err *e)
{
    const char *rest = kv_heads;
    *n = 0;
    for (char item[48]; list_item(&rest, item, sizeof item); (*n)++) {
        int x;
        TRY(read_heads("--kv-heads", item, c->n_heads, &x, e));
        for (int l = *n; l < c->n_layers; l++)
            layers[l] = x;
    }
    if (*n > 1 && *n != c->n_layers)
        return err_usage(e, "--kv-heads: expected one number, or one for each layer, %d; found %d",
                         c->n_layers, *n);
    return heads_check("--kv-heads", c, layers, *n, e);
}

enum status windows_of_layers(const char *option, const char *text, const char *ends, bool repeats,
                              struct config *c, struct err *e)
{
    const char *rest = text;
    int n = 0;
    for (char item[48], end = ends[0]; end; n++) {
        int window;
        end = list_next(&rest, ends, item, sizeof item);
        if (n == c->n_layers || !parse_int(item, 0, CONFIG_MAX_CTX, &window))
            return err_usage(e, "%s: expected at most %d integers from 0 to %d, found '%s'", option,
                             c->n_layers, CONFIG_MAX_CTX, item);
        c->layer_window[n] = window;
    }
    if (n > 1 && n != c->n_layers && !repeats)
        return err_usage(e, "%s: expected one number, or one for each layer, %d; found %d", option,
                         c->n_layers, n);
    for (int l = n; l < c->n_layers; l++)
        c->layer_window[l] = c->layer_window[l - n];
    return STATUS_OK;
}

enum status parse_score_scale(const char *text, float *scale, struct err *e)
{
    double x = 1;
    if (!str_is(text, "none") &&
        (!parse_double(text, &x) || !((float)x > 0) || x >= CONFIG_MOST_SCORE_SCALE))
        return err_usage(
            e, "--score-scale: expected a number above 0 and below %g, or none, found '%.60s'",
            CONFIG_MOST_SCORE_SCALE, text);
    *scale = x;
    return STATUS_OK;
}

enum status choice_of(const char *option, const char *text, int n_all, struct choice *out,
                      struct err *e)
{
    const bool all = !text || str_is(text, "all");
    /* 1 for what is named; then their numbers. */
    int *items;
    *out = (struct choice){NULL, 0};
    TRY_ZEROED(items, n_all, "the list of heads", e);
    out->items = items;
    if (!all)
        for (char item[32]; list_item(&text, item, sizeof item);) {
            int value;
            if (!parse_int(item, 0, n_all - 1, &value) || items[value])
                return err_usage(
                    e,
                    "%s: expected all or %ss from 0 to %d, separated by commas, each once "
                    "(the model has %d), found '%.40s'",
                    option, option + 2, n_all - 1, n_all, item);
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
    return err_usage(
        e, "%s: expected L.H, a layer from 0 to %d and a head from 0 to %d, found '%.40s'", option,
        c->n_layers - 1, c->n_heads - 1, text);
}

enum status heads_of_option(const char *option, const char *text, const struct config *c,
                            unsigned char **heads, struct err *e)
{
    TRY_ZEROED(*heads, (size_t)c->n_layers * c->n_heads, "the list of heads", e);
    for (char item[32]; list_item(&text, item, sizeof item);) {
        int layer, head;
        TRY(head_of_option(option, item, c, &layer, &head, e));
        unsigned char *mark = *heads + (size_t)layer * c->n_heads + head;
        if (*mark)
            return err_usage(e, "%s: head %s is given twice", option, item);
        *mark = 1;
    }
    return STATUS_OK;
}
