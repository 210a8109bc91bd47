/*
 * fuzz_model - loads the input as a checkpoint, tokenizer and model, and runs a few tokens. A file
 * may be refused, with one clean line. A file that loads must run, also with fewer K/V heads or
 * matrices of another type, and a prompt fed at once must give the bits of one fed token by token.
 * Its conversion to fewer K/V heads must be written, read again and run, with these heads and
 * nothing else changed.
 */
#include "base/hash.h"
#include "convert/convert.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "formats/gguf_values.h"
#include "model/config_keys.h"
#include "model/layout.h"
#include "target.h"
#include "text/tokenizer.h"
#include "train/params.h"

/* --- the vocabulary --------------------------------------------------------------------------- */

/* Whether decoding gives the bytes back: "llama" adds spaces, and has marks for spaces. */
static bool keeps_texts(const struct gguf *g)
{
    const struct gguf_value *model = gguf_find(g, "tokenizer.ggml.model");
    return model && model->kind == GGUF_STRING && text_is(model->bytes, "gpt2") &&
           !gguf_find(g, "tokenizer.ggml.add_space_prefix") &&
           !gguf_find(g, "tokenizer.decode.replacements") &&
           !gguf_find(g, "tokenizer.decode.marks");
}

/* Encoding may refuse a character, or all texts. Otherwise its ids are of the vocabulary and, if
 * `exact`, decoding gives the text back. */
static void round_trip(const struct tokenizer *t, struct text text, bool exact)
{
    int32_t *ids;
    size_t n, len = 0;
    struct err e = {{0}};
    const enum status s = tokenizer_encode(t, text, false, &ids, &n, &e);
    if (s != STATUS_OK) {
        const bool reads = tokenizer_reads_text(t, NULL) == STATUS_OK;
        require_refused(s, reads ? STATUS_USAGE : STATUS_BAD_FILE, &e);
        require(!ids);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        require(ids[i] >= 0 && ids[i] < tokenizer_n_tokens(t));
        const struct text bytes = tokenizer_bytes(t, ids[i]);
        require(bytes.len > 0);
        require(!exact || (bytes.len <= text.len - len &&
                           memcmp(text.data + len, bytes.data, bytes.len) == 0));
        len += bytes.len;
    }
    require(!exact || len == text.len);
    free(ids);
}

/* Tries the vocabulary of a file, if it is not refused: every token's bytes, and texts of all
 * kinds. */
static struct tokenizer *try_vocabulary(const struct gguf *g)
{
    static const char *const texts[] = {
        "", "To be, or\n  not to be? They'll 've 1234 \xc3\xa9\xe4\xb8\xad \xff\xc3 x",
        "a b  ab\n\n 12 \xc3\xa9\xe2 \xff <s>"};
    const bool exact = keeps_texts(g);
    struct tokenizer *t;
    struct err e = {{0}};
    const enum status s = tokenizer_create(g, &t, &e);
    if (s != STATUS_OK) {
        require_refused(s, STATUS_BAD_FILE, &e);
        require(!t);
        return NULL;
    }
    for (size_t i = 0; i < COUNT(texts); i++)
        round_trip(t, text_of(texts[i]), exact);
    for (int id = 0; id < tokenizer_n_tokens(t); id++) {
        tokenizer_is_special(t, id);
        round_trip(t, tokenizer_bytes(t, id), exact);
    }
    require(tokenizer_bos(t) < tokenizer_n_tokens(t) && tokenizer_eos(t) < tokenizer_n_tokens(t));
    return t;
}

/* --- the model -------------------------------------------------------------------------------- */

#define N_TOKENS 6

/* The way in which an input is run, which differs between inputs and is always the same for one. */
struct way {
    struct kv_type cache;
    const struct kernels *kernels;
    struct sampler_params sampling;
    uint64_t seed;
};

static struct way choose_way(uint64_t hash)
{
    struct way w = {.cache = kv_type_at(hash % KV_TYPES),
                    .sampling = {.temperature = hash >> 8 & 1 ? 0.9 : 0,
                                 .top_k = hash >> 9 & 1 ? 7 : 0,
                                 .top_p = hash >> 10 & 1 ? 0.9 : 1,
                                 .min_p = hash >> 11 & 1 ? 0.05 : 0,
                                 .repeat_penalty = hash >> 12 & 1 ? 1.1 : 1,
                                 .repeat_last_n = hash >> 13 & 1 ? -1 : 2},
                    .seed = hash};
    /* Half of the inputs run with kernels that the sanitizers watch. */
    if (hash >> 14 & 1)
        require(kernels_choose("scalar", &w.kernels, NULL) == STATUS_OK);
    return w;
}

/* Picks the tokens and feeds each alone; returns how many were fed. */
static int run_steps(const struct model *m, struct session *s, const struct way *w, int n,
                     int32_t *tokens, float *logits)
{
    struct sampler *sampler;
    struct err e = {{0}};
    int token = m->config.n_vocab - 1, done = 0;
    const struct sampler_sizes sizes = {m->config.n_vocab, n, 1, 1};
    require(sampler_create(&w->sampling, &sizes, &sampler, &e) == STATUS_OK);
    sampler_reset(sampler, 0, w->seed, 0);
    while (done < n) {
        tokens[done] = token;
        require(session_feed(s, 0, &tokens[done++], 1, logits, false, &e) == STATUS_OK);
        sampler_accept(sampler, 0, token);
        /* The weights may be anything, NaN too. */
        const enum status picked = sampler_pick(sampler, 0, 0, logits, &token, &e);
        if (picked != STATUS_OK) {
            require_refused(picked, STATUS_FAILED, &e);
            break;
        }
        require(token >= 0 && token < m->config.n_vocab);
    }
    sampler_free(sampler);
    return done;
}

/* The bytes that a session may take: layers of a shared block cost a file nothing, but each has a
 * cache. */
#define MAX_BYTES (32 << 20)

static void run_model(const struct model *m, const struct way *w)
{
    struct session *steps, *prefill;
    struct err e = {{0}};
    const int n = m->config.n_ctx < N_TOKENS ? m->config.n_ctx : N_TOKENS;
    /* Blocks of 4: a prompt of more ends with a block that is not full. */
    const struct session_params p = {
        .n_ctx = n, .kv_type = w->cache, .block = 4, .kernels = w->kernels};
    int32_t tokens[N_TOKENS];
    struct session_memory memory;
    require(session_plan(m, &p, 1, &memory, &e) == STATUS_OK);
    if (memory.kv_bytes + memory.scratch_bytes > MAX_BYTES)
        return;
    require(session_create(m, &p, NULL, &steps, &e) == STATUS_OK);
    require(session_create(m, &p, NULL, &prefill, &e) == STATUS_OK);
    const size_t bytes = (size_t)m->config.n_vocab * sizeof(float);
    float *a = malloc(bytes), *b = malloc(bytes);
    require(a && b);
    const int done = run_steps(m, steps, w, n, tokens, a);
    require(session_feed(prefill, 0, tokens, done, b, false, &e) == STATUS_OK);
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        require(memcmp(&a[i], &b[i], sizeof a[i]) == 0 || (a[i] != a[i] && b[i] != b[i]));
    if (done == n)
        require_refused(session_feed(steps, 0, tokens, 1, NULL, false, &e), STATUS_USAGE, &e);
    free(a);
    free(b);
    session_free(steps);
    session_free(prefill);
}

/* Reads the file as training does, which must take every file that loads as a model. */
static void read_params(const struct gguf *g, bool loads)
{
    struct config c;
    struct param_list list;
    struct arena arena = {0};
    struct err e = {{0}};
    enum status s = config_read(g, &c, &e);
    if (s == STATUS_OK)
        s = param_list_create(&list, &c, g, PARAMS_OF_FILE, &e);
    if (s != STATUS_OK) {
        require(!loads);
        require_refused(s, STATUS_BAD_FILE, &e);
        return;
    }
    param_view_take(&arena, &list, list.n_floats, &c);
    require(arena_allocate(&arena, "the parameters", &e) == STATUS_OK);
    const struct param_view v = param_view_take(&arena, &list, list.n_floats, &c);
    param_list_read(&list, g, v.flat);
    require(v.w[ROLE_TOKEN_EMBD].weight && v.w[ROLE_OUTPUT].weight);
    require(list.n_params <= list.n_floats);
    arena_free(&arena);
    param_list_free(&list);
}

static void load_model(const struct gguf *g, uint64_t hash)
{
    static const enum storage storages[] = {STORAGE_F32, STORAGE_F16, STORAGE_BF16, STORAGE_Q8_0,
                                            STORAGE_Q4_0};
    const struct way w = choose_way(hash);
    struct model *m;
    struct err e = {{0}};
    enum status s = model_create(g, NULL, NULL, &m, &e);
    read_params(g, s == STATUS_OK);
    if (s != STATUS_OK) {
        require(!m);
        require_refused(s, STATUS_BAD_FILE, &e);
        return;
    }
    run_model(m, &w);
    int heads = (m->config.n_kv_heads + 1) / 2;
    while (m->config.n_kv_heads % heads)
        heads--;
    const struct model_options o = {
        .random_kv_heads = heads, .convert = hash >> 15 & 1, .storage = storages[(hash >> 16) % 5]};
    model_free(m);
    s = model_create(g, &o, NULL, &m, &e);
    if (s != STATUS_OK) { /* rows that are no whole blocks */
        require_refused(s, STATUS_USAGE, &e);
        return;
    }
    require(m->config.n_kv_heads == o.random_kv_heads);
    run_model(m, &w);
    model_free(m);
}

/* --- the conversion --------------------------------------------------------------------------- */

#define MAX_CALIB 192

/* Only attention's tensors may change, and no norm. */
static void compare(const struct config *c, const struct gguf *old, const struct gguf *new)
{
    require(new->n_tensors == old->n_tensors);
    for (size_t i = 0; i < old->n_tensors; i++) {
        struct tensor_spec spec;
        const struct gguf_tensor *a = &old->tensors[i], *b = &new->tensors[i];
        const bool known = layout_named(c, a->name, &spec);
        const bool may_change = known && spec.form != FORM_NORM && spec.role >= ROLE_ATTN_QKV &&
                                spec.role <= ROLE_ATTN_OUTPUT;
        require(text_equal(a->name, b->name) && b->type == a->type);
        if (!may_change)
            require(b->n_bytes == a->n_bytes && memcmp(a->data, b->data, a->n_bytes) == 0);
    }
}

/* Work grows with the cube of the width and with the sets of heads that are compared (924 of 12
 * heads, each for 4096 masks; pairs alone of more than 12). A conversion that takes more than some
 * milliseconds is left to the tests. The file's size bounds everything else. */
static bool is_small(const struct config *c, bool cluster)
{
    return c->d_model <= 32 && c->n_layers <= 4 && !(cluster && c->n_heads > 8 && c->n_heads <= 12);
}

static void check_converted(const struct convert_spec *spec, const struct config *config,
                            const struct convert *c, const struct way *w)
{
    unsigned char *bytes;
    size_t len;
    struct model *m;
    struct err e = {{0}};
    if (!writable(spec->gguf)) {
        require_refused(gguf_write_memory(c->writer, &bytes, &len, &e), STATUS_USAGE, &e);
        return;
    }
    struct gguf *out = require_written(c->writer, &bytes);
    compare(config, spec->gguf, out);
    require(model_create(out, NULL, NULL, &m, NULL) == STATUS_OK);
    const uint64_t numbers = (uint64_t)(m->config.head_dim + config_value_dim(&m->config));
    const uint64_t cached = (uint64_t)config_all_kv_heads(&m->config) * numbers * sizeof(float);
    require(spec->cache_bytes ? cached <= spec->cache_bytes
                              : m->config.n_kv_heads == spec->n_kv_heads);
    run_model(m, w);
    model_free(m);
    gguf_free(out);
    free(bytes);
}

/* Converts to a number of heads, or of bytes a token, that the hash chooses and that may be
 * impossible. */
static void convert(const struct gguf *g, const struct config *config, uint64_t hash)
{
    static const int heads[] = {1, 1, 1, 2, 2, 3, 4, 8};
    const struct way w = choose_way(hash);
    int32_t tokens[MAX_CALIB];
    struct convert c;
    struct err e = {{0}};
    size_t bytes = 0;
    const struct convert_spec spec = {
        .gguf = g,
        .source_name = "in.gguf",
        .version = "0",
        .n_kv_heads = heads[hash % 8],
        .method = (enum convert_method)(hash >> 4 & 1 ? CONVERT_FIT : hash >> 5 & 3),
        .cluster = hash >> 7 & 1,
        .refit = hash >> 8 & 1,
        .seed = hash,
        .tokens = tokens,
        .n_tokens = hash >> 9 & 1 ? MAX_CALIB : 0,
        .cache_bytes = hash >> 10 & 3 ? 0 : 1 + (hash >> 12 & 4095),
    };
    if (!is_small(config, spec.cluster))
        return;
    for (int i = 0; i < MAX_CALIB; i++)
        tokens[i] = i * 7 % config->n_vocab;
    const enum status planned = convert_plan(&spec, &bytes, &e);
    if (planned != STATUS_OK)
        require_refusal(planned, &e);
    const enum status s = convert_run(&spec, &c, &e);
    require(planned == STATUS_OK || s == planned);
    if (s != STATUS_OK) {
        require_refusal(s, &e);
        return;
    }
    for (int l = 0; l < c.n_layers; l++)
        require(c.layers[l].score >= 0 && c.layers[l].output >= 0);
    check_converted(&spec, config, &c, &w);
    convert_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *g;
    struct config config;
    if (gguf_parse(data, size, &g, NULL) != STATUS_OK)
        return 0;
    const uint64_t hash = hash_bytes(HASH_START, data, size) >> 20;
    tokenizer_free(try_vocabulary(g));
    load_model(g, hash);
    if (config_read(g, &config, NULL) == STATUS_OK)
        convert(g, &config, hash >> 20);
    gguf_free(g);
    return 0;
}
