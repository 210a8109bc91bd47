/*
 * study - the GQA paper's experiment on one text: the cells that are compared, what each is made
 * from, their means over the seeds, and the folder they are kept in.
 *
 * A folder has NAME.json of each cell that is done, results.jsonl of all of them, study.json of
 * what they have in common and study.lock. Each is read strictly, and refused by name.
 */
#pragma once

#include <limits.h>

#include "model/config.h"
#include "show/report.h"

/* --- cells ----------------------------------------------------------------------------------- */

/* Where the K/V heads of a cell come from; in this order in every list. */
enum study_method {
    STUDY_MHA,  /* trained, or the control: trained further as it is */
    STUDY_MEAN, /* from here on as enum convert_method has them */
    STUDY_FIRST,
    STUDY_RANDOM,
    STUDY_PROCRUSTES,
    STUDY_FIT,
    STUDY_SCRATCH, /* no conversion: trained with so few from the first step on */
    STUDY_N_METHODS
};
/* "mha", ..., "scratch", NULL. */
extern const char *const study_methods[];
static inline bool study_converts(enum study_method method)
{
    return method > STUDY_MHA && method < STUDY_SCRATCH;
}

struct study_cell {
    uint64_t seed;
    int kv_heads;
    enum study_method method;
    bool taught;   /* trained further with the MHA checkpoint as the teacher */
    double alpha;  /* percent of the MHA checkpoint's steps for which it is trained further */
    int steps;     /* of that, or of all training from scratch */
    bool by_heads; /* the study has several numbers of query heads: the name says which */

    /* What follows from these and the plan's config. */
    int heads, d_ff; /* query heads, width of the feed-forward layer */
    const char *method_name;
    char variant[16]; /* "GQA-2" */
    char name[80];    /* "s1-gqa2-fit-a5", "s1-h4-mha-a0": of its files */

    bool wanted; /* this run is to make it */
    /* What is known once it is done. */
    bool done;
    double bits_per_byte;
    uint64_t cache_bytes_per_token; /* f32 */
    double seconds;                 /* that its own conversion or training took */
};

/* A cell's figures; the last is a time, which no two runs have alike. */
#define STUDY_N_FIELDS 12
extern const struct report_field study_fields[STUDY_N_FIELDS];

/* Fills in what follows from the rest. */
void study_cell_complete(struct study_cell *cell, const struct config *c);

/* For qsort: by query heads, fewest first; by K/V heads, most first; method; teacher; alpha; seed.
 */
int study_order(const void *a, const void *b);

/* --- the plan -------------------------------------------------------------------------------- */

/* Over the seeds of which the cell is done. */
struct study_mean {
    struct study_cell of; /* what they have in common; of bits_per_byte the mean */
    int n_seeds;
    double deviation; /* of the seeds' bits a byte, n - 1 in its denominator; NaN for one */
    double least, most;
    char line[64];   /* that it is a point of: "GQA-2, fit, taught" */
    double over_mha; /* mean of what each has more than its MHA checkpoint trained further for as
                        long; NaN: one of them is not done */
};

struct study_plan {
    const struct config *config; /* of the cells that are added; borrowed, with any K/V heads */
    uint64_t first_seed;
    int n_seeds, n_steps;
    bool taught; /* conversions are trained further with a teacher, too */

    struct study_cell *cells; /* [n] malloc'd, in study_order: what one is made from is before it */
    int n;
    struct study_mean *means; /* [n_means] malloc'd, of study_means */
    int n_means;
};

/* Adds cells of these K/V heads and method for all seeds and each of the shares [n], percents
 * of the steps. STATUS_USAGE where one is too much; STATUS_NO_MEMORY. study_plan_free is due in any
 * case. */
enum status study_plan_add(struct study_plan *plan, struct study_cell cell, const double *shares,
                           int n, struct err *e);
void study_plan_free(struct study_plan *plan);

/* The cell that this one begins with: the conversion, or the MHA checkpoint. NULL: none. */
struct study_cell *study_origin(const struct study_plan *plan, const struct study_cell *cell);
/* The MHA checkpoint of its seed. */
struct study_cell *study_base(const struct study_plan *plan, const struct study_cell *cell);

/* Fills in plan->means, in the order of the cells. STATUS_NO_MEMORY. */
enum status study_means(struct study_plan *plan, struct err *e);

/* --- the folder ------------------------------------------------------------------------------ */

/* "DIR/NAMEsuffix", of a DIR of at most STUDY_DIR_MAX bytes. */
struct study_path {
    char text[PATH_MAX];
};
#define STUDY_DIR_MAX (PATH_MAX - 128)
struct study_path study_path(const char *dir, const char *name, const char *suffix);

/* Writes NAME.json of a cell that is done, atomically. The failures of file_writer. */
enum status study_record_write(const char *dir, const struct study_cell *cell, struct err *e);

/* Reads NAME.json into the cell, of a plan or of a name alone; `done` tells whether there is one.
 * STATUS_BAD_FILE. */
enum status study_record_read(const char *dir, struct study_cell *cell, struct err *e);

/* Writes results.jsonl: a line for each record in the folder, as study_order has them, without
 * times. Two processes may do so at once: whoever is last has all. */
enum status study_results_write(const char *dir, struct err *e);

/* Writes study.json, {"settings": "..."} of what needs no escapes. STATUS_USAGE if there is one
 * that says something else: of another study. */
enum status study_settings_keep(const char *dir, const char *settings, struct err *e);

/* Of what only one run at once may make: a cell, by its name, or "" the folder's own files. Locks
 * are in DIR/study.lock, which stays, and end with the process. */
enum status study_lock_open(const char *dir, int *fd, struct err *e);

/* *taken is false while another run has it. STATUS_FAILED where files cannot be locked. */
enum status study_lock_try(int fd, const char *name, bool *taken, struct err *e);
void study_unlock(int fd, const char *name);
