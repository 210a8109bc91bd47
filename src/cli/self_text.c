#include "cli/self_text.h"

#include "engine/own_text.h"

static const char self[] = "self";

bool self_text_is(const char *name)
{
    const size_t n = strlen(self);
    return strncmp(name, self, n) == 0 && (!name[n] || name[n] == ':');
}

enum status self_text_count(const char *option, const char *name, int least, int *n, struct err *e)
{
    const char *number = name + strlen(self);
    if (*number && !parse_int(number + 1, least, INT_MAX, n))
        return err_usage(e, "%s: expected self:N with N from %d on, found '%.200s'", option, least,
                         name);
    return STATUS_OK;
}

enum status self_text_write(struct job *j, const struct self_text *t, int32_t *tokens,
                            struct err *e)
{
    const struct checkpoint *k = t->checkpoint;
    struct model *model;
    TRY(input_needs_tokenizer(k->tokenizer, t->path, t->option, e));
    TRY(err_in(e,
               model_create(k->gguf, &(struct model_options){.pool = j->pool}, &k->file, &model, e),
               "%s", t->path));
    model->name = t->path;
    const struct own_text text = {.model = model,
                                  .tokenizer = k->tokenizer,
                                  .kernels = j->kernels,
                                  .pool = j->pool,
                                  .seed = t->seed,
                                  .length = t->length,
                                  .n = t->n,
                                  .callbacks = job_callbacks(j, "own token")};
    enum status s = STATUS_OK;
    if (model->config.n_ctx < SELF_CTX)
        s = err_usage(e, "%s: expected a checkpoint with a context of at least %d, found %d",
                      t->option, SELF_CTX, model->config.n_ctx);
    if (s == STATUS_OK)
        s = own_text_write(&text, tokens, e);
    model_free(model);
    return s;
}
