/*
 * cmd_heads - decode heads: what each head is worth, and which it is like.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/head_choice.h"
#include "cli/heads_picture.h"
#include "cli/job.h"
#include "cli/paths.h"
#include "convert/convert.h"
#include "measure/heads.h"
#include "show/report.h"

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
    OPT_COLUMNS,
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

/* What a run holds beside the runtime. */
struct heads_job {
    struct head_row row; /* the one that is printed */
    const struct heads_options *options;
    const struct model *model;
    unsigned char *layers;      /* [n_layers] 1 for those of --layer, malloc'd */
    struct head_likeness *kept; /* [n_layers, n_heads, n_heads], malloc'd */
    struct heads_result result;
    struct progress *shown;
};

/* --- options --------------------------------------------------------------------------------- */

static enum status find_layers(struct heads_job *job, struct err *e)
{
    const int n = job->model->config.n_layers;
    struct choice chosen;
    job->layers = calloc((size_t)n, 1);
    if (!job->layers)
        return err_no_memory(e, "the list of layers", (size_t)n);
    const enum status s = choice_of("--layer", job->options->layers, n, "layer", &chosen, e);
    for (int i = 0; i < chosen.n && s == STATUS_OK; i++)
        job->layers[chosen.items[i]] = 1;
    choice_free(&chosen);
    return s;
}

/* Found out before the work. */
static enum status check_picture(const struct heads_job *job, struct err *e)
{
    const struct config *c = &job->model->config;
    const int most = c->n_heads > c->n_layers ? c->n_heads : c->n_layers;
    if (job->options->svg && most > HEADS_PICTURE_MOST)
        return err_set(e, STATUS_USAGE,
                       "--svg: expected at most %d layers, and heads in each, found %d",
                       HEADS_PICTURE_MOST, most);
    return STATUS_OK;
}

/* --- rows ------------------------------------------------------------------------------------ */

static const struct report_field fields[] = {
    {"layer", "layer", MEMBER(head_row, worth.layer)},
    {"head", "head", MEMBER(head_row, worth.head)},
    {"delta_nll", "delta_nll", MEMBER(head_row, worth.delta_nll), "%.5f"},
    {"delta_nll_stderr", "stderr", MEMBER(head_row, worth.delta_nll_stderr), "%.5f", .rank = 2},
    {"delta_bits_per_byte", "bits/byte", MEMBER(head_row, worth.delta_bits_per_byte), "%.5f",
     .rank = 5},
    {"written", "written", MEMBER(head_row, worth.written), "%.3f", .rank = 3},
    {"stream", "stream", MEMBER(head_row, worth.stream), "%.3f", .rank = 6},
    {"like", "like", MEMBER(head_row, like), .rank = 4},
    {"like_score_kept", "score", MEMBER(head_row, kept.score), "%.5f", .rank = 4},
    {"like_output_kept", "output", MEMBER(head_row, kept.output), "%.5f", .rank = 7},
};

static const void *next_head(void *arg, int i)
{
    struct heads_job *job = arg;
    const int n = job->model->config.n_heads;
    if (i >= job->result.n_done)
        return NULL;
    const struct head_worth *w = &job->result.heads[i];
    const struct head_likeness *kept = job->kept + ((size_t)w->layer * n + w->head) * n;
    struct head_row *row = &job->row;
    *row = (struct head_row){.worth = *w, .like = -1, .kept = {(double)NAN, (double)NAN}};
    for (int h = 0; h < n; h++)
        if (h != w->head && (row->like < 0 || kept[h].score > row->kept.score)) {
            row->like = h;
            row->kept = kept[h];
        }
    return row;
}

static int heads_tables(const void *values, struct table *tables)
{
    (void)values;
    *tables = (struct table){fields, REPORT_LENGTH(fields), .row = next_head};
    return 1;
}

/* Standard errors that a gain is beyond: one of them alone would find harm in every sixth head that
 * costs nothing. */
#define HARM_ERRORS 2

static bool does_harm(const struct head_worth *w)
{
    return w->delta_nll < -HARM_ERRORS * w->delta_nll_stderr;
}

/* Whether this text does not show that the head is gone. */
static bool costs_nothing(const struct head_worth *w)
{
    return w->delta_nll <= w->delta_nll_stderr && !does_harm(w);
}

/* "N of M heads DO ...: 0.2,0.4", as --without takes them, and "..." where there is no more room.
 */
static void say_heads(const struct heads_job *job, bool (*are)(const struct head_worth *),
                      const char *what)
{
    const struct heads_result *r = &job->result;
    char names[512] = "";
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < r->n_done; i++) {
        const struct head_worth *w = &r->heads[i];
        if (!are(w))
            continue;
        if (used + 32 < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%d.%d", n ? "," : ": ",
                                     w->layer, w->head);
        else
            snprintf(names + used, sizeof names - used, ",...");
        n++;
    }
    say(&job->options->common, "%d of %d heads %s%s", n, r->n_done, what, names);
}

static void say_result(const struct heads_job *job)
{
    const struct eval_result *whole = &job->result.whole;
    say(&job->options->common, "%.4f nats a token and %.4f bits per byte with all heads",
        whole->nll, whole->bits_per_byte);
    say_heads(job, costs_nothing, "cost nothing on this text, within the standard error");
    say_heads(job, does_harm, "do harm, beyond two standard errors");
}

/* What is left, for the next run. */
static void say_interrupted(const struct heads_job *job)
{
    const struct heads_result *r = &job->result;
    say(&job->options->common, "interrupted after %d heads%s", r->n_done,
        r->n_done ? "; --layer L,... goes on with the layers that are not whole" : "");
}

/* --- the run --------------------------------------------------------------------------------- */

static void show_heads(void *arg, int done, int all, double share)
{
    struct heads_job *job = arg;
    progress_show_share(job->shown, (uint64_t)done, (uint64_t)all, share);
}

static enum status compare_heads(struct heads_job *job, struct job *j, struct err *e)
{
    const struct config *c = &job->model->config;
    const size_t n = (size_t)c->n_layers * (size_t)c->n_heads * (size_t)c->n_heads;
    struct convert_spec spec = {.gguf = j->checkpoint.gguf,
                                .source = &j->checkpoint.file,
                                .tokens = j->tokens,
                                .n_tokens = j->n_tokens - 1, /* the last is only predicted */
                                .kernels = j->kernels,
                                .pool = j->pool,
                                .stop = progress_stop,
                                .progress = progress_show,
                                .arg = job_progress(j, "windows")};
    job->kept = calloc(n, sizeof *job->kept);
    if (!job->kept)
        return err_no_memory(e, "the likeness of heads", n * sizeof *job->kept);
    return convert_likeness(&spec, job->model, job->kept, e);
}

static struct heads_spec spec_of(struct heads_job *job, struct job *j)
{
    return (struct heads_spec){.model = job->model,
                               .kernels = j->kernels,
                               .pool = j->pool,
                               .tokens = j->tokens,
                               .n_tokens = j->n_tokens,
                               .tokenizer = j->checkpoint.tokenizer,
                               .ablation = (enum heads_ablation)job->options->ablation,
                               .layers = job->layers,
                               .stop = progress_stop,
                               .progress = show_heads,
                               .arg = job};
}

static enum status check_memory(struct heads_job *job, struct job *j, struct err *e)
{
    const struct heads_spec spec = spec_of(job, j);
    struct job_memory memory = {.weights = job->model->weights.cap,
                                .advice = "fewer --tokens and -t 1 take less"};
    char what[32];
    TRY(heads_plan(&spec, &memory.scratch, e));
    snprintf(what, sizeof what, "%zu tokens", j->n_tokens);
    return job_check_memory(j, &memory, what, e);
}

static enum status measure_heads(struct heads_job *job, struct job *j, struct err *e)
{
    const struct heads_spec spec = spec_of(job, j);
    job->shown = job_progress(j, "heads");
    return heads_run(&spec, &job->result, e);
}

static enum status show_result(struct heads_job *job, struct job *j, struct err *e)
{
    struct table table;
    heads_tables(job->options, &table);
    table.arg = job;
    TRY(job_print(j, &table, 1, e));
    say_result(job);
    if (!job->options->svg)
        return STATUS_OK;
    return heads_write_picture(&job->result, job->model->config.n_heads, path_name(j->path),
                               job->options->svg, e);
}

static enum status run_job(struct heads_job *job, struct job *j, struct err *e)
{
    TRY(find_layers(job, e));
    TRY(check_picture(job, e));
    TRY(check_memory(job, j, e));
    enum status s = compare_heads(job, j, e);
    if (s == STATUS_OK)
        s = measure_heads(job, j, e);
    if (s != STATUS_OK && s != STATUS_INTERRUPTED)
        return s;
    if (s == STATUS_INTERRUPTED)
        say_interrupted(job);
    j->progress.unit = NULL; /* that is said */
    if (job->result.n_done == 0)
        return s;
    const enum status shown = show_result(job, j, e);
    return shown == STATUS_OK ? s : shown;
}

static enum status run_heads(struct job *j, void *values, struct err *e)
{
    const struct heads_options *o = values;
    struct heads_job job = {.options = o, .model = j->checkpoint.model};
    TRY(job_tokenize(j, e));
    TRY(eval_check_length(j->n_tokens, e));
    if (j->n_tokens > (size_t)o->tokens + 1)
        j->n_tokens = (size_t)o->tokens + 1;
    TRY(job_start_threads(j, e));
    const enum status s = run_job(&job, j, e);
    heads_free(&job.result);
    free(job.kept);
    free(job.layers);
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
    .tables = heads_tables,
    .run = run_heads,
};
