#!/bin/sh
# models.sh TEXT [FOLDER] - the recipe of the checkpoints in models/. Trains an MHA checkpoint on the first
# nine tenths of TEXT (Tiny Shakespeare, 1,115,394 bytes), converts it to 2 K/V heads and to MQA by `fit`,
# and trains both further for 5% of its steps, with the MHA checkpoint as the teacher. Then trains a llama on
# the same text, and a second llama of the same shape with the first as its teacher. Trained checkpoints are
# stored in F16, converted ones in Q8_0, which is made of F16. Writes checkpoints, training curves and the
# scores on the held-out last tenth to FOLDER (build/models). Takes about an hour on two cores.
set -eu

text=$1
out=${2:-build/models}
steps=3600
uptrain=$((steps / 20))
mkdir -p "$out/f32"
rm -f "$out"/f32/*.gguf "$out"/f32/*.state # those of an earlier run
make -s decode

bytes=$(wc -c <"$text")
head -c $((bytes * 9 / 10)) "$text" >"$out/f32/calib.txt"

./decode train "$text" -o "$out/f32/mha.gguf" --layers 4 --embd 256 --heads 8 --ff 704 \
    --vocab 512 --ctx 256 --batch 16 --steps $steps --lr 1.5e-3 --dropout 0.1 --seed 1 \
    --eval-every 150 --save-every 300 --log "$out/mha.csv"
for g in 2 1; do
    ./decode convert "$out/f32/mha.gguf" -o "$out/f32/fit-$g.gguf" --kv-heads $g \
        --calib "$out/f32/calib.txt" --force
    ./decode train "$text" -o "$out/f32/$g.gguf" --from "$out/f32/fit-$g.gguf" \
        --teacher "$out/f32/mha.gguf" --steps $uptrain --batch 16 --dropout 0.1 --seed 1 \
        --lr 3e-4 --warmup $((uptrain / 10)) \
        --log "$out/$g.csv"
done

# llama NAME OPTION... - trains a llama of the one shape
llama() {
    name=$1
    shift
    ./decode train "$text" -o "$out/f32/$name.gguf" --arch llama --layers 4 --embd 192 \
        --heads 6 --kv-heads 2 --vocab 512 --ctx 256 --batch 16 --dropout 0.1 --seed 1 \
        --eval-every 150 --log "$out/$name.csv" "$@"
}
llama teacher --steps $steps --lr 1.5e-3
./decode convert "$out/f32/teacher.gguf" -o "$out/f32/teacher-f16.gguf" --type f16 --force
llama llama --steps 3000 --lr 2e-3 --teacher "$out/f32/teacher-f16.gguf"

# store NAME SHIPPED TYPE - writes a checkpoint as it is shipped, and prints its score
store() {
    ./decode convert "$out/f32/$1.gguf" -o "$out/f32/$2-f16.gguf" --type f16 --force
    ./decode convert "$out/f32/$2-f16.gguf" -o "$out/shakespeare-$2.gguf" --type "$3" --force
    ./decode eval "$out/shakespeare-$2.gguf" "$text" --range 0.9:1
}
store mha mha f16
store 2 gqa2 q8_0
store 1 mqa q8_0
store llama llama f16
