#include "engine/private.h"

#include "base/times.h"

/* The numbers of panels that are tried, the usual one first. */
static const int choices[] = {4, 2, 1};
#define CHOICES LENGTH(choices)

/* Fewer bytes may lie in a processor's last cache, where the choice makes no difference; of more
 * bytes no more are read. */
#define LEAST_BYTES ((size_t)64 << 20)
/* Each choice reads every layer of the trial twice. */
#define ROUNDS (2 * 3)
/* A choice has to be faster than the usual one by this factor, in all rounds but one: where others
 * use memory, too, its speed changes from round to round by more than the choices differ. */
#define GAIN 1.04

static const enum tensor_role roles[] = {ROLE_FFN_UP, ROLE_FFN_GATE, ROLE_FFN_DOWN};

struct trial {
    struct forward *f;
    enum storage storage;          /* of the matrices */
    int n_layers;                  /* the layers that are read */
    double rates[ROUNDS][CHOICES]; /* bytes per second */
};

static size_t layer_bytes(const struct block *b)
{
    size_t bytes = 0;
    for (int r = 0; r < LENGTH(roles); r++) {
        const struct matrix *w = &b->w[roles[r]].matrix;
        bytes += w->panels ? matrix_bytes(w->n_out, w->n_in, w->storage) : 0;
    }
    return bytes;
}

/* In a round each choice reads a third of the layers, in the next round another third. */
static void run_rounds(void *arg, int thread)
{
    struct trial *t = arg;
    const struct worker k = {t->f, thread, pool_n_threads(t->f->pool), 1};
    for (int round = 0; round < ROUNDS; round++) {
        for (int c = 0; c < CHOICES; c++) {
            size_t bytes = 0;
            if (thread == 0)
                t->f->streams[t->storage] = choices[c];
            worker_meet(&k);
            const uint64_t before = clock_ns();
            for (int l = (round + c) % CHOICES; l < t->n_layers; l += CHOICES) {
                block_feed_forward(&k, &t->f->blocks[l]);
                bytes += layer_bytes(&t->f->blocks[l]);
            }
            if (thread == 0)
                t->rates[round][c] = bytes * 1e9 / (clock_ns() - before);
        }
    }
}

/* How many rounds a choice is faster in than the usual one. */
static int rounds_won(const struct trial *t, int choice)
{
    int n = 0;
    for (int round = 0; round < ROUNDS; round++)
        n += t->rates[round][choice] > GAIN * t->rates[round][0];
    return n;
}

void streams_choose(struct forward *f)
{
    const struct config *c = &f->kv.config;
    const enum storage storage = f->blocks[0].w[ROLE_FFN_UP].matrix.storage;
    struct trial t = {.f = f, .storage = storage};
    size_t bytes = 0;
    for (int s = 0; s < STORAGE_COUNT; s++)
        f->streams[s] = choices[0];
    while (t.n_layers < config_blocks(c) && (bytes < LEAST_BYTES || t.n_layers % CHOICES != 0))
        bytes += layer_bytes(&f->blocks[t.n_layers++]);
    if (bytes < LEAST_BYTES || t.n_layers < CHOICES || storage_is_quantised(storage))
        return;
    memset(f->work.x, 0, c->d_model * sizeof *f->work.x);
    pool_run(f->pool, run_rounds, &t);
    int best = 0;
    for (int i = 1; i < CHOICES; i++)
        if (rounds_won(&t, i) >= ROUNDS - 1 && rounds_won(&t, i) > rounds_won(&t, best))
            best = i;
    f->streams[storage] = choices[best];
}
