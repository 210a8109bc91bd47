#!/bin/sh
# layers.sh LIBRARY - fails when an include points to a directory that its own may not use; when headers
# or modules include one another in a circle; when files call one another in a circle (by the objects
# beside the library); when the library's directories reach stdio streams, exit, abort or the
# environment; or when they keep mutable globals.
set -eu

library=$1
bad=0
work=$(mktemp)
trap 'rm -f "$work"' EXIT

# Each row has a directory's name and the other directories that it may include.
directories='
base
formats      base
text         base formats
compute      base
model        base formats text compute
engine       base formats text compute model
train        base formats text compute model engine
convert      base formats text compute model engine
measure      base formats text compute model engine
show         base formats text
args         base formats text show
cli          base formats text compute model engine train convert measure show args
'

includes() {
    sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$1"
}

for file in src/*/*.[ch]; do
    directory=$(basename "$(dirname "$file")")
    may=$(printf '%s' "$directories" | sed -n "s/^$directory\( .*\)*\$/ $directory \1 /p")
    if [ -z "$may" ]; then
        echo "$file: folder $directory is no directory of the design"
        bad=1
        continue
    fi
    for include in $(includes "$file"); do
        case "$may" in
        *" ${include%%/*} "*) [ -e "src/$include" ] || {
            echo "$file: there is no src/$include"
            bad=1
        } ;;
        *)
            echo "$file: directory $directory may not include $include"
            bad=1
            ;;
        esac
    done
done

# pairs FILE... - prints each file with each that it includes
pairs() {
    for file in "$@"; do
        for include in $(includes "$file"); do
            echo "${file#src/} $include"
        done
    done
}

# modules - turns pairs of files into pairs of modules: x.c and x.h are one module. A pair of x.c and a
# header of its own family, an x_y.h or the private.h of the directory, is left out, because such a header
# may use the types of x.h.
modules() {
    sed -e '\#^\(.*\)\.c \1_#d' -e '\#^\([^/]*\)/[^/]*\.c \1/private\.h$#d' -e 's/\.[ch]\>//g'
}

# calls - prints each object with each that defines what it uses
calls() {
    for file in src/*/*.c; do
        object=${library%/*}/${file%.c}.o
        if [ -e "$object" ]; then
            nm -A "$object"
        fi
    done | awk '
        { split($1, part, ":"); sub(".*/src/", "", part[1]) }
        $(NF - 1) == "U" { user[++n] = part[1]; used[n] = $NF }
        $(NF - 1) ~ /[BDRT]/ { of[$NF] = part[1] }
        END { for (i = 1; i <= n; i++) if (used[i] in of) print user[i], of[used[i]] }'
}

# no_circle "WHAT DO" - reads pairs and fails if some are a circle; tsort names those that have no order
no_circle() {
    circle=$(tsort 2>&1 >/dev/null || true)
    if [ -n "$circle" ]; then
        echo "$1 one another in a circle:"
        echo "$circle"
        bad=1
    fi
}

pairs src/*/*.h >"$work"
no_circle "headers include" <"$work"
pairs src/*/*.[ch] | modules >"$work"
no_circle "modules include" <"$work"
calls >"$work"
no_circle "files call" <"$work"

# Formatting into memory (snprintf, vsnprintf) is allowed; streams and process control are not.
forbidden='f?printf|vf?printf|f?puts|f?putc|putchar|perror|fopen(64)?|fdopen|freopen(64)?|fclose|fread|fwrite|fflush|fgets|getline|stdin|stdout|stderr|_?exit|_Exit|quick_exit|abort|secure_getenv|getenv|setenv|signal|sigaction|system|__f?printf_chk|__vf?printf_chk'
reached=$(nm -A -u "$library" | grep -E " U ($forbidden)(@|\$)" || true)
if [ -n "$reached" ]; then
    echo "the library's directories reach what only the command line may:"
    echo "$reached"
    bad=1
fi

# Mutable globals: objects in .data, .bss, common or thread-local storage. (Constant tables of
# pointers are in .data.rel.ro, which is read-only once the program is linked.)
globals=$(objdump -t "$library" |
    grep -E ' O (\.data|\.bss|\*COM\*|\.tdata|\.tbss|\.data\.[^r][^[:space:]]*|\.bss\.[^[:space:]]*)[[:space:]]' || true)
if [ -n "$globals" ]; then
    echo "the library's directories keep mutable globals:"
    echo "$globals"
    bad=1
fi

[ "$bad" -eq 0 ] && echo "layers: includes point downwards, without circles; the library reaches no streams, exit or environment"
exit "$bad"
