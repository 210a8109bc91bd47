/*
 * hostile - a good checkpoint taken apart into records, for a test to bend before they are written
 * as a file again; and the commands run on that file, each of which must refuse it properly.
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

/* A pair with this value in place of the one with this key, or at the end; an array's payload is as
 * in the file. Values are copied. */
void hostile_set(const char *key, uint32_t kind, const void *value, size_t len);
void hostile_set_u32(const char *key, uint32_t value);
void hostile_set_text(const char *key, struct text value);
void hostile_set_array(const char *key, uint32_t element, uint64_t count, const void *payload,
                       size_t len);

/* At the end; name and data are borrowed. */
struct hostile_tensor *hostile_add_tensor(const char *name, uint64_t rows, uint64_t columns,
                                          uint32_t type, struct text data);

/* Tensors follow each other in the records' order. free(b->data) at last. */
void hostile_image(struct gguf_bytes *b);

/* Paths in the scratch folder; what a command leaves beside standard output begins with "out". */
extern char good_path[], bad_path[], text_path[], out_path[];
void expect_no_output(void); /* nor a temporary file */
void remove_outputs(void);

/* The fixtures: the folder with a good checkpoint and a text; and `h` open on it. */
void hostile_set_up(void);
void bent_set_up(void);

/* Writes what the commands are run on, bad_path. */
void hostile_write(void);

/* A setup of run_program: another user, if this one is root, for whom permissions mean nothing. */
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
    /* What reads hyperparameters and tensors, what the vocabulary, and what texts by it; but for
     * info, which opens every sound file and says what is wrong. */
    MODEL_READERS = EVERY_COMMAND & ~(INFO | CHECK | TOKENIZE),
    TOKENIZER_READERS = EVERY_COMMAND & ~(INFO | CHECK),
    TEXT_READERS = GENERATE | SCORE | TOKENIZE | EVAL | TRAIN,
};

/* Each of the commands refuses the bad file: exit code 3, one line with its path and `text`,
 * nothing on standard output, no file written, little more memory than for the good one. Or one of
 * them, each time the next: for a fault that all meet in the same reader; under sanitizers, where a
 * run takes long, the other two do so, too. Or each accepts it. */
int next_of(unsigned commands); /* whose turn it is */
void expect_refused(unsigned commands, const char *text);
void expect_refused_in_turn(unsigned commands, const char *text);
void expect_accepted(unsigned commands);

/* The paths in place of %B, the bad file; %G, the good one; %T, the text; %O, the output. */
void fill_paths(char *line, size_t size, const char *format);

/* Runs `line`, a space after each word, its paths filled in; and expects the refusal, or success
 * and all `parts` on standard output. */
void run_on_bad(struct ran *r, const char *line);
void expect_line_refused(const char *line, int code, const char *text);
void expect_line_done(const char *line, const char *parts);

/*
 * A transcript: lines as above, each with its exit code; what standard error and standard output
 * must say ("|" between parts, "!" before one that must not be there). What fails says one line,
 * and prints nothing unless told. No output is left of it.
 */
struct line {
    const char *line;
    int code;
    const char *says, *prints;
};
void try_lines(const struct line *rows, size_t n, program_setup *setup, void *context);
#define TRY_LINES(rows) try_lines(rows, COUNT(rows), NULL, NULL)

/* Bends the records as a row of tests/data/broken/checkpoints.txt says. */
void bend(const char *bends);

/* All elements of a tensor of floats. */
void hostile_fill(const char *tensor, float value);

/* So bent it is refused by one of the commands, the next one each time; by all; or accepted. */
void bent_refused(unsigned commands, const char *bends, const char *text);
void bent_refused_by_all(unsigned commands, const char *bends, const char *text);
void bent_accepted(unsigned commands, const char *bends);
void reset(void);

#define TOKENS "tokenizer.ggml.tokens"

/* The vocabulary with this instead of one of its tokens. */
void set_token(int id, struct text token);

/* Another good checkpoint, open in `h`: a new one of a preset, with these sizes and the kinds of
 * another but for the last ones; `decode` has layer norms, biases, and Q, K and V in one. */
struct sound {
    const char *name, *preset, *kinds, *sizes;
    enum norm_placement placement;
    enum position_kind position;
    bool shared;
};
#define SIZES_OF_LLAMA "layers=2 heads=4 kv=2 dim=8 width=32 ff=64 ctx=16 vocab=260"
void use_sound(const struct sound *s);

#endif
