#!/usr/bin/env bash
# The main job on nothing but a computer: synthesise a small corpus of English speech, then run the LibriSpeech recipe
# on it, and listen. On two CPU cores 15 to 20 minutes. Run it again: nothing is redone.
#   recipes/mini/run.sh [key.path=value ...]
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

keep_places "recipes/librispeech/run.sh takes data/mini-corpus and more options" "$@"

python recipes/mini/synthesise.py data/mini-corpus
# the weights: chosen on dev by asr-decode --tune
bash recipes/librispeech/run.sh --corpus data/mini-corpus --name mini --config conf/mini.yaml \
    --train train-mini --dev dev-mini --test test-mini --tokens "--kind bpe --size 100" --ngram 8 \
    --modes "ctc-greedy attention-greedy ctc attention rescoring joint" \
    --decode "--length-bonus 1" --decode-lm "--length-bonus 2 --lm-weight 0.6" "$@"
bash recipes/mini/listen.sh
