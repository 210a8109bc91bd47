/*
 * convert - an MHA or GQA checkpoint to one with fewer K/V heads. README.md has the algorithm.
 *
 * The new file has the old one's tensors, and no bias that it had not. (Means of values in new
 * biases brought 0.005 nats a token of 0.18 on a trained llama.)
 */
#pragma once

#include "convert/spec.h"

/* Memory that convert_run needs beside the model and what runs it; with cache_bytes nearly so, as
 * the K/V heads are not known yet. STATUS_USAGE or STATUS_BAD_FILE if the specification cannot be
 * carried out; STATUS_NO_MEMORY. */
enum status convert_plan(const struct convert_spec *spec, size_t *bytes, struct err *e);

/* The result borrows spec->gguf's unchanged tensors; convert_free is due on success. The same bits
 * for any number of threads. The failures of convert_plan and model_create; STATUS_INTERRUPTED;
 * STATUS_FAILED if weights are not finite, or no longer fit the type of their tensor. */
enum status convert_run(const struct convert_spec *spec, struct convert *out, struct err *e);

/* The model that the result is, in memory of its own, which model_free releases. The pool is as in
 * model_options. The failures of gguf_parse and model_create. */
enum status convert_model(const struct convert *converted, struct pool *pool, struct model **out,
                          struct err *e);
