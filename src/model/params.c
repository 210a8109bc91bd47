#include "model/params.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "model/pack.h"

/* Tensors start at multiples of this many floats. */
#define PARAM_ALIGN (MEM_ALIGN / sizeof(float))

#define PARAMS_PER_LAYER 12
#define PARAMS_OUTSIDE   5

/* --- the list -------------------------------------------------------------------------------- */

struct lister {
    struct param_list *list;
    const struct gguf *g;
    enum status status; /* sticky */
    struct err *err;
};

static bool has_shape(const struct gguf_tensor *t, const struct param *p)
{
    return t->dims[0] == (uint64_t)p->cols && t->dims[1] == (uint64_t)p->rows && t->dims[2] == 1 &&
           t->dims[3] == 1;
}

/* The file's tensor for p, or NULL if it has none or another than expected. */
static void check(struct lister *ls, const struct param *p, const struct gguf_tensor *t)
{
    enum storage storage;
    if (!has_shape(t, p))
        ls->status = err_set(ls->err, STATUS_BAD_FILE,
                             "tensor %s: expected shape %d x %d, found %llu x %llu x %llu x %llu",
                             p->name, p->cols, p->rows, (unsigned long long)t->dims[0],
                             (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                             (unsigned long long)t->dims[3]);
    else if (!pack_storage(t->type, &storage))
        ls->status = err_set(ls->err, STATUS_BAD_FILE,
                             "tensor %s: expected type F32, F16, BF16, Q8_0 or Q4_0, found %s",
                             p->name, t->type->name);
}

static void list_tensor(struct lister *ls, const char *name, int n_dims, int rows, int cols,
                        bool required)
{
    if (ls->status != STATUS_OK)
        return;
    struct param p = {.n_dims = n_dims, .rows = rows, .cols = cols, .offset = ls->list->n_floats};
    snprintf(p.name, sizeof p.name, "%s", name);
    if (ls->g) {
        const struct gguf_tensor *t = gguf_find_tensor(ls->g, name);
        if (!t && !required)
            return;
        if (!t)
            ls->status = err_set(ls->err, STATUS_BAD_FILE, "tensor %s: missing", name);
        else
            check(ls, &p, t);
        if (ls->status != STATUS_OK)
            return;
    }
    const uint64_t n = (uint64_t)rows * (uint64_t)cols; /* both are bounded by the config */
    uint64_t end;
    if (!u64_add(p.offset, n, &end) || !u64_align_up(end, PARAM_ALIGN, &end) ||
        end > PTRDIFF_MAX / sizeof(float)) {
        ls->status = err_set(ls->err, STATUS_NO_MEMORY, "out of memory: the parameters' size");
        return;
    }
    ls->list->n_floats = (size_t)end;
    ls->list->n_params += n;
    ls->list->items[ls->list->n++] = p;
}

/* "<prefix>.weight" of n_dims dimensions, and "<prefix>.bias". */
static void list_pair(struct lister *ls, const char *prefix, int n_dims, int rows, int cols)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", prefix);
    list_tensor(ls, name, n_dims, rows, cols, true);
    snprintf(name, sizeof name, "%s.bias", prefix);
    list_tensor(ls, name, 1, 1, n_dims == 2 ? rows : cols, false);
}

static void list_layer(struct lister *ls, const struct config *c, int l)
{
    const struct {
        const char *part;
        int n_dims, rows, cols;
    } parts[] = {
        {"attn_norm", 1, 1, c->d_model},
        {"attn_qkv", 2, c->d_model + 2 * config_kv_dim(c), c->d_model},
        {"attn_output", 2, c->d_model, c->d_model},
        {"ffn_norm", 1, 1, c->d_model},
        {"ffn_up", 2, c->d_ff, c->d_model},
        {"ffn_down", 2, c->d_model, c->d_ff},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char prefix[48];
        snprintf(prefix, sizeof prefix, "blk.%d.%s", l, parts[i].part);
        list_pair(ls, prefix, parts[i].n_dims, parts[i].rows, parts[i].cols);
    }
}

/* Whether b is missing, or a once more. */
static bool same_numbers(const struct gguf_tensor *a, const struct gguf_tensor *b)
{
    return !b || (a && a->type == b->type && a->n_bytes == b->n_bytes &&
                  memcmp(a->data, b->data, a->n_bytes) == 0);
}

enum status param_list_create(struct param_list *list, const struct config *c, const struct gguf *g,
                              struct err *e)
{
    size_t max = (size_t)c->n_layers * PARAMS_PER_LAYER + PARAMS_OUTSIDE;
    /* Each is a tensor of g, whatever number of layers it claims. */
    if (g && g->n_tensors < max)
        max = g->n_tensors + 1;
    *list = (struct param_list){.items = calloc(max, sizeof *list->items)};
    if (!list->items)
        return err_no_memory(e, "the list of parameters", max * sizeof *list->items);
    struct lister ls = {.list = list, .g = g, .err = e};
    list_tensor(&ls, "token_embd.weight", 2, c->n_vocab, c->d_model, true);
    list_tensor(&ls, "position_embd.weight", 2, c->n_ctx, c->d_model, true);
    for (int l = 0; l < c->n_layers && ls.status == STATUS_OK; l++)
        list_layer(&ls, c, l);
    list_pair(&ls, "output_norm", 1, 1, c->d_model);
    list->tied = !g || same_numbers(gguf_find_tensor(g, "token_embd.weight"),
                                    gguf_find_tensor(g, "output.weight"));
    if (!list->tied)
        list_tensor(&ls, "output.weight", 2, c->n_vocab, c->d_model, true);
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
        pack_floats(flat + list->items[i].offset, gguf_find_tensor(g, list->items[i].name));
}

static void add(struct gguf_writer *w, const struct param *p, const char *name, const float *flat)
{
    gguf_add_tensor(w, text_of(name), TENSOR_F32, p->n_dims,
                    (const uint64_t[]){(uint64_t)p->cols, (uint64_t)p->rows}, flat + p->offset);
}

void param_list_write(const struct param_list *list, const float *flat, struct gguf_writer *w)
{
    for (int i = 0; i < list->n; i++)
        add(w, &list->items[i], list->items[i].name, flat);
    if (list->tied)
        add(w, &list->items[0], "output.weight", flat); /* the first is token_embd.weight */
}

/* --- views ----------------------------------------------------------------------------------- */

void param_view_plan(struct mem_plan *plan, const struct param_list *list, const struct config *c)
{
    mem_plan_add(plan, list->n_floats, sizeof(float));
    mem_plan_add(plan, (uint64_t)c->n_layers, sizeof(struct param_layer));
}

/* The next tensor of the list if it has this name: tensors are listed in the order of the view. */
struct viewer {
    const struct param_list *list;
    int next;
    float *flat;
};

static float *view_tensor(struct viewer *v, const char *name)
{
    if (v->next == v->list->n || strcmp(v->list->items[v->next].name, name) != 0)
        return NULL;
    return v->flat + v->list->items[v->next++].offset;
}

static struct param_pair view_pair(struct viewer *v, const char *prefix)
{
    char name[64];
    struct param_pair pair;
    snprintf(name, sizeof name, "%s.weight", prefix);
    pair.weight = view_tensor(v, name);
    assert(pair.weight);
    snprintf(name, sizeof name, "%s.bias", prefix);
    pair.bias = view_tensor(v, name);
    return pair;
}

static struct param_pair view_in_layer(struct viewer *v, int l, const char *part)
{
    char prefix[48];
    snprintf(prefix, sizeof prefix, "blk.%d.%s", l, part);
    return view_pair(v, prefix);
}

struct param_view param_view_take(struct arena *arena, const struct param_list *list,
                                  const struct config *c)
{
    struct param_view p = {.flat = arena_take(arena, list->n_floats, sizeof(float))};
    p.layers = arena_take(arena, (uint64_t)c->n_layers, sizeof *p.layers);
    struct viewer v = {.list = list, .flat = p.flat};
    p.embed = view_tensor(&v, "token_embd.weight");
    p.position = view_tensor(&v, "position_embd.weight");
    for (int l = 0; l < c->n_layers; l++) {
        struct param_layer *layer = &p.layers[l];
        layer->attn_norm = view_in_layer(&v, l, "attn_norm");
        layer->qkv = view_in_layer(&v, l, "attn_qkv");
        layer->attn_out = view_in_layer(&v, l, "attn_output");
        layer->ffn_norm = view_in_layer(&v, l, "ffn_norm");
        layer->up = view_in_layer(&v, l, "ffn_up");
        layer->down = view_in_layer(&v, l, "ffn_down");
    }
    p.output_norm = view_pair(&v, "output_norm");
    p.output = view_tensor(&v, "output.weight");
    if (!p.output)
        p.output = p.embed;
    return p;
}
