#include "cli/common.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/common.h"
#include "cli/source.h"
#include "cli/terminal.h"
#include "show/paragraph.h"

#define SUMMARY_INDENT 13

/* Of a line on standard error, which is a terminal; the last column stays free, because some
 * terminals go on in the next line after it. */
static size_t columns(void)
{
    return (size_t)terminal_width(STDERR_FILENO) - 1;
}

static bool is_shown;

void notice_show(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const struct text cut = paragraph_cut(text_of(line), columns());
    fprintf(stderr, "\r%.*s\033[K", text_width(cut), cut.data);
    is_shown = true;
}

void notice_clear(void)
{
    if (is_shown)
        fputs("\r\033[K", stderr);
    is_shown = false;
}

void notice_put(const char *line, int indent)
{
    notice_clear();
    const size_t most = isatty(STDERR_FILENO) ? columns() : SIZE_MAX;
    const bool broken = most / 2 > (size_t)indent;
    struct text rest = text_of(line);
    struct text part = paragraph_line(&rest, broken ? most : SIZE_MAX, false);
    fwrite(part.data, 1, part.len, stderr);
    while (rest.len > 0) {
        part = paragraph_line(&rest, most - (size_t)indent, false);
        fprintf(stderr, "\n%*s%.*s", indent, "", text_width(part), part.data);
    }
    fputc('\n', stderr);
}

void notice_summary(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    notice_put(line, SUMMARY_INDENT);
}

/* Memory beyond this is announced even without -v. */
#define LARGE_MEMORY ((uint64_t)1 << 30)
/* Bytes of a line said on standard error: a path as long as they can be, and a sentence. */
#define SAY_MAX 5120

#define VALUES struct common_options
const struct option common_options[] = {
    OPT_STRING("model", model, "FILE", "the checkpoint, instead of the first argument",
               .letter = 'm', .reads = "the checkpoint"),
    OPT_FLAG("quiet", quiet, "nothing on standard error but errors", .letter = 'q'),
    OPT_FLAG("verbose", verbose, "also memory plan, threads, instruction set", .letter = 'v'),
    OPT_END,
};

enum status common_model_path(const struct common_options *c, const char **path, struct err *e)
{
    if (c->positional && c->model)
        return err_set(e, STATUS_USAGE,
                       "two checkpoints are named, '%.60s' and (with -m) '%.60s'; expected one",
                       c->positional, c->model);
    *path = c->positional ? c->positional : c->model;
    if (!*path)
        return err_set(e, STATUS_USAGE, "no checkpoint is named; expected MODEL or -m FILE");
    return STATUS_OK;
}

enum status common_open(const char *path, unsigned parts, struct checkpoint *c, struct err *e)
{
    const unsigned texts = COMMON_TEXTS & ~(unsigned)CHECKPOINT_TOKENIZER;
    struct file_map file;
    *c = (struct checkpoint){0};
    TRY(source_open(path, &file, e));
    TRY(checkpoint_take(&file, path, parts & ~texts, c, e));
    const enum status s = parts & texts ? tokenizer_reads_text(c->tokenizer, e) : STATUS_OK;
    if (s != STATUS_OK) {
        err_prefix(e, path);
        checkpoint_close(c);
    }
    return s;
}

static enum status same_texts(const struct tokenizer *mine, const struct tokenizer *other,
                              const char *path, enum status failure, struct err *e)
{
    for (int id = 0; id < tokenizer_n_tokens(mine); id++) {
        const struct text expected = tokenizer_bytes(mine, id), found = tokenizer_bytes(other, id);
        if (!text_equal(expected, found))
            return err_set(e, failure,
                           "%.200s: another vocabulary than the checkpoint's: token %d is "
                           "expected to be '%.*s', found '%.*s'",
                           path, id, text_width(expected), expected.data, text_width(found),
                           found.data);
    }
    return STATUS_OK;
}

enum status common_same_tokens(const struct checkpoint *mine, const struct checkpoint *other,
                               const char *path, enum status failure, struct err *e)
{
    const int expected = mine->model->config.n_vocab, found = other->model->config.n_vocab;
    if (found != expected)
        return err_set(e, failure,
                       "%.200s: another vocabulary than the checkpoint's: expected %d tokens, "
                       "found %d",
                       path, expected, found);
    if (!other->tokenizer || tokenizer_n_tokens(other->tokenizer) == 0)
        return STATUS_OK;
    return same_texts(mine->tokenizer, other->tokenizer, path, failure, e);
}

enum status common_config(const char *path, const struct checkpoint *c, struct config *config,
                          struct err *e)
{
    const enum status s = config_read(c->gguf, config, e);
    if (s != STATUS_OK)
        err_prefix(e, path);
    return s;
}

void say(const struct common_options *c, const char *format, ...)
{
    char line[SAY_MAX] = "decode: ";
    const size_t head = strlen(line);
    va_list args;
    if (c->quiet)
        return;
    va_start(args, format);
    vsnprintf(line + head, sizeof line - head, format, args);
    va_end(args);
    utf8_strip(line);
    notice_put(line, NOTICE_INDENT);
}

bool says_memory(const struct common_options *c, uint64_t bytes)
{
    return c->verbose || bytes > LARGE_MEMORY;
}
