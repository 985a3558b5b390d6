#!/usr/bin/env bash
# LibriSpeech: prepare → tokenizer → train → decode → score. Run it again: it goes on where it was stopped, and does
# nothing that is done. By default it trains on the 100 h of train-clean-100, for which it wants a GPU.
#
#   recipes/librispeech/run.sh --corpus DIR [--name NAME] [--config YAML] [--train SPLIT] [--dev SPLIT]
#       [--test "SPLIT ..."] [--tokens "--kind bpe --size 1000"] [key.path=value ...]
set -euo pipefail
here=$PWD
source "$(dirname "$0")/../../scripts/environment.sh"

corpus= name=librispeech config=conf/librispeech100.yaml train=train-clean-100 dev=dev-clean test="test-clean test-other"
tokens="--kind bpe --size 1000"
while [[ "${1:-}" == --* ]]; do
    [ $# -ge 2 ] || { echo "run.sh: $1 wants a value" >&2; exit 2; }
    case "$1" in
        --corpus | --name | --config | --train | --dev | --test | --tokens) printf -v "${1#--}" %s "$2" ;;
        *) echo "run.sh: no such option $1; see the head of $0" >&2; exit 2 ;;
    esac
    shift 2
done
[ -n "$corpus" ] || { echo "run.sh: give the corpus: --corpus DIR, which holds LibriSpeech/ or its subsets" >&2; exit 2; }
[[ "$corpus" == /* ]] || corpus=$here/$corpus
data=data/$name exp=exp/$name

asr-prepare librispeech "$corpus" "$data"
asr-tokenizer "$data/$train.jsonl.gz" "$exp/tokenizer" $tokens
asr-train --config "$config" out="$exp/model" tokenizer="$exp/tokenizer" \
    data.train="$data/$train.jsonl.gz" data.dev="$data/$dev.jsonl.gz" "$@"
bash scripts/evaluate.sh "$name" "$test"
