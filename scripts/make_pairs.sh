#!/bin/sh
# make_pairs.sh [LINES] - prints a text that asks attention for two places at once: lines of 24 letters, 12
# different ones, each of which follows from those 2 and 5 before it by a table of 144 random letters, but
# for a quarter of them, which are any. 20,000 lines unless said, the same bytes everywhere.
set -eu

awk -v lines="${1:-20000}" '
function any(n) # 0 to n - 1 (Park and Miller 1988)
{
    x = x * 16807 % 2147483647
    return int(x / 2147483647 * n)
}
BEGIN {
    x = 45
    for (i = 0; i < 144; i++)
        follows[i] = any(12)
    for (l = 0; l < lines; l++) {
        line = ""
        for (i = 0; i < 24; i++) {
            c[i] = any(4) && i >= 5 ? follows[c[i - 2] * 12 + c[i - 5]] : any(12)
            line = line substr("abcdefghijkl", c[i] + 1, 1)
        }
        print line
    }
}'
