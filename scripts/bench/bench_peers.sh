#!/usr/bin/env bash
# bench_peers.sh [options] - measures tokens a second of decode, llama.cpp and llama2.c on the same
# checkpoints or shapes, and prints one Markdown table with decode's ratio to the faster peer. The
# machine should have nothing else to do.
#
#   --llama-bench PATH          llama.cpp's llama-bench: decode near depth 0, and prefill
#   --llama-batched-bench PATH  llama.cpp's llama-batched-bench: decode at depth, and of batches
#   --llama2c PATH              `run` of karpathy/llama2.c, built from its run.c:
#                               gcc -Ofast -fopenmp -march=native run.c -lm -o run
#   --llama-quantize PATH       makes the F16, Q8_0 and Q4_0 files, instead of `decode convert --type`
#   --flash on|off|both         llama.cpp's flash attention; by default both are measured, and a cell
#                               has the better one
#   --decode PATH               our program; by default ./decode, which is built
#   --rows LIST                 some of toy,small,124m,depth,batch,cache,prefill,llama; by default all
#   --threads T                 for all programs; by default as many as there are processors
#   --rounds R                  by default 5
#   --quick                     one short round, to try the script: no measurement
#   --keep                      keep the files that were made, and say where
#
# A peer whose path is not given has no column; without any peer the table has our figures alone. In a
# row the programs take turns, R times; a cell is the median of its rounds (lowest..highest). A row is
# printed as soon as it is measured. If a program fails, its cell stays empty and the exit status is 1.
# `limit` is the share that decode reaches of what the machine allows (bench's `of limit`): a plain
# read of the same bytes by as many threads, timed in the same run, or the peak of the arithmetic.
#
# Memory that other programs use as well is twice as fast in one minute as in the next. So each turn of
# a program begins with a plain read of as many bytes as a step reads, and its rate is divided by that
# of the read. A round's ratio is decode's quotient over that of the peer that is faster in this round;
# `ratio` is the median of the rounds (lowest..highest). A row is `behind` only if its highest ratio is
# below 1. Prefill waits for arithmetic: its ratios are those of the rates themselves.
#
# What is compared with what:
# - Checkpoints have random weights (make_random_checkpoint.py); decode and llama.cpp read the same
#   file. Beside a llama, llama2.c runs the same architecture; beside a gpt2 it runs its own in the same
#   shape, with a feed-forward layer of as many weights. It has F32 only, and no benchmark of prefill or
#   at a given depth.
# - Decode near depth 0: llama-bench and llama2.c's run time N = 128 tokens from an empty cache, at a
#   mean depth of N/2; decode times N tokens at depth N/2. All rates are means: N divided by the time
#   that N tokens took. llama2.c counts milliseconds, so a short run is repeated within a round.
# - Decode at depth 3840: llama-batched-bench times 64 tokens after 3840, decode at depth 3840 + 32.
# - Batches: 32 steps of 1, 4 and 16 sequences after 1024 tokens of each (no prompt is shared), decode
#   at 1024 + 16. The rate counts all sequences.
# - Prefill of 128 tokens: both programs have the better of two passes; llama-bench warms up before.
# - Caches have each program's default type (decode F32, llama.cpp F16, llama2.c F32), at depth F16.
# - A step of llama2.c includes its greedy sampling and printing; the others only make logits.
#
# Needs bash, awk and python3, and up to 2.5 GB in TMPDIR (/tmp). With all peers it takes some twenty
# minutes; llama.cpp's prompts of the batches take half of them.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
arch=gpt2 decode='' llama_bench='' llama_batched='' llama_quantize='' llama2c=''
groups=toy,small,124m,depth,batch,cache,prefill,llama,files selected=$groups files=()
threads='' rounds=5 quick=no keep=no flash='on off'
work='' failed=no

say() { printf 'bench_peers.sh: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 2
}

clean_up() {
    [ -z "$work" ] && return
    if [ "$keep" = yes ]; then
        say "the files are in $work"
    else
        rm -rf "$work"
    fi
}

# --- options -------------------------------------------------------------------------------------

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"; }

# program OPTION PATH - prints the absolute path, since the script changes to the repository.
program() {
    { [ -f "$2" ] && [ -x "$2" ]; } || die "$1: '$2' is not a program; build it, or name its path"
    printf '%s/%s' "$(cd "$(dirname "$2")" && pwd)" "$(basename "$2")"
}

# positive OPTION VALUE
positive() {
    case $2 in
    '' | *[!0-9]* | 0* | ?????*) die "$1: expected an integer from 1 to 9999, found '$2'" ;;
    esac
}

read_options() {
    while [ $# -gt 0 ]; do
        local option=$1
        shift
        case $option in
        --*=*)
            set -- "${option#*=}" "$@"
            option=${option%%=*}
            ;;
        esac
        case $option in
        --llama-bench | --llama-batched-bench | --llama-quantize | --llama2c | --decode | --rows | \
            --file | --threads | --rounds | --flash)
            [ $# -gt 0 ] || die "$option: a value is missing; see --help"
            ;;
        --quick | --keep | -h | --help) ;;
        *) die "'$option' is not an option; see --help" ;;
        esac
        case $option in
        --llama-bench) llama_bench=$(program "$option" "$1") ;;
        --llama-batched-bench) llama_batched=$(program "$option" "$1") ;;
        --llama-quantize) llama_quantize=$(program "$option" "$1") ;;
        --llama2c) llama2c=$(program "$option" "$1") ;;
        --decode) decode=$(program "$option" "$1") ;;
        --rows) selected=$1 ;;
        --file) files+=("$(realpath -e "$1")") || die "--file: there is no '$1'" ;;
        --threads) positive "$option" "$1" && threads=$1 ;;
        --rounds) positive "$option" "$1" && rounds=$1 ;;
        --flash)
            case $1 in
            on | off) flash=$1 ;;
            both) ;;
            *) die "--flash: expected on, off or both, found '$1'" ;;
            esac
            ;;
        --quick) quick=yes ;;
        --keep) keep=yes ;;
        -h | --help)
            usage
            exit 0
            ;;
        esac
        case $option in --quick | --keep) ;; *) shift ;; esac
    done
    [ -n "$selected" ] || die "--rows: expected some of $groups, found none"
    local row
    for row in ${selected//,/ }; do
        case ,$groups, in
        *,"$row",*) ;;
        *) die "--rows: expected some of $groups, found '$row'" ;;
        esac
    done
}

wanted() { case ,$selected, in *,"$1",*) return 0 ;; *) return 1 ;; esac }

# --- programs ------------------------------------------------------------------------------------
# A measure prints one rate in tokens a second. It reads the globals model, kv_heads, kv_type, n, depth,
# batch, repeats and prompt, and leaves what its program printed in $work/out and $work/err.

# value KEY FILE... - prints the first value of a key in JSON, without its quotes.
value() {
    local key=$1
    shift
    sed -n '/"'"$key"'": /{s/.*"'"$key"'": *"\{0,1\}\([^",}]*\).*/\1/p;q;}' "$@"
}

decode_bench() {
    "$decode" bench "$model" --kv-heads "$kv_heads" --kv-type "$kv_type" -t "$threads" \
        --format json "$@" >"$work/out" 2>"$work/err" || return
    value isa "$work/out" >"$work/isa"
}

decode_steps() {
    decode_bench --depth "$depth" --batch "$batch" -n "$n" --repeat "$repeats" --prompt 0 || return
    value share_of_limit "$work/out" | awk '{ print 100 * $1 }' >>"$work/limit.rates"
    value tokens_per_s "$work/out"
}

# plain_read - times a plain read of what a step of the row reads, and prints its rate in GB/s.
plain_read() {
    decode_bench --depth "$depth" --batch "$batch" -n 1 --repeat 1 --warmup 0 --prompt 0 || return
    value bandwidth_gb_per_s "$work/out"
}

decode_prefill() {
    decode_bench --depth 0 -n 1 --repeat 1 --warmup 0 --prompt "$prompt" || return
    value prefill_share_of_limit "$work/out" | awk '{ print 100 * $1 }' >>"$work/limit.rates"
    value prefill_tokens_per_s "$work/out"
}

run_llama_bench() {
    "$llama_bench" -m "$model" -t "$threads" -o jsonl "$@" >"$work/out" 2>"$work/err" || return
    value build_commit "$work/out" >"$work/llama-commit"
}

# better FUNCTION - prints the higher of the function's rates with and without flash attention.
better() {
    local fa
    for fa in $flash; do
        "$1" -fa "$fa" || return
    done | sort -g | tail -n 1
}

llama_steps() { better llama_steps_of; }
llama_prefill() { better llama_prefill_of; }
llama_at_depth() { better llama_at_depth_of; }

llama_steps_of() {
    run_llama_bench "$@" -p 0 -n "$n" -r "$repeats" || return
    value avg_ts "$work/out"
}

llama_prefill_of() {
    run_llama_bench "$@" -p "$prompt" -n 0 -r 2 || return
    sed -n 's/.*"samples_ts": *\[\([^]]*\)\].*/\1/p' "$work/out" |
        awk -F, '{ for (i = 1; i <= NF; i++) if ($i + 0 > best) best = $i + 0 }
                 END { if (best) print best }'
}

llama_at_depth_of() {
    "$llama_batched" "$@" -m "$model" -t "$threads" -c $((batch * (prefix + n))) -b 2048 -ub 512 \
        -npp "$prefix" -ntg "$n" -npl "$batch" -ctk "${kv_type%/*}" -ctv "${kv_type#*/}" \
        --output-format jsonl >"$work/out" 2>"$work/err" || return
    value speed_tg "$work/out" "$work/err"
}

# llama2.c takes its time without the first token and in whole milliseconds, so several runs are added up.
# Each token prints as one byte: fewer bytes mean that a run ended early.
llama2c_steps() {
    local run printed
    : >"$work/rates"
    for ((run = 0; run < repeats; run++)); do
        OMP_NUM_THREADS=$threads "$llama2c" "$model_llama2c" -z "$tokenizer" -t 0 -n "$n" \
            >"$work/out" 2>"$work/err" || return
        printed=$(wc -c <"$work/out")
        if [ "$printed" -lt "$n" ]; then
            echo "it made $printed tokens; expected $n" >>"$work/err"
            return 1
        fi
        sed -n 's/^achieved tok\/s: *//p' "$work/err" >>"$work/rates"
    done
    awk -v n=$((n - 1)) '
        { tokens += n; if ($1 + 0 > 0 && $1 != "inf") seconds += n / $1 }
        END { if (seconds > 0) print tokens / seconds }' "$work/rates"
}

# --- checkpoints ---------------------------------------------------------------------------------

# discard FILE - removes a file that is not needed any more, unless --keep is given.
discard() { [ "$keep" = yes ] || rm -f "$1"; }

# make_f32 NAME SHAPE - makes an F32 file of the architecture $arch.
make_f32() {
    [ -f "$work/$1-f32.gguf" ] ||
        python3 "$here/make_random_checkpoint.py" "$2" --arch "$arch" --gguf "$work/$1-f32.gguf"
}

# make_llama2c NAME SHAPE - makes llama2.c's files, if it takes part; sets model_llama2c and tokenizer.
make_llama2c() {
    [ -n "$llama2c" ] || return 0
    model_llama2c=$work/$1.bin
    tokenizer=$work/$1.tokenizer
    [ -f "$model_llama2c" ] ||
        python3 "$here/make_random_checkpoint.py" "$2" --arch "$arch" \
            --llama2c "$model_llama2c" --tokenizer "$tokenizer"
}

# make_type NAME TYPE - makes a file of that type of the F32 file; says so and fails where nothing makes it.
make_type() {
    local in=$work/$1-f32.gguf out=$work/$1-$2.gguf
    [ -f "$out" ] && return
    if [ -n "$llama_quantize" ]; then
        "$llama_quantize" --pure "$in" "$out" "$2" >"$work/out" 2>"$work/err" && return
    else
        "$decode" convert "$in" -o "$out" --type "$2" >"$work/out" 2>"$work/err" && return
    fi
    rm -f "$out"
    complain "$1 was not made in $2 by" \
        "${llama_quantize:-decode convert --type; --llama-quantize PATH may be able to}"
    return 1
}

# --- rows ----------------------------------------------------------------------------------------

# complain WHAT... - says that, and the end of what the program last said.
complain() {
    failed=yes
    say "$*"
    { tail -n 3 "$work/out"; tail -n 3 "$work/err"; } | cut -c 1-300 | sed 's/^/    /' >&2
}

# take COLUMN MEASURE - runs a plain read, then a round of a program. A program that failed once has no
# more rounds in this row.
take() {
    local rate='' read=1
    if [ -z "$2" ] || [ -f "$work/$1.failed" ]; then
        return
    fi
    : >"$work/out"
    : >"$work/err"
    [ "$2" = decode_prefill ] || [ "$2" = llama_prefill ] || read=$(plain_read)
    rate=$("$2") || rate=''
    if [[ $rate == [0-9]* ]] && [[ $read == [0-9]* ]]; then
        echo "$rate" >>"$work/$1.rates"
        echo "$rate $read" >>"$work/$1.pairs"
    else
        complain "$label: $1 gave no rate"
        : >"$work/$1.failed"
    fi
}

# cell COLUMN - prints the median of a row's rounds, with the lowest and the highest.
cell() {
    [ -s "$work/$1.rates" ] || return 0
    sort -g "$work/$1.rates" | awk '
        function show(x) { return sprintf(x < 1000 ? "%.1f" : "%.0f", x) }
        { x[NR] = $1 }
        END {
            m = NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2
            printf "%s (%s..%s)", show(m), show(x[1]), show(x[NR])
        }'
}

# ratio - prints the median ratio of decode to the faster peer, each rate over the plain read beside it,
# with the lowest and the highest; nothing where one side is missing.
ratio() {
    local peers
    peers=$(cd "$work" && ls llama.cpp.pairs llama2.c.pairs 2>/dev/null) || true
    [ -n "$peers" ] && [ -s "$work/decode.pairs" ] || return 0
    # shellcheck disable=SC2086
    (cd "$work" && paste -d ' ' decode.pairs $peers) | awk '
        NF >= 4 {
            best = 0
            for (i = 3; i < NF; i += 2) if ($i / $(i + 1) > best) best = $i / $(i + 1)
            print $1 / $2 / best
        }' | sort -g | awk '
        { x[NR] = $1 }
        END {
            if (NR == 0) exit
            m = NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2
            printf "%.2f (%.2f..%.2f)%s", m, x[1], x[NR], x[NR] < 1 ? " behind" : ""
        }'
}

# row LABEL REQUIRED OURS LLAMA LLAMA2C - measures and prints a row; the last three are measures,
# empty for a program that does not take part.
row() {
    label=$1
    local required=$2 ours=$3 llama=$4 llama2=$5 round line
    rm -f "$work"/*.rates "$work"/*.pairs "$work"/*.failed
    for ((round = 1; round <= rounds; round++)); do
        [ -t 2 ] && printf '\r%s: round %d of %d\033[K' "$label" "$round" "$rounds" >&2
        take decode "$ours"
        take llama.cpp "$llama"
        take llama2.c "$llama2"
    done
    [ -t 2 ] && printf '\r\033[K' >&2
    local a b c limit
    a=$(cell decode) b=$(cell llama.cpp) c=$(cell llama2.c) limit=$(cell limit)
    line="| $label | ${a:-–} | ${limit:-–} |"
    [ -n "$llama_bench$llama_batched" ] && line+=" ${b:-–} |"
    [ -n "$llama2c" ] && line+=" ${c:-–} |"
    if [ -n "$llama_bench$llama_batched$llama2c" ]; then
        local x=''
        compgen -G "$work/*.failed" >/dev/null || x=$(ratio)
        line+=" ${x:-–} | $required |"
    fi
    printf '%s\n' "$line"
}

head_of_table() {
    local line='| row | decode tok/s | limit, % |' rule='| :-- | --: | --: |'
    if [ -n "$llama_bench$llama_batched" ]; then
        line+=' llama.cpp tok/s |' rule+=' --: |'
    fi
    if [ -n "$llama2c" ]; then
        line+=' llama2.c tok/s |' rule+=' --: |'
    fi
    if [ -n "$llama_bench$llama_batched$llama2c" ]; then
        line+=' ratio to the faster peer | required |' rule+=' --: | --: |'
    fi
    printf '%s\n%s\n' "$line" "$rule"
}

# near_zero NAME TITLE SHAPE HEADS REPEATS TYPE=REQUIRED... - the rows of a shape near depth 0.
near_zero() {
    local name=$1 title=$2 shape=$3 type required llama2
    kv_heads=$4 kv_type=f32 n=$steps depth=$((steps / 2)) repeats=$5
    [ "$quick" = no ] || repeats=$(((repeats + 3) / 4))
    shift 5
    make_f32 "$name" "$shape"
    for type in "$@"; do
        required=${type#*=} type=${type%%=*} llama2=''
        model=$work/$name-$type.gguf
        [ "$type" = f32 ] || make_type "$name" "$type" || continue
        if [ "$type" = f32 ]; then
            make_llama2c "$name" "$shape"
            llama2=${llama2c:+llama2c_steps}
        fi
        row "$title $(upper "$type")" "$required" decode_steps "${llama_bench:+llama_steps}" \
            "$llama2"
    done
    discard "$work/$name.bin"
}

upper() { printf '%s' "$1" | tr '[:lower:]' '[:upper:]'; }

shape_124m=12x768x12,ff=3072,vocab=50257

# The required ratios are the project's targets over what the faster peer reached when they were set.
# The toy in F16 and Q8_0 has none, because no peer had been measured with it.
toy_rows() { near_zero toy toy 4x128x8,ff=512,vocab=256,ctx=1024 8 32 f32=2.00 f16=– q8_0=–; }
small_rows() { near_zero small small 6x256x8,ff=1024,vocab=1024,ctx=1024 8 8 f32=2.60; }
rows_124m() {
    near_zero 124m 124M "$shape_124m,ctx=1024" 12 1 f32=1.15 f16=1.30 q8_0=1.80 q4_0=2.00
}

depth_rows() {
    local variant name required
    kv_type=f16 n=$steps_at_depth depth=$depth_middle repeats=1
    for variant in MHA=12=1.43 GQA-4=4=1.55 MQA=1=1.80; do
        IFS='=' read -r name kv_heads required <<<"$variant"
        model=$work/depth-$name-f32.gguf
        make_f32 "depth-$name" "$shape_124m,ctx=4096,kv=$kv_heads"
        row "124M F32, depth $prefix, F16 cache, $name" "$required" decode_steps \
            "${llama_batched:+llama_at_depth}" ""
        discard "$model"
    done
}

batch_rows() {
    local variant name prefix=$prefix_of_batch batch
    kv_type=f16 n=$steps_of_batch depth=$((prefix + n / 2)) repeats=1
    for variant in MHA=12 MQA=1; do
        IFS='=' read -r name kv_heads <<<"$variant"
        make_f32 "batch-$name" "$shape_124m,ctx=2048,kv=$kv_heads"
        make_type "batch-$name" q8_0 || continue
        discard "$work/batch-$name-f32.gguf"
        model=$work/batch-$name-q8_0.gguf
        for batch in 1 4 16; do
            row "124M Q8_0, depth $prefix, F16 cache, batch $batch, $name" 2.00 decode_steps \
                "${llama_batched:+llama_at_depth}" ""
        done
        discard "$model"
    done
}

# A type of the cache is one for keys and values, or K/V. llama.cpp takes quantised values only with flash
# attention.
cache_rows() {
    local flash=on kv_type batch deep=$prefix prefix
    kv_heads=12 repeats=1
    make_f32 cache "$shape_124m,ctx=4096,kv=$kv_heads"
    make_type cache q8_0 || return 0
    discard "$work/cache-f32.gguf"
    model=$work/cache-q8_0.gguf
    for batch in 16 1; do
        prefix=$prefix_of_batch n=$steps_of_batch
        [ "$batch" = 16 ] || prefix=$deep n=$steps_at_depth
        depth=$((prefix + n / 2))
        for kv_type in f16 q8_0 q8_0/q4_0 q4_0; do
            row "124M Q8_0, depth $prefix, $kv_type cache, batch $batch, MHA" 2.00 decode_steps \
                "${llama_batched:+llama_at_depth}" ""
        done
    done
    discard "$model"
}

prefill_rows() {
    local type required
    kv_heads=12 kv_type=f32
    make_f32 124m "$shape_124m,ctx=1024"
    for type in f32=1.47 f16=1.34 q8_0=2.02 q4_0=1.67; do
        required=${type#*=} type=${type%%=*}
        model=$work/124m-$type.gguf
        [ "$type" = f32 ] || make_type 124m "$type" || continue
        row "124M $(upper "$type"), prefill of $prompt" "$required" decode_prefill \
            "${llama_bench:+llama_prefill}" ""
    done
}

# All programs run a llama, whose feed-forward layer is 8/3 of d_model wide, as is usual for its kind.
llama_rows() {
    local heads prompt_type required
    arch=llama
    near_zero llama-toy "llama toy" 4x128x8,ff=352,vocab=256,ctx=1024 8 32 f32=2.00
    near_zero llama-small "llama small" 6x256x8,ff=704,vocab=1024,ctx=1024 8 8 f32=1.80 q8_0=–
    for heads in 12 4 1; do
        near_zero "llama-110m-$heads" "llama 110M, kv $heads" \
            "12x768x12,ff=2048,vocab=32000,ctx=1024,kv=$heads" "$heads" 1 f32=1.15 f16=1.30 \
            q8_0=1.80 q4_0=2.00
        kv_heads=$heads kv_type=f32
        for prompt_type in f32=1.47 f16=1.34 q8_0=2.02 q4_0=1.67; do
            required=${prompt_type#*=} prompt_type=${prompt_type%%=*}
            [ "$heads" = 4 ] || continue
            model=$work/llama-110m-$heads-$prompt_type.gguf
            row "llama 110M $(upper "$prompt_type"), kv $heads, prefill of $prompt" "$required" \
                decode_prefill "${llama_bench:+llama_prefill}" ""
        done
        for prompt_type in f32 f16 q8_0 q4_0; do
            discard "$work/llama-110m-$heads-$prompt_type.gguf"
        done
    done
    arch=gpt2
}

# Files are read as they are: decode widens types that its kernels do not have.
file_rows() {
    local name
    for model in ${files[@]+"${files[@]}"}; do
        name=$(basename "$model" .gguf)
        "$decode" info "$model" --format json >"$work/out"
        kv_heads=$(value n_kv_heads "$work/out")
        kv_type=f32 n=$steps depth=$((steps / 2)) repeats=1
        row "$name" – decode_steps "${llama_bench:+llama_steps}" ""
        row "$name, prefill of $prompt" – decode_prefill "${llama_bench:+llama_prefill}" ""
    done
}

# --- notes ---------------------------------------------------------------------------------------

processor() {
    local name
    name=$(sed -n '/^model name/{s/^[^:]*: *//p;q;}' /proc/cpuinfo 2>/dev/null) || true
    printf '%s' "${name:-$(uname -m)}"
}

# commit_of PROGRAM - prints the commit of the repository that the program lies in.
commit_of() {
    git -C "$(dirname "$1")" describe --always --dirty 2>/dev/null || printf 'of unknown commit'
}

llama_commit() {
    local commit=''
    [ ! -f "$work/llama-commit" ] || commit=$(cat "$work/llama-commit")
    if [ -z "$commit" ] && [ -n "$llama_batched" ]; then
        commit=$("$llama_batched" --version 2>&1 | sed -n 's/^version:.*(\(.*\)).*/\1/p') || true
    fi
    printf '%s' "${commit:-of unknown commit}"
}

notes() {
    local versions
    cat <<END

Tokens a second with random weights, but in rows of files, of one sequence unless a batch is named: the median of $rounds
rounds (lowest..highest), in which the programs take turns. Decode: $steps tokens from an empty cache,
decode's at their mean depth, $((steps / 2)); each program's default cache. At depth: $steps_at_depth
tokens after $prefix, decode's at depth $depth_middle. Batches: $steps_of_batch steps after $prefix_of_batch tokens of each
sequence, decode's at depth $((prefix_of_batch + steps_of_batch / 2)); all sequences are counted. Prefill: the better of two passes.
Limit: the share that decode reaches of what a plain read of the same bytes, timed in the same run, or
the peak of the arithmetic allows. Ratio: decode to the faster peer, the median of the rounds
(lowest..highest); each rate is divided by that of the plain read beside it, except in prefill.
END
    if [ -n "$llama_bench$llama_batched$llama2c" ]; then
        cat <<END
llama.cpp reads the same file as decode; its default cache is F16, the others' F32; its flash attention is
${flash/ off/ or off, whichever is faster}. llama2.c runs its own architecture in the same shape, with a
feed-forward layer of as many weights (three matrices of 2/3 the size), and its time includes greedy
sampling.
END
    fi
    [ "$quick" = no ] || printf '\nMade with --quick: a trial of the script, not a measurement.\n'
    versions="$("$decode" --version | sed -n '1p; s/^compiler  *//p' | paste -sd ' '), commit $(commit_of "$decode")"
    [ -z "$llama_bench$llama_batched" ] || versions+="; llama.cpp $(llama_commit)"
    [ -z "$llama2c" ] || versions+="; llama2.c $(commit_of "$llama2c")"
    printf '\n%s, %s processors, %s threads, %s; %s; %s\n' "$(processor)" "$processors" "$threads" \
        "$(cat "$work/isa" 2>/dev/null || printf 'instruction set unknown')" "$versions" \
        "$(date -u +%Y-%m-%d)"
}

# --- the run -------------------------------------------------------------------------------------

read_options "$@"
command -v python3 >/dev/null ||
    die "python3, which makes the checkpoints, is missing; install it (apt-get install python3)"
command -v awk >/dev/null || die "awk is missing; install it (apt-get install mawk)"
cd "$here/../.."
if [ -z "$decode" ]; then
    make -s decode
    decode=$PWD/decode
fi
processors=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
threads=${threads:-$processors}
steps=128 steps_at_depth=64 prefix=3840 prompt=128 batch=1 steps_of_batch=32 prefix_of_batch=1024
[ "$quick" = no ] || rounds=1 steps=32 steps_at_depth=8 prefix=256 steps_of_batch=4 prefix_of_batch=64
depth_middle=$((prefix + steps_at_depth / 2))
if [ "$quick" = no ] && [ -r /proc/loadavg ] && ! awk '{ exit $1 > 0.5 }' /proc/loadavg; then
    say "the load average is $(cut -d ' ' -f 1 /proc/loadavg): if others use this machine, the" \
        "figures say little"
fi

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
work=$(mktemp -d "${TMPDIR:-/tmp}/bench_peers.XXXXXX")

head_of_table
if wanted toy; then toy_rows; fi
if wanted small; then small_rows; fi
if wanted 124m; then rows_124m; fi
if wanted depth; then depth_rows; fi
if wanted batch; then batch_rows; fi
if wanted cache; then cache_rows; fi
if wanted prefill; then prefill_rows; fi
if wanted llama; then llama_rows; fi
if wanted files; then file_rows; fi
notes
[ "$failed" = no ]
