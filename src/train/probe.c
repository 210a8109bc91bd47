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

struct probe {
    struct trainer *t;
    int n_steps; /* of a trial */
    double best, best_rate;
};

static void tell(const struct trainer *t, struct train_event ev)
{
    if (t->spec->event)
        t->spec->event(t->spec->arg, &ev);
}

static void tell_tried(struct probe *p, double rate, double loss)
{
    if (loss < p->best) {
        p->best = loss;
        p->best_rate = rate;
    }
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
static enum status try_rate(struct probe *p, int index, double *loss)
{
    struct train_spec *spec = &p->t->copy;
    const int n_steps = spec->n_steps, warmup = spec->warmup;
    spec->lr = rates[index];
    spec->n_steps = p->n_steps;
    spec->warmup = (int)((int64_t)warmup * p->n_steps / n_steps);
    const enum status s = make_trial(p, loss);
    spec->n_steps = n_steps;
    spec->warmup = warmup;
    spec->lr = 0;
    if (s == STATUS_OK)
        tell_tried(p, rates[index], *loss);
    return s;
}

static enum status search(struct probe *p)
{
    double below, loss;
    TRY(try_rate(p, FIRST_RATE, &below));
    TRY(try_rate(p, FIRST_RATE + 1, &loss));
    const int direction = loss < below ? 1 : -1;
    double last = direction > 0 ? loss : below;
    for (int i = direction > 0 ? FIRST_RATE + 2 : FIRST_RATE - 1; i >= 0 && i < N_RATES;
         i += direction) {
        TRY(try_rate(p, i, &loss));
        if (!(loss < last))
            break;
        last = loss;
    }
    return STATUS_OK;
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
    struct probe p = {
        .t = t,
        .n_steps = wanted < t->spec->n_steps ? wanted : t->spec->n_steps,
        .best = HUGE_VAL,
        .best_rate = share ? 0 : RATE_UNTRIED,
    };
    enum status s = STATUS_OK;
    t->aside =
        trainer_windows(&t->data.train, share < ASIDE_MOST ? share : ASIDE_MOST, (int)length);
    if (share > 0) {
        const double loss = trainer_loss(t, &t->aside);
        if (!isfinite(loss))
            return trainer_not_finite(t, "loss before", loss, e);
        tell_tried(&p, 0, loss);
        s = search(&p);
    }
    t->aside.n = 0;
    if (s == STATUS_OK) {
        t->progress.rate = p.best_rate;
        tell(t, (struct train_event){.kind = TRAIN_CHOSEN, .lr = p.best_rate});
    }
    return s;
}
