#include "text/bpe_learn.h"

#include <inttypes.h>

#include "base/mem.h"
#include "base/siphash.h"
#include "formats/gguf_write.h"
#include "text/pretokenize.h"
#include "text/unicode.h"
#include "text/vocab.h"

#define N_BYTES 256

/* How often progress is told: bytes read, and places merged. */
#define READ_STEP  (1 << 20)
#define PLACE_STEP (1 << 16)

/*
 * The distinct words lie one after another in `nodes`, a node a byte, from 1 on. A token that
 * starts at node i and covers k bytes has its id in nodes[i].token, and -k in nodes[i + 1] and
 * nodes[i + k - 1] if k > 1, so that both neighbours are found at once. Words next to each other
 * differ in their number, so that a word's ends need no marks.
 *
 * Every node where a token with a right neighbour starts is in the list of its pair: a merge
 * visits the places of its pair and nothing else, however long the words are.
 */
struct node {
    int32_t token;
    uint32_t word;       /* 0: before the first, after the last */
    uint32_t pair;       /* 0: none */
    uint32_t next, prev; /* in the pair's list; 0: none */
};

struct pair {
    int32_t left, right;
    uint32_t head; /* a node, 0: none */
    uint64_t count;
};

/* A pair's count when it came here: once its first merge has been done, it can only fall. */
struct queued {
    uint64_t count;
    uint32_t pair;
};

struct counted_word {
    struct text text; /* its first occurrence */
    uint64_t count;
};

struct learner {
    const struct bpe_learn_spec *spec;

    /* The distinct words of the texts, by a keyed hash: texts cannot be written so that their words
     * collide. The key is an address; nothing that can be seen depends on it. */
    struct counted_word *words; /* [n_words] by first occurrence */
    size_t n_words, words_cap;
    uint64_t bytes;  /* of all of them */
    uint32_t *slots; /* [n_slots] a word's number + 1; 0: empty. At most half of them are taken */
    size_t n_slots;  /* a power of two, or 0 */
    uint64_t key[2];

    struct arena arena; /* of the three below */
    struct node *nodes; /* [bytes + 2] */
    uint64_t *weight;   /* [n_words + 1] occurrences of word 1, 2, ... */
    uint32_t *fresh;    /* [2 * tokens] of the present merge: the pair (i, new token) in 2i, the
                           pair (new token, i) in 2i + 1, 0 where there is none */
    struct bpe_merge *merges; /* [max_merges] */
    int max_merges, n_merges;
    uint64_t places; /* merged so far */

    struct pair *pairs; /* from 1 on */
    size_t n_pairs, pairs_cap;

    struct queued *queue; /* a heap, the most frequent pair first */
    size_t n_queued, queue_cap;
};

static enum status report_progress(const struct bpe_learn_spec *spec, enum bpe_learn_phase phase,
                                   uint64_t done, uint64_t all, struct err *e)
{
    if (spec->progress)
        spec->progress(spec->arg, phase, done, all);
    if (spec->stop && spec->stop(spec->arg))
        return err_set(e, STATUS_INTERRUPTED, "interrupted while learning the vocabulary");
    return STATUS_OK;
}

/* --- reading the texts ----------------------------------------------------------------------- */

#define FIRST_SLOTS 1024

/* The word's slot, or the empty one where it belongs. */
static uint32_t *find_slot(const struct learner *l, struct text word)
{
    const size_t mask = l->n_slots - 1;
    size_t i = siphash(l->key, word) & mask;
    while (l->slots[i] != 0 && !text_equal(l->words[l->slots[i] - 1].text, word))
        i = (i + 1) & mask;
    return &l->slots[i];
}

static enum status count_word(struct learner *l, struct text word, struct err *e)
{
    if (2 * (l->n_words + 1) > l->n_slots) {
        const size_t n_slots = l->n_slots ? l->n_slots * 2 : FIRST_SLOTS;
        uint32_t *slots;
        TRY_ZEROED(slots, n_slots, "counting words", e);
        free(l->slots);
        l->slots = slots;
        l->n_slots = n_slots;
        if (l->n_words == 0) {
            l->key[0] = (uintptr_t)slots;
            l->key[1] = (uintptr_t)&slots; /* of the stack */
        }
        for (size_t i = 0; i < l->n_words; i++)
            *find_slot(l, l->words[i].text) = (uint32_t)i + 1;
    }
    uint32_t *slot = find_slot(l, word);
    if (*slot == 0) {
        if (l->n_words == INT32_MAX)
            return err_no_memory(e, "counting words", l->n_words * sizeof *l->words);
        TRY_ROOM(l->words, l->n_words, l->words_cap, "counting words", e);
        l->words[l->n_words++] = (struct counted_word){.text = word};
        *slot = (uint32_t)l->n_words;
        l->bytes += word.len;
    }
    l->words[*slot - 1].count++;
    return STATUS_OK;
}

static enum status count_texts(struct learner *l, const struct text *texts, size_t n, struct err *e)
{
    uint64_t done = 0, all = 0, next = READ_STEP;
    for (size_t i = 0; i < n; i++)
        all += texts[i].len;
    TRY(report_progress(l->spec, BPE_LEARN_READING, 0, all, e));
    for (size_t i = 0; i < n; i++)
        for (struct text rest = texts[i]; rest.len > 0;) {
            const struct text word = text_cut(&rest, pretokenize_next(PRETOKENIZE_GPT2, rest));
            if (word.len > 1) /* a single byte has no pair */
                TRY(count_word(l, word, e));
            done += word.len;
            if (done >= next) {
                TRY(report_progress(l->spec, BPE_LEARN_READING, done, all, e));
                next = done + READ_STEP;
            }
        }
    if (l->bytes > INT32_MAX - 2)
        return err_set(e, STATUS_NO_MEMORY,
                       "learning a vocabulary: the different words have %" PRIu64
                       " bytes, at most %d fit",
                       l->bytes, INT32_MAX - 2);
    if ((uint64_t)l->max_merges > l->bytes) /* each merge makes some word shorter by a token */
        l->max_merges = l->bytes;
    return STATUS_OK;
}

/* --- the queue ------------------------------------------------------------------------------- */

static bool comes_before(const struct learner *l, struct queued a, struct queued b)
{
    if (a.count != b.count)
        return a.count > b.count;
    const struct pair *p = &l->pairs[a.pair], *q = &l->pairs[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

/* Queues a pair whose count will not rise any more, if it is to be merged ever. */
static void queue_push(struct learner *l, uint32_t pair)
{
    const struct queued new = {l->pairs[pair].count, pair};
    if (new.count < 2)
        return;
    size_t i = l->n_queued++;
    for (; i > 0 && comes_before(l, new, l->queue[(i - 1) / 2]); i = (i - 1) / 2)
        l->queue[i] = l->queue[(i - 1) / 2];
    l->queue[i] = new;
}

/* Puts an entry in the place of the first one. */
static void queue_replace(struct learner *l, struct queued entry)
{
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < l->n_queued; i = child) {
        if (child + 1 < l->n_queued && comes_before(l, l->queue[child + 1], l->queue[child]))
            child++;
        if (!comes_before(l, l->queue[child], entry))
            break;
        l->queue[i] = l->queue[child];
    }
    l->queue[i] = entry;
}

/* Takes the most frequent pair out; 0 if none occurs twice. */
static uint32_t queue_pop(struct learner *l)
{
    while (l->n_queued > 0) {
        const struct queued top = l->queue[0];
        const uint64_t count = l->pairs[top.pair].count;
        if (count > 1 && count < top.count) { /* those below may be more frequent */
            queue_replace(l, (struct queued){count, top.pair});
            continue;
        }
        if (--l->n_queued > 0)
            queue_replace(l, l->queue[l->n_queued]);
        if (count > 1)
            return top.pair;
    }
    return 0;
}

/* --- pairs and their places ------------------------------------------------------------------ */

/* Room for n new pairs, all of which may be queued, so that merging cannot fail half-way. */
static enum status reserve_pairs(struct learner *l, size_t n, struct err *e)
{
    void *pairs = array_grow(l->pairs, l->n_pairs + n, &l->pairs_cap, sizeof *l->pairs);
    l->pairs = pairs ? pairs : l->pairs;
    void *queue = array_grow(l->queue, l->n_queued + n, &l->queue_cap, sizeof *l->queue);
    l->queue = queue ? queue : l->queue;
    return pairs && queue
               ? STATUS_OK
               : err_no_memory(e, "learning a vocabulary", (l->n_pairs + n) * sizeof *l->pairs);
}

static void link_node(struct learner *l, uint32_t i, uint32_t pair)
{
    struct pair *p = &l->pairs[pair];
    struct node *n = &l->nodes[i];
    assert(pair > 0 && pair < l->n_pairs && n->pair == 0 && n->word > 0);
    n->pair = pair;
    n->prev = 0;
    n->next = p->head;
    if (p->head)
        l->nodes[p->head].prev = i;
    p->head = i;
    p->count += l->weight[n->word];
}

static void unlink_node(struct learner *l, uint32_t i)
{
    struct node *n = &l->nodes[i];
    struct pair *p = &l->pairs[n->pair];
    assert(n->pair > 0 && p->count >= l->weight[n->word]);
    if (n->prev)
        l->nodes[n->prev].next = n->next;
    else
        p->head = n->next;
    if (n->next)
        l->nodes[n->next].prev = n->prev;
    p->count -= l->weight[n->word];
    n->pair = 0;
}

/* The pair of a token with the new one of the present merge. */
static uint32_t fresh_pair(struct learner *l, int32_t left, int32_t right)
{
    const bool is_right = right == N_BYTES + l->n_merges;
    uint32_t *slot = &l->fresh[is_right ? 2 * left : 2 * right + 1];
    if (*slot == 0) {
        *slot = (uint32_t)l->n_pairs++;
        l->pairs[*slot] = (struct pair){.left = left, .right = right};
    }
    return *slot;
}

/* The words as bytes, and the pairs of bytes. */
static enum status start_merging(struct learner *l, struct err *e)
{
    const uint32_t n_pairs = N_BYTES * N_BYTES;
    TRY(reserve_pairs(l, 1 + n_pairs, e));
    l->n_pairs = 1 + n_pairs;
    for (uint32_t i = 0; i < n_pairs; i++)
        l->pairs[1 + i] =
            (struct pair){.left = (int32_t)i / N_BYTES, .right = (int32_t)i % N_BYTES};

    /* From the last to the first, so that lists start as they lie in memory. */
    uint32_t at = l->bytes + 1;
    for (size_t w = l->n_words; w > 0; w--) {
        const struct counted_word *word = &l->words[w - 1];
        l->weight[w] = word->count;
        for (size_t i = word->text.len; i > 0; i--) {
            const int32_t byte = (unsigned char)word->text.data[i - 1];
            l->nodes[--at] = (struct node){.token = byte, .word = w};
            if (i < word->text.len)
                link_node(l, at, 1 + byte * N_BYTES + l->nodes[at + 1].token);
        }
    }
    free(l->words);
    free(l->slots);
    l->words = NULL;
    l->slots = NULL;
    for (uint32_t i = 0; i < n_pairs; i++)
        queue_push(l, 1 + i);
    return STATUS_OK;
}

/* --- merging --------------------------------------------------------------------------------- */

/* Where the token that starts at node i ends. */
static uint32_t token_end(const struct learner *l, uint32_t i)
{
    const struct node *next = &l->nodes[i + 1]; /* another word starts with an id */
    return next->token < 0 ? i - next->token : i + 1;
}

/* Where the token before the one at node i starts; 0 if that is the word's first. */
static uint32_t token_before(const struct learner *l, uint32_t i)
{
    const struct node *last = &l->nodes[i - 1];
    if (last->word != l->nodes[i].word)
        return 0;
    return last->token < 0 ? i + last->token : i - 1;
}

/* Makes the pair at node i the new token. */
static void merge_node(struct learner *l, uint32_t i)
{
    const int32_t new = N_BYTES + l->n_merges;
    const uint32_t right = token_end(l, i), end = token_end(l, right), before = token_before(l, i);
    const bool has_next = l->nodes[right].pair != 0;
    l->places++;
    unlink_node(l, i);
    if (has_next)
        unlink_node(l, right);
    if (before)
        unlink_node(l, before);

    l->nodes[i].token = new;
    l->nodes[i + 1].token = l->nodes[end - 1].token = -(end - i);
    if (has_next)
        link_node(l, i, fresh_pair(l, new, l->nodes[end].token));
    if (before)
        link_node(l, before, fresh_pair(l, l->nodes[before].token, new));
}

static void merge_pair(struct learner *l, uint32_t pair)
{
    const struct bpe_merge m = {l->pairs[pair].left, l->pairs[pair].right};
    const size_t first_fresh = l->n_pairs;
    for (uint32_t i; (i = l->pairs[pair].head) != 0;) {
        /* Of a run of equal tokens all are merged, from the left. */
        for (uint32_t before;
             m.left == m.right && (before = token_before(l, i)) && l->nodes[before].pair == pair;)
            i = before;
        for (; l->nodes[i].pair == pair; i = token_end(l, i)) {
            merge_node(l, i);
            if (m.left != m.right)
                break;
        }
    }
    for (size_t i = first_fresh; i < l->n_pairs; i++) {
        l->fresh[2 * l->pairs[i].left] = 0;
        l->fresh[2 * l->pairs[i].right + 1] = 0;
        queue_push(l, i);
    }
    l->merges[l->n_merges++] = m;
}

static void learner_take(struct learner *l)
{
    l->nodes = arena_take(&l->arena, l->bytes + 2, sizeof *l->nodes);
    l->weight = arena_take(&l->arena, l->n_words + (uint64_t)1, sizeof *l->weight);
    l->fresh = arena_take(&l->arena, 2 * (N_BYTES + (uint64_t)l->max_merges), sizeof *l->fresh);
}

static enum status merge_all(struct learner *l, struct err *e)
{
    uint64_t next = 0;
    learner_take(l);
    TRY(arena_allocate(&l->arena, "learning a vocabulary", e));
    learner_take(l);
    TRY(start_merging(l, e));
    while (l->n_merges < l->max_merges) {
        if (l->places >= next) {
            TRY(report_progress(l->spec, BPE_LEARN_MERGING, l->n_merges, l->max_merges, e));
            next = l->places + PLACE_STEP;
        }
        TRY(reserve_pairs(l, 2 * ((size_t)l->n_merges + N_BYTES + 1), e));
        const uint32_t pair = queue_pop(l);
        if (!pair)
            break;
        merge_pair(l, pair);
    }
    return STATUS_OK;
}

/* --- the result ------------------------------------------------------------------------------ */

/* The tokens of the merges, which are there. */
static enum status spell_tokens(struct bpe_learned *out, struct err *e)
{
    const int n = N_BYTES + out->n_merges;
    size_t total = 0; /* at most 2^31 more than the bytes alone */
    TRY_ZEROED(out->tokens, n, "the learned vocabulary", e);
    struct text *tokens = out->tokens;
    for (int i = 0; i < n; i++) {
        const struct bpe_merge *m = out->merges + i - N_BYTES;
        tokens[i].len = i < N_BYTES ? 1 : tokens[m->left].len + tokens[m->right].len;
        total += tokens[i].len;
    }
    TRY_ZEROED(out->bytes, total, "the learned vocabulary", e);
    char *at = out->bytes;
    for (int i = 0; i < n; at += tokens[i++].len) {
        tokens[i].data = at;
        *at = (char)i;
        if (i >= N_BYTES) {
            const struct bpe_merge m = out->merges[i - N_BYTES];
            memcpy(at, tokens[m.left].data, tokens[m.left].len);
            memcpy(at + tokens[m.left].len, tokens[m.right].data, tokens[m.right].len);
        }
    }
    out->n_tokens = n;
    return STATUS_OK;
}

enum status bpe_learn(const struct bpe_learn_spec *spec, const struct text *texts, size_t n,
                      struct bpe_learned *out, struct err *e)
{
    assert(texts || n == 0);
    *out = (struct bpe_learned){0};
    if (spec->n_tokens < N_BYTES)
        return err_usage(e, "a vocabulary needs at least %d tokens, one for every byte; found %d",
                         N_BYTES, spec->n_tokens);
    struct learner l = {.spec = spec, .max_merges = spec->n_tokens - N_BYTES};
    enum status s = STATUS_OK;
    if (l.max_merges > 0) /* without any the texts are not read */
        s = count_texts(&l, texts, n, e);
    l.merges = out->merges = s ? NULL : calloc((size_t)l.max_merges + 1, sizeof *l.merges);
    if (!s && !l.merges)
        s = err_no_memory(e, "the learned vocabulary", l.max_merges * sizeof *l.merges);
    if (!s && l.max_merges > 0)
        s = merge_all(&l, e);
    out->n_merges = l.n_merges;
    free(l.words);
    free(l.slots);
    arena_free(&l.arena);
    free(l.pairs);
    free(l.queue);
    if (s == STATUS_OK)
        s = spell_tokens(out, e);
    if (s)
        bpe_learned_free(out);
    return s;
}

void bpe_learned_free(struct bpe_learned *v)
{
    free(v->tokens);
    free(v->merges);
    free(v->bytes);
    *v = (struct bpe_learned){0};
}

/* --- as keys of a file ----------------------------------------------------------------------- */

#define KEY(name) "tokenizer.ggml." name

/* Appends the token in the byte alphabet to the name that ends at `at`: returns its new end. */
static char *spell(struct text token, char *at)
{
    for (size_t i = 0; i < token.len; i++)
        at += byte_alphabet_write(token.data[i], at);
    return at;
}

enum status bpe_learned_write(const struct bpe_learned *v, struct gguf_writer *w, struct err *e)
{
    const size_t n = v->n_tokens, n_merges = v->n_merges;
    size_t total = 0; /* the tokens' bytes are in memory, so this fits */
    for (size_t i = 0; i < n; i++)
        total += v->tokens[i].len;
    struct text *tokens = calloc(n + n_merges, sizeof *tokens);
    int32_t *types = calloc(n, sizeof *types);
    /* At most two bytes a byte, of tokens and of merges. */
    char *bytes = malloc(4 * total + n_merges), *at = bytes, *end;
    enum status s = STATUS_OK;
    if (tokens && types && bytes) {
        for (size_t i = 0; i < n; i++, at = end) {
            end = spell(v->tokens[i], at);
            tokens[i] = text_span(at, end - at);
            types[i] = TOKEN_NORMAL;
        }
        for (size_t i = 0; i < n_merges; i++, at = end) { /* "left right" */
            end = spell(v->tokens[v->merges[i].left], at);
            *end++ = ' ';
            end = spell(v->tokens[v->merges[i].right], end);
            tokens[n + i] = text_span(at, end - at);
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
        s = err_no_memory(e, "writing the vocabulary", 4 * total);
    }
    free(tokens);
    free(types);
    free(bytes);
    return s;
}
