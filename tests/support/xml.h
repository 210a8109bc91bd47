/*
 * xml - checks that SVG files are well-formed XML, and counts what is in them.
 */
#ifndef TESTS_XML_H
#define TESTS_XML_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "support.h"

static inline int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* expect_counts(text, "3 <path", "0 nan", "+ title") checks how often each is there; +: at least
 * once. */
static inline void expect_count_list(const char *text, const char *const *expected)
{
    for (; *expected; expected++) {
        char *what;
        const bool any = **expected == '+';
        const int n = (int)strtol(*expected, &what, 10), found = count(text, what + 1 + any);
        ck_assert_msg(any ? found > 0 : found == n, "%d times, not %s", found, *expected);
    }
}
#define expect_counts(text, ...) expect_count_list(text, (const char *const[]){__VA_ARGS__, NULL})

static inline const char *check_entity(const char *at)
{
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (size_t i = 0; i < COUNT(entities); i++)
        if (strncmp(at, entities[i], strlen(entities[i])) == 0)
            return at + strlen(entities[i]);
    ck_abort_msg("bad entity: %.20s", at);
}

/* Checks the attributes behind "<name" up to '>', and returns what follows. Sets *empty for "/>".
 */
static inline const char *check_attributes(const char *at, bool *empty)
{
    for (;;) {
        at += strspn(at, " \n");
        *empty = *at == '/';
        if (*at == '/' || *at == '>')
            break;
        const size_t name = strspn(at, "abcdefghijklmnopqrstuvwxyzBY-0123456789");
        ck_assert_msg(name > 0 && strncmp(at + name, "=\"", 2) == 0, "attribute: %.40s", at);
        at += name + 2;
        while (*at != '"') {
            ck_assert_msg(*at && *at != '<', "attribute's value: %.40s", at);
            at = *at == '&' ? check_entity(at) : at + 1;
        }
        at++;
    }
    at += *empty;
    ck_assert_msg(*at == '>', "tag: %.40s", at);
    return at + 1;
}

static inline void check_characters(const char *text)
{
    for (struct text rest = text_of(text); rest.len > 0;) {
        uint32_t code;
        utf8_next(&rest, &code);
        ck_assert_msg(code != UNICODE_INVALID && code != 0xfffe && code != 0xffff &&
                          (code >= 0x20 || code == '\n') && (code < 0x7f || code >= 0xa0),
                      "character %x", code);
    }
}

/* Checks that tags are in pairs, there is one root, attributes are quoted and markup is escaped. */
static inline void check_xml(const char *text)
{
    struct text open[16];
    int depth = 0, roots = 0;
    check_characters(text);
    for (const char *at = text; *at;) {
        if (*at == '&') {
            at = check_entity(at);
        } else if (*at != '<') {
            ck_assert_msg(*at != '>' && (depth > 0 || *at == '\n'), "text: %.40s", at);
            at++;
        } else {
            const bool closing = at[1] == '/';
            at += 1 + closing;
            const struct text name = {at, strspn(at, "abcdefghijklmnopqrstuvwxyz")};
            ck_assert_msg(name.len > 0, "tag: %.40s", at);
            at += name.len;
            if (closing) {
                ck_assert_msg(depth > 0 && text_equal(open[--depth], name), "</%.40s", name.data);
                ck_assert_int_eq(*at++, '>');
                continue;
            }
            bool empty;
            at = check_attributes(at, &empty);
            roots += depth == 0;
            ck_assert_int_lt(depth, 16);
            if (!empty)
                open[depth++] = name;
        }
    }

    ck_assert_int_eq(depth, 0);
    ck_assert_int_eq(roots, 1);
}

#endif
