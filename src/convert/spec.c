#include "convert/spec.h"

#include "model/layout.h"

const char *const convert_methods[] = {"mean", "first", "random", "procrustes", "fit", NULL};
const char *const convert_refits[] = {"none", "wo", NULL};

void convert_free(struct convert *c)
{
    gguf_writer_free(c->writer);
    arena_free(&c->arena);
    *c = (struct convert){.n_layers = 0};
}

uint64_t convert_count_params(const struct gguf *g)
{
    uint64_t n = -layout_tied_elements(g);
    for (size_t i = 0; i < g->n_tensors; i++)
        n += g->tensors[i].n_elements;
    return n;
}
