/* The tensor of a safetensors file with this name, or NULL. */
#ifndef DECODE_TESTS_SAFETENSORS_FIND_H
#define DECODE_TESTS_SAFETENSORS_FIND_H

#include "formats/safetensors.h"

static inline const struct safetensors_tensor *safetensors_find(const struct safetensors *s,
                                                                struct text name)
{
    for (size_t i = 0; i < s->n_tensors; i++)
        if (text_equal(s->tensors[i].name, name))
            return &s->tensors[i];
    return NULL;
}

#endif
