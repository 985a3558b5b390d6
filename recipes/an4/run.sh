#!/usr/bin/env bash
# AN4: 50 minutes of spelled words, numbers and commands, recorded at 16 kHz in 1991.
#   recipes/an4/run.sh [--gpu] [AN4_DIR] [key.path=value ...]      without AN4_DIR, the corpus is downloaded (64 MB)
# --gpu: use conf/an4-gpu.yaml instead of conf/an4.yaml
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

gpu=''
options "gpu!" "[AN4_DIR]" "$@"
name=an4${gpu:+-gpu} corpus=${places[0]:-data/an4-corpus}
data=data/$name exp=exp/$name
[ ${#places[@]} -gt 0 ] || step asr-download an4 "$corpus"
step asr-prepare an4 "$corpus" "$data"
step asr-tokenizer "$data/train.jsonl.gz" "$exp/tokenizer" --kind bpe --size 110
step asr-train --gpus all --config "conf/$name.yaml" ${settings[@]+"${settings[@]}"}
step asr-ngram "$data/train.jsonl.gz" "$exp/tokenizer" "$exp/lm.arpa.gz" --order 4
# weights chosen on dev with asr-decode --tune (README.md)
bash scripts/evaluate.sh "$name" test --ctc-weight 0.7 --length-bonus 1
bash scripts/evaluate.sh "$name" test --ctc-weight 0.7 --length-bonus 2 --lm "$exp/lm.arpa.gz" --lm-weight 0.3
