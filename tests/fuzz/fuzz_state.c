/*
 * The reader of training states: any bytes are taken whole or refused with a message, and what is
 * taken is what the header says.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        fputs("fuzz_state: a property does not hold\n", stderr);
        abort();
    }
}

#define N_FLOATS 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct param item = {.name = "token_embd.weight", .n_dims = 2, .rows = 4, .cols = 4};
    static const struct param_list list = {
        .items = &item, .n = 1, .n_floats = N_FLOATS, .n_params = 16};
    static const struct train_spec spec = {.n_steps = 3, .batch = 1, .length = 2};
    float weights[N_FLOATS], m[N_FLOATS], v[N_FLOATS];
    struct optimizer o = {.list = &list, .weights = {.flat = weights}, .m = m, .v = v};
    const struct identity wanted = state_identity(&spec, &list, 1, 0);
    struct state s = {.bytes = NULL};
    struct err e = {""};
    enum status status = state_parse(&s, data, size, "state", &e);
    if (status == STATUS_OK) {
        require(s.progress.step >= s.progress.best_step && !isnan(s.progress.best));
        status = state_compare(&s, &wanted, "state", &e);
        require(status == STATUS_OK || status == STATUS_USAGE);
        if (state_read(&s, &o, "state", &e) == STATUS_OK) {
            require(o.step == s.progress.step);
            require(memcmp(weights, data + size - 8 - sizeof weights * 3, sizeof weights) == 0);
        }
        return 0;
    }
    require(status == STATUS_BAD_FILE && e.text[0]);
    return 0;
}
