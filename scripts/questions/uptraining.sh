#!/usr/bin/env bash
# uptraining.sh TEXT - How much does more training repair, and in what order are mean, first and random then? These are figures 4 and 5
# of the GQA paper. The shipped MHA checkpoint is converted to 1, 2 and 4 K/V heads by these three and by `fit`. The conversions and
# the checkpoint itself are then trained as it was (16 windows of 256 tokens a step, AdamW, dropout 0.1) for 1, 5 and 10% of its 3,600
# steps more. One training passes all shares: by the end of each its rate has fallen to a tenth, and then it begins anew. Seed 1 tries
# five rates, beyond 1% the two best of the share before and, until the best is between two others, the next one; seeds 2 and 3 have
# its best for that share. SHARES=1 leaves out the others.
# The second table is of models that were trained little: llamas of 2 layers of 128 with 8 heads, after 300 steps of 8 windows of 128
# bytes (Muon), converted, and trained for 5% of the steps more at six rates. Takes 95 minutes on two cores, and with SHARES=1 25.

. "$(dirname "$0")/common.sh"
needs_text "$@"
shares=${SHARES:-1,5,10} rates=(0.0001 0.0003 0.001 0.003 0.01) seeds=(1 2 3)
[ $short = no ] || { shares=1 rates=(0.001) seeds=(1); }
more=$dir/more
mkdir -p "$more"

# merged HEADS METHOD SEED: makes the conversion that a training starts from, and measures it. Like `further` it runs in a process of its
# own, beside another, and does not make again what is there.
merged() {
    local at=$more/$1-$2-$3
    [ ! -e "$at-0.bits" ] || return 0
    if [ $2 = MHA ]; then
        ln -sf "$mha" "$at.gguf"
    else
        converted "$at.gguf" $([ $2 = fit ] && echo text || echo none) --kv-heads $1 --method $2 --seed $3
    fi
    bits "$at.gguf" >"$at.part" && mv "$at.part" "$at-0.bits"
}

# further SHARE HEADS METHOD RATE SEED: trains on to this share, by all before it, and measures each.
further() {
    local at=$more/$2-$3-$4-$5 share steps options
    for share in ${shares//,/ }; do
        [ $share -le $1 ] || break
        [ ! -e "$at-$share.bits" ] || continue
        steps=$([ $short = no ] && echo $((36 * share)) || echo 2) options=(--resume)
        [ -e "$at.gguf.state" ] || options=(--from "$more/$2-$3-$([ $3 = random ] && echo $5 || echo 1).gguf" --lr $4 --seed $5 --eval-every -1 \
            --dropout 0.1 --batch $([ $short = no ] && echo 16 || echo 1))
        "$decode" train "$text" -o "$at.gguf" "${options[@]}" --steps $steps -t 1 -q
        bits "$at.gguf" >"$at.part" && mv "$at.part" "$at-$share.bits"
    done
}
export -f merged further converted bits column
export more shares decode text short mha

# each N FUNCTION: calls it with every N words of standard input.
each() { xargs -r -P 2 -n "$1" bash -euo pipefail -c '"$0" "$@"' "$2"; }

# kinds HEADS: prints the models with so many K/V heads, a line for each.
kinds() {
    [ $1 != 8 ] || echo 8 MHA
    [ $1 = 8 ] || printf "$1 %s\n" mean first random fit
}
numbers=(8 $(printf '%s\n' "${few[@]}" | sort -n))
before=
for share in ${shares//,/ }; do
    for heads in "${numbers[@]}"; do # seed 1 chooses the rate
        if [ -z "$before" ]; then
            kinds $heads | while read -r kind; do for seed in $([[ $kind == *random ]] && echo "${seeds[@]}" || echo 1); do echo $kind $seed; done; done | each 3 merged
            kinds $heads | while read -r kind; do printf "$share $kind %s 1\n" "${rates[@]}"; done | each 5 further
        else
            python3 "$here/uptraining.py" best "$more" $before 2 | sed -n "s/^$heads .*/$share & 1/p" | each 5 further
            while python3 "$here/uptraining.py" next "$more" $share "${rates[@]}" | grep "^$heads " >"$dir/next"; do
                sed "s/.*/$share & 1/" "$dir/next" | each 5 further
            done
        fi
        python3 "$here/uptraining.py" best "$more" $share 1 | grep "^$heads " |
            while read -r best; do for seed in "${seeds[@]:1}"; do echo $share $best $seed; done; done | each 5 further
    done
    before=$share
done
python3 "$here/uptraining.py" table "$more" "$dir/lines"
echo
study little "$text" --rates 0.0003,0.001,0.003,0.01,0.03,0.1 --arch llama --layers 2 --embd 128 --heads 8 --ctx 128 \
    --steps "$(steps 300)" --optimizer muon --lr 0.02 --kv-heads $([ $short = no ] && echo 2,1 || echo 1) --method mean,first,fit,scratch --alpha 0,5
baseline "$text" 1 bigrams
panels=()
for heads in "${numbers[@]:1}"; do
    panels+=(--panel lines "$dir/lines-$heads.csv" --title "$heads of 8 K/V heads" --x "% of its training more" --y "bits per byte over MHA" --log y)
done
picture "${panels[@]}"
