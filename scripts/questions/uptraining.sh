#!/usr/bin/env bash
# uptraining.sh TEXT - What do fewer K/V heads cost, and how much uptraining repairs it? The GQA paper's experiment: a
# llama of 2 layers of 128, 8 heads, 300 steps of 8 windows of 128 bytes, Muon, converted to 2 and 1 K/V heads, then trained
# for 5% of the steps more at six rates. Takes 5 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
study study "$text" --rates 0.0003,0.001,0.003,0.01,0.03,0.1 --arch llama --layers 2 --embd 128 --heads 8 --ctx 128 \
    --steps "$(steps 300)" --optimizer muon --lr 0.02 --kv-heads $([ $short = no ] && echo 2,1 || echo 1) --method mean,first,fit,scratch --alpha 0,5
baseline "$text" 1 bigrams
picture --panel rates "$dir/study/study.csv" --title "5% of the steps more" --level "bigrams=$(counts "$text" 1 | cut -d' ' -f2)"
