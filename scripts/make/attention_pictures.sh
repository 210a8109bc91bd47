#!/bin/sh
# attention_pictures.sh TEXT [FOLDER] - draws the pictures of attention in README.md and src/measure from the
# shipped checkpoint into FOLDER (scripts/plots): attention.svg; heads.svg, of the last tenth of TEXT; and
# page.png, where Chromium is installed (and smaller where optipng is installed, too).
set -eu

if [ $# -lt 1 ]; then
    echo "usage: scripts/make/attention_pictures.sh TEXT [FOLDER]" >&2
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
./decode attend $model -p "$passage" --layer 0,1 --kv-heads 2 --svg "$out/attention.svg" -q
./decode heads $model "$text" --range 0.9:1 --tokens 20000 --svg "$out/heads.svg" >/dev/null

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "attention_pictures.sh: no chromium is installed: $out/page.png stays as it is" >&2
    exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
live=
[ ! -e build/wasm/decode.wasm.gz ] || live=--live
./decode attend $model -p "To be, or not to be, that is the question." --html "$work/page.html" $live -q
"$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --window-size=1366,820 \
    --blink-settings=preferredColorScheme=1 --virtual-time-budget=3000 --screenshot="$work/page.png" \
    "file://$work/page.html#2.5,0.5@9!" 2>"$work/log"
if command -v optipng >/dev/null; then
    optipng -quiet -o5 "$work/page.png"
fi
mv "$work/page.png" "$out/page.png"
