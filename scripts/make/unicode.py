#!/usr/bin/env python3
"""Writes src/text/unicode_tables.h: the runs of code points of one class.

    scripts/make/unicode.py | clang-format > src/text/unicode_tables.h

The classes are those of GPT-2's pattern: letter (\\p{L}), number (\\p{N}), white space (\\s, the
property White_Space) and everything else; and punctuation, which Falcon's cut needs as the package
`tokenizers` has it, whose tables are of Unicode 8. The package unicodedata2 is used where it is installed,
because the standard library's module is as old as its Python.
"""
from tokenizers import pre_tokenizers

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

OTHER, LETTER, NUMBER, SPACE, PUNCTUATION = range(5)

# The module lacks White_Space, which is the separators (category Z) and these six controls.
CONTROLS = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}


PUNCTUATED = pre_tokenizers.Punctuation()


def class_of(code):
    category = unicodedata.category(chr(code))
    if category[0] == "Z" or code in CONTROLS:
        return SPACE
    if category[0] in "LN":
        return LETTER if category[0] == "L" else NUMBER
    is_alone = category != "Cs" and len(PUNCTUATED.pre_tokenize_str(f"a{chr(code)}a")) == 3
    return PUNCTUATION if is_alone else OTHER


def main():
    runs = []  # [first, last, class]
    for code in range(0x110000):
        now = class_of(code)
        if now != OTHER and runs and runs[-1][1:] == [code - 1, now]:
            runs[-1][1] = code
        elif now != OTHER:
            runs.append([code, code, now])
    print(f"""\
/*
 * unicode_tables - the classes of all code points; only unicode.c includes it.
 *
 * Made by scripts/make/unicode.py from Unicode {unicodedata.unidata_version}; not edited by hand.
 */
#pragma once

#include <stdint.h>

/* The runs of code points of one class that is not CHAR_OTHER, ascending. Each is
 * first code point << 20 | code points after it << 4 | class. */
static const uint64_t unicode_runs[] = {{""")
    for i in range(0, len(runs), 6):
        words = (f"0x{first:05x}{last - first:04x}{c:x}," for first, last, c in runs[i : i + 6])
        print("    " + " ".join(words))
    print("};")


main()
