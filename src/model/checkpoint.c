#include "model/checkpoint.h"

static enum status open_parts(unsigned parts, struct checkpoint *c, struct err *e)
{
    struct config config;
    TRY(gguf_parse_file(&c->file, &c->gguf, e));
    /* First of all whether it is a model that runs here, whose tokenizer then matters. */
    if (parts & CHECKPOINT_MODEL)
        TRY(config_read(c->gguf, &config, e));
    /* Without the key, asking for a tokenizer gives the message that names it. */
    if (gguf_find(c->gguf, "tokenizer.ggml.model") || parts & CHECKPOINT_TOKENIZER)
        TRY(tokenizer_create(c->gguf, &c->tokenizer, e));
    c->file.once = parts & CHECKPOINT_MODEL; /* whoever has the model needs the tensors no more */
    return parts & CHECKPOINT_MODEL ? model_create(c->gguf, NULL, &c->file, &c->model, e)
                                    : STATUS_OK;
}

enum status checkpoint_take(struct file_map *file, const char *path, unsigned parts,
                            struct checkpoint *c, struct err *e)
{
    *c = (struct checkpoint){.file = *file};
    *file = (struct file_map){0};
    const enum status s = open_parts(parts, c, e);
    if (s != STATUS_OK) {
        err_prefix(e, path);
        checkpoint_close(c);
    }
    return s;
}

enum status checkpoint_open(const char *path, unsigned parts, struct checkpoint *c, struct err *e)
{
    struct file_map file;
    *c = (struct checkpoint){0};
    TRY(file_map_open(&file, path, e));
    return checkpoint_take(&file, path, parts, c, e);
}

void checkpoint_close(struct checkpoint *c)
{
    model_free(c->model);
    tokenizer_free(c->tokenizer);
    gguf_free(c->gguf);
    file_map_close(&c->file);
    *c = (struct checkpoint){0};
}
