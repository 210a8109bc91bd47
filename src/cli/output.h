/*
 * output - a checked, buffered stream to a file descriptor (layer 5).
 *
 * Commands print their product here. The first failed write is kept, later ones do nothing, and
 * output_close tells: a full disk or a closed pipe never passes for success.
 */
#ifndef DECODE_CLI_OUTPUT_H
#define DECODE_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

struct output {
    int fd;
    int error; /* errno of the first failure, 0 before it */
    size_t len;
    char buffer[8192];
};

void output_init(struct output *o, int fd);

void output_put(struct output *o, struct text bytes);
void output_puts(struct output *o, const char *s);
void output_printf(struct output *o, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* at most 1023 bytes a call */
void output_repeat(struct output *o, char c, size_t n);

/* Sends what is buffered. False if this or an earlier write failed. */
bool output_flush(struct output *o);

/* Flushes and closes the descriptor. STATUS_FAILED with the reason if anything was lost;
 * STATUS_INTERRUPTED if that was because of an interruption while nobody read: then it waits for
 * the reader no longer than a second. */
enum status output_close(struct output *o, struct err *e);

#endif
