/*
 * template - what OUT holds besides tensors, and OUT itself.
 */
#ifndef DECODE_TRAIN_TEMPLATE_H
#define DECODE_TRAIN_TEMPLATE_H

#include "model/params.h"
#include "text/tokenizer.h"
#include "train/spec.h"

/* What OUT holds besides tensors: the metadata of `from`, or that of a new vocabulary. */
struct train_template {
    const struct gguf *gguf;
    struct gguf *owned;   /* of a new model; NULL otherwise */
    unsigned char *bytes; /* that `owned` reads */
    struct config config;
    struct tokenizer *tokenizer;
    bool widened;
};

/* `t` is for train_template_free in any case. */
enum status train_template_make(struct train_template *t, const struct train_spec *spec,
                                struct err *e);
void train_template_free(struct train_template *t);

/* The checkpoint at `path`, atomically. */
enum status train_model_write(const struct train_template *t, const struct param_list *list,
                              const float *weights, const char *path, struct err *e);

/* STATUS_USAGE unless the teacher predicts the same tokens. */
enum status train_teacher_check(const struct train_template *t, const struct gguf *teacher,
                                struct config *config, int length, struct err *e);

#endif
