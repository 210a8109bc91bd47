/*
 * Runs the whole program on broken checkpoints: the rows of checkpoints.txt and lines.txt in
 * tests/data/broken, which explain their form.
 */
#include <stdio.h>
#include <stdlib.h>

#include "hostile.h"

#define SIZES_OF_MHA "layers=2 heads=4 kv=4 dim=8 width=32 ff=64 ctx=16 vocab=260"

/* The checkpoints that rows change; one without a preset is that of hostile_set_up. */
static const struct sound sounds[] = {
    {.name = "gpt2"},
    {"llama", "llama", "llama", SIZES_OF_LLAMA, 0, POSITION_ROPE, false},
    {"llama of wide heads", "llama", "llama",
     "layers=2 heads=4 kv=2 dim=64 width=32 ff=64 ctx=16 vocab=260", 0, POSITION_ROPE, false},
    {"gptneox", "gptneox", "gptneox", SIZES_OF_LLAMA, PLACEMENT_PARALLEL, POSITION_ROPE, false},
    {"gemma3", "gemma3", "gemma3", SIZES_OF_LLAMA, PLACEMENT_BEFORE, POSITION_ROPE, false},
    {"decode before alibi", "decode", "llama", SIZES_OF_LLAMA, PLACEMENT_BEFORE, POSITION_ALIBI,
     false},
    {"decode before none", "decode", "llama", SIZES_OF_LLAMA, PLACEMENT_BEFORE, POSITION_NONE,
     false},
    {"decode after learned", "decode", "llama", SIZES_OF_LLAMA, PLACEMENT_AFTER, POSITION_LEARNED,
     false},
    {"decode after quadratic", "decode", "llama", SIZES_OF_LLAMA, PLACEMENT_AFTER,
     POSITION_QUADRATIC, false},
    {"decode after alibi", "decode", "llama", SIZES_OF_LLAMA, PLACEMENT_AFTER, POSITION_ALIBI,
     false},
    {"decode of heads", "decode", "gpt2", SIZES_OF_MHA, 0, POSITION_LEARNED, false},
    {"decode of one block", "decode", "gpt2", SIZES_OF_MHA, 0, POSITION_LEARNED, true},
};

/* Returns the commands of a row; its first word sets *all or *accept. */
static unsigned commands_of(char *words, bool *all, bool *accept)
{
    static const struct {
        const char *name;
        unsigned bits;
    } sets[] = {
        {"info", INFO},           {"check", CHECK},           {"generate", GENERATE},
        {"score", SCORE},         {"tokenize", TOKENIZE},     {"eval", EVAL},
        {"against", AGAINST},     {"retype", RETYPE},         {"convert", CONVERT},
        {"train", TRAIN},         {"teacher", TEACHER},       {"bench", BENCH},
        {"every", EVERY_COMMAND}, {"readers", MODEL_READERS}, {"vocabulary", TOKENIZER_READERS},
        {"texts", TEXT_READERS}};
    unsigned commands = 0;
    *all = *accept = false;
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        const bool without = *word == '-';
        size_t i = 0;
        *all = *all || strcmp(word, "all") == 0;
        *accept = *accept || strcmp(word, "ok") == 0;
        if (strcmp(word, "all") == 0 || strcmp(word, "ok") == 0)
            continue;
        while (strcmp(sets[i].name, word + without) != 0)
            ck_assert_msg(++i < COUNT(sets), "no command %s", word);
        commands = without ? commands & ~sets[i].bits : commands | sets[i].bits;
    }
    ck_assert_uint_ne(commands, 0);
    return commands;
}

/* Copies `from` with the alternative in the place of "$". */
static void put_alternative(char *to, size_t size, const char *from, const char *alternative)
{
    const char *at = strchr(from, '$');
    const int before = at ? (int)(at - from) : (int)strlen(from);
    ck_assert_int_lt(
        snprintf(to, size, "%.*s%s%s", before, from, at ? alternative : "", at ? at + 1 : ""),
        (int)size);
}

__attribute__((constructor)) static void draw(void)
{
    test_seed();
}

/* Under sanitizers a third of the changes is drawn; the turn of a change that is left out is
 * counted all the same. */
static void try_change(const char *changes, const char *commands, const char *words)
{
    static long n;
    char names[200];
    bool all, accept;
    snprintf(names, sizeof names, "%s", commands);
    const unsigned bits = commands_of(names, &all, &accept);
    n = n ? n + 1 : test_seed();
    if (SANITIZED && n % 3)
        next_of(bits);
    else if (accept)
        bent_accepted(bits, changes);
    else if (all)
        bent_refused_by_all(bits, changes, words);
    else
        bent_refused(bits, changes, words);
}

static void try_row(char *row)
{
    char changes[600], words[300], alternative[200];
    char *change = next_field(&row), *commands = next_field(&row);
    const char *list = strchr(change, '{'), *close = list ? strchr(list, '}') : NULL;
    if (!list) {
        try_change(change, commands, row);
        return;
    }
    for (const char *item = list + 1; item <= close; item += strlen(alternative) + 1) {
        snprintf(alternative, sizeof alternative, "%.*s", (int)strcspn(item, ",}"), item);
        snprintf(changes, sizeof changes, "%.*s%s%s", (int)(list - change), change, alternative,
                 close + 1);
        put_alternative(words, sizeof words, row, alternative);
        try_change(changes, commands, words);
    }
}

/* Runs the rows behind each "sound" line. */
TEST(rows, .loops = COUNT(sounds), .before = bent_set_up, .seconds = 300)
{
    char *rest = file_text("tests/data/broken/checkpoints.txt", NULL);
    bool mine = false;
    int n_sections = 0, n_rows = 0;
    if (sounds[_i].preset)
        use_sound(&sounds[_i]);
    for (char *row; (row = next_row(&rest));) {
        if (strncmp(row, "sound ", 6) == 0) {
            mine = strcmp(row + 6, sounds[_i].name) == 0;
            n_sections++;
        } else if (mine) {
            try_row(row);
            n_rows++;
        }
    }
    ck_assert_uint_eq(n_sections, COUNT(sounds));
    ck_assert_int_gt(n_rows, 0);
}

TEST(command_lines, .before = bent_set_up, .seconds = 300)
{
    char *rest = file_text("tests/data/broken/lines.txt", NULL);
    for (char *row; (row = next_row(&rest));) {
        const char *changes = next_field(&row);
        char *run = next_field(&row), *says = next_field(&row);
        unescape(run);
        unescape(row);
        bend(changes);
        hostile_write();
        const struct line line = {strchr(run, ' ') + 1, atoi(run), says, *row ? row : NULL};
        try_lines(&line, 1, NULL, NULL);
        reset();
    }
}
