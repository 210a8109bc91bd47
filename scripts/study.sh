#!/usr/bin/env bash
# study.sh TEXT DIR [--heads H,...|--kv-heads G,...|--arm NAME [OPTIONS] ...] [--method M,...]
#          [--alpha P,...] [--rates R,...] [--seeds N] [--jobs N] [--match params|flops]
#          [options of train] [--print] - trainings compared over seeds and learning rates
#
# The GQA paper's experiment: trains an MHA checkpoint for each seed, converts it by each method
# (scratch: trains such a model from scratch) to each number of K/V heads, trains each further for
# each percent of the steps, and evaluates all on the held-out part of TEXT. By default: --heads 8,
# --kv-heads its divisors, --method mean,fit,scratch --alpha 0,5 --seeds 3 --steps 250.
# Or arms, which are trained from scratch and compared with the first: of each NAME the options of
# train behind it and those that all share; or several numbers of query heads, H, of size D as HxD,
# over G K/V heads as H/G or HxD/G. --rates are the learning rates that each arm, or each further
# training, is tried at: the table shows the best of each.
# A cell is DIR/NAME.gguf and DIR/NAME.json; what is there is not made again. --jobs runs so many at
# a time. --print prints the commands, in two groups, of which the second needs the first.
# DIR/study.csv has every cell.
set -euof pipefail
export LC_ALL=C
fail() { printf 'study.sh: %s\n' "$2" >&2 && exit "$1"; } # STATUS MESSAGE

# --- options ------------------------------------------------------------------------------------
case ${1:-} in -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$0" && exit ;; esac
[[ $# -ge 2 && $1 != -* && $2 != -* ]] || fail 2 "expected TEXT DIR [options]; --help says more"
[[ -f $1 && -r $1 ]] || fail 3 "$1: expected a file, which every cell reads again"
text=$1 dir=${2%/} prints=no
[ -n "$dir" ] || fail 2 "DIR: expected a folder for this study alone"
shift 2
number='[1-9][0-9]{0,7}' count='[0-9]{1,7}[kKM]?' share='[0-9]{1,6}([.][0-9]{1,6})?'
declare -A given=()
arms=() arm_words=() # of each arm its name, and its options as bash reads them back
chosen='--(output|from|teacher|log|resume|force|seed|save-every|eval-every)'
option() { # NAME [VALUE]: one that all cells share, or the last arm's
    [[ ! $1 =~ ^$chosen$ ]] || fail 2 "$1 is chosen for each cell; expected options of the study or of a new model"
    if [ ${#arms[@]} -eq 0 ]; then
        given[$1]=${2-}
    else
        printf -v words '%q ' "$@"
        arm_words[-1]+=$words
    fi
}
while [ $# -gt 0 ]; do
    case $1 in
    --print) prints=yes ;;
    --arm | --arm=*)
        [[ $1 == *=* ]] || { [ $# -gt 1 ] && set -- "--arm=$2" "${@:3}"; } || fail 2 "--arm: expected a name"
        [[ ${1#--arm=} =~ ^[A-Za-z0-9][A-Za-z0-9.+/-]{0,40}$ ]] ||
            fail 2 "--arm: expected a name of letters, digits and .+-/, found '${1#--arm=}'"
        [[ " ${arms[*]} " != *" ${1#--arm=} "* ]] || fail 2 "--arm: there are two of '${1#--arm=}'"
        arms+=("${1#--arm=}") arm_words+=('') ;;
    --no-bias | --share-layers) option "$1" ;;
    --*=*) option "${1%%=*}" "${1#*=}" ;;
    -t | --*)
        [ $# -gt 1 ] || fail 2 "$1: expected a value"
        option "${1/#-t/--threads}" "$2"
        shift ;;
    *) fail 2 "expected an option of the study or of train, found '$1'" ;;
    esac
    shift
done
items() { # OPTION DEFAULT PATTERN [WHAT]: those of its list, each once
    local list=${given[$1]-$2} item seen=,
    while [ -n "$list" ]; do
        item=${list%%,*} list=${list#"$item"} list=${list#,}
        [[ $item =~ ^($3)$ ]] || fail 2 "$1: expected ${4:-$3}, found '$item'"
        [[ $seen == *",$item,"* ]] || { echo "$item" && seen+=$item,; }
    done
}
whole() { # OPTION DEFAULT: its value as a number, as train reads it
    local value=${given[$1]-$2}
    [[ $value =~ ^([0-9]{1,7})([kKM]?)$ ]] || fail 2 "$1: expected a whole number, found '$value'"
    case ${BASH_REMATCH[2]} in '') value=1 ;; M) value=1000000 ;; *) value=1000 ;; esac
    echo $((10#${BASH_REMATCH[1]} * value))
}
steps=$(whole --steps 250)
seeds=$(items --seeds 3 "$number" "a number of seeds")
n_jobs=$(items --jobs 1 "$number" "a number of jobs")
match=$(items --match '' 'params|flops')
rates=($(items --rates '' '[0-9]*[.]?[0-9]+(e-?[0-9]{1,2})?' "learning rates"))
kv_heads=() alphas=() methods=''
# Of each variant: its name, how it is made, its cells' name, and how many heads it has.
names=() methods_of=() stems=() n_query=() n_kv=() sizes=() options_of=()
variant() { # NAME METHOD STEM HEADS KV-HEADS SIZE OPTIONS
    names+=("$1") methods_of+=("$2") stems+=("$3") n_query+=("$4") n_kv+=("$5") sizes+=("$6") options_of+=("$7")
}
if [ ${#arms[@]} -gt 0 ]; then
    [ -z "$match${given[--kv-heads]+x}${given[--method]+x}${given[--alpha]+x}" ] ||
        fail 2 "--match, --kv-heads, --method, --alpha: not of arms, whose names are before their options"
    for i in "${!arms[@]}"; do variant "${arms[i]}" train "${arms[i]//\//-}" '' '' '' "${arm_words[i]}"; done
else
    heads=($(items --heads 8 "$number(x$number)?(/$number)?" "numbers of query heads"))
    unset 'given[--heads]'
fi
if [[ ${#arms[@]} -eq 0 && ${#heads[@]} -eq 1 && $heads =~ ^$number$ ]]; then
    divisors=$(for ((g = heads[0] / 2; g > 0; g--)); do ((heads[0] % g)) || echo $g; done)
    kv_heads=($(items --kv-heads "${divisors//$'\n'/,}" "${divisors//$'\n'/|}"))
    methods=$(items --method mean,fit,scratch 'mean|first|random|procrustes|fit|scratch')
    alphas=($(items --alpha 0,5 "$share" "percents of the steps" | sort -n | awk '$0 > 0'))
    variant MHA mha mha "$heads" "$heads" '' ''
    for g in "${kv_heads[@]}"; do
        name=$([ "$g" = 1 ] && echo MQA || echo "GQA-$g") && stem=$(tr -d - <<<"${name,,}")
        for method in $methods; do variant "$name" "$method" "$stem-$method" "$heads" "$g" '' ''; done
    done
elif [ ${#arms[@]} -eq 0 ]; then
    [ -z "${given[--kv-heads]+x}${given[--method]+x}${given[--alpha]+x}" ] ||
        fail 2 "--kv-heads, --method, --alpha: several --heads are not converted; expected one"
    for item in "${heads[@]}"; do
        [[ $item =~ ^([0-9]+)(x([0-9]+))?(/([0-9]+))?$ ]]
        h=${BASH_REMATCH[1]} k=${BASH_REMATCH[3]} g=${BASH_REMATCH[5]}
        variant "heads-$item" train "heads-${item/\//-kv}" "$h" "${g:-$h}" "$k" ''
    done
fi

# What train gets, and of it train --from; and what tells this study's folder from others.
fraction=$(items --val-fraction 0.1 "0?[.][0-9]{1,6}|0" "a fraction from 0 to 0.9")
threads=(${given[--threads]:+-t "${given[--threads]}"})
for name in threads seeds jobs rates kv-heads method alpha; do unset "given[--$name]"; done
train=() further=() settings="text $(cksum <"$text")"
while IFS= read -r name; do
    [ -n "$name" ] || continue # there are no options
    words=("$name" ${given[$name]:+"${given[$name]}"})
    printf -v line '%q ' "${words[@]}"
    settings+=$'\n'${line% }
    [[ ! $name =~ ^--(steps|match)$ && $match$name != ?*--ff ]] || continue
    train+=("${words[@]}")
    [[ ! $name =~ ^--(ctx|batch|optimizer|weight-decay|clip|val-fraction)$ ]] || further+=("${words[@]}")
done < <(printf '%s\n' "${!given[@]}" | sort)

# --- the plan -----------------------------------------------------------------------------------
decode=${DECODE:-$(cd "$(dirname "$0")/.." && pwd)/decode}
[ -x "$decode" ] || fail 1 "$decode: there is no such program; make builds it, or DECODE names it"
# Where the held-out part begins: in bytes, and as eval --range has it, to the last digit.
read -r cut range < <(awk -v p="$fraction" -v size="$(wc -c <"$text")" 'BEGIN {
    r = sprintf("%.15g", 1 - p); print int((1 - p) * size), r + 0 == 1 - p ? r : sprintf("%.17g", 1 - p) }')
if [ -n "$match" ]; then
    d=$(whole --embd 128)
    ctx=$(whole --ctx 256)
    k_all=$(whole --head-dim 0)
    weights=0 bias=1 n=2
    [ "$match" = flops ] || weights=1
    [[ ${given[--arch]-} != llama && ${given[--ffn]-} != swiglu ]] || n=3 # matrices
    [[ ${given[--arch]-} != llama && -z ${given[--no-bias]+x} ]] || bias=0
    ff_first=$(whole --ff $((n == 3 ? (8 * d / 3 + 31) / 32 * 32 : 4 * d)))
    each=$((weights ? n * d + (n - 1) * bias : 2 * n * d))
fi
amount() { # VARIANT: of a layer what differs, weights, or operations at half the context
    local h=${n_query[$1]} g=${n_kv[$1]}
    local k=${sizes[$1]:-$((k_all > 0 ? k_all : d / h))}
    echo $((weights ? (h + 2 * g) * k * (d + bias) + h * k * d : 4 * d * (h + g) * k + 4 * h * k * (ctx / 2 + 1)))
}
width() { # VARIANT: the --ff with which it has as much as the first of --heads as MHA
    local more ff g=${n_kv[0]}
    n_kv[0]=${n_query[0]}
    more=$(($(amount 0) - $(n_kv[0]=$([ "$1" = 0 ] && echo "$g" || echo "${n_kv[0]}") && amount "$1")))
    ff=$((ff_first + (2 * more + (more < 0 ? -each : each)) / (2 * each)))
    [ $ff -ge 1 ] || fail 2 "--match: ${n_query[$1]} heads, ${n_kv[$1]} K/V heads would need a feed-forward layer of $ff"
    echo $ff
}
name_of() { # STEM ALPHA RATE: of a cell of this seed
    local name=$1
    [ "$2" = 0 ] || name+=-alpha$2
    [ -z "$3" ] || name+=-lr$3
    echo "$name-seed$seed"
}
run() { printf '%q ' "$decode" "$@" -q "${threads[@]}"; } # a command as bash reads it back
# The files of a name f: unless one is there, a command writes f.part, which is renamed when whole.
named() { printf 'f=%q' "$1"; }
made() { echo "{ test -e \"\$f.$1\" || { $2 && mv \"\$f.part\" \"\$f.$1\"; }; }"; } # SUFFIX COMMAND
cells=() cell_of=() # names of files; and what each cell is, a line of study.csv without its result
cell() { # VARIANT ALPHA RATE COMMAND: adds what makes and evaluates the cell to `job`
    local name && name=$(name_of "${stems[$1]}" "$2" "$3")
    job+="${job:+ && }$(named "$dir/$name") && $(made gguf "$4") && $(made json \
        "$(run eval --range "$range:1" --format jsonl)\"\$f.gguf\" $(printf %q "$text") >\"\$f.part\"")"
    cells+=("$name") cell_of+=("${names[$1]},${methods_of[$1]},$2,${3:--},$seed")
}
trained() { # VARIANT ALPHA RATE STEPS OPTIONS; an interrupted training leaves a state, with which it goes on
    local out='-o "$f.part" $(test -e "$f.part.state" && echo --resume || rm -f "$f.part")'
    cell "$1" "$2" "$3" "$(run train "$text" "${@:5}" --steps "$4" ${3:+--lr "$3"} --seed $seed \
        --eval-every -1)${options_of[$1]}$out && rm -f \"\$f.part.state\""
}
further_steps() { awk -v p="$1" -v n="$steps" 'BEGIN { k = int(p / 100 * n + 0.5); print k ? k : 1 }'; }
first=() second=()
for ((seed = 1; seed <= seeds; seed++)); do
    for v in "${!names[@]}"; do
        job='' method=${methods_of[v]} g=${n_kv[v]} own=()
        [ "$method" = train ] || own=(--heads "$heads" --kv-heads "$g")
        [ -z "${n_query[v]}" ] || own=(--heads "${n_query[v]}" --kv-heads "$g" ${sizes[v]:+--head-dim "${sizes[v]}"})
        [[ -z $match || ! $method =~ ^(train|mha|scratch)$ ]] || own+=(--ff "$(width "$v")")
        case $method in
        train) for rate in "${rates[@]:-}"; do
            job='' && trained "$v" 0 "$rate" "$steps" "${train[@]}" "${own[@]}"
            first+=("$job")
        done ;;
        scratch)
            alpha=0 more=0
            [ ${#alphas[@]} -eq 0 ] || { alpha=${alphas[-1]} && more=$(further_steps "$alpha"); }
            trained "$v" "$alpha" '' $((steps + more)) "${train[@]}" "${own[@]}"
            first+=("$job") ;;
        mha)
            trained "$v" 0 '' "$steps" "${train[@]}" "${own[@]}"
            first+=("$job") && job='' ;;
        *)
            words=(--kv-heads "$g" --method "$method" --seed "$seed" --force)
            [ "$method" != fit ] || words+=(--calib "$dir/study-calib.txt")
            cell "$v" 0 '' "$(run convert "$dir/$(name_of mha 0 '').gguf" "${words[@]}")-o \"\$f.part\"" ;;
        esac
        [[ $method =~ ^(train|scratch)$ ]] && continue
        for alpha in "${alphas[@]}"; do
            for rate in "${rates[@]:-}"; do
                trained "$v" "$alpha" "$rate" "$(further_steps "$alpha")" \
                    --from "$dir/$(name_of "${stems[v]}" 0 '').gguf" "${further[@]}"
            done
        done
        [ -z "$job" ] || second+=("$job")
    done
done

# --- the folder ---------------------------------------------------------------------------------
mkdir -p -- "$dir"
same() { # FILE PATTERN SETTINGS: of cells that there are the settings must be these
    [ -z "$(find "$dir" -name "$2")" ] || [ ! -e "$dir/$1" ] || { # there are cells
        local other && other=$(diff "$dir/$1" - <<<"$3" | sed -n 's/^</; there/p; s/^>/; here/p') || true
        [ -z "$other" ] || fail 2 "$dir: another study's; expected its text and options, or a new folder${other//$'\n'/}"
    }
    printf '%s\n' "$3" >"$dir/$1"
}
same study.txt '*-seed*.gguf' "$settings"
for i in "${!arms[@]}"; do same "arm-${stems[i]}.txt" "${stems[i]}-*seed*.gguf" "${arm_words[i]}"; done
head -c "$cut" -- "$text" >"$dir/calib.part" && mv -- "$dir/calib.part" "$dir/study-calib.txt"

# --- the run ------------------------------------------------------------------------------------
[ $prints = no ] || { printf '%s\n' "${first[@]}" '' "${second[@]}" && exit; }
set -m # each job is a process group, which a signal reaches as a whole
running=()
# A signal to this script ends the jobs that it started, then itself.
stop() { # SIGNAL
    trap - INT TERM HUP
    end_jobs "$1"
    kill -s "$1" $$
}
end_jobs() { # SIGNAL; a training saves its state first, a second signal does not wait for that
    for pid in "${running[@]}"; do kill -s "$1" -- "-$pid" 2>/dev/null || true; done
    for pid in "${running[@]}"; do
        wait "$pid" 2>/dev/null || true
        while kill -0 -- "-$pid" 2>/dev/null; do sleep 0.1; done
    done
}
for signal in INT TERM HUP; do trap "stop $signal" $signal; done
finished() { # waits until fewer than N jobs run
    while [ ${#running[@]} -ge "$1" ] && [ ${#running[@]} -gt 0 ]; do
        wait -n "${running[@]}" || true # which one ended is asked of each: a signal, too, ends the waiting
        local left=() p status
        for p in "${running[@]}"; do
            kill -0 "$p" 2>/dev/null && left+=("$p") && continue
            status=0 && wait "$p" || status=$?
            [ $status -eq 0 ] || { end_jobs TERM && fail $status "stopped; the same command goes on"; }
        done
        running=("${left[@]}")
    done
}
n_done=0
for group in first second; do
    declare -n jobs=$group
    for job in "${jobs[@]}"; do
        printf 'study.sh: job %d of %d: %s\n' $((++n_done)) $((${#first[@]} + ${#second[@]})) "${job%% &&*}" >&2
        bash -c "$job" >/dev/null </dev/null &
        running+=($!)
        finished "$n_jobs"
    done
    finished 1
done

# --- the table ----------------------------------------------------------------------------------
for i in "${!cells[@]}"; do
    bits=$(sed -n 's/.*"bits_per_byte": *\([0-9.]*\)[,}].*/\1/p' "$dir/${cells[i]}.json")
    echo "${cell_of[i]},${bits:-inf},${cells[i]}"
done | csv=$dir/study.part awk -F, -v first="${names[0]}" '
    function mean(row, rate,   s, sum) {
        for (s = 1; s <= seeds; s++)
            sum += bits[row, rate, s] == "inf" ? 1e9 : bits[row, rate, s]
        return sum / seeds
    }
    # Student t of 95% for so many degrees of freedom.
    function quantile(n,   t) {
        split("12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228", t, " ")
        return n in t ? t[n] : 1.96 + 2.4 / n + 3 / (n * n)
    }
    {
        line[NR] = $0
        row = row_of[NR] = $1 SUBSEP $2 SUBSEP $3
        if (!(row in n_rates)) order[++rows] = row
        if (!((row, $4) in at)) { at[row, $4]; rate_of[row, ++n_rates[row]] = $4 }
        bits[row, $4, $5] = $6
        if ($5 > seeds) seeds = $5
    }
    END {
        print "| variant | method | % of steps | rate | seeds | bits/byte | ± | over " first " | 95% |"
        print "|:--|:--|--:|--:|--:|--:|--:|--:|--:|"
        for (i = 1; i <= rows; i++) {
            row = order[i]
            for (r = 1; r <= n_rates[row]; r++)
                if (r == 1 || mean(row, rate_of[row, r]) < mean(row, best[row])) best[row] = rate_of[row, r]
        }
        for (i = 1; i <= rows; i++) {
            split(row = order[i], part, SUBSEP)
            base = first SUBSEP (part[2] == "train" ? "train" : "mha") SUBSEP part[3]
            m = mean(row, best[row])
            over = m - ((base in best) ? mean(base, best[base]) : 0)
            squares = paired = 0
            for (s = 1; s <= seeds; s++) {
                squares += (bits[row, best[row], s] - m) ^ 2
                paired += (bits[row, best[row], s] - bits[base, best[base], s] - over) ^ 2
            }
            deviation = seeds > 1 ? sprintf("%.4f", sqrt(squares / (seeds - 1))) : ""
            interval = seeds > 1 ? sprintf("%.4f", quantile(seeds - 1) * sqrt(paired / (seeds - 1) / seeds)) : ""
            printf "| %s | %s | %s | %s | %d | %.4f | %s | ", part[1], part[2], part[3], best[row], seeds, m, deviation
            print (row == base || !(base in best) ? " | |" : sprintf("%+.4f | %s |", over, interval))
        }
        print "variant,method,alpha,rate,seed,bits_per_byte,cell,best" >ENVIRON["csv"]
        for (i = 1; i <= NR; i++) {
            split(line[i], part, ",")
            print line[i] "," (part[4] == best[row_of[i]] ? "yes" : "no") >ENVIRON["csv"]
        }
    }' | tee -- "$dir/study.md"
mv -- "$dir/study.part" "$dir/study.csv"
