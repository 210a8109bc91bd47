#include "cli/token_record.h"

#include <math.h>

#include "show/paragraph.h"

void token_json(struct json *j, const struct tokenizer *t, int32_t id)
{
    json_int(j, "id", id);
    if (!t) {
        json_null(j, "text");
        return;
    }
    const struct text bytes = tokenizer_bytes(t, id);
    json_text(j, "text", bytes);
    if (text_is_utf8(bytes))
        return;
    json_begin_array(j, "bytes");
    for (size_t i = 0; i < bytes.len; i++)
        json_int(j, NULL, (unsigned char)bytes.data[i]);
    json_end(j);
}

void token_record_json(struct json *j, const struct tokenizer *t, int sample,
                       const struct score_row *row, bool with_top)
{
    json_begin_object(j, NULL);
    if (sample >= 0)
        json_int(j, "sample", sample);
    json_int(j, "position", row->position);
    token_json(j, t, row->id);
    json_double(j, "logprob", row->predicted ? row->logprob : (double)NAN);
    if (with_top) {
        json_begin_array(j, "top");
        for (int i = 0; i < row->n_top; i++) {
            json_begin_object(j, NULL);
            token_json(j, t, row->top[i].id);
            json_double(j, "logprob", row->top[i].logprob);
            json_end(j);
        }
        json_end(j);
    }
    json_end(j);
}
