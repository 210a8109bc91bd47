/*
 * info_properties - what info says of a checkpoint, or of a shape, as a whole: file,
 * hyperparameters, tokenizer, types and keys.
 */
#ifndef DECODE_CLI_INFO_PROPERTIES_H
#define DECODE_CLI_INFO_PROPERTIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "cli/info.h"
#include "model/config.h"
#include "json/write.h"

/* Borrows from the info that it describes, but for by_layer. */
struct info_properties {
    const char *path;
    uint64_t file_bytes, gguf_version, n_keys, n_tensors;
    const char *shape, *type;
    char size[64], format[96];
    struct text architecture, name;
    char variant[16];
    struct config config;
    const char *norm, *placement, *position, *ffn;
    char block[96];        /* these in words */
    struct text kv_heads;  /* layer by layer; empty: all have as many */
    struct text latent;    /* ranks, likewise; empty: none */
    struct bytes by_layer; /* that one of these is in */
    double norm_eps;
    int value_dim;
    bool tied;
    const char *refusal; /* NULL: it runs */
    const char *output;
    struct text tokenizer;
    const char *problem;
    int n_tokens;
    int64_t bos, eos; /* -1: none */
    bool adds_bos;
    char bos_note[48];
};

/* Whatever is returned, p->by_layer is the caller's to free (see base/text.h). STATUS_NO_MEMORY.
 */
enum status info_describe(struct info_properties *p, const struct info *info, struct err *e);

/* A table of a property a row. STATUS_NO_MEMORY. */
enum status info_properties_print(const struct info *info, const struct info_properties *p,
                                  struct err *e);

/* Members of the object that is open. */
void info_properties_json(struct json *j, const struct info *info, const struct info_properties *p);

#endif
