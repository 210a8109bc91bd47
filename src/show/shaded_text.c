#include "show/shaded_text.h"

#include <assert.h>
#include <string.h>

#include "base/text.h"
#include "show/printable.h"

void shaded_text_push(struct shaded_text *s, size_t n_bytes, int level)
{
    assert(n_bytes <= s->cap - s->len);
    memset(s->levels + s->len, level, n_bytes);
    s->len += n_bytes;
}

/* The characters from the first of `text` on that have the same level, with it. */
static struct text cut_run(struct text *text, const unsigned char *levels, int *level)
{
    struct text run = {text->data, 0};
    while (text->len > 0) {
        uint32_t code;
        const size_t n = utf8_decode(*text, &code);
        const int own = utf8_is_control(code) ? 0 : levels[run.len];
        if (run.len == 0)
            *level = own;
        if (own != *level)
            break;
        run.len += n;
        *text = (struct text){text->data + n, text->len - n};
    }
    return run;
}

void shaded_text_put(struct shaded_text *s, struct output *out, enum heatmap_ink ink,
                     struct text ready, size_t skipped)
{
    assert(ready.len <= s->len && skipped <= ready.len);
    struct text rest = {ready.data + skipped, ready.len - skipped};
    while (rest.len > 0) {
        int level = 0;
        const struct text run =
            cut_run(&rest, s->levels + (size_t)(rest.data - ready.data), &level);
        output_puts(out, level ? heatmap_colour(ink, level).text : "");
        printable_put(out, run);
        output_puts(out, level ? heatmap_colour(ink, 0).text : "");
    }
    s->len -= ready.len;
    memmove(s->levels, s->levels + ready.len, s->len);
}
