#include "cli/shape.h"

#include <string.h>

#include "cli/numbers.h"

#define FORM "LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C]"

struct config shape_gpt2(void)
{
    struct config c = {.n_vocab = 50257, .n_ctx = 1024, .norm_eps = 1e-5f};
    config_set_arch(&c, arch_find(text_of("gpt2")));
    return c;
}

static enum status parse_size(const char *name, const char *text, int max, int *out, struct err *e)
{
    if (parse_int(text, 1, max, out))
        return STATUS_OK;
    return err_set(e, STATUS_USAGE, "--shape: %s: expected an integer from 1 to %d, found '%s'",
                   name, max, text);
}

static enum status parse_setting(const char *part, struct config *c, struct err *e)
{
    if (strncmp(part, "ff=", 3) == 0)
        return parse_size("ff", part + 3, CONFIG_MAX_FF, &c->d_ff, e);
    if (strncmp(part, "vocab=", 6) == 0)
        return parse_size("vocab", part + 6, CONFIG_MAX_VOCAB, &c->n_vocab, e);
    if (strncmp(part, "ctx=", 4) == 0)
        return parse_size("ctx", part + 4, CONFIG_MAX_CTX, &c->n_ctx, e);
    return err_set(e, STATUS_USAGE, "--shape: expected ff=, vocab= or ctx=, found '%s'", part);
}

static enum status parse_core(const char **rest, struct config *c, char *end, struct err *e)
{
    const struct {
        const char *name;
        int max;
        int *out;
    } sizes[] = {{"layers", CONFIG_MAX_LAYERS, &c->n_layers},
                 {"d_model", CONFIG_MAX_WIDTH, &c->d_model},
                 {"heads", CONFIG_MAX_WIDTH, &c->n_heads}};
    for (int i = 0; i < 3; i++) {
        char part[48];
        *end = list_next(rest, "x,", part, sizeof part);
        if (*end != (i < 2 ? 'x' : ',') && !(i == 2 && *end == 0))
            return err_set(e, STATUS_USAGE, "--shape: expected " FORM);
        TRY(parse_size(sizes[i].name, part, sizes[i].max, sizes[i].out, e));
    }
    return STATUS_OK;
}

enum status shape_parse(const char *text, struct config *c, struct err *e)
{
    *c = shape_gpt2();
    char end;
    TRY(parse_core(&text, c, &end, e));
    while (end == ',') {
        char part[48];
        end = list_next(&text, ",", part, sizeof part);
        TRY(parse_setting(part, c, e));
    }
    if (c->d_model % c->n_heads != 0)
        return err_set(e, STATUS_USAGE,
                       "--shape: heads: expected a divisor of d_model %d, found %d", c->d_model,
                       c->n_heads);
    c->n_kv_heads = c->n_heads;
    c->head_dim = c->d_model / c->n_heads;
    if (c->d_ff == 0)
        c->d_ff = 4 * c->d_model;
    return STATUS_OK;
}
