/*
 * fuzz_prompts - the file of generate --prompts. The first byte chooses plain lines or objects, and
 * in what pieces the rest comes through a pipe; whatever the pieces, the prompts are the same.
 */
#include <fcntl.h>
#include <unistd.h>

#include "base/rng.h"
#include "cli/generate.h"
#include "show/paragraph.h"
#include "target.h"

/* What fits into a pipe. */
#define MOST_BYTES 60000

static const struct text stop = {"stop", 4};

static void check_prompt(const struct prompt *p, uint64_t index)
{
    require(p->index == index);
    require(!p->has_text || text_is_utf8(p->text));
    require(p->id_kind == PROMPT_ID_NONE || text_is_utf8(p->id));
    if (p->refused) {
        require_line(p->error.text);
        return;
    }
    require(p->has_text && p->n >= 0);
    for (int i = 0; i < p->n_stops; i++)
        require(p->stops[i].len > 0);
}

static uint64_t add_text(uint64_t sum, struct text t)
{
    for (size_t i = 0; i < t.len; i++)
        sum = rng_derive(sum, (unsigned char)t.data[i]);
    return rng_derive(sum, t.len);
}

/* All that a prompt says in one number. */
static uint64_t add_prompt(uint64_t sum, const struct prompt *p)
{
    sum = add_text(sum, p->text);
    sum = add_text(sum, text_of(p->refused ? p->error.text : ""));
    sum = rng_derive(sum, p->seed);
    if (p->id_kind != PROMPT_ID_NONE)
        sum = add_text(sum, p->id);
    for (int i = 0; i < p->n_stops && !p->refused; i++)
        sum = add_text(sum, p->stops[i]);
    return rng_derive(sum, (uint64_t)p->n);
}

/* Reads what comes through a pipe in pieces of `piece` bytes. */
static uint64_t read_prompts(struct choices in, bool jsonl, size_t piece)
{
    int ends[2];
    uint64_t n = 0, sum = 0;
    struct prompts p = {.n = 7, .seed = 1, .stops = &stop, .n_stops = 1, .jsonl = jsonl};
    struct prompt prompt = {.index = 0};
    struct err e;
    enum lines_state state;
    require(pipe(ends) == 0 && dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
    close(ends[0]);
    require(prompts_open(&p, "-", NULL) == STATUS_OK);
    do {
        require(prompts_next(&p, 0, &state, &prompt, &e) == STATUS_OK);
        if (state == LINES_LINE) {
            check_prompt(&prompt, n++);
            sum = add_prompt(sum, &prompt);
        } else if (state == LINES_LATER) {
            const struct text now = next_text(&in, piece);
            require(now.len == 0 || write(ends[1], now.data, now.len) == (ssize_t)now.len);
            if (now.len == 0)
                close(ends[1]);
        }
    } while (state != LINES_END);
    prompt_free(&prompt);
    prompts_close(&p);
    return rng_derive(sum, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices in = {data, size};
    const int how = next_byte(&in);
    if (size > 0 && size <= MOST_BYTES)
        require(read_prompts(in, how & 1, 1 + (size_t)(how >> 1)) ==
                read_prompts(in, how & 1, MOST_BYTES));
    return 0;
}
