#include "cli/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/numbers.h"
#include "cli/signals.h"

/* More text than this is refused before it is read: no context holds it. */
#define INPUT_MAX ((size_t)256 << 20)

/* Makes --file "-" where neither a text nor --tokens nor -i are given and standard input may be a
 * text: a pipe (also one that ends with nothing, an empty text), a socket, or a file with bytes
 * left. */
static void use_pipe(struct common_options *o)
{
    struct stat st;
    if (o->prompt || o->file || o->ids || o->interactive || fstat(STDIN_FILENO, &st) != 0)
        return;
    /* A text has bytes, or may yet have some. */
    if (!S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode) &&
        !(S_ISREG(st.st_mode) && lseek(STDIN_FILENO, 0, SEEK_CUR) < st.st_size))
        return;
    o->file = "-";
}

enum status input_read(const char *path, size_t max, char **text, size_t *len, struct err *e)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of byte order, in UTF-8 */
    const size_t mark_len = strlen(mark);
    const bool deferred = signals_end_at_once();
    *text = NULL;
    if (signals_interrupted())
        return STATUS_INTERRUPTED;
    const enum status s = file_read_all(path, max, text, len, e);
    if (deferred)
        signals_defer();
    TRY(s);
    if (text_starts_with(text_span(*text, *len), mark)) {
        *len -= mark_len;
        memmove(*text, *text + mark_len, *len + 1);
    }
    if (!text_starts_with(text_span(*text, *len), "GGUF"))
        return STATUS_OK;
    free(*text);
    *text = NULL;
    return err_usage(e, "%.200s: expected a text, found a checkpoint", path);
}

enum status input_parse_range(const char *range, struct input_range *out, struct err *e)
{
    char begin[64];
    const char *end = range;
    *out = (struct input_range){0, 1};
    if (range && (list_next(&end, ":", begin, sizeof begin) != ':' || range[0] == '-' ||
                  !parse_double(begin, &out->from) || !parse_double(end, &out->to) || out->to > 1 ||
                  out->from >= out->to))
        return err_usage(
            e, "--range: expected A:B, two fractions from 0 to 1, A below B, found '%.60s'", range);
    return STATUS_OK;
}

struct text input_range_of(struct input_range range, struct text text)
{
    const size_t first = range.from * text.len;
    return text_span(text.data + first, (size_t)(range.to * text.len) - first);
}

enum status job_read_text(struct job *j, struct err *e)
{
    struct common_options *o = j->common;
    struct input_range range;
    if (j->command->needs & JOB_PIPED)
        use_pipe(o);
    if (j->command->no_text && !o->prompt && !o->file && !o->ids)
        return err_usage(e, "%s", j->command->no_text);
    TRY(input_parse_range(o->range, &range, e)); /* before a text is waited for */
    j->text = text_of(o->prompt ? o->prompt : "");
    if (o->file) {
        TRY(input_read(o->file, INPUT_MAX, &j->text_bytes, &j->text.len, e));
        j->text.data = j->text_bytes;
    }
    j->text = input_range_of(range, j->text);
    return STATUS_OK;
}

enum status input_needs_tokenizer(const struct tokenizer *t, const char *path, const char *option,
                                  struct err *e)
{
    if (!t)
        return err_bad_file(e, "%.200s: it has no tokenizer, which %s needs for its text", path,
                            option);
    return err_in(e, tokenizer_reads_text(t, e), "%s", path);
}

/* Whether the tokens begin with two BOS, because the checkpoint asks for one and the text has its
 * own. In a run one note says so. */
static bool has_two_bos(struct job *j, const int32_t *ids, size_t n)
{
    const struct tokenizer *t = j->checkpoint.tokenizer;
    const int bos = tokenizer_bos(t);
    if (!tokenizer_adds_bos(t) || n < 2 || ids[0] != bos || ids[1] != bos)
        return false;
    if (!j->said_two_bos)
        log_info(
            j->common,
            "note: the text begins with the begin-of-text token, %d, which the checkpoint asks to "
            "be put before it: there are two; leave it out of the text",
            bos);
    j->said_two_bos = true;
    return true;
}

enum status job_tokenize(struct job *j, struct err *e)
{
    const struct tokenizer *t = j->checkpoint.tokenizer;
    TRY(tokenizer_encode(t, j->text, tokenizer_adds_bos(t), &j->tokens, &j->n_tokens, e));
    if (has_two_bos(j, j->tokens, j->n_tokens))
        memmove(j->tokens + 1, j->tokens + 2, (--j->n_tokens - 1) * sizeof *j->tokens);
    return STATUS_OK;
}

enum status job_fit_tokens(struct job *j, const char *what, size_t cap, size_t most, int32_t *ids,
                           size_t *n, struct err *e)
{
    const struct common_options *o = j->common;
    const bool bos = !o->ids && tokenizer_adds_bos(j->checkpoint.tokenizer);
    if (bos)
        has_two_bos(j, ids, *n);
    if (*n <= cap)
        return STATUS_OK;
    if (o->truncate == CHOICE_NONE)
        return err_usage(
            e, "the %s has %zu tokens, the context only %zu: shorten the %s%s or --truncate it",
            what, *n, cap, what,
            cap < (size_t)j->checkpoint.model->config.n_ctx ? ", raise -c" : "");
    if (o->truncate == TRUNCATE_LEFT)
        memmove(ids + bos, ids + *n - (most - bos), (most - bos) * sizeof *ids);
    log_info(o, "%zu of %zu tokens are left out on the %s", *n - most, *n,
             truncate_sides[o->truncate]);
    *n = most;
    return STATUS_OK;
}

enum status job_tokenize_for_context(struct job *j, const char *purpose, struct err *e)
{
    const struct tokenizer *t = j->checkpoint.tokenizer;
    const struct config *c = &j->checkpoint.model->config;
    if (j->common->ids)
        TRY(parse_ids("--tokens", j->common->ids, c->n_vocab, &j->tokens, &j->n_tokens, e));
    else
        TRY(tokenizer_encode(t, j->text, tokenizer_adds_bos(t), &j->tokens, &j->n_tokens, e));
    if (j->n_tokens == 0)
        return err_usage(e, "there is no token to %s: the text is empty", purpose);
    j->truncated = j->common->truncate != CHOICE_NONE && j->n_tokens > (size_t)c->n_ctx;
    return job_fit_tokens(j, "text", c->n_ctx, c->n_ctx, j->tokens, &j->n_tokens, e);
}
