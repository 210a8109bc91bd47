#include "train/probe.h"

#include <math.h>

#include "train/steps.h"

/* Tried from the second and third on, towards where the loss falls, until it does not. */
static const double rates[] = {1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3};
#define N_RATES    ((int)(sizeof rates / sizeof *rates))
#define FIRST_RATE 1

/* Of a text without a window to spare. */
#define RATE_UNTRIED 3e-5

/* Windows kept aside: at most so many, and this share of those that the training part has. */
#define ASIDE_MOST  64
#define ASIDE_SHARE 12

/* Steps of a trial: this share of the run's, within bounds; all, if there are fewer. */
#define TRIAL_SHARE 10
#define TRIAL_LEAST 10
#define TRIAL_MOST  20

/* In a run as short as its trials the smallest rate that gains this share of the best is taken:
 * what a higher one gains on the training part it tends to lose on other text, and no steps are
 * left that it could pay in. */
#define ENOUGH 0.8

struct probe {
    struct trainer *t;
    int n_steps;  /* of a trial */
    double start; /* the checkpoint's own loss */
    double losses[N_RATES];
};

static void tell(const struct trainer *t, struct train_event ev)
{
    if (t->spec->event)
        t->spec->event(t->spec->arg, &ev);
}

static void tell_tried(const struct probe *p, double rate, double loss)
{
    tell(p->t, (struct train_event){.kind = TRAIN_TRIED,
                                    .step = p->n_steps,
                                    .all = p->t->aside.n,
                                    .lr = rate,
                                    .loss = loss});
}

/* The steps of a trial; a loss that is not finite ends it. */
static enum status make_trial(struct probe *p, double *loss)
{
    struct trainer *t = p->t;
    struct made_step made;
    trainer_rewind(t);
    rng_seed(&t->progress.rng, t->spec->seed, STREAM_PROBE);
    *loss = HUGE_VAL;
    for (int i = 0; i < p->n_steps; i++) {
        if (t->spec->stop && t->spec->stop(t->spec->arg))
            return STATUS_INTERRUPTED;
        if (trainer_step(t, &made, NULL) != STATUS_OK)
            return STATUS_OK;
    }
    const double found = trainer_loss(t, &t->aside);
    *loss = isfinite(found) ? found : HUGE_VAL;
    return STATUS_OK;
}

/* The same with this rate, as a run of so many steps has it. */
static enum status try_rate(struct probe *p, int index)
{
    struct train_spec *spec = &p->t->copy;
    const int n_steps = spec->n_steps, warmup = spec->warmup;
    spec->lr = rates[index];
    spec->n_steps = p->n_steps;
    spec->warmup = (int)((int64_t)warmup * p->n_steps / n_steps);
    const enum status s = make_trial(p, &p->losses[index]);
    spec->n_steps = n_steps;
    spec->warmup = warmup;
    spec->lr = 0;
    if (s == STATUS_OK)
        tell_tried(p, rates[index], p->losses[index]);
    return s;
}

static enum status search(struct probe *p)
{
    for (int i = 0; i < N_RATES; i++)
        p->losses[i] = HUGE_VAL;
    TRY(try_rate(p, FIRST_RATE));
    TRY(try_rate(p, FIRST_RATE + 1));
    const bool rising = p->losses[FIRST_RATE + 1] < p->losses[FIRST_RATE];
    const int step = rising ? 1 : -1;
    for (int i = rising ? FIRST_RATE + 2 : FIRST_RATE - 1; i >= 0 && i < N_RATES; i += step) {
        TRY(try_rate(p, i));
        if (!(p->losses[i] < p->losses[i - step]))
            break;
    }
    return STATUS_OK;
}

/* The rate to be taken; 0: none gains anything. */
static double choose(const struct probe *p)
{
    const bool is_short = p->n_steps == p->t->spec->n_steps;
    double best = 0;
    for (int i = 0; i < N_RATES; i++)
        best = fmax(best, p->start - p->losses[i]);
    for (int i = 0; i < N_RATES && best > 0; i++)
        if (p->start - p->losses[i] >= (is_short ? ENOUGH : 1) * best)
            return rates[i];
    return 0;
}

static int limited(int x, int least, int most)
{
    return x < least ? least : x > most ? most : x;
}

enum status probe_rate(struct trainer *t, struct err *e)
{
    const size_t length = (size_t)t->spec->length, all = (t->data.train.n - 1) / length;
    const size_t share = all / ASIDE_SHARE;
    const int wanted = limited(t->spec->n_steps / TRIAL_SHARE, TRIAL_LEAST, TRIAL_MOST);
    struct probe p = {.t = t, .n_steps = wanted < t->spec->n_steps ? wanted : t->spec->n_steps};
    double rate = RATE_UNTRIED;
    t->aside =
        trainer_windows(&t->data.train, share < ASIDE_MOST ? share : ASIDE_MOST, (int)length);
    if (share > 0) {
        p.start = trainer_loss(t, &t->aside);
        if (!isfinite(p.start))
            return trainer_not_finite(t, "loss before", p.start, e);
        tell_tried(&p, 0, p.start);
        const enum status s = search(&p);
        t->aside.n = 0;
        if (s != STATUS_OK)
            return s;
        rate = choose(&p);
    }
    t->progress.rate = rate;
    tell(t, (struct train_event){.kind = TRAIN_CHOSEN, .lr = rate});
    return STATUS_OK;
}
