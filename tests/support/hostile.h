/*
 * hostile - takes a sound checkpoint apart into records, which a test bends before they are written
 * to a file again; and runs commands on that file, each of which must refuse it properly.
 */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include <stdbool.h>

#include "checkpoints.h"
#include "gguf_bytes.h"
#include "program.h"
#include "support.h"

#define HOSTILE_MAX_RECORDS 100100

struct hostile_pair {
    struct text key;
    uint32_t kind;
    struct text value; /* as it is in the file, an array's element type and count included */
};

struct hostile_tensor {
    struct text name;
    uint32_t n_dims;
    uint64_t dims[8];
    uint32_t type;
    struct text data;
};

/* Records borrow from `source`, from the test's own memory and from `blocks`. */
extern struct hostile {
    struct hostile_pair pairs[HOSTILE_MAX_RECORDS];
    struct hostile_tensor tensors[HOSTILE_MAX_RECORDS];
    size_t n_pairs, n_tensors;
    uint32_t alignment; /* of the data as they are written */
    unsigned char *source;
    void *blocks[HOSTILE_MAX_RECORDS];
    int n_blocks;
} h;

/* The record of this name, which must be there. */
struct hostile_pair *hostile_pair(const char *key);
struct hostile_tensor *hostile_tensor(const char *name);

/* Give this key a value, which is copied; a new key comes last. An array's payload is as in the
 * file. */
void hostile_set(const char *key, uint32_t kind, const void *value, size_t len);
void hostile_set_u32(const char *key, uint32_t value);
void hostile_set_text(const char *key, struct text value);
void hostile_set_array(const char *key, uint32_t element, uint64_t count, const void *payload,
                       size_t len);

/* Adds a tensor behind the others; name and data are borrowed. */
struct hostile_tensor *hostile_add_tensor(const char *name, uint64_t rows, uint64_t columns,
                                          uint32_t type, struct text data);

/* Writes the records as a file in memory, tensors in the records' order. The caller frees b->data.
 */
void hostile_image(struct gguf_bytes *b);

/* Paths in the scratch folder; the names of files that commands write begin with "out". */
extern char good_path[], bad_path[], text_path[], out_path[];
void expect_no_output(void); /* checks that no output and no temporary file is there */
void remove_outputs(void);

/* Fixtures: hostile_set_up makes the folder with a sound checkpoint and a text, bent_set_up also
 * takes the checkpoint apart into `h`. */
void hostile_set_up(void);
void bent_set_up(void);

/* Writes the records to bad_path, which commands are run on. */
void hostile_write(void);

/* A setup of run_program: root becomes another user, because permissions do not hold for root. */
void be_nobody(void *unused);

enum command_bit {
    INFO = 1 << 0,
    CHECK = 1 << 1, /* info --check */
    GENERATE = 1 << 2,
    SCORE = 1 << 3,
    TOKENIZE = 1 << 4,
    EVAL = 1 << 5,
    AGAINST = 1 << 6, /* eval GOOD --against */
    RETYPE = 1 << 7,  /* convert --type */
    CONVERT = 1 << 8,
    TRAIN = 1 << 9,    /* train --from */
    TEACHER = 1 << 10, /* train --from GOOD --teacher */
    BENCH = 1 << 11,
    N_COMMANDS = 12,
    EVERY_COMMAND = (1 << N_COMMANDS) - 1,
    /* Commands that read hyperparameters and tensors; the vocabulary; texts. None has info, which
     * opens every sound file and says what is wrong. */
    MODEL_READERS = EVERY_COMMAND & ~(INFO | CHECK | TOKENIZE),
    TOKENIZER_READERS = EVERY_COMMAND & ~(INFO | CHECK),
    TEXT_READERS = GENERATE | SCORE | TOKENIZE | EVAL | TRAIN,
};

/* expect_refused checks that each of the commands refuses the bad file: exit code 3, one line with
 * its path and `text`, nothing on standard output, no file written, little more memory than for the
 * sound file. expect_refused_in_turn runs only one of them, another one each time, for faults that
 * all commands meet in the same reader. expect_accepted checks that each accepts the file. Under
 * sanitizers, where a run takes long, all three run one command. next_of says whose turn it is. */
int next_of(unsigned commands);
void expect_refused(unsigned commands, const char *text);
void expect_refused_in_turn(unsigned commands, const char *text);
void expect_accepted(unsigned commands);

/* Copies `format` with paths in place of %B (the bad file), %G (the sound one), %T (the text) and
 * %O (the output). */
void fill_paths(char *line, size_t size, const char *format);

/* Run `line`, words with single spaces between them, its paths filled in; the others check that it
 * is refused, or succeeds with all `parts` on standard output. */
void run_on_bad(struct ran *r, const char *line);
void expect_line_refused(const char *line, int code, const char *text);
void expect_line_done(const char *line, const char *parts);

/*
 * A row of a transcript: a line as above, its exit code, and what standard error and standard
 * output must say ("|" between parts, "!" before one that must not be there). A line that fails
 * must say one line of error, print nothing unless `prints` says so, and leave no output.
 */
struct line {
    const char *line;
    int code;
    const char *says, *prints;
};
void try_lines(const struct line *rows, size_t n, program_setup *setup, void *context);

/* Changes the records as a row of tests/data/broken/checkpoints.txt says. */
void bend(const char *bends);

/* Change the records so, check that one of the commands refuses the file (another one each time),
 * that all refuse it, or that all accept it; and change the records back. reset() only does the
 * last. */
void bent_refused(unsigned commands, const char *bends, const char *text);
void bent_refused_by_all(unsigned commands, const char *bends, const char *text);
void bent_accepted(unsigned commands, const char *bends);
void reset(void);

#define TOKENS "tokenizer.ggml.tokens"

/* Replaces one token of the vocabulary. */
void set_token(int id, struct text token);

/* Another sound checkpoint: sizes, the preset whose tensors it has, the preset whose kinds it has,
 * and the kinds that differ from these. Those of `decode` have layer norms, biases, and Q, K, V in
 * one. use_sound opens it in `h`. */
struct sound {
    const char *name, *preset, *kinds, *sizes;
    enum norm_placement placement;
    enum position_kind position;
    bool shared;
};
#define SIZES_OF_LLAMA "layers=2 heads=4 kv=2 dim=8 width=32 ff=64 ctx=16 vocab=260"
void use_sound(const struct sound *s);

#endif
