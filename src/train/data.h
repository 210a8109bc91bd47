/*
 * data - the texts of a run as tokens, the model that they are for, and what the file OUT holds
 * besides tensors.
 */
#pragma once

#include "formats/gguf_write.h"
#include "train/private.h"

/* Splits each text into a part to train on and one to hold out, and encodes both into t->data,
 * which trainer_free frees. STATUS_USAGE, with the least length, if a part has no whole window;
 * STATUS_NO_MEMORY. */
enum status train_data_read(struct trainer *t, struct err *e);

/* Fills in t->gguf, t->config and t->tokenizer: from spec.from, or for a new model from spec.shape
 * and a vocabulary that is learned. STATUS_USAGE, STATUS_BAD_FILE, STATUS_INTERRUPTED,
 * STATUS_NO_MEMORY. */
enum status train_template_make(struct trainer *t, struct err *e);

/* Makes the writer of OUT with the present weights, which it borrows. *out is for gguf_writer_free;
 * NULL on failure. STATUS_NO_MEMORY. */
enum status train_model_writer(const struct trainer *t, struct gguf_writer **out, struct err *e);

/* Fills in t->teacher_config. STATUS_USAGE unless the teacher predicts the same tokens. */
enum status train_teacher_check(struct trainer *t, struct err *e);
