/* decode attend: what each head looks at, as figures, pictures and arrays. */
#include <unistd.h>

#include "base/file.h"
#include "cli/attend.h"
#include "formats/npy.h"

#define VALUES struct attend_options

static const struct option text_options[] = {OPT_RANGE, OPT_TRUNCATE, OPT_IDS, OPT_END};

static const struct option head_options[] = {
    OPT_STRING("layer", layers, "L,...|all", "only these layers, from 0", .otherwise = "all"),
    OPT_STRING("head", heads, "H,...|all", "only these heads of each layer, from 0",
               .otherwise = "all"),
    OPT_SCORE_SCALE,
    OPT_KV_TYPE("K[/V]", KV_TYPE_HELP),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_STRING("query", query, "POS|WORD[@N]",
               "instead of the figures the keys that the token at POS, from 0, looks at most, or "
               "the last token of a word of the text, the N-th such; at[3] in a row is the one at "
               "position 3 of several"),
    OPT_STRING(
        "trace", trace_head, "L.H",
        "instead of the figures the last token's way, or that of --query, through this head, "
        "layer and head from 0: each step, its shape and numbers; --json has all of them",
        .excludes = "show|format"),
    OPT_FORMAT,
    OPT_STRING("npy", npy, "FILE", "write all weights, float32 [layers, heads, n, n]",
               .writes = WRITES_NPY),
    OPT_STRING("json", json, "FILE", "write the tokens, what the axes are, and the figures",
               .writes = WRITES_JSON),
    OPT_END,
};

static const struct option picture_options[] = {
    OPT_STRING("svg", svg, "FILE.svg",
               "draw small maps of all these heads, or of a single one a large map with its tokens",
               .writes = WRITES_SVG),
    OPT_STRING("html", html, "FILE.html",
               "write a page to explore in a browser: heads, and the path of a token that is "
               "clicked",
               .writes = WRITES_HTML),
    OPT_FLAG("live", live,
             "the page runs other texts: with the checkpoint in it, of 64 MiB at most, and the "
             "program for WebAssembly",
             .needs = "html", .excludes = "layer|head|tokens|kv-type|score-scale|without"),
    OPT_STRING("show", show, "L.H",
               "draw this head here, layer and head from 0, in place of the table",
               .excludes = "query|format"),
    OPT_END,
};

/* --- the run --------------------------------------------------------------------------------- */

/* Decides which heads are looked at. */
static enum status choose_heads(struct attend_view *v, struct err *e)
{
    const struct attend_options *o = v->options;
    struct attend_spec *spec = &v->spec;
    if (o->trace_head) {
        struct attend_trace *t = &v->trace;
        t->query = spec->query < 0 ? spec->n_tokens - 1 : spec->query;
        spec->trace = t;
        TRY(head_of_option("--trace", o->trace_head, v->config, &t->path.layer, &t->head, e));
    }
    return attend_list_heads(v, o->layers, o->heads, e);
}

/* Wants the map of --show: a cell a token where there is room for them, else at most as many cells
 * as a small picture has. */
static enum status place_drawing(struct attend_view *v, struct err *e)
{
    const int n = v->spec.n_tokens;
    int cells = n <= MOST_SHOWN ? n : HEATMAP_SMALL;
    v->room = terminal_width(STDOUT_FILENO) - TERMINAL_LABEL - 2 - snprintf(NULL, 0, "%d", n - 1);
    if (cells > v->room)
        cells = v->room < 1 ? 1 : MIN(v->room, HEATMAP_SMALL);
    v->shown = &v->spec.maps[v->spec.n_maps++];
    *v->shown = (struct attend_map){.cells = cells};
    return head_of_option("--show", v->options->show, v->config, &v->shown->layer, &v->shown->head,
                          e);
}

/* Wants the maps that the options ask for. */
static enum status place_maps(struct attend_view *v, struct err *e)
{
    const struct attend_options *o = v->options;
    const size_t bytes = v->job->checkpoint.file.len;
    struct attend_spec *spec = &v->spec;
    if (o->svg)
        v->pictures = attend_add_maps(spec, spec->n_heads == 1 ? HEATMAP_LARGE : HEATMAP_SMALL);
    if (o->npy)
        v->arrays = attend_add_maps(spec, spec->n_tokens);
    if (o->html)
        TRY(attend_place_page(v, e));
    v->live = o->live;
    if (o->live && !explore_module[0])
        return err_usage(e, "--live: this program has no module for WebAssembly; expected one that "
                            "`make wasm` has built");
    if (o->live && bytes > EXPLORE_MOST_LIVE)
        return err_usage(e,
                         "--live: expected a checkpoint of at most %s, found %s; convert --type "
                         "q8_0 or q4_0 makes it smaller",
                         figure_bytes(EXPLORE_MOST_LIVE).text, figure_bytes(bytes).text);
    return o->show ? place_drawing(v, e) : STATUS_OK;
}

static enum status write_page(const struct attend_view *v, struct err *e)
{
    const struct file_map *file = &v->job->checkpoint.file;
    char title[256];
    struct explore_page page = {title, attend_put_view, attend_put_numbers, .arg = v};
    attend_title(v, title, sizeof title);
    if (v->live)
        page.checkpoint = text_span((const char *)file->data, file->len);
    return explore_write(&page, v->options->html, e);
}

static enum status write_arrays(const struct attend_view *v, struct err *e)
{
    const uint64_t n = v->spec.n_tokens, shape[] = {v->layers.n, v->heads.n, n, n};
    struct file_writer *npy;
    TRY(npy_open(&npy, v->options->npy, shape, LENGTH(shape), e));
    for (int at = 0; at < v->spec.n_heads; at++)
        file_writer_put(npy, v->arrays[at].cell, n * n * sizeof(float));
    return file_writer_commit(npy, e);
}

/* Writes the files that are asked for, and prints the table or what takes its place. */
static enum status show(const struct attend_view *v, struct err *e)
{
    const struct attend_options *o = v->options;
    const struct {
        const char *path;
        enum status (*write)(const struct attend_view *v, struct err *e);
    } files[] = {{o->npy, write_arrays},
                 {o->json, attend_write_json},
                 {o->svg, attend_write_picture},
                 {o->html, write_page}};
    bool written = false;
    for (int i = 0; i < LENGTH(files); i++)
        if (files[i].path) {
            TRY(files[i].write(v, e));
            log_info(&o->common, "%s is written", files[i].path);
            written = true;
        }
    if (o->show)
        attend_draw(v);
    else if (o->trace_head)
        attend_put_trace(v, NULL);
    else if (!written || !o->common.quiet || o->query || o->common.format != TABLE_ALIGNED)
        return attend_print(v, e);
    return STATUS_OK;
}

/* Runs the text and shows what was asked for. */
static enum status look(struct attend_view *v, struct err *e)
{
    struct job *j = v->job;
    struct job_memory memory = {
        .weights = v->spec.model->weights.cap,
        .advice = "fewer heads by --layer and --head, a shorter text, no --npy take less"};
    char what[32];
    TRY(choose_heads(v, e));
    TRY(place_maps(v, e));
    TRY(attend_plan(&v->spec, &memory.scratch, e));
    chars_printf(what, "%d tokens", v->spec.n_tokens);
    TRY(job_check_memory(j, &memory, what, e));
    v->spec.callbacks = job_callbacks(j, "token");
    j->progress.all = v->spec.n_tokens;
    TRY(attend_run(&v->spec, &v->found, e));
    progress_end(&j->progress);
    return show(v, e);
}

/* Finds the position that --query names: a number, or the last token of a word. */
static enum status find_query(const struct job *j, const char *query, int *out, struct err *e)
{
    const struct tokenizer *t = j->checkpoint.tokenizer;
    const char *at = strrchr(query, '@');
    struct text word = text_of(query);
    struct bytes all = {.data = NULL};
    uint64_t n = 1, found = 0;
    size_t end = 0; /* of the last one that was found */
    if (parse_u64(query, &n)) {
        *out = n;
        return n < j->n_tokens ? STATUS_OK
                               : err_usage(e,
                                           "--query: expected 0 to %zu, a token of the text, or a "
                                           "word of it, found %s",
                                           j->n_tokens - 1, query);
    }
    if (at && at > query && parse_u64(at + 1, &n))
        word.len = at - query;
    TRY(input_needs_tokenizer(t, j->path, "--query WORD", e));
    const bool has_memory = tokenizer_put(t, j->tokens, j->n_tokens, &all);
    const struct text text = bytes_text(&all);
    while (has_memory && (found < n || n == 0) && text_next_word(text, word, &end))
        found++;
    bytes_free(&all);
    if (!has_memory)
        return err_no_memory(e, "the text", j->n_tokens);
    if (found < n || n == 0)
        return err_usage(e,
                         "--query: expected a word of the text, found '%.60s', and the text has "
                         "'%.*s' %" PRIu64 " time%s as a word",
                         query, text_width(word), word.data, found, plural(found));
    for (size_t i = 0, len = 0; len < end; i++) {
        len += tokenizer_bytes(t, j->tokens[i]).len;
        *out = i;
    }
    return STATUS_OK;
}

static enum status run_attend(struct job *j, void *values, struct err *e)
{
    struct attend_view view;
    TRY(job_tokenize_for_context(j, "look at", e));
    attend_open(&view, j);
    view.options = values;
    view.spec.params = job_session_params(j);
    if (view.options->query)
        TRY(find_query(j, view.options->query, &view.spec.query, e));
    const enum status s = look(&view, e);
    attend_close(&view);
    return s;
}

const struct command command_attend = {
    .name = "attend",
    .summary = "what each head looks at: figures, pictures, arrays",
    .usage = "MODEL (-p TEXT | -f FILE | --tokens 1,2,3 | a text piped in) [options]",
    .examples = "./decode attend models/shakespeare-mha.gguf -p \"To be or not to be\"\n"
                "./decode attend models/shakespeare-mha.gguf -p \"To be\" --show 1.0\n"
                "./decode attend models/shakespeare-mha.gguf -p \"To be\" --svg heads.svg\n",
    .notes = help_of_attend,
    .spec = {.groups = {{"Text", input_options, 0},
                        {"Part of it, or ids", text_options, 0},
                        {"Heads", head_options, 0},
                        {"Results", result_options, 0},
                        {"Pictures", picture_options, 0},
                        {"Engine", engine_options, 0},
                        {"", general_options, 0}},
             .everyday = "prompt file range layer head query show svg html kv-heads format",
             .positionals = {MODEL_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT | JOB_PIPED,
    .parts = CHECKPOINT_MODEL | CHECKPOINT_TEXTS,
    .no_text = "there is nothing to look at; expected -p, -f or --tokens",
    .run = run_attend,
};
