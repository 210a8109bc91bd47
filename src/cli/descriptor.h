/*
 * descriptor - an output that goes to a file descriptor, checked: standard output.
 */
#ifndef DECODE_CLI_DESCRIPTOR_H
#define DECODE_CLI_DESCRIPTOR_H

#include "base/output.h"
#include "base/status.h"

struct descriptor {
    struct output out; /* first */
    int fd;
    int error; /* errno of the first failure, 0 before it */
};

void descriptor_init(struct descriptor *d, int fd);

/* Whether its reader closed the pipe. */
bool descriptor_is_unread(const struct descriptor *d);

/* Flushes and closes the descriptor. STATUS_FAILED with the reason if anything was lost;
 * STATUS_INTERRUPTED if that was because of an interruption while nobody read: then it waits for
 * the reader no longer than a second. */
enum status descriptor_close(struct descriptor *d, struct err *e);

#endif
