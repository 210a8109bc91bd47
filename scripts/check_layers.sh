#!/bin/sh
# check_layers.sh LIBRARY - fails when an include points upwards or sideways where it must not,
# or when the library layers reach stdio streams, exit, abort or the environment.
set -eu

library=$1
bad=0

level() {
    case $1 in
    base) echo 0 ;;
    parts) echo 1 ;;
    model) echo 2 ;;
    engine) echo 3 ;;
    tools) echo 4 ;;
    cli) echo 5 ;;
    *) echo unknown ;;
    esac
}

# A tool may be several files: bench.c, bench_stats.c.
tool_of() {
    basename "${1%.*}" | cut -d _ -f 1
}

for file in src/*/*.[ch]; do
    layer=$(basename "$(dirname "$file")")
    own=$(level "$layer")
    if [ "$own" = unknown ]; then
        echo "$file: folder $layer is no layer"
        bad=1
        continue
    fi
    for include in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file"); do
        target=${include%%/*}
        to=$(level "$target")
        if [ "$to" = unknown ]; then
            echo "$file: include \"$include\" names no layer (write layer/header.h)"
            bad=1
        elif [ "$to" -gt "$own" ]; then
            echo "$file: layer $layer includes $include from the higher layer $target"
            bad=1
        elif [ "$layer" = tools ] && [ "$target" = tools ] &&
            [ "$(tool_of "$include")" != "$(tool_of "$file")" ]; then
            echo "$file: a tool includes its sibling $include"
            bad=1
        fi
    done
done

# Formatting into memory (snprintf, vsnprintf) is allowed; streams and process control are not.
forbidden='f?printf|vf?printf|f?puts|f?putc|putchar|perror|fopen(64)?|fdopen|freopen(64)?|fclose|fread|fwrite|fflush|fgets|getline|stdin|stdout|stderr|_?exit|_Exit|quick_exit|abort|secure_getenv|getenv|setenv|signal|sigaction|system|__f?printf_chk|__vf?printf_chk'
reached=$(nm -A -u "$library" | grep -E " U ($forbidden)(@|\$)" || true)
if [ -n "$reached" ]; then
    echo "the library layers reach what only the command line may:"
    echo "$reached"
    bad=1
fi

# Mutable globals: objects in .data, .bss, common or thread-local storage. (Constant tables of
# pointers are in .data.rel.ro, which is read-only once the program is linked.)
globals=$(objdump -t "$library" |
    grep -E ' O (\.data|\.bss|\*COM\*|\.tdata|\.tbss|\.data\.[^r][^[:space:]]*|\.bss\.[^[:space:]]*)[[:space:]]' || true)
if [ -n "$globals" ]; then
    echo "the library layers keep mutable globals:"
    echo "$globals"
    bad=1
fi

[ "$bad" -eq 0 ] && echo "layers: includes point downwards; the library reaches no streams, exit or environment"
exit "$bad"
