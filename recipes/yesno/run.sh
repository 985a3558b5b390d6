#!/usr/bin/env bash
# yesno: sixty recordings of one man who says "yes" and "no" in Hebrew; every other file trains.
#   recipes/yesno/run.sh [WAVES_YESNO_DIR] [key.path=value ...]      without it, the corpus is downloaded from OpenSLR (5 MB)
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

options "" "[WAVES_YESNO_DIR]" "$@"
corpus=${places[0]:-data/yesno-corpus}
[ ${#places[@]} -gt 0 ] || step asr-download yesno "$corpus"
step asr-prepare yesno "$corpus" data/yesno
asr-tokenizer data/yesno/train.jsonl.gz exp/yesno/tokenizer --kind bpe --size 13  # both words whole
step asr-train --gpus all --config conf/yesno.yaml ${settings[@]+"${settings[@]}"}
bash scripts/evaluate.sh yesno test
