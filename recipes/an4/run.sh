#!/usr/bin/env bash
# AN4, 50 minutes of spelled words, numbers and commands, with the telephone-bandwidth charm of 1991.
#   recipes/an4/run.sh [AN4_DIR] [key.path=value ...]      without AN4_DIR it is downloaded (64 MB)
set -euo pipefail
here=$PWD
source "$(dirname "$0")/../../scripts/environment.sh"

if [ -n "${1:-}" ] && [[ "$1" != *=* ]]; then
    corpus=$1; shift
    [[ "$corpus" == /* ]] || corpus=$here/$corpus
else
    corpus=data/an4-corpus
    asr-download an4 $corpus
fi
asr-prepare an4 "$corpus" data/an4
asr-tokenizer data/an4/train.jsonl.gz exp/an4/tokenizer --kind bpe --size 110
asr-train --config conf/an4.yaml "$@"
asr-ngram data/an4/train.jsonl.gz exp/an4/tokenizer exp/an4/lm.arpa.gz --order 4
# the weights: chosen on dev, by asr-decode --tune
bash scripts/evaluate.sh an4 test --ctc-weight 0.7 --length-bonus 1
asr-decode --model exp/an4/model --manifest data/an4/test.jsonl.gz --out exp/an4/test.joint+lm.txt \
    --ctc-weight 0.9 --lm exp/an4/lm.arpa.gz --lm-weight 0.5 --length-bonus 2
python scripts/result.py an4 test joint+lm data/an4/test.jsonl.gz exp/an4/test.joint+lm.txt \
    data/an4 exp/an4/tokenizer exp/an4/model
