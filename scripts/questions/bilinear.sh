#!/usr/bin/env bash
# bilinear.sh - Is a dot product of queries and keys a bilinear score? It compares the scores of a head of the shipped MHA
# checkpoint, as `attend --trace` has them, with x W y, where W = Wq'Wk is one matrix of rank d_k. Takes a moment.

. "$(dirname "$0")/common.sh"
"$decode" attend "$models/shakespeare-mha.gguf" -p "To be, or not to be, that is the question." --trace 0.5 --json "$dir/trace.json" -q >/dev/null
python3 "$here/bilinear.py" "$models/shakespeare-mha.gguf" "$dir/trace.json" 0 5 "$dir/lines.csv"
picture --panel lines "$dir/lines.csv" --title "singular values of W, head 0.5" --x "number" --y "value"
