/*
 * shape - a transformer's sizes as a text: "12x768x12,ctx=4096", or the name of a known one.
 */
#pragma once

#include "base/status.h"
#include "model/config.h"

/* What a new model can be made as, of arch_preset; first the usual one. */
extern const char *const shape_archs[];

/* What the user calls them: "--heads", "--embd", "--head-dim". */
struct shape_words {
    const char *heads, *d_model, *head_dim, *score;
};

/* Fills in sizes that are 0: K/V heads as query heads, heads of d_model / n_heads, ff 4 * d_model,
 * or 8/3 of it in steps of 32 for gated kinds, vocabulary and context as GPT-2's. Layers, width,
 * heads, architecture and kinds are there; an architecture that has no heads of such a size becomes
 * `decode`. STATUS_USAGE for heads that no model has. */
enum status shape_complete(struct config *c, const struct shape_words *words, struct err *e);

/* LAYERSxD_MODELxHEADS[,arch=A][,ff=F][,vocab=V][,ctx=C][,dk=K][,dv=V][,kv=G][,score=S][,window=W]
 * (windows W/W/... are those of the layers, again and again): a shape,
 * completed, by default of a gpt2; or one that has a name, followed by the same. STATUS_USAGE says
 * which number, its range and what was found. */
enum status shape_parse(const char *text, struct config *c, struct err *e);

/* Shapes that have a name; the last one has none. */
struct named_shape {
    const char *name, *arch, *sizes, *paper;
};
extern const struct named_shape named_shapes[];

#define SHAPE_FORM "LAYERSxD_MODELxHEADS[,arch=A][,ff=F][,vocab=V][,ctx=C][,dk=K][,dv=V][,kv=G]"
