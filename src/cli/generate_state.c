#include "cli/generate_state.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/input.h"
#include "engine/schedule.h"
#include "model/model.h"

#define VALUES struct state_options
const struct option state_options[] = {
    OPT_FLAG("interactive", talks,
             "a session: each line that is typed continues the text so far and is answered; Ctrl-C "
             "stops an answer, /help lists commands",
             .letter = 'i'),
    OPT_STRING("load-state", load, "FILE",
               "go on with the text that was saved there by the same checkpoint, cache included; a "
               "prompt is added to it; without --seed its random numbers go on, too"),
    OPT_STRING("save-state", save, "FILE", "save the text and its cache at the end",
               .writes = WRITES_FILE),
    OPT_END,
};

/* Read once, and only where it is asked for: all weights are. */
static uint64_t hash_of(struct generate_state *s)
{
    const struct model *m = s->runtime->checkpoint.model;
    const size_t n_heads = (size_t)m->config.n_layers * (size_t)m->config.n_heads;
    if (!s->hashed) {
        s->model = model_fingerprint(m);
        if (s->runtime->off)
            s->model = fingerprint_of(s->model, s->runtime->off, n_heads);
        s->hashed = true;
    }
    return s->model;
}

enum status generate_state_load(struct generate_state *s, const char *path, struct err *e)
{
    struct generation *g = s->generation;
    TRY(saved_read(path, &g->schedule, 0, hash_of(s), &g->seed, e));
    g->goes_on = true;
    g->n_before = (uint64_t)generate_state_len(s);
    return STATUS_OK;
}

enum status generate_state_save(struct generate_state *s, const char *option, const char *path,
                                struct err *e)
{
    if (generate_state_len(s) == 0)
        return err_set(e, STATUS_USAGE, "there is no text yet to save in %.200s", path);
    TRY(path_spares(s->spec, s->values, option, path, e));
    const struct saved_marks marks = {hash_of(s), s->generation->seed};
    return saved_write(path, &s->generation->schedule, 0, &marks, e);
}

void generate_state_seed(struct generate_state *s, uint64_t seed)
{
    s->generation->seed = seed;
    rng_seed(sampler_stream(s->generation->schedule.sampler, 0), seed, 0);
}

int generate_state_len(const struct generate_state *s)
{
    return s->generation->schedule.slots[0].len;
}

bool generate_state_at_end(const struct generate_state *s)
{
    return s->generation->schedule.slots[0].at_end;
}

enum status generate_state_tokens(const struct generate_state *s, struct text more, int32_t **ids,
                                  size_t *n, struct err *e)
{
    const struct schedule *schedule = &s->generation->schedule;
    const int cap = session_cap(schedule->session), room = schedule_room(schedule, 0);
    *n = 0;
    if (more.len > 0)
        TRY(tokens_of_text(schedule->tokenizer, more, false, ids, n, e));
    if (room >= 0 && *n <= (size_t)room)
        return STATUS_OK;
    char added[24] = ""; /* an empty line only goes on */
    if (*n > 0)
        snprintf(added, sizeof added, "%zu ", *n);
    return err_set(e, STATUS_USAGE,
                   "the text has %d tokens, the context %d: no room for %smore; shorten what is "
                   "added%s",
                   generate_state_len(s), cap, added,
                   schedule->shifts ? "" : ", raise -c, or go on with --shift");
}
