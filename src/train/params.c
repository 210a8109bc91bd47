#include "train/params.h"

#include "formats/gguf_values.h"

/* Tensors start at multiples of this many floats. */
#define PARAM_ALIGN (MEM_ALIGN / sizeof(float))

static bool is_matrix(const struct tensor_spec *s)
{
    return s->form == FORM_MATRIX && !s->is_bias;
}

static bool is_attention_or_norm(const struct tensor_spec *s)
{
    return s->form == FORM_NORM || (s->role >= ROLE_ATTN_NORM && s->role <= ROLE_ATTN_OUTPUT_NORM);
}

/* Gives the tensors their offsets: with PARAMS_ATTENTION_FIRST the trained ones, then the rest. */
static enum status place_params(struct param_list *list, struct err *e)
{
    const bool only_attention = list->order == PARAMS_ATTENTION_FIRST;
    for (int rest = 0; rest <= only_attention; rest++) {
        for (int i = 0; i < list->n; i++) {
            const struct tensor_spec *s = &list->items[i].spec;
            const bool in_panels = list->order == PARAMS_PANELS && is_matrix(s);
            const uint64_t n =
                in_panels ? kernel_padded(s->rows) * (uint64_t)s->cols : spec_elements(s);
            const uint64_t end = u64_align_up(u64_sum(list->n_floats, n), PARAM_ALIGN);
            if (only_attention && is_attention_or_norm(s) == rest)
                continue;
            if (end > PTRDIFF_MAX / sizeof(float))
                return err_set(e, STATUS_NO_MEMORY, "out of memory: the parameters' size");
            list->items[i].offset = list->n_floats;
            list->n_floats = end;
        }
        if (!rest)
            list->n_trained = list->n_floats;
    }
    return STATUS_OK;
}

/* Appends each tensor that g, or a new checkpoint, has, and places them. */
static enum status fill_list(struct param_list *list, const struct config *c, const struct gguf *g,
                             struct err *e)
{
    for (int64_t i = 0; i < layout_count(c); i++) {
        const struct tensor_spec spec = layout_at(c, i);
        const struct gguf_tensor *t = NULL;
        if (spec.flags & SPEC_UNUSUAL || (spec.role == ROLE_OUTPUT && !spec.is_bias && list->tied))
            continue;
        if (g)
            TRY(pack_find(g, &spec, &t, e));
        if (g ? !t : spec.flags & SPEC_NOT_NEW)
            continue;
        list->items[list->n++] = (struct param){.spec = spec};
        list->n_params += spec_elements(&spec);
    }
    return place_params(list, e);
}

enum status param_list_create(struct param_list *list, const struct config *c, const struct gguf *g,
                              enum param_order order, struct err *e)
{
    const size_t n = layout_count(c);
    /* Each is a tensor of g, whatever number of layers it claims. */
    const size_t max = g && g->n_tensors < n ? g->n_tensors + 1 : n;
    *list = (struct param_list){.order = order,
                                .tied = g ? layout_output_tied(g) : !c->arch->needs_output};
    TRY_ZEROED(list->items, max, "the list of parameters", e);
    const enum status s = fill_list(list, c, g, e);
    if (s != STATUS_OK)
        param_list_free(list);
    return s;
}

void param_list_free(struct param_list *list)
{
    free(list->items);
    *list = (struct param_list){0};
}

/* Each panel is a matrix of its own, because those of one may be interleaved. */
static void read_panels(float *to, const struct gguf_tensor *t, const struct tensor_spec *s)
{
    const struct matrix panel = {.n_out = KERNEL_LANES, .n_in = s->cols, .storage = STORAGE_F32};
    for (int row = 0; row < s->rows; row += KERNEL_LANES)
        pack_rows(to + (size_t)row * s->cols, &panel, -row, t, s, row,
                  MIN(row + KERNEL_LANES, s->rows));
}

void param_list_read(const struct param_list *list, const struct gguf *g, float *flat)
{
    for (int i = 0; i < list->n; i++) {
        struct tensor_spec s = list->items[i].spec;
        const struct gguf_tensor *t = gguf_find_tensor(g, s.name.text);
        float *to = flat + list->items[i].offset;
        s.halves.n = 0; /* the order of the file */
        if (list->order == PARAMS_PANELS && is_matrix(&s))
            read_panels(to, t, &s);
        else
            pack_floats(to, t, &s);
    }
}

struct param_view param_view_take(struct arena *arena, const struct param_list *list, size_t n,
                                  const struct config *c)
{
    struct param_view v = {.flat = arena_take(arena, n, sizeof(float))};
    ARENA_TAKE(v.blocks, arena, c->n_layers);
    if (!v.blocks)
        return v;
    for (int i = 0; i < list->n; i++) {
        const struct tensor_spec *spec = &list->items[i].spec;
        struct param_pair *of_role = role_in_block(spec->role) ? v.blocks[spec->layer].w : v.w;
        float *at = v.flat + list->items[i].offset;
        if (list->items[i].offset >= n)
            continue;
        if (spec->is_bias)
            of_role[spec->role].bias = at;
        else
            of_role[spec->role].weight = at;
    }
    for (int l = config_blocks(c); l < c->n_layers; l++)
        v.blocks[l] = v.blocks[0];
    if (list->tied)
        v.w[ROLE_OUTPUT].weight = v.w[ROLE_TOKEN_EMBD].weight;
    return v;
}
