#include "hostile.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoints.h"
#include "formats/gguf_values.h"
#include "support.h"

/* A run may take so much memory more than on the good file, and so often the file's bytes (a byte
 * of a special token becomes a state of 25). */
#define SPARE_KIB  4096
#define FILE_TIMES 32

char good_path[600], bad_path[600], text_path[600], out_path[600];
struct hostile h;

static void *keep(const void *bytes, size_t len)
{
    ck_assert_int_lt(h.n_blocks, HOSTILE_MAX_RECORDS);
    void *copy = malloc(len + 1);
    ck_assert_ptr_nonnull(copy);
    if (len > 0)
        memcpy(copy, bytes, len);
    h.blocks[h.n_blocks++] = copy;
    return copy;
}

void hostile_set(const char *key, uint32_t kind, const void *value, size_t len)
{
    size_t i = 0;
    while (i < h.n_pairs && !text_is(h.pairs[i].key, key))
        i++;
    ck_assert_uint_lt(i, HOSTILE_MAX_RECORDS);
    h.n_pairs += i == h.n_pairs;
    h.pairs[i] = (struct hostile_pair){.key = {keep(key, strlen(key)), strlen(key)},
                                       .kind = kind,
                                       .value = {keep(value, len), len}};
}

void hostile_set_u32(const char *key, uint32_t value)
{
    hostile_set(key, GGUF_U32, &value, sizeof value);
}

static void set_bytes(const char *key, uint32_t kind, struct gguf_bytes *b)
{
    hostile_set(key, kind, b->data, b->len);
    free(b->data);
}

void hostile_set_text(const char *key, struct text value)
{
    struct gguf_bytes b = {0};
    gb_put_text(&b, value);
    set_bytes(key, GGUF_STRING, &b);
}

void hostile_set_array(const char *key, uint32_t element, uint64_t count, const void *payload,
                       size_t len)
{
    struct gguf_bytes b = {0};
    gb_put_u32(&b, element);
    gb_put_u64(&b, count);
    gb_put(&b, payload, len);
    set_bytes(key, GGUF_ARRAY, &b);
}

/* `good` has the records of the good checkpoint, `none` has none. */
static void hostile_open(void)
{
    size_t len;
    struct gguf *g;
    h.alignment = 32;
    h.source = read_file(good_path, &len);
    expect_ok(gguf_parse(h.source, len, &g, NULL));
    for (; h.n_pairs < g->n_pairs; h.n_pairs++) {
        const struct gguf_value *v = &g->pairs[h.n_pairs].value;
        /* The payload begins with a string's length, or an array's element type and count. */
        const size_t front = v->kind == GGUF_STRING ? 8 : v->kind == GGUF_ARRAY ? 12 : 0;
        h.pairs[h.n_pairs] = (struct hostile_pair){
            g->pairs[h.n_pairs].key, v->kind, {v->bytes.data - front, v->bytes.len + front}};
    }
    for (; h.n_tensors < g->n_tensors; h.n_tensors++) {
        const struct gguf_tensor *t = &g->tensors[h.n_tensors];
        h.tensors[h.n_tensors] =
            (struct hostile_tensor){.name = t->name,
                                    .n_dims = (uint32_t)t->n_dims,
                                    .dims = {t->dims[0], t->dims[1], t->dims[2], t->dims[3]},
                                    .type = t->type->type,
                                    .data = {(const char *)t->data, (size_t)t->n_bytes}};
    }
    gguf_free(g);
}

static void hostile_free(void *unused)
{
    (void)unused;
    while (h.n_blocks > 0)
        free(h.blocks[--h.n_blocks]);
    free(h.source);
    h.source = NULL;
    h.n_pairs = h.n_tensors = 0;
}

struct hostile_pair *hostile_pair(const char *key)
{
    for (size_t i = 0; i < h.n_pairs; i++)
        if (text_is(h.pairs[i].key, key))
            return &h.pairs[i];
    ck_abort_msg("no key %s", key);
}

struct hostile_tensor *hostile_tensor(const char *name)
{
    for (size_t i = 0; i < h.n_tensors; i++)
        if (text_is(h.tensors[i].name, name))
            return &h.tensors[i];
    ck_abort_msg("no tensor %s", name);
}

static void drop_pair(const char *key)
{
    struct hostile_pair *p = hostile_pair(key);
    h.n_pairs--;
    memmove(p, p + 1, (size_t)(h.pairs + h.n_pairs - p) * sizeof *p);
}

static void drop_tensor(const char *name)
{
    struct hostile_tensor *t = hostile_tensor(name);
    h.n_tensors--;
    memmove(t, t + 1, (size_t)(h.tensors + h.n_tensors - t) * sizeof *t);
}

struct hostile_tensor *hostile_add_tensor(const char *name, uint64_t rows, uint64_t columns,
                                          uint32_t type, struct text data)
{
    ck_assert_uint_lt(h.n_tensors, HOSTILE_MAX_RECORDS);
    struct hostile_tensor *t = &h.tensors[h.n_tensors++];
    *t = (struct hostile_tensor){.name = text_of(name),
                                 .n_dims = rows > 1 ? 2 : 1,
                                 .dims = {columns, rows, 1, 1},
                                 .type = type,
                                 .data = data};
    return t;
}

static void put_value(struct gguf_bytes *b, enum gguf_kind kind, const char *text, size_t len)
{
    static const unsigned char widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    const double x = strtod(text, NULL);
    const float f = (float)x;
    const uint64_t n = *text == '-' ? (uint64_t)strtoll(text, NULL, 0) : strtoull(text, NULL, 0);
    if (kind == GGUF_STRING)
        gb_put_text(b, (struct text){text, len});
    else
        gb_put(b,
               kind == GGUF_F32   ? (const void *)&f
               : kind == GGUF_F64 ? (const void *)&x
                                  : &n,
               widths[kind]);
}

/* KIND:VALUE, or KIND[]:VALUE,VALUE*N,... */
static void set_value(const char *key, const char *value)
{
    const size_t len = strcspn(value, "[:");
    const bool is_array = value[len] == '[';
    const char *at = strchr(value, ':') + 1;
    enum gguf_kind kind = GGUF_U8;
    while (strlen(gguf_kind_name(kind)) != len || memcmp(gguf_kind_name(kind), value, len) != 0)
        ck_assert_int_le(++kind, GGUF_F64);
    struct gguf_bytes b = {0};
    uint64_t n = 0;
    for (size_t size; is_array && *at; at += size + (at[size] == ',')) {
        size = strcspn(at, ",");
        const char *times = memchr(at, '*', size);
        for (int k = times ? atoi(times + 1) : 1; k > 0; k--, n++)
            put_value(&b, kind, at, times ? (size_t)(times - at) : size);
    }
    if (!is_array)
        put_value(&b, kind, at, strlen(at));
    if (is_array)
        hostile_set_array(key, kind, n, b.data, b.len);
    else
        hostile_set(key, kind, b.data, b.len);
    free(b.data);
}

static void set_dims(struct hostile_tensor *t, const char *dims)
{
    char *end;
    for (t->n_dims = 0; *dims; dims = end + (*end == 'x'))
        t->dims[t->n_dims++] = strtoull(dims, &end, 10);
}

/* Adds a tensor: 32 x 32 zeros, or a row of TYPE:BYTES in hexadecimal. */
static void add_bent(const char *name, const char *row)
{
    static const float zeros[32 * 32];
    unsigned char bytes[64];
    size_t n = 0;
    const char *kept = keep(name, strlen(name) + 1);
    if (!row) {
        hostile_add_tensor(kept, 32, 32, TENSOR_F32,
                           (struct text){(const char *)zeros, sizeof zeros});
        return;
    }
    const struct tensor_type_info *type = tensor_type_find((uint32_t)strtoul(row, NULL, 10));
    for (const char *c = strchr(row, ':') + 1; *c; c += 2)
        bytes[n++] = (unsigned char)strtol((const char[]){c[0], c[1], 0}, NULL, 16);
    hostile_add_tensor(kept, 1, n / type->block_bytes * type->block_elements, type->type,
                       (struct text){keep(bytes, n), n});
}

/* Sets all elements of a tensor of F32. */
static void fill(const char *tensor, float value)
{
    struct hostile_tensor *t = hostile_tensor(tensor);
    char *data = keep(t->data.data, t->data.len);
    for (size_t i = 0; i < t->data.len; i += sizeof value)
        memcpy(data + i, &value, sizeof value);
    t->data.data = data;
}

static void bend_one(char *one)
{
    char *middle = one + strcspn(one, "=~:");
    const char sign = *middle;
    *middle = 0;
    const char *value = sign ? middle + 1 : NULL;
    if (*one == '@')
        set_token(atoi(one + 1), text_of(value));
    else if (*one == '+')
        add_bent(one + 1, value);
    else if (*one == '-')
        drop_pair(one + 1);
    else if (*one == '!')
        drop_tensor(one + 1);
    else if (sign == '~')
        set_dims(hostile_tensor(one), value);
    else if (sign == ':')
        hostile_tensor(one)->type = (uint32_t)atoi(value);
    else if (strchr(value, ':'))
        set_value(one, value);
    else
        fill(one, strtof(value, NULL));
}

void bend(const char *bends)
{
    char one[400];
    for (size_t len; *bends; bends += len, bends += strspn(bends, "; ")) {
        len = strcspn(bends, ";");
        ck_assert_int_lt(snprintf(one, sizeof one, "%.*s", (int)len, bends), (int)sizeof one);
        unescape(one);
        bend_one(one);
    }
}

void set_token(int id, struct text token)
{
    struct text value = hostile_pair(TOKENS)->value;
    struct gguf_bytes b = {0};
    size_t at = 12;
    for (int i = 0; at < value.len; i++) {
        uint64_t len;
        memcpy(&len, value.data + at, 8);
        gb_put_text(&b, i == id ? token : (struct text){value.data + at + 8, (size_t)len});
        at += 8 + (size_t)len;
    }
    hostile_set_array(TOKENS, GGUF_STRING, 260, b.data, b.len);
    free(b.data);
}

void reset(void)
{
    hostile_free(NULL);
    hostile_open();
}

static void bent(const char *bends)
{
    bend(bends);
    hostile_write();
    reset();
}

void bent_refused(unsigned commands, const char *bends, const char *text)
{
    bent(bends);
    expect_refused_in_turn(commands, text);
}

void bent_refused_by_all(unsigned commands, const char *bends, const char *text)
{
    bent(bends);
    expect_refused(commands, text);
}

void bent_accepted(unsigned commands, const char *bends)
{
    bent(bends);
    expect_accepted(commands);
}

void use_sound(const struct sound *s)
{
    struct config c = config_sized(s->kinds, s->sizes);
    c.arch = arch_preset(text_of(s->preset));
    c.placement = s->placement;
    c.position = s->position;
    c.shared = s->shared;
    if (strcmp(s->preset, "decode") == 0) {
        c.norm = NORM_LAYER;
        c.biases = BIASES_ALL;
        c.split_qkv = false;
    }
    write_config_checkpoint(good_path, &c);
    reset();
}

void hostile_image(struct gguf_bytes *b)
{
    *b = (struct gguf_bytes){0};
    gb_put(b, "GGUF\3\0\0\0", 8);
    gb_put_u64(b, h.n_tensors);
    gb_put_u64(b, h.n_pairs);
    for (size_t i = 0; i < h.n_pairs; i++) {
        gb_put_text(b, h.pairs[i].key);
        gb_put_u32(b, h.pairs[i].kind);
        gb_put(b, h.pairs[i].value.data, h.pairs[i].value.len);
    }
    uint64_t offset = 0; /* after the data before it */
    for (size_t i = 0; i < h.n_tensors; i++) {
        const struct hostile_tensor *t = &h.tensors[i];
        gb_put_text(b, t->name);
        gb_put_u32(b, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims && d < 8; d++)
            gb_put_u64(b, t->dims[d]);
        gb_put_u32(b, t->type);
        gb_put_u64(b, offset);
        offset += (t->data.len + h.alignment - 1) / h.alignment * h.alignment;
    }
    for (size_t i = 0; i < h.n_tensors; i++) {
        while (b->len % h.alignment)
            gb_put(b, "", 1);
        gb_put(b, h.tensors[i].data.data, h.tensors[i].data.len);
    }
}

void hostile_write(void)
{
    struct gguf_bytes b;
    hostile_image(&b);
    write_file(bad_path, b.data, b.len);
    free(b.data);
}

void hostile_set_up(void)
{
    static const char line[] = "a line of text, and another one; ";
    snprintf(good_path, sizeof good_path, "%s", scratch_path("good.gguf"));
    snprintf(bad_path, sizeof bad_path, "%s", scratch_path("bad.gguf"));
    snprintf(text_path, sizeof text_path, "%s", scratch_path("text"));
    snprintf(out_path, sizeof out_path, "%s", scratch_path("out.gguf"));
    const struct checkpoint_shape shape =
        shape_of("layers=2 heads=2 kv=2 dim=16 ff=64 ctx=16 vocab=260 seed=7");
    write_checkpoint(good_path, &shape);
    char text[20 * sizeof line];
    for (int i = 0; i < 20; i++)
        memcpy(text + i * strlen(line), line, strlen(line));
    write_file(text_path, text, 20 * strlen(line));
    released_by(hostile_free, &h);
}

void bent_set_up(void)
{
    hostile_set_up();
    hostile_open();
}

void be_nobody(void *unused)
{
    (void)unused;
    if (geteuid() == 0 && setuid(65534) == 0)
        prctl(PR_SET_DUMPABLE, 1); /* the leak checker looks at its own process */
}

void expect_no_output(void)
{
    char folder[sizeof out_path];
    strcpy(folder, out_path);
    *strrchr(folder, '/') = 0;
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        ck_assert_msg(strncmp(entry->d_name, "out", 3) != 0 &&
                          strncmp(entry->d_name, ".decode", 7) != 0,
                      "%s is left", entry->d_name);
    closedir(dir);
}

static const char *const lines[N_COMMANDS] = {
    "info %B",
    "info --check --format json %B",
    "generate %B -p ab -n 2 -t 1 --seed 1",
    "score -p ab -t 1 %B",
    "tokenize -p ab %B",
    "eval %B %T -t 1",
    "eval %G %T -t 1 --against %B",
    "convert %B -o %O --type f16 -t 1 -q",
    "convert %B -o %O --kv-heads 1 --method mean -t 1 -q",
    "train %T -o %O --from %B --steps 1 --batch 1 --seed 1 -t 1 -q",
    "train %T -o %O --from %G --teacher %B --steps 1 --batch 1 --seed 1 -t 1 -q",
    "bench %B -n 1 --repeat 1 --warmup 0 --prompt 0 --kv-heads 1 -t 1 -q",
};

void fill_paths(char *line, size_t size, const char *format)
{
    size_t used = 0;
    for (const char *c = format; *c; c++) {
        const char *path = NULL;
        if (*c == '%' && c[1])
            path = c[1] == 'B'   ? bad_path
                   : c[1] == 'G' ? good_path
                   : c[1] == 'T' ? text_path
                   : c[1] == 'O' ? out_path
                                 : NULL;
        used += (size_t)snprintf(line + used, size - used, "%.*s", path ? 600 : 1, path ? path : c);
        c += path != NULL;
        ck_assert_uint_lt(used, size);
    }
}

static void run_line(struct ran *r, const char *line, program_setup *setup, void *context)
{
    char filled[8192];
    fill_paths(filled, sizeof filled, line);
    run_program(r, filled, setup, context);
}

void run_on_bad(struct ran *r, const char *line)
{
    run_line(r, line, NULL, NULL);
}

static void run_to(struct ran *r, const char *line, int code, const char *text)
{
    run_on_bad(r, line);
    ck_assert_msg(r->code == code, "%s: exit %d (signal %d) instead of %d (%s): %s", line, r->code,
                  r->signal, code, text, r->err);
}

void expect_line_refused(const char *line, int code, const char *text)
{
    struct ran r;
    run_to(&r, line, code, text);
    expect_refusal(&r, code, text);
}

void expect_line_done(const char *line, const char *parts)
{
    struct ran r;
    run_to(&r, line, 0, "");
    expect_says(r.out, parts);
}

void try_lines(const struct line *rows, size_t n, program_setup *setup, void *context)
{
    for (const struct line *l = rows; l < rows + n; l++) {
        struct ran r;
        run_line(&r, l->line, setup, context);
        ck_assert_msg(r.code == l->code, "%s: exit %d (signal %d) instead of %d: %s", l->line,
                      r.code, r.signal, l->code, r.err);
        if (l->code && !l->prints)
            expect_refusal(&r, l->code, "");
        expect_says(r.err, l->says ? l->says : "");
        expect_says(r.out, l->prints ? l->prints : "");
        if (l->code)
            expect_no_output();
        if (l->code && setup) /* within a limit: what cannot be is not tried */
            ck_assert_int_lt(r.max_rss_kib, 64 << 10);
        remove_outputs();
    }
}

void remove_outputs(void)
{
    char state[sizeof out_path + 8];
    unlink(out_path);
    snprintf(state, sizeof state, "%s.state", out_path);
    unlink(state);
}

/* Peaks under sanitizers mean nothing. */
static void expect_little_memory(int command, const struct ran *r)
{
    static long peaks[N_COMMANDS]; /* KiB of a command's run on the good file */
    /* A benchmark's good run takes long, and it loads what generate loads, so generate's memory is
     * measured. */
    const int usual = 1 << command == BENCH ? 2 : command;
    struct stat st;
    const long file_kib = stat(bad_path, &st) == 0 ? (long)(st.st_blocks / 2) : 0;
    if (SANITIZED)
        return;
    if (!peaks[usual]) {
        struct ran good;
        char line[200];
        strcpy(line, lines[usual]);
        for (char *at; (at = strstr(line, "%B"));)
            at[1] = 'G';
        run_to(&good, line, 0, "");
        peaks[usual] = good.max_rss_kib;
        remove_outputs();
    }
    ck_assert_msg(r->max_rss_kib <= peaks[usual] + SPARE_KIB + FILE_TIMES * file_kib,
                  "%ld KiB, where the good file takes %ld: %s", r->max_rss_kib, peaks[usual],
                  r->err);
}

static void expect_one_refused(int command, const char *text)
{
    struct ran r;
    run_to(&r, lines[command], 3, text);
    expect_refusal(&r, 3, text);
    ck_assert_msg(strstr(r.err, bad_path), "%s: the file is not named: %s", lines[command], r.err);
    expect_no_output();
    expect_little_memory(command, &r);
}

void expect_refused(unsigned commands, const char *text)
{
    if (SANITIZED) { /* they share what reads the file, where memory may go wrong */
        expect_refused_in_turn(commands, text);
        return;
    }
    for (int c = 0; c < N_COMMANDS; c++)
        if (commands >> c & 1)
            expect_one_refused(c, text);
}

int next_of(unsigned commands)
{
    static int turn;
    do
        turn = (turn + 1) % N_COMMANDS;
    while (!(commands >> turn & 1));
    return turn;
}

void expect_refused_in_turn(unsigned commands, const char *text)
{
    expect_one_refused(next_of(commands), text);
}

void expect_accepted(unsigned commands)
{
    const int only = SANITIZED ? next_of(commands) : -1;
    for (int c = 0; c < N_COMMANDS; c++) {
        struct ran r;
        if (!(commands >> c & 1) || (only >= 0 && c != only))
            continue;
        run_to(&r, lines[c], 0, "");
        remove_outputs();
        expect_little_memory(c, &r);
    }
}
