/*
 * state - OUT.state: everything that the next step depends on.
 */
#ifndef DECODE_TRAIN_STATE_H
#define DECODE_TRAIN_STATE_H

#include "base/file.h"
#include "base/rng.h"
#include "train/optimizer.h"

/* How far a run is. */
struct progress {
    int step, best_step;
    double best; /* val_loss of OUT; infinite before the first evaluation */
    double rate; /* the full learning rate; 0: not yet chosen, or, once all steps are made, none */
    struct rng rng;
    uint64_t out_len, out_hash; /* of OUT as it was last written: bytes, train_hash */
};

#define STATE_FIELDS 25

/* What must be the same for a state to be of this run. */
struct identity {
    uint64_t fields[STATE_FIELDS];
};

/* What a run is told by: its model, and the hashes of texts and teacher. */
struct state_subject {
    const struct config *config;
    const struct param_list *list;
    uint64_t text_hash, teacher_hash;
};
struct identity state_identity(const struct train_spec *spec, const struct state_subject *subject);

/* The hash, continued over all of a config that tells models apart and is no tensor's shape. */
uint64_t state_hash_config(uint64_t hash, const struct config *c);

/* A state file, opened and checked as far as its header goes. */
struct state {
    struct file_map file; /* nothing for a parsed one */
    const unsigned char *bytes;
    size_t len;
    struct identity identity;
    struct progress progress;
};

/* *found is false if there is no file. STATUS_BAD_FILE if it is none of this format or version. */
enum status state_open(struct state *s, const char *path, bool *found, struct err *e);
/* The same for bytes, which must outlive s and are called `path` in messages. */
enum status state_parse(struct state *s, const void *bytes, size_t len, const char *path,
                        struct err *e);
void state_close(struct state *s);
/* The seed it was made with. */
uint64_t state_seed(const struct state *s);
int state_steps(const struct state *s); /* --steps of its run */
/* STATUS_USAGE, naming the first difference. */
enum status state_compare(const struct state *s, const struct identity *wanted, const char *path,
                          struct err *e);
/* Checks length and checksum and copies weights and moments. STATUS_BAD_FILE. */
enum status state_read(const struct state *s, struct optimizer *o, const char *path, struct err *e);
enum status state_write(const char *path, const struct identity *identity,
                        const struct progress *progress, const struct optimizer *o, struct err *e);

#endif
