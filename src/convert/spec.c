#include "convert/spec.h"

const char *const convert_methods[] = {"mean", "first", "random", "procrustes", "fit", NULL};
const char *const convert_refits[] = {"none", "wo", NULL};

void convert_free(struct convert *c)
{
    gguf_writer_free(c->writer);
    arena_free(&c->arena);
    *c = (struct convert){.n_layers = 0};
}
