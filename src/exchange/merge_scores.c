#include "exchange/merge_scores.h"

#include <stdlib.h>

#include "text/spm_char.h"

struct scoring {
    struct vocab_build *build;
    struct merging merging;
    struct merge_scratch scratch;
    int apart;  /* a token whose merges do not follow one another; -1: none */
    int unmade; /* one that is not made of its characters; -1: none */
    int n_unmade;
};

/* Tokens are scored by their first merge. */
static void score(struct scoring *s, const struct symbol_pair *pairs, size_t n, bool *made)
{
    float *scores = s->build->scores;
    int n_made = 0;
    for (size_t i = 0; i < n; i++) {
        const int id = pairs[i].result;
        if (made[id] && pairs[i - 1].result != id)
            s->apart = s->apart < 0 ? id : s->apart;
        if (!made[id])
            scores[id] = (float)-n_made++;
        made[id] = true;
    }
    for (int id = 0; id < s->build->keys.n; id++)
        if (!made[id])
            scores[id] = (float)-n_made;
}

/* Whether the merges make the token, of several characters, of these. */
static enum status is_made(struct scoring *s, int id, bool *made, struct err *e)
{
    struct text rest = s->build->tokens[id];
    size_t n = 0;
    *made = true;
    TRY(merge_reserve(&s->scratch, rest.len, e));
    while (rest.len > 0 && *made) {
        const int symbol = vocab_build_find(s->build, spm_next_char(&rest));
        s->scratch.spans[n++] = symbol;
        *made = symbol >= 0;
    }
    if (!*made || n == 1)
        return STATUS_OK;
    merge_run(&s->merging, &s->scratch, n);
    *made = merge_end(s->scratch.spans, n, 0) == n && s->scratch.spans[0] == id;
    return STATUS_OK;
}

static enum status check_all(struct scoring *s, struct err *e)
{
    for (int id = 0; id < s->build->keys.n; id++) {
        bool made = true;
        if (s->build->tokens[id].len > 0 && s->build->types[id] == TOKEN_NORMAL)
            TRY(is_made(s, id, &made, e));
        if (made)
            continue;
        if (s->n_unmade++ == 0)
            s->unmade = id;
    }
    return STATUS_OK;
}

static enum status check_twice(const struct vocab_build *b, const struct merging *m, size_t n,
                               struct err *e)
{
    for (size_t i = 1; i < n; i++) {
        const struct symbol_pair *p = &m->pairs[i];
        if (p[-1].left == p->left && p[-1].right == p->right)
            return err_set(
                e, STATUS_BAD_FILE,
                "merge %d: expected each pair once, found \"%.*s\" again, which merge %d "
                "makes of the same",
                p->rank, text_width(b->tokens[p->result]), b->tokens[p->result].data, p[-1].rank);
    }
    return STATUS_OK;
}

static void note_differences(const struct scoring *s)
{
    const struct text *tokens = s->build->tokens;
    if (s->apart >= 0)
        vocab_build_note(s->build,
                         "the merges of some tokens, such as \"%.*s\", do not follow one another: "
                         "scores cannot say that, a few ids may differ",
                         text_width(tokens[s->apart]), tokens[s->apart].data);
    if (s->n_unmade > 0)
        vocab_build_note(
            s->build,
            "no merges make %d of the tokens, such as \"%.*s\", of their characters: by "
            "scores a text may have them, a few ids may differ",
            s->n_unmade, text_width(tokens[s->unmade]), tokens[s->unmade].data);
}

static enum status score_and_check(struct scoring *s, size_t n, struct err *e)
{
    TRY(check_twice(s->build, &s->merging, n, e));
    TRY(check_all(s, e));
    note_differences(s);
    return STATUS_OK;
}

enum status merge_scores(struct vocab_build *b, struct symbol_pair *pairs, size_t n, struct err *e)
{
    struct scoring s = {.build = b, .apart = -1, .unmade = -1};
    const size_t n_tokens = (size_t)b->keys.n;
    bool *made = calloc(n_tokens, sizeof *made);
    if (!made) {
        free(pairs);
        return err_no_memory(e, "scores", n_tokens * sizeof *made);
    }
    score(&s, pairs, n, made);
    free(made);
    enum status status = merging_init(&s.merging, pairs, n, b->keys.n, e);
    if (status == STATUS_OK)
        status = score_and_check(&s, n, e);
    merging_free(&s.merging);
    merge_scratch_free(&s.scratch);
    return status;
}
