#include "convert/spec.h"

#include "gguf/blocks.h"

const char *const convert_methods[] = {"mean", "first", "random", "procrustes", "fit", NULL};
const char *const convert_refits[] = {"none", "wo", "all", "block", NULL};

static enum status check_tensor_types(const struct gguf *g, struct err *e)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (!blocks_runs(g->tensors[i].type->type))
            return err_set(e, STATUS_BAD_FILE,
                           "tensor %.*s: expected type F32, F16, BF16, Q8_0 or Q4_0, found %s",
                           text_width(g->tensors[i].name), g->tensors[i].name.data,
                           g->tensors[i].type->name);
    return STATUS_OK;
}

/* Of a layer that has `own`. */
static enum status check_kv_heads(const struct config *config, int g, int own, struct err *e)
{
    if (g < 1 || config->n_heads % g != 0)
        return err_set(e, STATUS_USAGE, "%d K/V heads: expected a divisor of the %d query heads", g,
                       config->n_heads);
    if (g > own)
        return err_set(e, STATUS_USAGE, "%d K/V heads: the checkpoint has only %d", g, own);
    return STATUS_OK;
}

static enum status check_tokens(const struct convert_spec *spec, const struct config *config,
                                struct err *e)
{
    if (spec->n_tokens && !spec->measures_only && spec->n_tokens < CONVERT_MIN_TOKENS)
        return err_set(e, STATUS_USAGE,
                       "calibration text: expected at least %d tokens, %d windows of which one is "
                       "kept aside, found %zu",
                       CONVERT_MIN_TOKENS, CONVERT_JUDGED, spec->n_tokens);
    for (size_t i = 0; i < spec->n_tokens; i++)
        if (spec->tokens[i] < 0 || spec->tokens[i] >= config->n_vocab)
            return err_set(e, STATUS_USAGE, "token %zu: expected an id from 0 to %d, found %d", i,
                           config->n_vocab - 1, (int)spec->tokens[i]);
    return STATUS_OK;
}

static enum status check_latent(const struct convert_spec *spec, const struct config *config,
                                struct err *e)
{
    if (spec->n_tokens == 0)
        return err_set(e, STATUS_USAGE, "a latent cache can only be fitted to text");
    for (int l = 0; l < config->n_layers; l++) {
        TRY(config_check_rank(config, spec->latent[l], e));
        if (config->shared && spec->latent[l] != spec->latent[0])
            return err_set(e, STATUS_USAGE, "all %d layers share one block: expected one rank",
                           config->n_layers);
    }
    TRY(check_tokens(spec, config, e));
    return check_tensor_types(spec->gguf, e);
}

enum status convert_spec_check(const struct convert_spec *spec, const struct config *config,
                               struct err *e)
{
    if (config_is_latent(config))
        return err_set(e, STATUS_BAD_FILE,
                       "%s.attention.latent: expected none, because all heads share what such a "
                       "cache has already; found %d",
                       config->arch->name, config_latent(config, 0));
    if (spec->latent)
        return check_latent(spec, config, e);
    TRY(check_kv_heads(config, spec->n_kv_heads, config->n_kv_heads, e));
    for (int l = 0; l < config->n_layers && spec->layer_kv_heads; l++) {
        TRY(check_kv_heads(config, spec->layer_kv_heads[l], config_kv_heads(config, l), e));
        if (config->shared && spec->layer_kv_heads[l] != spec->n_kv_heads)
            return err_set(e, STATUS_USAGE,
                           "all %d layers share one block: expected one number of K/V heads",
                           config->n_layers);
    }
    if (spec->cluster && config->position == POSITION_ALIBI)
        return err_set(e, STATUS_USAGE,
                       "heads cannot change places, because each has a slope of its own (ALiBi); "
                       "expected neighbours to share");
    if (spec->refit && spec->n_tokens == 0)
        return err_set(e, STATUS_USAGE, "weights can only be refitted on text");
    TRY(check_tokens(spec, config, e));
    return check_tensor_types(spec->gguf, e);
}
