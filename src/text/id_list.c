#include "text/id_list.h"

#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"

enum status id_list_add(struct id_list *list, int32_t id, struct err *e)
{
    assert(id >= 0 && list->len <= list->cap);
    if (list->len == list->cap) {
        const size_t cap = list->cap + list->cap / 2 + 64;
        size_t bytes = SIZE_MAX;
        int32_t *ids = size_of_array(cap, sizeof *ids, &bytes) ? realloc(list->ids, bytes) : NULL;
        if (!ids)
            return err_no_memory(e, "token ids", bytes);
        list->ids = ids;
        list->cap = cap;
    }
    list->ids[list->len++] = id;
    return STATUS_OK;
}

enum status id_list_finish(struct id_list *list, struct err *e)
{
    const size_t bytes = (list->len > 0 ? list->len : 1) * sizeof *list->ids;
    int32_t *ids = realloc(list->ids, bytes);
    if (ids)
        list->ids = ids;
    else if (!list->ids)
        return err_no_memory(e, "token ids", bytes);
    return STATUS_OK;
}
