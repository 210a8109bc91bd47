#include "cli/info.h"

int info_types(const struct gguf *g, struct info_type *types, int cap)
{
    int n = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        int at = 0;
        while (at < n && types[at].name != g->tensors[i].type->name)
            at++;
        if (at == n && n < cap)
            types[n++] = (struct info_type){g->tensors[i].type->name, 0};
        if (at < n)
            types[at].n_tensors++;
    }
    return n;
}

uint64_t info_offset(const struct info *info, const struct gguf_tensor *t)
{
    return (uint64_t)(t->data - info->file.data);
}
