/*
 * numbers - strict numbers from text, comma-separated lists: "1,2,8", "f32,f16", and which heads of
 * a model these name: --layer, --head, --without.
 *
 * A number is the whole string: decimal digits, '-' only where negative values are allowed.
 * STATUS_USAGE names the option, what was expected and what was found.
 */
#pragma once

#include "base/mem.h"
#include "base/status.h"
#include "base/text.h"
#include "model/config.h"

/* False, with *out left alone, if malformed or out of range. */
bool parse_u64(const char *text, uint64_t *out);
bool parse_int(const char *text, int min, int max,
               int *out);                        /* also in thousands or millions: k, M */
bool parse_bytes(const char *text, size_t *out); /* from 1 on: k, M, G, kB, MB, GB, KiB, MiB, GiB */
bool parse_heads(const char *text, int n_heads, int *out); /* K/V heads, or MHA, GQA-G, MQA */
bool parse_double(const char *text, double *out);          /* with '.' and exponent; finite */

/* Puts the text up to one of the bytes in `ends` into item [size], as a string of its own, cut if
 * it does not fit; *rest moves behind it. Returns that byte, 0 at the end of the text. */
char list_next(const char **rest, const char *ends, char *item, size_t size);

/* The next of items that commas separate, likewise: false if *rest, which is NULL behind the last,
 * has none. */
bool list_item(const char **rest, char *item, size_t size);

/* Append integers, each from min to max; K/V heads as parse_heads has them; the indices of items in
 * `names` (ends with NULL); one number. STATUS_USAGE also for more than LIST_MAX items, an empty
 * one or one twice. */
enum status list_ints(const char *option, const char *text, int min, int max, struct int_list *list,
                      struct err *e);
enum status list_heads(const char *option, const char *text, int n_heads, struct int_list *list,
                       struct err *e);
enum status list_names(const char *option, const char *text, const char *const *names,
                       struct int_list *list, struct err *e);
enum status list_add(const char *option, int item, struct int_list *list, struct err *e);

/* The index of `text`, in any case, among names that end with NULL, or -1. */
int names_find(const char *const *names, const char *text);

/* A list of ids in [0, n_ids), "1,2,3" or in any form that is printed: "1 2 3", "[1, 2, 3]",
 * several of these one after the other; an empty text is an empty list. *ids is the caller's to
 * free, also on failure. */
enum status parse_ids(const char *option, const char *text, int n_ids, int32_t **ids, size_t *n,
                      struct err *e);

/* Of --score-scale, which several commands have: above 0, "none" is 1. */
enum status parse_score_scale(const char *text, float *scale, struct err *e);

/* --- which heads of a model a command is about ----------------------------------------------- */

/* Of the options; a command has them in a table of its own, with its VALUES. */
#define OPT_LAYER(member, ...) OPT_STRING("layer", member, "L,...|all", __VA_ARGS__)

/* Ascending numbers, each once. */
struct choice {
    int *items; /* malloc'd */
    int n;
};

/* The numbers below n_all that a list "0,3", or "all", or NULL (all) names. STATUS_NO_MEMORY.
 * choice_free is due in every case, and legal on a zeroed struct and twice. */
enum status choice_of(const char *option, const char *text, int n_all, struct choice *out,
                      struct err *e);
void choice_free(struct choice *c);

/* One head, "L.H". */
enum status head_of_option(const char *option, const char *text, const struct config *c, int *layer,
                           int *head, struct err *e);

/* A byte for every head of the model, [n_layers, n_heads], 1 for those of a list "0.3,2.1", each
 * once, as malloc'd memory of the caller, also on failure. STATUS_NO_MEMORY. */
enum status heads_of_option(const char *option, const char *text, const struct config *c,
                            unsigned char **heads, struct err *e);
