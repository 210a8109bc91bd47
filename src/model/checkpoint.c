#include "model/checkpoint.h"

static enum status open_parts(unsigned parts, struct checkpoint *c, struct err *e)
{
    enum status s = gguf_parse_file(&c->file, &c->gguf, e);
    if (s != STATUS_OK)
        return s;
    /* First of all whether it is a model that runs here, whose tokenizer then matters. */
    struct config config;
    if (parts & CHECKPOINT_MODEL)
        s = config_read(c->gguf, &config, e);
    if (s != STATUS_OK)
        return s;
    /* Without the key, asking for a tokenizer gives the message that names it. */
    if (gguf_find(c->gguf, "tokenizer.ggml.model") || parts & CHECKPOINT_TOKENIZER)
        s = tokenizer_create(c->gguf, &c->tokenizer, e);
    c->file.once = parts & CHECKPOINT_MODEL; /* whoever has the model needs the tensors no more */
    if (s == STATUS_OK && parts & CHECKPOINT_MODEL)
        s = model_create(c->gguf, NULL, &c->file, &c->model, e);
    return s;
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
