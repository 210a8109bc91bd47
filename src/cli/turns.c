#include "cli/turns.h"

#include <assert.h>
#include <stdlib.h>

/* Memory that a text may leave to a later one in its place. */
#define MOST_LEFT ((size_t)16 << 10)

static void forget_held(struct turns_keeper *k, struct bytes *held)
{
    k->n_held -= held->len;
    held->len = 0;
    if (held->cap > MOST_LEFT)
        bytes_free(held);
}

/* A text of which something is lost is lost as a whole; the others go on. */
static bool keep_bytes(struct output *o, const char *bytes, size_t len)
{
    struct turns_keeper *k = (struct turns_keeper *)o;
    struct turn *to = k->to;
    if (to->lost)
        return true;
    to->lost = !bytes_put(&to->held, (struct text){bytes, len});
    if (to->lost) {
        k->n_lost = to->held.len + len;
        forget_held(k, &to->held);
    } else {
        k->n_held += len;
    }
    return true;
}

enum status turns_create(struct turns *t, struct output *out, struct err *e)
{
    *t = (struct turns){.out = out, .ring = calloc(TURNS_AHEAD, sizeof *t->ring)};
    output_init(&t->keeper.out, keep_bytes);
    t->keeper.out.terminal = out->terminal;
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
    t->keeper.to = turn;
    return number == t->front && !turn->lost ? t->out : &t->keeper.out;
}

/* Writes what the one whose turn it is now held so far. */
static void write_held(struct turns *t)
{
    struct bytes *held = &turn_of(t, t->front)->held;
    output_put(t->out, bytes_text(held));
    forget_held(&t->keeper, held);
}

void turns_close(struct turns *t, uint64_t number)
{
    output_flush(&t->keeper.out);
    turn_of(t, number)->closed = true;
    while (turn_of(t, t->front)->closed) {
        struct turn *done = turn_of(t, t->front);
        done->closed = done->lost = false;
        t->front++;
        write_held(t);
    }
}

void turns_drop(struct turns *t, uint64_t number)
{
    output_flush(&t->keeper.out);
    forget_held(&t->keeper, &turn_of(t, number)->held);
    turns_close(t, number);
}

enum status turns_check(const struct turns *t, struct err *e)
{
    if (t->keeper.n_lost == 0)
        return STATUS_OK;
    return err_no_memory(e, "a text that waits for its turn", t->keeper.n_lost);
}
