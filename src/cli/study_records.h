/*
 * study_records - what a study keeps in its folder beside checkpoints: NAME.json of each cell that
 * is done, results.jsonl of all of them, study.json of what they have in common.
 *
 * Files there may have been changed by anybody: each is read strictly, and refused by name.
 */
#ifndef DECODE_CLI_STUDY_RECORDS_H
#define DECODE_CLI_STUDY_RECORDS_H

#include "cli/study_plan.h"
#include "show/report.h"

/* A cell's figures; the last is a time, which no two runs have alike. */
extern const struct report_field study_fields[];
#define STUDY_N_FIELDS 11
#define STUDY_N_TIMES  1

/* "DIR/NAMEsuffix", malloc'd: *path is NULL on failure. STATUS_NO_MEMORY. */
enum status study_path(const char *dir, const char *name, const char *suffix, char **path,
                       struct err *e);

/* Writes NAME.json of a cell that is done, atomically. The failures of file_writer. */
enum status study_record_write(const char *dir, const struct study_cell *cell, struct err *e);

/* Reads NAME.json into the cell; cell->done tells whether there is one. STATUS_BAD_FILE if it is no
 * record of this cell. */
enum status study_record_read(const char *dir, struct study_cell *cell, struct err *e);

/*
 * Writes results.jsonl: a line for each record in the folder, those of other runs too, as
 * study_order has them, without times: the same cells give the same bytes. Two processes may do so
 * at once: whoever is last has all.
 */
enum status study_results_write(const char *dir, struct err *e);

/* What only one run at once may make: a cell, by its name, or "" the folder's own files. Locks are
 * in DIR/study.lock, which stays; they end with the process, and hold against other machines where
 * the file system's do. */
enum status study_lock_open(const char *dir, int *fd, struct err *e);

/* Takes the lock, and the same run may have it already; *taken is false while another run has it.
 * STATUS_FAILED where files cannot be locked. */
enum status study_lock_try(int fd, const char *name, bool *taken, struct err *e);
void study_unlock(int fd, const char *name);

/* Writes study.json, or finds that what is there says the same. STATUS_USAGE if it says something
 * else: the folder has another study's cells. */
enum status study_settings_keep(const char *dir, struct text settings, struct err *e);

#endif
