/* What a run is made from: the texts as tokens, and what OUT holds besides tensors. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "text/bpe_learn.h"
#include "train/private.h"

/* --- texts ----------------------------------------------------------------------------------- */

size_t train_part(double val_fraction, size_t len)
{
    return (size_t)((1 - val_fraction) * (double)len);
}

/* Appends the ids of a text. */
static enum status append_tokens(struct tokens *tokens, const struct tokenizer *t, struct text text,
                                 struct err *e)
{
    int32_t *ids;
    size_t n;
    TRY(tokenizer_encode(t, text, &ids, &n, e));
    tokens->n_bytes += text.len;
    const size_t all = tokens->n + n;
    if (tokens->n > 0) {
        int32_t *longer = realloc(tokens->ids, all * sizeof *longer);
        if (longer)
            memcpy(longer + tokens->n, ids, n * sizeof *ids);
        free(ids);
        if (!longer)
            return err_no_memory(e, "the texts' tokens", all * sizeof *longer);
        ids = longer;
    } else {
        free(tokens->ids);
    }
    tokens->ids = ids;
    tokens->n = all;
    return STATUS_OK;
}

/* The least bytes of a text both of whose parts have `part` bytes; of one part, if none is held
 * out. */
static size_t least_length(double val_fraction, double part)
{
    if (val_fraction <= 0)
        return (size_t)part;
    size_t n = (size_t)(part / fmin(val_fraction, 1 - val_fraction)) + 2;
    while (n > 0 && (double)train_part(val_fraction, n - 1) >= part &&
           (double)(n - 1 - train_part(val_fraction, n - 1)) >= part)
        n--;
    return n;
}

/* That each part has a window. */
static enum status check_lengths(const struct train_data *d, const struct train_spec *spec,
                                 struct err *e)
{
    const size_t window = (size_t)spec->length + 1;
    const bool short_train = d->train.n < window;
    const bool short_val = spec->val_fraction > 0 && d->val.n < window;
    if (!short_train && !short_val)
        return STATUS_OK;
    const size_t n = d->train.n + d->val.n, bytes = d->train.n_bytes + d->val.n_bytes;
    const double per_token = n ? (double)bytes / (double)n : 1;
    const size_t least = least_length(spec->val_fraction, ceil((double)window * per_token));
    return err_set(e, STATUS_USAGE,
                   "the text is too short: its %s part has %zu tokens, windows of --ctx %d need "
                   "%zu; expected at least %zu bytes, found %zu",
                   short_train ? "first" : "held-out", short_train ? d->train.n : d->val.n,
                   spec->length, window, least, bytes);
}

enum status train_data_read(struct train_data *d, const struct train_spec *spec,
                            const struct tokenizer *t, struct err *e)
{
    *d = (struct train_data){.hash = TRAIN_HASH_START};
    for (int i = 0; i < spec->n_texts; i++) {
        const struct text text = spec->texts[i];
        const size_t cut = train_part(spec->val_fraction, text.len);
        TRY(append_tokens(&d->train, t, (struct text){text.data, cut}, e));
        TRY(append_tokens(&d->val, t, (struct text){text.data + cut, text.len - cut}, e));
    }
    d->hash = train_hash(d->hash, d->train.ids, d->train.n * sizeof *d->train.ids);
    d->hash = train_hash(d->hash, d->val.ids, d->val.n * sizeof *d->val.ids);
    return check_lengths(d, spec, e);
}

void train_data_free(struct train_data *d)
{
    free(d->train.ids);
    free(d->val.ids);
}

/* --- a new model's metadata ------------------------------------------------------------------ */

static bool stop_learning(void *arg)
{
    return train_stopped(arg);
}

static void report_learning(void *arg, enum bpe_learn_phase phase, uint64_t done, uint64_t all)
{
    (void)phase;
    train_tell(arg, (struct train_event){.kind = TRAIN_LEARNING, .done = done, .all = all});
}

/* Learns from the parts of the texts that are not held out. */
static enum status learn(struct train_spec *spec, struct bpe_learned *v, struct err *e)
{
    const size_t n = (size_t)spec->n_texts;
    struct text *parts = calloc(n, sizeof *parts);
    if (!parts)
        return err_no_memory(e, "the list of texts", n * sizeof *parts);
    for (size_t i = 0; i < n; i++)
        parts[i] =
            (struct text){spec->texts[i].data, train_part(spec->val_fraction, spec->texts[i].len)};
    const struct bpe_learn_spec learn_spec = {.n_tokens = spec->shape.n_vocab,
                                              .stop = stop_learning,
                                              .progress = report_learning,
                                              .arg = spec};
    const enum status s = bpe_learn(&learn_spec, parts, n, v, e);
    free(parts);
    return s;
}

/* A file without tensors that a checkpoint's metadata is taken from, built with w. */
static enum status make_new(struct train_template *t, const struct bpe_learned *vocabulary,
                            struct gguf_writer *w, struct err *e)
{
    const struct config *c = &t->config;
    const bool is_gpt2 = c->arch == arch_at(0);
    size_t len;
    /* Of the shape alone: the same training gives the same file, whatever it is called. */
    char name[64];
    snprintf(name, sizeof name, "%s%s%dx%dx%d-kv%d", is_gpt2 ? "" : c->arch->preset,
             is_gpt2 ? "" : "-", c->n_layers, c->d_model, c->n_heads, c->n_kv_heads);
    gguf_add_text(w, "general.architecture", text_of(c->arch->name));
    gguf_add_text(w, "general.name", text_of(name));
    gguf_add_u32(w, "general.file_type", 0);
    config_write(c, w);
    TRY(bpe_learned_write(vocabulary, w, e));
    TRY(gguf_write_memory(w, &t->bytes, &len, e));
    TRY(gguf_parse(t->bytes, len, &t->owned, e));
    t->gguf = t->owned;
    return STATUS_OK;
}

static enum status learn_and_make(struct train_template *t, struct train_spec *spec, struct err *e)
{
    struct bpe_learned vocabulary;
    struct gguf_writer *w = NULL;
    TRY(learn(spec, &vocabulary, e));
    t->config = spec->shape;
    t->config.n_vocab = vocabulary.n_tokens;
    enum status s = gguf_writer_create(&w, e);
    if (s == STATUS_OK)
        s = make_new(t, &vocabulary, w, e);
    gguf_writer_free(w);
    bpe_learned_free(&vocabulary);
    return s;
}

/* --- the template ---------------------------------------------------------------------------- */

/* The config of a checkpoint that runs here, all of which training knows. */
static enum status read_trainable(const struct gguf *g, struct config *c, struct err *e)
{
    TRY(model_check(g, e));
    TRY(config_read(g, c, e));
    for (int64_t i = 0; i < layout_count(c); i++) {
        const struct tensor_spec spec = layout_at(c, i);
        if (spec.flags & SPEC_UNUSUAL && gguf_find_tensor(g, spec.name.text))
            return err_set(e, STATUS_BAD_FILE,
                           "tensor %s: expected none, because no training knows it; found one",
                           spec.name.text);
    }
    return STATUS_OK;
}

enum status train_template_make(struct train_template *t, struct train_spec *spec, struct err *e)
{
    *t = (struct train_template){.gguf = spec->from};
    TRY(spec->from ? read_trainable(spec->from, &t->config, e) : learn_and_make(t, spec, e));
    for (size_t i = 0; i < t->gguf->n_tensors; i++)
        t->widened |= t->gguf->tensors[i].type->type != TENSOR_F32;
    return tokenizer_create(t->gguf, &t->tokenizer, e);
}

void train_template_free(struct train_template *t)
{
    tokenizer_free(t->tokenizer);
    gguf_free(t->owned);
    free(t->bytes);
}

/* --- OUT ------------------------------------------------------------------------------------- */

enum status train_model_write(const struct train_template *t, const struct param_list *list,
                              const float *weights, const char *path, struct err *e)
{
    struct gguf_writer *w;
    TRY(gguf_writer_create(&w, e));
    for (size_t i = 0; i < t->gguf->n_pairs; i++) {
        const struct gguf_pair *pair = &t->gguf->pairs[i];
        /* All tensors are F32, whatever they were. */
        if (text_is(pair->key, "general.file_type"))
            gguf_add_u32(w, "general.file_type", 0);
        else if (!text_is(pair->key, "general.quantization_version"))
            gguf_add_value(w, pair->key, &pair->value);
    }
    param_list_write(list, weights, w);
    enum status s = gguf_write(w, path, e);
    gguf_writer_free(w);
    return s;
}

/* --- the teacher ----------------------------------------------------------------------------- */

static bool same_array(const struct gguf *a, const struct gguf *b, const char *key)
{
    const struct gguf_value *x = gguf_find(a, key), *y = gguf_find(b, key);
    if (!x || !y)
        return x == y;
    return x->kind == y->kind && x->count == y->count && text_equal(x->bytes, y->bytes);
}

enum status train_teacher_check(const struct train_template *t, const struct train_spec *spec,
                                struct config *config, struct err *e)
{
    const struct gguf *teacher = spec->teacher;
    TRY(read_trainable(teacher, config, e));
    if (config->n_vocab != t->config.n_vocab)
        return err_set(e, STATUS_USAGE,
                       "--teacher: expected the same vocabulary, of %d tokens; found %d",
                       t->config.n_vocab, config->n_vocab);
    if (!same_array(t->gguf, teacher, "tokenizer.ggml.tokens") ||
        !same_array(t->gguf, teacher, "tokenizer.ggml.merges"))
        return err_set(e, STATUS_USAGE,
                       "--teacher: expected the same vocabulary; its tokens or merges differ");
    if (config->n_ctx < spec->length)
        return err_set(e, STATUS_USAGE,
                       "--teacher: its context of %d tokens is shorter than the windows of %d",
                       config->n_ctx, spec->length);
    return STATUS_OK;
}
