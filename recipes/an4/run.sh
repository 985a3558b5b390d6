#!/usr/bin/env bash
# AN4, 50 minutes of spelled words, numbers and commands, with the telephone-bandwidth charm of 1991.
#   recipes/an4/run.sh [--gpu] [AN4_DIR] [key.path=value ...]      without AN4_DIR it is downloaded (64 MB)
# --gpu: conf/an4-gpu.yaml in place of conf/an4.yaml
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

name=an4
if [ "${1:-}" = --gpu ]; then
    name=an4-gpu; shift
fi
if [ -n "${1:-}" ] && [[ "$1" != *=* ]]; then
    corpus=$(absolute "$1"); shift
else
    corpus=data/an4-corpus
    asr-download an4 "$corpus"
fi
keep_places "run its commands one by one to have it elsewhere" "$@"
asr-prepare an4 "$corpus" data/$name
asr-tokenizer data/$name/train.jsonl.gz exp/$name/tokenizer --kind bpe --size 110
step asr-train --gpus all --config conf/$name.yaml "$@"
asr-ngram data/$name/train.jsonl.gz exp/$name/tokenizer exp/$name/lm.arpa.gz --order 4
# the weights: chosen on dev by asr-decode --tune (README.md)
bash scripts/evaluate.sh $name test --ctc-weight 0.7 --length-bonus 1
bash scripts/evaluate.sh $name test --ctc-weight 0.7 --length-bonus 2 --lm exp/$name/lm.arpa.gz --lm-weight 0.3
