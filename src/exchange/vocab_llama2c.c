/*
 * tokenizer.bin: the length of the longest token, then for each its score (float32), its length
 * (int32) and its bytes. That is all of a SentencePiece vocabulary whose first three tokens are
 * <unk>, <s> and </s>; spaces are spaces there, and line breaks stand around the last two.
 */
#include <math.h>

#include "base/text.h"
#include "exchange/vocab_readers.h"

enum { ID_UNKNOWN, ID_BOS, ID_EOS, N_SPECIAL };

static const struct {
    const char *written, *name;
    enum token_type type;
} specials[N_SPECIAL] = {{"<unk>", "<unk>", TOKEN_UNKNOWN},
                         {"\n<s>\n", "<s>", TOKEN_CONTROL},
                         {"\n</s>\n", "</s>", TOKEN_CONTROL}};

struct entry {
    float score;
    struct text bytes;
};

static bool take_entry(struct text *rest, struct entry *entry)
{
    uint32_t len;
    if (rest->len < 8)
        return false;
    memcpy(&entry->score, rest->data, 4);
    memcpy(&len, rest->data + 4, 4);
    if (len > rest->len - 8)
        return false;
    entry->bytes = (struct text){rest->data + 8, len};
    rest->data += 8 + (size_t)len;
    rest->len -= 8 + (size_t)len;
    return true;
}

/* How many entries follow one another; *rest is what stands behind them. */
static size_t count_entries(struct text *rest)
{
    struct entry entry;
    size_t n = 0;
    while (take_entry(rest, &entry))
        n++;
    return n;
}

static enum status mark_spaces(struct bytes *out, struct text in, struct err *e)
{
    out->len = 0;
    for (size_t i = 0; i < in.len; i++) {
        const struct text c = {in.data + i, 1};
        if (!bytes_put(out, *c.data == ' ' ? text_of(VOCAB_SPACE) : c))
            return err_no_memory(e, "the vocabulary", in.len);
    }
    return STATUS_OK;
}

static enum status add_special(struct vocab_build *b, int id, struct text bytes, struct err *e)
{
    if (!text_is(bytes, specials[id].written) && !text_is(bytes, specials[id].name))
        return err_set(e, STATUS_BAD_FILE,
                       "token %d: expected %s, as llama2.c has it, found \"%.*s\"", id,
                       specials[id].name, text_width(bytes), bytes.data);
    return vocab_build_token(b, id, text_of(specials[id].name), specials[id].type, e);
}

static enum status add_entries(struct vocab_build *b, struct text rest, struct bytes *name,
                               struct err *e)
{
    struct entry entry;
    for (int id = 0; id < b->keys.n && take_entry(&rest, &entry); id++) {
        if (!isfinite(entry.score))
            return err_set(e, STATUS_BAD_FILE, "token %d: expected a finite score, found %g", id,
                           (double)entry.score);
        b->scores[id] = entry.score;
        if (id < N_SPECIAL) {
            TRY(add_special(b, id, entry.bytes, e));
            continue;
        }
        const bool is_byte = vocab_hex_byte(entry.bytes, TOKEN_BYTE) >= 0;
        TRY(mark_spaces(name, entry.bytes, e));
        TRY(vocab_build_token(b, id, bytes_text(name), is_byte ? TOKEN_BYTE : TOKEN_NORMAL, e));
    }
    return STATUS_OK;
}

enum status vocab_llama2c_read(struct text file, struct vocab_build *b, struct err *e)
{
    const size_t head = file.len < 4 ? file.len : 4;
    const struct text rest = {file.data + head, file.len - head};
    struct text behind = rest;
    const size_t n = count_entries(&behind);
    struct bytes name = {NULL, 0, 0};
    if (n != (size_t)b->keys.n || behind.len > 0)
        return err_set(
            e, STATUS_BAD_FILE,
            "expected a tokenizer.bin of llama2.c with %d tokens, as the model has, found "
            "%zu and %zu bytes behind them",
            b->keys.n, n, behind.len);
    TRY(vocab_build_take_scores(b, e));
    const enum status s = add_entries(b, rest, &name, e);
    bytes_free(&name);
    b->keys.model = "llama";
    b->keys.unk = n > ID_UNKNOWN ? ID_UNKNOWN : -1;
    b->keys.bos = n > ID_BOS ? ID_BOS : -1;
    /* Where its program ends a text: <s> stands between those that its models learn from. */
    b->keys.eos = b->keys.bos;
    b->keys.add_bos = n > ID_BOS;
    b->keys.add_space_prefix = 1;
    return s;
}
