/* Safetensors files in folders, whole or in shards, and files written as the library writes them;
 * with calls into the system that fail. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"
#include "faults.h"
#include "imports.h"
#include "support.h"

#define GOLDEN "tests/data/safetensors/every-type.safetensors"
#define INDEX  "model.safetensors.index.json"

#define FIRST  "model-00001-of-00002.safetensors"
#define SECOND "model-00002-of-00002.safetensors"

static const char *folder;
static struct safetensors_folder opened;

static void set_up(void)
{
    folder = make_folder("model");
}

static void tear_down(void)
{
    safetensors_folder_close(&opened);
    safetensors_folder_close(&opened);
}

static const char *in_folder(const char *name)
{
    return path_of(folder, name);
}

static void put_text(const char *name, const char *text)
{
    write_text(folder, name, text);
}

/* A file of F32 tensors of one element each, named by letters: 'a' is 97, and so on. */
static void put_tensors(const char *name, const char *letters)
{
    unsigned char bytes[2048];
    const size_t n = strlen(letters);
    size_t len = 8 + (size_t)sprintf((char *)bytes + 8, "{");
    for (size_t i = 0; i < n; i++)
        len +=
            (size_t)sprintf((char *)bytes + len,
                            "%s\"%c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                            i ? "," : "", letters[i], 4 * i, 4 * i + 4);
    bytes[len++] = '}';
    little_store(bytes, len - 8, 8);
    for (size_t i = 0; i < n; i++, len += 4) {
        const float value = (float)letters[i];
        memcpy(bytes + len, &value, 4);
    }
    write_file(in_folder(name), bytes, len);
}

static void put_shards(void)
{
    put_tensors(FIRST, "ca");
    put_tensors(SECOND, "dbe");
    put_text(INDEX, "{\"metadata\": {\"total_size\": 20}, \"weight_map\": {\"a\": \"" FIRST
                    "\", \"b\": \"" SECOND "\", \"c\": \"" FIRST "\", \"d\": \"" SECOND
                    "\", \"e\": \"" SECOND "\"}}");
}

static void opens(void)
{
    expect_ok(safetensors_folder_open(&opened, folder, &err));
}

/* The message begins with the path of `name`, or of the folder if that is NULL. */
static void is_refused(const char *name, const char *message)
{
    char expected[2048];
    ck_assert_int_eq(safetensors_folder_open(&opened, folder, &err), STATUS_BAD_FILE);
    snprintf(expected, sizeof expected, "%s: %s", name ? in_folder(name) : folder, message);
    ck_assert_str_eq(err.text, expected);
    safetensors_folder_close(&opened);
}

/* Each tensor by its name, and where it is. */
static void has(const char *letters, const char *file)
{
    for (; *letters; letters++) {
        const char name[2] = {*letters};
        const struct safetensors_tensor *t = safetensors_folder_find(&opened, text_of(name));
        float value;
        ck_assert(t && t >= opened.tensors && t < opened.tensors + opened.n_tensors);
        ck_assert_uint_eq(t->n_bytes, sizeof value);
        memcpy(&value, t->data, sizeof value);
        ck_assert(value == (float)*letters);
        const struct file_map *map = safetensors_folder_map(&opened, t);
        expect_bytes(in_folder(file), map->data, map->len);
    }
}

TEST(one_file, .before = set_up, .after = tear_down)
{
    put_tensors("model.safetensors", "xyz");
    put_text(INDEX, "of an older save");
    opens();
    ck_assert_uint_eq(opened.n_tensors, 3);
    has("zyx", "model.safetensors");
    ck_assert_ptr_null(safetensors_folder_find(&opened, text_of("a")));
}

TEST(shards, .before = set_up, .after = tear_down)
{
    put_shards();
    put_text("model-00003-of-00002.safetensors", "which nobody asks for");
    opens();
    ck_assert_uint_eq(opened.n_tensors, 5);
    for (int i = 0; i < 5; i++)
        ck_assert(text_equal(opened.tensors[i].name, (struct text){&"cadbe"[i], 1}));
    has("ca", FIRST);
    has("bed", SECOND);
    ck_assert_ptr_null(safetensors_folder_find(&opened, text_of("x")));
}

/* As in Hugging Face's cache, where all files are links out of the folder. */
TEST(links_to_files, .before = set_up, .after = tear_down)
{
    put_shards();
    ck_assert_int_eq(rename(in_folder(SECOND), scratch_path("blob")), 0);
    ck_assert_int_eq(rename(in_folder(INDEX), scratch_path("index")), 0);
    link_to(folder, SECOND, "../blob");
    link_to(folder, INDEX, scratch_path("index"));
    opens();
    has("bed", SECOND);
}

TEST(links_to_others, .before = set_up, .after = tear_down)
{
    static const struct {
        const char *name, *target, *message;
    } links[] = {
        {"model.safetensors", "/dev/zero", "expected a regular file, found a device"},
        {"model.safetensors", "..", "expected a regular file, found a directory"},
        {"model.safetensors", "nothing", "cannot open: No such file or directory"},
        {"model.safetensors", "model.safetensors",
         "cannot open: Too many levels of symbolic links"},
        {"model.safetensors", "pipe", "expected a regular file, found a pipe (FIFO)"},
        {SECOND, "/dev/full", "expected a regular file, found a device"},
        {INDEX, "/", "expected a regular file, found a directory"},
    };
    ck_assert_int_eq(mkfifo(in_folder("pipe"), 0600), 0);
    put_shards();
    for (size_t i = 0; i < COUNT(links); i++) {
        link_to(folder, links[i].name, links[i].target);
        is_refused(links[i].name, links[i].message);
        unlink(in_folder("model.safetensors"));
    }
}

TEST(shards_against_their_index, .before = set_up, .after = tear_down)
{
#define SAYS " as " INDEX " says, found it in "
    static const struct {
        const char *tensors, *message;
    } firsts[] = {
        {"c", "tensor \"a\": expected it in " FIRST "," SAYS "no file"},
        {"cab",
         "tensor \"b\": expected it in model-00002-of-00002.safetensors," SAYS "another file"},
        {"cax", "expected the 5 tensors of " INDEX ", found 6 in its files"},
    };
    put_shards();
    for (size_t i = 0; i < COUNT(firsts); i++) {
        put_tensors(FIRST, firsts[i].tensors);
        is_refused(NULL, firsts[i].message);
    }
    unlink(in_folder(FIRST));
    is_refused(FIRST, "cannot open: No such file or directory");
    put_text(FIRST, "");
    is_refused(FIRST, "expected a safetensors file, 8 bytes or more, found 0 bytes");
    write_file(in_folder(FIRST), "\2\0\0\0\0\0\0\0[]", 10);
    is_refused(FIRST, "the header: the value at byte 0: expected an object, found an array");
}

TEST(bad_indexes, .before = set_up, .after = tear_down)
{
#define NAME(file) "{\"weight_map\":{\"a\":\"" file "\"}}"
#define NO_NAME(file)                                                                              \
    "\"a\" at byte 15: expected the name of a file in this folder, found \"" file "\""
    static const struct {
        const char *json, *message;
    } bad[] = {
        {"", "JSON at byte 0: expected a value, found the end"},
        {"[]", "the value at byte 0: expected an object, found an array"},
        {"{}", "the object at byte 0: expected \"weight_map\", an object, found no such key"},
        {"{\"weight_map\":[]}", "\"weight_map\" at byte 1: expected an object, found an array"},
        {"{\"weight_map\":{\"a\":1}}", "\"a\" at byte 15: expected a string, found 1"},
        {"{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}",
         "JSON at byte 23: expected every key once in an object, found \"a\" again"},
        {NAME(""), NO_NAME("")},
        {NAME(".."), NO_NAME("..")},
        {NAME("../model.safetensors"), NO_NAME("../model.safetensors")},
        {NAME("a\\u002fb"), NO_NAME("a/b")},
        {NAME("a\\u001b[1m/"), NO_NAME("a?[1m/")},
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        put_text(INDEX, bad[i].json);
        is_refused(INDEX, bad[i].message);
    }
    put_text(INDEX, NAME("x\\u0000y"));
    expect_status(safetensors_folder_open(&opened, folder, &err), STATUS_BAD_FILE,
                  "expected the name of a file in this folder");
    safetensors_folder_close(&opened);
    put_text(INDEX, NAME(INDEX));
    is_refused(INDEX, "the header's length at byte 0: expected at most 43, found "
                      "8388068008349082235; the file is truncated, or not a safetensors file");
}

TEST(nothing_to_read, .before = set_up, .after = tear_down)
{
    is_refused(NULL, "expected model.safetensors or " INDEX ", found neither");
    put_text("ckpt.pt", "PK");
    put_text("pytorch_model.bin", "PK");
#define RUN(file)                                                                                  \
    "expected model.safetensors, found " file "; in this folder run python3 -c \"import "          \
    "torch,safetensors.torch as s;d=torch.load('" file "','cpu',weights_only=True);"               \
    "s.save_file({k:v.clone() for k,v in d.get('model',d).items()},'model.safetensors',"           \
    "{'format':'pt'})\""
    is_refused(NULL, RUN("pytorch_model.bin"));
    unlink(in_folder("pytorch_model.bin"));
    is_refused(NULL, RUN("ckpt.pt"));
    unlink(in_folder("ckpt.pt"));
    ck_assert_int_eq(rmdir(folder), 0);
    is_refused(NULL, "cannot read: No such file or directory");
}

/* A source of bytes in memory, `step` at a time. It has no assertions, which take memory. */
struct memory_source {
    const unsigned char *bytes;
    uint64_t n, next;
    size_t step;
    enum status fails; /* at the second piece */
};

static enum status memory_piece(void *arg, uint64_t offset, const void **data, size_t *len,
                                struct err *e)
{
    struct memory_source *m = arg;
    if (offset > 0 && (m->fails || offset != m->next))
        return err_set(e, m->fails ? m->fails : STATUS_USAGE, "the source ended");
    *len = m->n - offset < m->step ? (size_t)(m->n - offset) : m->step;
    *data = m->bytes + offset;
    m->next = offset + *len;
    return STATUS_OK;
}

#define MAX_WRITTEN 128

/* The golden file's tensors, the last first, as they are to be written. */
struct copy {
    const char *bytes;
    size_t len, n;
    struct safetensors file;
    struct safetensors_written written[MAX_WRITTEN];
    struct memory_source sources[MAX_WRITTEN];
};

static void free_file(void *s)
{
    safetensors_free(s);
}

static void copy_open(struct copy *c, const char *path)
{
    memset(c, 0, sizeof *c);
    c->bytes = file_text(path, &c->len);
    expect_ok(safetensors_parse((const unsigned char *)c->bytes, c->len, &c->file, &err));
    released_by(free_file, &c->file);
    c->n = c->file.n_tensors;
    ck_assert_uint_le(c->n, MAX_WRITTEN);
    for (size_t i = 0; i < c->n; i++) {
        const struct safetensors_tensor *t = &c->file.tensors[c->n - 1 - i];
        struct safetensors_written *w = &c->written[i];
        c->sources[i] = (struct memory_source){.bytes = t->data, .n = t->n_bytes, .step = 7};
        *w = (struct safetensors_written){.name =
                                              released_by(free, strndup(t->name.data, t->name.len)),
                                          .dtype = t->dtype,
                                          .n_dims = t->n_dims,
                                          .source = {.piece = memory_piece, .arg = &c->sources[i]}};
        memcpy(w->dims, t->dims, sizeof w->dims);
    }
}

static struct copy copy;

TEST(the_same_bytes, .before = set_up, .after = tear_down)
{
    struct bytes head = {NULL, 0, 0};
    const char *path = in_folder("model.safetensors");
    copy_open(&copy, GOLDEN);
    expect_ok(safetensors_write(path, copy.written, copy.n, &err));
    expect_bytes(path, copy.bytes, copy.len);
    for (size_t i = 0; i < copy.n; i++)
        ck_assert_uint_eq(copy.sources[i].next, copy.sources[i].n);
    expect_ok(safetensors_head(copy.written, copy.n, &head, &err));
    ck_assert_uint_eq(head.len, copy.file.head_bytes);
    ck_assert_int_eq(memcmp(head.data, copy.bytes, head.len), 0);
    bytes_free(&head);
    opens();
    ck_assert_uint_eq(opened.n_tensors, copy.n);
}

TEST(writing_that_fails, .before = set_up, .after = tear_down)
{
    struct safetensors_written w[] = {
        {.name = "b", .dtype = safetensors_dtype_of(TENSOR_F32), .n_dims = 2, .dims = {4, 4}},
        {.name = "a", .dtype = safetensors_dtype_of(TENSOR_F32), .n_dims = 1, .dims = {2}}};
    static const unsigned char numbers[64];
    struct memory_source sources[] = {{.bytes = numbers, .n = 64, .step = 32},
                                      {.bytes = numbers, .n = 8, .step = 8}};
    for (int i = 0; i < 2; i++)
        w[i].source = (struct gguf_source){.piece = memory_piece, .arg = &sources[i]};
    sources[0].fails = STATUS_INTERRUPTED;
    put_text("model.safetensors", "the old file");
    ck_assert_int_eq(safetensors_write(in_folder("model.safetensors"), w, 2, &err),
                     STATUS_INTERRUPTED);
    ck_assert_str_eq(err.text, "the source ended");
    ck_assert_str_eq(w[0].name, "a"); /* first, and written */
    ck_assert_uint_eq(sources[1].next, 8);
    expect_bytes(in_folder("model.safetensors"), "the old file", 12);
    expect_ok(safetensors_write(in_folder("empty"), NULL, 0, &err));
    expect_bytes(in_folder("empty"), "\40\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}", 40);
    unlink(in_folder("empty"));
    ck_assert_int_eq(safetensors_write(in_folder("no/folder"), w, 2, &err), STATUS_FAILED);
    w[0].n_dims = 3;
    w[0].dims[0] = w[0].dims[1] = w[0].dims[2] = UINT64_C(1) << 32;
    ck_assert_int_eq(safetensors_write(in_folder("model.safetensors"), w, 2, &err), STATUS_USAGE);
    ck_assert_str_eq(err.text, "tensor \"a\": expected fewer bytes, they overflow");
    unlink(in_folder("model.safetensors"));
    ck_assert_int_eq(rmdir(folder), 0); /* no temporary file */
}

static enum status open_folder(struct err *e)
{
    const enum status status = safetensors_folder_open(&opened, folder, e);
    safetensors_folder_close(&opened);
    return status;
}

/* Of one file, and of shards. (Writing that fails: test_exchange_faults.c.) */
TEST(reading_without_memory, .loops = 2, .before = set_up, .after = tear_down)
{
    static const struct {
        enum fault_kind kind;
        int error;
        enum status status;
        int at_least[2];
    } faults[] = {{FAULT_MEMORY, ENOMEM, STATUS_NO_MEMORY, {10, 15}},
                  {FAULT_MAP, ENOMEM, STATUS_NO_MEMORY, {1, 1}},
                  {FAULT_OPEN, EIO, STATUS_BAD_FILE, {1, 1}},
                  {FAULT_OPEN, EMFILE, STATUS_FAILED, {1, 1}}};
    size_t len;
    const char *bytes = file_text(GOLDEN, &len);
    if (_i)
        put_shards();
    else
        write_file(in_folder("model.safetensors"), bytes, len);
    for (size_t i = 0; i < 2 * COUNT(faults); i++)
        fail_each_call(open_folder,
                       (struct fault_plan){faults[i / 2].kind, 0, i % 2, faults[i / 2].error, 0, 0},
                       faults[i / 2].status, faults[i / 2].at_least[_i]);
}
