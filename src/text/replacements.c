#include <inttypes.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "formats/gguf_values.h"
#include "text/private.h"

#define KEY "tokenizer.decode.replacements"

enum status replacements_init(struct replacements *r, const struct gguf *g, struct err *e)
{
    const struct gguf_value *file;
    bool found;
    TRY(gguf_get_array(g, KEY, GGUF_STRING, &file, &found, e));
    if (!found || file->count == 0)
        return STATUS_OK;
    if (file->count % 2 != 0)
        return err_bad_file(
            e, KEY ": expected texts and what takes their place, found %" PRIu64 " texts",
            file->count);
    struct gguf_value own = *file;
    TRY_ZEROED(r->bytes, file->bytes.len, "the replacements", e);
    TRY_ZEROED(r->to, file->count / 2, "the replacements", e);
    memcpy(r->bytes, file->bytes.data, file->bytes.len);
    own.bytes.data = r->bytes;
    struct gguf_cursor cursor = {0};
    struct text from;
    for (int32_t id = 0; gguf_next_text(&own, &cursor, &from); id++) {
        (void)gguf_next_text(&own, &cursor, &r->to[id]);
        TRY(name_index_add(&r->from, from, id, 0, e));
    }
    name_index_sort(&r->from);
    return STATUS_OK;
}

void replacements_free(struct replacements *r)
{
    name_index_free(&r->from);
    free(r->to);
    free(r->bytes);
}

enum status replacements_put(const struct replacements *r, struct bytes *out, struct text text,
                             struct err *e)
{
    size_t before = out->len; /* where the last character begins */
    while (text.len > 0) {
        uint32_t code;
        size_t start = out->len;
        bool put = bytes_put(out, utf8_next(&text, &code));
        /* A character is looked for by itself, then behind the last one; one of ASCII stays. */
        for (int i = 0; i < 2 && code >= 0x80 && put; i++) {
            const size_t from = i == 0 ? start : before;
            const struct indexed *found =
                name_index_find(&r->from, text_span(out->data + from, out->len - from));
            if (!found)
                continue;
            out->len = start = from;
            put = bytes_put(out, r->to[found->id]);
        }
        if (!put)
            return err_no_memory(e, "the text with its characters replaced", out->len);
        before = start;
    }
    return STATUS_OK;
}
