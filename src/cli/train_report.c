#include "cli/train_report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/figures.h"
#include "cli/common.h"

/* Weight of a step in the smoothed loss. */
#define SMOOTHING 0.05

static const char log_head[] =
    "step,loss,val_loss,val_bits_per_byte,lr,grad_norm,tokens_per_s,seconds\n";

/* --- the log --------------------------------------------------------------------------------- */

static enum status log_failed(const struct train_report *r, struct err *e)
{
    return err_set(e, STATUS_FAILED, "--log: cannot write %s: %s", r->log, strerror(errno));
}

/* The offset after the head and the rows of steps up to `step`. */
static long log_rows_end(FILE *f, int step)
{
    char line[256];
    long end = 0;
    while (fgets(line, sizeof line, f)) {
        const bool is_torn = !strchr(line, '\n');
        if (is_torn || (end > 0 && strtol(line, NULL, 10) > step))
            break;
        end = ftell(f);
    }
    return end;
}

static FILE *open_log(const struct train_report *r, const char *mode)
{
    FILE *f;
    do
        f = fopen(r->log, mode);
    while (!f && errno == EINTR);
    return f;
}

enum status train_report_begin(struct train_report *r, const struct train_plan *p, struct err *e)
{
    r->first_step = r->step = p->resumed_step;
    r->loss = r->val_loss = (double)NAN;
    r->best_loss = p->best_loss;
    r->best_bits = p->best_loss * p->bits_per_nat;
    r->best_step = p->best_step;
    if (!r->log)
        return STATUS_OK;
    long end = 0;
    if (p->resumed_step > 0)
        r->log_file = open_log(r, "r+");
    /* Only what is not there is made: a log that cannot be opened just now must not be lost. */
    if (p->resumed_step > 0 && !r->log_file && errno != ENOENT)
        return log_failed(r, e);
    if (r->log_file) {
        end = log_rows_end(r->log_file, p->resumed_step);
        if (fseek(r->log_file, end, SEEK_SET) != 0 || ftruncate(fileno(r->log_file), end) != 0)
            return log_failed(r, e);
    } else {
        r->log_file = open_log(r, "w");
    }
    if (!r->log_file)
        return log_failed(r, e);
    if (end == 0)
        fputs(log_head, r->log_file);
    return STATUS_OK;
}

static void log_row(struct train_report *r, const struct train_event *ev)
{
    if (!r->log_file)
        return;
    const double seconds = r->started_ns ? (double)(clock_ns() - r->started_ns) * 1e-9 : 0;
    const double tokens = (double)r->spec->batch * r->spec->length;
    if (ev->kind == TRAIN_EVALUATED) {
        fprintf(r->log_file, "%d,,%.6f,%.6f,,,,%.3f\n", ev->step, ev->val_loss, ev->val_bits,
                seconds);
        fflush(r->log_file); /* so that the curve is there whatever becomes of the run */
    } else {
        fprintf(r->log_file, "%d,%.6f,,,%.6g,%.6g,%.0f,%.3f\n", ev->step, ev->loss, ev->lr,
                ev->norm, tokens / ((double)ev->ns * 1e-9), seconds);
    }
}

/* --- lines ----------------------------------------------------------------------------------- */

double train_report_rate(const struct train_report *r)
{
    const double tokens = (double)(r->step - r->first_step) * r->spec->batch * r->spec->length;
    return r->step_ns ? tokens / ((double)r->step_ns * 1e-9) : 0;
}

/* ", 3.41 s left"; nothing before the first step and after the last one. */
static void format_left(const struct train_report *r, char *out, size_t size)
{
    const int made = r->step - r->first_step, rest = r->spec->n_steps - r->step;
    out[0] = 0;
    if (made == 0 || rest == 0)
        return;
    const double ns = (double)(clock_ns() - r->started_ns) / made * rest;
    snprintf(out, size, ", %s left", figure_duration(ns).text);
}

/* What matters most comes first: a narrow terminal cuts the rest. */
static void show_progress(const struct train_report *r)
{
    if (!r->terminal)
        return;
    char left[64], val[48] = "";
    format_left(r, left, sizeof left);
    if (isfinite(r->val_loss))
        snprintf(val, sizeof val, ", held out %.4f", r->val_loss);
    notice_show("step %d of %d%s: loss %.4f%s, %s tokens/s", r->step, r->spec->n_steps, left,
                r->loss, val, figure_rate(train_report_rate(r)).text);
}

static void show_vocabulary_learning(const struct train_report *r, const struct train_event *ev)
{
    if (r->terminal && ev->all)
        notice_show("learning the vocabulary: %.0f%%", 100 * (double)ev->done / (double)ev->all);
}

static void show_evaluation(struct train_report *r, const struct train_event *ev)
{
    char left[64], loss[48] = "";
    r->val_loss = ev->val_loss;
    if (ev->best) {
        r->best_loss = ev->val_loss;
        r->best_bits = ev->val_bits;
        r->best_step = ev->step;
    }
    log_row(r, ev);
    format_left(r, left, sizeof left);
    if (isfinite(ev->loss))
        snprintf(loss, sizeof loss, "loss %.4f, ", ev->loss);
    char rate[48] = "";
    if (r->step_ns)
        snprintf(rate, sizeof rate, ", %s tokens/s", figure_rate(train_report_rate(r)).text);
    say(r->common, "step %d of %d: %sheld out %.4f nats a token, %.4f bits a byte%s%s%s", r->step,
        r->spec->n_steps, loss, ev->val_loss, ev->val_bits, ev->best ? " (best)" : "", rate, left);
}

/* One line for all trials, told once the rate is chosen. */
static void take_trial(struct train_report *r, const struct train_event *ev)
{
    const size_t len = strlen(r->tried);
    char *end = r->tried + len;
    if (ev->lr == 0)
        snprintf(r->tried, sizeof r->tried, "; %.4f as it is", ev->loss);
    else if (isfinite(ev->loss))
        snprintf(end, sizeof r->tried - len, ", %.4f at %g", ev->loss, ev->lr);
    else
        snprintf(end, sizeof r->tried - len, ", none at %g", ev->lr);
    if (r->terminal)
        notice_show("trying learning rates, %d steps each%s", ev->step, r->tried);
    r->n_tried = ev->step;
    r->n_aside = ev->all;
}

static void show_choice(struct train_report *r, const struct train_event *ev)
{
    char rate[96] = "no rate: the checkpoint stays as it is (--lr X trains it all the same)";
    if (ev->lr > 0)
        snprintf(rate, sizeof rate, "learning rate %g", ev->lr);
    if (r->tried[0])
        say(r->common, "%s: tried %d steps each, nats a token of %llu windows kept aside%s", rate,
            r->n_tried, (unsigned long long)r->n_aside, r->tried);
    else
        say(r->common, "%s: the text is too short to try others", rate);
}

static void take_step(struct train_report *r, const struct train_event *ev)
{
    if (r->started_ns == 0)
        r->started_ns = clock_ns() - ev->ns;
    r->step = ev->step;
    r->step_ns += ev->ns;
    r->loss = isfinite(r->loss) ? r->loss + SMOOTHING * (ev->loss - r->loss) : ev->loss;
    log_row(r, ev);
    show_progress(r);
}

void train_report_event(void *arg, const struct train_event *ev)
{
    struct train_report *r = arg;
    switch (ev->kind) {
    case TRAIN_LEARNING:
        show_vocabulary_learning(r, ev);
        break;
    case TRAIN_TRIED:
        take_trial(r, ev);
        break;
    case TRAIN_CHOSEN:
        show_choice(r, ev);
        break;
    case TRAIN_STEP:
        take_step(r, ev);
        break;
    case TRAIN_EVALUATED:
        show_evaluation(r, ev);
        break;
    case TRAIN_SAVING: /* no state is newer than its log */
        if (r->log_file && fflush(r->log_file) == 0)
            fdatasync(fileno(r->log_file));
        break;
    case TRAIN_SAVED:
        say_verbose(r->common, "saved after step %d", ev->step);
        break;
    case TRAIN_NOT_SAVED:
        say(r->common, "warning: not saved after step %d: %s; training goes on and tries again",
            ev->step, ev->message);
        break;
    }
}

enum status train_report_end(struct train_report *r, struct err *e)
{
    notice_clear();
    if (!r->log_file)
        return STATUS_OK;
    const bool lost = ferror(r->log_file) != 0;
    const bool unclosed = fclose(r->log_file) != 0;
    r->log_file = NULL;
    return lost || unclosed ? log_failed(r, e) : STATUS_OK;
}
