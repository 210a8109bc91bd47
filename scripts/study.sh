#!/usr/bin/env bash
# study.sh TEXT DIR [--heads H,...|--kv-heads G,...] [--method M,...] [--alpha P,...] [--seeds N]
#          [--match params|flops] [options of train] [--print] - the GQA paper's experiment
#
# Trains an MHA checkpoint for each seed, converts it by each method (scratch: trains such a model
# from scratch) to each number of K/V heads, trains each further for each percent of the steps, and
# evaluates all on the held-out part of TEXT; or trains several numbers of query heads, H, of size D
# as HxD, over G K/V heads as H/G or HxD/G. By default:
# --heads 8, --kv-heads its divisors, --method mean,fit,scratch --alpha 0,5 --seeds 2 --steps 250.
# A cell is DIR/NAME.gguf and DIR/NAME.json; what is there is not made again. --print prints the
# commands, in three groups, each of which needs the one before. scripts/study.md says more.
set -euof pipefail
export LC_ALL=C
fail() { echo "study.sh: $2" >&2 && exit "$1"; } # STATUS MESSAGE

# --- options ------------------------------------------------------------------------------------
case ${1:-} in -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$0" && exit ;; esac
[[ $# -ge 2 && $1 != -* && $2 != -* ]] || fail 2 "expected TEXT DIR [options]; --help says more"
[[ -f $1 && -r $1 ]] || fail 3 "$1: expected a file, which every cell reads again"
text=$1 dir=${2%/} prints=no
shift 2
declare -A given=()
while [ $# -gt 0 ]; do
    case $1 in
    --print) prints=yes ;;
    --no-bias | --share-layers) given[$1]='' ;;
    --*=*) given[${1%%=*}]=${1#*=} ;;
    -t | --*)
        [ $# -gt 1 ] || fail 2 "$1: expected a value"
        given[${1/#-t/--threads}]=$2
        shift ;;
    *) fail 2 "expected an option of the study or of train, found '$1'" ;;
    esac
    shift
done
items() { # OPTION DEFAULT PATTERN [WHAT]: those of its list, each once
    local list=${given[$1]-$2} item
    for item in ${list//,/ }; do
        [[ $item =~ ^($3)$ ]] || fail 2 "$1: expected ${4:-$3}, found '$item'"
    done
    tr , '\n' <<<"$list" | awk '!seen[$0]++'
}
number='[1-9][0-9]{0,8}' kv_heads=() alphas=(0:0) variants=()
steps=$(items --steps 250 "$number" "a number of steps")
seeds=$(items --seeds 2 "$number" "a number of seeds")
match=$(items --match '' 'params|flops')
heads=($(items --heads 8 "$number(x$number)?(/$number)?" "numbers of query heads"))
if [[ ${#heads[@]} -eq 1 && $heads =~ ^$number$ ]]; then
    divisors=$(for ((g = heads[0] / 2; g > 0; g--)); do ((heads[0] % g)) || echo $g; done)
    kv_heads=($(items --kv-heads "${divisors//$'\n'/,}" "${divisors//$'\n'/|}"))
    methods=$(items --method mean,fit,scratch 'mean|first|random|procrustes|fit|scratch')
    alphas+=($(items --alpha 0,5 '[0-9]{1,6}([.][0-9]{1,6})?' "percents of the steps" | sort -n |
        awk -v n="$steps" '$0 > 0 { k = int($0 / 100 * n + 0.5); print $0 ":" (k ? k : 1) }'))
    variants=("MHA mha ${heads[0]} ${heads[0]} mha")
    for g in "${kv_heads[@]}"; do
        name=$([ "$g" = 1 ] && echo MQA || echo "GQA-$g") && stem=$(tr -d - <<<"${name,,}")
        for method in $methods; do variants+=("$name $method ${heads[0]} $g $stem-$method"); done
    done
else
    [ -z "${given[--kv-heads]+x}${given[--method]+x}${given[--alpha]+x}" ] ||
        fail 2 "--kv-heads, --method, --alpha: several --heads are not converted; expected one"
    for item in "${heads[@]}"; do
        [[ $item =~ ^([0-9]+)(x([0-9]+))?(/([0-9]+))?$ ]]
        h=${BASH_REMATCH[1]} k=${BASH_REMATCH[3]} g=${BASH_REMATCH[5]}
        variants+=("heads-$item mha $h ${g:-$h} heads-${item/\//-kv}-mha $k")
    done
fi

# What train gets, and of it train --from; and what tells this study's folder from others.
threads=(${given[--threads]:+-t "${given[--threads]}"})
unset 'given[--threads]' 'given[--seeds]' 'given[--kv-heads]' 'given[--method]' 'given[--alpha]'
train=() further=() settings="text $(cksum <"$text")"
for option in $(printf '%s\n' "${!given[@]}" | sort); do
    words=("$option" ${given[$option]:+"${given[$option]}"})
    settings+=$'\n'${words[*]}
    [[ ! $option =~ ^--(output|from|teacher|log|resume|force|seed|save-every|eval-every)$ ]] ||
        fail 2 "$option is chosen for each cell; expected options of the study or of a new model"
    [[ ! $option =~ ^--(heads|steps|match)$ && $match$option != ?*--ff ]] || continue
    train+=("${words[@]}")
    [[ ! $option =~ ^--(ctx|batch|optimizer|weight-decay|clip|val-fraction)$ ]] || further+=("${words[@]}")
done

# --- the plan -----------------------------------------------------------------------------------
decode=${DECODE:-$(cd "$(dirname "$0")/.." && pwd)/decode}
[ -x "$decode" ] || fail 1 "$decode: there is no such program; make builds it, or DECODE names it"
# Where the held-out part begins: in bytes, and as eval --range has it, to the last digit.
read -r cut range < <(awk -v p="${given[--val-fraction]-0.1}" -v size="$(wc -c <"$text")" 'BEGIN {
    r = sprintf("%.15g", 1 - p); print int((1 - p) * size), r + 0 == 1 - p ? r : sprintf("%.17g", 1 - p) }')
amount() { # HEADS KV-HEADS SIZE: of a layer what differs, weights, or operations at half the context
    local k=${3:-${given[--head-dim]-$((d / $1))}} && local v=$k
    echo $((weights ? ($1 * k + $2 * (k + v)) * (d + bias) + $1 * v * d
        : 2 * d * ($1 + $2) * (k + v) + 2 * $1 * (k + v) * (ctx / 2 + 1)))
}
width() { # HEADS KV-HEADS SIZE: the --ff with which they have as much as the first of --heads as MHA
    local d=${given[--embd]-128} ctx=${given[--ctx]-256} weights=0 bias=1 n=2 each ff more
    [ "$match" = flops ] || weights=1
    [[ ${given[--arch]-} != llama && ${given[--ffn]-} != swiglu ]] || n=3 # matrices
    [[ ${given[--arch]-} != llama && -z ${given[--no-bias]+x} ]] || bias=0
    ff=${given[--ff]-$((n == 3 ? (8 * d / 3 + 31) / 32 * 32 : 4 * d))}
    each=$((weights ? n * d + (n - 1) * bias : 2 * n * d))
    read -r _ _ first _ _ size <<<"${variants[0]}"
    more=$(($(amount "$first" "$first" "$size") - $(amount "$1" "$2" "$3")))
    ff=$((ff + (2 * more + (more < 0 ? -each : each)) / (2 * each)))
    [ $ff -ge 1 ] || fail 2 "--match: $1 heads, $2 K/V heads would need a feed-forward layer of $ff"
    echo $ff
}
path() { [ "$2" = 0 ] && echo "$dir/$1-seed$seed" || echo "$dir/$1-alpha$2-seed$seed"; }
run() { printf '%q ' "$decode" "$@" -q "${threads[@]}"; } # a command as bash reads it back
# The files of a name f: unless one is there, a command writes f.part, which is renamed when whole.
named() { printf 'f=%q' "$1"; }
made() { echo "{ test -e \"\$f.$1\" || { $2 && mv \"\$f.part\" \"\$f.$1\"; }; }"; } # SUFFIX COMMAND
cell() { # COMMAND: adds what makes and evaluates the cell to `job`, and what it is to `rows`
    job+="${job:+ && }$(named "$(path "$stem" "$alpha")") && $(made gguf "$1") && $(made json \
        "$(run eval "$text" --range "$range:1" --format jsonl -m)\"\$f.gguf\" >\"\$f.part\"")"
    rows+="cell|$name|$method|$alpha|$(path "$stem" "$alpha").json|$(path "$base" "$alpha").json"$'\n'
}
trained() { # STEPS OPTIONS; an interrupted training leaves a state, with which it goes on
    local out='-o "$f.part" $(test -e "$f.part.state" && echo --resume || echo --force)'
    cell "$(run train "$text" "${@:2}" --steps "$1" --seed $seed --eval-every -1)$out && rm -f \"\$f.part.state\""
}
first=() second=() third=() rows='' ff=()
read -r _ _ _ _ base _ <<<"${variants[0]}" # that others are compared with
for ((seed = 1; seed <= seeds; seed++)); do
    for line in "${variants[@]}"; do
        read -r name method h g stem k <<<"$line"
        alpha=0 more=0 job=''
        if [[ $method =~ ^(mha|scratch)$ ]]; then
            [ "$method" = mha ] || alpha=${alphas[-1]%:*} more=${alphas[-1]#*:}
            [ -z "$match" ] || ff=(--ff "$(width "$h" "$g" "$k")")
            trained $((steps + more)) "${train[@]}" --heads "$h" --kv-heads "$g" \
                ${k:+--head-dim "$k"} "${ff[@]}"
            first+=("$job") job=''
        else
            words=(--kv-heads "$g" --method "$method" --seed "$seed" --force)
            [ "$method" != fit ] || words+=(--calib "$dir/study-calib.txt")
            cell "$(run convert "$(path mha 0).gguf" "${words[@]}")-o \"\$f.part\""
        fi
        [ "$method" = scratch ] || for alpha in "${alphas[@]:1}"; do
            more=${alpha#*:} alpha=${alpha%:*}
            trained "$more" --from "$(path "$stem" 0).gguf" "${further[@]}"
        done
        [ -z "$job" ] || second+=("$job")
        if [ "$method$seed" = mha1 ]; then # how heads were merged changes no time
            printf -v list ',%s' "$g" "${kv_heads[@]}"
            own=${list:1} && [[ $name != heads-*[x/]* ]] || own=${stem%-mha}
            job=$(run bench "$(path "$stem" 0).gguf" --kv-heads "${list:1}" --format jsonl \
                --depth $((${given[--ctx]-256} / 2)))
            third+=("$(named "$dir/bench-$own") && $(made jsonl "$job >\"\$f.part\"")")
            rows+="time|$name|$dir/bench-$own.jsonl"$'\n'
        fi
    done
done

# --- the folder ---------------------------------------------------------------------------------
mkdir -p "$dir"
if [ -n "$(find "$dir" -name '*-seed*')" ]; then # there are cells
    other=$(diff "$dir/study.txt" - <<<"$settings" 2>/dev/null | sed -n 's/^</; there/p; s/^>/; here/p') || true
    [ -z "$other" ] || fail 2 "$dir: another study's; expected its text and options, or a new folder${other//$'\n'/}"
fi
echo "$settings" >"$dir/study.txt"
head -c "$cut" "$text" >"$dir/calib.part" && mv "$dir/calib.part" "$dir/study-calib.txt"

# --- the run ------------------------------------------------------------------------------------
[ $prints = no ] || { printf '%s\n' "${first[@]}" '' "${second[@]}" '' "${third[@]}" && exit; }
jobs=("${first[@]}" "${second[@]}" "${third[@]}")
for i in "${!jobs[@]}"; do
    echo "study.sh: job $((i + 1)) of ${#jobs[@]}: ${jobs[i]%% &&*}" >&2
    bash -c "${jobs[i]}" >/dev/null || fail $? "stopped; the same command goes on"
done
awk -F '|' -v over="${variants[0]%% *}" -v matched="$match" -v plot="$dir/study.dat" '
    function value(key, json) {
        sub(".*\"" key "\": \"?", "", json)
        return substr(json, 1, match(json, /[",}]/) - 1)
    }
    function add(to, x,   by) {
        by = x - mean[to]
        mean[to] += by / ++n[to]
        squares[to] += by * (x - mean[to])
    }
    function deviation(of) { return n[of] > 1 ? sprintf("%.4f", sqrt(squares[of] / (n[of] - 1))) : "" }
    $1 == "time" {
        while ((getline json <$3) > 0)
            us[$2 ~ /heads/ ? $2 : value("variant", json)] = sprintf("%.4g", value("us_per_token", json))
    }
    $1 == "cell" {
        row = $2 " | " $3 " | " $4
        if (!n[row]) order[++rows] = row
        getline json <$5
        add(row, bits[$5] = value("bits_per_byte", json))
        if ($5 != $6) add(row "|", bits[$5] - bits[$6])
    }
    END {
        print "| variant | method | % of steps | seeds | bits/byte | ± | over " over " | ± | µs/token |"
        print "|:--|:--|--:|--:|--:|--:|--:|--:|--:|"
        for (i = 1; i <= rows; i++) {
            split(row = order[i], part, " [|] ")
            printf "| %s | %d | %.4f | %s | ", row, n[row], mean[row], deviation(row)
            printf n[row "|"] ? "%+.4f | %s | " : " | | ", mean[row "|"], deviation(row "|")
            print (part[2] == "scratch" && matched ? "" : us[part[1]]) " |"
            line = part[1] " " part[2]
            if (sub(/heads-/, "", part[1])) { part[3] = part[1] + 0; line = "MHA" }
            if (!drawn[line]++) printf "\n\n\"%s\"\n", line >plot
            print part[3], mean[row], deviation(row) + 0 >plot
        }
    }' <<<"$rows" | tee "$dir/study.md"
command -v gnuplot >/dev/null || exit 0
cd "$dir" && gnuplot <<<"set terminal svg size 860,520 background 'white'; set output 'study.svg'
    set key outside; set offsets graph 0.03, graph 0.03; set xlabel '% or heads'; set ylabel 'bits per byte'
    plot for [i = 0:*] 'study.dat' index i using 1:2:3 with yerrorlines title columnheader(1)"
