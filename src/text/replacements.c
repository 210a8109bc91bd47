#include <inttypes.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "formats/gguf_values.h"
#include "text/private.h"

#define TEXTS_KEY "tokenizer.decode.replacements"
#define MARKS_KEY "tokenizer.decode.marks"

/* --- reading ---------------------------------------------------------------------------------- */

enum status replacements_init(struct replacements *r, const struct gguf *g, struct err *e)
{
    const struct gguf_value *texts, *marks;
    struct gguf_cursor cursor = {0};
    struct text text;
    uint32_t code;
    TRY(gguf_get_array(g, TEXTS_KEY, GGUF_STRING, &texts, GGUF_OPTIONAL, e));
    TRY(gguf_get_array(g, MARKS_KEY, GGUF_STRING, &marks, GGUF_OPTIONAL, e));
    if (texts && texts->count % 2 != 0)
        return err_bad_file(
            e, TEXTS_KEY ": expected texts and what takes their place, found %" PRIu64 " texts",
            texts->count);
    TRY_ZEROED(r->to, texts ? texts->count / 2 + 1 : 1, "the replacements", e);
    for (int32_t id = 0; texts && gguf_next_text(texts, &cursor, &text); id++) {
        (void)gguf_next_text(texts, &cursor, &r->to[id]);
        TRY(name_index_add(&r->from, text, id, 0, e));
    }
    cursor = (struct gguf_cursor){0};
    for (int32_t class = 1; marks && gguf_next_text(marks, &cursor, &text); class ++)
        while (text.len > 0)
            TRY(name_index_add(&r->marks, utf8_next(&text, &code), class, 0, e));
    name_index_sort(&r->from);
    name_index_sort(&r->marks);
    return STATUS_OK;
}

void replacements_free(struct replacements *r)
{
    name_index_free(&r->from);
    name_index_free(&r->marks);
    free(r->to);
}

/* --- replacing -------------------------------------------------------------------------------- */

/* A character of a run: what is no mark, unless the text begins with one, and the marks behind it.
 */
struct character {
    struct text text;
    int32_t class; /* of a mark, from 1 on; 0: it is none */
    size_t place;  /* in the run */
};

struct run {
    struct character *list; /* [n] */
    size_t n, cap;
};

static int compare_marks(const void *left, const void *right)
{
    const struct character *a = left, *b = right;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* Replaces the pair of two characters, if the list has it; *first becomes what takes its place. */
static bool join(const struct replacements *r, struct text *first, struct text second)
{
    char both[8];
    if (first->len + second.len > sizeof both)
        return false;
    memcpy(both, first->data, first->len);
    memcpy(both + first->len, second.data, second.len);
    const struct indexed *found =
        name_index_find(&r->from, text_span(both, first->len + second.len));
    if (found)
        *first = r->to[found->id];
    return found;
}

/* Puts the marks of a run in order and joins the first character with those that it takes: behind a
 * mark that stays, only one of a higher class. */
static void settle(const struct replacements *r, struct run *run)
{
    struct character *list = run->list;
    const size_t first = run->n > 0 && list->class == 0;
    if (run->n > first)
        qsort(list + first, run->n - first, sizeof *list, compare_marks);
    if (!first)
        return;
    size_t n = 1;
    for (size_t i = 1; i < run->n; i++) {
        const bool blocked = n > 1 && list[n - 1].class == list[i].class;
        if (blocked || !join(r, &list->text, list[i].text))
            list[n++] = list[i];
    }
    run->n = n;
}

/* Appends a run, and makes it empty. */
static enum status put_run(struct run *run, struct bytes *out, struct err *e)
{
    for (size_t i = 0; i < run->n; i++)
        if (!bytes_put(out, run->list[i].text))
            return err_no_memory(e, "the text with its characters replaced", out->len);
    run->n = 0;
    return STATUS_OK;
}

/* Takes the next character of a text whose characters have been replaced one by one. */
static enum status take_character(const struct replacements *r, struct run *run, struct text c,
                                  struct bytes *out, struct err *e)
{
    const bool is_ascii =
        *(const unsigned char *)c.data < 0x80; /* it neither joins nor is a mark */
    const struct indexed *mark = is_ascii ? NULL : name_index_find(&r->marks, c);
    if (!mark) {
        settle(r, run);
        if (run->n == 1 && !is_ascii && join(r, &run->list->text, c))
            return STATUS_OK;
        TRY(put_run(run, out, e));
    }
    TRY_ROOM(run->list, run->n, run->cap, "the text's marks", e);
    run->list[run->n] = (struct character){c, mark ? mark->id : 0, run->n};
    run->n++;
    return STATUS_OK;
}

static enum status replace_all(const struct replacements *r, struct run *run, struct text text,
                               struct bytes *out, struct err *e)
{
    uint32_t code;
    while (text.len > 0) {
        struct text c = utf8_next(&text, &code);
        const struct indexed *found = code < 0x80 ? NULL : name_index_find(&r->from, c);
        if (found)
            c = r->to[found->id];
        while (c.len > 0)
            TRY(take_character(r, run, utf8_next(&c, &code), out, e));
    }
    settle(r, run);
    return put_run(run, out, e);
}

enum status replacements_put(const struct replacements *r, struct bytes *out, struct text text,
                             struct err *e)
{
    struct run run = {0};
    const enum status s = replace_all(r, &run, text, out, e);
    free(run.list);
    return s;
}
