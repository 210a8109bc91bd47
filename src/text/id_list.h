/*
 * id_list - token ids as they are found.
 */
#ifndef DECODE_TEXT_ID_LIST_H
#define DECODE_TEXT_ID_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A growing list; zeroed at first, free(ids) at last. */
struct id_list {
    int32_t *ids;
    size_t len, cap;
};

/* id >= 0 (asserted). STATUS_NO_MEMORY; the list is as it was then. */
enum status id_list_add(struct id_list *list, int32_t id, struct err *e);

/* Shrinks the list to what it has; an empty one has memory too. STATUS_NO_MEMORY. */
enum status id_list_finish(struct id_list *list, struct err *e);

#endif
