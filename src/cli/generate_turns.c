#include <assert.h>
#include <stdlib.h>

#include "cli/generate.h"

/* Memory that a text may leave to a later one in its place. */
#define MOST_LEFT ((size_t)16 << 10)

static void forget_held(struct turns *t, struct bytes *held)
{
    t->n_held -= held->len;
    held->len = 0;
    if (held->cap > MOST_LEFT)
        bytes_free(held);
}

/* A text of which something is lost is lost as a whole; the others go on. */
static bool hold_bytes(struct output *o, const char *bytes, size_t len)
{
    struct turns *t = (struct turns *)o;
    struct turn *to = t->to;
    if (to->lost)
        return true;
    to->lost = !bytes_put(&to->held, (struct text){bytes, len});
    if (to->lost) {
        t->n_lost = to->held.len + len;
        forget_held(t, &to->held);
    } else {
        t->n_held += len;
    }
    return true;
}

enum status turns_create(struct turns *t, struct output *out, struct err *e)
{
    const size_t bytes = TURNS_AHEAD * sizeof *t->ring;
    *t = (struct turns){.out = out, .ring = calloc(1, bytes)};
    output_init(&t->holder, hold_bytes);
    t->holder.terminal = out->terminal;
    return t->ring ? STATUS_OK : err_no_memory(e, "the texts in turn", bytes);
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
    return number == t->front || (number - t->front < TURNS_AHEAD && t->n_held < TURNS_BYTES);
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
    output_flush(&t->holder);
    t->to = turn;
    return number == t->front && !turn->lost ? t->out : &t->holder;
}

void turns_close(struct turns *t, uint64_t number)
{
    output_flush(&t->holder);
    turn_of(t, number)->closed = true;
    for (struct turn *done; (done = turn_of(t, t->front))->closed;) {
        done->closed = done->lost = false;
        /* What the next one held so far. */
        struct bytes *held = &turn_of(t, ++t->front)->held;
        output_put(t->out, bytes_text(held));
        forget_held(t, held);
    }
}

void turns_drop(struct turns *t, uint64_t number)
{
    output_flush(&t->holder);
    forget_held(t, &turn_of(t, number)->held);
    turns_close(t, number);
}

enum status turns_check(const struct turns *t, struct err *e)
{
    return t->n_lost > 0 ? err_no_memory(e, "a text that waits for its turn", t->n_lost)
                         : STATUS_OK;
}
