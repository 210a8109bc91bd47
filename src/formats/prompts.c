#include "formats/prompts.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/numbers.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "formats/json_read.h"

static const struct json_limits limits = {
    .bytes = PROMPTS_MAX_LINE, .values = PROMPTS_MAX_STOPS + 64, .depth = 4};

enum status prompts_open(struct prompts *p, const char *path, struct err *e)
{
    p->n_lines = 0;
    return lines_open(&p->lines, path, PROMPTS_MAX_LINE, e);
}

void prompts_close(struct prompts *p)
{
    lines_close(&p->lines);
    json_reader_free(&p->json);
}

void prompt_free(struct prompt *prompt)
{
    bytes_free(&prompt->memory);
}

void prompt_refuse(struct prompt *prompt, const struct err *why)
{
    prompt->refused = true;
    prompt->error = *why;
    err_in(&prompt->error, STATUS_BAD_FILE, "line %" PRIu64, prompt->index + 1);
}

/* A copy in the prompt's memory, which has room for all of the line. */
static struct text keep(struct prompt *prompt, struct text t)
{
    const size_t at = prompt->memory.len;
    bytes_put(&prompt->memory, t);
    return text_span(prompt->memory.data + at, t.len);
}

/* --- a JSON line ----------------------------------------------------------------------------- */

/* In the order in which they are taken: a line that is refused still shows its id and prompt. */
enum prompt_key { KEY_ID, KEY_PROMPT, KEY_N, KEY_SEED, KEY_STOP, N_KEYS };
static const char *const keys[] = {"id", "prompt", "n", "seed", "stop"};

static enum status add_stop(struct prompt *prompt, const struct json_node *value, struct err *e)
{
    struct text text;
    TRY(json_node_text(value, &text, e));
    if (text.len == 0)
        return err_bad_file(e, "\"stop\": expected texts, found an empty one at byte %zu",
                            value->at);
    if (prompt->n_stops == PROMPTS_MAX_STOPS)
        return err_bad_file(e, "\"stop\": expected at most %d texts, found more",
                            PROMPTS_MAX_STOPS);
    prompt->own_stops[prompt->n_stops++] = keep(prompt, text);
    return STATUS_OK;
}

static enum status take_member(struct prompt *prompt, enum prompt_key key,
                               const struct json_node *value, struct err *e)
{
    const char *expected = "a string or a whole number";
    struct text text = value->text;
    char digits[24]; /* of a seed */
    int64_t n;
    switch (key) {
    case KEY_ID:
        while (value->kind == JSON_NUMBER && text.len > 0 && !strchr(".eE", *text.data))
            text_cut(&text, 1);
        if (value->kind != JSON_STRING && (value->kind != JSON_NUMBER || text.len > 0))
            break;
        prompt->id = keep(prompt, value->text);
        prompt->id_kind = value->kind == JSON_STRING ? PROMPT_ID_STRING : PROMPT_ID_NUMBER;
        return STATUS_OK;
    case KEY_PROMPT:
        TRY(json_node_text(value, &text, e));
        prompt->text = keep(prompt, text);
        prompt->has_text = true;
        return STATUS_OK;
    case KEY_N:
        TRY(json_node_i64(value, 0, INT_MAX, &n, e));
        prompt->n = n;
        return STATUS_OK;
    case KEY_SEED:
        if (value->kind != JSON_STRING)
            return json_node_u64(value, &prompt->seed, e);
        chars_printf(digits, "%.*s", text_width(text), text.data);
        if (text.len == strlen(digits) && parse_u64(digits, &prompt->seed))
            return STATUS_OK;
        expected = "a whole number below 2^64, or a string of one";
        break;
    default:
        expected = "a string or an array of strings";
        prompt->stops = prompt->own_stops;
        prompt->n_stops = 0;
        if (value->kind == JSON_STRING)
            return add_stop(prompt, value, e);
        if (value->kind != JSON_ARRAY)
            break;
        for (const struct json_node *c = NULL; (c = json_child(value, c));)
            TRY(add_stop(prompt, c, e));
        return STATUS_OK;
    }
    return err_bad_file(e, "\"%s\" at byte %zu: expected %s, found %.*s", keys[key], value->at,
                        expected, text_width(value->text), value->text.data);
}

/* What is null is as if it were not there, as we write it. */
static enum status take_object(struct prompts *p, struct prompt *prompt, struct text line,
                               struct err *e)
{
    const struct json_node *root, *given[N_KEYS] = {NULL}, *unknown = NULL, *last;
    TRY(json_read(&p->json, line, &limits, &root, e));
    TRY(json_expect(root, JSON_OBJECT, e));
    for (const struct json_node *c = NULL; (c = json_child(root, c));) {
        int key = 0;
        while (key < N_KEYS && !text_is(c->key, keys[key]))
            key++;
        *(key < N_KEYS ? &given[key] : &unknown) = c;
    }
    for (int key = 0; key < N_KEYS; key++)
        if (given[key] && given[key]->kind != JSON_NULL)
            TRY(take_member(prompt, key, given[key], e));
    if (unknown)
        return err_bad_file(
            e, "\"%.*s\" at byte %zu: expected one of the keys id, prompt, n, seed, stop",
            text_width(unknown->key), unknown->key.data, unknown->at);
    return json_require(root, "prompt", JSON_STRING, &last, e);
}

/* --- the next one ---------------------------------------------------------------------------- */

enum status prompts_next(struct prompts *p, int wait_ms, enum lines_state *state,
                         struct prompt *prompt, struct err *e)
{
    struct text line;
    TRY(lines_next(&p->lines, wait_ms, state, &line, e));
    if (*state == LINES_LATER || *state == LINES_END)
        return STATUS_OK;
    const uint64_t index = p->n_lines++;
    enum status s = STATUS_OK;
    prompt_free(prompt);
    *prompt = (struct prompt){.index = index,
                              .n = p->n,
                              .seed = rng_derive(p->seed, index),
                              .stops = p->stops,
                              .n_stops = p->n_stops};
    if (*state == LINES_LONG) {
        s = err_bad_file(e, "expected at most %zu bytes, found more", PROMPTS_MAX_LINE);
    } else if (!bytes_reserve(&prompt->memory, line.len + 1)) {
        return err_no_memory(e, "a prompt", line.len + 1);
    } else if (p->jsonl) {
        s = take_object(p, prompt, line, e);
    } else {
        for (struct text rest = line; rest.len > 0 && s == STATUS_OK;) {
            uint32_t code;
            const struct text c = utf8_next(&rest, &code);
            if (code == UNICODE_INVALID)
                s = err_bad_file(e, "byte %zu: expected UTF-8, found 0x%02x", c.data - line.data,
                                 (unsigned char)c.data[0]);
        }
        prompt->has_text = s == STATUS_OK;
        prompt->text = keep(prompt, line);
    }
    *state = LINES_LINE;
    if (s != STATUS_BAD_FILE)
        return s;
    prompt_refuse(prompt, e);
    return STATUS_OK;
}
