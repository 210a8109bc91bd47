/*
 * bench_against - the rows of a former benchmark, to compare those of this one with.
 */
#ifndef DECODE_CLI_BENCH_AGAINST_H
#define DECODE_CLI_BENCH_AGAINST_H

#include "cli/options.h"
#include "measure/bench.h"

/* A row's setting, and its median with the least and the largest of the repeats' (NaN: not said).
 */
struct former_row {
    char variant[32], type[16], kv_type[16];
    int threads, depth, batch;
    double p50_us, p50_low_us, p50_high_us;
    bool found; /* this benchmark has the setting, too */
};

struct former {
    struct former_row *rows; /* [n] malloc'd */
    int n;
    char subject[256]; /* the model or the shape */
};

/* Reads what `bench --format json` printed. former_free is due in every case. STATUS_BAD_FILE says
 * what is expected where; the failures of file_read_all; STATUS_NO_MEMORY. */
enum status former_read(const char *path, struct former *f, struct err *e);
void former_free(struct former *f);

/* The row of the same setting, which is marked as found; NULL: there is none. */
const struct former_row *former_find(struct former *f, const struct bench_row *row);

/* What is left out of the comparison: settings that only one of the two has, and other models. */
void former_say_others(struct former *f, const struct bench *b, const char *subject,
                       const struct common_options *o);

#endif
