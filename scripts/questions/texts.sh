#!/bin/sh
# texts.sh pairs|recall [LINES] - prints a text of LINES lines (20,000) that asks one thing of attention. The bytes are the same everywhere.
# pairs asks for two places at once: a line has 24 letters of 12, and three quarters of them follow from those 2 and 5
# before by a table of 144 random letters; the others are random.
# recall asks for one place far back: a line is one of 12 capitals, 0 to 99 random small letters, a question mark, and the capital
# again, which only its first letter tells. As many lines have 1 to 2 letters as have 50 to 100.
set -eu

awk -v kind="${1:?expected pairs or recall}" -v lines="${2:-20000}" '
function any(n) # 0 to n - 1 (Park and Miller 1988)
{
    x = x * 16807 % 2147483647
    return int(x / 2147483647 * n)
}
function pairs(   i, line, c)
{
    for (i = 0; i < 24; i++) {
        c[i] = any(4) && i >= 5 ? follows[c[i - 2] * 12 + c[i - 5]] : any(12)
        line = line substr("abcdefghijkl", c[i] + 1, 1)
    }
    return line
}
function recall(   capital, line, n)
{
    capital = line = substr("ABCDEFGHIJKL", any(12) + 1, 1)
    for (n = int(exp(any(1000) / 1000 * log(100))); n > 0; n--)
        line = line substr("abcdefghijkl", any(12) + 1, 1)
    return line "?" capital
}
BEGIN {
    x = 45
    for (i = 0; kind == "pairs" && i < 144; i++)
        follows[i] = any(12)
    for (l = 0; l < lines; l++)
        print kind == "pairs" ? pairs() : recall()
}'
