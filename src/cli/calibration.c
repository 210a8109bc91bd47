#include "cli/calibration.h"

#include "cli/input.h"
#include "cli/terminal.h"
#include "convert/convert.h"
#include "engine/own_text.h"
#include "model/config_keys.h"

/* Leaves about so many tokens, in whole windows at equal distances. */
static void spread_windows(struct calibration *text, size_t wanted, int n_ctx)
{
    const size_t window = convert_window_size(n_ctx, wanted);
    const size_t n_windows = wanted / window, step = (text->n - window) / (n_windows - 1);
    for (size_t i = 1; i < n_windows; i++)
        memmove(text->tokens + i * window, text->tokens + i * step, window * sizeof *text->tokens);
    text->n = n_windows * window;
}

enum status calibration_of_text(const struct common_options *o, const struct tokenizer *t,
                                const struct config *c, struct text text, const char *name,
                                size_t wanted, struct calibration *out, struct err *e)
{
    TRY(tokens_of_sample(t, text, wanted, &out->tokens, &out->n, e));
    if (out->n == 0)
        return err_usage(e, "there is no text in '%.200s'", name);
    if (out->n < CONVERT_MIN_TOKENS)
        return err_usage(e, "expected at least %d tokens in '%.200s', found %zu",
                         CONVERT_MIN_TOKENS, name, out->n);
    if (out->n > wanted)
        spread_windows(out, wanted, c->n_ctx);
    if (out->n < (size_t)c->d_model)
        log_info(
            o,
            "warning: %zu tokens to calibrate on are too few for a model of width %d, and may make "
            "it "
            "worse; expected thousands",
            out->n, c->d_model);
    return STATUS_OK;
}

enum status calibration_write(const struct calibration_writer *w, struct calibration *out,
                              struct err *e)
{
    const struct checkpoint *k = w->checkpoint;
    struct config c;
    TRY(input_needs_tokenizer(k->tokenizer, w->path, "--calib self", e));
    TRY(err_in(e, config_read(k->gguf, &c, e), "%s", w->path));
    if (c.n_ctx < CALIBRATION_SELF_CTX)
        return err_usage(
            e, "--calib self: expected a checkpoint with a context of at least %d, found %d",
            CALIBRATION_SELF_CTX, c.n_ctx);
    const size_t window = convert_window_size(c.n_ctx, w->n_tokens), n = w->n_tokens / window;
    struct model *model = NULL;
    out->n = n * window;
    out->tokens = malloc(out->n * sizeof *out->tokens);
    if (!out->tokens)
        return err_no_memory(e, "the calibration text", out->n * sizeof *out->tokens);
    TRY(err_in(e, model_create(k->gguf, NULL, &k->file, &model, e), "%s", w->path));
    model->name = w->path;
    const struct own_text text = {.model = model,
                                  .tokenizer = k->tokenizer,
                                  .kernels = w->kernels,
                                  .pool = w->pool,
                                  .seed = w->seed,
                                  .length = window,
                                  .n = n,
                                  .callbacks = w->callbacks};
    const enum status s = own_text_write(&text, out->tokens, e);
    model_free(model);
    return s;
}
