/* conversions - opens and converts checkpoints in memory, and writes one function in other weights.
 */
#ifndef TESTS_CONVERSIONS_H
#define TESTS_CONVERSIONS_H

#include "checkpoints.h"
#include "convert/convert.h"
#include "model/model.h"
#include "support.h"

#define N_CALIB 1280 /* tokens of calibration */

struct opened {
    unsigned char *bytes;
    size_t len;
    struct gguf *gguf;
    struct model *model;
};

/* A test of conversions without threads. */
#define CONVERSION_TEST(...) TEST(__VA_ARGS__, .seconds = 300, .tags = ONE_THREAD)

/* What is opened is closed when the test ends. */
struct opened open_path(const char *path);
struct opened open_shape(const struct checkpoint_shape *shape);
/* Two layers of n_heads heads of 8 elements, of which `base` differ (0: all). */
struct checkpoint_shape mha_shape(int n_heads, int base);
struct opened open_mha(int n_heads, int base);
/* Golden files with every kind of norm, positions and K/V heads, which are opened by their names.
 */
#define N_KINDS 11
extern const char *const golden_kinds[N_KINDS];
struct opened open_golden_kind(const char *name);

struct convert_spec spec_of(const struct opened *o, int g, enum convert_method method);
/* The spec with n tokens of calibration: those of `calib`, which it draws anew. */
extern int32_t calib[N_CALIB];
struct convert_spec with_text(struct convert_spec spec, int n);
/* A spec that fits g K/V heads to all N_CALIB tokens. */
struct convert_spec fit_to(const struct opened *o, int g, bool refit);

/* The losses of up to 8 layers go to `lost`, which may be NULL. */
struct opened convert_to(const struct convert_spec *spec, struct convert_layer *lost);

/*
 * How plant() writes a checkpoint in other weights, of F32. Head j of a layer's `kv_heads` new K/V
 * heads is a copy of the old head j * base / kv_heads; only the first `base` old heads are used, so
 * the function is that of the checkpoint with these. A gauge then maps each new head's keys and
 * values and takes the map back in queries and output: any invertible map where positions do not
 * turn keys, a complex factor for each pair where they do.
 */
struct planting {
    int kv_heads[8], base[8]; /* by layer */
    bool gauge;
    bool dense;       /* any invertible map of turned keys, too, which changes the function */
    bool permute;     /* query heads change places together with their K/V heads (MHA only) */
    int extra_values; /* elements added to each value, random, as are their columns of the output */
    int n_turned;     /* rope.dimension_count; 0: the old one */
    uint64_t seed;
};
struct opened plant(const struct opened *o, const struct planting *p);

/* Every layer with the same numbers. */
struct planting planting_of(int kv_heads, int base);

#endif
