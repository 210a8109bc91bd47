#include "exchange/export_vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "exchange/export_json.h"
#include "exchange/vocab_export.h"

/* --- files that are no JSON ------------------------------------------------------------------ */

static void put_merges_txt(const struct vocab_export *x, struct file_writer *w)
{
    static const char version[] = "#version: 0.2\n";
    file_writer_put(w, version, sizeof version - 1);
    for (size_t i = 0; i < x->n_merges; i++) {
        const struct text left = x->names.name[x->merges[i].left];
        const struct text right = x->names.name[x->merges[i].right];
        file_writer_put(w, left.data, left.len);
        file_writer_put(w, " ", 1);
        file_writer_put(w, right.data, right.len);
        file_writer_put(w, "\n", 1);
    }
}

static enum status write_merges(const struct vocab_export *x, const char *path, struct err *e)
{
    struct file_writer *w;
    TRY(file_writer_open(&w, path, e));
    put_merges_txt(x, w);
    return file_writer_commit(w, e);
}

static enum status remove_file(const char *path, struct err *e)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return STATUS_OK;
    return err_set(e, STATUS_FAILED, "%.200s: cannot remove it: %s", path, strerror(errno));
}

static enum status write_sentencepiece(const struct vocab_export *x, const char *path,
                                       struct err *e)
{
    struct bytes model = {NULL, 0, 0};
    struct file_writer *w;
    bool fits;
    if (!put_sentencepiece(x, &model, &fits)) {
        const size_t had = model.cap;
        bytes_free(&model);
        return err_no_memory(e, "tokenizer.model", 2 * had);
    }
    enum status s = fits ? file_writer_open(&w, path, e) : remove_file(path, e);
    if (fits && s == STATUS_OK) {
        file_writer_put(w, model.data, model.len);
        s = file_writer_commit(w, e);
    }
    bytes_free(&model);
    return s;
}

/* --- all files ------------------------------------------------------------------------------- */

/* The kinds of vocabularies that have a file. */
enum { BYTES = 1, SPACES = 2 };

/* What transformers looks for: other ones than are written must not stay. */
static const struct vocab_file {
    const char *name;
    unsigned kinds;
    void (*put)(struct json *j, const void *x);
    enum status (*write)(const struct vocab_export *x, const char *path, struct err *e);
} files[] = {
    {"tokenizer.json", BYTES | SPACES, put_tokenizer_json, NULL},
    {"tokenizer_config.json", BYTES | SPACES, put_tokenizer_config, NULL},
    {"vocab.json", BYTES, put_vocab_json, NULL},
    {"merges.txt", BYTES, NULL, write_merges},
    {"tokenizer.model", SPACES, NULL, write_sentencepiece},
    {"special_tokens_map.json", 0, NULL, NULL},
    {"added_tokens.json", 0, NULL, NULL},
};

static enum status write_file(const struct vocab_export *x, unsigned kind, const char *dir,
                              const struct vocab_file *f, struct err *e)
{
    char *path;
    if (f->kinds & kind && f->put)
        return export_json(dir, f->name, f->put, x, e);
    TRY(file_in_folder(dir, f->name, &path, e));
    const enum status s = f->kinds & kind ? f->write(x, path, e) : remove_file(path, e);
    free(path);
    return s;
}

static enum status write_files(const struct vocab_export *x, const char *dir, struct err *e)
{
    const unsigned kind = x->names.n == 0 ? 0 : x->pre ? BYTES : SPACES;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        TRY(write_file(x, kind, dir, &files[i], e));
    return STATUS_OK;
}

enum status export_vocab(const struct gguf *g, const char *dir,
                         const struct vocabulary_notes *notes, struct err *e)
{
    struct vocab_export x;
    enum status s = vocab_export_read(g, notes, &x, e);
    if (s == STATUS_OK)
        s = write_files(&x, dir, e);
    vocab_export_free(&x);
    return s;
}
