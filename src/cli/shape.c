#include "cli/shape.h"

#include <string.h>

#include "cli/numbers.h"

#define FORM "LAYERSxD_MODELxHEADS[,ff=F][,vocab=V][,ctx=C]"

const char *const shape_archs[] = {"gpt2", "llama", "transformer", "decode", NULL};

void shape_complete(struct config *c)
{
    /* Gated kinds have three matrices where the others have two. */
    const int step = 32, gated = (8 * c->d_model / 3 + step - 1) / step * step;
    if (c->n_vocab == 0)
        c->n_vocab = 50257;
    if (c->n_ctx == 0)
        c->n_ctx = 1024;
    if (c->d_ff == 0)
        c->d_ff = ffn_is_gated(c->ffn) ? gated : 4 * c->d_model;
    c->norm_eps = 1e-5f;
    config_complete(c);
}

/* The first three in this order, the others by name in any. */
static const struct {
    const char *name;
    int max;
    size_t offset; /* in struct config */
} sizes[] = {{"layers", CONFIG_MAX_LAYERS, offsetof(struct config, n_layers)},
             {"d_model", CONFIG_MAX_WIDTH, offsetof(struct config, d_model)},
             {"heads", CONFIG_MAX_WIDTH, offsetof(struct config, n_heads)},
             {"ff", CONFIG_MAX_FF, offsetof(struct config, d_ff)},
             {"vocab", CONFIG_MAX_VOCAB, offsetof(struct config, n_vocab)},
             {"ctx", CONFIG_MAX_CTX, offsetof(struct config, n_ctx)}};
enum { N_ORDERED = 3, N_SIZES = 6 };

enum status shape_parse(const char *text, const struct arch *arch, struct config *c, struct err *e)
{
    char part[48], end = 'x';
    *c = (struct config){.arch = NULL};
    for (int i = 0; end; i++) {
        const char *number = part;
        int at = i;
        end = list_next(&text, i < N_ORDERED ? "x," : ",", part, sizeof part);
        if (i < N_ORDERED && (end == 'x') != (i < N_ORDERED - 1))
            return err_set(e, STATUS_USAGE, "--shape: expected " FORM);
        if (i >= N_ORDERED) {
            const size_t len = strcspn(part, "=");
            at = N_ORDERED;
            while (at < N_SIZES && (strncmp(part, sizes[at].name, len) != 0 || sizes[at].name[len]))
                at++;
            if (at == N_SIZES || !part[len])
                return err_set(e, STATUS_USAGE, "--shape: expected ff=, vocab= or ctx=, found '%s'",
                               part);
            number = part + len + 1;
        }
        if (!parse_int(number, 1, sizes[at].max, (int *)((char *)c + sizes[at].offset)))
            return err_set(e, STATUS_USAGE,
                           "--shape: %s: expected an integer from 1 to %d, found '%s'",
                           sizes[at].name, sizes[at].max, number);
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
