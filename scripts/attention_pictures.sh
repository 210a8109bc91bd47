#!/bin/sh
# attention_pictures.sh TEXT [FOLDER] - the pictures of attention in README.md and src/measure, from the shipped
# checkpoint: attention.svg, and heads.svg on the last tenth of TEXT, in FOLDER (scripts/plots).
set -eu

if [ $# -lt 1 ]; then
    echo "usage: scripts/attention_pictures.sh TEXT [FOLDER]" >&2
    exit 2
fi
text=$1
out=${2:-scripts/plots}
model=models/shakespeare-mha.gguf
passage="ROMEO:
I dream'd a dream to-night.

MERCUTIO:
And so did I.

ROMEO:
Well, what was yours?

MERCUTIO:
That dreamers often lie."

mkdir -p "$out"
./decode attend $model -p "$passage" --layer 0,1 --kv-heads 2 --without-first \
    --svg "$out/attention.svg" >/dev/null
./decode heads $model --text "$text" --range 0.9:1 --tokens 20000 --svg "$out/heads.svg" >/dev/null
