#!/usr/bin/env bash
# Multi30k: 29,000 captions of photographs, English → German, lowercased and tokenized as the published results have them.
#   recipes/multi30k/run.sh [--raw] [--tokens "--kind bpe --size N"] [MULTI30K_DIR] [key.path=value ...]
# With --raw the texts are as they were written, with case and punctuation, and scored by sacrebleu's 13a.
# Without MULTI30K_DIR, a folder with train.lc.norm.tok.en (or train.en) or .gz and the others, the corpus is downloaded (6 MB).
# The corpus is CC BY-NC-SA 4.0: neither it nor a model that learns from it is for commercial use.
set -euo pipefail
ASR_EXTRAS=${ASR_EXTRAS:-mini,translate} # for scripts/environment.sh
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

raw='' tokens='--kind bpe --size 8000'
options "raw! tokens" "[MULTI30K_DIR]" "$@"
corpus=${places[0]:-data/multi30k-corpus} name=multi30k${raw:+-raw}
data=data/$name exp=exp/$name score=(--bleu --tokenize none) kind=.lc.norm.tok
[ -z "$raw" ] || score=(--bleu --tokenize 13a) kind=
tests=(test_2016_flickr test_2017_flickr test_2017_mscoco) splits=(train val "${tests[@]}")
[ ${#places[@]} -gt 0 ] || step asr-download multi30k "$corpus"
step asr-prepare parallel "$corpus" "$data" --languages en de --splits "${splits[@]/%/$kind}"
# shellcheck disable=SC2086  # word splitting is intended
step asr-tokenizer "$data/train$kind.en" "$data/train$kind.de" "$exp/tokenizer" $tokens
step asr-train --gpus all --config conf/multi30k.yaml out="$exp/model" tokenizer="$exp/tokenizer" \
    data.train="[$data/train$kind.en, $data/train$kind.de]" data.dev="[$data/val$kind.en, $data/val$kind.de]" \
    ${settings[@]+"${settings[@]}"}
# --length-norm is tuned on val (README.md)
for test in "${tests[@]}"; do
    step asr-decode --model "$exp/model" "$data/$test$kind.en" --beam 5 --length-norm 1.4 --out "$exp/$test.de"
    asr-score "$data/$test$kind.de" "$exp/$test.de" "${score[@]}"
done
