#!/usr/bin/env bash
# Mandarin from Common Voice; tokens are characters.
#   recipes/mandarin/run.sh COMMON_VOICE_DIR [key.path=value ...]
# The folder is zh-CN/ of a release, or has train.tsv and dev.tsv with lines of `id path text speaker`. dev.tsv is the test
# set. The dev set is split off train.tsv, so that nothing is chosen on the test speakers.
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

options "" "COMMON_VOICE_DIR" "$@"
corpus=${places[0]}

tables=(train="$corpus/train.tsv" test="$corpus/dev.tsv")
! grep -qs ^client_id "$corpus/train.tsv" || tables=(train=common_voice:"$corpus" test=common_voice:"$corpus")
python -m scripts.tables data/mandarin-tables "${tables[@]}"
step asr-prepare tsv data/mandarin-tables data/mandarin --dev 200 --normalize plain
# includes dev's texts: a character that only they have would have no token
asr-tokenizer data/mandarin/train.jsonl.gz data/mandarin/dev.jsonl.gz exp/mandarin/tokenizer --kind characters
step asr-train --gpus all --config conf/mandarin.yaml ${settings[@]+"${settings[@]}"}
step asr-ngram data/mandarin/train.jsonl.gz exp/mandarin/tokenizer exp/mandarin/lm.arpa.gz --order 4
# weights chosen on dev with asr-decode --tune (README.md)
bash scripts/evaluate.sh mandarin test --ctc-weight 0.3 --length-bonus 1
bash scripts/evaluate.sh mandarin test --ctc-weight 0.5 --length-bonus 1 --lm exp/mandarin/lm.arpa.gz --lm-weight 0.2
