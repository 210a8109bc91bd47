#include "text/bpe_learn.h"

#include <assert.h>
#include <stdlib.h>

#include "text/pretokenize.h"
#include "text/unicode.h"
#include "text/vocab.h"

#define N_BYTES     256
#define END_OF_TEXT "<|endoftext|>"

/* How often progress is told: bytes read, and places merged. */
#define READ_STEP  ((uint64_t)1 << 20)
#define PLACE_STEP ((uint64_t)1 << 16)

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

/*
 * The distinct words of the texts, by a keyed hash: texts cannot be written so that their words
 * collide. The key is an address; nothing that can be seen depends on it.
 */
struct word_count {
    struct counted_word *words; /* [n] by first occurrence */
    size_t n, cap;
    uint32_t *slots; /* [n_slots] a word's number + 1; 0: empty. At most half of them are taken */
    size_t n_slots;  /* a power of two, or 0 */
    uint64_t key[2];
};

struct learner {
    const struct bpe_learn_spec *spec;
    uint64_t done, all; /* bytes of the texts that have been read, that there are */
    uint64_t next;      /* progress is due: of bytes, then of places */
    struct word_count words;
    uint64_t bytes; /* of all words */

    struct arena arena; /* of the arrays up to `fresh` */
    struct node *nodes; /* [bytes + 2] */
    uint64_t *weight;   /* [words.n + 1] occurrences of word 1, 2, ... */
    struct bpe_merge *merges;
    size_t *length; /* [tokens] bytes */
    int max_merges, n_merges;
    uint64_t places; /* merged so far */

    /* Of the present merge: the pairs (i, new token) and (new token, i), 0 where there is none;
     * (new, new) is in the first. And a list of them. */
    uint32_t *with_left, *with_right;
    uint32_t *fresh;
    size_t n_fresh;

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
static uint32_t *find_slot(const struct word_count *c, struct text word)
{
    const size_t mask = c->n_slots - 1;
    size_t i = (size_t)siphash(c->key, word) & mask;
    while (c->slots[i] != 0 && !text_equal(c->words[c->slots[i] - 1].text, word))
        i = (i + 1) & mask;
    return &c->slots[i];
}

static enum status grow_slots(struct word_count *c, struct err *e)
{
    const size_t n_slots = c->n_slots ? c->n_slots * 2 : FIRST_SLOTS;
    uint32_t *slots = calloc(n_slots, sizeof *slots);
    if (!slots)
        return err_no_memory(e, "counting words", n_slots * sizeof *slots);
    free(c->slots);
    c->slots = slots;
    c->n_slots = n_slots;
    if (c->n == 0) {
        c->key[0] = (uintptr_t)slots;
        c->key[1] = (uintptr_t)&slots; /* of the stack */
    }
    for (size_t i = 0; i < c->n; i++)
        *find_slot(c, c->words[i].text) = (uint32_t)i + 1;
    return STATUS_OK;
}

static enum status count_word(struct word_count *c, struct text word, struct err *e)
{
    if (2 * (c->n + 1) > c->n_slots)
        TRY(grow_slots(c, e));
    uint32_t *slot = find_slot(c, word);
    if (*slot == 0) {
        struct counted_word *words = NULL;
        if (c->n < (size_t)1 << 31)
            words = array_grow(c->words, c->n + 1, &c->cap, sizeof *words);
        if (!words)
            return err_no_memory(e, "counting words", (c->n + 1) * sizeof *words);
        c->words = words;
        words[c->n++] = (struct counted_word){.text = word};
        *slot = (uint32_t)c->n;
    }
    c->words[*slot - 1].count++;
    return STATUS_OK;
}

static void free_words(struct word_count *c)
{
    free(c->words);
    free(c->slots);
    *c = (struct word_count){0};
}

static enum status count_document(struct learner *l, struct text text, struct err *e)
{
    while (text.len > 0) {
        const struct text word = text_cut(&text, pretokenize_next(PRETOKENIZE_GPT2, text));
        if (word.len > 1) /* a single byte has no pair */
            TRY(count_word(&l->words, word, e));
        l->done += word.len;
        if (l->done >= l->next) {
            TRY(report_progress(l->spec, BPE_LEARN_READING, l->done, l->all, e));
            l->next = l->done + READ_STEP;
        }
    }
    return STATUS_OK;
}

static enum status count_text(struct learner *l, struct text text, struct err *e)
{
    const size_t mark = sizeof END_OF_TEXT - 1;
    while (l->spec->end_of_text && text.len > 0) {
        const char *end = memmem(text.data, text.len, END_OF_TEXT, mark);
        if (!end)
            break;
        TRY(count_document(l, text_cut(&text, (size_t)(end - text.data)), e));
        text_cut(&text, mark);
        l->done += mark;
    }
    return count_document(l, text, e);
}

static enum status count_texts(struct learner *l, const struct text *texts, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        l->all += texts[i].len;
    TRY(report_progress(l->spec, BPE_LEARN_READING, 0, l->all, e));
    for (size_t i = 0; i < n; i++)
        TRY(count_text(l, texts[i], e));
    for (size_t i = 0; i < l->words.n; i++)
        l->bytes += l->words.words[i].text.len;
    if (l->bytes > INT32_MAX - 2)
        return err_set(e, STATUS_NO_MEMORY,
                       "learning a vocabulary: the distinct words have %llu bytes together, of "
                       "which %d can be handled; use less text",
                       (unsigned long long)l->bytes, INT32_MAX - 2);
    if ((uint64_t)l->max_merges > l->bytes) /* each merge makes some word shorter by a token */
        l->max_merges = (int)l->bytes;
    return STATUS_OK;
}

/* --- memory ---------------------------------------------------------------------------------- */

static void learner_take(struct learner *l)
{
    const uint64_t n_merges = (uint64_t)l->max_merges;
    const uint64_t n_tokens = N_BYTES + n_merges;
    l->nodes = arena_take(&l->arena, l->bytes + 2, sizeof *l->nodes);
    l->weight = arena_take(&l->arena, (uint64_t)l->words.n + 1, sizeof *l->weight);
    l->merges = arena_take(&l->arena, n_merges, sizeof *l->merges);
    l->length = arena_take(&l->arena, n_tokens, sizeof *l->length);
    l->with_left = arena_take(&l->arena, n_tokens, sizeof *l->with_left);
    l->with_right = arena_take(&l->arena, n_tokens, sizeof *l->with_right);
    l->fresh = arena_take(&l->arena, 2 * n_tokens, sizeof *l->fresh);
}

/* Room for n new pairs, all of which may be queued, so that merging cannot fail half-way. */
static enum status reserve_pairs(struct learner *l, size_t n, struct err *e)
{
    void *pairs = array_grow(l->pairs, l->n_pairs + n, &l->pairs_cap, sizeof *l->pairs);
    l->pairs = pairs ? pairs : l->pairs;
    void *queue = array_grow(l->queue, l->n_queued + n, &l->queue_cap, sizeof *l->queue);
    l->queue = queue ? queue : l->queue;
    if (pairs && queue)
        return STATUS_OK;
    return err_no_memory(e, "learning a vocabulary",
                         pairs ? (l->n_queued + n) * sizeof *l->queue
                               : (l->n_pairs + n) * sizeof *l->pairs);
}

/* --- the queue ------------------------------------------------------------------------------- */

static bool comes_before(const struct learner *l, struct queued a, struct queued b)
{
    if (a.count != b.count)
        return a.count > b.count;
    const struct pair *p = &l->pairs[a.pair];
    const struct pair *q = &l->pairs[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static void queue_push(struct learner *l, struct queued new)
{
    assert(l->n_queued < l->queue_cap);
    size_t i = l->n_queued++;
    while (i > 0 && comes_before(l, new, l->queue[(i - 1) / 2])) {
        l->queue[i] = l->queue[(i - 1) / 2];
        i = (i - 1) / 2;
    }
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

/* Queues a pair whose count will not rise any more, if it is to be merged ever. */
static void settle(struct learner *l, uint32_t pair)
{
    if (l->pairs[pair].count > 1)
        queue_push(l, (struct queued){l->pairs[pair].count, pair});
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

/* The slot of a pair with the new token of the present merge. */
static uint32_t fresh_pair(struct learner *l, int32_t left, int32_t right)
{
    const bool is_right = right == N_BYTES + l->n_merges;
    uint32_t *slot = is_right ? &l->with_left[left] : &l->with_right[right];
    if (*slot)
        return *slot;
    assert(l->n_pairs < l->pairs_cap);
    *slot = (uint32_t)l->n_pairs++;
    l->pairs[*slot] = (struct pair){.left = left, .right = right};
    l->fresh[l->n_fresh++] = *slot;
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
    uint32_t at = (uint32_t)l->bytes + 1;
    for (size_t w = l->words.n; w > 0; w--) {
        const struct counted_word *word = &l->words.words[w - 1];
        l->weight[w] = word->count;
        for (size_t i = word->text.len; i > 0; i--) {
            const int32_t byte = (unsigned char)word->text.data[i - 1];
            l->nodes[--at] = (struct node){.token = byte, .word = (uint32_t)w};
            if (i < word->text.len)
                link_node(l, at, 1 + (uint32_t)(byte * N_BYTES + l->nodes[at + 1].token));
        }
    }
    free_words(&l->words);
    for (uint32_t i = 0; i < n_pairs; i++)
        settle(l, 1 + i);
    return STATUS_OK;
}

/* --- merging --------------------------------------------------------------------------------- */

/* Where the token that starts at node i ends. */
static uint32_t token_end(const struct learner *l, uint32_t i)
{
    const struct node *next = &l->nodes[i + 1]; /* another word starts with an id */
    return next->token < 0 ? i + (uint32_t)-next->token : i + 1;
}

/* Where the token before the one at node i starts; 0 if that is the word's first. */
static uint32_t token_before(const struct learner *l, uint32_t i)
{
    const struct node *last = &l->nodes[i - 1];
    if (last->word != l->nodes[i].word)
        return 0;
    return last->token < 0 ? i - (uint32_t)-last->token : i - 1;
}

/* Makes the pair at node i the new token. */
static void merge_node(struct learner *l, uint32_t i)
{
    const int32_t new = N_BYTES + l->n_merges;
    const uint32_t right = token_end(l, i);
    const uint32_t end = token_end(l, right);
    const uint32_t before = token_before(l, i);
    const bool has_next = l->nodes[right].pair != 0;
    l->places++;
    unlink_node(l, i);
    if (has_next)
        unlink_node(l, right);
    if (before)
        unlink_node(l, before);

    l->nodes[i].token = new;
    l->nodes[i + 1].token = l->nodes[end - 1].token = -(int32_t)(end - i);
    if (has_next)
        link_node(l, i, fresh_pair(l, new, l->nodes[end].token));
    if (before)
        link_node(l, before, fresh_pair(l, l->nodes[before].token, new));
}

/* Merges a pair of equal tokens in the run of them that node i is in, from the left. */
static void merge_run(struct learner *l, uint32_t i, uint32_t pair)
{
    for (uint32_t before; (before = token_before(l, i)) && l->nodes[before].pair == pair;)
        i = before;
    while (l->nodes[i].pair == pair) {
        merge_node(l, i);
        i = token_end(l, i);
    }
}

static void merge_pair(struct learner *l, uint32_t pair)
{
    const struct bpe_merge m = {l->pairs[pair].left, l->pairs[pair].right};
    for (uint32_t i; (i = l->pairs[pair].head) != 0;) {
        if (m.left == m.right)
            merge_run(l, i, pair);
        else
            merge_node(l, i);
    }
    for (size_t i = 0; i < l->n_fresh; i++) {
        const struct pair *p = &l->pairs[l->fresh[i]];
        l->with_left[p->left] = 0;
        l->with_right[p->right] = 0;
        settle(l, l->fresh[i]);
    }
    l->n_fresh = 0;
    l->length[N_BYTES + l->n_merges] = l->length[m.left] + l->length[m.right];
    l->merges[l->n_merges++] = m;
}

static enum status merge_all(struct learner *l, struct err *e)
{
    TRY(start_merging(l, e));
    l->next = 0;
    while (l->n_merges < l->max_merges) {
        if (l->places >= l->next) {
            TRY(report_progress(l->spec, BPE_LEARN_MERGING, (uint64_t)l->n_merges,
                                (uint64_t)l->max_merges, e));
            l->next = l->places + PLACE_STEP;
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

/* The arrays of *out, whose numbers are set, and room for the tokens' bytes. */
static char *result_take(struct bpe_learned *out, uint64_t n_bytes)
{
    out->tokens = arena_take(&out->arena, (uint64_t)out->n_tokens, sizeof *out->tokens);
    out->merges = arena_take(&out->arena, (uint64_t)out->n_merges, sizeof *out->merges);
    return arena_take(&out->arena, n_bytes, 1);
}

static enum status write_result(const struct learner *l, struct bpe_learned *out, struct err *e)
{
    const int n = N_BYTES + l->n_merges;
    const bool special = l->spec->end_of_text;
    out->n_tokens = n + special;
    out->n_merges = l->n_merges;
    out->end_of_text = special ? n : -1;
    uint64_t total = sizeof END_OF_TEXT - 1;
    for (int i = 0; i < n; i++)
        total += l->length[i]; /* at most 2^31, so this fits */
    result_take(out, total);
    TRY(arena_allocate(&out->arena, "the learned vocabulary", e));
    char *bytes = result_take(out, total);
    for (int i = 0; i < n; i++) {
        out->tokens[i] = (struct text){bytes, l->length[i]};
        if (i < N_BYTES) {
            *bytes = (char)i;
        } else {
            const struct bpe_merge m = out->merges[i - N_BYTES] = l->merges[i - N_BYTES];
            const struct text left = out->tokens[m.left], right = out->tokens[m.right];
            memcpy(bytes, left.data, left.len);
            memcpy(bytes + left.len, right.data, right.len);
        }
        bytes += l->length[i];
    }
    if (special)
        out->tokens[n] = (struct text){memcpy(bytes, END_OF_TEXT, sizeof END_OF_TEXT - 1),
                                       sizeof END_OF_TEXT - 1};
    return STATUS_OK;
}

static enum status learn(struct learner *l, const struct text *texts, size_t n,
                         struct bpe_learned *out, struct err *e)
{
    const bool merges = l->max_merges > 0; /* without any the texts are not read */
    if (merges)
        TRY(count_texts(l, texts, n, e));
    learner_take(l);
    TRY(arena_allocate(&l->arena, "learning a vocabulary", e));
    learner_take(l);
    for (int i = 0; i < N_BYTES; i++)
        l->length[i] = 1;
    if (merges)
        TRY(merge_all(l, e));
    return write_result(l, out, e);
}

enum status bpe_learn(const struct bpe_learn_spec *spec, const struct text *texts, size_t n,
                      struct bpe_learned *out, struct err *e)
{
    assert(texts || n == 0);
    *out = (struct bpe_learned){0};
    const int least = N_BYTES + spec->end_of_text;
    if (spec->n_tokens < least)
        return err_set(e, STATUS_USAGE,
                       "a vocabulary needs at least %d tokens, one for every byte%s; found %d",
                       least, spec->end_of_text ? " and " END_OF_TEXT : "", spec->n_tokens);
    struct learner l = {.spec = spec, .max_merges = spec->n_tokens - least};
    const enum status s = learn(&l, texts, n, out, e);
    free_words(&l.words);
    arena_free(&l.arena);
    free(l.pairs);
    free(l.queue);
    if (s != STATUS_OK)
        *out = (struct bpe_learned){0};
    return s;
}

void bpe_learned_free(struct bpe_learned *v)
{
    arena_free(&v->arena);
    *v = (struct bpe_learned){0};
}

/* --- as keys of a file ----------------------------------------------------------------------- */

/* Appends the token in the byte alphabet to the name that ends at `at`: returns its new end. */
static char *spell(struct text token, char *at)
{
    for (size_t i = 0; i < token.len; i++)
        at += byte_alphabet_write((unsigned char)token.data[i], at);
    return at;
}

struct names {
    struct arena arena;
    struct text *tokens; /* [n_tokens] */
    struct text *merges; /* [n_merges] "left right" */
    int32_t *types;      /* [n_tokens] */
    char *bytes;
};

static void names_take(struct names *n, const struct bpe_learned *v)
{
    uint64_t total = 0; /* the tokens' bytes are in memory, so this fits */
    for (int i = 0; i < v->n_tokens; i++)
        total += v->tokens[i].len;
    n->tokens = arena_take(&n->arena, (uint64_t)v->n_tokens, sizeof *n->tokens);
    n->merges = arena_take(&n->arena, (uint64_t)v->n_merges, sizeof *n->merges);
    n->types = arena_take(&n->arena, (uint64_t)v->n_tokens, sizeof *n->types);
    /* At most two bytes a byte, of tokens and of merges. */
    n->bytes = arena_take(&n->arena, 4 * total + (uint64_t)v->n_merges, 1);
}

enum status bpe_learned_write(const struct bpe_learned *v, struct gguf_writer *w, struct err *e)
{
    struct names n = {0};
    names_take(&n, v);
    TRY(arena_allocate(&n.arena, "writing the vocabulary", e));
    names_take(&n, v);
    char *at = n.bytes, *end;
    for (int i = 0; i < v->n_tokens; i++, at = end) {
        end = spell(v->tokens[i], at);
        n.tokens[i] = (struct text){at, (size_t)(end - at)};
        n.types[i] = i == v->end_of_text ? TOKEN_CONTROL : TOKEN_NORMAL;
    }
    for (int i = 0; i < v->n_merges; i++, at = end) {
        end = spell(v->tokens[v->merges[i].left], at);
        *end++ = ' ';
        end = spell(v->tokens[v->merges[i].right], end);
        n.merges[i] = (struct text){at, (size_t)(end - at)};
    }
    const bool has_special = v->end_of_text >= 0;
    const struct vocab_keys keys = {
        .model = "gpt2",
        .pre = "gpt-2",
        .n = v->n_tokens,
        .tokens = n.tokens,
        .types = n.types,
        .n_merges = (uint64_t)v->n_merges,
        .merges = n.merges,
        .bos = has_special ? v->end_of_text : '\n',
        .eos = has_special ? v->end_of_text : 0,
        .unk = -1,
        .pad = -1,
        .add_space_prefix = -1,
    };
    vocab_keys_write(&keys, w);
    arena_free(&n.arena);
    return STATUS_OK;
}
