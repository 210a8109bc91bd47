#include "cli/id_set.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/rng.h"
#include "base/siphash.h"

#define FIRST_PLACES 64

struct id_place {
    uint64_t hash; /* 0: free */
    uint64_t index;
};

static uint64_t id_hash(const struct id_set *s, int kind, struct text id)
{
    const uint64_t hash = rng_derive((uint64_t)kind, siphash(s->key, id));
    return hash ? hash : 1;
}

/* The place that has the hash, or the free one that is to have it. */
static struct id_place *find_place(const struct id_set *s, uint64_t hash)
{
    size_t at = (size_t)hash & (s->n_places - 1);
    while (s->places[at].hash && s->places[at].hash != hash)
        at = (at + 1) & (s->n_places - 1);
    return &s->places[at];
}

static enum status choose_key(struct id_set *s, struct err *e)
{
    if (getentropy(s->key, sizeof s->key) != 0)
        return err_set(e, STATUS_FAILED,
                       "the system gives no random numbers, which telling ids apart takes; give "
                       "prompts without ids");
    return STATUS_OK;
}

/* Keeps half of the places free. */
static enum status make_room(struct id_set *s, struct err *e)
{
    if (s->n < s->n_places / 2)
        return STATUS_OK;
    if (s->n_places == 0)
        TRY(choose_key(s, e));
    struct id_set larger = *s;
    larger.n_places = s->n_places ? 2 * s->n_places : FIRST_PLACES;
    larger.places = NULL;
    size_t bytes = SIZE_MAX;
    if (size_of_array(larger.n_places, sizeof *larger.places, &bytes))
        larger.places = calloc(larger.n_places, sizeof *larger.places);
    if (!larger.places)
        return err_no_memory(e, "the set of ids", bytes);
    for (size_t i = 0; i < s->n_places; i++)
        if (s->places[i].hash)
            *find_place(&larger, s->places[i].hash) = s->places[i];
    free(s->places);
    *s = larger;
    return STATUS_OK;
}

enum status id_set_add(struct id_set *s, int kind, struct text id, uint64_t index, uint64_t *first,
                       struct err *e)
{
    TRY(make_room(s, e));
    const uint64_t hash = id_hash(s, kind, id);
    struct id_place *place = find_place(s, hash);
    if (!place->hash) {
        *place = (struct id_place){hash, index};
        s->n++;
    }
    *first = place->index;
    return STATUS_OK;
}

void id_set_free(struct id_set *s)
{
    free(s->places);
    *s = (struct id_set){.places = NULL};
}
