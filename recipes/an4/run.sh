#!/usr/bin/env bash
# AN4, 50 minutes of spelled words, numbers and commands, with the telephone-bandwidth charm of 1991.
#   recipes/an4/run.sh [AN4_DIR] [key.path=value ...]      without AN4_DIR it is downloaded (64 MB)
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

if [ -n "${1:-}" ] && [[ "$1" != *=* ]]; then
    corpus=$(absolute "$1"); shift
else
    corpus=data/an4-corpus
    asr-download an4 "$corpus"
fi
keep_places "run its commands one by one to have it elsewhere" "$@"
asr-prepare an4 "$corpus" data/an4
asr-tokenizer data/an4/train.jsonl.gz exp/an4/tokenizer --kind bpe --size 110
step asr-train --gpus all --config conf/an4.yaml "$@"
asr-ngram data/an4/train.jsonl.gz exp/an4/tokenizer exp/an4/lm.arpa.gz --order 4
# the weights: chosen on dev, by asr-decode --tune
bash scripts/evaluate.sh an4 test --ctc-weight 0.7 --length-bonus 1
bash scripts/evaluate.sh an4 test --ctc-weight 0.9 --length-bonus 2 --lm exp/an4/lm.arpa.gz --lm-weight 0.5
