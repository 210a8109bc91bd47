#include "train/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "text/bpe_learn.h"
#include "train/data.h"

/* --- a new model ----------------------------------------------------------------------------- */

struct learning {
    const struct train_spec *spec;
};

static bool stop_learning(void *arg)
{
    const struct learning *l = arg;
    return l->spec->stop && l->spec->stop(l->spec->arg);
}

static void report_learning(void *arg, enum bpe_learn_phase phase, uint64_t done, uint64_t all)
{
    (void)phase;
    const struct learning *l = arg;
    const struct train_event ev = {.kind = TRAIN_LEARNING, .done = done, .all = all};
    if (l->spec->event)
        l->spec->event(l->spec->arg, &ev);
}

/* Learns from the parts of the texts that are not held out. */
static enum status learn(const struct train_spec *spec, struct bpe_learned *v, struct err *e)
{
    struct text *parts = calloc((size_t)spec->n_texts, sizeof *parts);
    if (!parts)
        return err_no_memory(e, "the list of texts", (size_t)spec->n_texts * sizeof *parts);
    for (int i = 0; i < spec->n_texts; i++)
        parts[i] =
            (struct text){spec->texts[i].data, train_part(spec->val_fraction, spec->texts[i].len)};
    struct learning l = {spec};
    const struct bpe_learn_spec learn_spec = {.n_tokens = spec->shape.n_vocab,
                                              .stop = stop_learning,
                                              .progress = report_learning,
                                              .arg = &l};
    const enum status s = bpe_learn(&learn_spec, parts, (size_t)spec->n_texts, v, e);
    free(parts);
    return s;
}

/* A file without tensors that a checkpoint's metadata is taken from. */
static enum status make_new(struct train_template *t, const struct train_spec *spec, struct err *e)
{
    struct bpe_learned vocabulary;
    struct gguf_writer *w = NULL;
    size_t len = 0;
    /* Of the shape alone: the same training gives the same file, whatever it is called. */
    char name[64];
    const bool is_gpt2 = spec->shape.arch == arch_at(0);
    snprintf(name, sizeof name, "%s%s%dx%dx%d-kv%d", is_gpt2 ? "" : spec->shape.arch->preset,
             is_gpt2 ? "" : "-", spec->shape.n_layers, spec->shape.d_model, spec->shape.n_heads,
             spec->shape.n_kv_heads);
    TRY(learn(spec, &vocabulary, e));
    t->config = spec->shape;
    t->config.n_vocab = vocabulary.n_tokens;
    enum status s = gguf_writer_create(&w, e);
    if (s == STATUS_OK) {
        gguf_add_text(w, "general.architecture", text_of(t->config.arch->name));
        gguf_add_text(w, "general.name", text_of(name));
        gguf_add_u32(w, "general.file_type", 0);
        config_write(&t->config, w);
        s = bpe_learned_write(&vocabulary, w, e);
    }
    if (s == STATUS_OK)
        s = gguf_write_memory(w, &t->bytes, &len, e);
    if (s == STATUS_OK)
        s = gguf_parse(t->bytes, len, &t->owned, e);
    gguf_writer_free(w);
    bpe_learned_free(&vocabulary);
    t->gguf = t->owned;
    return s;
}

/* --- the template ---------------------------------------------------------------------------- */

static bool holds_other_types(const struct gguf *g)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].type->type != TENSOR_F32)
            return true;
    return false;
}

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

enum status train_template_make(struct train_template *t, const struct train_spec *spec,
                                struct err *e)
{
    *t = (struct train_template){.gguf = spec->from};
    enum status s = spec->from ? read_trainable(spec->from, &t->config, e) : make_new(t, spec, e);
    if (s == STATUS_OK)
        s = tokenizer_create(t->gguf, &t->tokenizer, e);
    t->widened = s == STATUS_OK && holds_other_types(t->gguf);
    return s;
}

void train_template_free(struct train_template *t)
{
    tokenizer_free(t->tokenizer);
    gguf_free(t->owned);
    free(t->bytes);
    *t = (struct train_template){.gguf = NULL};
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

enum status train_teacher_check(const struct train_template *t, const struct gguf *teacher,
                                struct config *config, int length, struct err *e)
{
    TRY(read_trainable(teacher, config, e));
    if (config->n_vocab != t->config.n_vocab)
        return err_set(e, STATUS_USAGE,
                       "--teacher: expected the same vocabulary, of %d tokens; found %d",
                       t->config.n_vocab, config->n_vocab);
    if (!same_array(t->gguf, teacher, "tokenizer.ggml.tokens") ||
        !same_array(t->gguf, teacher, "tokenizer.ggml.merges"))
        return err_set(e, STATUS_USAGE,
                       "--teacher: expected the same vocabulary; its tokens or merges differ");
    if (config->n_ctx < length)
        return err_set(e, STATUS_USAGE,
                       "--teacher: its context of %d tokens is shorter than the windows of %d",
                       config->n_ctx, length);
    return STATUS_OK;
}
