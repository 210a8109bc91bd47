#!/usr/bin/env python3
"""Prints the plain text of the Wikipedia articles that a dump's XML on standard input holds: paragraphs and titles of
sections, without lists, tables, notes, and what stands behind the text (references, links)."""

import html
import re
import sys

# The innermost template goes first, again and again until none is left.
NESTED = [r"\{\{[^{}]*\}\}", r"\{\|(?:(?!\{\||\|\}).)*\|\}", r"\[\[(?:File|Image|Category):[^\[\]]*\]\]"]
GONE = [r"<!--.*?-->", r"<ref[^>]*/>", r"<ref.*?</ref>",
        r"<(math|gallery|timeline|source|score|blockquote)\b.*?</\1>", r"<[^>]*>"]


def plain(text):
    text = html.unescape(text)
    for pattern in GONE:
        text = re.sub(pattern, "", text, flags=re.S | re.I)
    links = r"\[\[(?!File:|Image:|Category:)(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]"
    before = None
    while before != text:
        before = text
        text = re.sub(links, r"\1", text)
        for pattern in NESTED:
            text = re.sub(pattern, "", text, flags=re.S)
    text = re.sub(r"\[https?://\S+ ?([^\]]*)\]", r"\1", text)
    text = re.sub(r"'{2,}", "", html.unescape(text)).replace("\u00a0", " ")
    text = re.sub(r" *\((?:[\s;,]|listen|pronounced)*\)", "", text)
    return re.split(r"\n==+ *(?:See also|References|Notes|External links|Further reading|Bibliography)", text)[0]


for title, text in re.findall(r"<title>(.*?)</title>.*?<text[^>]*>(.*?)</text>", sys.stdin.read(), re.S):
    lines = [] if text[:9].upper() == "#REDIRECT" else plain(text).split("\n")
    heads = [re.sub(r"^=+ *(.*?) *=+ *$", r"= \1 =", line) for line in lines]
    kept = [line.strip() for line in heads if line[:2] == "= " or (len(line) > 80 and line[0] not in "*#:;|!{}<")]
    # A title goes if nothing of its section is left.
    kept = [a for a, b in zip(kept, kept[1:] + ["= ="]) if not (a[:2] == b[:2] == "= ")]
    if kept:
        print(f"= {html.unescape(title)} =\n\n" + "\n\n".join(kept) + "\n")
