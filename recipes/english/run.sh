#!/usr/bin/env bash
# Real read English from three corpora: speechocean762, Common Voice and AN4.
#   recipes/english/run.sh SPEECHOCEAN_DIR COMMON_VOICE_DIR AN4_DIR [key.path=value ...]
# Each folder has its corpus' own layout (Common Voice: en/ of a release). Or tables of `id path text speaker`: the first
# folder has train.tsv and test.tsv, the second train.tsv.
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

options "" "SPEECHOCEAN_DIR COMMON_VOICE_DIR AN4_DIR" "$@"
speechocean=${places[0]} common_voice=${places[1]} an4=${places[2]}

learners=("$speechocean/train.tsv" "$speechocean/test.tsv") volunteers=$common_voice/train.tsv
[ ! -e "$speechocean/train/wav.scp" ] || learners=(kaldi:"$speechocean" kaldi:"$speechocean")
! grep -qs ^client_id "$common_voice/train.tsv" || volunteers=common_voice:$common_voice
# leaves out an utterance of 65 characters in 2.4 s, which CTC can't align
python -m scripts.tables data/english-tables train="${learners[0]}" train="$volunteers" train=an4:"$an4" \
    test="${learners[1]}" --without common_voice_en_37190595
step asr-prepare tsv data/english-tables data/english --dev 300 --normalize english
asr-tokenizer data/english/train.jsonl.gz data/english/dev.jsonl.gz exp/english/tokenizer --kind bpe --size 200
step asr-train --gpus all --config conf/english.yaml ${settings[@]+"${settings[@]}"}
step asr-ngram data/english/train.jsonl.gz exp/english/tokenizer exp/english/lm.arpa.gz --order 5
# weights chosen on dev with asr-decode --tune (README.md)
bash scripts/evaluate.sh english test --ctc-weight 0.3
bash scripts/evaluate.sh english test --ctc-weight 0.4 --length-bonus 1 --lm exp/english/lm.arpa.gz --lm-weight 0.8
