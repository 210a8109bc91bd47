#!/usr/bin/env bash
# all.sh TEXT [NAME...] - runs all questions, or those that are named, one after the other, and puts their tables and pictures into
# this folder: NAME.txt, NAME.svg. What was trained before is not trained again. Those of a real checkpoint (roles, cache, real)
# run only by name. The others take under four hours on two cores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
text=${1:?is the text of the questions}
shift
[ $# -gt 0 ] || set -- one_token concat heads small_heads root root_trained additive bilinear mask parallel padding architectures convolution \
    recall windows context layers kinds robust pruning dropout convert uptraining one_kv choose larger prefill
for name; do
    dir=${OUT:-$root/build/questions}/$name
    mkdir -p "$dir"
    echo "all.sh: $name" >&2
    "$here/$name.sh" "$text" >"$dir/table.part" || { echo "all.sh: $name.sh failed; the others go on" >&2 && continue; }
    mv "$dir/table.part" "$here/$name.txt"
    [ ! -e "$dir/$name.svg" ] || cp "$dir/$name.svg" "$here/$name.svg"
done
