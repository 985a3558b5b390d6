#!/usr/bin/env bash
# Mandarin of Common Voice; tokens are characters.
#   recipes/mandarin/run.sh COMMON_VOICE_DIR [key.path=value ...]
# The folder is a release's, zh-CN/, or has train.tsv and dev.tsv of `id path text speaker`, of which dev.tsv is the test
# set. The dev set is carved from train.tsv, so that nothing is chosen on the speakers that are tested.
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

[ $# -gt 0 ] && [[ "$1" != *=* ]] || mistake "give the corpus: COMMON_VOICE_DIR"
corpus=$(absolute "$1"); shift
keep_places "run its commands one by one to have it elsewhere" "$@"

tables=(train="$corpus/train.tsv" test="$corpus/dev.tsv")
! grep -qs ^client_id "$corpus/train.tsv" || tables=(train=common_voice:"$corpus" test=common_voice:"$corpus")
python scripts/tables.py data/mandarin-tables "${tables[@]}"
asr-prepare tsv data/mandarin-tables data/mandarin --dev 200 --normalise plain
# of dev's texts too: a character that only they have would have no token
asr-tokenizer data/mandarin/train.jsonl.gz data/mandarin/dev.jsonl.gz exp/mandarin/tokenizer --kind characters
step asr-train --gpus all --config conf/mandarin.yaml "$@"
bash scripts/evaluate.sh mandarin test --ctc-weight 0.7 --length-bonus 1  # chosen on dev by asr-decode --tune
