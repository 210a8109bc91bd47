#include "cli/seeds.h"

#include <unistd.h>

#include "base/rng.h"

enum status job_seed(struct job *j, struct err *e)
{
    if (j->common->seed.given) {
        j->seed = j->common->seed.value;
    } else if (!j->has_seed) {
        if (getentropy(&j->seed, sizeof j->seed) != 0)
            return err_failed(e, "the system gives no random seed; give one with --seed");
        j->seed %= RNG_EXACT_SEEDS;
    }
    j->has_seed = true;
    return STATUS_OK;
}
