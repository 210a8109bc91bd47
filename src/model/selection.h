/*
 * selection - which heads and layers of a model a text names: numbers of K/V heads, lists of layers
 * and of heads.
 *
 * STATUS_USAGE names the option, what was expected and what was found.
 */
#pragma once

#include "base/numbers.h"
#include "model/config.h"

/* Appends numbers of K/V heads, or MHA, GQA-G, MQA, of a model that has n_heads query heads;
 * STATUS_USAGE as list_ints. */
enum status list_heads(const char *option, const char *text, int n_heads, struct int_list *list,
                       struct err *e);

/* Checks that layers of this shape can have so many K/V heads: `numbers` has one for each layer, or
 * (n is 1) one for all, where a layer with fewer keeps its own. Each must divide the query heads
 * and be no more than the layer has; layers that share a block have the same. STATUS_USAGE, with a
 * message that begins with `option`. */
enum status heads_check(const char *option, const struct config *c, const int *numbers, int n,
                        struct err *e);

/* Reads the value of --kv-heads, one number for all layers or one for each, into `layers`
 * [CONFIG_MAX_LAYERS]; *n is how many were named. The failures of heads_check, too. */
enum status heads_of_layers(const char *kv_heads, const struct config *c, int *layers, int *n,
                            struct err *e);

/* Reads windows of layers into c->layer_window: integers from 0 on that bytes of `ends` separate,
 * one for all layers or one for each; with `repeats` also fewer, which are repeated. STATUS_USAGE.
 */
enum status windows_of_layers(const char *option, const char *text, const char *ends, bool repeats,
                              struct config *c, struct err *e);

/* Reads the value of --score-scale, which several commands have: a number above 0, or "none" for 1.
 */
enum status parse_score_scale(const char *text, float *scale, struct err *e);

/* Ascending numbers, each once. */
struct choice {
    int *items; /* malloc'd */
    int n;
};

/* Reads the numbers below n_all that a list "0,3" names; "all" or NULL names all. `option`,
 * "--layer", is for messages, also below. STATUS_USAGE for a number that is not there or named
 * twice; STATUS_NO_MEMORY. choice_free is due in every case, and legal on a zeroed struct and
 * twice. */
enum status choice_of(const char *option, const char *text, int n_all, struct choice *out,
                      struct err *e);
void choice_free(struct choice *c);

/* Reads one head, "L.H". STATUS_USAGE for a layer or head that `c` has not. */
enum status head_of_option(const char *option, const char *text, const struct config *c, int *layer,
                           int *head, struct err *e);

/* Sets *heads [n_layers, n_heads] to 1 for each head of a list "0.3,2.1" and 0 for the others.
 * STATUS_USAGE, also for a head named twice; STATUS_NO_MEMORY. The caller frees it in any case. */
enum status heads_of_option(const char *option, const char *text, const struct config *c,
                            unsigned char **heads, struct err *e);
