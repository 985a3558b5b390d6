#!/usr/bin/env bash
# Real read English of three corpora: speechocean762, Common Voice and AN4.
#   recipes/english/run.sh SPEECHOCEAN_DIR COMMON_VOICE_DIR AN4_DIR [key.path=value ...]
# Each is in its own layout (of Common Voice: a release's en/); or the first has train.tsv and test.tsv, the second
# train.tsv, of `id path text speaker`.
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

corpora=()
while [ $# -gt 0 ] && [[ "$1" != *=* ]]; do
    corpora+=("$(absolute "$1")")
    shift
done
[ ${#corpora[@]} -eq 3 ] || mistake "got ${#corpora[@]} folders, expected three: SPEECHOCEAN_DIR COMMON_VOICE_DIR AN4_DIR"
keep_places "run its commands one by one to have it elsewhere" "$@"
speechocean=${corpora[0]} common_voice=${corpora[1]} an4=${corpora[2]}

learners=("$speechocean/train.tsv" "$speechocean/test.tsv") volunteers=$common_voice/train.tsv
[ ! -e "$speechocean/train/wav.scp" ] || learners=(kaldi:"$speechocean" kaldi:"$speechocean")
! grep -qs ^client_id "$common_voice/train.tsv" || volunteers=common_voice:$common_voice
# without an utterance of 65 characters in 2.4 s, which CTC can't align
python scripts/tables.py data/english-tables train="${learners[0]}" train="$volunteers" train=an4:"$an4" \
    test="${learners[1]}" --without common_voice_en_37190595
asr-prepare tsv data/english-tables data/english --dev 300 --normalise english
asr-tokenizer data/english/train.jsonl.gz data/english/dev.jsonl.gz exp/english/tokenizer --kind bpe --size 500
step asr-train --gpus all --config conf/english.yaml "$@"
bash scripts/evaluate.sh english test --ctc-weight 0.5  # chosen on dev by asr-decode --tune
