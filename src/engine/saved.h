/*
 * saved - a text in a file: its tokens, their positions in the KV cache and the sampler's random
 * stream, so that it goes on as if it had never stopped, bit for bit.
 *
 * The file is little-endian:
 *
 *     magic [8] "DECSAVED", u64 version
 *     u64 model                      the hash of the model that made it
 *     u64 cache type                 an enum tensor_type: F32, F16, Q8_0
 *     u64 bytes of a position        see session_read_position
 *     u64 n_text, n_cached, n_recent
 *     u64 rng state, rng increment, seed
 *     u64 at_end                     1: the model has ended the text; 0
 *     i32 text [n_text]              the tokens of its positions; the last may not be fed yet
 *     i32 recent [n_recent]          what the sampler remembers, the oldest first
 *     n_cached positions
 *     u64 hash of all before, part by part and position by position: see model/model.h
 */
#ifndef DECODE_ENGINE_SAVED_H
#define DECODE_ENGINE_SAVED_H

#include "engine/schedule.h"

/* What is not the schedule's to know. */
struct saved_marks {
    uint64_t model; /* the hash of what runs: see model/model.h */
    uint64_t seed;  /* that the text began with, or was given since */
};

/* Replaces the file with the text of a place that has one, which is not being made; sequence 0, or
 * one that shares no positions (asserted). The failures of file_writer_open. */
enum status saved_write(const char *path, const struct schedule *s, int place,
                        const struct saved_marks *marks, struct err *e);

/*
 * Makes the text of the file that of the place, for requests that go on with it; *seed is the
 * file's. STATUS_USAGE where it was made by another model or with another type of cache, or does
 * not fit into the context; STATUS_BAD_FILE for what is no such file, of another version or
 * damaged, and the failures of file_map_open. The place is then as it was.
 */
enum status saved_read(const char *path, struct schedule *s, int place, uint64_t model,
                       uint64_t *seed, struct err *e);

/* The same of bytes, which are called `path` in messages. */
enum status saved_take(const void *bytes, size_t len, const char *path, struct schedule *s,
                       int place, uint64_t model, uint64_t *seed, struct err *e);

#endif
