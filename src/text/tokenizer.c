#include "text/tokenizer.h"

#include <inttypes.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "formats/gguf_values.h"
#include "text/pretokenize.h"
#include "text/private.h"

/* The meaning of a value of tokenizer.ggml.model. */
struct tokenizer_kind {
    const char *model;
    enum vocab_notation notation;
    int bos, eos; /* unless the file says; -1: none */
    bool adds_bos;
    /* Reads the keys that only this kind has. */
    enum status (*init)(struct tokenizer *t, const struct gguf *g, struct err *e);
    /* Appends the tokens of a part of c's text, not empty, without special tokens. */
    enum status (*encode)(const struct tokenizer *t, struct encoding *c, struct text part,
                          struct err *e);
};

/* A longer special token is not looked for: comparing it at every place where it may start would
 * take the text's length times its own. */
#define LONGEST_SPECIAL 1024

#define ADDS_SPACE_KEY "tokenizer.ggml.add_space_prefix"
#define SCHEME_KEY     "tokenizer.decode.prepend_scheme"

/* The keys of the tokens that end a text, a turn, and a message that waits for a tool. */
static const char *const end_keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
#define N_END_KEYS LENGTH(end_keys)

/* Control tokens of these names end a text, too, because chat models are often converted with their
 * base model's keys alone. The list is llama.cpp's. */
static const char *const end_names[] = {
    "<|im_end|>",    "<|eot_id|>",      "<|eom_id|>",
    "<end_of_turn>", "<|endoftext|>",   "<|end|>",
    "<|return|>",    "<|call|>",        "<|flush|>",
    "<|calls|>",     "<|end_of_text|>", "<end_of_utterance>",
    "<EOT>",         "_<EOT>",          "<\uff5cend\u2581of\u2581sentence\uff5c>"};
#define N_ENDS (N_END_KEYS + LENGTH(end_names))

struct tokenizer {
    const struct tokenizer_kind *kind;
    struct vocab vocab;
    struct name_index specials; /* control, user-defined and unknown tokens */
    bool starts_special[256];   /* some of them start with this byte */
    struct bpe bpe;
    struct replacements replaced;   /* of bpe */
    const struct pretokenizer *pre; /* of bpe */
    struct spm spm;
    bool adds_space;   /* before a part of a text */
    bool spares_space; /* not where it begins with one */
    bool space_first;  /* nor where it is not the first */
    char pre_name[40]; /* as the file has it, or the one that is assumed; "" of spm */
    int bos;           /* -1: none */
    int ends[N_ENDS];  /* ids or -1: those of end_keys, then those of end_names */
    bool adds_bos;
    char warning[512];  /* what in the vocabulary is accepted but unusual; "" if nothing is */
    struct err refusal; /* why no text can be encoded; "" if one can */
};

/* Whether a space belongs before a part of c's text. */
static bool adds_space(const struct tokenizer *t, const struct encoding *c, struct text part)
{
    const bool marks = t->kind->notation == VOCAB_SPACES;
    const bool begins =
        text_starts_with(part, " ") || (marks && text_starts_with(part, VOCAB_SPACE));
    return t->adds_space && !(t->spares_space && begins) &&
           !(t->space_first && part.data != c->text.data);
}

/* --- byte-level BPE -------------------------------------------------------------------------- */

static enum status init_bpe(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    struct text pre = text_of("gpt-2");
    bool found;
    TRY(gguf_get_text(g, "tokenizer.ggml.pre", &pre, &found, e));
    chars_printf(t->pre_name, "%.*s", text_width(pre), pre.data);
    t->pre = pretokenizer_find(pre);
    if (!t->pre)
        err_format(
            &t->refusal,
            "tokenizer.ggml.pre: found \"%.*s\", expected a name of what cuts text as GPT-2, "
            "StarCoder, Llama 3, Qwen 2, BLOOM or Falcon do",
            (int)MIN(pre.len, 60), pre.data);
    TRY(bpe_init(&t->bpe, &t->vocab, g, e));
    TRY(gguf_get_bool(g, ADDS_SPACE_KEY, &t->adds_space, GGUF_OPTIONAL, e));
    TRY(replacements_init(&t->replaced, g, e));
    t->spares_space = true;
    if (!found && t->bpe.n_merges > 0)
        chars_append(t->warning,
                     "tokenizer.ggml.pre is missing; text is cut as \"%s\" does it, which gives "
                     "other ids than the model's if its own pre-tokenizer is another",
                     t->pre_name);
    t->adds_bos = t->pre && t->pre->adds_bos;
    if (!t->pre || !t->pre->whole_pieces)
        name_index_free(&t->vocab.names);
    return STATUS_OK;
}

/* Refuses texts if a vocabulary has longer tokens than bytes and no merges: these were lost, and
 * texts would be bytes to a model that knows them by those tokens. Special tokens do not count; in
 * older files they are normal ones and are known by their ids. */
static void find_lost_merges(struct tokenizer *t)
{
    int n = 0, first = -1;
    if (t->bpe.n_merges == 0)
        for (int id = 0; id < t->vocab.n; id++) {
            if (t->vocab.type[id] > TOKEN_NORMAL || vocab_bytes(&t->vocab, id).len < 2 ||
                id == t->bos || tokenizer_ends(t, id))
                continue;
            first = n == 0 ? id : first;
            n++;
        }
    if (n == 0 || t->refusal.text[0])
        return;
    const struct text name = vocab_bytes(&t->vocab, first);
    err_format(
        &t->refusal,
        "tokenizer.ggml.merges: expected merges that make the %d tokens of several bytes, as "
        "token %d, \"%.*s\"; found none: convert the model again with a newer converter",
        n, first, text_width(name), name.data);
}

static enum status encode_bpe(const struct tokenizer *t, struct encoding *c, struct text part,
                              struct err *e)
{
    const bool spaced = adds_space(t, c, part);
    const struct text text = c->text;
    if (spaced || t->replaced.from.n > 0) {
        c->marked.len = 0;
        if (spaced && !bytes_put(&c->marked, text_of(" ")))
            return err_no_memory(e, "the text behind a space", 1);
        TRY(replacements_put(&t->replaced, &c->marked, part, e));
        c->text = part = bytes_text(&c->marked);
    }
    struct text piece;
    for (size_t at = 0; at < part.len; at += piece.len) {
        piece = text_span(part.data + at, pretokenize_next(t->pre->rule, part, at));
        int twin;
        const int whole = t->pre->whole_pieces ? vocab_find(&t->vocab, piece, &twin) : -1;
        if (whole >= 0) {
            TRY(id_list_add(&c->list, whole, e));
            continue;
        }
        for (struct text rest = piece; rest.len > 0;)
            TRY(bpe_encode(&t->bpe, c, text_cut(&rest, MIN(rest.len, MERGE_MOST)), e));
    }
    c->text = text;
    return STATUS_OK;
}

/* --- SentencePiece --------------------------------------------------------------------------- */

static enum status init_spm(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    t->adds_space = true;
    TRY(gguf_get_bool(g, ADDS_SPACE_KEY, &t->adds_space, GGUF_OPTIONAL, e));
    struct text scheme;
    TRY(gguf_get_text(g, SCHEME_KEY, &scheme, &t->spares_space, e));
    t->space_first = t->spares_space && text_is(scheme, "first");
    if (t->spares_space && !t->space_first && !text_is(scheme, "always"))
        return err_bad_file(e, SCHEME_KEY ": expected first or always, found \"%.*s\"",
                            text_width(scheme), scheme.data);
    TRY(spm_init(&t->spm, &t->vocab, g, e));
    name_index_free(&t->vocab.names);
    return STATUS_OK;
}

static enum status encode_spm(const struct tokenizer *t, struct encoding *c, struct text part,
                              struct err *e)
{
    return spm_encode(&t->spm, c, part, adds_space(t, c, part), e);
}

/* --- all kinds ------------------------------------------------------------------------------- */

static const struct tokenizer_kind kinds[] = {
    {"gpt2", VOCAB_BYTES, -1, -1, false, init_bpe, encode_bpe},
    {"llama", VOCAB_SPACES, 1, 2, true, init_spm, encode_spm},
    {NULL, VOCAB_RAW, -1, -1, false, NULL, NULL}, /* any other */
};

/* Returns what separates a note from the one before it. */
static const char *before_note(const struct tokenizer *t)
{
    return t->warning[0] ? "; " : "";
}

/* An id beyond the vocabulary is none, as in llama.cpp. */
static enum status read_id(struct tokenizer *t, const struct gguf *g, const char *key,
                           int otherwise, int *id, struct err *e)
{
    uint64_t value = VOCAB_NO_ID;
    bool found;
    const int n = t->vocab.n;
    TRY(gguf_get_u64(g, key, 0, UINT64_MAX, &value, &found, e));
    *id = found ? -1 : otherwise < n ? otherwise : -1;
    if (value < (uint64_t)n)
        *id = (int)value;
    else if (value != VOCAB_NO_ID && n > 0)
        chars_append(t->warning,
                     "%s%s: expected an id below %d, found %" PRIu64 ", which is taken for none",
                     before_note(t), key, n, value);
    return STATUS_OK;
}

/* Finds the control tokens that have one of end_names. */
static void find_end_names(struct tokenizer *t)
{
    for (int i = 0; i < LENGTH(end_names); i++) {
        const struct indexed *found = name_index_find(&t->specials, text_of(end_names[i]));
        const bool ends = found && t->vocab.type[found->id] == TOKEN_CONTROL;
        t->ends[N_END_KEYS + i] = ends ? found->id : -1;
    }
}

static enum status read_all(struct tokenizer *t, const struct gguf *g, struct err *e)
{
    struct text model;
    TRY(gguf_get_text(g, "tokenizer.ggml.model", &model, NULL, e));
    t->kind = kinds;
    while (t->kind->model && !text_is(model, t->kind->model))
        t->kind++;
    t->adds_bos = t->kind->adds_bos;
    TRY(vocab_init(&t->vocab, t->kind->notation, g, e));
    if (t->kind->init)
        TRY(t->kind->init(t, g, e));
    else
        err_format(&t->refusal,
                   "tokenizer.ggml.model: expected \"gpt2\" or \"llama\", found \"%.*s\"",
                   text_width(model), model.data);
    if (t->kind->init)
        for (int id = 0; id < t->vocab.n; id++) {
            const enum token_type type = t->vocab.type[id];
            const struct text bytes = vocab_bytes(&t->vocab, id);
            if ((type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED && type != TOKEN_UNKNOWN) ||
                bytes.len == 0 || bytes.len > LONGEST_SPECIAL)
                continue;
            TRY(name_index_add(&t->specials, bytes, id, 0, e));
            t->starts_special[(unsigned char)bytes.data[0]] = true;
        }
    name_index_sort(&t->specials);
    name_index_link(&t->specials);
    TRY(read_id(t, g, "tokenizer.ggml.bos_token_id", t->kind->bos, &t->bos, e));
    find_end_names(t);
    for (int i = 0; i < N_END_KEYS; i++)
        TRY(read_id(t, g, end_keys[i], i == 0 ? t->kind->eos : -1, &t->ends[i], e));
    if (t->vocab.first_empty >= 0)
        chars_append(t->warning,
                     "%stokenizer.ggml.tokens: token %d is empty, which no text becomes",
                     before_note(t), t->vocab.first_empty);
    if (t->pre)
        find_lost_merges(t);
    bool found;
    TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, &found, e));
    if (found && t->adds_bos && t->bos < 0)
        return err_bad_file(e, "tokenizer.ggml.bos_token_id: expected an id, because add_bos_token "
                               "is true, found none");
    t->adds_bos = t->adds_bos && t->bos >= 0;
    return STATUS_OK;
}

enum status tokenizer_create(const struct gguf *g, struct tokenizer **out, struct err *e)
{
    *out = NULL;
    struct tokenizer *t;
    TRY_ZEROED(t, 1, "tokenizer", e);
    const enum status s = read_all(t, g, e);
    if (s != STATUS_OK)
        tokenizer_free(t);
    else
        *out = t;
    return s;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_free(&t->vocab);
    merging_free(&t->bpe.merging);
    replacements_free(&t->replaced);
    spm_free(&t->spm);
    name_index_free(&t->specials);
    free(t);
}

/* --- asking ---------------------------------------------------------------------------------- */

int tokenizer_n_tokens(const struct tokenizer *t)
{
    return t->vocab.n;
}

int tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int tokenizer_eos(const struct tokenizer *t)
{
    return t->ends[0];
}

int tokenizer_end(const struct tokenizer *t, int *i, const char **why)
{
    for (; *i < N_ENDS; ++*i) {
        const int id = t->ends[*i];
        bool known = false; /* for an earlier reason */
        for (int k = 0; k < *i; k++)
            known = known || t->ends[k] == id;
        if (id < 0 || known)
            continue;
        *why = *i < N_END_KEYS ? strrchr(end_keys[*i], '.') + 1 : end_names[*i - N_END_KEYS];
        ++*i;
        return id;
    }
    return -1;
}

bool tokenizer_ends(const struct tokenizer *t, int id)
{
    for (int i = 0; i < N_ENDS; i++)
        if (t->ends[i] == id)
            return true;
    return false;
}

const char *tokenizer_pre(const struct tokenizer *t)
{
    return t->pre_name[0] ? t->pre_name : NULL;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos;
}

bool tokenizer_is_special(const struct tokenizer *t, int id)
{
    assert(id >= 0);
    return id < t->vocab.n &&
           (t->vocab.type[id] == TOKEN_CONTROL || t->vocab.type[id] == TOKEN_UNKNOWN);
}

const char *tokenizer_oddity(const struct tokenizer *t)
{
    return t->warning[0] ? t->warning : NULL;
}

enum status tokenizer_reads_text(const struct tokenizer *t, struct err *e)
{
    return t->refusal.text[0] ? err_bad_file(e, "%s", t->refusal.text) : STATUS_OK;
}

enum status tokenizer_encode_prompt(const struct tokenizer *t, struct text prompt, int32_t **ids,
                                    size_t *n, struct err *e)
{
    if (prompt.len > 0)
        return tokenizer_encode(t, prompt, tokenizer_adds_bos(t), ids, n, e);
    const bool bos = tokenizer_bos(t) >= 0;
    const enum status s = tokenizer_encode(t, text_of(bos ? "" : "\n"), bos, ids, n, e);
    if (s != STATUS_USAGE && s != STATUS_BAD_FILE)
        return s;
    return err_usage(e, "the prompt is empty, and the checkpoint has neither a begin-of-text token "
                        "nor one for a newline to begin with");
}

struct text tokenizer_bytes(const struct tokenizer *t, int id)
{
    assert(id >= 0);
    const bool is_text = id < t->vocab.n && t->vocab.type[id] != TOKEN_UNUSED;
    return is_text ? vocab_bytes(&t->vocab, id) : text_of("");
}

enum status tokenizer_compare(const struct tokenizer *t, const struct tokenizer *other,
                              struct err *e)
{
    const int n = other ? MIN(tokenizer_n_tokens(t), tokenizer_n_tokens(other)) : 0;
    for (int id = 0; id < n; id++) {
        const struct text expected = tokenizer_bytes(t, id), found = tokenizer_bytes(other, id);
        if (!text_equal(expected, found))
            return err_bad_file(e,
                                "another vocabulary than the checkpoint's: token %d is expected to "
                                "be '%.*s', found '%.*s'",
                                id, text_width(expected), expected.data, text_width(found),
                                found.data);
    }
    return STATUS_OK;
}

bool tokenizer_put(const struct tokenizer *t, const int32_t *ids, size_t n, struct bytes *out)
{
    bool has_memory = true;
    for (size_t i = 0; i < n && has_memory; i++)
        has_memory = bytes_put(out, tokenizer_bytes(t, ids[i]));
    return has_memory;
}

size_t tokenizer_added(const struct tokenizer *t, struct text text)
{
    return t->adds_space && !t->pre && text.len > 0 && text.data[0] == ' ';
}

size_t tokenizer_longest(const struct tokenizer *t)
{
    size_t longest = 0;
    for (int id = 0; id < t->vocab.n; id++)
        longest = MAX(longest, tokenizer_bytes(t, id).len);
    const bool marks = t->kind->notation == VOCAB_SPACES; /* a text may have them, too */
    return marks ? longest * (sizeof VOCAB_SPACE - 1) : longest;
}

/* --- encoding -------------------------------------------------------------------------------- */

static enum status encode_all(const struct tokenizer *t, struct encoding *c, bool bos,
                              struct err *e)
{
    struct text rest = c->text, part = {rest.data, 0}; /* without special tokens, before the rest */
    /* So that ids are not NULL where there are none, either. */
    TRY(id_list_add(&c->list, MAX(t->bos, 0), e));
    c->list.len = bos;
    while (rest.len > 0) {
        const struct indexed *special = NULL; /* the longest that starts here */
        if (t->starts_special[(unsigned char)*rest.data])
            special = name_index_longest(&t->specials, rest);
        if (!special) {
            part.len++;
            text_cut(&rest, 1);
            continue;
        }
        if (part.len > 0)
            TRY(t->kind->encode(t, c, part, e));
        TRY(id_list_add(&c->list, special->id, e));
        text_cut(&rest, special->text.len);
        part = text_span(rest.data, 0);
    }
    return part.len > 0 ? t->kind->encode(t, c, part, e) : STATUS_OK;
}

enum status tokenizer_encode(const struct tokenizer *t, struct text text, bool bos, int32_t **ids,
                             size_t *n, struct err *e)
{
    assert(text.data || text.len == 0);
    *ids = NULL;
    *n = 0;
    if (text.len > 0)
        TRY(tokenizer_reads_text(t, e));
    struct encoding c = {.text = text};
    const enum status s = encode_all(t, &c, bos, e);
    merge_scratch_free(&c.merge);
    bytes_free(&c.marked);
    if (s != STATUS_OK) {
        free(c.list.ids);
        return s;
    }
    *ids = c.list.ids;
    *n = c.list.len;
    return STATUS_OK;
}

/* --- text on its way to the reader ------------------------------------------------------------ */

enum status stream_start(struct stream *s, const struct text *stops, int n_stops, size_t max_piece,
                         struct err *e)
{
    size_t longest = 0;
    for (int i = 0; i < n_stops; i++)
        longest = MAX(stops[i].len, longest);
    /* At most a stop string less a byte and three bytes of a character are held back. */
    const size_t cap = longest + 3 + max_piece;
    char *bytes = s->bytes;
    if (!bytes || cap > s->cap) {
        bytes = realloc(s->bytes, cap);
        if (!bytes)
            return err_no_memory(e, "the output stream", cap);
        s->cap = cap;
    }
    *s = (struct stream){.stops = stops, .n_stops = n_stops, .cap = s->cap, .bytes = bytes};
    return STATUS_OK;
}

void stream_free(struct stream *s)
{
    free(s->bytes);
    *s = (struct stream){.bytes = NULL};
}

/* Returns how many bytes at the end are a UTF-8 character cut short: 0 to 3. */
static size_t utf8_cut_short(struct text bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes.len; back++) {
        /* If any continuation makes it a character, the least or the greatest does. */
        for (int rest = 0x80; rest <= 0xbf; rest += 0x3f) {
            char whole[4];
            uint32_t code;
            memset(whole, rest, sizeof whole);
            memcpy(whole, bytes.data + bytes.len - back, back);
            if (utf8_decode(text_span(whole, sizeof whole), &code) > back)
                return back;
        }
    }
    return 0;
}

static void drop_returned(struct stream *s)
{
    memmove(s->bytes, s->bytes + s->returned, s->len - s->returned);
    s->len -= s->returned;
    s->returned = 0;
}

struct text stream_push(struct stream *s, struct text piece)
{
    drop_returned(s);
    if (s->stopped)
        return text_span(s->bytes, 0);
    assert(piece.len <= s->cap - s->len);
    size_t held = 0; /* how many of the last bytes begin a longer stop string */
    for (size_t i = 0; i < piece.len; i++) {
        size_t longest = 0; /* stop string that ends here */
        s->bytes[s->len++] = piece.data[i];
        for (int k = 0; k < s->n_stops; k++) {
            const struct text stop = s->stops[k];
            if (stop.len > longest && stop.len <= s->len &&
                memcmp(s->bytes + s->len - stop.len, stop.data, stop.len) == 0)
                longest = stop.len;
        }
        if (longest > 0) {
            s->stopped = true;
            s->returned = s->len -= longest;
            return text_span(s->bytes, s->returned);
        }
    }
    for (int k = 0; k < s->n_stops; k++) {
        const struct text stop = s->stops[k];
        size_t n = MIN(stop.len - 1, s->len);
        while (n > held && memcmp(s->bytes + s->len - n, stop.data, n) != 0)
            n--;
        held = MAX(n, held);
    }
    s->returned = s->len - held;
    s->returned -= utf8_cut_short(text_span(s->bytes, s->returned));
    return text_span(s->bytes, s->returned);
}

struct text stream_finish(struct stream *s)
{
    drop_returned(s);
    const struct text rest = {s->bytes, s->len};
    s->len = 0;
    s->stopped = false;
    return rest;
}
