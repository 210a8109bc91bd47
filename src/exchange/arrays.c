#include "exchange/arrays.h"

#include <assert.h>
#include <string.h>

/* No array has more elements than the widest matrices of all layers would, and none takes more
 * than 5 bytes, an int8 and a factor of its own: offsets do not overflow. */
#define MOST_ELEMENTS (UINT64_MAX / (5 * 2 * ARRAYS_MAX))
_Static_assert(CONFIG_MAX_FF >= CONFIG_MAX_VOCAB && CONFIG_MAX_FF >= CONFIG_MAX_CTX &&
                   CONFIG_MAX_FF >= 3 * CONFIG_MAX_WIDTH,
               "the widest matrices are those of the feed-forward");
_Static_assert(CONFIG_MAX_FF <= MOST_ELEMENTS / CONFIG_MAX_WIDTH / CONFIG_MAX_LAYERS,
               "the bytes of all arrays fit 64 bits");

/* --- headers --------------------------------------------------------------------------------- */

void arrays_ints(struct text file, size_t at, int n, int32_t *out)
{
    const size_t bytes = (size_t)n * sizeof *out;
    assert(at <= file.len && bytes <= file.len - at);
    memcpy(out, file.data + at, bytes);
}

enum status arrays_header(struct text file, size_t bytes, struct err *e)
{
    if (file.len < bytes)
        return err_set(e, STATUS_BAD_FILE,
                       "expected a header of %zu bytes, found a file of %zu: it is truncated",
                       bytes, file.len);
    return STATUS_OK;
}

enum status arrays_numbers(const int32_t *values, size_t at, const struct header_number *numbers,
                           int n, struct config *c, struct err *e)
{
    for (int i = 0; i < n; i++) {
        if (values[i] < 1 || values[i] > numbers[i].max)
            return err_set(e, STATUS_BAD_FILE, "%s at byte %zu: expected 1 to %d, found %d",
                           numbers[i].name, at + (size_t)i * sizeof *values, numbers[i].max,
                           (int)values[i]);
        *(int *)(void *)((char *)c + numbers[i].offset) = (int)values[i];
    }
    return STATUS_OK;
}

/* --- arrays ---------------------------------------------------------------------------------- */

/* A spec may ask for fewer rows than the file has. */
static enum status view_tensor(const struct import_source *s, const struct tensor_spec *spec,
                               struct view *out, bool *found, struct err *e)
{
    const struct arrays *a = (const struct arrays *)s;
    const struct array *array = a->list;
    const struct array *const end = a->list + a->n;
    while (array < end && (array->role != spec->role || array->is_bias != spec->is_bias))
        array++;
    (void)e; /* the header and the size were checked */
    *found = array < end;
    if (!*found)
        return STATUS_OK;
    assert(spec->cols == array->cols && spec->rows <= array->rows);
    const unsigned char *data =
        (const unsigned char *)a->file.data + array->offset + (uint64_t)spec->layer * array->bytes;
    const bool int8 = array->type == VIEW_INT8;
    *out = (struct view){
        .parts = {{.data = data,
                   .type = array->type,
                   .factors = int8 ? data + (uint64_t)array->rows * (uint64_t)array->cols : NULL,
                   .group = int8 ? a->group : 0,
                   .source_rows = array->rows,
                   .rows = spec->rows}},
        .n_parts = 1,
        .cols = spec->cols,
        .type = int8 || !(spec->flags & SPEC_QUANTISES) ? TENSOR_F32 : array->type,
    };
    return STATUS_OK;
}

void arrays_begin(struct arrays *a, struct text file, size_t header, const struct config *c)
{
    *a = (struct arrays){
        .source = {.config = *c, .tensor = view_tensor}, .file = file, .end = header};
}

static uint64_t tensor_bytes(uint32_t type, int group, uint64_t elements)
{
    if (type == VIEW_INT8)
        return elements + elements / (uint64_t)group * sizeof(float);
    return elements * tensor_type_find(type)->block_bytes;
}

void arrays_add(struct arrays *a, enum tensor_role role, bool is_bias, uint32_t type, int rows)
{
    const struct config *c = &a->source.config;
    const struct tensor_spec spec = (is_bias ? layout_bias : layout_weight)(c, role, 0);
    assert(a->n < ARRAYS_MAX && (rows == 0 || rows >= spec.rows));
    struct array *array = &a->list[a->n++];
    *array = (struct array){.role = role,
                            .is_bias = is_bias,
                            .type = type,
                            .rows = rows ? rows : spec.rows,
                            .cols = spec.cols,
                            .offset = a->end};
    array->bytes = tensor_bytes(type, a->group, (uint64_t)array->rows * (uint64_t)array->cols);
    a->end += array->bytes * (role_in_block(role) ? (uint64_t)c->n_layers : 1);
}

void arrays_skip(struct arrays *a, uint64_t bytes)
{
    a->end += bytes;
}

enum status arrays_end(const struct arrays *a, const char *format, struct err *e)
{
    if (a->file.len == a->end)
        return STATUS_OK;
    return err_set(e, STATUS_BAD_FILE,
                   "expected %llu bytes, as the header of %s says, found %zu: the file is %s",
                   (unsigned long long)a->end, format, a->file.len,
                   a->file.len < a->end ? "truncated" : "not what its header says");
}
