#include "text/bpe_learn.h"

#include "base/hash.h"
#include "base/mem.h"
#include "formats/gguf_write.h"
#include "text/pretokenize.h"
#include "text/unicode.h"
#include "text/vocab.h"

#define N_BYTES 256

/* After so many bytes the reader asks whether to stop. */
#define READ_STEP (1 << 20)

/* The most bytes of distinct words. Each word has at least two, and each merge of two of their
 * tokens makes at most two pairs; so words and pairs are numbered in 32 bits. */
#define MOST_BYTES (1 << 30)

/* An open hash table of numbers from 0 on. */
#define FIRST_SLOTS 1024
#define EMPTY       UINT32_MAX

struct word {
    struct text text; /* its first occurrence */
    uint64_t count;
    int32_t *tokens; /* [n_tokens] in the learner's */
    size_t n_tokens;
};

/* Two tokens that were neighbours at some time, and how often they are now. */
struct pair {
    int32_t left, right;
    uint64_t count;
};

/* A hash table of words or pairs. A text whose words are made to have one hash is learned slowly,
 * which harms only who trains on it. */
struct slots {
    uint32_t *numbers; /* [n] EMPTY or a word's or pair's number; at most half are taken */
    size_t n;          /* a power of two, or 0 */
};

struct learner {
    const struct bpe_learn_spec *spec;

    struct word *words; /* [n_words] by first occurrence */
    size_t n_words, words_cap;
    struct slots by_text;
    uint64_t bytes;  /* of all of them */
    int32_t *tokens; /* [bytes] a word's stand where its bytes stood */

    struct pair *pairs; /* [n_pairs] */
    size_t n_pairs, pairs_cap;
    struct slots by_tokens;

    struct bpe_merge *merges; /* [max_merges] */
    int max_merges, n_merges;
};

static enum status ask_to_stop(const struct bpe_learn_spec *spec, struct err *e)
{
    if (callbacks_stop(&spec->callbacks))
        return err_set(e, STATUS_INTERRUPTED, "interrupted while learning the vocabulary");
    return STATUS_OK;
}

/* Makes twice as many slots, all empty. */
static enum status grow_slots(struct slots *s, struct err *e)
{
    const size_t n = s->n ? s->n * 2 : FIRST_SLOTS;
    uint32_t *numbers = malloc(n * sizeof *numbers);
    if (!numbers)
        return err_no_memory(e, "learning a vocabulary", n * sizeof *numbers);
    memset(numbers, 0xff, n * sizeof *numbers);
    free(s->numbers);
    *s = (struct slots){numbers, n};
    return STATUS_OK;
}

/* --- reading the texts ----------------------------------------------------------------------- */

/* Returns the word's slot, or the empty one where it belongs. */
static uint32_t *find_word(const struct learner *l, struct text word)
{
    const struct slots *s = &l->by_text;
    size_t i = hash_bytes(HASH_START, word.data, word.len) & (s->n - 1);
    while (s->numbers[i] != EMPTY && !text_equal(l->words[s->numbers[i]].text, word))
        i = (i + 1) & (s->n - 1);
    return &s->numbers[i];
}

static enum status count_word(struct learner *l, struct text word, struct err *e)
{
    if (2 * (l->n_words + 1) > l->by_text.n) {
        TRY(grow_slots(&l->by_text, e));
        for (size_t i = 0; i < l->n_words; i++)
            *find_word(l, l->words[i].text) = (uint32_t)i;
    }
    uint32_t *slot = find_word(l, word);
    if (*slot == EMPTY) {
        if (l->bytes > MOST_BYTES)
            return err_set(e, STATUS_NO_MEMORY,
                           "learning a vocabulary: the different words have more than the %d bytes "
                           "that fit",
                           MOST_BYTES);
        TRY_ROOM(l->words, l->n_words, l->words_cap, "counting words", e);
        *slot = (uint32_t)l->n_words;
        l->words[l->n_words++] = (struct word){.text = word};
        l->bytes += word.len;
    }
    l->words[*slot].count++;
    return STATUS_OK;
}

static enum status count_words(struct learner *l, const struct text *texts, size_t n, struct err *e)
{
    uint64_t done = 0, next = 0;
    for (size_t i = 0; i < n; i++)
        for (struct text rest = texts[i]; rest.len > 0;) {
            const struct text word = text_cut(&rest, pretokenize_next(PRETOKENIZE_GPT2, rest, 0));
            if (word.len > 1) /* a single byte has no pair */
                TRY(count_word(l, word, e));
            if (done >= next) {
                TRY(ask_to_stop(l->spec, e));
                next = done + READ_STEP;
            }
            done += word.len;
        }
    return STATUS_OK;
}

/* --- counting pairs -------------------------------------------------------------------------- */

/* The pair's slot, or the empty one where it belongs. */
static uint32_t *find_pair(const struct learner *l, int32_t left, int32_t right)
{
    const struct slots *s = &l->by_tokens;
    const int32_t tokens[] = {left, right};
    size_t i = hash_bytes(HASH_START, tokens, sizeof tokens) & (s->n - 1);
    for (; s->numbers[i] != EMPTY; i = (i + 1) & (s->n - 1)) {
        const struct pair *p = &l->pairs[s->numbers[i]];
        if (p->left == left && p->right == right)
            break;
    }
    return &s->numbers[i];
}

/* Adds so many to the count of a pair, which may be new. */
static enum status count_pair(struct learner *l, int32_t left, int32_t right, uint64_t more,
                              struct err *e)
{
    if (2 * (l->n_pairs + 1) > l->by_tokens.n) {
        TRY(grow_slots(&l->by_tokens, e));
        for (size_t i = 0; i < l->n_pairs; i++)
            *find_pair(l, l->pairs[i].left, l->pairs[i].right) = (uint32_t)i;
    }
    uint32_t *slot = find_pair(l, left, right);
    if (*slot == EMPTY) {
        TRY_ROOM(l->pairs, l->n_pairs, l->pairs_cap, "counting pairs", e);
        *slot = (uint32_t)l->n_pairs;
        l->pairs[l->n_pairs++] = (struct pair){.left = left, .right = right};
    }
    l->pairs[*slot].count += more;
    return STATUS_OK;
}

/* Takes so many off the count of a pair. */
static void discount_pair(struct learner *l, int32_t left, int32_t right, uint64_t fewer)
{
    struct pair *p = &l->pairs[*find_pair(l, left, right)];
    assert(p->count >= fewer);
    p->count -= fewer;
}

/* Splits the words into their bytes' tokens and counts these tokens' pairs. */
static enum status split_words(struct learner *l, struct err *e)
{
    TRY_ZEROED(l->tokens, l->bytes + 1, "learning a vocabulary", e);
    int32_t *at = l->tokens;
    for (size_t w = 0; w < l->n_words; w++) {
        struct word *word = &l->words[w];
        word->tokens = at;
        word->n_tokens = word->text.len;
        for (size_t i = 0; i < word->n_tokens; i++)
            *at++ = (unsigned char)word->text.data[i];
        for (size_t i = 1; i < word->n_tokens; i++)
            TRY(count_pair(l, word->tokens[i - 1], word->tokens[i], word->count, e));
    }
    return STATUS_OK;
}

/* --- merging --------------------------------------------------------------------------------- */

/* Returns the most frequent pair, of equals that of the lowest tokens; NULL if none occurs twice.
 */
static const struct pair *find_best(const struct learner *l)
{
    const struct pair *best = NULL;
    uint64_t count = 2;
    for (size_t i = 0; i < l->n_pairs; i++) {
        const struct pair *p = &l->pairs[i];
        if (p->count < count)
            continue;
        const bool is_lower =
            !best || p->left < best->left || (p->left == best->left && p->right < best->right);
        if (p->count > count || is_lower) {
            best = p;
            count = p->count;
        }
    }
    return best;
}

/* Merges the pair from left to right in a word where it first occurs at token i. At each place the
 * counts are those of the word as merged up to there. */
static enum status merge_word(struct learner *l, struct word *word, size_t i, struct bpe_merge m,
                              int32_t merged, struct err *e)
{
    int32_t *t = word->tokens;
    const size_t n = word->n_tokens;
    size_t to = i;
    while (i < n) {
        if (i + 1 == n || t[i] != m.left || t[i + 1] != m.right) {
            t[to++] = t[i++];
            continue;
        }
        discount_pair(l, m.left, m.right, word->count);
        if (to > 0) {
            discount_pair(l, t[to - 1], m.left, word->count);
            TRY(count_pair(l, t[to - 1], merged, word->count, e));
        }
        if (i + 2 < n) {
            discount_pair(l, m.right, t[i + 2], word->count);
            TRY(count_pair(l, merged, t[i + 2], word->count, e));
        }
        t[to++] = merged;
        i += 2;
    }
    word->n_tokens = to;
    return STATUS_OK;
}

static enum status merge_words(struct learner *l, struct bpe_merge m, int32_t merged, struct err *e)
{
    for (size_t w = 0; w < l->n_words; w++) {
        struct word *word = &l->words[w];
        const int32_t *t = word->tokens;
        size_t i = 1;
        while (i < word->n_tokens && (t[i - 1] != m.left || t[i] != m.right))
            i++;
        if (i < word->n_tokens)
            TRY(merge_word(l, word, i - 1, m, merged, e));
    }
    return STATUS_OK;
}

static enum status merge_all(struct learner *l, struct err *e)
{
    const struct bpe_learn_spec *spec = l->spec;
    TRY(split_words(l, e));
    for (; l->n_merges < l->max_merges; l->n_merges++) {
        callbacks_progress(&spec->callbacks, l->n_merges, l->max_merges);
        TRY(ask_to_stop(spec, e));
        const struct pair *best = find_best(l);
        if (!best)
            break;
        const struct bpe_merge m = l->merges[l->n_merges] =
            (struct bpe_merge){best->left, best->right};
        TRY(merge_words(l, m, N_BYTES + l->n_merges, e));
    }
    return STATUS_OK;
}

/* --- the whole ---------------------------------------------------------------------------------
 */

enum status bpe_learn(const struct bpe_learn_spec *spec, const struct text *texts, size_t n,
                      struct bpe_learned *out, struct err *e)
{
    assert(texts || n == 0);
    *out = (struct bpe_learned){0};
    if (spec->n_tokens < N_BYTES)
        return err_usage(e, "a vocabulary needs at least %d tokens, one for every byte; found %d",
                         N_BYTES, spec->n_tokens);
    struct learner l = {.spec = spec, .max_merges = spec->n_tokens - N_BYTES};
    TRY_ZEROED(l.merges, (size_t)l.max_merges + 1, "the learned vocabulary", e);
    enum status s = STATUS_OK;
    if (l.max_merges > 0) /* without any the texts are not read */
        s = count_words(&l, texts, n, e);
    if (s == STATUS_OK && l.max_merges > 0)
        s = merge_all(&l, e);
    out->merges = l.merges;
    out->n_merges = l.n_merges;
    free(l.words);
    free(l.by_text.numbers);
    free(l.tokens);
    free(l.pairs);
    free(l.by_tokens.numbers);
    if (s)
        bpe_learned_free(out);
    return s;
}

void bpe_learned_free(struct bpe_learned *v)
{
    free(v->merges);
    *v = (struct bpe_learned){0};
}

/* --- as keys of a file ----------------------------------------------------------------------- */

#define KEY(name) "tokenizer.ggml." name

/* Sets the lengths of the tokens in the byte alphabet. Returns the bytes that they and the merges,
 * "left right", take. */
static uint64_t measure_tokens(const struct bpe_learned *v, struct text *tokens)
{
    uint64_t total = 0;
    char bytes[2];
    for (int i = 0; i < N_BYTES; i++)
        total += tokens[i].len = byte_alphabet_write(i, bytes);
    for (int i = 0; i < v->n_merges; i++) {
        const struct bpe_merge m = v->merges[i];
        tokens[N_BYTES + i].len = tokens[m.left].len + tokens[m.right].len;
        total += 2 * tokens[N_BYTES + i].len + 1;
    }
    return total;
}

/* Puts two texts, and `between` between them, at *at, which moves to their end. */
static struct text join(char **at, struct text left, const char *between, struct text right)
{
    char *start = *at, *end = stpcpy(mempcpy(start, left.data, left.len), between);
    *at = mempcpy(end, right.data, right.len);
    return text_span(start, *at - start);
}

enum status bpe_learned_write(const struct bpe_learned *v, struct gguf_writer *w, struct err *e)
{
    const size_t n = bpe_learned_n_tokens(v), n_merges = v->n_merges;
    struct text *tokens = calloc(n + n_merges, sizeof *tokens); /* the merges behind them */
    int32_t *types = calloc(n, sizeof *types);
    const uint64_t total = tokens ? measure_tokens(v, tokens) : 0;
    char *bytes = total <= PTRDIFF_MAX ? malloc(total) : NULL, *at = bytes;
    enum status s = STATUS_OK;
    if (tokens && types && bytes) {
        for (size_t i = 0; i < n; i++)
            types[i] = TOKEN_NORMAL;
        for (int i = 0; i < N_BYTES; i++) {
            tokens[i].data = at;
            at += byte_alphabet_write(i, at);
        }
        for (size_t i = 0; i < n_merges; i++) {
            const struct text left = tokens[v->merges[i].left], right = tokens[v->merges[i].right];
            tokens[N_BYTES + i] = join(&at, left, "", right);
            tokens[n + i] = join(&at, left, " ", right);
        }
        gguf_add_text(w, KEY("model"), text_of("gpt2"));
        gguf_add_text(w, KEY("pre"), text_of("gpt-2"));
        gguf_add_texts(w, KEY("tokens"), tokens, n);
        gguf_add_array(w, KEY("token_type"), GGUF_I32, types, n);
        gguf_add_texts(w, KEY("merges"), tokens + n, n_merges);
        gguf_add_u32(w, KEY("bos_token_id"), '\n');
        gguf_add_u32(w, KEY("eos_token_id"), 0);
        gguf_add_bool(w, KEY("add_bos_token"), false);
    } else {
        s = err_no_memory(e, "writing the vocabulary", total);
    }
    free(tokens);
    free(types);
    free(bytes);
    return s;
}
