#include "model/shape.h"

#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "base/numbers.h"
#include "base/text.h"
#include "model/selection.h"

/* What the papers say. T5 1.1 stands as a llama, without its relative positions, which are a few
 * numbers, and without attention to the encoder. */
const struct named_shape named_shapes[] = {
    {"gpt2", "gpt2", "12x768x12", "Radford et al. 2019, table 2"},
    {"gpt2-medium", "gpt2", "24x1024x16", "the same"},
    {"gpt2-large", "gpt2", "36x1280x20", "the same"},
    {"gpt2-xl", "gpt2", "48x1600x25", "the same"},
    {"gpt3", "gpt2", "96x12288x96,ctx=2048", "Brown et al. 2020, table 2.1; all layers dense"},
    {"llama-7b", "llama", "32x4096x32,ff=11008,vocab=32000,ctx=2048",
     "Touvron et al. 2023a, table 2"},
    {"llama-13b", "llama", "40x5120x40,ff=13824,vocab=32000,ctx=2048", "the same"},
    {"llama-65b", "llama", "80x8192x64,ff=22016,vocab=32000,ctx=2048", "the same"},
    {"llama2-70b", "llama", "80x8192x64,ff=28672,vocab=32000,ctx=4096,kv=8",
     "Touvron et al. 2023b, table 1"},
    {"t5-large", "llama", "24x1024x16,ff=2816,vocab=32128,ctx=512",
     "Raffel et al. 2020, T5 1.1's decoder as a model of its own (Ainslie et al. 2023)"},
    {"t5-xxl", "llama", "24x4096x64,ff=10240,vocab=32128,ctx=512", "the same"},
    {"pythia-70m", "gptneox", "6x512x8,vocab=50304,ctx=2048", "Biderman et al. 2023, table 1"},
    {"pythia-160m", "gptneox", "12x768x12,vocab=50304,ctx=2048", "the same"},
    {"pythia-1b", "gptneox", "16x2048x8,vocab=50304,ctx=2048", "the same"},
    {"tinystories-33m", "decode", "4x768x16,ctx=2048,window=0/256",
     "Eldan and Li 2023; GPT-Neo's block, local in every second layer"},
    {"opt-125m", "decode", "12x768x12,vocab=50272,ctx=2048",
     "Zhang et al. 2022, table 1; its ReLU stands as GELU"},
    {"falcon-7b", "falcon", "32x4544x71,vocab=65024,ctx=2048,kv=1", "Almazrouei et al. 2023"},
    {"qwen2-0.5b", "qwen2", "24x896x14,ff=4864,vocab=151936,ctx=32768,kv=2",
     "Yang et al. 2024, table 1"},
    {"phi-2", "phi2", "32x2560x32,vocab=51200,ctx=2048", "Javaheripi et al. 2023"},
    {"gemma-2b", "gemma", "18x2048x8,ff=16384,vocab=256000,ctx=8192,dk=256,dv=256,kv=1",
     "Gemma Team 2024, table 1"},
    {NULL, NULL, NULL, NULL}};

/* Returns the named shape that the text begins with, or NULL. */
static const struct named_shape *named_shape_of(const char *text)
{
    const struct text name = {text, strcspn(text, ",")};
    for (const struct named_shape *s = named_shapes; s->name; s++)
        if (text_is(name, s->name))
            return s;
    return NULL;
}

const char *const shape_archs[] = {
    "gpt2", "llama", "transformer", "decode", "gptneox", "phi2",     "falcon", "bloom",
    "mpt",  "qwen2", "qwen3",       "gemma",  "gemma3",  "stablelm", "olmo",   NULL};

enum status shape_complete(struct config *c, const struct shape_words *words, struct err *e)
{
    /* Gated kinds have three matrices where the others have two. */
    const int step = 32, gated = (8 * c->d_model / 3 + step - 1) / step * step;
    if (!c->head_dim && c->d_model % c->n_heads != 0)
        return err_usage(e, "%s %d: expected a divisor of %s %d, or %s; found neither",
                         words->heads, c->n_heads, words->d_model, c->d_model, words->head_dim);
    if (c->n_vocab == 0)
        c->n_vocab = 50257;
    if (c->n_ctx == 0)
        c->n_ctx = 1024;
    if (c->d_ff == 0)
        c->d_ff = ffn_kinds[c->ffn].is_gated ? gated : 4 * c->d_model;
    if (!(c->norm_eps > 0))
        c->norm_eps = 1e-5f;
    if (c->arch->rope_share > 0 && !c->rope.n_dims) {
        const int dim = c->head_dim ? c->head_dim : c->d_model / c->n_heads;
        c->rope.n_dims = MAX((int)((float)dim * c->arch->rope_share) / 2 * 2, 2);
    }
    config_complete(c);
    const int most = CONFIG_MAX_WIDTH / c->n_heads, dim = MAX(c->head_dim, c->value_dim);
    if (dim > most)
        return err_usage(e, "%s %d: expected heads of at most %d elements, found %d", words->heads,
                         c->n_heads, most, dim);
    if (c->position == POSITION_ROPE && c->head_dim % 2 != 0)
        return err_usage(
            e,
            "%s %d: rotary positions rotate pairs; expected heads of an even size (%s), found %d",
            words->heads, c->n_heads, words->head_dim, c->head_dim);
    if (config_score_refusal(c))
        return err_usage(e, "%s additive: %s", words->score, config_score_refusal(c));
    if (c->score != SCORE_DOT || c->value_dim != c->head_dim || config_has_windows(c) ||
        (c->n_heads * c->head_dim != c->d_model && !c->arch->own_head_dim))
        c->arch = arch_find(text_of("decode"));
    return STATUS_OK;
}

/* The first three stand in this order, the others by name in any. */
static const struct {
    const char *name;
    int max;
    size_t offset; /* in struct config */
} sizes[] = {{"layers", CONFIG_MAX_LAYERS, offsetof(struct config, n_layers)},
             {"d_model", CONFIG_MAX_WIDTH, offsetof(struct config, d_model)},
             {"heads", CONFIG_MAX_WIDTH, offsetof(struct config, n_heads)},
             {"ff", CONFIG_MAX_FF, offsetof(struct config, d_ff)},
             {"vocab", CONFIG_MAX_VOCAB, offsetof(struct config, n_vocab)},
             {"ctx", CONFIG_MAX_CTX, offsetof(struct config, n_ctx)},
             {"dk", CONFIG_MAX_WIDTH, offsetof(struct config, head_dim)},
             {"dv", CONFIG_MAX_WIDTH, offsetof(struct config, value_dim)},
             {"kv", CONFIG_MAX_WIDTH, offsetof(struct config, n_kv_heads)},
             {"score", 0, offsetof(struct config, score)},
             {"window", 0, 0},
             {"arch", 0, offsetof(struct config, arch)}};
enum { N_ORDERED = 3, SCORE = 9, WINDOW, ARCH, N_SIZES };

static enum status read_size(const char *text, int i, struct config *c, struct err *e)
{
    void *member = (char *)c + sizes[i].offset;
    const char *const *names = i == ARCH ? shape_archs : arch_score_names;
    if (i == WINDOW)
        return windows_of_layers("--shape: window", text, "/", true, c, e);
    const int kind = i >= SCORE ? names_find(names, text) : 0;
    if (kind < 0)
        return err_usage(e, "--shape: %s: expected %s, found '%s'", sizes[i].name,
                         names_joined(names, " or ").text, text);
    if (i == ARCH)
        c->arch = arch_preset(text_of(text));
    else if (i == SCORE)
        c->score = kind;
    else if (!parse_int(text, 1, sizes[i].max, member))
        return err_usage(e, "--shape: %s: expected an integer from 1 to %d, found '%s'",
                         sizes[i].name, sizes[i].max, text);
    return STATUS_OK;
}

/* Reads sizes up to the end of the text; *at is how many were read before. */
static enum status read_sizes(const char *text, int *at, struct config *c, struct err *e)
{
    char part[48], end = ',';
    for (; end; ++*at) {
        const bool ordered = *at < N_ORDERED;
        const char *number = part;
        int i = ordered ? *at : N_ORDERED;
        end = list_next(&text, ordered ? "x," : ",", part, sizeof part);
        if (ordered && (end == 'x') != (*at < N_ORDERED - 1))
            return err_usage(e, "--shape: expected " SHAPE_FORM
                                ", or a name that `decode info --shape help` lists");
        if (!ordered) {
            const size_t len = strcspn(part, "=");
            while (i < N_SIZES && !text_is(text_span(part, len), sizes[i].name))
                i++;
            if (i == N_SIZES || !part[len])
                return err_usage(e,
                                 "--shape: expected arch=, ff=, vocab=, ctx=, dk=, dv=, kv=, "
                                 "score= or window=, found "
                                 "'%s'",
                                 part);
            number = part + len + 1;
        }
        TRY(read_size(number, i, c, e));
    }
    return STATUS_OK;
}

enum status shape_parse(const char *text, struct config *c, struct err *e)
{
    static const struct shape_words words = {"--shape: heads", "d_model", "dk=", "--shape: score"};
    const struct named_shape *named = named_shape_of(text);
    int n = 0;
    *c = (struct config){.arch = arch_preset(text_of(named ? named->arch : shape_archs[0]))};
    if (named) {
        TRY(read_sizes(named->sizes, &n, c, e));
        text += strlen(named->name);
    }
    if (*text || !named)
        TRY(read_sizes(text + (named != NULL), &n, c, e));
    const int kv_heads = c->n_kv_heads ? c->n_kv_heads : c->n_heads;
    c->n_kv_heads = c->n_heads;
    TRY(heads_check("--shape: kv", c, &kv_heads, 1, e));
    c->n_kv_heads = kv_heads;
    config_set_arch(c, c->arch);
    return shape_complete(c, &words, e);
}
