#include <assert.h>

#include "base/text.h"
#include "exchange/tokenizer_json.h"
#include "exchange/vocab_readers.h"
#include "text/byte_alphabet.h"

/* --- vocab.json and merges.txt --------------------------------------------------------------- */

/* Cuts off a line, without its end. */
static struct text next_line(struct text *rest)
{
    const char *end = memchr(rest->data, '\n', rest->len);
    struct text line = {rest->data, end ? (size_t)(end - rest->data) : rest->len};
    const size_t step = line.len + (end ? 1 : 0);
    rest->data += step;
    rest->len -= step;
    line.len -= text_ends_with(line, "\r");
    return line;
}

enum status vocab_merges_read(const struct json_node *vocab, struct text merges,
                              struct vocab_build *b, struct err *e)
{
    uint64_t n = 1;
    for (size_t i = 0; i < merges.len; i++)
        n += merges.data[i] == '\n';
    b->keys.model = "gpt2";
    b->keys.pre = "gpt-2";
    TRY(vocab_json_read(vocab, b, e));
    TRY(vocab_build_take_merges(b, n, e));
    if (text_starts_with(merges, "#version"))
        (void)next_line(&merges);
    while (merges.len > 0) {
        struct text left, right;
        const struct text line = next_line(&merges);
        if (line.len == 0)
            continue;
        TRY(merge_split(line, b->keys.n_merges, &left, &right, e));
        TRY(merge_add(b, left, right, e));
    }
    return STATUS_OK;
}

/* --- single characters ----------------------------------------------------------------------- */

enum status vocab_chars_read(const struct json_node *vocab, struct vocab_build *b, struct err *e)
{
    b->keys.model = "llama";
    b->keys.add_space_prefix = 0;
    TRY(vocab_build_take_scores(b, e));
    for (const struct json_node *c = NULL; (c = json_child(vocab, c));) {
        int64_t id;
        uint32_t code;
        if (c->key.len == 0 || utf8_decode(c->key, &code) != c->key.len)
            return err_set(e, STATUS_BAD_FILE,
                           "expected single characters, as there is no merges.txt beside it, found "
                           "\"%.*s\"" VOCAB_ADVICE,
                           text_width(c->key), c->key.data);
        TRY(json_node_i64(c, 0, b->keys.n - 1, &id, e));
        const struct text name = code == ' ' ? text_of(VOCAB_SPACE) : c->key;
        TRY(vocab_build_token(b, id, name, TOKEN_NORMAL, e));
    }
    return STATUS_OK;
}

/* --- bytes ----------------------------------------------------------------------------------- */

enum status vocab_bytes_fill(struct vocab_build *b, struct err *e)
{
    assert(b->keys.n == 256);
    b->keys.model = "gpt2";
    b->keys.pre = "gpt-2";
    for (int byte = 0; byte < 256; byte++) {
        char name[2];
        const size_t len = byte_alphabet_write((unsigned char)byte, name);
        TRY(vocab_build_token(b, byte, (struct text){name, len}, TOKEN_NORMAL, e));
    }
    b->keys.bos = '\n';
    b->keys.eos = 0;
    return STATUS_OK;
}
