/*
 * generate_state - generate's --save-state and --load-state: a text that goes on in another run.
 */
#ifndef DECODE_CLI_GENERATE_STATE_H
#define DECODE_CLI_GENERATE_STATE_H

#include "cli/generate.h"
#include "cli/job.h"
#include "cli/options.h"
#include "cli/paths.h"

/* How a text goes on. */
struct state_options {
    bool talks;              /* in a session, see generate_talk.h */
    const char *load, *save; /* in another run: files; NULL: none */
};
extern const struct option state_options[];

/* The text of slot 0 of a generation, which has been created. */
struct generate_state {
    const struct job *runtime; /* borrowed, as is the next */
    struct generation *generation;
    const struct option_spec *spec; /* of the command, and its values: no text is saved over what */
    const void *values;             /* they say is read */

    /* Private. */
    uint64_t model; /* the hash of what runs, once it is known */
    bool hashed;
};

/* The generation then goes on with the file's text, with its seed. The failures of saved_read; all
 * is then as it was. */
enum status generate_state_load(struct generate_state *s, const char *path, struct err *e);

/* STATUS_USAGE, in the name of `option`, if there is no text yet or it would be saved over what is
 * read; the failures of saved_write. */
enum status generate_state_save(struct generate_state *s, const char *option, const char *path,
                                struct err *e);

/* The random numbers of this seed begin. */
void generate_state_seed(struct generate_state *s, uint64_t seed);

/* Tokens of the text so far; 0: there is none. And whether the model has ended it. */
int generate_state_len(const struct generate_state *s);
bool generate_state_at_end(const struct generate_state *s);

/*
 * The ids of what is added to that text, as malloc'd memory of the caller, *ids NULL before, also
 * on failure: without a begin-of-text token, none for no text. STATUS_USAGE if they are more than
 * there is room for; the failures of tokens_of_text.
 */
enum status generate_state_tokens(const struct generate_state *s, struct text more, int32_t **ids,
                                  size_t *n, struct err *e);

#endif
