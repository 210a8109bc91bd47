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

void token_record_json(struct json *j, const struct tokenizer *t, const struct token_record *r)
{
    json_begin_object(j, NULL);
    if (r->sample >= 0) {
        json_int(j, "sample", r->sample);
    }
    json_int(j, "position", r->position);
    token_json(j, t, r->id);
    json_double(j, "logprob", r->predicted ? r->logprob : (double)NAN);
    if (r->with_top) {
        json_begin_array(j, "top");
        for (int i = 0; i < r->n_top; i++) {
            json_begin_object(j, NULL);
            token_json(j, t, r->top[i].id);
            json_double(j, "logprob", r->top[i].logprob);
            json_end(j);
        }
        json_end(j);
    }
    json_end(j);
}
