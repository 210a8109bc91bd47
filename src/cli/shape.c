#include "cli/shape.h"

#include <string.h>

#include "cli/numbers.h"

#define FORM "LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C]"

const char *const shape_archs[] = {"gpt2", "llama", "transformer", "decode", NULL};

static int or_else(int given, int otherwise)
{
    return given ? given : otherwise;
}

/* Gated kinds have three matrices where the others have two. */
static int usual_ff(const struct config *c)
{
    const int step = 32, gated = (8 * c->d_model / 3 + step - 1) / step * step;
    return ffn_is_gated(c->ffn) ? gated : 4 * c->d_model;
}

void shape_complete(struct config *c)
{
    c->n_vocab = or_else(c->n_vocab, 50257);
    c->n_ctx = or_else(c->n_ctx, 1024);
    c->d_ff = or_else(c->d_ff, usual_ff(c));
    c->norm_eps = 1e-5f;
    config_complete(c);
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

enum status shape_parse(const char *text, const struct arch *arch, struct config *c, struct err *e)
{
    *c = (struct config){.arch = NULL};
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
    config_set_arch(c, arch);
    shape_complete(c);
    if (c->position == POSITION_ROPE && c->head_dim % 2 != 0)
        return err_set(e, STATUS_USAGE,
                       "--shape: expected heads of an even size, whose pairs turn, found %d",
                       c->head_dim);
    return STATUS_OK;
}

#define VALUES struct shape_options
const struct option shape_options[] = {
    OPT_STRING("shape", shape, "SHAPE",
               "sizes: " FORM ", by default ff 4 * D_MODEL (llama: 8/3), vocab 50257, ctx 1024",
               .excludes = "draft"),
    OPT_CHOICE("arch", arch, "ARCH", shape_archs,
               "what --shape is of; transformer is the original's decoder", .otherwise = "gpt2",
               .needs = "shape"),
    OPT_END,
};

enum status shape_of_options(const struct shape_options *o, const struct common_options *common,
                             struct config *c, struct err *e)
{
    if (common->positional || common->model)
        return err_set(e, STATUS_USAGE,
                       "a checkpoint and --shape are both named; expected one of them");
    const char *arch = shape_archs[o->arch ? o->arch - 1 : 0];
    return shape_parse(o->shape, arch_preset(text_of(arch)), c, e);
}
