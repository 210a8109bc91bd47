/* The conversion of every architecture: exact where nothing has to be lost, its reported losses
 * those of plain loops, and what a file's form and positions allow. */
#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversions.h"
#include "engine/session.h"
#include "support.h"

#define MAX_LAYERS 3

/* As many heads as there are query heads, all different: another function than the file's. */
static struct opened open_as_mha(const char *name)
{
    struct opened file = open_golden_kind(name);
    const struct config *c = &file.model->config;
    struct planting p = planting_of(c->n_heads, 0);
    for (int l = 0; l < c->n_layers; l++)
        p.base[l] = config_kv_heads(c, l);
    p.gauge = p.dense = true;
    p.seed = 3;
    const struct opened o = plant(&file, &p);
    return o;
}

/* --- nothing has to be lost ------------------------------------------------------------------ */

/* Checkpoints whose K/V heads are as many as their query heads, but equal, group by group, up to
 * what may be folded into queries and output. */
static const struct exact_case {
    const char *name;
    int own[MAX_LAYERS];  /* different heads, by block */
    int many[MAX_LAYERS]; /* that are made of them */
    int extra_values, n_turned;
} exact_cases[] = {
    /* Separate tensors, rotary, RMS norm. */
    {"llama", {2, 2}, {8, 8}, 0, 0},
    /* The second half of each head is not turned. */
    {"llama", {2, 2}, {8, 8}, 0, 4},
    /* The same and biases, K/V heads by layer, factors of frequencies. */
    {"mixed-llama", {2, 2, 1}, {6, 6, 1}, 0, 0},
    /* Joined, one block for three layers. */
    {"shared-block", {2}, {6}, 0, 0},
    /* Values wider than keys. */
    {"shared-block", {2}, {6}, 3, 0},
    /* Norms after the residuals, sinusoids, a scaled embedding. */
    {"transformer", {2, 2}, {6, 6}, 0, 0},
    {"transformer", {2, 2}, {6, 6}, 5, 0},
    {"mixed-sinusoidal", {1}, {5}, 0, 0},
    /* Trained biases of scores, which follow their heads. */
    {"quadratic", {3, 3}, {6, 6}, 0, 0},
    {"mixed-quadratic", {2, 1, 2}, {4, 1, 4}, 0, 0},
    /* Slopes that stay where they are. */
    {"alibi", {3, 3}, {6, 6}, 0, 0},
    {"mixed-alibi", {3, 3}, {6, 6}, 0, 0},
    {"layerwise-kv", {2, 2, 1}, {6, 2, 1}, 0, 0},
    {"mixed-none", {1, 1}, {3, 1}, 0, 0},
    {"mha", {2, 2}, {4, 4}, 0, 0},
};
#define N_EXACT ((int)(sizeof exact_cases / sizeof *exact_cases))

/* From weights alone and on text, without refit and with it. */
TEST(planted_heads_are_found, .loops = N_EXACT, .seconds = 300, .tags = ONE_THREAD)
{
    const struct exact_case *k = &exact_cases[_i];
    struct opened file = open_golden_kind(k->name);
    const struct config *c = &file.model->config;
    const bool may_move = c->position != POSITION_ALIBI;
    struct planting p = {.extra_values = k->extra_values, .n_turned = k->n_turned, .seed = 6};
    memcpy(p.base, k->own, sizeof k->own);
    memcpy(p.kv_heads, k->own, sizeof k->own);
    struct opened a = plant(&file, &p);
    memcpy(p.kv_heads, k->many, sizeof k->many);
    p.gauge = true;
    struct opened adjacent = plant(&file, &p);
    p.permute = may_move;
    struct opened moved = plant(&file, &p);
    double spread;
    for (int way = 0; way < 6; way++) {
        const bool cluster = way % 2;
        struct convert_spec spec = spec_of(cluster ? &moved : &adjacent, k->own[0], CONVERT_FIT);
        if (way >= 2)
            spec = with_text(spec, N_CALIB);
        spec.refit = way >= 4 ? CONVERT_REFIT_WO : CONVERT_REFIT_NONE;
        spec.cluster = cluster && may_move;
        struct convert_layer lost[MAX_LAYERS];
        struct opened b = convert_to(&spec, lost);
        ck_assert_uint_eq(b.gguf->n_tensors, file.gguf->n_tensors);
        ck_assert_double_lt(logits_apart(&a, &b, &spread), (spec.refit ? 3e-6 : 1e-6) * spread);
        ck_assert_double_lt(lost[0].score + lost[1].output, 1e-9);
    }
}

/* A real map across pairs cannot be folded into queries under rotary positions: heads that differ
 * by such have nothing in common, and it shows. */
TEST(turned_pairs_are_not_mixed, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_as_mha("llama");
    struct convert_spec spec = spec_of(&a, 2, CONVERT_FIT);
    struct convert_layer lost[MAX_LAYERS];
    struct opened b = convert_to(&spec, lost);
    double spread;
    ck_assert_double_gt(logits_apart(&a, &b, &spread), 0.02 * spread);
    for (int l = 0; l < 2; l++) {
        ck_assert_double_gt(lost[l].score, 0.02);
        ck_assert_double_lt(lost[l].output, 1e-9); /* of values it can */
    }
}

/* --- what scores lose ------------------------------------------------------------------------ */

#define N_ROWS 24
struct rows {
    int n;
    float x[MAX_LAYERS * N_ROWS * 64]; /* [n, d_model] what Q, K and V are products of */
};

/* Of the first layers that use block 0, on the first tokens of `calib`. */
static struct rows input_rows(const struct opened *o)
{
    const struct config *c = &o->model->config;
    const size_t d = (size_t)c->d_model;
    static float stream[N_ROWS * 64];
    struct rows r = {.n = 0};
    struct probe *p;
    expect_ok(probe_create(c, NULL, N_ROWS, NULL, NULL, &p, &err));
    for (int t = 0; t < N_ROWS; t++)
        model_embed(o->model, probe_positions(p), calib[t], t, stream + (size_t)t * d);
    for (int l = 0; l < (c->shared ? c->n_layers : 1); l++, r.n += N_ROWS) {
        const struct block_taps taps = {
            .at = {[TAP_NORMED] = r.x + (size_t)r.n * d, [TAP_OUT] = stream}};
        probe_run(p, &o->model->blocks[l], l, stream, N_ROWS, &taps);
    }
    probe_free(p);
    return r;
}

/* A pair of a query, or of the key that it meets, as a complex number. */
static double complex pair_of(const struct opened *o, bool is_key, int head, int pair,
                              const float *x)
{
    const struct config *c = &o->model->config;
    const int first =
        is_key ? config_q_dim(c) + head / config_group(c, 0) * c->head_dim : head * c->head_dim;
    const double complex i = (double complex)I;
    return qkv_element(o, 0, first + 2 * pair, x) + i * qkv_element(o, 0, first + 2 * pair + 1, x);
}

/* [heads, pairs, rows] */
static double complex *pairs_of(const struct opened *o, bool is_key, const struct rows *r)
{
    const struct config *c = &o->model->config;
    const int n_pairs = c->head_dim / 2;
    double complex *z = malloc((size_t)(c->n_heads * n_pairs * r->n) * sizeof *z);
    for (int h = 0; h < c->n_heads; h++)
        for (int f = 0; f < n_pairs; f++)
            for (int i = 0; i < r->n; i++)
                z[(h * n_pairs + f) * r->n + i] = pair_of(o, is_key, h, f, r->x + i * c->d_model);
    return z;
}

static double square(double complex z)
{
    return creal(z) * creal(z) + cimag(z) * cimag(z);
}

/* Over all heads, pairs and two rows: the score's part turns with the distance at the pair's
 * frequency, so over all turns its square is half that of the complex product. */
static double direct_turned_loss(const struct opened *a, const struct opened *b,
                                 const struct rows *r)
{
    const struct config *c = &a->model->config;
    double complex *q = pairs_of(a, false, r), *k = pairs_of(a, true, r);
    double complex *q2 = pairs_of(b, false, r), *k2 = pairs_of(b, true, r);
    double lost = 0, all = 0;
    for (int h = 0; h < c->n_heads * c->head_dim / 2; h++)
        for (int i = h * r->n; i < (h + 1) * r->n; i++)
            for (int j = h * r->n; j < (h + 1) * r->n; j++) {
                const double complex own = conj(q[i]) * k[j];
                lost += square(own - conj(q2[i]) * k2[j]);
                all += square(own);
            }
    free(q), free(k), free(q2), free(k2);
    return lost / all;
}

/* The largest eigenvalue of the Hermitian m [n, n], by powers. */
static double largest_eigenvalue(const double complex *m, int n)
{
    double complex v[8], next[8];
    double value = 0;
    for (int i = 0; i < n; i++)
        v[i] = 1 + 0.3 * i * (double complex)I;
    for (int round = 0; round < 3000; round++) {
        double size = 0;
        for (int i = 0; i < n; i++) {
            next[i] = 0;
            for (int j = 0; j < n; j++)
                next[i] += m[i * n + j] * v[j];
            size += square(next[i]);
        }
        value = sqrt(size);
        for (int i = 0; i < n; i++)
            v[i] = next[i] / value;
    }
    return value;
}

/* The least that neighbours in groups can lose: of each pair all but the largest eigenvalue of
 * s_g s_h E k_g conj(k_h), where s^2 is a head's E |q|^2. */
static double least_turned_loss(const struct opened *a, int n_groups, const struct rows *r)
{
    const struct config *c = &a->model->config;
    const int n_pairs = c->head_dim / 2, group = c->n_heads / n_groups;
    double complex *q = pairs_of(a, false, r), *k = pairs_of(a, true, r);
    double kept = 0, all = 0;
    for (int item = 0; item < n_groups * n_pairs; item++) {
        double complex m[64] = {0};
        double size[8] = {0};
        const int first = item / n_pairs * group, f = item % n_pairs;
        for (int g = 0; g < group; g++)
            for (int i = 0; i < r->n; i++)
                size[g] += square(q[((first + g) * n_pairs + f) * r->n + i]);
        for (int g = 0; g < group; g++)
            for (int h = 0; h < group; h++)
                for (int i = 0; i < r->n; i++)
                    m[g * group + h] += sqrt(size[g] * size[h]) *
                                        k[((first + g) * n_pairs + f) * r->n + i] *
                                        conj(k[((first + h) * n_pairs + f) * r->n + i]);
        kept += largest_eigenvalue(m, group);
        for (int g = 0; g < group; g++)
            all += creal(m[g * group + g]);
    }
    free(q), free(k);
    return 1 - kept / all;
}

TEST(turned_scores_lose_what_plain_loops_find, .loops = 2, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_as_mha(_i ? "shared-block" : "llama");
    for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method++) {
        const struct convert_spec spec =
            with_rows(spec_of(&a, 2, (enum convert_method)method), N_ROWS);
        struct convert_layer lost[MAX_LAYERS];
        struct opened b = convert_to(&spec, lost);
        const struct rows r = input_rows(&a);
        ck_assert_double_eq_tol(lost[0].score, direct_turned_loss(&a, &b, &r), 1e-5);
        if (method == CONVERT_FIT)
            ck_assert_double_eq_tol(lost[0].score, least_turned_loss(&a, 2, &r), 1e-5);
    }
}

/* --- what the output loses ------------------------------------------------------------------- */

/* Both models' streams go through their layers; `lost` [n_layers]: squared distance after attention
 * over the energy that the first model's attention adds, centred. */
static void direct_output_losses(const struct opened *a, const struct opened *b, double *lost)
{
    const struct config *c = &a->model->config;
    const struct opened *both[] = {a, b};
    const int d = c->d_model;
    static float stream[2][N_ROWS * 64], middle[2][N_ROWS * 64];
    struct probe *p[2];
    for (int i = 0; i < 2; i++) {
        const struct config *own = &both[i]->model->config;
        const float *factors = both[i]->model->w[ROLE_ROPE_FREQS].table;
        expect_ok(probe_create(own, factors, N_ROWS, NULL, NULL, &p[i], &err));
        for (int t = 0; t < N_ROWS; t++)
            model_embed(both[i]->model, probe_positions(p[i]), calib[t], t, stream[i] + t * d);
    }
    for (int l = 0; l < c->n_layers; l++) {
        double energy = 0, distance = 0, sums[64] = {0};
        static float before[N_ROWS * 64];
        memcpy(before, stream[0], sizeof before);
        for (int i = 0; i < 2; i++) {
            const struct block_taps taps = {
                .at = {[TAP_MIDDLE] = middle[i], [TAP_OUT] = stream[i]}};
            probe_run(p[i], &both[i]->model->blocks[l], l, stream[i], N_ROWS, &taps);
        }
        for (int t = 0; t < N_ROWS * d; t++) {
            const double added = (double)middle[0][t] - (double)before[t];
            sums[t % d] += added;
            energy += added * added;
            distance += pow((double)middle[0][t] - (double)middle[1][t], 2);
        }
        for (int i = 0; i < d; i++)
            energy -= sums[i] * sums[i] / N_ROWS;
        lost[l] = distance / energy;
    }
    probe_free(p[0]), probe_free(p[1]);
}

TEST(output_loses_what_the_streams_do, .loops = N_KINDS, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_golden_kind(golden_kinds[_i]);
    for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method++) {
        struct convert_spec spec = with_rows(spec_of(&a, 1, (enum convert_method)method), N_ROWS);
        struct convert_layer lost[MAX_LAYERS];
        struct opened b = convert_to(&spec, lost);
        double direct[MAX_LAYERS];
        direct_output_losses(&a, &b, direct);
        for (int l = 0; l < a.model->config.n_layers; l++)
            ck_assert_double_eq_tol(lost[l].output, direct[l], 1e-4 * direct[l] + 1e-9);
    }
}

/* The refit is for what attention adds, and the least squares are those of the text. Of a shared
 * block they are of all layers together, on the checkpoint's own stream: the first has that. */
TEST(refit_lowers_the_loss, .loops = N_KINDS, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_golden_kind(golden_kinds[_i]);
    const bool shared = a.model->config.shared;
    struct convert_spec spec = with_text(spec_of(&a, 1, CONVERT_FIT), N_CALIB);
    for (int i = 0; i < N_CALIB; i++)
        calib[i] %= 16; /* so few that the windows kept aside are much like the others */
    struct convert_layer plain[MAX_LAYERS], refitted[MAX_LAYERS];
    convert_to(&spec, plain);
    spec.refit = CONVERT_REFIT_WO;
    convert_to(&spec, refitted);
    for (int l = 0; l < (shared ? 1 : a.model->config.n_layers); l++)
        if (plain[l].output > 1e-6)
            ck_assert_double_lt(refitted[l].output, plain[l].output);
}

/* First with random heads, at last with those of a trained model: there fit loses least of the
 * output on a text, too, and what is not fitted loses much. */
TEST(fit_loses_least, .loops = SANITIZED ? 6 : 2 * N_KINDS + 4, .seconds = 300, .tags = ONE_THREAD)
{
    const struct checkpoint_shape random = {SIZES(2, 8, 8, 8, 64, 64, 300), .type = TENSOR_F32,
                                            .seed = 7};
    const int kind = _i / 2 - 1;
    struct opened a = kind < 0         ? open_shape(&random)
                      : kind < N_KINDS ? open_as_mha(golden_kinds[kind])
                                       : open_path("tests/data/shakespeare-bytes.gguf");
    const bool text = _i % 2, all_differ = kind < 0 || kind == N_KINDS;
    for (int g = 1; g <= 4 && a.model->config.n_heads % g == 0; g *= 2) {
        struct convert_layer lost[CONVERT_FIT + 1][8], clustered[8];
        for (int method = CONVERT_MEAN; method <= CONVERT_FIT; method++) {
            struct convert_spec spec = spec_of(&a, g, (enum convert_method)method);
            if (text)
                spec = with_text(spec, N_CALIB);
            struct opened b = convert_to(&spec, lost[method]);
            ck_assert(isfinite(logits_apart(&a, &b, NULL)));
            spec.cluster = a.model->config.position != POSITION_ALIBI;
            if (method == CONVERT_FIT)
                convert_to(&spec, clustered);
        }
        for (int l = 0; l < a.model->config.n_layers; l++) {
            const struct convert_layer *fit = &lost[CONVERT_FIT][l];
            if (!text)
                ck_assert_double_le(clustered[l].score + clustered[l].output,
                                    fit->score + fit->output + 1e-9);
            for (int method = CONVERT_MEAN; method < CONVERT_FIT; method++) {
                ck_assert_double_le(fit->score, lost[method][l].score);
                if (all_differ)
                    ck_assert_double_le(fit->output, lost[method][l].output);
                else if (!text)
                    ck_assert_double_le(fit->output, lost[method][l].output + 1e-9);
                if (all_differ && (method == CONVERT_MEAN || method == CONVERT_PROCRUSTES))
                    ck_assert_double_gt(lost[method][l].score, 0.01);
            }
        }
    }
}

/* --- the file -------------------------------------------------------------------------------- */

static const struct gguf_tensor *find_part(const struct opened *o, int layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", layer, part);
    return gguf_find_tensor(o->gguf, name);
}

TEST(means_are_those_of_the_loader, .loops = N_KINDS, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_as_mha(golden_kinds[_i]), b = {.bytes = NULL};
    const int g = a.model->config.n_heads % 2 ? 1 : 2;
    const struct model_options options = {.n_kv_heads = g};
    const struct convert_spec spec = spec_of(&a, g, CONVERT_MEAN);
    struct opened c = convert_to(&spec, NULL);
    expect_ok(model_create(a.gguf, &options, NULL, &b.model, &err));
    double spread;
    ck_assert_double_lt(logits_apart(&c, &b, &spread), 1e-6 * spread);
    model_free(b.model);
}

TEST(tensors_stay_separate, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_golden_kind("llama");
    const struct convert_spec spec = spec_of(&a, 1, CONVERT_FIT);
    struct opened b = convert_to(&spec, NULL);
    static const struct {
        const char *part;
        uint64_t rows;
    } parts[] = {{"attn_q.weight", 64}, {"attn_k.weight", 8}, {"attn_v.weight", 8}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const struct gguf_tensor *t = find_part(&b, 1, parts[i].part);
        ck_assert(t && t->dims[0] == 64 && t->dims[1] == parts[i].rows);
    }
    for (size_t i = 0; i < b.gguf->n_tensors; i++)
        ck_assert(text_equal(a.gguf->tensors[i].name, b.gguf->tensors[i].name));
    ck_assert_uint_eq(a.gguf->n_tensors, b.gguf->n_tensors);
    ck_assert(!text_ends_with(b.gguf->tensors[0].name, ".bias"));
}

TEST(layers_with_few_heads_keep_them, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_golden_kind("layerwise-kv");
    struct convert_spec spec = spec_of(&a, 2, CONVERT_FIT);
    struct opened b = convert_to(&spec, NULL);
    const struct gguf_value *heads = gguf_find(b.gguf, "decode.attention.head_count_kv");
    static const int expected[] = {2, 2, 1};
    ck_assert(heads && heads->kind == GGUF_ARRAY && heads->count == 3);
    for (int l = 0; l < 3; l++)
        ck_assert_int_eq(gguf_int_at(heads, (uint64_t)l), expected[l]);
    for (size_t i = 0; i < a.gguf->n_tensors; i++) {
        const struct gguf_tensor *from = &a.gguf->tensors[i], *to = &b.gguf->tensors[i];
        ck_assert(text_equal(from->name, to->name));
        if (!text_starts_with(from->name, "blk.0."))
            ck_assert_mem_eq(from->data, to->data, from->n_bytes);
    }
    /* With fewer there is one number, and a random method leaves those alone that stay. */
    spec = spec_of(&b, 1, CONVERT_RANDOM);
    struct opened c = convert_to(&spec, NULL);
    heads = gguf_find(c.gguf, "decode.attention.head_count_kv");
    ck_assert(heads && heads->kind == GGUF_U32 && gguf_int_at(heads, 0) == 1);
    ck_assert_mem_eq(find_part(&c, 2, "attn_qkv.weight")->data,
                     find_part(&b, 2, "attn_qkv.weight")->data, 64 * 48 * sizeof(float));
}

TEST(what_cannot_be_converted, .seconds = 300, .tags = ONE_THREAD)
{
    struct opened a = open_golden_kind("alibi");
    size_t bytes;
    struct convert_spec spec = spec_of(&a, 1, CONVERT_FIT);
    expect_ok(convert_plan(&spec, &bytes, &err));
    spec.cluster = true;
    expect_status(convert_plan(&spec, &bytes, &err), STATUS_USAGE, "ALiBi");
    /* A cache that heads share already. */
    struct gguf_writer *w;
    expect_ok(gguf_writer_create(&w, &err));
    for (size_t i = 0; i < a.gguf->n_pairs; i++)
        gguf_add_value(w, a.gguf->pairs[i].key, &a.gguf->pairs[i].value);
    for (size_t i = 0; i < a.gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &a.gguf->tensors[i];
        gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    gguf_add_u32(w, "decode.attention.latent", 24);
    struct gguf_file file = written_gguf(w);
    const struct opened latent = {.bytes = file.bytes, .len = file.len, .gguf = file.g};
    spec = spec_of(&latent, 1, CONVERT_FIT);
    expect_status(convert_plan(&spec, &bytes, &err), STATUS_BAD_FILE, "attention.latent");
    free_gguf(&file);
}

/* --- threads --------------------------------------------------------------------------------- */

TEST(any_number_of_threads_gives_the_same_bytes, .loops = N_KINDS, .seconds = 300)
{
    struct opened a = open_golden_kind(golden_kinds[_i]);
    struct convert_spec spec = with_text(spec_of(&a, 1, CONVERT_FIT), 200);
    spec.cluster = a.model->config.position != POSITION_ALIBI;
    spec.refit = CONVERT_REFIT_WO;
    expect_same_bytes(spec);
}
