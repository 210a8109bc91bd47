#include "cli/job.h"

#include "formats/foreign.h"
#include "model/pack.h"
#include "model/selection.h"

enum status job_map(const char *path, struct file_map *out, struct err *e)
{
    const enum status opened = file_map_open(out, path, e);
    if (text_starts_with(text_span((const char *)out->data, out->len), "GGUF"))
        return STATUS_OK;
    const enum status foreign = foreign_refuse(path, e);
    if (foreign != STATUS_OK)
        file_map_close(out);
    return foreign ? foreign : opened;
}

enum status job_open(const char *path, unsigned parts, struct pool *pool, struct checkpoint *c,
                     struct err *e)
{
    struct file_map file;
    *c = (struct checkpoint){0};
    TRY(job_map(path, &file, e));
    return checkpoint_take(&file, path, parts, pool, c, e);
}

const struct gguf_tensor *job_find_quantized(const struct gguf *g)
{
    for (const struct gguf_tensor *t = g->tensors; t < g->tensors + g->n_tensors; t++)
        if (t->n_dims > 1 && t->type->block_elements > 1)
            return t;
    return NULL;
}

void job_warn_vocabulary(const struct common_options *o, const char *path,
                         const struct tokenizer *t)
{
    if (t && tokenizer_oddity(t))
        log_info(o, "warning: %s: %s", path, tokenizer_oddity(t));
}

void job_say_fallback(const struct common_options *o, const struct config *c, enum storage type)
{
    for (int64_t i = 0; i < layout_count(c) && type != STORAGE_F16; i++) {
        const struct tensor_spec t = layout_at(c, i);
        if (!(t.flags & SPEC_QUANTISES) || layout_type(&t, pack_type(type)) != TENSOR_F16)
            continue;
        log_info(o,
                 "type %s: rows of %d, as those of %s, are no multiple of its blocks of %d; such "
                 "matrices are f16",
                 storage_names[type], t.cols, t.name.text, QUANT_BLOCK);
        return;
    }
}

enum status job_open_checkpoint(struct job *j, struct err *e)
{
    const struct common_options *o = j->common;
    const unsigned model = CHECKPOINT_MODEL, texts = CHECKPOINT_TEXTS;
    const unsigned wanted = o->ids ? j->command->parts & ~texts : j->command->parts;
    const bool other = (wanted & model) && o->kv_heads;
    if (wanted & model)
        TRY(job_start_threads(j, e));
    TRY(job_open(j->path, other ? wanted & ~model : wanted, j->pool, &j->checkpoint, e));
    job_warn_vocabulary(o, j->path, j->checkpoint.tokenizer);
    if (other)
        TRY(variant_load(j, o->kv_heads, &(struct model_options){.pool = j->pool}, NULL,
                         (struct callbacks){.stop = progress_stop}, &j->checkpoint.model, e));
    if (o->score_scale) {
        TRY(config_needs_dot(&j->checkpoint.model->config, "--score-scale", e));
        TRY(parse_score_scale(o->score_scale, &j->checkpoint.model->config.score_scale, e));
    }
    if (o->without)
        TRY(heads_of_option("--without", o->without, &j->checkpoint.model->config, &j->off, e));
    j->without.off = j->off;
    return STATUS_OK;
}

void job_close_checkpoint(struct job *j)
{
    checkpoint_close(&j->checkpoint);
    free(j->off);
    free(j->tokens);
    j->off = NULL;
    j->without.off = NULL;
    j->tokens = NULL;
}
