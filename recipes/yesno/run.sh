#!/usr/bin/env bash
# yesno: sixty recordings of one man who says "yes" and "no" in Hebrew; every other file trains.
#   recipes/yesno/run.sh [WAVES_YESNO_DIR] [key.path=value ...]      without it, it is downloaded from OpenSLR (5 MB)
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

if [ -n "${1:-}" ] && [[ "$1" != *=* ]]; then
    corpus=$(absolute "$1"); shift
else
    corpus=data/yesno-corpus
    asr-download yesno "$corpus"
fi
keep_places "run its commands one by one to have it elsewhere" "$@"
asr-prepare yesno "$corpus" data/yesno
asr-tokenizer data/yesno/train.jsonl.gz exp/yesno/tokenizer --kind bpe --size 13  # both words whole
step asr-train --gpus all --config conf/yesno.yaml "$@"
bash scripts/evaluate.sh yesno test
