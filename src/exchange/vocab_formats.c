/*
 * Vocabularies without a description: plain bytes, and those of llama2.c and llm.c.
 */
#include <math.h>

#include "base/half.h"
#include "exchange/private.h"

enum status vocab_bytes_fill(struct vocabulary *v, struct err *e)
{
    assert(v->keys.n == 256);
    for (int byte = 0; byte < 256; byte++) {
        char name[2];
        const size_t len = byte_alphabet_write(byte, name);
        TRY(vocabulary_token(v, byte, text_span(name, len), TOKEN_NORMAL, e));
    }
    v->keys.model = "gpt2";
    v->keys.pre = "gpt-2";
    v->keys.bos = '\n';
    v->keys.eos = 0;
    return STATUS_OK;
}

/* --- llama2.c -------------------------------------------------------------------------------- */

/*
 * tokenizer.bin: the length of the longest token, then for each its score (float32), its length
 * (int32) and its bytes. That is all of a SentencePiece vocabulary whose first three tokens are
 * <unk>, <s> and </s>; spaces are spaces there, and line breaks stand around the last two.
 */
enum status vocab_llama2c_read(struct text file, struct vocabulary *v, struct err *e)
{
    static const struct {
        const char *written, *name;
        enum token_type type;
    } specials[] = {{"<unk>", "<unk>", TOKEN_UNKNOWN},
                    {"\n<s>\n", "<s>", TOKEN_CONTROL},
                    {"\n</s>\n", "</s>", TOKEN_CONTROL}};
    const size_t space = strlen(VOCAB_SPACE);
    struct vocab_keys *k = &v->keys;
    struct text rest = file;
    int id = 0;
    (void)text_cut(&rest, MIN(file.len, 4));
    for (; id < k->n && rest.len >= 8; id++) {
        const size_t len = little_load(rest.data + 4, 4);
        if (len > rest.len - 8)
            break;
        v->scores[id] = float_of_bits(little_load(rest.data, 4));
        (void)text_cut(&rest, 8);
        const struct text bytes = text_cut(&rest, len);
        if (!isfinite(v->scores[id]))
            return err_bad_file(e, "token %d: expected a finite score, found %g", id,
                                (double)v->scores[id]);
        if (id < 3) {
            const char *name = specials[id].name;
            if (!text_is(bytes, specials[id].written) && !text_is(bytes, name))
                return err_bad_file(e, "token %d: expected %s, as llama2.c has it, found \"%.*s\"",
                                    id, name, SHOWN(bytes));
            TRY(vocabulary_token(v, id, text_of(name), specials[id].type, e));
            continue;
        }
        char *name = vocabulary_take(v, space * len + 1, e), *to = name;
        if (!name)
            return STATUS_NO_MEMORY;
        for (size_t i = 0; i < len; i++) {
            const bool is_space = bytes.data[i] == ' ';
            memcpy(to, is_space ? VOCAB_SPACE : &bytes.data[i], is_space ? space : 1);
            to += is_space ? space : 1;
        }
        v->tokens[id] = text_span(name, to - name);
        v->types[id] = vocab_hex_byte(bytes, TOKEN_BYTE) >= 0 ? TOKEN_BYTE : TOKEN_NORMAL;
    }
    if (id < k->n || rest.len > 0)
        return err_bad_file(e,
                            "expected a tokenizer.bin of llama2.c with %d tokens, as the model "
                            "has, found %d and %zu bytes behind them",
                            k->n, id, rest.len);
    k->model = "llama";
    k->unk = 0;
    /* Its program ends a text at <s>, which stands between those that its models learn from. */
    k->bos = k->eos = id > 1 ? 1 : -1;
    k->add_bos = id > 1;
    k->add_space_prefix = 1;
    return STATUS_OK;
}

/* --- llm.c ----------------------------------------------------------------------------------- */

/*
 * A header of 256 uint32 (magic, version, tokens, EOT), then for each token its length in a byte
 * and its bytes. Merges are not in the file: as in tiktoken's tables the ids are the order in which
 * tokens were made, so each is made of the two that the merges before it leave of its bytes.
 */

#define MAGIC        20240328u
#define HEADER_BYTES 1024u
#define LONGEST      255    /* bytes of a token */
#define GPT2_TOKENS  50257u /* version 1 knows no other vocabulary */

bool vocab_is_llmc(struct text file)
{
    return file.len >= 4 && little_load(file.data, 4) == MAGIC;
}

/* The token of the bytes [from, to) of token `id`, if it is normal and was made before it. */
static int made_before(const struct vocabulary *v, int id, size_t from, size_t to)
{
    const int found = vocabulary_find(v, text_span(v->tokens[id].data + from, to - from));
    return found >= 0 && found < id && v->types[found] == TOKEN_NORMAL ? found : -1;
}

/* The merge that makes a token of several bytes: of its bytes two neighbours become one part, those
 * that make the lowest token first, until there are two. */
static enum status find_merge(struct vocabulary *v, int id, struct err *e)
{
    size_t n = v->tokens[id].len, start[LONGEST + 1]; /* part i is from start[i] to start[i + 1] */
    int joined[LONGEST];                              /* what parts i and i + 1 make; -1: nothing */
    for (size_t i = 0; i <= n; i++)
        start[i] = i;
    for (size_t i = 0; i + 1 < n; i++)
        joined[i] = made_before(v, id, i, i + 2);
    while (n > 2) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++)
            if (joined[i] >= 0 && (best == n || joined[i] < joined[best]))
                best = i;
        if (best == n)
            break;
        memmove(&start[best + 1], &start[best + 2], (n - best - 1) * sizeof *start);
        memmove(&joined[best], &joined[best + 1], (n - best - 2) * sizeof *joined);
        n--;
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < n; i++)
            joined[i] = made_before(v, id, start[i], start[i + 2]);
    }
    const int left = made_before(v, id, 0, start[1]);
    const int right = made_before(v, id, start[1], v->tokens[id].len);
    if (n != 2 || left < 0 || right < 0)
        return err_bad_file(e,
                            "token %d, \"%.*s\": expected two tokens of lower ids that it is made "
                            "of, found %zu parts" VOCAB_ADVICE,
                            id, SHOWN(v->tokens[id]), n);
    return vocabulary_merge(v, left, right, id, e);
}

enum status vocab_llmc_read(struct text file, struct vocabulary *v, struct err *e)
{
    struct vocab_keys *k = &v->keys;
    if (file.len < HEADER_BYTES)
        return err_bad_file(e, "expected a tokenizer of llm.c, %u bytes of header, found %zu bytes",
                            HEADER_BYTES, file.len);
    const uint32_t version = little_load(file.data + 4, 4), n = little_load(file.data + 8, 4);
    const uint32_t eot = version == 1 ? GPT2_TOKENS - 1 : little_load(file.data + 12, 4);
    if (version < 1 || version > 2 || n != (uint32_t)k->n || (version == 1 && n != GPT2_TOKENS) ||
        eot >= n)
        return err_bad_file(
            e,
            "expected a tokenizer of llm.c, version 1 of 50257 tokens or 2, of %d tokens, as the "
            "model has, and one of them to end texts; found version %u, %u tokens, %u",
            k->n, version, n, eot);
    struct text rest = file;
    (void)text_cut(&rest, HEADER_BYTES);
    for (uint32_t id = 0; id < n; id++) {
        const size_t len = rest.len > 0 ? (unsigned char)*rest.data : 0;
        if (len == 0 || len >= rest.len)
            return err_bad_file(e,
                                "token %u of %u at byte %zu: expected its length, 1 to 255, and as "
                                "many bytes, found %zu and %zu bytes",
                                id, n, file.len - rest.len, len, rest.len > 0 ? rest.len - 1 : 0);
        (void)text_cut(&rest, 1);
        TRY(vocabulary_token(v, id, text_cut(&rest, len), id == eot ? TOKEN_CONTROL : TOKEN_NORMAL,
                             e));
    }
    if (rest.len > 0)
        return err_bad_file(e, "expected %u tokens to end the file, found %zu bytes more", n,
                            rest.len);
    TRY(vocabulary_index(v, e));
    for (int id = 0; id < k->n; id++)
        if (v->types[id] == TOKEN_NORMAL && v->tokens[id].len > 1)
            TRY(find_merge(v, id, e));
    for (int id = 0; id < k->n; id++) { /* now that all are found, their names are written */
        char name[2 * LONGEST];
        size_t len = 0;
        for (size_t i = 0; i < v->tokens[id].len; i++)
            len += byte_alphabet_write(v->tokens[id].data[i], name + len);
        if (v->types[id] == TOKEN_NORMAL)
            TRY(vocabulary_join(v, &(struct text){name, len}, 1, &v->tokens[id], e));
    }
    k->model = "gpt2";
    k->pre = "gpt-2";
    k->bos = k->eos = eot;
    return STATUS_OK;
}
