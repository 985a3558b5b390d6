#!/usr/bin/env bash
# Mandarin of Common Voice, as tables; tokens are characters.
#   recipes/mandarin/run.sh COMMON_VOICE_DIR [key.path=value ...]
# The folder has train.tsv and dev.tsv of `id path text speaker`. dev.tsv is the test set: the dev set is carved from
# train.tsv, so that nothing is chosen on the speakers that are tested.
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

[ $# -gt 0 ] && [[ "$1" != *=* ]] || mistake "give the corpus: COMMON_VOICE_DIR"
corpus=$(absolute "$1"); shift
keep_places "run its commands one by one to have it elsewhere" "$@"

python scripts/tables.py data/mandarin-tables train="$corpus/train.tsv" test="$corpus/dev.tsv"
asr-prepare tsv data/mandarin-tables data/mandarin --dev 200 --normalise plain
# of dev's texts too: a character that only they have would have no token
asr-tokenizer data/mandarin/train.jsonl.gz data/mandarin/dev.jsonl.gz exp/mandarin/tokenizer --kind characters
step asr-train --gpus all --config conf/mandarin.yaml "$@"
bash scripts/evaluate.sh mandarin test --ctc-weight 0.7 --length-bonus 1  # chosen on dev by asr-decode --tune
