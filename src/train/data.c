#include "train/data.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/hash.h"

size_t train_part(double val_fraction, size_t len)
{
    return (size_t)((1 - val_fraction) * (double)len);
}

/* Appends the ids of a text. */
static enum status append_tokens(struct tokens *tokens, const struct tokenizer *t, struct text text,
                                 struct err *e)
{
    int32_t *ids;
    size_t n;
    TRY(tokenizer_encode(t, text, &ids, &n, e));
    tokens->n_bytes += text.len;
    if (tokens->n == 0) {
        free(tokens->ids);
        tokens->ids = ids;
        tokens->n = n;
        return STATUS_OK;
    }
    int32_t *longer = realloc(tokens->ids, (tokens->n + n) * sizeof *longer);
    if (longer) {
        memcpy(longer + tokens->n, ids, n * sizeof *ids);
        tokens->ids = longer;
        tokens->n += n;
    }
    free(ids);
    return longer ? STATUS_OK
                  : err_no_memory(e, "the texts' tokens", (tokens->n + n) * sizeof *longer);
}

enum status train_data_read(struct train_data *d, const struct train_spec *spec,
                            const struct tokenizer *t, struct err *e)
{
    *d = (struct train_data){.hash = TRAIN_HASH_START};
    enum status s = STATUS_OK;
    for (int i = 0; i < spec->n_texts && s == STATUS_OK; i++) {
        const struct text text = spec->texts[i];
        const size_t cut = train_part(spec->val_fraction, text.len);
        s = append_tokens(&d->train, t, (struct text){text.data, cut}, e);
        if (s == STATUS_OK)
            s = append_tokens(&d->val, t, (struct text){text.data + cut, text.len - cut}, e);
    }
    d->hash = train_hash(d->hash, d->train.ids, d->train.n * sizeof *d->train.ids);
    d->hash = train_hash(d->hash, d->val.ids, d->val.n * sizeof *d->val.ids);
    return s;
}

void train_data_free(struct train_data *d)
{
    free(d->train.ids);
    free(d->val.ids);
    *d = (struct train_data){.hash = 0};
}

/* The least bytes of a text both of whose parts have `part` bytes; of one part, if none is held
 * out. */
static size_t least_length(double val_fraction, double part)
{
    if (val_fraction <= 0)
        return (size_t)part;
    size_t n = (size_t)(part / fmin(val_fraction, 1 - val_fraction)) + 2;
    while (n > 0 && (double)train_part(val_fraction, n - 1) >= part &&
           (double)(n - 1 - train_part(val_fraction, n - 1)) >= part)
        n--;
    return n;
}

enum status train_data_check(const struct train_data *d, const struct train_spec *spec,
                             struct err *e)
{
    const size_t window = (size_t)spec->length + 1;
    const bool short_train = d->train.n < window;
    const bool short_val = spec->val_fraction > 0 && d->val.n < window;
    if (!short_train && !short_val)
        return STATUS_OK;
    const size_t n = d->train.n + d->val.n, bytes = d->train.n_bytes + d->val.n_bytes;
    const double per_token = n ? (double)bytes / (double)n : 1;
    const size_t least = least_length(spec->val_fraction, ceil((double)window * per_token));
    return err_set(e, STATUS_USAGE,
                   "the text is too short: its %s part has %zu tokens, windows of --ctx %d need "
                   "%zu; expected at least %zu bytes, found %zu",
                   short_train ? "first" : "held-out", short_train ? d->train.n : d->val.n,
                   spec->length, window, least, bytes);
}

void train_data_window(const struct tokens *t, size_t start, int row, int length, int32_t *inputs,
                       int32_t *targets)
{
    const size_t n = (size_t)length;
    assert(t->n > n && start < t->n - n);
    memcpy(inputs + (size_t)row * n, t->ids + start, n * sizeof *inputs);
    memcpy(targets + (size_t)row * n, t->ids + start + 1, n * sizeof *targets);
}
