#!/usr/bin/env python3
"""make_draft_seeds.py [FOLDER] - writes the seeds of fuzz_draft: who guesses for whom, in how many
places, how tokens are drawn, and prompts (tests/fuzz/fuzz_draft.c)."""
import os
import sys

COPIES, ITSELF, PACKED, CUT, ANOTHER = range(5)
GREEDY, COLD, WARM, PLAIN, HOT = range(5)


def seed(shape, guesser, places, many, what, draw, penalty, texts):
    who = next(w for w in range(256) if w % 3 == shape and w // 4 % 5 == guesser)
    out = [who, places, many, what, draw, penalty] + [3] * (1 + what // 128)
    for n, prompt in texts:
        out += [n, len(prompt) - 1] + prompt
    return bytes(out)


LONG = [(40, [1, 2, 3])]
MANY = [(20, [1, 2, 1, 2, 1, 2]), (9, [5]), (30, [0, 4, 9, 4]), (0, [3, 3]), (2, [7] * 8)]
SEEDS = {
    "empty": b"",
    "copies-greedy": seed(0, COPIES, 0, 3, 4 + 16, GREEDY, 0, LONG),
    "copies-many": seed(1, COPIES, 2 + 4, 7, 4, COLD, 0, MANY),
    "itself": seed(0, ITSELF, 0, 3, 4 + 16, PLAIN, 0, LONG),
    "itself-full": seed(2, ITSELF, 1, 31, 4 + 16, PLAIN, 3, [(49, [1] * 20), (49, [2] * 40)]),
    "packed": seed(0, PACKED, 3 + 4, 4, 5, PLAIN, 9, MANY),
    "packed-rope-f16": seed(1, PACKED, 1 + 24, 2, 1 + 4 + 32, WARM, 0, MANY),
    "cut": seed(2, CUT, 2, 5, 2 + 4 + 96, HOT, 5, MANY),
    "another-short": seed(0, ANOTHER, 0, 5, 4 + 16, COLD, 0, [(45, [1, 2])]),
    "shared": seed(1, CUT, 3, 2, 4 + 8, PLAIN, 0, [(12, [4] * 9)] + [(12, [0])] * 6),
    "shared-long": seed(1, ANOTHER, 2, 2, 4 + 8, PLAIN, 0, [(9, [4] * 30)] + [(9, [0])] * 4),
    "shift-copies": seed(0, COPIES, 1 + 8, 4, 128 + 16, COLD, 0, MANY),
    "shift-itself": seed(1, ITSELF, 2 + 4, 31, 128 + 16, PLAIN, 3, [(50, [1] * 9), (50, [2, 4])]),
    "shift-another": seed(2, ANOTHER, 1, 5, 128 + 4 + 16, PLAIN, 0, [(50, [3] * 30), (50, [6])]),
    "auto": seed(0, PACKED, 2, 200, 4 + 16, COLD, 0, [(40, [1, 2, 3])] * 4),
}

if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/fuzz/corpus/draft"
    os.makedirs(folder, exist_ok=True)
    for name, content in SEEDS.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content)
