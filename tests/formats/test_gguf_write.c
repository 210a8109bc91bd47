/* Tests of writing: files are read back as they were written, and have the layout that llama.cpp
 * demands. */
#include <unistd.h>

#include "formats/gguf_values.h"
#include "formats/gguf_write.h"
#include "gguf_image.h"

static struct gguf_writer *w; /* every test's */

static void begin(void)
{
    expect_ok(gguf_writer_create(&w, NULL));
}

static void end(void)
{
    gguf_writer_free(w);
}

/* Reads what was written to memory, and begins the next file. */
static struct gguf_file finish(void)
{
    const struct gguf_file f = written_gguf(w);
    begin();
    return f;
}

/* Expects that both ways of writing fail with the message and leave no file, and begins the next
 * file. */
static void refuse_write(enum status s, const char *parts)
{
    unsigned char *bytes;
    size_t len;
    const char *path = scratch_path("refused.gguf");
    expect_status(gguf_write(w, path, &err), s, parts);
    ck_assert_int_ne(access(path, F_OK), 0);
    expect_status(gguf_write_memory(w, &bytes, &len, &err), s, parts);
    ck_assert_ptr_null(bytes);
    ck_assert_int_eq(gguf_write(w, path, NULL), s);
    gguf_writer_free(w);
    begin();
}

/* Finishes a file that has these values in their order. */
static void values_are(const struct gguf_value *expected, size_t n)
{
    struct gguf_file p = finish();
    ck_assert_uint_eq(p.g->n_pairs, n);
    for (size_t i = 0; i < n; i++) {
        const struct gguf_value *found = &p.g->pairs[i].value;
        ck_assert_int_eq(found->kind, expected[i].kind);
        if (found->kind == GGUF_ARRAY)
            ck_assert_int_eq(found->element_kind, expected[i].element_kind);
        ck_assert_uint_eq(found->count, expected[i].count);
        ck_assert(text_equal(found->bytes, expected[i].bytes));
    }
}

/* The bytes are the file's, except a bool, which becomes 0 or 1. */
TEST(typed_pairs, .before = begin, .after = end)
{
    static const struct text words[] = {{"", 0}, {"a\0b", 3}, {"word", 4}};
    static const char stored[] = "\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0a\0b\4\0\0\0\0\0\0\0word";
    static const struct gguf_value expected[] = {
        {GGUF_U32, 0, 1, {"\xff\xff\xff\xff", 4}},
        {GGUF_U64, 0, 1, {"\xff\xff\xff\xff\xff\xff\xff\xff", 8}},
        {GGUF_F32, 0, 1, {"\0\0\xc0\xbf", 4}},
        {GGUF_BOOL, 0, 1, {"\1", 1}},
        {GGUF_STRING, 0, 1, {"\xc3\xa9", 2}},
        {GGUF_ARRAY, GGUF_STRING, 3, {stored, 31}},
        {GGUF_ARRAY, GGUF_I32, 2, {"\1\0\0\0\0\0\0\x80", 8}},
        {GGUF_BOOL, 0, 1, {"\1", 1}},
        {GGUF_ARRAY, GGUF_BOOL, 4, {"\1\0\1\1", 4}},
    };
    values_are(NULL, 0);
    gguf_add_u32(w, "u32", UINT32_MAX);
    gguf_add_u64(w, "u64", UINT64_MAX);
    gguf_add_f32(w, "f32", -1.5f);
    gguf_add_bool(w, "yes", true);
    gguf_add_text(w, "text", text_of("\xc3\xa9"));
    gguf_add_texts(w, "words", words, 3);
    gguf_add_array(w, "ints", GGUF_I32, (const int32_t[]){1, INT32_MIN}, 2);
    gguf_add_value(w, text_of("2"), &(struct gguf_value){GGUF_BOOL, 0, 1, {"\2", 1}});
    gguf_add_value(w, text_of("list"),
                   &(struct gguf_value){GGUF_ARRAY, GGUF_BOOL, 4, {"\xff\0\1\x80", 4}});
    values_are(expected, COUNT(expected));
}

/* Each offset is the padded sum of those before it, and the file ends padded, whatever the
 * alignment of a file that values come from. */
TEST(tensors_are_contiguous_and_padded, .before = begin, .after = end)
{
    static const unsigned char data[512] = {7, 8, 9};
    gguf_add_tensor(w, text_of("a"), TENSOR_F32, 2, (uint64_t[]){3, 3}, data);
    gguf_add_tensor(w, text_of("b"), TENSOR_Q8_0, 1, (uint64_t[]){64}, data + 1);
    gguf_add_value(w, text_of("general.alignment"),
                   &(struct gguf_value){GGUF_U32, 0, 1, {"\100\0\0\0", 4}});
    gguf_add_tensor(w, text_of("c"), TENSOR_F32, 4, (uint64_t[]){2, 2, 2, 16}, data);
    struct gguf_file p = finish();
    ck_assert(p.g->alignment == 32 && p.g->n_pairs == 0);
    const unsigned char *at = p.g->tensors[0].data;
    for (size_t i = 0; i < 3; i++) {
        const struct gguf_tensor *t = &p.g->tensors[i];
        ck_assert(t->data == at && (at - p.bytes) % 32 == 0);
        ck_assert_int_eq(t->data[0], i == 1 ? 8 : 7);
        at += (t->n_bytes + 31) / 32 * 32;
    }
    ck_assert_ptr_eq(at, p.bytes + p.len);
}

/* Files of another writer that have our layout are written with the same bytes. */
TEST(golden_files, .loops = 2, .before = begin, .after = end)
{
    const char *path = scratch_path("copy.gguf");
    struct gguf_file from =
        read_gguf(_i ? "tests/data/golden/mqa-f16.gguf" : "tests/data/golden/mha.gguf");
    for (size_t i = 0; i < from.g->n_pairs; i++)
        gguf_add_value(w, from.g->pairs[i].key, &from.g->pairs[i].value);
    for (size_t i = 0; i < from.g->n_tensors; i++) {
        const struct gguf_tensor *t = &from.g->tensors[i];
        gguf_add_tensor(w, t->name, t->type->type, t->n_dims, t->dims, t->data);
    }
    expect_ok(gguf_write(w, path, NULL));
    expect_bytes(path, from.bytes, from.len);
}

TEST(large_data_go_to_the_file, .before = begin, .after = end)
{
    static unsigned char data[700000];
    const char *path = scratch_path("large.gguf");
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 31 >> 3);
    gguf_add_tensor(w, text_of("small"), 24, 1, (uint64_t[]){1}, data);
    gguf_add_tensor(w, text_of("large"), 24, 1, (uint64_t[]){sizeof data}, data);
    expect_ok(gguf_write(w, path, NULL));
    const struct gguf_file p = finish();
    ck_assert_mem_eq(gguf_find_tensor(p.g, "large")->data, data, sizeof data);
    expect_bytes(path, p.bytes, p.len);
}

#define N16 "nnnnnnnnnnnnnnnn"
#define N63 N16 N16 N16 "nnnnnnnnnnnnnnn"

TEST(tensors_that_cannot_be, .before = begin, .after = end)
{
    static const float x[64];
    static const struct {
        const char *name;
        uint32_t type;
        int n_dims;
        uint64_t dims[4];
        const char *parts;
    } cases[] = {
        {N63 "n", TENSOR_F32, 1, {1}, "tensor 0 \"nnn|64 bytes: expected 1 to 63"},
        {"t", TENSOR_F32, 2, {4, 0}, "tensor 0 \"t\"|dimension 1 is 0"},
        {"t", TENSOR_F32, 2, {1ull << 32, 1ull << 32}, "tensor 0 \"t\"|overflows"},
        {"t", TENSOR_F32, 1, {1ull << 62}, "tensor 0 \"t\"|overflows"},
        {"t", TENSOR_Q4_0, 1, {33}, "tensor 0 \"t\"|multiple of 32"},
        {"t", 4, 1, {32}, "tensor 0 \"t\"|removed"},
        {"t", 99, 1, {32}, "tensor 0 \"t\"|unknown"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        gguf_add_tensor(w, text_of(cases[i].name), cases[i].type, cases[i].n_dims, cases[i].dims,
                        x);
        refuse_write(STATUS_BAD_FILE, cases[i].parts);
    }
    gguf_add_tensor(w, text_of(N63), TENSOR_F32, 1, (uint64_t[]){1}, x);
    struct gguf_file p = finish();
    ck_assert_ptr_nonnull(gguf_find_tensor(p.g, N63));
}

TEST(first_failure_stays, .before = begin, .after = end)
{
    static const float x;
    gguf_add_u32(w, "fine", 1);
    gguf_add_tensor(w, text_of("first"), 99, 1, (uint64_t[]){1}, &x);
    gguf_add_u32(w, "fine too", 1);
    gguf_add_array(w, "ints", GGUF_I32, (int32_t[]){1}, 1);
    gguf_add_texts(w, "words", (struct text[]){{"x", 1}}, 1);
    gguf_add_value(w, text_of("x"), &(struct gguf_value){GGUF_U32, 0, 1, {"abcd", 4}});
    gguf_add_tensor(w, text_of("second"), 4, 1, (uint64_t[]){1}, &x);
    refuse_write(STATUS_BAD_FILE, "tensor 0 \"first\"|unknown");
}

/* Gives bytes in pieces of at most `piece`, and fails at `fail_at` calls. */
struct pieces {
    unsigned char bytes[1400];
    uint64_t expected_offset;
    size_t piece;
    int calls, fail_at;
};

static enum status next_piece(void *arg, uint64_t offset, const void **data, size_t *len,
                              struct err *e)
{
    struct pieces *p = arg;
    if (p->calls++ == p->fail_at)
        return err_set(e, STATUS_INTERRUPTED, "the source had enough");
    ck_assert(offset == 0 || offset == p->expected_offset);
    ck_assert_uint_lt(offset, sizeof p->bytes);
    *data = p->bytes + offset;
    *len = sizeof p->bytes - offset < p->piece ? (size_t)(sizeof p->bytes - offset) : p->piece;
    p->expected_offset = offset + *len;
    return STATUS_OK;
}

static void add_three(struct pieces *p, bool in_pieces)
{
    static const uint64_t dims[] = {7, 100};
    gguf_add_tensor(w, text_of("before"), TENSOR_F32, 1, (uint64_t[]){3}, p->bytes);
    if (in_pieces)
        gguf_add_tensor_source(w, text_of("t"), TENSOR_F16, 2, dims,
                               (struct gguf_source){.piece = next_piece, .arg = p});
    else
        gguf_add_tensor(w, text_of("t"), TENSOR_F16, 2, dims, p->bytes);
    gguf_add_tensor(w, text_of("after"), TENSOR_F32, 1, (uint64_t[]){5}, p->bytes);
}

TEST(sources_give_the_same_file, .loops = 5, .before = begin, .after = end)
{
    static const size_t sizes[] = {1, 13, 1399, 1400, 5000};
    struct pieces p = {.piece = sizes[_i], .fail_at = -1};
    unsigned char *found;
    size_t len;
    for (size_t i = 0; i < sizeof p.bytes; i++)
        p.bytes[i] = (unsigned char)(i * 7 + 1);
    add_three(&p, false);
    struct gguf_file plain = finish();
    add_three(&p, true);
    for (int twice = 0; twice < 2; twice++) {
        expect_ok(gguf_write_memory(w, &found, &len, NULL));
        ck_assert_uint_eq(len, plain.len);
        ck_assert_mem_eq(found, plain.bytes, len);
        free(found);
    }
    const char *path = scratch_path("pieces.gguf");
    expect_ok(gguf_write(w, path, NULL));
    expect_bytes(path, plain.bytes, plain.len);
    ck_assert_uint_eq((uint64_t)p.calls, 3 * ((sizeof p.bytes + sizes[_i] - 1) / sizes[_i]));
}

TEST(sources_that_fail, .loops = 3, .before = begin, .after = end)
{
    struct pieces p = {.piece = 500, .fail_at = _i};
    unsigned char *found;
    size_t len;
    const char *path = scratch_path("pieces.gguf");
    add_three(&p, true);
    expect_status(gguf_write_memory(w, &found, &len, &err), STATUS_INTERRUPTED, "had enough");
    ck_assert(!found && len == 0);
    p.calls = 0;
    expect_status(gguf_write(w, path, &err), STATUS_INTERRUPTED, "the source had enough");
    ck_assert_int_ne(access(path, F_OK), 0);
    p.fail_at = -1; /* a later write may succeed */
    expect_ok(gguf_write(w, path, &err));
}
