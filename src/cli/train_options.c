#include "cli/train_options.h"

#include "model/config_keys.h"
#include "model/shape.h"

#define TRAIN_CTX 256      /* tokens of a window, and of the context of a new model, by default */
#define FURTHER   0.1      /* of a new model's rate, for a checkpoint that is trained further */
#define FREE_ARCH "decode" /* the preset that has whatever kinds are asked for */

/* Marks options of a new model: the checkpoint of --from says the same already. */
#define NEW_ONLY .excludes = "from"

#define VALUES struct train_shape

const struct option train_size_options[] = {
    OPT_INT("layers", n_layers, "L", 1, CONFIG_MAX_LAYERS, "layers", .otherwise = "4", NEW_ONLY),
    OPT_INT("embd", d_model, "E", 1, CONFIG_MAX_WIDTH, "width of the model", .otherwise = "128",
            NEW_ONLY),
    OPT_INT("head-dim", head_dim, "N", 1, CONFIG_MAX_WIDTH,
            "elements of a head's query and key; where --arch cannot say so, it becomes decode",
            .otherwise = "E / H", NEW_ONLY),
    OPT_INT("ff", d_ff, "F", 1, CONFIG_MAX_FF, "width of the feed-forward layer",
            .otherwise = "4 * E; swiglu: 8/3 * E, in steps of 32", NEW_ONLY),
    OPT_INT("ctx", n_ctx, "C", 1, CONFIG_MAX_CTX,
            "context, and tokens of a window; with --from the windows only",
            .otherwise = "256; with --from its context if less"),
    OPT_INT("vocab", n_vocab, "V", 256, CONFIG_MAX_VOCAB,
            "tokens of the byte-level BPE that is learned from the text",
            .otherwise = "256, plain bytes", NEW_ONLY),
    OPT_INT("heads", n_heads, "H", 1, CONFIG_MAX_WIDTH,
            "query heads, a divisor of --embd without --head-dim", .otherwise = "8", NEW_ONLY),
    OPT_STRING("kv-heads", kv_heads, "G[,G,...]",
               "K/V heads, a divisor of --heads: fewer are GQA, 1 is MQA; several: one a layer, "
               "which llama.cpp does not run",
               .otherwise = "as --heads", NEW_ONLY),
    OPT_END,
};

const struct option train_kind_options[] = {
    OPT_CHOICE(
        "arch", arch, "ARCH", shape_archs,
        "architecture; transformer is the original's decoder, decode what the options below say",
        .otherwise = "gpt2, or decode with one of these options", NEW_ONLY),
    OPT_CHOICE("norm", kinds[0], "KIND", arch_norm_names, "norms", .otherwise = "layer", NEW_ONLY),
    OPT_CHOICE(
        "placement", kinds[1], "WHERE", arch_placement_names,
        "norms before attention and feed-forward layer, or after their residuals; parallel: both "
        "read the block's input",
        .otherwise = "before", NEW_ONLY),
    OPT_CHOICE("position", kinds[2], "KIND", arch_position_names, "how positions are told",
               .otherwise = "learned", NEW_ONLY),
    OPT_CHOICE("ffn", kinds[3], "KIND", arch_ffn_names,
               "feed-forward layer; gelu_erf is the exact one", .otherwise = "gelu", NEW_ONLY),
    OPT_CHOICE("score", kinds[4], "KIND", arch_score_names,
               "scores of a query q and a key k: their product, or w·tanh(q + k)",
               .otherwise = "dot", NEW_ONLY),
    OPT_FLAG("no-bias", no_bias, "no biases but those of norms", NEW_ONLY),
    OPT_STRING(
        "window", window, "W[,W,...]",
        "a query reads the W keys up to its own; 0: all; several: one a layer. Of --arch the "
        "kinds stay, but the checkpoint is decode's",
        .otherwise = "0", NEW_ONLY),
    OPT_STRING("score-scale", score_scale, "X|none",
               "attention's scores are multiplied by X, or by nothing; llama.cpp heeds that in few "
               "architectures",
               .otherwise = "1/sqrt(head size); with --from the checkpoint's"),
    OPT_FLAG("share-layers", share_layers, "all layers use the weights of one", NEW_ONLY),
    OPT_END,
};

#undef VALUES
#define VALUES struct train_spec

const struct option train_step_options[] = {
    OPT_INT("steps", n_steps, "N", 1, 100000000, "steps", .fallback = "2000"),
    OPT_INT("batch", batch, "B", 1, 65536, "windows a step", .fallback = "8"),
    OPT_CHOICE("optimizer", optimizer, "NAME", train_optimizers,
               "muon makes the momentum of the blocks' matrices orthogonal and leaves the rest to "
               "AdamW: fewer steps for the same loss, each a little longer",
               .fallback = "adamw"),
    OPT_DOUBLE("lr", lr, "X", 0, TRAIN_MOST_RATE,
               "learning rate after the warm-up; it ends at a tenth, by a cosine",
               .otherwise = "0.001, of muon 0.01; with --from a tenth of that", .above_min = true),
    OPT_INT("warmup", warmup, "N", -1, INT_MAX,
            "steps of linear warm-up; -1: a tenth of all, with --from half, at most 100",
            .fallback = "-1"),
    OPT_DOUBLE("weight-decay", weight_decay, "X", 0, 10, "AdamW's, of matrices only",
               .fallback = "0.1"),
    OPT_DOUBLE("dropout", dropout, "X", 0, 0.9,
               "share of embeddings and of what layers add that is left out in each step",
               .fallback = "0"),
    OPT_DOUBLE("attn-dropout", attn_dropout, "X", 0, 0.9,
               "share of attention's probabilities that is left out in each step", .fallback = "0"),
    OPT_DOUBLE("label-smoothing", label_smoothing, "X", 0, 0.9,
               "share of the loss that asks for all tokens alike; the original Transformer: 0.1",
               .fallback = "0"),
    OPT_DOUBLE("clip", clip, "X", 0, 1e6, "limit of the gradient's norm; 0: none", .fallback = "1"),
    OPT_END,
};

const struct option train_held_out_options[] = {
    OPT_DOUBLE("val-fraction", val_fraction, "X", 0, 0.9,
               "the last part of each text, held out; 0: none", .fallback = "0.1"),
    OPT_INT("eval-every", eval_every, "N", -1, INT_MAX,
            "steps between evaluations on the held-out text; 0: a twentieth of --steps, from 25 to "
            "250; -1: none, and OUT is the last step's checkpoint",
            .fallback = "0"),
    OPT_END,
};

/* --- a new model ----------------------------------------------------------------------------- */

/* Sets the architecture and its kinds. Only FREE_ARCH may have other kinds than its own. */
static enum status set_kinds(const struct train_shape *s, struct config *c, struct err *e)
{
    /* As the rows behind --arch have them. */
    unsigned *const kinds[TRAIN_KINDS] = {(unsigned *)&c->norm, (unsigned *)&c->placement,
                                          (unsigned *)&c->position, (unsigned *)&c->ffn,
                                          (unsigned *)&c->score};
    bool is_free = s->no_bias || s->share_layers || s->score_scale || s->window;
    const char *option = NULL;
    for (int i = 0; i < TRAIN_KINDS; i++)
        is_free |= s->kinds[i] != CHOICE_NONE;
    const char *preset = s->arch != CHOICE_NONE ? shape_archs[s->arch]
                         : is_free              ? FREE_ARCH
                                                : shape_archs[0];
    config_set_arch(c, arch_preset(text_of(preset)));
    if (s->share_layers)
        option = "share-layers";
    if (s->no_bias && c->biases != BIASES_NONE)
        option = "no-bias";
    for (int i = 0; i < TRAIN_KINDS; i++)
        if (s->kinds[i] != CHOICE_NONE && (unsigned)s->kinds[i] != *kinds[i]) {
            option = train_kind_options[1 + i].name;
            *kinds[i] = s->kinds[i];
        }
    if (option && !str_is(preset, FREE_ARCH))
        return err_usage(
            e, "--%s: --arch %s has no such choice; --arch " FREE_ARCH " has what is asked for",
            option, preset);
    if (s->no_bias)
        c->biases = BIASES_NONE;
    c->shared = s->share_layers;
    if (s->score_scale)
        TRY(parse_score_scale(s->score_scale, &c->score_scale, e));
    if (s->window)
        TRY(windows_of_layers("--window", s->window, ",", false, c, e));
    if (c->position == POSITION_SINUSOIDAL) /* beside which tokens would be nothing otherwise */
        c->embedding_scale = sqrtf(c->d_model);
    return STATUS_OK;
}

/* The config of the model that training starts from: the checkpoint at `path`, which is opened, or
 * (NULL) a new one of this shape. STATUS_USAGE names an option that cannot be with the others; the
 * failures of job_open. */
static enum status open_origin(const char *path, const struct train_shape *s,
                               struct checkpoint *from, struct config *c, struct err *e)
{
    static const struct shape_words words = {"--heads", "--embd", "--head-dim", "--score"};
    int layers[CONFIG_MAX_LAYERS], n = 0; /* of --kv-heads: one for all layers, or one for each */
    if (path) {
        TRY(job_open(path, CHECKPOINT_TEXTS, NULL, from, e));
        TRY(err_in_file(e, config_read(from->gguf, c, e), path));
        if (!s->score_scale)
            return STATUS_OK;
        TRY(config_needs_dot(c, "--score-scale", e));
        return parse_score_scale(s->score_scale, &c->score_scale, e);
    }
    *c = (struct config){.n_layers = s->n_layers ? s->n_layers : 4,
                         .n_heads = s->n_heads ? s->n_heads : 8,
                         .head_dim = s->head_dim,
                         .d_model = s->d_model ? s->d_model : 128,
                         .d_ff = s->d_ff,
                         .n_ctx = s->n_ctx ? s->n_ctx : TRAIN_CTX,
                         .n_vocab = s->n_vocab ? s->n_vocab : 256};
    TRY(set_kinds(s, c, e));
    c->n_kv_heads = c->n_heads;
    if (s->kv_heads) {
        TRY(heads_of_layers(s->kv_heads, c, layers, &n, e));
        c->n_kv_heads = 0;
    }
    for (int l = 0; l < c->n_layers && n > 0; l++) {
        c->layer_kv_heads[l] = n > 1 ? layers[l] : 0;
        c->n_kv_heads = MAX(layers[l], c->n_kv_heads);
    }
    return shape_complete(c, &words, e);
}

/* --- from options to a specification --------------------------------------------------------- */

static int between(int x, int least, int most)
{
    return x < least ? least : x > most ? most : x;
}

enum status train_spec_complete(struct train_spec *spec, struct train_shape *shape,
                                struct checkpoint *from, struct checkpoint *teacher, struct err *e)
{
    const bool further = spec->from_path;
    spec->beta2 = 0.99;
    const int interval = between(spec->n_steps / 20, 25, 250);
    /* Further training starts with AdamW's moments empty beside weights that have something to
     * lose. */
    if (spec->warmup < 0)
        spec->warmup = between(spec->n_steps / (further ? 2 : 10), 0, 100);
    if (spec->lr == 0)
        spec->lr = (spec->optimizer == OPTIMIZER_MUON ? 1e-2 : 1e-3) * (further ? FURTHER : 1);
    if (spec->eval_every == 0)
        spec->eval_every = interval;
    if (spec->save_every == 0)
        spec->save_every = spec->eval_every > 0 ? spec->eval_every : interval;
    TRY(open_origin(spec->from_path, shape, from, &spec->shape, e));
    spec->from = from->gguf;
    spec->length = shape->n_ctx ? shape->n_ctx : TRAIN_CTX;
    if (further && !shape->n_ctx && spec->shape.n_ctx < spec->length)
        spec->length = spec->shape.n_ctx;
    shape->n_ctx = spec->length;
    spec->loss = (struct loss_weights){.text = 1};
    if (!spec->teacher_path)
        return STATUS_OK;
    spec->loss = (struct loss_weights){.text = 0.5f, .teacher = 0.5f};
    TRY(job_open(spec->teacher_path, CHECKPOINT_TOKENIZER, NULL, teacher, e));
    spec->teacher = teacher->gguf;
    return STATUS_OK;
}

enum status train_loss_parse(const char *text, struct loss_weights *loss, struct err *e)
{
    static const char *const terms[] = {"text", "teacher", "streams", NULL};
    float *const weights[] = {&loss->text, &loss->teacher, &loss->streams};
    char term[32], number[32] = "";
    if (!text)
        return STATUS_OK;
    *loss = (struct loss_weights){0};
    for (char end = ','; end == ',';) {
        double x = 0;
        end = list_next(&text, "=,", term, sizeof term);
        const int i = names_find(terms, term);
        if (end == '=')
            end = list_next(&text, ",", number, sizeof number);
        if (i < 0 || !parse_double(number, &x) || x < 0 || x > TRAIN_MOST_WEIGHT)
            return err_usage(e,
                             "--loss: expected text=X, teacher=X or streams=X, with X from 0 to "
                             "%d, separated by commas; found '%s'",
                             TRAIN_MOST_WEIGHT, term);
        *weights[i] = (float)x;
    }
    if (loss->text + loss->teacher + loss->streams <= 0)
        return err_usage(e, "--loss: all weights are 0; expected one that is not");
    return STATUS_OK;
}
