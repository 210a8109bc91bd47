#include "cli/train_shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/numbers.h"
#include "cli/shape.h"

#define DEFAULT_LAYERS 4
#define DEFAULT_EMBD   128
#define DEFAULT_HEADS  8
#define DEFAULT_VOCAB  256

#define VALUES struct train_shape

const struct option train_size_options[] = {
    OPT_INT("layers", n_layers, "L", 1, CONFIG_MAX_LAYERS, "layers", .otherwise = "4"),
    OPT_INT("embd", d_model, "E", 1, CONFIG_MAX_WIDTH, "width of the model", .otherwise = "128"),
    OPT_INT("heads", n_heads, "H", 1, CONFIG_MAX_WIDTH, "query heads, a divisor of --embd",
            .otherwise = "8"),
    OPT_INT("ff", d_ff, "F", 1, CONFIG_MAX_FF, "width of the feed-forward layer",
            .otherwise = "4 * E; swiglu: 8/3 * E, in steps of 32"),
    OPT_INT("ctx", n_ctx, "C", 1, CONFIG_MAX_CTX,
            "context, and tokens of a window; with --from the windows only",
            .otherwise = "256; with --from its context if less"),
    OPT_INT("vocab", n_vocab, "V", 256, CONFIG_MAX_VOCAB,
            "tokens of the byte-level BPE that is learned from the text",
            .otherwise = "256, plain bytes"),
    OPT_END,
};

const struct option train_kv_options[] = {
    OPT_STRING("kv-heads", kv_heads, "G[,G,...]",
               "K/V heads, a divisor of --heads: fewer are GQA, 1 is MQA; several: one a layer, "
               "which llama.cpp does not run",
               .otherwise = "as --heads"),
    OPT_END,
};

/* The preset that has whatever kinds are asked for. */
#define FREE_ARCH "decode"

const struct option train_kind_options[] = {
    OPT_CHOICE("arch", arch, "ARCH", shape_archs,
               "architecture; transformer is the original's decoder, decode what the options below "
               "say",
               .otherwise = "gpt2, or decode with one of these options"),
    OPT_CHOICE("norm", norm, "KIND", arch_norm_names, "norms", .otherwise = "layer"),
    OPT_CHOICE("placement", placement, "WHERE", arch_placement_names,
               "norms before attention and feed-forward layer, or after their residuals",
               .otherwise = "before"),
    OPT_CHOICE("position", position, "KIND", arch_position_names, "how positions are told",
               .otherwise = "learned"),
    OPT_CHOICE("ffn", ffn, "KIND", arch_ffn_names, "feed-forward layer; gelu_erf is the exact one",
               .otherwise = "gelu"),
    OPT_FLAG("no-bias", no_bias, "no biases"),
    OPT_FLAG("share-layers", share_layers, "all layers use the weights of one"),
    OPT_END,
};

/* --- what is given --------------------------------------------------------------------------- */

static bool is_given(const struct train_shape *s, const struct option *o)
{
    const char *at = (const char *)s + o->offset;
    if (o->kind == OPTION_STRING)
        return *(const char *const *)(const void *)at != NULL;
    if (o->kind == OPTION_FLAG)
        return *(const bool *)(const void *)at;
    return *(const int *)(const void *)at != 0;
}

static const char *given_among(const struct train_shape *s, const struct option *rows)
{
    for (const struct option *o = rows; o->kind != OPTION_END; o++)
        if (is_given(s, o) && strcmp(o->name, "ctx") != 0)
            return o->name;
    return NULL;
}

const char *train_shape_given(const struct train_shape *s)
{
    const struct option *const tables[] = {train_size_options, train_kv_options,
                                           train_kind_options};
    const char *given = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables && !given; i++)
        given = given_among(s, tables[i]);
    return given;
}

/* --- kinds ----------------------------------------------------------------------------------- */

static enum status refuse_kind(const char *option, const char *value, const struct arch *arch,
                               const char *has, struct err *e)
{
    return err_set(e, STATUS_USAGE,
                   "--%s%s%s: --arch %s has %s; --arch " FREE_ARCH " has what is asked for", option,
                   value[0] ? " " : "", value, arch->preset, has);
}

/* The kinds of an architecture, which stay as they are unless it is free to have others. */
static enum status set_kinds(const struct train_shape *s, const struct arch *arch, struct config *c,
                             struct err *e)
{
    const bool is_free = strcmp(arch->preset, FREE_ARCH) == 0;
    config_set_arch(c, arch);
    unsigned norm = c->norm, placement = c->placement, position = c->position, ffn = c->ffn;
    const struct {
        const char *option;
        int given;
        unsigned *kind;
        const char *const *names;
    } kinds[] = {{"norm", s->norm, &norm, arch_norm_names},
                 {"placement", s->placement, &placement, arch_placement_names},
                 {"position", s->position, &position, arch_position_names},
                 {"ffn", s->ffn, &ffn, arch_ffn_names}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const unsigned wanted = kinds[i].given ? (unsigned)kinds[i].given - 1 : *kinds[i].kind;
        if (!is_free && wanted != *kinds[i].kind)
            return refuse_kind(kinds[i].option, kinds[i].names[wanted], arch,
                               kinds[i].names[*kinds[i].kind], e);
        *kinds[i].kind = wanted;
    }
    if (!is_free && s->no_bias && !c->no_biases)
        return refuse_kind("no-bias", "", arch, "biases", e);
    if (!is_free && s->share_layers)
        return refuse_kind("share-layers", "", arch, "weights of their own for all layers", e);
    c->norm = norm;
    c->placement = placement;
    c->position = position;
    c->ffn = ffn;
    c->no_biases |= s->no_bias;
    c->shared = s->share_layers;
    if (c->position == POSITION_SINUSOIDAL) /* beside which tokens would be nothing otherwise */
        c->embedding_scale = sqrtf((float)c->d_model);
    return STATUS_OK;
}

static const struct arch *arch_of(const struct train_shape *s)
{
    const char *otherwise = given_among(s, train_kind_options) ? FREE_ARCH : shape_archs[0];
    return arch_preset(text_of(s->arch ? shape_archs[s->arch - 1] : otherwise));
}

/* --- sizes ----------------------------------------------------------------------------------- */

static int or_else(int given, int otherwise)
{
    return given ? given : otherwise;
}

/* One number for all layers, or one for each. */
static enum status set_kv_heads(const char *text, struct config *c, struct err *e)
{
    int n = 0;
    char end = 0;
    do {
        char item[48];
        int heads;
        end = list_next(&text, ",", item, sizeof item);
        if (!parse_heads(item, c->n_heads, &heads) || c->n_heads % heads != 0)
            return err_set(e, STATUS_USAGE, "--kv-heads %s: expected a divisor of --heads %d", item,
                           c->n_heads);
        if (n < c->n_layers)
            c->layer_kv_heads[n] = heads;
        c->n_kv_heads = heads > c->n_kv_heads ? heads : c->n_kv_heads;
        n++;
    } while (end);
    if (n == 1)
        c->layer_kv_heads[0] = 0;
    else if (n != c->n_layers)
        return err_set(e, STATUS_USAGE,
                       "--kv-heads: expected one number, or one for each layer, %d; found %d",
                       c->n_layers, n);
    return STATUS_OK;
}

/* What the sizes must be to one another, and to the kinds. */
static enum status check_sizes(const struct config *c, struct err *e)
{
    if (c->position == POSITION_ROPE && c->head_dim % 2 != 0)
        return err_set(e, STATUS_USAGE,
                       "--heads %d: rotary positions turn pairs; expected --embd / --heads to be "
                       "even, found %d",
                       c->n_heads, c->head_dim);
    if (c->shared && !config_same_kv_heads(c))
        return err_set(e, STATUS_USAGE,
                       "--kv-heads: layers that share their weights have the same number; expected "
                       "one with --share-layers");
    return STATUS_OK;
}

enum status train_shape_config(const struct train_shape *s, struct config *c, struct err *e)
{
    *c = (struct config){.n_layers = or_else(s->n_layers, DEFAULT_LAYERS),
                         .n_heads = or_else(s->n_heads, DEFAULT_HEADS),
                         .d_model = or_else(s->d_model, DEFAULT_EMBD),
                         .d_ff = s->d_ff,
                         .n_ctx = or_else(s->n_ctx, TRAIN_SHAPE_CTX),
                         .n_vocab = or_else(s->n_vocab, DEFAULT_VOCAB)};
    if (c->d_model % c->n_heads != 0)
        return err_set(e, STATUS_USAGE, "--heads %d: expected a divisor of --embd %d", c->n_heads,
                       c->d_model);
    TRY(set_kinds(s, arch_of(s), c, e));
    if (s->kv_heads)
        TRY(set_kv_heads(s->kv_heads, c, e));
    shape_complete(c);
    return check_sizes(c, e);
}

void train_shape_describe(const struct config *c, char *out, size_t size)
{
    out[0] = 0;
    if (c->arch->has_keys)
        snprintf(out, size, "%s (norm %s %s, position %s, ffn %s%s%s), ", c->arch->name,
                 arch_norm_names[c->norm], arch_placement_names[c->placement],
                 arch_position_names[c->position], arch_ffn_names[c->ffn],
                 c->no_biases ? ", no biases" : "", c->shared ? ", one block for all layers" : "");
    else if (c->arch != arch_preset(text_of(shape_archs[0])))
        snprintf(out, size, "%s, ", c->arch->name);
}
