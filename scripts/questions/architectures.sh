#!/usr/bin/env bash
# architectures.sh TEXT - What are the parts of a block worth? It trains a llama of 4 layers of 64, 4 heads, and models that differ
# from it in one part: positions, norms and their place, residual connections (and these in one layer and two), feed-forward layer, or
# one block's weights for all layers (200 steps of 8 windows of 64 bytes, Muon); and a shared block in twice the width and context (300
# steps). Takes 20 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
study arms "$text" --rates 0.005,0.01,0.02,0.04,0.08 --layers 4 --embd 64 --heads 4 --ctx 64 --batch 8 --steps "$(steps 200)" --optimizer muon \
    --arm llama --arch llama \
    --arm shared --arch decode --no-bias --norm rms --ffn swiglu --position rope --share-layers \
    --arm learned --arch decode --no-bias --norm rms --ffn swiglu --position learned \
    --arm sinusoidal --arch decode --no-bias --norm rms --ffn swiglu --position sinusoidal \
    --arm alibi --arch decode --no-bias --norm rms --ffn swiglu --position alibi \
    --arm none --arch decode --no-bias --norm rms --ffn swiglu --position none \
    --arm after --arch decode --no-bias --norm rms --ffn swiglu --position rope --placement after \
    --arm parallel --arch decode --no-bias --norm rms --ffn swiglu --position rope --placement parallel \
    --arm alone --arch decode --no-bias --norm rms --ffn swiglu --position rope --placement alone \
    --arm layer --arch decode --no-bias --norm layer --ffn swiglu --position rope \
    --arm gelu --arch decode --no-bias --norm rms --ffn gelu --position rope
baseline "$text" 0 letters
baseline "$text" 1 bigrams
baseline "$text" 1,2 trigrams
echo
echo "| arm | parameters |"
echo "|:--|--:|"
for arm in llama shared learned sinusoidal alibi none after parallel alone layer gelu; do
    "$decode" info "$(best arms $arm 1)" --format csv >"$dir/info.csv"
    echo "| $arm | $(awk -F, '$1 == "total" { print $2 }' "$dir/info.csv") |"
done
echo
study depth "$text" --rates 0.005,0.01,0.02,0.04,0.08 --embd 64 --heads 4 --ctx 64 --batch 8 --steps "$(steps 200)" --optimizer muon \
    --arm llama-1 --arch llama --layers 1 \
    --arm alone-1 --arch decode --no-bias --norm rms --ffn swiglu --position rope --placement alone --layers 1 \
    --arm llama-2 --arch llama --layers 2 \
    --arm alone-2 --arch decode --no-bias --norm rms --ffn swiglu --position rope --placement alone --layers 2
echo
study wide "$text" --layers 4 --embd 128 --heads 4 --ctx 128 --batch 8 --steps "$(steps 300)" --optimizer muon \
    --arm wide --arch llama --arm wide-shared --arch decode --no-bias --norm rms --ffn swiglu --position rope --share-layers
picture --panel rates "$dir/arms/study.csv" --level "bigrams=$(counts "$text" 1 | cut -d' ' -f2)" --title "one part changed" \
    --panel rates "$dir/depth/study.csv" --title "residual connections by depth" --panel rates "$dir/wide/study.csv" --title "twice the width and context"
