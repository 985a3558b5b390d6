#!/usr/bin/env bash
# Quick start: synthesize a small corpus of English speech, run the LibriSpeech recipe on it, and decode three recordings.
# It takes about 25 minutes on two CPU cores. Run it again: nothing is repeated. recipes/librispeech/run.sh has more
# options; it also accepts the corpus that this makes, data/mini-corpus.
#   recipes/mini/run.sh [key.path=value ...]
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

options "" "" "$@"

python recipes/mini/synthesize.py data/mini-corpus
# weights chosen on dev with asr-decode --tune
bash recipes/librispeech/run.sh --corpus data/mini-corpus --name mini --config conf/mini.yaml \
    --train train-mini --dev dev-mini --test test-mini --tokens "--kind bpe --size 300" --ngram 8 \
    --modes "ctc-greedy attention-greedy ctc attention rescoring joint" \
    --decode "--ctc-weight 0.3 --length-bonus 1" --decode-lm "--ctc-weight 0.5 --length-bonus 2 --lm-weight 0.4" "$@"
python recipes/mini/listen.py
