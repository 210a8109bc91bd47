#!/usr/bin/env bash
# order.sh TEXT - In what order are mean, first and random after more training, and what does it repair? Figures 4 and 5 of the GQA
# paper with the shipped MHA checkpoint: 4, 2 and 1 K/V heads by each method and by `fit`, and the checkpoint itself, trained for 0 and 1% of
# its 3,600 steps of 16 windows more, at three rates, in three seeds. SHARES=1,5,10 has the paper's: 40 minutes on two cores for each 1%.

. "$(dirname "$0")/common.sh"
needs_text "$@"
model=$models/shakespeare-mha.gguf
tokens=$([ $short = no ] && echo 65536 || echo 256)
fewer=$([ $short = no ] && echo 4 2 1 || echo 1)
range=$([ $short = no ] && echo 0.9:1 || echo 0.9:0.91)
shares=${SHARES:-1} rates=(0.0003 0.001 0.003) seeds=3
[ $short = no ] || { shares=1 rates=(0.001) seeds=1; }
mkdir -p "$dir/more"
"$decode" eval "$model" "$text" --range $range --format csv -q >"$dir/eval.csv"
before=$(column bits_per_byte "$dir/eval.csv")
more() { # HEADS METHOD SHARE RATE SEED: bits per byte, in a file of that name
    local at=$dir/more/$1-$2-$3-$4-$5 from=$model options=(--calib none)
    [ ! -e "$at.bits" ] || return 0
    if [ "$2" != MHA ]; then
        from=$at.from.gguf
        [ "$2" != fit ] || options=(--calib "$text" --range 0:0.9 --calib-tokens $tokens)
        "$decode" convert "$model" -o "$from" --force --kv-heads "$1" --method "$2" --seed "$5" "${options[@]}" -t 1 -q >/dev/null
    fi
    if [ "$3" = 0 ]; then
        cp "$from" "$at.gguf"
    else
        "$decode" train "$text" -o "$at.gguf" --from "$from" --steps $([ $short = no ] && echo $((36 * $3)) || echo 2) \
            --batch $([ $short = no ] && echo 16 || echo 1) --lr "$4" --seed "$5" --eval-every -1 -t 1 -q
    fi
    "$decode" eval "$at.gguf" "$text" --range $range --format jsonl -t 1 -q | sed -n 's/.*"bits_per_byte": *\([0-9.]*\).*/\1/p' >"$at.part"
    mv "$at.part" "$at.bits"
    rm -f "$at".gguf* "$at.from.gguf"
}
export -f more
export decode model text range short tokens dir
for seed in $(seq $seeds); do
    for heads in $fewer; do for method in mean first random fit; do echo "$heads $method 0 0 $seed"; done; done
    for share in ${shares//,/ }; do
        for rate in "${rates[@]}"; do
            echo "8 MHA $share $rate $seed"
            for heads in $fewer; do for method in mean first random fit; do echo "$heads $method $share $rate $seed"; done; done
        done
    done
done | xargs -P 2 -n 5 bash -euc 'more "$@"' more
python3 - "$dir/more" "$before" "$dir/order.csv" <<'PYTHON'
import collections, glob, math, os, sys
folder, before, out = sys.argv[1:]
cells = collections.defaultdict(dict)  # (heads, method, share): of each rate its bits by seed
for path in glob.glob(folder + "/*.bits"):
    heads, method, share, rate, seed = os.path.basename(path)[: -len(".bits")].split("-")
    cells[int(heads), method, int(share)].setdefault(float(rate), {})[int(seed)] = float(open(path).read())


def best(of):
    """The rate with the least mean, and its bits."""
    rate = min(of, key=lambda r: sum(of[r].values()) / len(of[r]))
    return f"{rate:g}" + ("+" if len(of) > 1 and rate in (min(of), max(of)) else ""), of[rate]


print("| K/V heads | % of its training more | method | rate | bits/byte over MHA's | 95% | order |\n|--:|--:|:--|--:|--:|--:|:--|")
with open(out, "w") as lines:
    print("series,label,y,low,high", file=lines)
    for heads, share in sorted({(h, s) for h, m, s in cells if m != "MHA"}, key=lambda of: (-of[0], of[1])):
        mha = best(cells[8, "MHA", share])[1] if share else None
        rows = []
        for method in ("mean", "first", "random", "fit"):
            rate, bits = best(cells[heads, method, share])
            over = [b - (mha[seed] if mha else float(before)) for seed, b in bits.items()]
            m = sum(over) / len(over)
            half = 4.303 * math.sqrt(sum((x - m) ** 2 for x in over) / max(len(over) - 1, 1) / len(over))  # Student t of three seeds
            rows.append((m, half, method, rate))
        order = ", ".join(r[2] for r in sorted(r for r in rows if r[2] != "fit"))
        for m, half, method, rate in rows:
            print(f"| {heads} | {share} | {method} | {rate if share else ''} | {m:+.4f} | {half:.4f} | {order if method == 'mean' else ''} |")
            print(f"{method},{heads} K/V heads {share}%,{m},{m - half},{m + half}", file=lines)
    for share in sorted({s for _, m, s in cells if m == "MHA"}):
        rate, bits = best(cells[8, "MHA", share])
        print(f"| 8 | {share} | MHA itself | {rate} | {sum(bits.values()) / len(bits) - float(before):+.4f} over before | | |")
PYTHON
picture --panel bars "$dir/order.csv" --title "with a share of its training more" --y "bits per byte over MHA"
