#!/usr/bin/env bash
# Your own corpus: check → tokenizer → train → decode → score, with settings scaled by its hours. Run it again: it goes
# on where it was stopped, and does nothing that is done.
#
#   recipes/own/run.sh TABLE.tsv [--test TABLE.tsv|N] [--dev N] [--name NAME] [--normalise plain|english]
#       [--config YAML] [--gpus N] [key.path=value ...]
#
# TABLE.tsv: `id path text [speaker]`, tab-separated; paths are relative to it. Test and dev sets are whole speakers of
# the table: N utterances, by default a tenth (at most 2000) and of the rest a twentieth (at most 1000), which are taken
# from all speakers where each says twice that or more.
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

share() { awk -v n="$1" -v p="$2" -v most="$3" 'BEGIN { printf "%.9f\n", n * p > most ? most / n : p }'; }
table='' name=own dev='' test='' normalise='' config='' gpus=all
while [ $# -gt 0 ] && [[ "$1" != *=* ]]; do
    case "$1" in
        --test | --dev | --name | --normalise | --config | --gpus)
            [ $# -ge 2 ] || mistake "$1 wants a value"
            printf -v "${1#--}" %s "$2"; shift 2 ;;
        -*) mistake "no such option $1; see the head of $0" ;;
        *) [ -z "$table" ] || mistake "got a second table, $1; name the one for testing by --test"
           table=$(absolute "$1"); shift ;;
    esac
done
[ -n "$table" ] || mistake "give your table: TABLE.tsv with lines of id, path, text and perhaps speaker"
keep_places "--name chooses it" "$@"
data=data/$name exp=exp/$name splits=("train=$table") carve=()
[[ -z "$test" || "$test" =~ ^[0-9.]+$ ]] || splits+=("test=$(absolute "$test")")

python scripts/tables.py "$data-tables" "${splits[@]}"
lines=$(($(wc -l <"$data-tables/train.tsv") - 1))
[ ${#splits[@]} -eq 2 ] || carve=(--test "${test:-$(share $lines 0.1 2000)}")
step asr-prepare tsv "$data-tables" "$data" --dev "${dev:-$(share $lines 0.05 1000)}" ${carve[@]+"${carve[@]}"} \
    ${normalise:+--normalise "$normalise"}
tokens=$(python recipes/own/scaled.py "$data" "$exp")
config=$(yaml "${config:-$exp/config.yaml}")
# of dev's texts too: a character that only they have would have no token
# shellcheck disable=SC2086  # its words are meant
step asr-tokenizer "$data/train.jsonl.gz" "$data/dev.jsonl.gz" "$exp/tokenizer" $tokens
train=(--gpus "$gpus" --config "$config" out="$exp/model" tokenizer="$exp/tokenizer"
    data.train="$data/train.jsonl.gz" data.dev="$data/dev.jsonl.gz" "$@")
[ -e "$exp/model/config.yaml" ] || asr-train --check --test "$data/test.jsonl.gz" "${train[@]}"
step asr-train "${train[@]}"
step asr-decode --model "$exp/model" --manifest "$data/test.jsonl.gz" --out "$exp/test.txt"
asr-score "$data/test.jsonl.gz" "$exp/test.txt"
python scripts/result.py "$name" test joint "$data/test.jsonl.gz" "$exp/test.txt" "$data" "$exp/tokenizer" "$exp/model"
