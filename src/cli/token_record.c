#include "cli/token_record.h"

#include <math.h>

#include "show/printable.h"

static void put_token(struct json *j, const struct tokenizer *t, int32_t id)
{
    json_key(j, "id");
    json_int(j, id);
    json_key(j, "text");
    if (!t) {
        json_null(j);
        return;
    }
    const struct text bytes = tokenizer_bytes(t, id);
    json_text(j, bytes);
    if (text_is_utf8(bytes))
        return;
    json_key_array(j, "bytes");
    for (size_t i = 0; i < bytes.len; i++)
        json_int(j, (unsigned char)bytes.data[i]);
    json_end(j);
}

void token_record_json(struct json *j, const struct tokenizer *t, const struct token_record *r)
{
    json_begin_object(j);
    if (r->sample >= 0) {
        json_key(j, "sample");
        json_int(j, r->sample);
    }
    json_key(j, "position");
    json_int(j, r->position);
    put_token(j, t, r->id);
    json_key(j, "logprob");
    json_double(j, r->predicted ? r->logprob : (double)NAN);
    if (r->with_top) {
        json_key_array(j, "top");
        for (int i = 0; i < r->n_top; i++) {
            json_begin_object(j);
            put_token(j, t, r->top[i].id);
            json_key(j, "logprob");
            json_double(j, r->top[i].logprob);
            json_end(j);
        }
        json_end(j);
    }
    json_end(j);
}
