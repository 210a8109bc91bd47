#!/usr/bin/env bash
# one_kv.sh TEXT - Is one K/V head better than fewer or smaller heads? It trains models of equal parameters, whose feed-forward
# layer takes what the heads leave: a llama of 2 layers of 64 with 4 heads of 16, the same over one K/V head, and models whose cache
# is as small: 1 head of 16, 2 of 8, 4 of 4 (300 steps of 8 windows of 64 bytes, Muon). Takes 3 minutes on two cores.

. "$(dirname "$0")/common.sh"
needs_text "$@"
study study "$text" --arch llama --layers 2 --embd 64 --ctx 64 --steps "$(steps 300)" --optimizer muon --heads 4x16,4x16/1,1x16,2x8,4x4 \
    --match params
baseline "$text" 1 bigrams
picture --panel rates "$dir/study/study.csv" --title "equal parameters" --level "bigrams=$(counts "$text" 1 | cut -d' ' -f2)"
