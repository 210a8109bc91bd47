/* What a run is made from: the texts as tokens, and what OUT holds besides tensors. */
#include "train/private.h"

#include <math.h>

#include "formats/gguf_values.h"
#include "model/config_keys.h"
#include "text/bpe_learn.h"

/* --- texts ----------------------------------------------------------------------------------- */

/* The bytes of a text that are not held out. */
static size_t train_part(double val_fraction, size_t len)
{
    return (1 - val_fraction) * len;
}

/* Appends the tokens of a text. */
static enum status append_text(struct tokens *tokens, const struct tokenizer *t, struct text text,
                               struct err *e)
{
    int32_t *ids;
    size_t n;
    TRY(tokenizer_encode(t, text, false, &ids, &n, e));
    int32_t *longer = realloc(tokens->ids, MAX(tokens->n + n, 1) * sizeof *longer);
    if (longer) {
        memcpy(longer + tokens->n, ids, n * sizeof *ids);
        tokens->ids = longer;
        tokens->n += n;
        tokens->n_bytes += text.len;
    }
    free(ids);
    return longer ? STATUS_OK : err_no_memory(e, "the texts' tokens", n * sizeof *longer);
}

enum status train_data_read(struct trainer *t, struct err *e)
{
    const struct train_spec *spec = &t->spec;
    struct tokens *train = &t->train, *val = &t->val;
    const size_t window = spec->length + 1;
    const double held_out = spec->val_fraction;
    for (int i = 0; i < spec->n_texts; i++) {
        const struct text text = spec->texts[i];
        const size_t cut = train_part(held_out, text.len);
        TRY(append_text(train, t->tokenizer, text_span(text.data, cut), e));
        TRY(append_text(val, t->tokenizer, text_span(text.data + cut, text.len - cut), e));
    }
    t->data_hash = hash_bytes(HASH_START, train->ids, train->n * sizeof *train->ids);
    t->data_hash = hash_bytes(t->data_hash, val->ids, val->n * sizeof *val->ids);
    const bool short_train = train->n < window;
    if (!short_train && (held_out <= 0 || val->n >= window))
        return STATUS_OK;
    const size_t n = train->n + val->n, bytes = train->n_bytes + val->n_bytes;
    const double smaller = held_out > 0 ? fmin(held_out, 1 - held_out) : 1;
    return err_usage(e,
                     "the text is too short: its %s part has %zu tokens, windows of --ctx %d need "
                     "%zu; expected at least some %.0f bytes, found %zu",
                     short_train ? "first" : "held-out", short_train ? train->n : val->n,
                     spec->length, window, ceil(window * (n ? (double)bytes / n : 1) / smaller),
                     bytes);
}

/* --- a new model's metadata ------------------------------------------------------------------ */

/* The metadata of a new model: its vocabulary is learned from the parts of the texts that are not
 * held out, and a file without tensors is made of it. */
static enum status make_new(struct trainer *t, struct err *e)
{
    struct train_spec *spec = &t->spec;
    const size_t n = spec->n_texts;
    const struct bpe_learn_spec learn = {.n_tokens = spec->shape.n_vocab,
                                         .callbacks = spec->callbacks};
    struct config *c = &t->config;
    struct bpe_learned vocabulary;
    struct gguf_writer *w = NULL;
    size_t len;
    char name[64];
    struct text *parts;
    TRY_ZEROED(parts, n, "the list of texts", e);
    for (size_t i = 0; i < n; i++)
        parts[i] =
            (struct text){spec->texts[i].data, train_part(spec->val_fraction, spec->texts[i].len)};
    enum status s = bpe_learn(&learn, parts, n, &vocabulary, e);
    free(parts);
    TRY(s);
    *c = spec->shape;
    c->n_vocab = bpe_learned_n_tokens(&vocabulary);
    /* Of the shape alone: the same training gives the same file, whatever it is called. */
    const bool is_gpt2 = c->arch == arch_find(text_of("gpt2"));
    chars_printf(name, "%s%s%dx%dx%d-kv%d", is_gpt2 ? "" : c->arch->preset, is_gpt2 ? "" : "-",
                 c->n_layers, c->d_model, c->n_heads, c->n_kv_heads);
    s = gguf_writer_create(&w, e);
    if (s == STATUS_OK) {
        gguf_add_text(w, "general.architecture", text_of(c->arch->name));
        gguf_add_text(w, "general.name", text_of(name));
        gguf_add_u32(w, "general.file_type", 0);
        config_write(c, w);
        s = bpe_learned_write(&vocabulary, w, e);
    }
    if (s == STATUS_OK)
        s = gguf_write_memory(w, &t->bytes, &len, e);
    if (s == STATUS_OK)
        s = gguf_parse(t->bytes, len, &t->owned_gguf, e);
    t->gguf = t->owned_gguf;
    gguf_writer_free(w);
    bpe_learned_free(&vocabulary);
    return s;
}

/* The config of a checkpoint; refuses one that has what training does not know. */
static enum status read_trainable(const struct gguf *g, struct config *c, struct err *e)
{
    TRY(model_check(g, e));
    TRY(config_read(g, c, e));
    for (int64_t i = 0; i < layout_count(c); i++) {
        const struct tensor_spec spec = layout_at(c, i);
        if (spec.flags & SPEC_UNUSUAL && gguf_find_tensor(g, spec.name.text))
            return err_bad_file(e,
                                "tensor %s: expected none, because no training knows it; found one",
                                spec.name.text);
    }
    return STATUS_OK;
}

enum status train_template_make(struct trainer *t, struct err *e)
{
    t->gguf = t->spec.from;
    TRY(t->gguf ? read_trainable(t->gguf, &t->config, e) : make_new(t, e));
    if (t->spec.shape.score_scale != 0)
        t->config.score_scale = t->spec.shape.score_scale;
    return tokenizer_create(t->gguf, &t->tokenizer, e);
}

enum status train_model_writer(const struct trainer *t, struct gguf_writer **out, struct err *e)
{
    char scale_key[64];
    TRY(gguf_writer_create(out, e));
    struct gguf_writer *w = *out;
    chars_printf(scale_key, "%s.attention.scale", t->config.arch->name);
    for (size_t i = 0; i < t->gguf->n_pairs; i++) {
        const struct gguf_pair *pair = &t->gguf->pairs[i];
        /* All tensors are F32, whatever they were. */
        if (text_is(pair->key, "general.file_type"))
            gguf_add_u32(w, "general.file_type", 0);
        else if (text_is(pair->key, scale_key))
            gguf_add_f32(w, scale_key, t->config.score_scale);
        else if (!text_is(pair->key, "general.quantization_version"))
            gguf_add_value(w, pair->key, &pair->value);
    }
    if (t->config.score_scale != 0 && !gguf_find(t->gguf, scale_key))
        gguf_add_f32(w, scale_key, t->config.score_scale);
    for (const struct param *p = t->list.items; p < t->list.items + t->list.n; p++)
        gguf_add_tensor(w, text_of(p->spec.name.text), TENSOR_F32, p->spec.n_dims,
                        spec_dims(&p->spec).n, t->weights.flat + p->offset);
    return STATUS_OK;
}

/* --- the teacher ----------------------------------------------------------------------------- */

static bool same_array(const struct gguf *a, const struct gguf *b, const char *key)
{
    const struct gguf_value *x = gguf_find(a, key), *y = gguf_find(b, key);
    if (!x || !y)
        return x == y;
    return x->kind == y->kind && x->count == y->count && text_equal(x->bytes, y->bytes);
}

enum status train_teacher_open(struct trainer *t, struct err *e)
{
    const struct gguf *teacher = t->spec.teacher;
    struct config *config = &t->teacher_config;
    if (!teacher)
        return STATUS_OK;
    TRY(read_trainable(teacher, config, e));
    if (config->n_vocab != t->config.n_vocab ||
        !same_array(t->gguf, teacher, "tokenizer.ggml.tokens") ||
        !same_array(t->gguf, teacher, "tokenizer.ggml.merges"))
        return err_usage(
            e, "--teacher: expected the same vocabulary, of %d tokens; found another, of %d",
            t->config.n_vocab, config->n_vocab);
    if (train_compares_streams(&t->spec) &&
        (config->n_layers != t->config.n_layers || config->d_model != t->config.d_model))
        return err_usage(e,
                         "--loss: streams are compared block by block: expected a teacher of %d "
                         "layers of width %d; found %d of %d",
                         t->config.n_layers, t->config.d_model, config->n_layers, config->d_model);
    if (config->n_ctx < t->spec.length)
        return err_usage(e, "--teacher: its context of %d tokens is shorter than the windows of %d",
                         config->n_ctx, t->spec.length);
    return param_list_create(&t->teacher_list, config, teacher, PARAMS_PANELS, e);
}
