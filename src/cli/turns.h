/*
 * turns - texts that are made side by side and written one after another, in the order of their
 * numbers.
 *
 * The text whose turn it is goes straight to the output; what others write meanwhile is held in
 * memory until it is theirs; where there is no memory, a text is lost, but never a part of one. So
 * many may be begun ahead of it as TURNS_AHEAD, and no more once TURNS_BYTES are held: memory is
 * bounded however many texts there are.
 */
#ifndef DECODE_CLI_TURNS_H
#define DECODE_CLI_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/output.h"
#include "base/status.h"
#include "base/text.h"

#define TURNS_AHEAD 1024
#define TURNS_BYTES ((size_t)16 << 20)

/* A text that is not the first to be written. */
struct turn {
    struct bytes held;
    bool closed;
    bool lost; /* it could not be held: nothing of it is written any more */
};

struct turns {
    struct output holder; /* first: what is put there is held for `to` */
    struct turn *to;
    struct output *out; /* borrowed */
    uint64_t front;     /* whose turn it is */
    struct turn *ring;  /* [TURNS_AHEAD] by number, modulo */
    size_t n_held;      /* bytes, of all */
    size_t n_lost;      /* bytes that the last text that was lost would have needed; 0: none was */
};

/* STATUS_NO_MEMORY; turns_free is due in every case. */
enum status turns_create(struct turns *t, struct output *out, struct err *e);
void turns_free(struct turns *t); /* legal on a zeroed struct and twice */

/* Whether the text of this number, the next one, may be begun now. That one may whose turn it is.
 */
bool turns_has_room(const struct turns *t, uint64_t number);

/* Where that text, for which there is room and which is not closed, is written: until the next call
 * of anything here. */
struct output *turns_output(struct turns *t, uint64_t number);

/* The text is complete. */
void turns_close(struct turns *t, uint64_t number);

/* It is not to be written: what is held of it is forgotten, and it is closed. */
void turns_drop(struct turns *t, uint64_t number);

/* STATUS_NO_MEMORY if a text could not be held, and is lost. */
enum status turns_check(const struct turns *t, struct err *e);

#endif
