/*
 * shape - a transformer's sizes as a text: "12x768x12,ctx=4096", or the name of a known one.
 */
#pragma once

#include "base/status.h"
#include "model/config.h"

/* The presets (arch_preset) of new models, first the usual one; NULL at the end. */
extern const char *const shape_archs[];

/* What the user calls them: "--heads", "--embd", "--head-dim". */
struct shape_words {
    const char *heads, *d_model, *head_dim, *score;
};

/* Fills in sizes that are 0: as many K/V heads as query heads, heads of d_model / n_heads, a
 * feed-forward part of 4 * d_model (gated kinds: 8/3 in steps of 32), vocabulary and context of
 * GPT-2. Layers, width, heads, architecture and kinds are known. An architecture that cannot have
 * heads of this size becomes `decode`. STATUS_USAGE for heads that no model has. */
enum status shape_complete(struct config *c, const struct shape_words *words, struct err *e);

/* Reads LAYERSxD_MODELxHEADS[,arch=A][,ff=F][,vocab=V][,ctx=C][,dk=K][,dv=V][,kv=G][,score=S]
 * [,window=W], by default a gpt2, or the name of a shape followed by such changes, and completes
 * it. Windows W/W/... are those of the layers, repeated. STATUS_USAGE says which number, its range
 * and what was found. */
enum status shape_parse(const char *text, struct config *c, struct err *e);

/* Shapes that have a name; the last one has none. */
struct named_shape {
    const char *name, *arch, *sizes, *paper;
};
extern const struct named_shape named_shapes[];

#define SHAPE_FORM "LAYERSxD_MODELxHEADS[,arch=A][,ff=F][,vocab=V][,ctx=C][,dk=K][,dv=V][,kv=G]"
