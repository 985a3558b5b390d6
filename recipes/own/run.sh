#!/usr/bin/env bash
# Your own corpus: check → tokenizer → train → decode → score, with settings scaled by its hours, and once more with a
# language model of the texts. Run it again: it continues where it stopped, and repeats nothing.
#
#   recipes/own/run.sh TABLE.tsv [--test TABLE.tsv|N] [--dev N] [--name NAME] [--normalize plain|english]
#       [--texts FILE] [--config YAML | --pretrained SOURCE] [--gpus N] [key.path=value ...]
#
# TABLE.tsv has lines of `id path text [speaker]`, separated by tabs; paths are relative to it. Test and dev sets have N
# utterances each: by default a tenth of the table (at most 2000), and a twentieth of the rest (at most 1000). They are
# split off by speaker, or taken from all speakers if each of them says twice that or more. With --pretrained the encoder
# is one that others have trained (wav2vec 2.0, HuBERT, WavLM ...): a folder, or owner/name on the Hugging Face Hub.
# --texts has more sentences for the language model, one a line, in the spelling of the training's texts.
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

name=own dev='' test='' normalize='' texts='' config='' pretrained='' gpus=all
set -- "${@/#--normalise/--normalize}" # the old spelling
options "test dev name normalize texts config pretrained gpus" "TABLE.tsv" "$@"
check_name "$name"
config=$(yaml "$config")
[ -z "$texts" ] || texts=$(absolute "$texts")
[ -z "$texts" ] || [ -f "$texts" ] || mistake "--texts $texts: no such file"
[ -z "$config" ] || [ -z "$pretrained" ] ||
    mistake "--config and --pretrained: expected one of them; a copy of the config.yaml that --pretrained writes names the source"
[[ -z "$pretrained" || ! -d "$(absolute "$pretrained")" ]] || pretrained=$(absolute "$pretrained")
data=data/$name exp=exp/$name splits=("train=${places[0]}") carve=()
[[ -z "$test" || "$test" =~ ^[0-9.]+$ ]] || splits+=("test=$(absolute "$test")")
[ -z "$config" ] || check_settings "$exp/model" "$config"
# once training has begun, the model folder knows what the source is
[ -z "$pretrained" ] || [ -e "$exp/model" ] || python recipes/own/source.py "$pretrained" ${settings[@]+"${settings[@]}"}

python -m scripts.tables "$data-tables" "${splits[@]}"
shares=$(python recipes/own/shares.py "$data-tables")
[ ${#splits[@]} -eq 2 ] || carve=(--test "${test:-${shares% *}}")
step asr-prepare tsv "$data-tables" "$data" --dev "${dev:-${shares#* }}" ${carve[@]+"${carve[@]}"} \
    ${normalize:+--normalize "$normalize"}
tokens=$(python recipes/own/scaled.py "$data" "$exp" ${pretrained:+--pretrained "$pretrained"})
config=${config:-$exp/config.yaml}
# includes dev's texts: a character that only they have would have no token
# shellcheck disable=SC2086  # word splitting is intended
step asr-tokenizer "$data/train.jsonl.gz" "$data/dev.jsonl.gz" "$exp/tokenizer" $tokens
train=(--gpus "$gpus" --config "$config" out="$exp/model" tokenizer="$exp/tokenizer"
    data.train="$data/train.jsonl.gz" data.dev="$data/dev.jsonl.gz" ${settings[@]+"${settings[@]}"})
[ -e "$exp/model/config.yaml" ] || asr-train --check --test "$data/test.jsonl.gz" "${train[@]}"
step asr-train "${train[@]}"
step asr-decode --model "$exp/model" --manifest "$data/test.jsonl.gz" --out "$exp/test.txt"
asr-score "$data/test.jsonl.gz" "$exp/test.txt"
python -m scripts.result "$name" test joint "$data/test.jsonl.gz" "$exp/test.txt" "$data" "$exp/tokenizer" "$exp/model"

lm=$exp/lm.arpa.gz tuned=$exp/tuned.tsv status=0
step asr-ngram "$data/train.jsonl.gz" ${texts:+"$texts"} "$exp/tokenizer" "$lm" --order 4 || status=$?
if [ "$status" = 2 ] && [ ! -e "$lm" ]; then # such as texts of one token each, which have nothing to predict from
    complain "finished, without a language model (see above)"
    exit
fi
[ "$status" = 0 ] || exit "$status"
if [ ! "$tuned" -nt "$lm" ] || [ ! "$tuned" -nt "$exp/model/model.safetensors" ]; then
    asr-decode --model "$exp/model" --manifest "$data/dev.jsonl.gz" --lm "$lm" \
        --tune lm-weight=0,0.3,0.6,0.9 --tune length-bonus=0,1 >"$tuned.partial"
    mv "$tuned.partial" "$tuned"
fi
# of dev's lowest error rates the first
best=$(sort -s -n -k 1,1 "$tuned" | head -n 1 | cut -f 2)
# shellcheck disable=SC2086  # word splitting is intended
step asr-decode --model "$exp/model" --manifest "$data/test.jsonl.gz" --lm "$lm" $best --out "$exp/test.lm.txt"
asr-score "$data/test.jsonl.gz" "$exp/test.lm.txt" --against "$exp/test.txt"
python -m scripts.result "$name" test joint+lm "$data/test.jsonl.gz" "$exp/test.lm.txt" \
    "$data" "$exp/tokenizer" "$exp/model"
