#include "model/params.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "model/pack.h"

/* Tensors start at multiples of this many floats. */
#define PARAM_ALIGN (MEM_ALIGN / sizeof(float))

/* --- the list -------------------------------------------------------------------------------- */

struct lister {
    struct param_list *list;
    const struct gguf *g;
    enum status status; /* sticky */
    struct err *err;
};

static bool param_fits(const struct gguf_tensor *t, const struct tensor_spec *spec)
{
    const struct spec_dims dims = spec_dims(spec);
    return t->dims[0] == dims.n[0] && t->dims[1] == dims.n[1] && t->dims[2] == dims.n[2] &&
           t->dims[3] == 1;
}

/* Whether the file's tensor is as expected; what is not sticks to the lister. */
static void check_param(struct lister *ls, const struct tensor_spec *spec,
                        const struct gguf_tensor *t)
{
    enum storage storage;
    if (!param_fits(t, spec))
        ls->status =
            err_set(ls->err, STATUS_BAD_FILE,
                    "tensor %s: expected shape %d x %d x %d, found %llu x %llu x %llu x "
                    "%llu",
                    spec->name.text, spec->cols, spec->rows / spec->n_matrices, spec->n_matrices,
                    (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                    (unsigned long long)t->dims[2], (unsigned long long)t->dims[3]);
    else if (!pack_storage(t->type, &storage))
        ls->status = err_set(ls->err, STATUS_BAD_FILE,
                             "tensor %s: expected type F32, F16, BF16, Q8_0 or Q4_0, found %s",
                             spec->name.text, t->type->name);
}

/* Whether the list has this tensor; failures stick to the lister. */
static bool is_listed(struct lister *ls, const struct tensor_spec *spec)
{
    if (spec->flags & SPEC_UNUSUAL || (spec->role == ROLE_OUTPUT && ls->list->tied))
        return false;
    if (!ls->g)
        return !(spec->flags & SPEC_NOT_NEW);
    const struct gguf_tensor *t = gguf_find_tensor(ls->g, spec->name.text);
    if (t)
        check_param(ls, spec, t);
    else if (spec->flags & SPEC_REQUIRED)
        ls->status = err_set(ls->err, STATUS_BAD_FILE, "tensor %s: missing", spec->name.text);
    return t && ls->status == STATUS_OK;
}

static void list_param(struct lister *ls, const struct tensor_spec *spec)
{
    struct param_list *list = ls->list;
    uint64_t end;
    if (!is_listed(ls, spec))
        return;
    if (!u64_add(list->n_floats, spec_elements(spec), &end) ||
        !u64_align_up(end, PARAM_ALIGN, &end) || end > PTRDIFF_MAX / sizeof(float)) {
        ls->status = err_set(ls->err, STATUS_NO_MEMORY, "out of memory: the parameters' size");
        return;
    }
    list->items[list->n++] = (struct param){.spec = *spec, .offset = list->n_floats};
    list->n_floats = (size_t)end;
    list->n_params += spec_elements(spec);
}

enum status param_list_create(struct param_list *list, const struct config *c, const struct gguf *g,
                              struct err *e)
{
    const int64_t n = layout_count(c);
    /* Each is a tensor of g, whatever number of layers it claims. */
    const size_t max = g && g->n_tensors < (uint64_t)n ? g->n_tensors + 1 : (size_t)n;
    *list = (struct param_list){.items = calloc(max, sizeof *list->items)};
    if (!list->items)
        return err_no_memory(e, "the list of parameters", max * sizeof *list->items);
    struct lister ls = {.list = list, .g = g, .err = e};
    list->tied = !g || layout_output_tied(g);
    for (int64_t i = 0; i < n && ls.status == STATUS_OK; i++) {
        const struct tensor_spec spec = layout_at(c, i);
        list_param(&ls, &spec);
    }
    if (ls.status != STATUS_OK)
        param_list_free(list);
    return ls.status;
}

void param_list_free(struct param_list *list)
{
    free(list->items);
    *list = (struct param_list){0};
}

void param_list_read(const struct param_list *list, const struct gguf *g, float *flat)
{
    for (int i = 0; i < list->n; i++)
        pack_floats(flat + list->items[i].offset,
                    gguf_find_tensor(g, list->items[i].spec.name.text));
}

void param_list_write(const struct param_list *list, const float *flat, struct gguf_writer *w)
{
    for (int i = 0; i < list->n; i++) {
        const struct tensor_spec *spec = &list->items[i].spec;
        const struct spec_dims dims = spec_dims(spec);
        gguf_add_tensor(w, text_of(spec->name.text), TENSOR_F32, spec->n_dims, dims.n,
                        flat + list->items[i].offset);
    }
}

struct param_view param_view_take(struct arena *arena, const struct param_list *list,
                                  const struct config *c)
{
    struct param_view v = {.flat = arena_take(arena, list->n_floats, sizeof(float))};
    v.blocks = arena_take(arena, (uint64_t)c->n_layers, sizeof *v.blocks);
    for (int i = 0; i < list->n && v.blocks; i++) {
        const struct tensor_spec *spec = &list->items[i].spec;
        struct param_pair *of_role = role_in_block(spec->role) ? v.blocks[spec->layer].w : v.w;
        float *at = v.flat + list->items[i].offset;
        if (spec->is_bias)
            of_role[spec->role].bias = at;
        else
            of_role[spec->role].weight = at;
    }
    for (int l = 1; l < c->n_layers && c->shared && v.blocks; l++)
        v.blocks[l] = v.blocks[0];
    if (list->tied)
        v.w[ROLE_OUTPUT] = v.w[ROLE_TOKEN_EMBD];
    return v;
}
