/*
 * prompts - a file of prompts, one a line: as it is, or as a JSON object.
 *
 * A line that cannot be a prompt is one that was refused: it has an error, and those after it are
 * read as if nothing had happened. In memory is only what was read and not yet taken.
 */
#pragma once

#include "base/lines.h"
#include "formats/json_read.h"

/* Bytes of a line; a longer one is refused. */
#define PROMPTS_MAX_LINE  ((size_t)16 << 20)
#define PROMPTS_MAX_STOPS 256

enum prompt_id { PROMPT_ID_NONE, PROMPT_ID_STRING, PROMPT_ID_NUMBER };

/* One line. Zeroed before its first use. */
struct prompt {
    uint64_t index; /* of the line, from 0 */
    enum prompt_id id_kind;
    struct text id; /* a number as it was written, of any size */
    bool has_text;
    struct text text; /* valid UTF-8 */
    int n;            /* tokens wanted */
    uint64_t seed;
    const struct text *stops; /* [n_stops], none empty */
    int n_stops;
    bool refused; /* `error` says why */
    struct err error;

    struct bytes memory; /* of id, text and stops */
    struct text own_stops[PROMPTS_MAX_STOPS];
};

struct prompts {
    /* What a line has that does not say anything else; borrowed. */
    int n;
    uint64_t seed; /* of line 0; those of the others are derived, below RNG_EXACT_SEEDS */
    const struct text *stops;
    int n_stops;
    bool jsonl;

    /* Private. */
    struct lines lines;
    struct json_reader json;
    uint64_t n_lines;
};

/* Opens the file, standard input for "-", after the members above are set. Fails as lines_open.
 * prompts_close is due in every case. */
enum status prompts_open(struct prompts *p, const char *path, struct err *e);
void prompts_close(struct prompts *p);

/* The next line as a prompt, if *state is then LINES_LINE, which prompt_free ends; else it is
 * LINES_LATER, where none came within wait_ms milliseconds (0: it does not wait), or LINES_END. A
 * line that is no prompt is one, too, with `refused`. STATUS_NO_MEMORY; the failures of lines_next.
 * One caller at a time. */
enum status prompts_next(struct prompts *p, int wait_ms, enum lines_state *state,
                         struct prompt *prompt, struct err *e);

/* Refuses a prompt that was read, for what `why` says. */
void prompt_refuse(struct prompt *prompt, const struct err *why);

void prompt_free(struct prompt *prompt);
