#include "convert/sample.h"

/* The bytes of a text that are read: so many, or, if that is more, so many for each token wanted.
 */
#define TEXT_BYTES  ((size_t)16 << 20)
#define TOKEN_BYTES 64

/* Keeps about `wanted` of the tokens, in whole windows at equal distances. */
static void spread_windows(struct text_sample *text, size_t wanted, int n_ctx)
{
    const size_t window = convert_window_size(n_ctx, wanted);
    const size_t n_windows = wanted / window, step = (text->n - window) / (n_windows - 1);
    for (size_t i = 1; i < n_windows; i++)
        memmove(text->tokens + i * window, text->tokens + i * step, window * sizeof *text->tokens);
    text->n = n_windows * window;
}

enum status text_sample_take(const struct tokenizer *t, int n_ctx, struct text text, size_t wanted,
                             struct text_sample *out, struct err *e)
{
    const size_t most = MAX(TEXT_BYTES, TOKEN_BYTES * wanted);
    if (text.len > most)
        for (text.len = most;
             text.len > 0 && (text.data[text.len] & 0xc0) == 0x80;) /* to the end of a character */
            text.len--;
    TRY(tokenizer_encode(t, text, &out->tokens, &out->n, e));
    if (out->n < CONVERT_MIN_TOKENS)
        return err_usage(e, "expected a text of at least %d tokens, found %zu", CONVERT_MIN_TOKENS,
                         out->n);
    if (out->n > wanted)
        spread_windows(out, wanted, n_ctx);
    return STATUS_OK;
}
