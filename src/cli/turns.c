#include "cli/turns.h"

#include <assert.h>
#include <stdlib.h>

/* Memory that a text may leave to a later one in its place. */
#define MOST_LEFT ((size_t)16 << 10)

static bool keep_bytes(struct output *o, const char *bytes, size_t len)
{
    struct turns_keeper *k = (struct turns_keeper *)o;
    k->n_held += len;
    return bytes_put(k->to, (struct text){bytes, len});
}

enum status turns_create(struct turns *t, struct output *out, struct err *e)
{
    *t = (struct turns){.out = out, .ring = calloc(TURNS_AHEAD, sizeof *t->ring)};
    output_init(&t->keeper.out, keep_bytes);
    return t->ring ? STATUS_OK
                   : err_no_memory(e, "the texts in turn", TURNS_AHEAD * sizeof *t->ring);
}

void turns_free(struct turns *t)
{
    for (int i = 0; t->ring && i < TURNS_AHEAD; i++)
        bytes_free(&t->ring[i].held);
    free(t->ring);
    t->ring = NULL;
}

bool turns_has_room(const struct turns *t, uint64_t number)
{
    return number == t->front ||
           (number - t->front < TURNS_AHEAD && t->keeper.n_held < TURNS_BYTES);
}

static struct turn *turn_of(const struct turns *t, uint64_t number)
{
    assert(number >= t->front && number - t->front < TURNS_AHEAD);
    return &t->ring[number % TURNS_AHEAD];
}

struct output *turns_output(struct turns *t, uint64_t number)
{
    struct turn *turn = turn_of(t, number);
    assert(!turn->closed);
    output_flush(&t->keeper.out);
    t->keeper.to = &turn->held;
    return number == t->front ? t->out : &t->keeper.out;
}

/* Writes what the one whose turn it is now held so far. */
static void write_held(struct turns *t)
{
    struct bytes *held = &turn_of(t, t->front)->held;
    output_put(t->out, bytes_text(held));
    t->keeper.n_held -= held->len;
    held->len = 0;
    if (held->cap > MOST_LEFT)
        bytes_free(held);
}

void turns_close(struct turns *t, uint64_t number)
{
    output_flush(&t->keeper.out);
    turn_of(t, number)->closed = true;
    while (turn_of(t, t->front)->closed) {
        turn_of(t, t->front)->closed = false;
        t->front++;
        write_held(t);
    }
}

void turns_drop(struct turns *t, uint64_t number)
{
    output_flush(&t->keeper.out);
    struct bytes *held = &turn_of(t, number)->held;
    t->keeper.n_held -= held->len;
    held->len = 0;
    turns_close(t, number);
}

enum status turns_check(const struct turns *t, struct err *e)
{
    if (!t->keeper.out.failed)
        return STATUS_OK;
    return err_no_memory(e, "the texts in turn, with another one,", t->keeper.n_held);
}
