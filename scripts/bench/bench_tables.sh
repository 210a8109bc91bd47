#!/bin/sh
# bench_tables.sh [FOLDER [TABLE...]] - prints the benchmark tables of src/measure/README.md, by default
# all of them:
#   shakespeare  the shipped checkpoint at depths up to its context
#   gpt2-124m    the shape of GPT-2 small (124M) at depths up to 3840
#   batches      that shape, batch x K/V heads: Q8_0 and Q4_0 weights, F16 cache, depths 1024 and
#                3840, batches 1, 4, 16, 64; a plot over the batch for each type and depth
#   windows      that shape at depth 3840 with and without a window of 256, one sequence and 16
# Writes NAME.md (every column), NAME.svg and NAME.csv to FOLDER (build/bench); the page shows some of
# their columns and rows. The machine should have nothing else to do. The first two tables take about two
# minutes and 6 GiB; the batches take some twenty minutes and 18 GiB, because MHA's caches of 64 sequences
# at depth 3840 are 9 GB. Batches that do not fit into memory are named and left out.
set -eu

out=build/bench
if [ $# -gt 0 ]; then
    out=$1
    shift
fi
[ $# -gt 0 ] || set -- shakespeare gpt2-124m batches windows
for table; do
    case $table in
    shakespeare | gpt2-124m | batches | windows) ;;
    *)
        echo "bench_tables.sh: '$table' is none of shakespeare, gpt2-124m, batches, windows" >&2
        exit 2
        ;;
    esac
done
mkdir -p "$out"
make -s decode

shape=12x768x12,ff=3072,vocab=50257,ctx=4096

# columns NAME,... FILE - prints a Markdown table with the columns of these headings alone, and the lines
# around it as they are.
columns() {
    awk -F '|' -v wanted="$1" '
        BEGIN { n = split(wanted, names, ",") }
        !/^\|/ { print; next }
        !header { header = 1
            for (i = 2; i < NF; i++) {
                name = $i
                gsub(/^ +| +$/, "", name)
                at[name] = i
            } }
        { line = "|"
          for (k = 1; k <= n; k++) line = line $at[names[k]] "|"
          print line }' "$2"
}

# bench NAME ARGS... - runs one benchmark and writes its table and its plot.
bench() {
    name=$1
    shift
    ./decode bench "$@" --format md -v --svg "$out/$name.svg" >"$out/$name.md"
}

# tables NAME ARGS... - runs one benchmark and prints its table.
tables() {
    bench "$@"
    columns "variant,type,KV,depth,batch,p50 µs,p99 µs,tokens/s,speed-up,predicted,weights read,KV read,GB/s,of limit" \
        "$out/$1.md"
    echo
}

# fitting NAME BATCHES ARGS... - runs one benchmark with as many of the batches as memory has room for.
fitting() {
    base=$1
    batches=$2
    shift 2
    while :; do
        code=0
        bench "$base" --batch "$batches" "$@" 2>"$out/$base.err" || code=$?
        cat "$out/$base.err" >&2
        case $code:$batches in
        0:*) break ;;
        4:*,*)
            echo "bench_tables.sh: $base: no memory for batch ${batches##*,}" >&2
            batches=${batches%,*}
            ;;
        *) exit $code ;;
        esac
    done
    rm -f "$out/$base.err"
}

# across_variants FILE... - joins tables that have a row for each variant into one that has a row for each
# batch: tokens a second of MHA, GQA-4 and MQA with their shares of the limit, and the speed-ups over MHA,
# measured and predicted.
across_variants() {
    awk -F '|' '
        function cell(name,   x) {
            x = $at[name]
            gsub(/^ +| +$/, "", x)
            return x
        }
        function rate(key) { return speed[key] " (" share[key] ")" }
        !/^\|/ { header = 0; next }
        !header { header = 1
            for (i = 2; i < NF; i++) {
                name = $i
                gsub(/^ +| +$/, "", name)
                at[name] = i
            }
            next }
        /^\|[:-]/ { next }
        { row = cell("type") " | " cell("depth") " | " cell("batch")
          if (!(row in seen)) rows[++n] = row
          seen[row] = 1
          key = row cell("variant")
          speed[key] = cell("tokens/s")
          share[key] = cell("of limit")
          times[key] = cell("speed-up") " | " cell("predicted") }
        END {
            print "| weights | depth | batch | MHA tokens/s (of limit) |" \
                " GQA-4 tokens/s | over MHA | predicted | MQA tokens/s | over MHA | predicted |"
            print "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
            for (i = 1; i <= n; i++) {
                line = "| " rows[i] " | " rate(rows[i] "MHA")
                line = line " | " rate(rows[i] "GQA-4") " | " times[rows[i] "GQA-4"]
                print line " | " rate(rows[i] "MQA") " | " times[rows[i] "MQA"] " |"
            }
        }' "$@"
}

# Steps are few, because one of a large batch takes most of a second.
batch_tables() {
    done_tables=
    for type in q8_0 q4_0; do
        for depth in 1024 3840; do
            name=batch-$type-$depth
            fitting "$name" 1,4,16,64 --shape $shape --kv-heads 12,4,1 --depth $depth \
                --kv-type f16 --type $type -n 6 --repeat 5 --warmup 2 --prompt 0
            [ -n "$done_tables" ] || sed -n '1,2p;4p' "$out/$name.md"
            echo "$type at depth $depth: $(sed -n 3p "$out/$name.md")"
            done_tables="$done_tables $name.md"
        done
    done
    echo
    # shellcheck disable=SC2086 # a list of names
    (cd "$out" && across_variants $done_tables)
}

for table; do
    case $table in
    shakespeare)
        tables shakespeare models/shakespeare-mha.gguf --kv-heads all --depth 0,128,255 -n 500 \
            --repeat 9
        ;;
    gpt2-124m)
        tables gpt2-124m --shape $shape --kv-heads 12,4,1 --depth 0,1024,3840 --kv-type f16 \
            --type f32,f16 -n 24 --repeat 9
        ;;
    batches) batch_tables ;;
    windows)
        for window in '' ,window=256; do
            tables "windows$window" --shape "$shape$window" --kv-heads 12 --depth 3840 --batch 1,16 \
                --type q8_0 --kv-type f16 -n 16 --repeat 5 --prompt 0
        done
        ;;
    esac
done
