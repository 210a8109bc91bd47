#!/usr/bin/env bash
# study.sh TEXT DIR [--seeds N] [--rates R,...] [--jobs N] [--print] [options of train]
#          [--heads H,...] [--kv-heads G,...] [--method M,...] [--alpha P,...] [--match params|flops]
#          [--arm NAME [options of train]] ... - trainings compared over seeds and learning rates
#
# It compares one of three things:
#   conversions    the GQA paper's experiment, for one number of --heads: an MHA checkpoint is trained for
#                  each seed, converted by each --method to each number of --kv-heads, and trained further
#                  for each --alpha, a percent of the steps. The method scratch trains such a model anew.
#   heads          models with several numbers of query heads, trained from scratch. An item of --heads is H,
#                  HxD for heads of size D, H/G for G K/V heads, or HxD/G. --match gives each a feed-forward
#                  layer of the width with which it has as many parameters, or operations, as the first
#                  model has as MHA.
#   arms           models trained from scratch. An arm has the options that stand behind its --arm; all arms
#                  share those that stand before the first --arm.
# Each is compared with the first one. By default: --heads 8, --kv-heads its divisors, --method
# mean,fit,scratch --alpha 0,5 --seeds 3 --steps 250. --rates are learning rates: every arm, or every further
# training, is tried at each. The table shows the best rate of each and marks one at the edge of the list.
# --seeds, --rates and --jobs are options of the study and stand before the first --arm.
# A cell is one trained or converted model: DIR/NAME.gguf, and DIR/NAME.json with its evaluation on the
# held-out part of TEXT. A cell that is there is not made again, so the same command goes on. --jobs is how
# many cells are made at a time. --print prints the commands and runs none; they are in two groups, and the
# second needs files of the first. DIR/study.csv has every cell, DIR/study.md the table.
set -euof pipefail
export LC_ALL=C
fail() { printf 'study.sh: %s\n' "$2" >&2 && exit "$1"; } # STATUS MESSAGE

# --- the command line -----------------------------------------------------------------------------

declare -A given=() # options before the first --arm, each with its value
arms=()             # names of arms
arm_options=()      # the own options of each arm, quoted for bash
prints=no

# take_option NAME [VALUE] - stores an option of the study, of all cells or of the last arm
take_option() {
    local quoted
    [[ ! $1 =~ ^--(output|from|teacher|log|resume|force|seed|save-every|eval-every)$ ]] ||
        fail 2 "$1 is chosen for each cell; expected options of the study or of a new model"
    if [ ${#arms[@]} -eq 0 ]; then
        given[$1]=${2-}
        return
    fi
    [[ ! $1 =~ ^--(seeds|rates|jobs|method|alpha|match)$ ]] ||
        fail 2 "$1 is the study's, not an arm's; expected it before the first --arm"
    printf -v quoted '%q ' "$@"
    arm_options[-1]+=$quoted
}

take_arm() { # NAME
    [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9.+/-]{0,40}$ ]] ||
        fail 2 "--arm: expected a name of letters, digits and .+-/, found '$1'"
    [[ " ${arms[*]} " != *" $1 "* ]] || fail 2 "--arm: there are two of '$1'"
    arms+=("$1") arm_options+=('')
}

read_command_line() {
    case ${1:-} in -h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$0" && exit ;; esac
    [[ $# -ge 2 && $1 != -* && $2 != -* ]] || fail 2 "expected TEXT DIR [options]; --help says more"
    [[ -f $1 && -r $1 ]] || fail 3 "$1: expected a file, which every cell reads again"
    text=$1 dir=${2%/}
    [ -n "$dir" ] || fail 2 "DIR: expected a folder for this study alone"
    shift 2
    while [ $# -gt 0 ]; do
        case $1 in
        --print) prints=yes ;;
        --arm=*) take_arm "${1#--arm=}" ;;
        --no-bias | --share-layers) take_option "$1" ;;
        --*=*) take_option "${1%%=*}" "${1#*=}" ;;
        -t | --*)
            [ $# -gt 1 ] || fail 2 "$1: expected a value"
            if [ "$1" = --arm ]; then take_arm "$2"; else take_option "${1/#-t/--threads}" "$2"; fi
            shift ;;
        *) fail 2 "expected an option of the study or of train, found '$1'" ;;
        esac
        shift
    done
}

# --- values of options ----------------------------------------------------------------------------

number='[1-9][0-9]{0,7}'

# items OPTION DEFAULT PATTERN [WHAT] - prints the items of the option's list, each once; WHAT names them
items() {
    local list=${given[$1]-$2} item seen=,
    while [ -n "$list" ]; do
        item=${list%%,*} list=${list#"$item"} list=${list#,}
        [[ $item =~ ^($3)$ ]] || fail 2 "$1: expected ${4:-$3}, found '$item'"
        [[ $seen == *",$item,"* ]] || { echo "$item" && seen+=$item,; }
    done
}

# whole OPTION DEFAULT - prints the option's value as a number: train reads 2k and 3M, too
whole() {
    local value=${given[$1]-$2} unit=1
    [[ $value =~ ^([0-9]{1,7})([kKM]?)$ ]] || fail 2 "$1: expected a whole number, found '$value'"
    case ${BASH_REMATCH[2]} in k | K) unit=1000 ;; M) unit=1000000 ;; esac
    echo $((10#${BASH_REMATCH[1]} * unit))
}

read_values() {
    steps=$(whole --steps 250)
    seeds=$(items --seeds 3 "$number" "a number of seeds")
    n_jobs=$(items --jobs 1 "$number" "a number of jobs")
    match=$(items --match '' 'params|flops')
    rates=($(items --rates '' '[0-9]*[.]?[0-9]+(e-?[0-9]{1,2})?' "learning rates"))
    held_out=$(items --val-fraction 0.1 "0?[.][0-9]{1,6}|0" "a fraction from 0 to 0.9")
    threads=(${given[--threads]:+-t "${given[--threads]}"})
}

# --- what is compared -----------------------------------------------------------------------------

# These arrays have an item for each variant: its name and method in the table, the beginning of its cells'
# names of files, its query heads, K/V heads and head size ('': train's default), and its own options, quoted
# for bash.
names=() methods=() stems=() n_query=() n_kv=() sizes=() own_options=()
alphas=() # percents above 0

variant() { # NAME METHOD STEM HEADS KV-HEADS SIZE OPTIONS
    names+=("$1") methods+=("$2") stems+=("$3") n_query+=("$4") n_kv+=("$5") sizes+=("$6") own_options+=("$7")
}

# refuse_given MESSAGE OPTION... - fails with this message if one of the options is given
refuse_given() {
    local option
    for option in "${@:2}"; do [ -z "${given[$option]+x}" ] || fail 2 "$1"; done
}

compare_arms() {
    local i
    refuse_given "--match, --kv-heads, --method, --alpha: not of arms, whose names are before their options" \
        --match --kv-heads --method --alpha
    for i in "${!arms[@]}"; do variant "${arms[i]}" train "${arms[i]//\//-}" '' '' '' "${arm_options[i]}"; done
}

compare_heads() { # HEADS...
    local item h k g
    refuse_given "--kv-heads, --method, --alpha: several --heads are not converted; expected one" \
        --kv-heads --method --alpha
    for item; do
        [[ $item =~ ^([0-9]+)(x([0-9]+))?(/([0-9]+))?$ ]]
        h=${BASH_REMATCH[1]} k=${BASH_REMATCH[3]} g=${BASH_REMATCH[5]}
        variant "heads-$item" train "heads-${item/\//-kv}" "$h" "${g:-$h}" "$k" ''
    done
}

compare_conversions() { # HEADS
    local divisors kv_heads by g name method
    divisors=$(for ((g = $1 / 2; g > 0; g--)); do (($1 % g)) || echo $g; done)
    kv_heads=($(items --kv-heads "${divisors//$'\n'/,}" "${divisors//$'\n'/|}"))
    by=$(items --method mean,fit,scratch 'mean|first|random|procrustes|fit|scratch')
    alphas=($(items --alpha 0,5 '[0-9]{1,6}([.][0-9]{1,6})?' "percents of the steps" | sort -n | awk '$0 > 0'))
    variant MHA mha mha "$1" "$1" '' ''
    for g in "${kv_heads[@]}"; do
        name=GQA-$g
        [ "$g" != 1 ] || name=MQA
        for method in $by; do variant "$name" "$method" "$(tr -d - <<<"${name,,}")-$method" "$1" "$g" '' ''; done
    done
}

choose_variants() {
    local heads
    if [ ${#arms[@]} -gt 0 ]; then
        compare_arms
        return
    fi
    heads=($(items --heads 8 "$number(x$number)?(/$number)?" "numbers of query heads"))
    unset 'given[--heads]' # each variant has its own
    if [[ ${#heads[@]} -eq 1 && $heads =~ ^$number$ ]]; then
        compare_conversions "$heads"
    else
        compare_heads "${heads[@]}"
    fi
}

# --- options of train -----------------------------------------------------------------------------

train=()   # what all trainings from scratch get
further=() # what all trainings with --from get
settings=  # what a folder must have been made with to be this study's

share_options() {
    local name words line
    for name in threads seeds jobs rates kv-heads method alpha; do unset "given[--$name]"; done
    settings="text $(cksum <"$text")"
    while IFS= read -r name; do
        [ -n "$name" ] || continue # there are no options
        words=("$name" ${given[$name]:+"${given[$name]}"})
        printf -v line '%q ' "${words[@]}"
        settings+=$'\n'${line% }
        [[ ! $name =~ ^--(steps|match)$ && $match$name != ?*--ff ]] || continue # these are written for each cell
        train+=("${words[@]}")
        [[ ! $name =~ ^--(ctx|batch|optimizer|weight-decay|clip|val-fraction)$ ]] || further+=("${words[@]}")
    done < <(printf '%s\n' "${!given[@]}" | sort)
}

# An option that train does not know is refused now, not when the job that has it begins.
check_options() {
    local known word
    decode=${DECODE:-$(cd "$(dirname "$0")/.." && pwd)/decode}
    [ -x "$decode" ] || fail 1 "$decode: there is no such program; make builds it, or DECODE names it"
    known=$("$decode" help train --all | grep -oE '^ +(-[a-zA-Z], )?--[a-z0-9-]+' | grep -oE -- '--[a-z0-9-]+$')
    for word in "${train[@]}" ${arm_options[*]}; do
        [[ $word != --* || $'\n'$known$'\n' == *$'\n'$word$'\n'* ]] ||
            fail 2 "$word: train has no such option; \`decode help train --all\` lists those it has"
    done
}

# --- equal parameters or operations ---------------------------------------------------------------

# The parts of a layer that --match counts, with train's defaults.
measure_layer() {
    local matrices=2
    d_model=$(whole --embd 128)
    ctx=$(whole --ctx 256)
    head_size=$(whole --head-dim 0)
    bias=1
    [[ ${given[--arch]-} != llama && ${given[--ffn]-} != swiglu ]] || matrices=3
    [[ ${given[--arch]-} != llama && -z ${given[--no-bias]+x} ]] || bias=0
    ff_first=$(whole --ff $((matrices == 3 ? (8 * d_model / 3 + 31) / 32 * 32 : 4 * d_model)))
    # The parameters, or the operations, that an element of the feed-forward layer adds.
    element=$((matrices * d_model + (matrices - 1) * bias))
    [ "$match" = params ] || element=$((2 * matrices * d_model))
}

# attention_cost H G SIZE - prints the parameters of a layer's attention, or its operations at half the context
attention_cost() {
    local size=${3:-$((head_size > 0 ? head_size : d_model / $1))}
    if [ "$match" = params ]; then
        echo $((($1 + 2 * $2) * size * (d_model + bias) + $1 * size * d_model))
    else
        echo $((4 * d_model * ($1 + $2) * size + 4 * $1 * size * (ctx / 2 + 1)))
    fi
}

# matched_width VARIANT - prints the --ff with which the variant costs as much as the first one does as MHA
matched_width() {
    local base own more ff
    base=$(attention_cost "${n_query[0]}" "${n_query[0]}" "${sizes[0]}")
    own=$(attention_cost "${n_query[$1]}" "${n_kv[$1]}" "${sizes[$1]}")
    more=$((base - own))
    ff=$((ff_first + (2 * more + (more < 0 ? -element : element)) / (2 * element))) # rounded
    [ $ff -ge 1 ] ||
        fail 2 "--match: ${n_query[$1]} heads, ${n_kv[$1]} K/V heads would need a feed-forward layer of $ff"
    echo $ff
}

# --- the cells and their commands -----------------------------------------------------------------

cells=()           # names of the cells' files
cell_rows=()       # each cell's line of study.csv, without the result
first=() second=() # jobs, which are shell commands for one cell or several; the second need files of the first
job=               # the job that is being written

cell_name() { # STEM ALPHA RATE: the cell of the current seed
    local name=$1
    [ "$2" = 0 ] || name+=-alpha$2
    [ -z "$3" ] || name+=-lr$3
    echo "$name-seed$seed"
}

# command_of ARGUMENT... - prints the program's command as bash reads it back
command_of() { printf '%q ' "$decode" "$@" -q "${threads[@]}"; }

# unless_made SUFFIX COMMAND - prints a command that makes "$f.SUFFIX" where that is missing. COMMAND writes
# "$f.part", which is renamed when it is whole.
unless_made() { echo "{ test -e \"\$f.$1\" || { $2 && mv \"\$f.part\" \"\$f.$1\"; }; }"; }

# add_cell VARIANT ALPHA RATE COMMAND - adds a cell to the job: the command that makes it, and its evaluation
add_cell() {
    local name file evaluation
    name=$(cell_name "${stems[$1]}" "$2" "$3")
    printf -v file 'f=%q' "$dir/$name"
    evaluation="$(command_of eval --range "$range:1" --format jsonl)\"\$f.gguf\" $(printf %q "$text") >\"\$f.part\""
    job+="${job:+ && }$file && $(unless_made gguf "$4") && $(unless_made json "$evaluation")"
    cells+=("$name") cell_rows+=("${names[$1]},${methods[$1]},$2,${3:--},$seed")
}

# add_training VARIANT ALPHA RATE STEPS OPTION... - adds a trained cell; an interrupted training leaves a
# state, from which it goes on
add_training() {
    local out='-o "$f.part" $(test -e "$f.part.state" && echo --resume || rm -f "$f.part")'
    local words=("${@:5}" --steps "$4" ${3:+--lr "$3"} --seed $seed --eval-every -1)
    add_cell "$1" "$2" "$3" \
        "$(command_of train "$text" "${words[@]}")${own_options[$1]}$out && rm -f \"\$f.part.state\""
}

# add_further_trainings VARIANT - adds cells that train this one further, for each percent of the steps at each
# rate
add_further_trainings() {
    local alpha rate from
    from=$dir/$(cell_name "${stems[$1]}" 0 '').gguf
    for alpha in "${alphas[@]}"; do
        for rate in "${rates[@]:-}"; do
            add_training "$1" "$alpha" "$rate" "$(share_of_steps "$alpha")" --from "$from" "${further[@]}"
        done
    done
}
share_of_steps() { awk -v p="$1" -v n="$steps" 'BEGIN { k = int(p / 100 * n + 0.5); print k ? k : 1 }'; } # PERCENT

# shape_options VARIANT - sets `shape` to the options of train that differ between variants
shape_options() {
    local heads=(--heads "${n_query[$1]}" --kv-heads "${n_kv[$1]}")
    shape=()
    [ -z "${n_query[$1]}" ] || shape=("${heads[@]}" ${sizes[$1]:+--head-dim "${sizes[$1]}"})
    [ -z "$match" ] || shape+=(--ff "$(matched_width "$1")")
}

plan_trained() { # VARIANT: one job for each rate
    local rate
    shape_options "$1"
    for rate in "${rates[@]:-}"; do
        job=
        add_training "$1" 0 "$rate" "$steps" "${train[@]}" "${shape[@]}"
        first+=("$job")
    done
}

plan_scratch() { # VARIANT: one training, as long as the longest one of a converted checkpoint
    local alpha=0 n=$steps
    shape_options "$1"
    [ ${#alphas[@]} -eq 0 ] || { alpha=${alphas[-1]} && n=$((steps + $(share_of_steps "$alpha"))); }
    add_training "$1" "$alpha" '' "$n" "${train[@]}" "${shape[@]}"
    first+=("$job")
}

plan_mha() { # VARIANT: a training, then further ones
    shape_options "$1"
    add_training "$1" 0 '' "$steps" "${train[@]}" "${shape[@]}"
    first+=("$job")
    job=
    add_further_trainings "$1"
    [ -z "$job" ] || second+=("$job")
}

plan_converted() { # VARIANT: a conversion of this seed's MHA checkpoint, then further trainings
    local words=(--kv-heads "${n_kv[$1]}" --method "${methods[$1]}" --seed "$seed" --force)
    [ "${methods[$1]}" != fit ] || words+=(--calib "$dir/study-calib.txt")
    add_cell "$1" 0 '' "$(command_of convert "$dir/$(cell_name mha 0 '').gguf" "${words[@]}")-o \"\$f.part\""
    add_further_trainings "$1"
    second+=("$job")
}

plan_cells() {
    local v
    # The beginning of the held-out part, in bytes and as a fraction for eval --range.
    read -r cut range < <(awk -v p="$held_out" -v size="$(wc -c <"$text")" 'BEGIN {
        r = sprintf("%.15g", 1 - p); print int((1 - p) * size), r + 0 == 1 - p ? r : sprintf("%.17g", 1 - p) }')
    [ -z "$match" ] || measure_layer
    for ((seed = 1; seed <= seeds; seed++)); do
        for v in "${!names[@]}"; do
            job=
            case ${methods[v]} in
            train) plan_trained "$v" ;;
            scratch) plan_scratch "$v" ;;
            mha) plan_mha "$v" ;;
            *) plan_converted "$v" ;;
            esac
        done
    done
}

# --- the folder -----------------------------------------------------------------------------------

# keep_settings FILE PATTERN SETTINGS - writes DIR/FILE; fails where the folder has cells of this pattern that
# were made with other settings
keep_settings() {
    local other
    if [ -e "$dir/$1" ] && [ -n "$(find "$dir" -name "$2")" ]; then
        other=$(diff "$dir/$1" - <<<"$3" | sed -n 's/^</; there/p; s/^>/; here/p') || true
        [ -z "$other" ] || fail 2 "$dir: another study's; expected its text and options, or a new folder${other//$'\n'/}"
    fi
    printf '%s\n' "$3" >"$dir/$1"
}

open_folder() {
    local i
    mkdir -p -- "$dir"
    keep_settings study.txt '*-seed*.gguf' "$settings"
    for i in "${!arms[@]}"; do keep_settings "arm-${stems[i]}.txt" "${stems[i]}-*seed*.gguf" "${arm_options[i]}"; done
    head -c "$cut" -- "$text" >"$dir/calib.part" && mv -- "$dir/calib.part" "$dir/study-calib.txt"
}

# --- the run --------------------------------------------------------------------------------------

running=() # processes of jobs; each leads a group of processes, and signals are sent to the group

# end_jobs SIGNAL - ends the jobs and waits for them; they get one signal only, because a second one would stop
# a training while it saves its state
end_jobs() {
    local pid
    for pid in "${running[@]}"; do kill -s "$1" -- "-$pid" 2>/dev/null || true; done
    for pid in "${running[@]}"; do
        wait "$pid" 2>/dev/null || true
        while kill -0 -- "-$pid" 2>/dev/null; do sleep 0.1; done
    done
}

# stop SIGNAL - ends the jobs and then this script, by the signal that it got
stop() {
    trap - INT TERM HUP
    end_jobs "$1"
    kill -s "$1" $$
}

# wait_for_room N - waits until fewer than N jobs run; ends all when one fails
wait_for_room() {
    local pid status left
    while [ ${#running[@]} -ge "$1" ] && [ ${#running[@]} -gt 0 ]; do
        # -f: a job that is suspended has not ended. A signal ends this wait as well, so that the loop below
        # asks which jobs have ended.
        wait -fn "${running[@]}" || true
        left=()
        for pid in "${running[@]}"; do
            kill -0 "$pid" 2>/dev/null && left+=("$pid") && continue
            status=0 && wait "$pid" || status=$?
            [ $status -eq 0 ] || { end_jobs TERM && fail $status "stopped; the same command goes on"; }
        done
        running=("${left[@]}")
    done
}

run_jobs() {
    local signal group job n_begun=0
    set -m # a process group for each job
    for signal in INT TERM HUP; do trap "stop $signal" $signal; done
    for group in first second; do
        local -n jobs=$group
        for job in "${jobs[@]}"; do
            printf 'study.sh: job %d of %d: %s\n' $((++n_begun)) $((${#first[@]} + ${#second[@]})) "${job%% &&*}" >&2
            bash -c "$job" >/dev/null </dev/null &
            running+=($!)
            wait_for_room "$n_jobs"
        done
        wait_for_room 1
    done
}

# --- the table ------------------------------------------------------------------------------------

# results - prints a line for each cell: variant,method,alpha,rate,seed,bits_per_byte,cell
results() {
    local i bits
    for i in "${!cells[@]}"; do
        bits=$(sed -n 's/.*"bits_per_byte": *\([0-9.]*\)[,}].*/\1/p' "$dir/${cells[i]}.json")
        echo "${cell_rows[i]},${bits:-inf},${cells[i]}"
    done
}

# table - reads these lines and prints the table; writes them to study.csv with a mark for the best rate
table() {
    csv=$dir/study.part awk -F, -v first="${names[0]}" '
    function mean(row, rate,   s, sum) {
        for (s = 1; s <= seeds; s++)
            sum += bits[row, rate, s] == "inf" ? 1e9 : bits[row, rate, s]
        return sum / seeds
    }
    # Student t for 95%, by degrees of freedom.
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
            for (r = 1; r <= n_rates[row]; r++) {
                rate = rate_of[row, r]
                if (r == 1 || mean(row, rate) < mean(row, best[row])) best[row] = rate
                if (r == 1 || rate + 0 < least[row]) least[row] = rate + 0
                if (r == 1 || rate + 0 > most[row]) most[row] = rate + 0
            }
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
            edge = least[row] < most[row] && (best[row] + 0 == least[row] || best[row] + 0 == most[row]) ? " (edge)" : ""
            printf "| %s | %s | %s | %s | %d | %.4f | %s | ", part[1], part[2], part[3], best[row] edge, seeds, m, deviation
            print (row == base || !(base in best) ? " | |" : sprintf("%+.4f | %s |", over, interval))
        }
        print "variant,method,alpha,rate,seed,bits_per_byte,cell,best" >ENVIRON["csv"]
        for (i = 1; i <= NR; i++) {
            split(line[i], part, ",")
            print line[i] "," (part[4] == best[row_of[i]] ? "yes" : "no") >ENVIRON["csv"]
        }
    }'
}

write_table() {
    results | table | tee -- "$dir/study.md"
    mv -- "$dir/study.part" "$dir/study.csv"
}

# --------------------------------------------------------------------------------------------------

read_command_line "$@"
read_values
choose_variants
share_options
check_options
plan_cells
open_folder
if [ $prints = yes ]; then
    printf '%s\n' "${first[@]}" '' "${second[@]}"
else
    run_jobs
    write_table
fi
