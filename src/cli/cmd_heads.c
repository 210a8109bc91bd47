/*
 * cmd_heads - decode heads: what each head is worth, and which it is like.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/job.h"
#include "cli/numbers.h"
#include "convert/convert.h"
#include "measure/attend.h"
#include "show/heatmap.h"

struct heads_options {
    struct common_options common;
    const char *layers, *svg;
    int tokens, ablation;
};

/* In the order of enum heads_ablation. */
static const char *const ablations[] = {"zero", "mean", NULL};

#define VALUES struct heads_options

static const struct option text_options[] = {
    OPT_TEXT("the text to predict; - is standard input"),
    OPT_RANGE,
    OPT_INT("tokens", tokens, "N", 1, INT_MAX - 1, "how many of its tokens are predicted, at most",
            .fallback = "4096"),
    OPT_CHOICE("ablate", ablation, "HOW", ablations,
               "what a head's result becomes: zero, or its mean over the text", .fallback = "zero"),
    OPT_LAYER(layers, "only the heads of these layers, from 0", .otherwise = "all"),
    OPT_END,
};

static const struct option result_options[] = {
    OPT_FORMAT,
    OPT_THREADS(THREADS_HELP),
    OPT_STRING("svg", svg, "FILE.svg", "draw delta_nll, layers down and heads across",
               .writes = WRITES_FILE),
    OPT_END,
};

struct head_row {
    struct head_worth worth;
    /* The head of the layer whose scores lose least with one key, -1: there is none; and with it.
     */
    int64_t like;
    struct head_likeness kept;
};

/* What a run holds beside the job. */
struct ablations {
    const struct config *config;
    struct head_likeness *kept; /* [n_layers, n_heads, n_heads], malloc'd */
    struct heads_result result;
    struct head_row row; /* the one that is printed */
};

/* --- rows ------------------------------------------------------------------------------------ */

#define WORTH(member) MEMBER(head_row, worth.member)

static const struct report_field fields[] = {
    {"layer", "layer", WORTH(layer)},
    {"head", "head", WORTH(head)},
    {"delta_nll", "delta_nll", WORTH(delta_nll), "%.5f"},
    {"delta_nll_stderr", "stderr", WORTH(delta_nll_stderr), "%.5f", .rank = 2},
    {"delta_bits_per_byte", "bits/byte", WORTH(delta_bits_per_byte), "%.5f", .rank = 5},
    {"written", "written", WORTH(written), "%.3f", .rank = 3},
    {"stream", "stream", WORTH(stream), "%.3f", .rank = 6},
    {"like", "like", MEMBER(head_row, like), .rank = 4},
    {"like_score_kept", "score", MEMBER(head_row, kept.score), "%.5f", .rank = 4},
    {"like_output_kept", "output", MEMBER(head_row, kept.output), "%.5f", .rank = 7},
};

static const void *next_head(void *arg, int i)
{
    struct ablations *a = arg;
    const size_t n = a->config->n_heads;
    if (i >= a->result.n_done)
        return NULL;
    const struct head_worth *w = &a->result.heads[i];
    const struct head_likeness *kept = a->kept + (w->layer * n + w->head) * n;
    struct head_row *row = &a->row;
    *row = (struct head_row){.worth = *w, .like = -1, .kept = {(double)NAN, (double)NAN}};
    for (int h = 0; h < (int)n; h++)
        if (h != w->head && (row->like < 0 || kept[h].score > row->kept.score)) {
            row->like = h;
            row->kept = kept[h];
        }
    return row;
}

/* "N of M heads DO ...: 0.2,0.4", as --without takes them, and "..." where there is no more room.
 * One standard error would find harm in every sixth head that costs nothing. */
static void say_heads(const struct job *j, const struct heads_result *r, bool harmful,
                      const char *what)
{
    char names[512] = "";
    size_t used = 0;
    int n = 0;
    for (const struct head_worth *w = r->heads; w < r->heads + r->n_done; w++) {
        const bool does_harm = w->delta_nll < -2 * w->delta_nll_stderr;
        if (does_harm != harmful || !(w->delta_nll <= w->delta_nll_stderr))
            continue;
        if (used + 32 < sizeof names)
            used += snprintf(names + used, sizeof names - used, "%s%d.%d", n ? "," : ": ", w->layer,
                             w->head);
        else
            snprintf(names + used, sizeof names - used, ",...");
        n++;
    }
    say(j->common, "%d of %d heads %s%s", n, r->n_done, what, names);
}

/* delta_nll of the heads that are done, at least one: layers down and heads across. */
static enum status write_picture(const struct ablations *a, const char *model, const char *path,
                                 struct err *e)
{
    const struct heads_result *r = &a->result;
    const int n_heads = a->config->n_heads, n_rows = (r->n_done + n_heads - 1) / n_heads;
    const size_t bytes = n_rows * n_heads * sizeof(float);
    struct text_label layers[HEATMAP_LARGE], heads[HEATMAP_LARGE];
    char title[256], subtitle[256];
    double most = 0;
    float *cells = calloc(bytes, 1);
    if (!cells)
        return err_no_memory(e, "the picture", bytes);
    for (int i = 0; i < r->n_done; i++) {
        const double delta = fmax(r->heads[i].delta_nll, 0);
        cells[i] = (float)delta;
        most = fmax(most, delta);
    }
    for (int i = 0; i < n_rows; i++)
        snprintf(layers[i].text, sizeof layers[i].text, "layer %d", r->heads[i * n_heads].layer);
    for (int i = 0; i < n_heads; i++)
        snprintf(heads[i].text, sizeof heads[i].text, "%d", i);
    snprintf(title, sizeof title, "%.160s: loss without each head", model);
    snprintf(subtitle, sizeof subtitle,
             "%llu tokens, %.4f nats each with all heads; blank: less, or a gain",
             (unsigned long long)r->whole.tokens, r->whole.nll);
    const struct heatmap_map map = {.cells = cells, .group = -1};
    const struct heatmap_picture picture = {.title = title,
                                            .subtitle = subtitle,
                                            .what = "nats a token",
                                            .scale = heatmap_scale(most, true),
                                            .maps = &map,
                                            .n_rows = 1,
                                            .n_columns = 1,
                                            .map_rows = n_rows,
                                            .map_columns = n_heads,
                                            .row_names = layers,
                                            .column_names = heads};
    const enum status s = heatmap_write(&picture, path, e);
    free(cells);
    return s;
}

/* --- the run --------------------------------------------------------------------------------- */

static enum status measure_heads(struct job *j, const struct heads_options *o,
                                 const struct choice *layers, struct ablations *a, struct err *e)
{
    const struct checkpoint *k = &j->checkpoint;
    const size_t n_heads = a->config->n_heads;
    const size_t bytes = a->config->n_layers * n_heads * n_heads * sizeof *a->kept;
    struct job_memory memory = {.weights = k->model->weights.cap,
                                .advice = "fewer --tokens and -t 1 take less"};
    struct heads_spec spec = {.eval = {.model = k->model,
                                       .params = {.kernels = j->kernels},
                                       .pool = j->pool,
                                       .tokens = j->tokens,
                                       .n_tokens = j->n_tokens,
                                       .tokenizer = k->tokenizer,
                                       .stop = progress_stop,
                                       .progress = progress_show},
                              .ablation = (enum heads_ablation)o->ablation,
                              .layers = layers->items,
                              .n_layers = layers->n};
    /* How much of each head a key of another would keep. */
    struct convert_spec likeness = {.gguf = k->gguf,
                                    .source = &k->file,
                                    .tokens = j->tokens,
                                    .n_tokens = j->n_tokens - 1, /* the last is predicted */
                                    .kernels = j->kernels,
                                    .pool = j->pool,
                                    .stop = progress_stop,
                                    .progress = progress_show};
    char what[32];
    snprintf(what, sizeof what, "%zu tokens", j->n_tokens);
    TRY(heads_plan(&spec, &memory.scratch, e));
    TRY(job_check_memory(j, &memory, what, e));
    a->kept = calloc(bytes, 1);
    if (!a->kept)
        return err_no_memory(e, "the likeness of heads", bytes);
    likeness.arg = job_progress(j, "windows");
    TRY(convert_likeness(&likeness, k->model, a->kept, e));
    spec.eval.arg = job_progress(j, "tokens");
    return heads_run(&spec, &a->result, e);
}

/* What is done is shown also after Ctrl-C. */
static enum status print_heads(struct job *j, const struct heads_options *o, struct ablations *a,
                               struct err *e)
{
    const struct heads_result *r = &a->result;
    const struct table table = {fields, REPORT_LENGTH(fields), .row = next_head, .arg = a};
    if (r->n_done == 0)
        return STATUS_OK;
    TRY(job_print(j, &table, e));
    say(j->common, "%.4f nats a token and %.4f bits per byte with all heads", r->whole.nll,
        r->whole.bits_per_byte);
    say_heads(j, r, false, "cost nothing on this text, within the standard error");
    say_heads(j, r, true, "do harm, beyond two standard errors");
    return o->svg ? write_picture(a, path_name(j->path), o->svg, e) : STATUS_OK;
}

static enum status run_heads(struct job *j, void *values, struct err *e)
{
    const struct heads_options *o = values;
    const struct config *c = &j->checkpoint.model->config;
    const int most = c->n_heads > c->n_layers ? c->n_heads : c->n_layers;
    struct ablations a = {.config = c};
    struct choice layers;
    TRY(job_tokenize(j, e));
    if (j->n_tokens > (size_t)o->tokens + 1)
        j->n_tokens = o->tokens + 1;
    if (o->svg && most > HEATMAP_LARGE)
        return err_set(e, STATUS_USAGE,
                       "--svg: expected at most %d layers, and heads in each, found %d",
                       HEATMAP_LARGE, most);
    TRY(job_start_threads(j, e));
    enum status s = choice_of("--layer", o->layers, c->n_layers, &layers, e);
    if (s == STATUS_OK)
        s = measure_heads(j, o, &layers, &a, e);
    if (s == STATUS_INTERRUPTED)
        say(j->common, "interrupted after %d heads%s", a.result.n_done,
            a.result.n_done ? "; --layer L,... goes on with the layers that are not whole" : "");
    j->progress.unit = NULL; /* how far it came is said */
    if (s == STATUS_OK || s == STATUS_INTERRUPTED) {
        const enum status printed = print_heads(j, o, &a, e);
        s = printed == STATUS_OK ? s : printed;
    }
    heads_free(&a.result);
    free(a.kept);
    choice_free(&layers);
    return s;
}

const struct command command_heads = {
    .name = "heads",
    .summary = "what each head is worth: loss without it, likeness to others",
    .usage = "MODEL TEXT [options]",
    .notes =
        "Each head in turn is left out and the text predicted again, in windows of the context as\n"
        "decode eval has them; --without of eval, score and generate leaves out several at once.\n"
        "\n"
        "delta_nll         nats a token lost without the head: eval's nll without it less nll\n"
        "delta_nll_stderr  its standard error, from the tokens' paired differences\n"
        "delta_bits_per_byte  the same in bits per byte\n"
        "written           length of what the head adds to the residual stream, mean over "
        "positions\n"
        "stream            length of the stream before the head's layer\n"
        "like              the head of the same layer whose scores lose least if both share a key\n"
        "like_score_kept   share of both heads' score energy that one shared key keeps\n"
        "like_output_kept  share of their output energy that one shared value keeps\n"
        "\n"
        "These shares are what decode convert --group cluster weighs, on this text. A head whose\n"
        "delta_nll is not above its standard error costs nothing; one whose gain is beyond two of\n"
        "them does harm. Ctrl-C prints the heads that are done; --layer goes on where it was.\n",
    .spec = {.groups = {{"Text", text_options, 0}, {"Results", result_options, 0}, GENERAL_GROUP},
             .positionals = {MODEL_POSITIONAL, TEXT_POSITIONAL}},
    .values_size = sizeof(VALUES),
    .needs = JOB_MODEL | JOB_TEXT,
    .parts = CHECKPOINT_MODEL | JOB_TOKENIZES,
    .no_text = "there is no text to predict; expected TEXT or --text FILE",
    .run = run_heads,
};
