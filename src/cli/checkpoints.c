#include "cli/checkpoints.h"

#include <sys/stat.h>
#include <unistd.h>

#include "cli/paths.h"
#include "cli/threads.h"
#include "model/config_keys.h"
#include "model/pack.h"
#include "model/selection.h"

/* Longer names of folders are not looked into. */
#define FOLDER_MAX 300

/* --- files ----------------------------------------------------------------------------------- */

/* Whether it is one of Hugging Face's. */
static bool has_config(const char *folder)
{
    char path[FOLDER_MAX + sizeof "/config.json"];
    chars_printf(path, "%s/config.json", folder);
    return access(path, F_OK) == 0;
}

/* STATUS_BAD_FILE, saying what stands at `path`, and the command line that makes a GGUF file of
 * `in`. */
static enum status name_import(const char *path, const char *what, const char *in, struct err *e)
{
    return err_bad_file(e,
                        "%.100s: %s, and decode reads GGUF; make one with: scripts/import.py "
                        "'%s' OUT.gguf",
                        path, what, in);
}

/* Refuses a file whose name ends as those of other programs' checkpoints, and says which script
 * imports it. STATUS_OK for other names. */
static enum status refuse_other_format(const char *path, struct err *e)
{
    static const char *const ends[] = {".safetensors", ".bin", ".pt", ".pth"};
    const size_t len = path_name(path) - path; /* of its folder, with the slash */
    char folder[FOLDER_MAX];
    bool is_other = false;
    for (int i = 0; i < LENGTH(ends); i++)
        is_other |= text_ends_with(text_of(path), ends[i]);
    if (!is_other)
        return STATUS_OK;
    chars_printf(folder, "%.*s", len > 0 ? (int)len : 1, len > 0 ? path : ".");
    if (has_config(folder))
        return name_import(path, "a file of a Hugging Face folder", folder, e);
    return name_import(path, "by its name a checkpoint of another program", path, e);
}

enum status job_map(const char *path, struct file_map *out, struct err *e)
{
    struct stat st;
    *out = (struct file_map){0};
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) && has_config(path))
        return name_import(path, "a Hugging Face folder", path, e);
    TRY(file_map_open(out, path, e));
    if (text_starts_with(text_span((const char *)out->data, out->len), "GGUF"))
        return STATUS_OK;
    const enum status s = refuse_other_format(path, e);
    if (s != STATUS_OK)
        file_map_close(out);
    return s;
}

/* --- checkpoints ----------------------------------------------------------------------------- */

enum status job_open(const char *path, unsigned parts, struct pool *pool, struct checkpoint *c,
                     struct err *e)
{
    struct file_map file;
    *c = (struct checkpoint){0};
    TRY(job_map(path, &file, e));
    return checkpoint_take(&file, path, parts, pool, c, e);
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
                 storage_name(type), t.cols, t.name.text, QUANT_BLOCK);
        return;
    }
}

/* Opens the checkpoint; its model with other K/V heads than the file's, if they are asked for. */
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
    if (other) {
        TRY(variant_load(j, o->kv_heads, NULL, (struct callbacks){.stop = progress_stop},
                         &j->checkpoint.model, e));
    }
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
